// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_account.h by several processes: the sum of what they may have, their deaths, and whose turn it is.
 */
#include "test/test.h"
#include "test/unit/gpu_account_help.h"
#include "test/unit/seed.h"

static void wait_until_stopped(const struct rank *rank)
{
	siginfo_t info;

	assert_int_equal(waitid(P_PID, (id_t)rank->pid, &info, WSTOPPED), 0);
	assert_int_equal(info.si_code, CLD_STOPPED);
}

TEST(the_sum_is_never_more_than_the_total)
{
	struct rank a = account_joined(), b = account_start();
	struct stat status;

	assert_int_equal(stat(account_path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	assert_int_equal(rank_ask(&a, 'r', 100), TOTAL);
	assert_true(rank_ask(&b, 'j', TOTAL));
	assert_int_equal(rank_ask(&b, 'r', 10), 0);
	assert_int_equal(rank_ask(&b, 'l', 0), 2);
	assert_true(rank_ask(&b, 'm', 0));
	assert_true(rank_ask(&a, 'd', 40));
	assert_int_equal(rank_ask(&b, 'r', 30), 24);
	assert_int_equal(rank_ask(&a, 'r', 41), 40);
	assert_true(rank_ask(&a, 'l', 0) == 2 && rank_ask(&a, 's', 0) == TOTAL);
	rank_end(&b);
	assert_int_equal(rank_ask(&a, 'r', 60), 60);
	assert_int_equal(access(account_path, F_OK), 0);
	rank_end(&a);
	assert_int_equal(access(account_path, F_OK), -1);
}

static uint64_t looks(const struct rank *rank, unsigned clock)
{
	assert_true(rank_ask(rank, 'T', clock) && rank_ask(rank, 'l', 0));
	return rank_ask(rank, 'K', 0);
}

/* A time that one of them publishes says nothing to who is in another time namespace. */
TEST(those_with_the_clock_of_most_take_turns)
{
	struct rank a = account_joined(), b = account_joined(), c = account_joined();

	assert_int_equal(looks(&a, 0), 0);
	assert_int_equal(looks(&b, 0), 1);
	assert_int_equal(looks(&c, 7), 12);
	assert_int_equal(looks(&a, 0), 1);
	/* Of two with different clocks none takes turns with the other; the account is the first one's. */
	rank_end(&b);
	assert_int_equal(looks(&c, 7), 11);
	assert_int_equal(looks(&a, 0), 0);
	/* It may have been made by one of another clock. */
	b = account_joined();
	assert_int_equal(looks(&b, 7), 1);
	assert_int_equal(looks(&a, 0), 12);
	rank_end(&a);
	assert_int_equal(looks(&c, 7), 1);
}

TEST(the_dead_have_nothing)
{
	struct rank a = account_joined(), b = account_joined();

	assert_int_equal(rank_ask(&a, 'r', 50), 50);
	assert_int_equal(rank_ask(&b, 'r', 50), 14);
	rank_kill(&a);
	assert_int_equal(rank_ask(&b, 'r', 50), 50);
	assert_int_equal(rank_ask(&b, 'l', 0), 1);
	/* Its slot is free, too. */
	struct rank c = account_joined();

	assert_int_equal(rank_ask(&c, 'r', 64), 14);
}

/*
 * What a process held on the device stays there as long as a child of it that did not exec: so it counts. But it is
 * dead: it has no turn. It may have taken more since it said what it holds (here 30), up to all that it may have: that
 * is not for the others. In another PID namespace nobody knows that it is dead. One that exits as the last does not
 * remove the file.
 */
TEST(a_child_of_a_fork_keeps_what_its_parent_held)
{
	for (unsigned how = 0; how < 4; how++) {
		bool known = how != 2, exits = how == 3;
		struct rank a = account_start(), b = account_start();

		assert_true(known || rank_ask(&a, 'X', 0));
		assert_true(rank_ask(&a, 'j', TOTAL) && (exits || rank_ask(&b, 'j', TOTAL)));
		assert_int_equal(rank_ask(&a, 'r', 50), 50);
		assert_true(rank_ask(&a, 'h', 30) && rank_ask(&a, 'l', 0) && rank_ask(&a, 'p', 1));
		assert_true(rank_ask(&a, 'f', how % 3));
		(exits ? rank_end : rank_kill)(&a);
		assert_true(!exits || rank_ask(&b, 'j', TOTAL));
		assert_int_equal(rank_ask(&b, 'r', 64), 14);
		assert_int_equal(rank_ask(&b, 'l', 0), 2);
		assert_int_equal(rank_ask(&b, 'w', 0), known ? 0 : 2);
		assert_int_equal(rank_ask(&b, 's', 0), 64);
		assert_int_equal(rank_ask(&b, 'A', 0), known ? 100 : 200);
		assert_int_equal(write(child_waits[1], "", 1), 1);
		for (unsigned tries = 0; tries < 5000 && rank_ask(&b, 'l', 0) != 1; tries++)
			usleep(1000);
		assert_int_equal(rank_ask(&b, 'l', 0), 1);
		assert_int_equal(rank_ask(&b, 'r', 64), 64);
		rank_end(&b);
	}
}

/* A write beyond the limit would end it. */
TEST(who_may_not_write_large_files_does_not_enter_and_lives)
{
	const unsigned limits[] = {0, 4096, sizeof(struct account_head), sizeof(struct account_page) - 1,
				   sizeof(struct account_page)};
	struct rank a = account_start(), b = account_start();

	for (unsigned i = 0; i < 10; i++) {
		struct rank small = account_start();

		/* First there is no file, then there is one. */
		assert_true(i < 5 || rank_ask(&a, 'j', TOTAL));
		assert_true(rank_ask(&small, 'L', limits[i % 5]));
		assert_int_equal(rank_ask(&small, 'j', TOTAL / 2), i % 5 == 4);
		rank_end(&small);
	}
	/* One that had entered before writes no more. */
	assert_true(rank_ask(&b, 'j', TOTAL) && rank_ask(&b, 'L', 0));
	rank_ask(&b, 'r', 50);
	rank_end(&b);
	assert_int_equal(rank_ask(&a, 'r', TOTAL), TOTAL);
}

/* For good, or as long as the others are there. While another process only changes the file, it has nothing yet. */
TEST(who_finds_no_place_is_alone_at_once)
{
	struct rank ranks[GPU_ACCOUNT_MOST], next = account_start();

	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++) {
		ranks[i] = account_joined();
		if (i)
			continue;
		int fd = open(account_path, O_RDWR | O_CLOEXEC);
		assert_true(shared_try_byte(fd, GPU_ACCOUNT_LOCK));
		assert_int_equal(rank_ask(&next, 'b', TOTAL), 0);
		close(fd);
	}
	assert_int_equal(rank_ask(&next, 'b', TOTAL / 2), TOTAL / 2);
	rank_end(&ranks[5]);
	assert_true(rank_ask(&next, 'j', TOTAL));
	rank_end(&next);
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++)
		if (i != 5)
			rank_end(&ranks[i]);
}

