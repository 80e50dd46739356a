/*
 * share: turns, in the middle of a switch: the memory of one process leaves, and that of the next comes. A rank is a
 * process of its own, with a simulated GPU of its own, that does what it is told (turns_test.c). A call of the driver
 * that stands still keeps a switch in its middle for as long as the test looks.
 */
#include "shim/spillway.h"
#include "test/preload/child.h"
#include "test/preload/folder.h"
#include "test/preload/turns_help.h"
#include "test/preload/turns_switch_rank.h"
#include "test/rank.h"
#include "test/test.h"

#include <stdatomic.h>

#define SET      "SPILLWAY_SET=device.total=32MiB,report.summary=no,share=turns,share.quantum=20ms,host.budget="
#define SETTINGS SET "256MiB"

static struct rank start(const char *settings)
{
	struct rank rank = rank_start(&turns_switch_rank, settings);
	assert_true(rank_ask(&rank, 'd', 0) && rank_ask(&rank, 'a', NEEDS));
	return rank;
}

/* Reads what a rank has published. Returns false if that cannot be read now; *ret_holder: whether it has the turn. */
static bool published(const struct rank *rank, struct gpu_account_member *ret, bool *ret_holder)
{
	struct account_page page;
	const struct gpu_account_member *member = account_read(&page) ? account_member(&page, rank) : NULL;

	if (!member)
		return false;
	*ret = *member;
	*ret_holder = false;
	for (unsigned i = 0; i < GPU_ACCOUNT_MOST; i++)
		*ret_holder |= &page.slot[i] == member && page.head.turn.holder == i + 1;
	return true;
}

/* The first has the turn and nothing to do, the other is away. */
static void give_first_the_turn(const struct rank ranks[2])
{
	struct gpu_account_member first;
	bool has_it;

	for (unsigned round = 0; round < ROUNDS; round++) {
		assert_true(rank_ask(&ranks[0], 's', 1));
		if (published(&ranks[0], &first, &has_it) && has_it && !first.claim.moving && !first.claim.away)
			return;
	}
	fail_msg("it has no turn");
}

static void start_two(struct rank ranks[2], const char *first_settings)
{
	for (unsigned i = 0; i < 2; i++)
		ranks[i] = start(i ? SETTINGS : first_settings);
	turns_run(ranks, 2, 1);
	give_first_the_turn(ranks);
}

static void let_go_on(const struct rank *rank)
{
	assert_int_equal(kill(rank->pid, SIGUSR1), 0);
}

/* The second makes steps while the memory of the first stands still in the middle of leaving. */
static void stop_in_the_middle(const struct rank ranks[2])
{
	struct gpu_account_member first, second;
	bool has_it;

	assert_true(published(&ranks[1], &second, &has_it));
	uint64_t before = second.holds;
	assert_true(rank_ask(&ranks[0], 'r', 3));
	rank_tell(&ranks[1], 's', 1);
	for (unsigned tries = 0; tries < ROUNDS; tries++) {
		if (published(&ranks[0], &first, &has_it) && !has_it && first.claim.moving && !first.claim.away &&
		    published(&ranks[1], &second, &has_it) && has_it && second.holds >= before + 4 * MIB) {
			account_check();
			return;
		}
		usleep(2000);
	}
	fail_msg("nothing came while memory was leaving");
}

/* ---- the parts ---- */

/* The other has the turn, and memory of its own, while that of the first is still leaving. */
TEST(memory_comes_while_that_of_another_leaves)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	stop_in_the_middle(ranks);
	let_go_on(&ranks[0]);
	assert_true(rank_hear(&ranks[1]));
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/* What it has not given up does not come; the other goes on with the rest, and with all of it once the slot is free. */
TEST(one_that_is_killed_while_its_memory_leaves_is_not_waited_for)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	stop_in_the_middle(ranks);
	rank_kill(&ranks[0]);
	assert_true(rank_hear(&ranks[1]) && rank_ask(&ranks[1], 's', 5) && rank_ask(&ranks[1], 'c', 0));
	ranks[0] = start(SETTINGS);
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/* A driver that does not take its memory back in time: the other begins with what there is. */
TEST(memory_that_does_not_leave_in_time_is_not_waited_for)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	stop_in_the_middle(ranks);
	assert_true(rank_hear(&ranks[1]) && rank_ask(&ranks[1], 'c', 0));
	account_check();
	let_go_on(&ranks[0]);
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/* Returns whether what the first has published is of a later time than before. *ret: what it is. */
static bool shows_itself(const struct rank *rank, struct gpu_account_member *ret)
{
	uint64_t before = ret->claim.beat;
	bool has_it;

	return published(rank, ret, &has_it) && ret->claim.beat != before;
}

