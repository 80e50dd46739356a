// SPDX-License-Identifier: Apache-2.0
/*
 * The demo's training job at 1.25, 1.5 and 2 times its budget, in the mode that SPILL_MODE names: its losses are those
 * of the plain run bit for bit, and in the modes that move memory some has moved.
 */
#include "test/preload/run.h"
#include "test/test.h"

#define TRAIN_ARGUMENTS TRAIN_SIM, "16", steps, "64", "1"

static const char *steps;
static char *reference;
static double need; /* MiB */

/* What the job takes when all of it fits: "spillway:   device   N MiB live at exit,   N MiB at most, budget ..." */
static double at_most(const char *err)
{
	const char *line = strstr(err, "spillway:   device "), *comma = line ? strchr(line, ',') : NULL;
	double mib = 0;

	if (!comma || sscanf(comma + 1, " %lf MiB at most", &mib) != 1)
		fail_msg("no such line in\n%s", err);
	return mib;
}

BEFORE_ALL
{
	struct outcome plain = RUN(SET("LD_PRELOAD=", "SIM_MEMORY=512MiB"), TRAIN_ARGUMENTS);
	struct outcome ample =
	    RUN(SET("SIM_MEMORY=512MiB", "SPILLWAY_SET=device.budget=500MiB,report.summary=full"), TRAIN_ARGUMENTS);

	if (plain.status || ample.status || run_lines(plain.out) < 3 || strcmp(plain.out, ample.out))
		fail_msg("status %d and %d\n%s\n%s\n%s", plain.status, ample.status, plain.out, plain.err, ample.err);
	reference = strdup(plain.out);
	need = at_most(ample.err);
	run_free(&plain);
	run_free(&ample);
}

EACH_TEST(NULL, run_end)

static void finishes_alike(double ratio, const char *sim)
{
	char set[200];

	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=%.0fKiB,host.budget=768MiB,report.summary=full", run_mode(),
		 need * 1024 / ratio);
	RUN_HERE(SET("SIM_MEMORY=512MiB", set, sim), TRAIN_ARGUMENTS);
	if (ran.status || strcmp(ran.out, reference))
		fail_msg("need %.1f MiB / %.2f: status %d, stdout:\n%snot\n%sstderr:\n%s", need, ratio, ran.status,
			 ran.out, reference, ran.err);
	size_t moved = run_lines_with(ran.err, "spillway:   moved ");
	if (run_moves() ? !moved : moved)
		fail_msg("need %.1f MiB / %.2f: %zu lines of what was moved in\n%s", need, ratio, moved, ran.err);
}

TEST(losses_are_the_same_at_1_25)
{
	finishes_alike(1.25, "SIM_SEED=0");
}

TEST(losses_are_the_same_at_1_5)
{
	finishes_alike(1.5, "SIM_SEED=0");
}

TEST(losses_are_the_same_at_2)
{
	finishes_alike(2.0, "SIM_SEED=0");
}

TEST(losses_are_the_same_when_work_comes_late)
{
	finishes_alike(1.5, "SIM_DELAY_US=30");
}

/* Half of what does not fit lies on another device, or more, and the rest on the host. */
TEST(losses_are_the_same_where_a_peer_lends_memory)
{
	char set[200];

	snprintf(
	    set, sizeof(set),
	    "SPILLWAY_SET=spill.mode=%s,device.budget=%.0fKiB,host.budget=768MiB,report.summary=full,spill.peers=1,"
	    "spill.peer_budget=%.0fKiB",
	    run_mode(), need * 1024 / 1.5, need * 1024 / 5);
	RUN_HERE(SET("SIM_MEMORY=512MiB", "SIM_DEVICES=2", set), TRAIN_ARGUMENTS);
	if (ran.status || strcmp(ran.out, reference) || run_lines_with(ran.err, "spillway:   peer ") != 1 ||
	    run_lines_with(ran.err, "spillway:   host ") != 1)
		fail_msg("need %.1f MiB: status %d, stdout:\n%snot\n%sstderr:\n%s", need, ran.status, ran.out,
			 reference, ran.err);
}

int main(void)
{
	steps = getenv("SPILL_STEPS") ? getenv("SPILL_STEPS") : "60";
	return test_run();
}