TEST(who_cannot_make_the_file_is_alone_at_once)
{
	struct rank small = account_start(), a = account_start();

	assert_true(rank_ask(&small, 'L', 4096));
	assert_int_equal(rank_ask(&small, 'b', TOTAL), TOTAL);
	assert_int_equal(unlink(account_path), 0);
	assert_int_equal(mkdir(account_path, 0700), 0);
	assert_int_equal(rank_ask(&a, 'b', TOTAL), TOTAL);
	assert_int_equal(rmdir(account_path), 0);
	assert_true(rank_ask(&a, 'j', TOTAL));
}

/* As process 1 of two containers. Who waits to enter must not take the other's memory for its own. */
TEST(another_process_of_the_same_pid_is_another)
{
	struct shared_file line = {0};
	struct gpu_account own = {0};
	struct rank a = account_start();

	assert_true(rank_ask(&a, 'J', 7) && rank_ask(&a, 'I', 0) && rank_ask(&a, 'j', TOTAL));
	assert_int_equal(gpu_account_queue(&line, account_uuid, &view), GPU_ACCOUNT_FIRST);
	assert_int_equal(view.n, 1);
	assert_int_equal(view.members[0].pid, getpid());
	assert_int_equal(view.self, GPU_ACCOUNT_MOST);
	assert_int_equal(gpu_account_begin(&own, account_uuid, TOTAL * MIB, 0, MIB), MIB);
	assert_int_equal(gpu_account_queue(&line, account_uuid, &view), GPU_ACCOUNT_FIRST);
	assert_true(view.n == 2 && view.self == 1);
	gpu_account_queue_end(&line);
	close(own.file.fd);
}

TEST(the_last_to_join_sets_the_total)
{
	struct rank a = account_joined(), b = account_start();

	assert_int_equal(rank_ask(&a, 'r', 64), 64);
	assert_true(rank_ask(&b, 'j', 32));
	assert_true(rank_ask(&a, 'l', 0) == 2 && rank_ask(&a, 't', 0) == 32);
	assert_int_equal(rank_ask(&b, 'r', 8), 0);
	assert_true(rank_ask(&a, 'd', 16));
	assert_int_equal(rank_ask(&b, 'r', 20), 16);
}

