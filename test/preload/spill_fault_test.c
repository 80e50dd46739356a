// SPDX-License-Identifier: Apache-2.0
/*
 * Failures in the middle of moves: each driver call that a move may make fails once, the first, the second and, at
 * night, later ones. The job's bytes are right all the same, nothing is lost for good, and the process goes on. What
 * fails for longer has a program of its own (spill_lasting_test.c). Each trial is a process of its own (child.h) with a
 * job that needs twice its budget (fault_help.h). The job itself makes none of the calls that fail.
 */
#include "test/preload/fault_help.h"
#include "test/test.h"

static struct fault {
	const char *name;
	unsigned nth;
	CUresult error;
	/* Before the first allocation, when all of them are made, or after the job has run a while. */
	enum moment { FROM_THE_BEGINNING, WITH_THE_FIRST_MOVE, ONCE_THE_JOB_RUNS } moment;
} fault;

static void job_with_a_fault(void)
{
	scene_load(&scene, 0);
	CUstream one = own_stream();
	CUstream two = own_stream();
	if (fault.moment == FROM_THE_BEGINNING)
		sim_fail(fault.name, fault.nth, fault.error);
	scene_allocate(&scene);
	if (fault.moment == WITH_THE_FIRST_MOVE)
		sim_fail(fault.name, fault.nth, fault.error);
	/* After a failure the library may rather leave everything where it is. */
	CHECK(scene_warm_up(&scene) || (fault.moment != ONCE_THE_JOB_RUNS && !sim_fail_pending()));
	if (fault.moment == ONCE_THE_JOB_RUNS)
		sim_fail(fault.name, fault.nth, fault.error);
	/* Moves go on behind the job at their own pace. */
	for (int i = 0; i < (scene_moves() ? MOST_ROUNDS : ROUNDS) && sim_fail_pending(); i++)
		run_rounds(one, two, 1);
	run_rounds(one, two, ROUNDS);
	MUST(cu.cuCtxSynchronize());
	bool pending = sim_fail_pending();
	sim_fail(fault.name, 0, CUDA_SUCCESS);
	finish_job(one, two);
	if (pending)
		_exit(NEVER_REACHED);
}

static const char *const always[] = {
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuCtxRecordEvent",
    "cuStreamCreate",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamWaitValue32_v2",
    "cuStreamIsCapturing",
    "cuStreamGetCtx",
    "cuMemcpyAsync",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpy2DAsync_v2",
    "cuMemsetD8Async",
    "cuLaunchKernel",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuLibraryLoadData",
    "cuFuncGetParamInfo",
    "cuKernelGetParamInfo",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuThreadExchangeStreamCaptureMode",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxGetDevice",
    "cuCtxGetStreamPriorityRange",
    "cuPointerGetAttribute",
};
/* Of these an allocation may fail, too, and rightly say so: late only. */
static const char *const memory[] = {
    "cuMemCreate",      "cuMemMap",
    "cuMemSetAccess",   "cuMemUnmap",
    "cuMemRelease",     "cuMemAddressReserve",
    "cuMemAddressFree", "cuMemRetainAllocationHandle",
};
/*
 * The part each belongs to: those that a move cannot do without are in one, for some calls of theirs must have failed.
 */
static const unsigned part_of[] = {8, 9, 9, 9, 10, 11, 8, 10};
enum { MUST_FAIL = 9, FIRST_MOVE = 6 };

/*
 * Every trial takes the time in which the library loses its patience, some hundred of them one after another more than
 * a test may. FAULT_SHARD=K/N is the K-th (from 1) of N parts, by the names of calls; without it all are tried.
 */
static bool is_ours(size_t name)
{
	const char *shard = getenv("FAULT_SHARD");
	unsigned k, n;

	if (!shard)
		return true;
	if (sscanf(shard, "%u/%u", &k, &n) != 2 || k < 1 || k > n)
		fail_msg("FAULT_SHARD=%s is no part", shard);
	return name % n == k - 1;
}

/*
 * FAULT_CALLS=N in the environment: the first N of these are tried. With FAULT_ALL (scripts/nightly.sh) all are,
 * without either two.
 */
static const unsigned nths[] = {1, 2, 3, 7, 20};

static size_t n_nths(void)
{
	const char *calls = getenv("FAULT_CALLS");

	if (getenv("FAULT_ALL"))
		return sizeof(nths) / sizeof(nths[0]);
	return calls ? strtoul(calls, NULL, 10) : 2;
}

/* How many calls were made to fail. */
static unsigned fail_each(const char *name, CUresult error, enum moment moment)
{
	static const char *const said[] = {"from the beginning", "with the first move", "once the job runs"};

	size_t i;

	for (i = 0; i < n_nths(); i++) {
		fault = (struct fault){.name = name, .nth = nths[i], .error = error, .moment = moment};
		int status = child_run(SCENE_SETTINGS(), job_with_a_fault);
		if (status == NEVER_REACHED)
			break;
		if (status != 0)
			fail_msg("%s, call %u %s, error %d: status %d", name, nths[i], said[moment], error, status);
	}
	if (i)
		print_message("%s, error %d: %zu calls failed\n", name, error, i);
	return (unsigned)i;
}

TEST(a_call_that_fails_at_the_beginning_costs_nothing_but_speed)
{
	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		if (is_ours(i))
			fail_each(always[i], CUDA_ERROR_UNKNOWN, FROM_THE_BEGINNING);
}

TEST(a_call_that_fails_in_a_move_costs_nothing_but_speed)
{
	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		if (is_ours(i))
			fail_each(always[i], CUDA_ERROR_UNKNOWN, ONCE_THE_JOB_RUNS);
}

/*
 * With the first piece that comes out it is measured how copies have to be made (link.c), by calls of its
 * own.
 */
TEST(a_call_that_fails_with_the_first_move_costs_nothing_but_speed)
{
	static const char *const names[] = {"cuMemUnmap",          "cuMemMap",      "cuMemSetAccess",
					    "cuMemAddressReserve", "cuEventRecord", "cuStreamQuery",
					    "cuMemcpyDtoDAsync_v2"};
	unsigned failed = 0;

	if (!is_ours(FIRST_MOVE))
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		failed += fail_each(names[i], CUDA_ERROR_UNKNOWN, WITH_THE_FIRST_MOVE);
	if (scene_moves())
		assert_true(failed > 0);
}

TEST(a_memory_call_that_fails_in_a_move_costs_nothing_but_speed)
{
	unsigned failed = 0;

	for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
		if (!is_ours(part_of[i]))
			continue;
		failed += fail_each(memory[i], CUDA_ERROR_UNKNOWN, ONCE_THE_JOB_RUNS);
		failed += fail_each(memory[i], CUDA_ERROR_OUT_OF_MEMORY, ONCE_THE_JOB_RUNS);
	}
	if (scene_moves() && is_ours(MUST_FAIL))
		assert_true(failed > 0);
}

START(scene_size = SCENE_SMALL)
