/*
 * Made-up programs (spill_random.c) under the library, in the mode that SPILL_MODE names: every byte is right, and
 * the digest of the run is that of the same program without the library. SPILL_SUBMISSIONS says how long they are.
 */
#include "test/preload/run.h"
#include "test/slow.h"
#include "test/test.h"

enum { STOPPED = 3 }; /* what spill_random ends with when its context died of an illegal address */

static const char *mode;
static char submissions[32];

struct trial {
	const char *seed, *threads;
	bool hidden;
	const char *budget, *sim; /* a setting of the simulated GPU, or NULL */
	unsigned share;           /* of the submissions, one in so many */
	const char *lent;         /* by each of two other devices, or NULL */
	const char *in_order;     /* most blocks are allocated in stream order: async.use; NULL: few are */
	bool on_use;              /* what is large gets memory when it is used, part by part */
	const char *chunk;        /* heap.chunk; NULL: as the budget has it, which are short pieces */
	bool leave;               /* the process ends by exit() while its threads are at work */
};

static struct outcome run_trial(const struct trial *trial, const char *preload, const char *set)
{
	char n[32], deadline[32];

	snprintf(n, sizeof(n), "%lu", strtoul(submissions, NULL, 0) / trial->share);
	snprintf(deadline, sizeof(deadline), "%d", 100 * TEST_SLOWNESS);
	return RUN(SET("SIM_MEMORY=512MiB", "SIM_DEVICES=3", "SIM_FILL=0", set,
		       trial->on_use ? "SPILLWAY_POLICY=" ON_USE_POLICY : "SPILLWAY_POLICY=",
		       trial->sim ? trial->sim : "SIM_SEED=0", preload),
		   SPILL_RANDOM, "--seed", trial->seed, "--threads", trial->threads, "--submissions", n, "--deadline",
		   deadline, "--in-order", trial->in_order ? "1" : "0", trial->hidden ? NULL : "--no-hidden",
		   trial->leave ? "--leave" : NULL);
}

/* Only `fast` may stop a job, only for an access that nothing announced, and then it says what to do about it. */
static bool is_the_defined_stop(const struct trial *trial, const struct outcome *outcome)
{
	return !strcmp(mode, "fast") && trial->hidden && outcome->status == STOPPED &&
	       run_lines_with(outcome->err, "spill.mode: exact") > 0;
}

static void passes(const struct trial *trial)
{
	struct outcome plain = run_trial(trial, "LD_PRELOAD=", "SPILLWAY=off"), ours;
	char set[200], preload[512];

	if (plain.status)
		fail_msg("without the library: status %d\n%s", plain.status, plain.err);
	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=%s,heap.chunk=%s,host.budget=768MiB%s%s%s%s", mode,
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
	passes(&(struct trial){"101", "1", true, "48MiB", NULL, 1, NULL, NULL, false, NULL, false});
	passes(&(struct trial){"102", "2", true, "48MiB", NULL, 1, NULL, NULL, false, NULL, false});
	passes(&(struct trial){"103", "4", true, "64MiB", NULL, 1, NULL, NULL, false, NULL, false});
}

TEST(every_byte_is_right_where_all_pointers_are_parameters)
{
	passes(&(struct trial){"201", "1", false, "48MiB", NULL, 1, NULL, NULL, false, NULL, false});
	passes(&(struct trial){"202", "3", false, "64MiB", NULL, 1, NULL, NULL, false, NULL, false});
}

TEST(every_byte_is_right_with_hardly_any_device_memory)
{
	passes(&(struct trial){"301", "2", false, "16MiB", NULL, 2, NULL, NULL, false, NULL, false});
	passes(&(struct trial){"302", "1", true, "16MiB", NULL, 2, NULL, NULL, false, NULL, false});
}

TEST(every_byte_is_right_when_work_comes_late)
{
	passes(&(struct trial){"401", "2", false, "48MiB", "SIM_DELAY_US=100", 8, NULL, NULL, false, NULL, false});
	passes(&(struct trial){"402", "1", true, "48MiB", "SIM_DELAY_US=100", 8, NULL, NULL, false, NULL, false});
}