/* It holds the lock of the file, and has read what is left. It must not take that when it goes on. */
TEST(who_is_stopped_while_it_changes_the_file_keeps_nobody_waiting)
{
	struct rank a = account_joined(), b = account_joined(), c = account_start();

	assert_int_equal(rank_ask(&a, 'r', 4), 4);
	for (unsigned round = 0; round < 2; round++) {
		rank_ask(&a, 'S', 0);
		rank_tell(&a, 'r', 40);
		wait_until_stopped(&a);
		assert_int_equal(ask_until(&b, 'r', 50, 50), 50);
		/* The lock is another one now: the next change waits for nobody. */
		assert_int_equal(rank_ask(&b, 'r', 60), 60);
		assert_int_equal(rank_ask(&b, 'l', 0), 2);
		assert_true(rank_ask(&b, 'p', 1));
		assert_int_equal(kill(a.pid, SIGCONT), 0);
		assert_int_equal(rank_hear(&a), 4);
		assert_int_equal(rank_ask(&a, 'l', 0), 2);
		assert_int_equal(rank_ask(&a, 's', 0), TOTAL);
		assert_int_equal(rank_ask(&a, 'w', 0), 2);
		assert_int_equal(rank_ask(&b, 'd', 10), 1);
		assert_int_equal(rank_ask(&a, 'r', 4), 4);
	}
	/* So does one that enters, and one that passes the turn. */
	rank_ask(&c, 'S', 0);
	rank_tell(&c, 'j', TOTAL);
	wait_until_stopped(&c);
	assert_int_equal(ask_until(&b, 'r', 60, 60), 60);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	rank_hear(&c);
	assert_int_equal(ask_until(&c, 'j', TOTAL, 1), 1);
	assert_int_equal(rank_ask(&c, 'l', 0), 3);
	rank_ask(&c, 'S', 0);
	rank_tell(&c, 'p', 1);
	wait_until_stopped(&c);
	assert_int_equal(rank_ask(&b, 'l', 0), 3);
	assert_int_equal(ask_until(&b, 'p', 1, 1), 1);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	assert_int_equal(rank_hear(&c), 0);
}

TEST(a_turn_is_given_once)
{
	struct rank a = account_joined(), b = account_joined();

	assert_true(rank_ask(&a, 'l', 0) == 2 && rank_ask(&b, 'l', 0) == 2);
	assert_true(rank_ask(&a, 'w', 0) == 0 && rank_ask(&a, 'n', 0) == 0);
	/* Both have seen that it is nobody's, and take it. */
	assert_true(rank_ask(&a, 'p', 1));
	assert_false(rank_ask(&b, 'p', 1));
	assert_true(rank_ask(&a, 'l', 0) == 2 && rank_ask(&b, 'l', 0) == 2);
	assert_true(rank_ask(&a, 'w', 0) == 1 && rank_ask(&b, 'w', 0) == 2 && rank_ask(&b, 'n', 0) == 1);
	/* It goes on to the other, while a third one joins. */
	account_joined();

	assert_true(rank_ask(&a, 'p', 2));
	assert_false(rank_ask(&a, 'p', 1));
	assert_true(rank_ask(&b, 'l', 0) == 3 && rank_ask(&b, 'w', 0) == 1 && rank_ask(&b, 'n', 0) == 2);
}

TEST(the_dead_have_no_turn)
{
	struct rank a = account_joined(), b = account_joined();

	assert_true(rank_ask(&a, 'l', 0) == 2 && rank_ask(&a, 'p', 1));
	assert_true(rank_ask(&b, 'l', 0) == 2 && rank_ask(&b, 'w', 0) == 2);
	rank_kill(&a);
	assert_true(rank_ask(&b, 'l', 0) == 1 && rank_ask(&b, 'w', 0) == 0);
	/* Not that of the process that comes into its slot either. */
	struct rank c = account_joined();

	assert_true(rank_ask(&c, 'l', 0) == 2 && rank_ask(&c, 'w', 0) == 0);
	/* What the other saw before is out of date. */
	assert_false(rank_ask(&b, 'p', 1));
	assert_true(rank_ask(&b, 'l', 0) == 2 && rank_ask(&b, 'p', 1));
	/* A file that is made again has no turn. */
	assert_int_equal(truncate(account_path, 100), 0);
	assert_false(rank_ask(&b, 'p', 1));
	assert_int_equal(rank_ask(&b, 'l', 0), 0);
	assert_int_equal(rank_ask(&c, 'l', 0), 0);
	assert_true(rank_ask(&b, 'j', TOTAL));
	assert_true(rank_ask(&b, 'l', 0) == 1 && rank_ask(&b, 'w', 0) == 0 && rank_ask(&b, 'n', 0) == 0);
}

