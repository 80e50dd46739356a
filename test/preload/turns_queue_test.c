// SPDX-License-Identifier: Apache-2.0
/*
 * share.queue: where host.total does not hold what one more process may give up for the turns of others, it waits at
 * its first allocation. A rank is a process of its own, with a simulated GPU of its own, that does what it is told.
 */
#include "test/preload/turns_help.h"

#include <poll.h>

/* Of two that need 24 MiB each, and a slab, less than 56 MiB are away while the turn changes; of three much more. */
#define SET(queue) TURNS_SET(",host.total=56MiB,host.budget=56MiB,share=turns,share.queue=" queue)

static void begin(const void *settings)
{
	turns_begin(settings);
	child_set("SIM_DEVICES=2");
}

static struct rank start_on(unsigned device, const char *settings)
{
	static const struct rank_part part = {.begin = begin, .obey = turns_obey};
	struct rank rank = rank_start(&part, settings);

	assert_true(rank_ask(&rank, 'd', device));
	return rank;
}

static struct rank start(const char *settings)
{
	return start_on(0, settings);
}

/* Until the others have seen what it needs. */
static void allocate_more(const struct rank *rank, unsigned n)
{
	struct account_page page;
	const struct gpu_account_member *member = NULL;

	assert_true(rank_ask(rank, 'a', n));
	for (unsigned tries = 0; tries < 1000 && !(member && member->needs >= 4 * TURNS_NEEDS * MIB); tries++) {
		usleep(5000);
		member = account_read(&page) ? account_member(&page, rank) : NULL;
	}
	assert_true(member && member->needs >= 4 * TURNS_NEEDS * MIB);
}

static void allocate(const struct rank *rank)
{
	allocate_more(rank, TURNS_NEEDS);
}

/* It does not wait; allocates a block. */
static void answers(const struct rank *rank)
{
	struct pollfd answer = {.fd = rank->from, .events = POLLIN};

	rank_tell(rank, 'm', 1);
	assert_int_equal(poll(&answer, 1, 5000), 1);
	assert_true(rank_hear(rank));
}

static bool has_answered(const struct rank *rank)
{
	struct pollfd answer = {.fd = rank->from, .events = POLLIN};

	return poll(&answer, 1, 0) == 1;
}

static void wait_for_log(const char *words)
{
	for (unsigned tries = 0; tries < 1000 && !log_has(words); tries++)
		usleep(5000);
	assert_true(log_says(words));
}

/* It is told to allocate, and waits. */
static void waits(const struct rank *rank)
{
	rank_tell(rank, 'a', TURNS_NEEDS);
	wait_for_log("share.queue: this process waits at its first allocation");
	assert_false(has_answered(rank));
}

static void end(const struct rank *rank)
{
	assert_true(rank_ask(rank, 'c', 0));
	rank_end(rank);
}

TEST(who_does_not_fit_the_host_waits_until_another_ends)
{
	struct rank a = start(SET("yes")), b = start(SET("yes")), c;

	allocate(&a);
	allocate(&b);
	assert_false(log_has("share.queue"));
	c = start(SET("yes"));
	waits(&c);
	rank_kill(&a);
	assert_true(rank_hear(&c));
	assert_true(log_says("share.queue: this process has waited"));
	end(&c);
	end(&b);
}

TEST(who_waits_for_a_time_goes_on_then)
{
	struct rank a = start(SET("no")), b = start(SET("no")), c = start(SET("100ms"));

	allocate(&a);
	allocate(&b);
	rank_tell(&c, 'a', 1);
	wait_for_log("share.queue: there is still no room in host.total");
	/* What it has fits what is left, as long as it is so little. */
	rank_end(&a);
	assert_true(rank_hear(&c));
	end(&c);
	end(&b);
}

/* One waits for the other to show what it needs. */
TEST(they_are_admitted_one_after_the_other)
{
	struct rank a = start(SET("yes")), b = start(SET("yes")), c = start(SET("yes"));

	allocate(&a);
	assert_true(rank_ask(&b, 'a', TURNS_NEEDS));
	waits(&c);
	end(&a);
	assert_true(rank_hear(&c));
	end(&b);
	end(&c);
}

/* The first one, too, shows what it needs before the next one is admitted. */
TEST(the_first_is_waited_for)
{
	struct rank a = start(SET("yes")), b = start(SET("yes")), c = start(SET("no"));

	assert_true(rank_ask(&a, 'a', 1));
	rank_tell(&b, 'a', TURNS_NEEDS);
	allocate(&c);
	allocate_more(&a, TURNS_NEEDS - 1);
	wait_for_log("share.queue: this process waits at its first allocation");
	assert_false(has_answered(&b));
	end(&a);
	assert_true(rank_hear(&b));
	end(&b);
	end(&c);
}

/* It would wait for one that waits for it. */
TEST(who_is_of_the_job_of_another_does_not_wait)
{
	struct rank a = start(SET("no") ",share.job=x"), b = start(SET("no")), c = start(SET("yes") ",share.job=x");

	allocate(&a);
	allocate(&b);
	answers(&c);
	end(&c);
	end(&b);
	end(&a);
}

/* Those that share the first GPU with it may wait for it. */
TEST(who_shares_another_gpu_already_does_not_wait)
{
	struct rank a = start_on(1, SET("no")), b = start_on(1, SET("no")), c;

	allocate(&a);
	allocate(&b);
	c = start_on(0, SET("yes"));
	assert_true(rank_ask(&c, 'a', 1) && rank_ask(&c, 'd', 1));
	answers(&c);
	end(&c);
	end(&b);
	end(&a);
}

/* Nobody is kept from ending. */
TEST(who_waits_can_end)
{
	struct rank a = start(SET("no")), b = start(SET("no")), c = start(SET("yes"));

	allocate(&a);
	allocate(&b);
	rank_tell(&c, 'a', TURNS_NEEDS);
	wait_for_log("share.queue: this process waits at its first allocation");
	assert_int_equal(kill(c.pid, SIGTERM), 0);
	rank_gone(&c, SIGTERM);
	end(&a);
	end(&b);
}

EACH_TEST(begin_log, folder_remove)

int main(void)
{
	return turns_main(test_run);
}
