/*
 * share: turns: processes that need much more of a GPU than there is take turns. Each gets to its end with every byte
 * as it was, whatever becomes of the others, and together they never may have more than the total. A rank is a process
 * of its own that does what it is told; its simulated GPU is its own, so only the account limits them. Turns are short,
 * and what is waited for is a number of them, never a time.
 */
#include "test/preload/child.h"
#include "test/preload/folder.h"
#include "test/preload/turns_help.h"
#include "test/rank.h"
#include "test/test.h"

#include <sys/stat.h>

#define TOTAL 32 /* MiB */
#define SET(m)                                                                                                         \
	"SPILLWAY_SET=device.total=32MiB,host.budget=256MiB,report.summary=no,share=turns,share.quantum=20ms,spill."   \
	"mode=" m
#define NEEDS  6 /* blocks of 4 MiB: more than half of the total */
#define ROUNDS 3000
#define MOST   4

static CUdeviceptr blocks[NEEDS];
static unsigned n_blocks, fills;
static unsigned *hold;

/* What cuMemGetInfo says is the same in all turns. */
static void check_capacity(void)
{
	size_t free_bytes, total;

	MUST(cu.cuMemGetInfo_v2(&free_bytes, &total));
	CHECK(total == TOTAL * MIB);
	/* A slab may be there beside the blocks. */
	CHECK(free_bytes <= (TOTAL - 4ull * n_blocks) * MIB && free_bytes >= (TOTAL - 4ull * n_blocks - 8) * MIB);
}

