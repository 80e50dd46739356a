// SPDX-License-Identifier: Apache-2.0
/*
 * The driver fails under a program that goes on: SIM_FAIL from outside, one call at a time, with FAILURE_CODE: out of
 * memory, or an error that nobody has a plan for.
 */
#include "test/preload/run.h"
#include "test/test.h"

/*
 * The n-th call of each function that serving may use fails, for n = 1, 2, ... until it is not called so often. Each
 * time the program sees success, that very error, or out of memory where a question on the way failed; its data is
 * right, and afterwards all of the memory is there.
 */
static struct outcome survive(const char *order)
{
	return RUN(SET(order, "SIM_MEMORY=16MiB", "SIM_FILL=0", "SPILLWAY_SET=device.budget=4MiB,host.budget=8MiB"),
		   ACTOR, "survives");
}

/* Asked once at the start: a place whose granularity cannot be learned is not used for good. */
static bool lasts(const char *name)
{
	return !strcmp(name, "cuMemGetAllocationGranularity");
}

static void must_have_survived(const char *order, const char *name, int error, const struct outcome *outcome)
{
	char expected[16];

	snprintf(expected, sizeof(expected), "%d\n", error);
	bool honest = !strcmp(outcome->out, "0\n") || !strcmp(outcome->out, "2\n") || !strcmp(outcome->out, expected);
	if (!honest || (outcome->status && !(outcome->status == 5 && lasts(name))))
		fail_msg("%s: status %d, stdout %s, stderr:\n%s", order, outcome->status, outcome->out, outcome->err);
}

#define LEND(peers, devices)                                                                                           \
	RUN(SET("SIM_MEMORY=128MiB", "SIM_DEVICES=3", "SIM_PEERS=" peers,                                              \
		"SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,spill.mode=static,report.summary=full,spill."      \
		"peers=" devices),                                                                                     \
	    ACTOR, "ends_from_main")

/* Device 3 does not exist, device 1 is not within reach; device 2 lends. */
TEST(who_cannot_lend_is_named_and_left_out)
{
	SAYS(LEND("0-2", "1 .. 3"), 7, "", 0,
	     {1, "device 1 cannot lend memory to device 0: the one does not reach the other"},
	     {1, "device 3 cannot lend memory to device 0: there is no such device"}, {1, " went to other devices; "},
	     {1, "spillway:   peer "}, {0, "spillway:   host "});
}

/* Device 2 may be given access to the heap of device 0, and would not reach what device 1 lends. */
TEST(what_others_would_not_reach_is_not_lent)
{
	SAYS(LEND("0-1,0-2", "1"), 7, "", 0, {1, "device 1 cannot lend memory to device 0: a third reaches this one"},
	     {0, "spillway:   peer "}, {1, "spillway:   host "});
}

TEST(without_failures_everything_succeeds)
{
	SAYS(survive("SIM_FAIL="), 0, "0\n", 0, {0});
}

TEST(every_failure_of_the_driver_is_survived)
{
	static const char *const names[] = {"cuMemCreate",
					    "cuMemMap",
					    "cuMemSetAccess",
					    "cuMemUnmap",
					    "cuMemRelease",
					    "cuMemAddressReserve",
					    "cuMemGetAllocationGranularity",
					    "cuMemGetInfo_v2",
					    "cuDeviceTotalMem_v2",
					    "cuCtxGetDevice",
					    "cuCtxGetCurrent",
					    "cuCtxGetStreamPriorityRange",
					    "cuCtxSynchronize",
					    "cuEventCreate",
					    "cuEventRecord",
					    "cuEventQuery",
					    "cuEventDestroy_v2",
					    "cuThreadExchangeStreamCaptureMode"};
	int error = atoi(getenv("FAILURE_CODE"));
	unsigned tried = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		bool over = false;

		for (unsigned n = 1; n <= 20 && !over; n += n < 5 ? 1 : 5) {
			char order[128];

			snprintf(order, sizeof(order), "SIM_FAIL=%s:%u:%d", names[i], n, error);
			struct outcome outcome = survive(order);
			over = outcome.status == 3; /* not called so often */
			if (!over)
				must_have_survived(order, names[i], error, &outcome);
			run_free(&outcome);
			tried += !over;
		}
	}
	assert_true(tried > 40);
}
