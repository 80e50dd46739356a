// SPDX-License-Identifier: Apache-2.0
/*
 * governor_test.c: the governor on made-up programs. A program does `work` at one rate while nothing moves and at
 * another while memory does, the latter after its working set has been brought in; rates jitter by a third from one
 * call to the next. What counts is the time for all of the work, beside the time with moving switched off.
 */
#include "shim/plan/governor.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define TICK_NS 3000000u
#define SECOND  1e9

struct phase {
	double still, moving; /* submissions a millisecond */
	double warm_ms;       /* of moving, before `moving` is reached; until then a third of `still` */
	double seconds;       /* with moving switched off */
};

struct world {
	struct governor governor;
	struct seed seed;
	uint64_t now_ns, moved_bytes;
	double done;
	double warmed_ms;
	uint64_t moving_ticks, ticks;
	bool known, moves;
};

static double jitter(struct world *world)
{
	return 0.67 + (double)seed_below(&world->seed, 1000) / 1000 * 0.66;
}

/* Until the phase's work is done. The time it took, in seconds. */
static double run_phase(struct world *world, const struct phase *phase)
{
	double left = phase->still * phase->seconds * 1e3;
	uint64_t begin = world->now_ns;

	while (left > 0) {
		double rate = phase->still;

		if (world->moves) {
			rate = world->warmed_ms < phase->warm_ms ? phase->still / 3 : phase->moving;
			world->warmed_ms += TICK_NS / 1e6;
			world->moved_bytes += 100 << 20;
			world->moving_ticks++;
		}
		double work = rate * TICK_NS / 1e6 * jitter(world);
		world->ticks++;
		world->now_ns += TICK_NS;
		world->done += work;
		left -= work;
		world->moves = governor_moves(&world->governor, world->now_ns, (uint64_t)world->done,
					      world->moved_bytes, world->known);
	}
	return (double)(world->now_ns - begin) / SECOND;
}

static struct world begin(const char *test, bool known)
{
	struct world world = {.seed = seed_start(test), .now_ns = 12345678, .known = known};

	governor_init(&world.governor);
	return world;
}

TEST(random_accesses_lose_at_most_a_tenth)
{
	struct world world = begin(__func__, false);
	const struct phase phases[] = {{10, 3.3, 0, 5}, {10, 3.3, 0, 30}, {10, 3.3, 0, 600}};

	for (int i = 0; i < 3; i++) {
		double took = run_phase(&world, &phases[i]);

		assert_true(took < phases[i].seconds * 1.10 + 0.30);
		if (i == 2)
			assert_true(took < phases[i].seconds * 1.03); /* it is rarely tried any more */
	}
}

TEST(slightly_worse_loses_at_most_a_tenth)
{
	struct world world = begin(__func__, false);
	struct phase phase = {10, 8, 0, 100};

	assert_true(run_phase(&world, &phase) < 107);
}

TEST(few_long_submissions_are_measured_too)
{
	struct world world = begin(__func__, false);
	struct phase worse = {0.05, 0.02, 0, 100}, better = {0.05, 0.5, 0, 200};

	assert_true(run_phase(&world, &worse) < 110);
	assert_true(run_phase(&world, &better) < 100);
}

TEST(reuse_is_found_and_kept)
{
	struct world world = begin(__func__, false);
	struct phase phase = {10, 50, 0, 100};

	assert_true(run_phase(&world, &phase) < 26); /* 20 would be perfect */
}

TEST(reuse_after_a_long_warm_up_is_found)
{
	struct world world = begin(__func__, false);
	struct phase phase = {10, 50, 600, 200};

	assert_true(run_phase(&world, &phase) < 100);
}

TEST(changing_work_is_followed)
{
	struct world world = begin(__func__, false);
	const struct phase good = {10, 50, 0, 100}, bad = {10, 3.3, 0, 60}, lame = {40, 8, 0, 60};

	run_phase(&world, &good);
	assert_true(run_phase(&world, &bad) < bad.seconds * 1.10);
	assert_true(run_phase(&world, &good) < good.seconds);        /* found again, in time */
	assert_true(run_phase(&world, &lame) < lame.seconds * 1.10); /* faster than before both ways, and yet worse */
	assert_true(run_phase(&world, &bad) < bad.seconds * 1.10);
}

TEST(a_known_period_moves_at_once_and_is_not_interrupted)
{
	struct world world = begin(__func__, false);
	struct phase first = {1, 0.5, 0, 3}, steady = {1, 8, 0, 400};

	run_phase(&world, &first);
	world.known = true;
	world.ticks = world.moving_ticks = 0;
	assert_true(run_phase(&world, &steady) < 52); /* 50 would be perfect */
	assert_true(world.ticks - world.moving_ticks < 250);
}

TEST(a_known_period_that_does_not_pay_stops)
{
	struct world world = begin(__func__, true);
	struct phase phase = {10, 5, 0, 100};

	assert_true(run_phase(&world, &phase) < 107);
}

TEST(moving_nothing_is_no_loss)
{
	struct world world = begin(__func__, true);
	struct phase phase = {10, 20, 0, 20};

	run_phase(&world, &phase);
	assert_true(world.moves);
	/*
	 * What the last epoch moved may count for the rest of that epoch, which takes 400 ms if it has hardly begun;
	 * what is lost then brings a check, which takes as long without any work.
	 */
	for (int i = 0; i < 1000; i++) { /* three seconds without any work or traffic */
		world.now_ns += TICK_NS;
		assert_true(
		    governor_moves(&world.governor, world.now_ns, (uint64_t)world.done, world.moved_bytes, true) ||
		    i < 300);
	}
}

TEST(a_pause_is_not_a_rate)
{
	struct world world = begin(__func__, false);
	struct phase phase = {10, 50, 0, 50};

	run_phase(&world, &phase);
	assert_true(world.moves);
	world.now_ns += UINT64_C(3600) * 1000000000u; /* suspended for an hour */
	assert_true(governor_moves(&world.governor, world.now_ns, (uint64_t)world.done, world.moved_bytes, false));
	assert_true(run_phase(&world, &phase) < 13);
}

TEST(nothing_moves_before_anything_is_measured)
{
	struct governor governor;

	governor_init(&governor);
	for (uint64_t ms = 0; ms < 100; ms += 3)
		assert_false(governor_moves(&governor, ms * 1000000, ms * 10, 0, false));
}
