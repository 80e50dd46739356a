// SPDX-License-Identifier: Apache-2.0
/*
 * share: turns, whatever happens to those that take them. Each has its bytes as they were, and the device memory of all
 * together, which the simulated GPUs sum, is never more than the total. The host has room for what leaves, and for no
 * more. A rank is a process of its own, with a simulated GPU of its own, that does what it is told (turns_test.c).
 */
#include "test/preload/turns_help.h"
#include "test/unit/seed.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define SET(m) TURNS_SET(",host.budget=32MiB,share=turns,share.queue=no,spill.mode=" m)
#define MOST   4
#define EVENTS 6

static struct sim_together *together;

/*
 * turns_obey(), and 'd' N: begin, with place N in what all have together, where every second one takes 2 ms to pin 2
 * MiB; 'm': allocate as much again, for a moment; 'x':
 * close the account.
 */
static uint64_t obey(char what, unsigned n)
{
	switch (what) {
	case 'd':
		driver_start(0);
		sim_together(together, n);
		sim_switch("PIN_US", n % 2 * 2000);
		return 1;
	case 'm':
		MUST(cu.cuMemFree_v2(child_alloc(TURNS_NEEDS * 4 * MIB)));
		return 1;
	case 'x':
		/* It may just be lost, and not open. */
		account_close();
		return 1;
	default:
		return turns_obey(what, n);
	}
}

struct member {
	struct rank rank;
	unsigned place;
};

static struct member start(const char *settings, unsigned place, unsigned n)
{
	static const struct rank_part part = {.begin = turns_begin, .obey = obey};
	struct member member = {.rank = rank_start(&part, settings), .place = place};

	assert_true(rank_ask(&member.rank, 'd', place) && rank_ask(&member.rank, 'a', n));
	return member;
}

/* What it has does not count any more, unless a child keeps it. */
static void kill_it(const struct member *member, bool has_child)
{
	kill(member->rank.pid, SIGSTOP);
	waitpid(member->rank.pid, NULL, WUNTRACED);
	if (!has_child)
		atomic_store(&together->now[member->place], 0);
	rank_kill(&member->rank);
}

/* The child of a dead one ends. Nobody counts what it has kept when this returns. */
static void end_child(const struct member *dead)
{
	struct account_page page;

	atomic_store(&together->now[dead->place], 0);
	assert_int_equal(write(turns_child_waits[1], "", 1), 1);
	for (unsigned tries = 0; tries < TURNS_TRIES && (!account_read(&page) || account_member(&page, &dead->rank));
	     tries++)
		usleep(1000);
}

enum event { KILL, KILL_PARENT, STOP, DAMAGE, REMOVE, CLOSE, MORE, NOTHING, N_EVENTS };

/* It happens while all make steps. Returns whether that one answers. */
static bool happens(const struct member *victim, enum event event, struct seed *dice)
{
	off_t bytes = (off_t)seed_below(dice, 5000);
	char path[256];

	if (event == KILL || event == KILL_PARENT)
		kill_it(victim, event == KILL_PARENT);
	else if (event == STOP)
		kill(victim->rank.pid, SIGSTOP);
	else if (event == DAMAGE && folder_files(GPU_ACCOUNT_TAIL, path) == 1)
		assert_int_equal(truncate(path, bytes), 0);
	else if (event == REMOVE && folder_files(GPU_ACCOUNT_TAIL, path) == 1)
		assert_int_equal(unlink(path), 0);
	return event > STOP;
}

/*
 * What a child keeps of one that dies before is not counted (gpu_account.h). One that has just lost the account shows in
 * it, but publishes nothing until it has entered again.
 */
static void wait_until_all_are_in(const struct member *all)
{
	const uint64_t began = test_now();
	struct account_page page;

	for (unsigned tries = 0, n = 0; tries < TURNS_TRIES && n < MOST; tries++) {
		if (!account_read(&page))
			n = 0;
		else
			for (n = 0; n < MOST; n++) {
				const struct gpu_account_member *member = account_member(&page, &all[n].rank);

				if (!member || member->claim.beat < began)
					break;
			}
		usleep(1000);
	}
}

/* Another comes for one that was killed. */
static void goes_on(struct member *victim, enum event event, const char *settings, unsigned place, struct seed *dice)
{
	struct member dead = *victim;

	if (event == STOP) {
		kill(victim->rank.pid, SIGCONT);
		assert_true(rank_hear(&victim->rank));
	} else if (event == KILL || event == KILL_PARENT) {
		*victim = start(settings, place, TURNS_NEEDS - (unsigned)seed_below(dice, 3));
	}
	if (event == KILL_PARENT)
		end_child(&dead);
}

static void whatever_happens(const char *settings, struct seed *dice)
{
	struct member all[MOST];
	unsigned places = 0;

	memset(together, 0, sizeof(*together));
	for (unsigned i = 0; i < MOST; i++)
		all[i] = start(settings, places++, TURNS_NEEDS);
	for (unsigned n = 0; n < EVENTS; n++) {
		struct member *victim = &all[seed_below(dice, MOST)];
		enum event event = (enum event)seed_below(dice, N_EVENTS);
		static const char before[N_EVENTS] = {[KILL_PARENT] = 'p', [CLOSE] = 'x', [MORE] = 'm'};

		if (before[event])
			assert_true(rank_ask(&victim->rank, before[event], 0));
		for (unsigned i = 0; i < MOST; i++)
			rank_tell(&all[i].rank, 's', 1 + (unsigned)seed_below(dice, 8));
		usleep((unsigned)seed_below(dice, 50000));
		bool answers = happens(victim, event, dice);
		for (unsigned i = 0; i < MOST; i++)
			if (answers || &all[i] != victim)
				assert_true(rank_hear(&all[i].rank));
		goes_on(victim, event, settings, places++, dice);
		wait_until_all_are_in(all);
		for (unsigned i = 0; i < MOST; i++)
			assert_true(rank_ask(&all[i].rank, 'c', 0));
		if (atomic_load(&together->most) > TURNS_MIB * MIB)
			fail_msg("event %u, %d: %zu MiB of %d", n, (int)event,
				 (size_t)(atomic_load(&together->most) / MIB), TURNS_MIB);
	}
	for (unsigned i = 0; i < MOST; i++)
		rank_end(&all[i].rank);
}

TEST(every_byte_is_right_and_all_is_in_the_total)
{
	struct seed dice = seed_start("turns_random_test");

	whatever_happens(SET("exact"), &dice);
	whatever_happens(SET("fast"), &dice);
}

static int run(void)
{
	together = mmap(NULL, sizeof(*together), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (together == MAP_FAILED || pipe(turns_child_waits))
		return 1;
	return test_run();
}

EACH_TEST(begin_log, folder_remove)

int main(void)
{
	return turns_main(run);
}