/* From when it says so it is as one that is dead, however long the driver then takes to end; what it holds counts. */
TEST(one_that_ends_has_no_turn)
{
	struct rank a = account_joined(), b = account_joined();

	assert_int_equal(rank_ask(&a, 'r', 50), 50);
	assert_true(rank_ask(&a, 'h', 30) && rank_ask(&a, 'l', 0) == 2 && rank_ask(&a, 'p', 1));
	assert_true(rank_ask(&b, 'l', 0) == 2 && rank_ask(&b, 'w', 0) == 2);
	assert_true(rank_ask(&a, 'v', 0));
	assert_true(rank_ask(&b, 'l', 0) == 2 && rank_ask(&b, 'w', 0) == 0);
	assert_int_equal(rank_ask(&b, 'r', 64), 14);
	rank_kill(&a);
	assert_int_equal(rank_ask(&b, 'r', 64), 64);
}

TEST(the_turn_of_a_dead_process_is_that_of_its_job)
{
	struct rank a = account_start(), b = account_start(), c = account_start();

	assert_true(rank_ask(&a, 'J', 7) && rank_ask(&b, 'J', 8) && rank_ask(&c, 'J', 7));
	assert_true(rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL) && rank_ask(&c, 'j', TOTAL));
	assert_true(rank_ask(&a, 'l', 0) && rank_ask(&a, 'p', 1));
	rank_kill(&a);
	assert_true(rank_ask(&b, 'l', 0) == 2 && rank_ask(&c, 'l', 0) == 2);
	assert_int_equal(rank_ask(&b, 'w', 0), 2);
	assert_int_equal(rank_ask(&c, 'w', 0), 1);
	assert_int_equal(rank_ask(&b, 'A', 0), 200);
	assert_int_equal(rank_ask(&c, 'A', 0), 201);
	/* Of a job without another process it is nobody's. */
	assert_true(rank_ask(&c, 'p', 2));
	rank_kill(&b);
	assert_true(rank_ask(&c, 'l', 0) == 1);
	assert_int_equal(rank_ask(&c, 'w', 0), 0);
	assert_int_equal(rank_ask(&c, 'A', 0), 100);
}

TEST(all_accounts_are_in_one_order)
{
	struct rank a = account_start(), b = account_start(), c = account_start();

	/* c is of the second GPU, and has the turn there. */
	assert_true(rank_ask(&a, 'u', 0x11) && rank_ask(&b, 'u', 0x11));
	assert_true(rank_ask(&c, 'j', TOTAL) && rank_ask(&a, 'j', TOTAL) && rank_ask(&b, 'j', TOTAL));
	assert_true(rank_ask(&c, 'l', 0) && rank_ask(&c, 'p', 1));
	assert_int_equal(rank_ask(&a, 'A', 0), 300);
	assert_int_equal(rank_ask(&b, 'A', 0), 300);
	assert_int_equal(rank_ask(&c, 'A', 0), 311);
	/* An account that is lost is not there, and neither is one that is damaged. */
	assert_int_equal(truncate(account_path, 100), 0);
	assert_int_equal(rank_ask(&a, 'A', 0), 200);
	assert_int_equal(rank_ask(&c, 'A', 0), 0);
	rank_end(&a);
	assert_int_equal(rank_ask(&b, 'A', 0), 100);
}

/* Processes that take, give, die and come, all at once. */
TEST(many_at_once_never_have_more_than_the_total)
{
	enum { RANKS = 6, ROUNDS = 300 };
	struct seed dice = seed_start("gpu_account_test");
	struct rank ranks[RANKS];

	for (unsigned i = 0; i < RANKS; i++) {
		ranks[i] = account_start();
		while (!rank_ask(&ranks[i], 'j', TOTAL))
			;
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		char order[RANKS];

		for (unsigned i = 0; i < RANKS; i++) {
			unsigned most = (unsigned)seed_below(&dice, TOTAL);

			order[i] = seed_below(&dice, 3) ? 'r' : 'd';
			/* Down, never up: half of nothing is nothing. */
			rank_tell(&ranks[i], order[i], order[i] == 'd' ? 0 : most);
		}
		for (unsigned i = 0; i < RANKS; i++)
			rank_hear(&ranks[i]);
		unsigned victim = (unsigned)seed_below(&dice, RANKS);
		if (round % 20 == 0) {
			rank_kill(&ranks[victim]);
			ranks[victim] = account_joined();
		}
		assert_int_equal(rank_ask(&ranks[victim], 'l', 0), RANKS);
		assert_true(rank_ask(&ranks[victim], 's', 0) <= TOTAL);
	}
	for (unsigned i = 0; i < RANKS; i++)
		rank_end(&ranks[i]);
}

EACH_TEST(make_account, drop_account)

int main(void)
{
	return pipe(child_waits) ? 1 : test_run();
}