TEST(every_byte_is_right_on_other_devices)
{
	passes(&(struct trial){"501", "2", true, "48MiB", NULL, 2, "12MiB", NULL, false, NULL, false});
	passes(&(struct trial){"502", "3", false, "32MiB", NULL, 2, "256MiB", NULL, false, NULL, false});
}

/* Of the calls with which memory is moved, not of the program's. */
TEST(every_byte_is_right_where_one_call_in_so_many_fails)
{
	passes(&(struct trial){"601", "2", false, "48MiB", "SIM_FAIL_THREAD=spillway-mover:500", 2, NULL, NULL, false,
			       NULL, false});
	passes(&(struct trial){"602", "1", false, "48MiB", "SIM_FAIL_THREAD=spillway-mover:50", 4, NULL, NULL, false,
			       NULL, false});
	passes(&(struct trial){"606", "1", false, "48MiB", "SIM_FAIL_THREAD=spillway-mover:50", 4, "24MiB", NULL, false,
			       NULL, false});
}

TEST(every_byte_is_right_of_memory_in_stream_order)
{
	passes(&(struct trial){"701", "1", true, "48MiB", NULL, 1, NULL, "heap", false, NULL, false});
	passes(&(struct trial){"702", "3", false, "32MiB", NULL, 2, NULL, "heap", false, NULL, false});
	passes(&(struct trial){"703", "2", false, "48MiB", "SIM_DELAY_US=100", 8, NULL, "auto", false, NULL, false});
	passes(&(struct trial){"704", "2", false, "48MiB", "SIM_FAIL_THREAD=spillway-mover:50", 4, NULL, "heap", false,
			       NULL, false});
}

/*
 * Its blocks are set in three parts when they are made, the last part first, and kernels then get pointers to all of
 * them.
 */
TEST(every_byte_is_right_of_memory_that_is_taken_on_use)
{
	passes(&(struct trial){"801", "1", true, "48MiB", NULL, 1, NULL, NULL, true, NULL, false});
	passes(&(struct trial){"802", "3", false, "32MiB", NULL, 2, NULL, NULL, true, NULL, false});
	passes(&(struct trial){"803", "2", false, "16MiB", NULL, 2, NULL, NULL, true, NULL, false});
	passes(&(struct trial){"804", "2", false, "48MiB", "SIM_FAIL_THREAD=spillway-mover:50", 4, NULL, NULL, true,
			       NULL, false});
	passes(&(struct trial){"805", "2", false, "48MiB", NULL, 4, "12MiB", NULL, true, NULL, false});
}

/*
 * Each block is one piece, of its own length: in `fast` host memory consists of several parts (shim/heap/chunk.h).
 */
TEST(every_byte_is_right_of_pieces_of_many_lengths)
{
	passes(&(struct trial){"901", "1", true, "64MiB", NULL, 1, NULL, NULL, false, "128MiB", false});
	passes(&(struct trial){"902", "3", false, "96MiB", NULL, 2, NULL, NULL, false, "128MiB", false});
	passes(&(struct trial){"903", "2", false, "64MiB", "SIM_FAIL_THREAD=spillway-mover:50", 4, NULL, NULL, false,
			       "128MiB", false});
	passes(&(struct trial){"904", "2", false, "64MiB", NULL, 4, "24MiB", NULL, false, "128MiB", false});
	passes(
	    &(struct trial){"905", "2", false, "64MiB", "SIM_DELAY_US=100", 8, NULL, "heap", false, "128MiB", false});
}

TEST(every_byte_is_right_where_the_process_ends_with_threads_at_work)
{
	passes(&(struct trial){"1001", "2", false, "32MiB", NULL, 2, NULL, NULL, false, NULL, true});
	passes(&(struct trial){"1002", "4", false, "16MiB", "SIM_DELAY_US=100", 8, NULL, NULL, false, NULL, true});
}

int main(void)
{
	mode = getenv("SPILL_MODE") ? getenv("SPILL_MODE") : "static";
	snprintf(submissions, sizeof(submissions), "%s",
		 getenv("SPILL_SUBMISSIONS") ? getenv("SPILL_SUBMISSIONS") : "20000");
	return test_run();
}
