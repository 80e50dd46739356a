// SPDX-License-Identifier: Apache-2.0
/*
 * Made-up programs (spill_random.c) under the library, in the mode that SPILL_MODE names: every byte is right, and
 * the digest of the run is that of the same program without the library. SPILL_SUBMISSIONS says how long they are. They
 * use 96 MiB: to make that much, and to compare it after each phase, takes most of the time of one that is so short.
 */
#include "test/preload/run.h"
#include "test/slow.h"
#include "test/test.h"

enum { STOPPED = 3 }; /* what spill_random ends with when its context died of an illegal address */

struct trial {
	const char *seed, *threads, *budget;
	bool hidden;
	const char *sim;      /* a setting of the simulated GPU, or NULL */
	unsigned share;       /* of the submissions, one in so many; 0: all */
	const char *lent;     /* by each of two other devices, or NULL */
	const char *in_order; /* most blocks are allocated in stream order: async.use; NULL: few are */
	bool on_use;          /* what is large gets memory when it is used, part by part */
	const char *chunk;    /* heap.chunk; NULL: as the budget has it, which are short pieces */
	bool leave;           /* the process ends by exit() while its threads are at work */
};
#define PASSES(s, t, b, ...) passes(&(struct trial){.seed = s, .threads = t, .budget = b, ##__VA_ARGS__})

static struct outcome run_trial(const struct trial *trial, const char *preload, const char *set)
{
	const char *all = getenv("SPILL_SUBMISSIONS");
	char n[32], deadline[32];

	snprintf(n, sizeof(n), "%lu", strtoul(all ? all : "20000", NULL, 0) / (trial->share ? trial->share : 1));
	snprintf(deadline, sizeof(deadline), "%d", 100 * TEST_SLOWNESS);
	return RUN(SET("SIM_MEMORY=512MiB", "SIM_DEVICES=3", "SIM_FILL=0", set,
		       trial->on_use ? "SPILLWAY_POLICY=" ON_USE_POLICY : "SPILLWAY_POLICY=",
		       trial->sim ? trial->sim : "SIM_SEED=0", preload),
		   SPILL_RANDOM, "--seed", trial->seed, "--threads", trial->threads, "--submissions", n, "--deadline",
		   deadline, "--bytes", "96", "--in-order", trial->in_order ? "1" : "0",
		   trial->hidden ? NULL : "--no-hidden", trial->leave ? "--leave" : NULL);
}

/* Only `fast` may stop a job, only for an access that nothing announced, and then it says what to do about it. */
static bool is_the_defined_stop(const struct trial *trial, const struct outcome *outcome)
{
	return !strcmp(run_mode(), "fast") && trial->hidden && outcome->status == STOPPED &&
	       run_lines_with(outcome->err, "spill.mode: exact") > 0;
}

static void passes(const struct trial *trial)
{
	struct outcome plain = run_trial(trial, "LD_PRELOAD=", "SPILLWAY=off"), ours;
	char set[200], preload[512];

	if (plain.status)
		fail_msg("without the library: status %d\n%s", plain.status, plain.err);
	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=%s,heap.chunk=%s,host.budget=768MiB%s%s%s%s", run_mode(),
		 trial->budget, trial->chunk ? trial->chunk : "auto",
		 trial->lent ? ",spill.peers=1 .. 2,spill.peer_budget=" : "", trial->lent ? trial->lent : "",
		 trial->in_order ? ",async.use=" : "", trial->in_order ? trial->in_order : "");
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", getenv("TEST_PRELOAD"));
	ours = run_trial(trial, preload, set);
	if (!is_the_defined_stop(trial, &ours) && (ours.status || strcmp(ours.out, plain.out)))
		fail_msg("seed %s, %s threads: status %d, stdout\n%snot\n%sstderr\n%s", trial->seed, trial->threads,
			 ours.status, ours.out, plain.out, ours.err);
	run_free(&ours);
	run_free(&plain);
}