/* All blocks anew, as in a step. */
static void step(void)
{
	fills++;
	for (unsigned i = 0; i < n_blocks; i++)
		MUST(driver_fill(NULL, blocks[i], fills + i, 4 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	check_capacity();
}

/*
 * 'd': begin; 'a' N: allocate N blocks; 's' N: N steps; 'c': check all; 'p' N: have a child, by fork() or (1) clone();
 * 'k': work that does not end; 'r': it ends; 'e': end.
 */
static uint64_t obey(char what, unsigned n)
{
	switch (what) {
	case 'd':
		driver_start(0);
		return 1;
	case 'a':
		for (; n; n--)
			blocks[n_blocks++] = child_alloc(4 * MIB);
		step();
		return 1;
	case 'p':
		return turns_leave_a_child(n);
	case 's':
		for (; n; n--)
			step();
		return 1;
	case 'c':
		for (unsigned i = 0; i < n_blocks; i++)
			CHECK(driver_holds(blocks[i], fills + i, 4 * MIB / 4));
		return sim_broken_rules() == 0;
	case 'k':
		hold = child_hold(NULL);
		MUST(driver_fill(NULL, blocks[0], fills, 1));
		return 1;
	case 'r':
		child_release(hold);
		MUST(cu.cuCtxSynchronize());
		return 1;
	default:
		exit(0);
	}
}

static struct rank start(const char *settings)
{
	static const struct rank_part part = {.begin = turns_begin, .obey = obey};

	struct rank rank = rank_start(&part, settings);
	assert_true(rank_ask(&rank, 'd', 0));
	return rank;
}

/* ---- the parts ---- */

static void start_all(struct rank *ranks, unsigned n, const char *settings)
{
	for (unsigned i = 0; i < n; i++) {
		ranks[i] = start(settings);
		assert_true(rank_ask(&ranks[i], 'a', NEEDS));
	}
}

static void check_all(const struct rank *ranks, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_true(rank_ask(&ranks[i], 'c', 0));
}

static void take_turns(unsigned n, const char *settings)
{
	struct rank ranks[MOST];

	start_all(ranks, n, settings);
	turns_run(ranks, n, 4);
	check_all(ranks, n);
	turns_run(ranks, n, 3);
	turns_end(ranks, n);
	assert_true(log_says("take turns"));
}

static void two_that_do_not_fit_take_turns(void **state)
{
	take_turns(2, SET("exact"));
	take_turns(2, SET("fast"));
}

static void four_take_turns(void **state)
{
	take_turns(4, SET("fast"));
}

static unsigned wait_for_holder(const struct rank *ranks, unsigned n)
{
	unsigned found = n;

	for (unsigned tries = 0; tries < ROUNDS && found == n; tries++) {
		found = account_holder(ranks, n);
		usleep(1000);
	}
	assert_true(found < n);
	return found;
}

/* The holder dies in the midst of its steps, then one that waits. */
static void the_others_go_on_when_one_is_killed(void **state)
{
	struct rank ranks[4];
	unsigned n = 4;

	start_all(ranks, n, SET("fast"));
	turns_run(ranks, n, 1);
	for (unsigned killed = 0; killed < 2; killed++) {
		for (unsigned i = 0; i < n; i++)
			rank_tell(&ranks[i], 's', 5);
		unsigned victim = wait_for_holder(ranks, n);
		if (killed)
			victim = (victim + 1) % n;
		rank_kill(&ranks[victim]);
		for (unsigned i = 0; i < n; i++)
			if (i != victim)
				assert_true(rank_hear(&ranks[i]));
		ranks[victim] = ranks[--n];
		turns_run(ranks, n, 2);
		check_all(ranks, n);
	}
	/* One that comes later has its turns, too. */
	ranks[n] = start(SET("fast"));
	assert_true(rank_ask(&ranks[n++], 'a', NEEDS));
	turns_run(ranks, n, 2);
	turns_end(ranks, n);
}

/*
 * The memory of one that is killed is on the GPU as long as a child of it that did not exec. Its turn is over; the
 * other goes on in what is left, and with all of it when the child has ended.
 */
static void what_a_child_keeps_of_a_dead_process_counts(void **state)
{
	for (unsigned how = 0; how < 2; how++) {
		const struct gpu_account_member *dead, *other = NULL;
		struct account_page page;
		struct rank ranks[2];
		bool holds = false;

		start_all(ranks, 2, SET("fast"));
		turns_run(ranks, 2, 1);
		assert_true(rank_ask(&ranks[0], 'p', how));
		for (unsigned tries = 0; tries < ROUNDS && !holds; tries++) {
			assert_true(rank_ask(&ranks[0], 's', 1) && account_read(&page));
			holds = account_holder(ranks, 2) == 0;
		}
		assert_true(holds);
		rank_kill(&ranks[0]);
		assert_true(rank_ask(&ranks[1], 's', 5) && rank_ask(&ranks[1], 'c', 0));
		/* Until it has said nothing for some time, it counts as one that lives. */
		do {
			assert_true(account_read(&page));
			dead = account_member(&page, &ranks[0]);
			assert_true(dead && dead->may_have >= NEEDS * 2 * MIB);
		} while (dead->stuck != dead->may_have);
		account_check();
		assert_int_equal(write(turns_child_waits[1], "", 1), 1);
		for (unsigned tries = 0; tries < ROUNDS && (!other || other->may_have < NEEDS * 4 * MIB); tries++) {
			assert_true(rank_ask(&ranks[1], 's', 1) && account_read(&page));
			other = account_member(&page, &ranks[1]);
		}
		assert_true(other && other->may_have >= NEEDS * 4 * MIB);
		assert_null(account_member(&page, &ranks[0]));
		turns_end(&ranks[1], 1);
	}
}

static void the_others_go_on_when_the_holder_is_stopped(void **state)
{
	struct rank ranks[3];

	start_all(ranks, 3, SET("fast"));
	turns_run(ranks, 3, 1);
	for (unsigned i = 0; i < 3; i++)
		rank_tell(&ranks[i], 's', 60);
	unsigned stopped = wait_for_holder(ranks, 3);
	assert_int_equal(kill(ranks[stopped].pid, SIGSTOP), 0);
	/* In what is left, which is less than they need. */
	for (unsigned i = 0; i < 3; i++)
		if (i != stopped)
			assert_true(rank_hear(&ranks[i]));
	account_check();
	for (unsigned i = 0; i < 3; i++)
		if (i != stopped)
			assert_true(rank_ask(&ranks[i], 'c', 0));
	assert_int_equal(kill(ranks[stopped].pid, SIGCONT), 0);
	assert_true(rank_hear(&ranks[stopped]));
	turns_run(ranks, 3, 2);
	turns_end(ranks, 3);
}

static void a_damaged_account_is_made_again(void **state)
{
	struct rank ranks[2];
	struct account_page page;
	char path[256];

	start_all(ranks, 2, SET("fast"));
	turns_run(ranks, 2, 1);
	for (unsigned how = 0; how < 3; how++) {
		static const uint64_t wrong[8] = {1, 2, 3, 4, 5, 6, 7, 8};

		for (unsigned i = 0; i < 2; i++)
			rank_tell(&ranks[i], 's', 20);
		assert_int_equal(folder_files(GPU_ACCOUNT_TAIL, path), 1);
		if (how == 0) {
			assert_int_equal(truncate(path, 100), 0);
		} else if (how == 1) {
			assert_int_equal(unlink(path), 0);
		} else {
			int fd = open(path, O_WRONLY);

			assert_int_equal(pwrite(fd, wrong, sizeof(wrong), 0), sizeof(wrong));
			close(fd);
		}
		for (unsigned i = 0; i < 2; i++)
			assert_true(rank_hear(&ranks[i]));
		check_all(ranks, 2);
		/* What one has is not counted before it is in the new file. */
		for (unsigned tries = 0;
		     tries < ROUNDS && (!account_read(&page) || account_sum(&page) > page.head.file.total); tries++)
			usleep(5000);
		turns_run(ranks, 2, 2);
	}
	turns_end(ranks, 2);
}

/* Runs the tool. Returns whether it succeeds, and says these words. */
static bool tool_says(const char *what, const char *words)
{
	char command[256], line[256];
	bool says = false;

	snprintf(command, sizeof(command), "env -u LD_PRELOAD %s '%s' %s 2>&1", runtime, TOOL, what);
	FILE *output = popen(command, "r");
	assert_non_null(output);
	while (fgets(line, sizeof(line), output))
		says |= strstr(line, words) != NULL;
	return pclose(output) == 0 && says;
}

/* Who is suspended by its user takes no turns; who is resumed waits for its turn. */
static void one_that_is_suspended_leaves_its_turns_to_the_others(void **state)
{
	struct rank ranks[2];
	char suspend[32], resume[32];

	start_all(ranks, 2, SET("fast"));
	turns_run(ranks, 2, 1);
	assert_true(tool_says("list", "  TURN  "));
	assert_true(tool_says("list", "has it"));
	snprintf(suspend, sizeof(suspend), "suspend %d", (int)ranks[0].pid);
	snprintf(resume, sizeof(resume), "resume %d", (int)ranks[0].pid);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 2; i++)
			rank_tell(&ranks[i], 's', 20);
		/* A capture or a kernel may be in the way for a moment, and the machine may be slow. */
		bool suspended = false;
		for (unsigned tries = 0; tries < 20 && !suspended; tries++)
			suspended = tool_says(suspend, "suspended");
		assert_true(suspended);
		assert_true(rank_hear(&ranks[1]));
		assert_true(rank_ask(&ranks[1], 's', 5) && rank_ask(&ranks[1], 'c', 0));
		assert_true(tool_says(resume, "resumed"));
		assert_true(rank_hear(&ranks[0]));
		check_all(ranks, 2);
	}
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

static uint64_t account_weight(const struct rank *rank)
{
	struct account_page page;
	const struct gpu_account_member *member = NULL;

	for (unsigned tries = 0; tries < ROUNDS && !member; tries++)
		member = account_read(&page) ? account_member(&page, rank) : NULL;
	return member ? member->claim.weight : 0;
}

static void the_weight_of_a_running_process_can_be_changed(void **state)
{
	struct rank ranks[2];
	char set[64];

	start_all(ranks, 2, SET("exact"));
	turns_run(ranks, 2, 1);
	assert_int_equal(account_weight(&ranks[0]), 1);
	snprintf(set, sizeof(set), "set %d share.weight=7", (int)ranks[0].pid);
	assert_true(tool_says(set, "share.weight=7"));
	snprintf(set, sizeof(set), "set %d share.weight=101", (int)ranks[1].pid);
	assert_false(tool_says(set, "no weight"));
	turns_run(ranks, 2, 2);
	assert_int_equal(account_weight(&ranks[0]), 7);
	assert_int_equal(account_weight(&ranks[1]), 1);
	turns_end(ranks, 2);
}

/* Nobody may touch it as long as somebody uses it: those that wait for a turn must not wait for ever. */
static void who_finds_an_account_of_another_version_goes_on_alone(void **state)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 41, .l_len = 1};
	static const uint64_t version = 99;
	struct rank ranks[2];
	char path[256];

	start_all(ranks, 2, SET("fast"));
	turns_run(ranks, 2, 1);
	assert_int_equal(folder_files(GPU_ACCOUNT_TAIL, path), 1);
	int fd = open(path, O_RDWR);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
	assert_int_equal(pwrite(fd, &version, sizeof(version), 8), sizeof(version));
	for (unsigned i = 0; i < 2; i++)
		rank_tell(&ranks[i], 's', 20);
	for (unsigned i = 0; i < 2; i++)
		assert_true(rank_hear(&ranks[i]));
	assert_true(log_says("this process goes by its own budget"));
	check_all(ranks, 2);
	close(fd);
	for (unsigned i = 0; i < 2; i++)
		rank_end(&ranks[i]);
}