/* Begins a suspension on request. Returns what the tool says, to be closed. */
static FILE *begin_to_suspend(const struct rank *rank)
{
	char command[256];

	snprintf(command, sizeof(command), "env -u LD_PRELOAD %s '%s' suspend %d 2>&1", runtime, TOOL, (int)rank->pid);
	FILE *output = popen(command, "r");
	assert_non_null(output);
	return output;
}

static void end_suspending(FILE *output)
{
	char line[256];

	while (fgets(line, sizeof(line), output))
		;
	assert_int_equal(pclose(output), 0);
}

static void resume(const struct rank *rank)
{
	char command[256];

	snprintf(command, sizeof(command), "env -u LD_PRELOAD %s '%s' resume %d >/dev/null 2>&1", runtime, TOOL,
		 (int)rank->pid);
	assert_int_equal(system(command), 0);
}

/* Returns once the second has the turn, and its memory stands still in the middle of coming. */
static void stop_the_second(const struct rank ranks[2])
{
	struct gpu_account_member second;
	bool has_it = false;

	assert_true(rank_ask(&ranks[1], 'm', 2));
	rank_tell(&ranks[1], 's', 1);
	/* The first leaves at once, as it has nothing to do, and is to have work when the other is gone. */
	for (unsigned tries = 0; tries < ROUNDS && !has_it; tries++) {
		bool known = published(&ranks[1], &second, &has_it);

		has_it = known && has_it && second.claim.moving && second.claim.away;
		usleep(2000);
	}
	assert_true(has_it);
	rank_tell(&ranks[0], 's', 1);
}

