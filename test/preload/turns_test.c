// SPDX-License-Identifier: Apache-2.0
/*
 * share: turns: processes that need much more of a GPU than there is take turns. Each gets to its end with every byte
 * as it was, whatever becomes of the others, and together they never may have more than the total. A rank is a process
 * of its own that does what it is told; its simulated GPU is its own, so only the account limits them. Turns are short,
 * and what is waited for is a number of them, never a time.
 */
#include "test/preload/tool.h"
#include "test/preload/turns_help.h"

#define SET(m) TURNS(",spill.mode=" m)
#define MOST   4

static unsigned *hold;
static CUmemGenericAllocationHandle made;

/* What cuMemGetInfo says is the same in all turns. */
static void check_capacity(void)
{
	size_t free_bytes, total;

	MUST(cu.cuMemGetInfo_v2(&free_bytes, &total));
	CHECK(total == TURNS_MIB * MIB);
	/* A slab may be there beside the blocks. */
	CHECK(free_bytes <= (TURNS_MIB - 4ull * turns_n_blocks) * MIB &&
	      free_bytes >= (TURNS_MIB - 4ull * turns_n_blocks - 8) * MIB);
}

/* turns_obey(), and 'b' N: memory of N MiB beside the heap; 'k': work that does not end; 'r': it ends. */
static uint64_t obey(char what, unsigned n)
{
	uint64_t answer = 1;

	switch (what) {
	case 'b':
		MUST(driver_create(&made, 0, n * MIB));
		return 1;
	case 'k':
		hold = child_hold(NULL);
		MUST(driver_fill(NULL, turns_blocks[0], turns_fills, 1));
		return 1;
	case 'r':
		child_release(hold);
		MUST(cu.cuCtxSynchronize());
		return 1;
	case 's':
		for (; n; n--) {
			turns_obey('s', 1);
			check_capacity();
		}
		return 1;
	default:
		answer = turns_obey(what, n);
		if (what == 'a')
			check_capacity();
		return answer;
	}
}

static const struct rank_part part = {.begin = turns_begin, .obey = obey};

/* ---- the parts ---- */

static void take_turns(unsigned n, const char *settings)
{
	struct rank ranks[MOST];

	turns_start_all(ranks, n, &part, settings);
	turns_run(ranks, n, 4);
	turns_check(ranks, n);
	turns_run_and_end(ranks, n, 3);
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

	for (unsigned tries = 0; tries < TURNS_TRIES && found == n; tries++) {
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

	turns_start_all(ranks, n, &part, SET("fast"));
	turns_run(ranks, n, 1);
	for (unsigned killed = 0; killed < 2; killed++) {
		turns_tell(ranks, n, 's', 5);
		unsigned victim = wait_for_holder(ranks, n);
		if (killed)
			victim = (victim + 1) % n;
		rank_kill(&ranks[victim]);
		turns_hear(ranks, n, victim);
		ranks[victim] = ranks[--n];
		turns_run(ranks, n, 2);
		turns_check(ranks, n);
	}
	/* One that comes later has its turns, too. */
	ranks[n++] = turns_start(&part, SET("fast"), TURNS_NEEDS);
	turns_run_and_end(ranks, n, 2);
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

		turns_start_all(ranks, 2, &part, SET("fast"));
		turns_run(ranks, 2, 1);
		assert_true(rank_ask(&ranks[0], 'p', how));
		for (unsigned tries = 0; tries < TURNS_TRIES && !holds; tries++) {
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
			assert_true(dead && dead->may_have >= TURNS_NEEDS * 2 * MIB);
		} while (dead->stuck != dead->may_have);
		account_check();
		assert_int_equal(write(turns_child_waits[1], "", 1), 1);
		for (unsigned tries = 0; tries < TURNS_TRIES && (!other || other->may_have < TURNS_NEEDS * 4 * MIB);
		     tries++) {
			assert_true(rank_ask(&ranks[1], 's', 1) && account_read(&page));
			other = account_member(&page, &ranks[1]);
		}
		assert_true(other && other->may_have >= TURNS_NEEDS * 4 * MIB);
		assert_null(account_member(&page, &ranks[0]));
		turns_end(&ranks[1], 1);
	}
}

static void the_others_go_on_when_the_holder_is_stopped(void **state)
{
	struct rank ranks[3];

	turns_start_all(ranks, 3, &part, SET("fast"));
	turns_run(ranks, 3, 1);
	turns_tell(ranks, 3, 's', 60);
	unsigned stopped = wait_for_holder(ranks, 3);
	assert_int_equal(kill(ranks[stopped].pid, SIGSTOP), 0);
	/* In what is left, which is less than they need. */
	turns_hear(ranks, 3, stopped);
	account_check();
	for (unsigned i = 0; i < 3; i++)
		if (i != stopped)
			assert_true(rank_ask(&ranks[i], 'c', 0));
	assert_int_equal(kill(ranks[stopped].pid, SIGCONT), 0);
	assert_true(rank_hear(&ranks[stopped]));
	turns_run_and_end(ranks, 3, 2);
}

static void a_damaged_account_is_made_again(void **state)
{
	struct rank ranks[2];
	struct account_page page;
	char path[256];

	turns_start_all(ranks, 2, &part, SET("fast"));
	turns_run(ranks, 2, 1);
	for (unsigned how = 0; how < 3; how++) {
		static const uint64_t wrong[8] = {1, 2, 3, 4, 5, 6, 7, 8};

		turns_tell(ranks, 2, 's', 20);
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
		turns_hear(ranks, 2, 2);
		turns_check(ranks, 2);
		/* What one has is not counted before it is in the new file. */
		for (unsigned tries = 0;
		     tries < TURNS_TRIES && (!account_read(&page) || account_sum(&page) > page.head.file.total);
		     tries++)
			usleep(5000);
		turns_run(ranks, 2, 2);
	}
	turns_end(ranks, 2);
}