/* It keeps its turn, is named, and after some tries the other goes on beside it, in what is left. */
static void work_that_does_not_end_keeps_its_turn(void **state)
{
	struct rank ranks[2];

	start_all(ranks, 2, SET("fast"));
	turns_run(ranks, 2, 1);
	assert_true(rank_ask(&ranks[0], 'k', 0));
	assert_true(rank_ask(&ranks[1], 's', 2));
	assert_true(log_says("does not come to an end"));
	assert_true(log_says("the others go on in what is left"));
	account_check();
	assert_true(rank_ask(&ranks[1], 'c', 0));
	assert_true(rank_ask(&ranks[0], 'r', 0));
	turns_end(ranks, 2);
}

/* Returns the bytes that a rank has which waits, or 0 if it does not. */
static uint64_t keeps(const struct rank *rank)
{
	struct account_page page;
	const struct gpu_account_member *member = account_read(&page) ? account_member(&page, rank) : NULL;

	return member && member->claim.away && !member->claim.moving ? member->may_have : 0;
}

/* Only as much leaves as the other needs; when that grows, more. */
static void who_waits_keeps_what_the_other_does_not_need(void **state)
{
	struct rank ranks[2];

	ranks[0] = start(SET("fast"));
	assert_true(rank_ask(&ranks[0], 'a', NEEDS));
	ranks[1] = start(SET("fast"));
	assert_true(rank_ask(&ranks[1], 'a', 3));
	turns_run(ranks, 2, 3);
	/* Once this one has made a step and is idle, the other gets the turn for its own. */
	for (unsigned i = 0; i < 2; i++) {
		uint64_t kept = 0;

		for (unsigned tries = 0; tries < ROUNDS && !kept; tries++) {
			assert_true(rank_ask(&ranks[!i], 's', 1));
			kept = keeps(&ranks[i]);
		}
		assert_in_range(kept, 4 * MIB, (i ? TOTAL - 24 : TOTAL - 12) * MIB);
	}
	check_all(ranks, 2);
	assert_true(rank_ask(&ranks[1], 'a', 3));
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/* Beside each other they lose most of their time; then they take turns. */
static void auto_takes_turns_where_spilling_costs_much(void **state)
{
	static const char *const settings =
	    "SPILLWAY_SET=device.total=32MiB,host.budget=256MiB,report.summary=no,share=auto,share.quantum=20ms";
	struct rank ranks[2];

	start_all(ranks, 2, settings);
	assert_int_equal(account_turns(&ranks[0]) + account_turns(&ranks[1]), 0);
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/* Where all fits, nobody waits. */
static void there_are_no_turns_where_all_fits(void **state)
{
	struct rank ranks[2];

	for (unsigned i = 0; i < 2; i++) {
		ranks[i] = start(SET("fast"));
		assert_true(rank_ask(&ranks[i], 'a', 3));
	}
	for (unsigned i = 0; i < 20; i++)
		for (unsigned j = 0; j < 2; j++)
			assert_true(rank_ask(&ranks[j], 's', 5));
	assert_int_equal(account_turns(&ranks[0]) + account_turns(&ranks[1]), 0);
	turns_end(ranks, 2);
}

static int run(void)
{
	const struct CMUnitTest turns[] = {
	    TURNS_TEST(two_that_do_not_fit_take_turns),
	    TURNS_TEST(four_take_turns),
	    TURNS_TEST(who_waits_keeps_what_the_other_does_not_need),
	    TURNS_TEST(auto_takes_turns_where_spilling_costs_much),
	    TURNS_TEST(there_are_no_turns_where_all_fits),
	};
	const struct CMUnitTest faults[] = {
	    TURNS_TEST(the_others_go_on_when_one_is_killed),
	    TURNS_TEST(what_a_child_keeps_of_a_dead_process_counts),
	    TURNS_TEST(the_others_go_on_when_the_holder_is_stopped),
	    TURNS_TEST(one_that_is_suspended_leaves_its_turns_to_the_others),
	    TURNS_TEST(the_weight_of_a_running_process_can_be_changed),
	    TURNS_TEST(a_damaged_account_is_made_again),
	    TURNS_TEST(who_finds_an_account_of_another_version_goes_on_alone),
	    TURNS_TEST(work_that_does_not_end_keeps_its_turn),
	};

	if (pipe(turns_child_waits))
		return 1;
	return !getenv("TURNS_TEST_PART") ? cmocka_run_group_tests(turns, NULL, NULL)
					  : cmocka_run_group_tests(faults, NULL, NULL);
}

int main(int argc, char **argv)
{
	return turns_main(argv, run);
}