TEST(the_other_goes_on_when_one_is_killed_while_its_memory_comes)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	stop_the_second(ranks);
	rank_kill(&ranks[1]);
	assert_true(rank_hear(&ranks[0]) && rank_ask(&ranks[0], 'c', 0));
	ranks[1] = start(SETTINGS);
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/* Its turn is given to the other meanwhile; it waits for the next one. */
TEST(one_that_is_stopped_while_its_memory_comes_loses_its_turn)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	stop_the_second(ranks);
	assert_int_equal(kill(ranks[1].pid, SIGSTOP), 0);
	assert_true(rank_hear(&ranks[0]) && rank_ask(&ranks[0], 'c', 0));
	account_check();
	assert_int_equal(kill(ranks[1].pid, SIGCONT), 0);
	let_go_on(&ranks[1]);
	assert_true(rank_hear(&ranks[1]));
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/* Copies begin at once: what is dead leaves while they run. More has to leave than what is dead. */
TEST(copies_do_not_wait_until_the_dead_have_left)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	assert_true(rank_ask(&ranks[0], 's', 1) && rank_ask(&ranks[0], 'z', 2) && rank_ask(&ranks[0], 'k', 1));
	rank_tell(&ranks[1], 's', 1);
	assert_int_equal(rank_ask(&ranks[0], 'p', 0), NEEDS * 4);
	let_go_on(&ranks[0]);
	assert_true(rank_hear(&ranks[1]));
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/* It comes back before it is used. */
TEST(what_has_left_for_another_is_mapped_nowhere)
{
	struct rank ranks[2];

	start_two(ranks, SETTINGS);
	/* What began on the host is on the device now. */
	turns_run(ranks, 2, 2);
	give_first_the_turn(ranks);
	assert_true(rank_ask(&ranks[1], 'n', 0));
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/*
 * A suspension on request that stands still in its middle. The one that is suspended goes on to show itself, has given
 * its turn on, and takes no part, so that the other works.
 */
TEST(one_that_is_being_suspended_is_not_waited_for)
{
	struct gpu_account_member first = {0}, second;
	struct rank ranks[2];
	unsigned shown = 0;
	bool has_it;

	start_two(ranks, SETTINGS);
	assert_true(rank_ask(&ranks[0], 'r', 3));
	FILE *output = begin_to_suspend(&ranks[0]);
	for (unsigned tries = 0; tries < ROUNDS && shown < 20; tries++) {
		shown += shows_itself(&ranks[0], &first) && first.claim.moving && first.claim.kind == GPU_TURN_OFF;
		usleep(2000);
	}
	assert_int_equal(shown, 20);
	account_check();
	assert_true(published(&ranks[0], &first, &has_it) && !has_it);
	assert_true(rank_ask(&ranks[1], 's', 5) && rank_ask(&ranks[1], 'c', 0));
	assert_true(published(&ranks[1], &second, &has_it) && published(&ranks[0], &first, &has_it));
	assert_true(first.claim.moving && !second.claim.away);
	account_check();
	let_go_on(&ranks[0]);
	end_suspending(output);
	resume(&ranks[0]);
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/*
 * Who is suspended on request looks every 100 ms, whatever the others do. It says itself when it has looked, and a slow
 * machine makes that no sooner.
 */
TEST(one_that_is_suspended_looks_seldom)
{
	struct gpu_account_member first = {0};
	struct rank ranks[2];
	unsigned looks = 0;

	start_two(ranks, SETTINGS);
	end_suspending(begin_to_suspend(&ranks[0]));
	rank_tell(&ranks[1], 's', 20);
	for (unsigned tries = 0; tries < ROUNDS && looks < 8; tries++) {
		uint64_t before = first.claim.beat;

		if (shows_itself(&ranks[0], &first) && ++looks > 3)
			assert_true(first.claim.beat - before >= 90000000);
		usleep(1000);
	}
	assert_int_equal(looks, 8);
	assert_true(rank_hear(&ranks[1]));
	resume(&ranks[0]);
	turns_run(ranks, 2, 2);
	turns_end(ranks, 2);
}

/*
 * In its first turn, before anything has left for another. It begins with turns because it needs more than there is,
 * and has the first one, unless the other sees that before.
 */
TEST(host_memory_is_pinned_before_it_is_needed)
{
	bool is_first = false;

	for (unsigned tries = 0; tries < 30 && !is_first; tries++) {
		struct gpu_account_member member = {0};
		struct rank ranks[2];
		bool has_it = false;

		for (unsigned i = 0; i < 2; i++)
			ranks[i] = rank_start(&turns_switch_rank, SETTINGS);
		for (unsigned i = 0; i < 2; i++)
			assert_true(rank_ask(&ranks[i], 'd', 0));
		assert_true(rank_ask(&ranks[0], 'a', 4) && rank_ask(&ranks[1], 'A', 3));
		for (unsigned looks = 0; looks < ROUNDS && member.needs < 12 * MIB; looks++) {
			published(&ranks[1], &member, &has_it);
			usleep(1000);
		}
		assert_true(rank_ask(&ranks[0], 'a', 2));
		for (unsigned looks = 0; looks < ROUNDS && !member.claim.n; looks++) {
			assert_true(rank_ask(&ranks[0], 's', 1));
			published(&ranks[0], &member, &has_it);
		}
		/* What a switch costs is known to a process that has left. */
		is_first = has_it && !member.claim.cost;
		/* Of its 24 MiB it may keep 6 or 7 beside what the other needs now. */
		assert_true(rank_ask(&ranks[1], 'A', 3));
		if (is_first)
			assert_true(rank_ask(&ranks[0], 'w', 16));
		/* The second has written nothing. */
		assert_true(rank_ask(&ranks[0], 'c', 0));
		for (unsigned i = 0; i < 2; i++)
			rank_end(&ranks[i]);
	}
	assert_true(is_first);
}

/*
 * Little is alive for a moment before the turn is to end, so it goes on for an eighth of its quantum to wait for that
 * again. That it lasts so long is shown by two of its turns, one after the other; others may end because the machine
 * does not let it work, or last because it does not let the other ask.
 */
TEST(a_turn_goes_on_until_little_is_alive)
{
	static const char *const settings = "SPILLWAY_SET=device.total=32MiB,report.summary=no,share=turns,"
					    "share.quantum=400ms,host.budget=256MiB";
	uint64_t began = 0, n = 0;
	unsigned in_a_row = 0;
	struct rank ranks[2];

	for (unsigned i = 0; i < 2; i++)
		ranks[i] = start(settings);
	rank_tell(&ranks[1], 'o', 0);
	for (unsigned round = 0; round < 40 && in_a_row < 2; round++) {
		struct gpu_account_member first;
		bool has_it;

		rank_tell(&ranks[0], 'l', 2);
		for (unsigned looks = 0; looks < 500 && in_a_row < 2; looks++) {
			if (published(&ranks[0], &first, &has_it) && first.claim.n != n) {
				uint64_t ms = (first.claim.got - began) / 1000000;

				in_a_row = n && ms >= 440 ? in_a_row + 1 : 0;
				n = first.claim.n;
				began = first.claim.got;
			}
			usleep(3000);
		}
		assert_true(rank_hear(&ranks[0]));
	}
	let_go_on(&ranks[1]);
	assert_true(rank_hear(&ranks[1]));
	assert_true(in_a_row >= 2);
	turns_end(ranks, 2);
}

/* The host has no room for all of it: what stays is the part of the total that the other does not get. */
TEST(one_that_cannot_put_all_away_takes_turns_nevertheless)
{
	struct rank ranks[2];

	start_two(ranks, SET "12MiB");
	turns_run(ranks, 2, 3);
	assert_true(log_says("some of the memory of this process cannot leave the GPU"));
	turns_end(ranks, 2);
}

EACH_TEST(begin_log, folder_remove)

int main(int argc, char **argv)
{
	return turns_main(argv, test_run);
}