TEST(every_byte_is_right)
{
	PASSES("104", "1", "32MiB", .hidden = true);
	PASSES("102", "2", "32MiB", .hidden = true);
	PASSES("103", "4", "48MiB", .hidden = true);
}

TEST(every_byte_is_right_where_all_pointers_are_parameters)
{
	PASSES("201", "1", "32MiB");
	PASSES("202", "3", "48MiB");
}

TEST(every_byte_is_right_with_hardly_any_device_memory)
{
	PASSES("301", "2", "16MiB", .share = 2);
	PASSES("302", "1", "16MiB", .hidden = true, .share = 2);
}

TEST(every_byte_is_right_when_work_comes_late)
{
	PASSES("401", "2", "32MiB", .sim = "SIM_DELAY_US=100", .share = 8);
	PASSES("402", "1", "32MiB", .hidden = true, .sim = "SIM_DELAY_US=100", .share = 8);
}

TEST(every_byte_is_right_on_other_devices)
{
	PASSES("501", "2", "32MiB", .hidden = true, .share = 2, .lent = "12MiB");
	PASSES("502", "3", "24MiB", .share = 2, .lent = "256MiB");
}

/* Of the calls with which memory is moved, not of the program's. */
TEST(every_byte_is_right_where_one_call_in_so_many_fails)
{
	PASSES("601", "2", "32MiB", .sim = "SIM_FAIL_THREAD=spillway-mover:500", .share = 2);
	PASSES("602", "1", "32MiB", .sim = "SIM_FAIL_THREAD=spillway-mover:50", .share = 4);
	PASSES("606", "1", "32MiB", .sim = "SIM_FAIL_THREAD=spillway-mover:50", .share = 4, .lent = "24MiB");
}

TEST(every_byte_is_right_of_memory_in_stream_order)
{
	PASSES("701", "1", "32MiB", .hidden = true, .in_order = "heap");
	PASSES("702", "3", "24MiB", .share = 2, .in_order = "heap");
	PASSES("703", "2", "32MiB", .sim = "SIM_DELAY_US=100", .share = 8, .in_order = "auto");
	PASSES("704", "2", "32MiB", .sim = "SIM_FAIL_THREAD=spillway-mover:50", .share = 4, .in_order = "heap");
}

/*
 * Its blocks are set in three parts when they are made, the last part first, and kernels then get pointers to all of
 * them.
 */
TEST(every_byte_is_right_of_memory_that_is_taken_on_use)
{
	PASSES("801", "1", "32MiB", .hidden = true, .on_use = true);
	PASSES("802", "3", "24MiB", .share = 2, .on_use = true);
	PASSES("803", "2", "16MiB", .share = 2, .on_use = true);
	PASSES("804", "2", "32MiB", .sim = "SIM_FAIL_THREAD=spillway-mover:50", .share = 4, .on_use = true);
	PASSES("805", "2", "32MiB", .share = 4, .lent = "12MiB", .on_use = true);
}

/*
 * Each block is one piece, of its own length: in `fast` host memory consists of several parts (shim/heap/chunk.h).
 */
TEST(every_byte_is_right_of_pieces_of_many_lengths)
{
	PASSES("901", "1", "48MiB", .hidden = true, .chunk = "128MiB");
	PASSES("902", "3", "64MiB", .share = 2, .chunk = "128MiB");
	PASSES("903", "2", "48MiB", .sim = "SIM_FAIL_THREAD=spillway-mover:50", .share = 4, .chunk = "128MiB");
	PASSES("904", "2", "48MiB", .share = 4, .lent = "24MiB", .chunk = "128MiB");
	PASSES("905", "2", "48MiB", .sim = "SIM_DELAY_US=100", .share = 8, .in_order = "heap", .chunk = "128MiB");
}

TEST(every_byte_is_right_where_the_process_ends_with_threads_at_work)
{
	PASSES("1001", "2", "32MiB", .share = 2, .leave = true);
	PASSES("1002", "4", "16MiB", .sim = "SIM_DELAY_US=100", .share = 8, .leave = true);
}