/* Who is suspended by its user takes no turns; who is resumed waits for its turn. */
static void one_that_is_suspended_leaves_its_turns_to_the_others(void **state)
{
	struct rank ranks[2];
	int pid;

	turns_start_all(ranks, 2, &part, SET("fast"));
	turns_run(ranks, 2, 1);
	assert_true(tool_tells("  TURN  ", "list"));
	assert_true(tool_tells("has it", "list"));
	pid = (int)ranks[0].pid;
	for (unsigned round = 0; round < 3; round++) {
		turns_tell(ranks, 2, 's', 20);
		/* A capture or a kernel may be in the way for a moment, and the machine may be slow. */
		bool suspended = false;
		for (unsigned tries = 0; tries < 20 && !suspended; tries++)
			suspended = tool_tells("suspended", "suspend %d", pid);
		assert_true(suspended);
		assert_true(rank_hear(&ranks[1]));
		assert_true(rank_ask(&ranks[1], 's', 5) && rank_ask(&ranks[1], 'c', 0));
		assert_true(tool_tells("resumed", "resume %d", pid));
		assert_true(rank_hear(&ranks[0]));
		turns_check(ranks, 2);
	}
	turns_run_and_end(ranks, 2, 2);
}

static uint64_t account_weight(const struct rank *rank)
{
	struct account_page page;
	const struct gpu_account_member *member = NULL;

	for (unsigned tries = 0; tries < TURNS_TRIES && !member; tries++)
		member = account_read(&page) ? account_member(&page, rank) : NULL;
	return member ? member->claim.weight : 0;
}

static void the_weight_of_a_running_process_can_be_changed(void **state)
{
	struct rank ranks[2];

	turns_start_all(ranks, 2, &part, SET("exact"));
	turns_run(ranks, 2, 1);
	assert_int_equal(account_weight(&ranks[0]), 1);
	assert_true(tool_tells("share.weight=7", "set %d share.weight=7", (int)ranks[0].pid));
	assert_false(tool_tells("no weight", "set %d share.weight=101", (int)ranks[1].pid));
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

	turns_start_all(ranks, 2, &part, SET("fast"));
	turns_run(ranks, 2, 1);
	assert_int_equal(folder_files(GPU_ACCOUNT_TAIL, path), 1);
	int fd = open(path, O_RDWR);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
	assert_int_equal(pwrite(fd, &version, sizeof(version), 8), sizeof(version));
	turns_do(ranks, 2, 's', 20);
	assert_true(log_says("this process goes by its own budget"));
	turns_check(ranks, 2);
	close(fd);
	for (unsigned i = 0; i < 2; i++)
		rank_end(&ranks[i]);
}

/* It keeps its turn, is named, and after some tries the other goes on beside it, in what is left. */
static void work_that_does_not_end_keeps_its_turn(void **state)
{
	struct rank ranks[2];

	turns_start_all(ranks, 2, &part, SET("fast"));
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

/*
 * Only as much leaves as the other needs; when that grows, more. beside: MiB of each that cannot leave, and for which
 * there is room, too.
 */
static void keep_what_the_other_does_not_need(unsigned beside)
{
	static const unsigned needs[2] = {5, 4};
	struct account_page page;
	struct rank ranks[2];

	for (unsigned i = 0; i < 2; i++) {
		ranks[i] = turns_start(&part, SET("fast"), 0);
		assert_true(!beside || rank_ask(&ranks[i], 'b', beside));
		assert_true(rank_ask(&ranks[i], 'a', needs[i]));
	}
	/* The driver gives such memory whoever has what is left: the others give up as much when they look. */
	for (unsigned tries = 0; tries < TURNS_TRIES && (!account_turns(&ranks[0]) || !account_turns(&ranks[1]));
	     tries++)
		turns_do(ranks, 2, 's', 5);
	turns_run(ranks, 2, 3);
	/* Once this one has made a step and is idle, the other gets the turn for its own. */
	for (unsigned i = 0; i < 2; i++) {
		uint64_t kept = 0;

		for (unsigned tries = 0; tries < TURNS_TRIES && !kept; tries++) {
			assert_true(rank_ask(&ranks[!i], 's', 1));
			kept = keeps(&ranks[i]);
		}
		assert_in_range(kept, 4 * MIB, (TURNS_MIB - 4 * needs[!i] - beside) * MIB);
		assert_true(account_read(&page));
		assert_true(account_member(&page, &ranks[!i])->holds >= account_member(&page, &ranks[!i])->needs);
	}
	turns_check(ranks, 2);
	assert_true(rank_ask(&ranks[1], 'a', 2));
	turns_run_and_end(ranks, 2, 2);
}

static void who_waits_keeps_what_the_other_does_not_need(void **state)
{
	keep_what_the_other_does_not_need(0);
	keep_what_the_other_does_not_need(4);
}

/* Beside each other they lose most of their time; then they take turns. */
static void auto_takes_turns_where_spilling_costs_much(void **state)
{
	struct rank ranks[2];

	turns_start_all(ranks, 2, &part, TURNS_SET(",host.budget=256MiB,share=auto"));
	assert_int_equal(account_turns(&ranks[0]) + account_turns(&ranks[1]), 0);
	turns_run_and_end(ranks, 2, 2);
}

/* Where all fits, nobody waits. */
static void there_are_no_turns_where_all_fits(void **state)
{
	struct rank ranks[2];

	for (unsigned i = 0; i < 2; i++)
		ranks[i] = turns_start(&part, SET("fast"), 3);
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

int main(void)
{
	return turns_main(run);
}
