// SPDX-License-Identifier: Apache-2.0
/*
 * plan_test.c: what the plan answers, by example (on whole jobs: plan_jobs_test.c). The linker sends calloc and
 * realloc through here (-Wl,--wrap), to let memory run out.
 */
#include "test/test.h"
#include "test/unit/failing_alloc.h"

#include "test/unit/seed.h"
#include "test/unit/plan_check.h"

/* ---- by example: a step names pieces 10, 20, ... 400, one after the other ---- */

#define N_STEP 40

static struct plan *plan; /* made by a test */
static uint32_t piece;    /* of the latest answer */
static uint64_t when;

FIXTURE(free_plan)
{
	assert_true(!plan || plan_is_valid(plan));
	plan_free(plan);
	plan = NULL;
}

EACH_TEST(NULL, free_plan)

static void begin(enum plan_way way)
{
	free_plan(NULL);
	plan = plan_new(way);
}

static void stepping_by(enum plan_way way, unsigned steps, enum plan_place place)
{
	begin(way);
	for (uint32_t i = 1; i <= N_STEP; i++)
		plan_set(plan, 10 * i, 4, place);
	for (unsigned s = 0; s < steps; s++)
		for (uint32_t i = 1; i <= N_STEP; i++)
			plan_note(plan, i, (uint32_t[]){10 * i}, 1);
}

static void stepping(unsigned steps, enum plan_place place)
{
	stepping_by(PLAN_BESIDE_KERNELS, steps, place);
}

static void note(uint32_t i)
{
	plan_note(plan, i, (uint32_t[]){10 * i}, 1);
}

/* Returns the piece to be fetched, as far as `most` units ahead; PLAN_PIECES: none is. */
static uint32_t fetched(uint64_t most)
{
	return plan_fetch(plan, most, &piece, &when) ? piece : PLAN_PIECES;
}

/* Says who leaves for `units` units (0: any) that are needed in `ahead` submissions. */
static enum plan_answer victim_for(uint64_t ahead, uint32_t units)
{
	return plan_victim(plan, plan_now(plan) + ahead, units, NULL, NULL, &piece);
}

/* It is on its way, and then there. */
static void moves_to(enum plan_place place)
{
	plan_set(plan, piece, 4, PLAN_MOVING);
	plan_set(plan, piece, 4, place);
}

static uint32_t victim(uint32_t units)
{
	assert_int_equal(victim_for(0, units), PLAN_FOUND);
	return piece;
}

static bool all_busy(void *argument, uint32_t of)
{
	return true;
}

static bool one_busy(void *argument, uint32_t of)
{
	return of == *(uint32_t *)argument;
}

TEST(uses_are_foretold_by_the_step_before)
{
	stepping(3, PLAN_HOST);

	assert_true(plan_knows(plan));
	assert_int_equal(plan_period(plan), N_STEP);
	assert_int_equal(plan_now(plan), 3 * N_STEP);
	for (uint32_t i = 1; i <= N_STEP; i++)
		assert_int_equal(plan_next_use(plan, 10 * i), plan_now(plan) + i);
	assert_int_equal(plan_foreseen(plan), 4 * N_STEP);
	plan_set(plan, 10, 6, PLAN_HOST);
	assert_int_equal(plan_foreseen(plan), 4 * N_STEP + 2);
	assert_true(plan_next_use(plan, 11) == PLAN_NEVER);
	assert_true(plan_next_use(plan, PLAN_PIECES - 1) == PLAN_NEVER);
	plan_free(NULL);
}

/* Forth and back over N_STEP pieces, other ones in each step, but for each third: those are the same in all. */
static uint32_t wandering(unsigned step, uint32_t i)
{
	uint32_t layer = i < N_STEP ? i : 2 * N_STEP - 1 - i;

	return layer % 3 ? 1000 * (1 + step) + 10 * ((layer * 7 + step) % N_STEP) : 10 * layer;
}

TEST(other_memory_is_used_as_that_in_whose_place_it_is)
{
	begin(PLAN_BESIDE_KERNELS);

	for (unsigned step = 0; step < 5; step++)
		for (uint32_t i = 0; i < 2 * N_STEP; i++) {
			plan_set(plan, wandering(step, i), 4, PLAN_DEVICE);
			plan_note(plan, i, (uint32_t[]){wandering(step, i)}, 1);
			if (step < 2 || i < N_STEP / 2 || i >= N_STEP)
				continue;
			assert_int_equal(plan_period(plan), 2 * N_STEP);
			/* On the way back each is needed once more. */
			assert_int_equal(plan_next_use(plan, wandering(step, i)),
					 plan_now(plan) + 2 * (N_STEP - i) - 1);
		}
	/* In a sixth one, what has gone comes back in the order of its use. */
	for (uint32_t i = 0; i < N_STEP; i++) {
		plan_set(plan, wandering(5, i), 4, PLAN_DEVICE);
		plan_note(plan, i, (uint32_t[]){wandering(5, i)}, 1);
	}
	for (uint32_t i = 0; i < N_STEP; i++)
		plan_set(plan, wandering(5, i), 4, PLAN_HOST);
	for (uint32_t i = 0; i < N_STEP; i++) {
		assert_int_equal(fetched(4 * N_STEP + 4), wandering(5, N_STEP + i));
		assert_int_equal(when, plan_now(plan) + 1 + i);
		plan_set(plan, piece, 4, PLAN_MOVING);
	}
}

TEST(fetches_come_in_the_order_of_use)
{
	stepping(3, PLAN_HOST);

	plan_set(plan, 20, 4, PLAN_PINNED);
	plan_set(plan, 40, 4, PLAN_DEVICE);
	const uint32_t expected[] = {10, 30, 50};
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fetched(100), expected[i]);
		assert_int_equal(when, plan_now(plan) + piece / 10);
		assert_int_equal(fetched(100), expected[i]); /* the same again, as it was not taken */
		plan_set(plan, piece, 4, PLAN_MOVING);
	}
	plan_set(plan, 40, 4, PLAN_HOST); /* one that was passed */
	assert_int_equal(fetched(100), 40);
}

TEST(looking_ahead_ends_at_the_limit)
{
	stepping(3, PLAN_HOST);

	for (uint32_t i = 1; i <= 2; i++) {
		assert_true(plan_fetch(plan, 8, &piece, &when));
		plan_set(plan, piece, 4, PLAN_MOVING);
	}
	assert_int_equal(fetched(8), PLAN_PIECES);
	plan_set(plan, 10, 4, PLAN_MOVING); /* chosen before, and begins now */
	assert_int_equal(fetched(8), PLAN_PIECES);
	plan_set(plan, 10, 4, PLAN_DEVICE);
	assert_int_equal(fetched(8), PLAN_PIECES); /* it is in, but not used yet */
	note(1);
	assert_int_equal(fetched(8), 30);
	/* What is fetched because it is needed at once is not ahead. */
	note(2);
	note(3);
	plan_set(plan, 30, 4, PLAN_MOVING);
	assert_int_equal(fetched(4), 40);
}

/* Brought in, not used, and sent out again: so it goes where the past only seems to tell the future. */
TEST(looking_ahead_in_vain_ends)
{
	stepping(3, PLAN_HOST);
	int n = 0;

	for (; n < 100 && plan_fetch(plan, 40, &piece, &when); n++) {
		moves_to(PLAN_DEVICE);
		moves_to(PLAN_HOST);
	}
	assert_int_equal(n, 10);
	assert_true(plan_is_valid(plan));
	/* Again, but ever less often; and as before when what is brought in is used. */
	for (uint32_t i = 1; i <= 2 * N_STEP; i++)
		note((i - 1) % N_STEP + 1);
	assert_true(plan_fetch(plan, 40, &piece, &when));
	for (uint32_t i = 1; i <= 20 * N_STEP; i++) {
		uint32_t next = (i - 1) % N_STEP + 1;

		if (plan_fetch(plan, 40, &piece, &when)) {
			moves_to(PLAN_DEVICE);
		}
		note(next);
		plan_set(plan, 10 * next, 4, PLAN_MOVING);
		plan_set(plan, 10 * next, 4, PLAN_HOST);
	}
	for (n = 0; n < 100 && plan_fetch(plan, 40, &piece, &when); n++)
		plan_set(plan, piece, 4, PLAN_MOVING);
	assert_true(n >= 9);
}

TEST(the_victim_is_used_farthest_from_now)
{
	stepping(3, PLAN_DEVICE);

	plan_set(plan, 7, 4, PLAN_DEVICE); /* not seen before: the first to go */
	assert_int_equal(victim(0), 7);
	plan_set(plan, 7, 4, PLAN_MOVING);
	/* 400 is the farthest, but was named just now. */
	for (uint32_t expected = 390; expected > 100; expected -= 10) {
		assert_int_equal(victim_for(5, 0), PLAN_FOUND);
		assert_int_equal(piece, expected);
		moves_to(PLAN_HOST);
	}
	/* The tenth from now is too near to leave for the fifth. */
	assert_int_equal(victim_for(5, 0), PLAN_BUSY);
	plan_set(plan, 400, 4, PLAN_PINNED);
	assert_int_equal(victim_for(5, 0), PLAN_NONE);
	assert_int_equal(victim_for(4, 0), PLAN_FOUND);
}

TEST(busy_pieces_stay_and_come_back)
{
	stepping(3, PLAN_DEVICE);
	uint32_t busy = 390;

	assert_int_equal(plan_victim(plan, plan_now(plan), 0, all_busy, NULL, &piece), PLAN_BUSY);
	assert_int_equal(plan_victim(plan, plan_now(plan), 0, one_busy, &busy, &piece), PLAN_FOUND);
	assert_int_equal(piece, 380);
	assert_int_equal(victim(0), 390);
}

static bool busy_from(void *argument, uint32_t of)
{
	return of >= *(uint32_t *)argument;
}

TEST(a_busy_piece_that_is_used_twice_as_far_from_now_is_worth_waiting_for)
{
	for (uint32_t busy = 190; busy <= 210; busy += 10) {
		stepping(3, PLAN_DEVICE);

		assert_int_equal(plan_victim(plan, plan_now(plan), 0, busy_from, &busy, &piece), PLAN_FOUND);
		assert_int_equal(piece, busy - 10);
		/* 390 is the last but one; 400 was named just now, and cannot leave for that. */
		assert_int_equal(plan_better_is_busy(plan, piece, plan_now(plan)), 2 * (busy - 10) <= 390);
	}
}

TEST(a_piece_of_the_wanted_size_is_preferred)
{
	stepping(3, PLAN_DEVICE);

	plan_set(plan, 370, 8, PLAN_DEVICE);
	plan_set(plan, 100, 16, PLAN_DEVICE);
	assert_int_equal(victim(8), 370);
	assert_int_equal(victim(16), 390); /* the other one is used far sooner */
}

/* Of many that are as good as each other one of the wanted size goes; not in gaps when it is far from the best. */
TEST(a_dead_piece_is_preferred_unless_it_is_needed_much_sooner)
{
	stepping(3, PLAN_DEVICE);

	plan_set_dead(plan, 250, PLAN_DEAD);
	assert_int_equal(victim(0), 250);
	plan_set_dead(plan, 150, PLAN_DEAD);
	plan_set_dead(plan, 250, 0);
	assert_int_equal(victim(0), 10 * (N_STEP - 1));
	/* Of two, the farther; but the one of the wanted size, whose memory can be used as it is. */
	plan_set_dead(plan, 250, PLAN_DEAD);
	plan_set_dead(plan, 300, PLAN_DEAD);
	assert_int_equal(victim(0), 300);
	plan_set(plan, 250, 8, PLAN_DEVICE);
	assert_int_equal(victim(8), 250);
	/* What takes its place later is alive. */
	plan_set(plan, 250, 0, PLAN_GONE);
	plan_set(plan, 300, 0, PLAN_GONE);
	plan_set(plan, 250, 8, PLAN_DEVICE);
	assert_int_not_equal(victim(8), 250);
}

TEST(without_a_future_a_dead_piece_is_preferred_unless_it_was_used_much_later)
{
	begin(PLAN_BESIDE_KERNELS);

	for (uint32_t i = 1; i <= 100; i++) {
		plan_set(plan, i, 4, PLAN_DEVICE);
		plan_note(plan, i, &i, 1);
	}
	assert_false(plan_knows(plan));
	plan_set_dead(plan, 70, PLAN_DEAD);
	assert_int_equal(victim(0), 1);
	plan_set_dead(plan, 40, PLAN_DEAD);
	assert_int_equal(victim(0), 40);
}

/* A step of 200 submissions, each of another piece. */
TEST(a_dead_piece_is_fetched_shortly_before_its_use)
{
	begin(PLAN_BESIDE_KERNELS);

	for (uint32_t i = 1; i <= 200; i++)
		plan_set(plan, i, 1, i == 100 || i == 150 ? PLAN_HOST : PLAN_DEVICE);
	for (unsigned n = 0; n < 3 * 200; n++)
		plan_note(plan, n % 200 + 1, (uint32_t[]){n % 200 + 1}, 1);
	plan_set_dead(plan, 100, PLAN_DEAD);
	assert_int_equal(fetched(8), 150);
	plan_set(plan, piece, 1, PLAN_MOVING);
	assert_int_equal(fetched(8), PLAN_PIECES);
	for (uint32_t i = 1; i <= 67; i++) {
		plan_note(plan, i, (uint32_t[]){i}, 1);
		plan_set_way(plan, PLAN_IN_GAPS); /* gaps are few, so one fetches more */
		assert_int_equal(plan_fetch(plan, 8, &piece, &when), i >= 36);
		plan_set_way(plan, PLAN_BESIDE_KERNELS);
		assert_int_equal(fetched(8), PLAN_PIECES);
	}
	plan_note(plan, 68, (uint32_t[]){68}, 1);
	assert_int_equal(fetched(8), 100);
	assert_int_equal(when, plan_now(plan) + 32);
	/* One that is born is fetched as others are. */
	plan_set(plan, 190, 1, PLAN_HOST);
	plan_set_dead(plan, 190, PLAN_DEAD);
	plan_set(plan, 100, 1, PLAN_DEVICE);
	assert_int_equal(fetched(8), PLAN_PIECES);
	plan_set_dead(plan, 190, 0);
	assert_int_equal(fetched(8), 190);
}

TEST(in_gaps_the_size_counts_for_less)
{
	for (enum plan_way way = PLAN_BESIDE_KERNELS; way <= PLAN_IN_GAPS; way++) {
		begin(way);

		for (uint32_t i = 1; i <= 20; i++) {
			plan_set(plan, 10 * i, i == 20 ? 8 : 4, PLAN_DEVICE);
			plan_note(plan, 1000 + i, (uint32_t[]){10 * i}, 1);
		}
		plan_note(plan, 1, NULL, 0);
		assert_int_equal(victim(4), 10);
		assert_int_equal(victim(8), way == PLAN_IN_GAPS ? 10 : 200);
	}
}

/* One of the wanted size that is needed in five eighths of the time in which the best is: to peers alone. */
TEST(to_peers_the_size_counts_for_more)
{
	for (enum plan_way way = PLAN_BESIDE_KERNELS; way <= PLAN_TO_PEERS; way++) {
		stepping_by(way, 3, PLAN_DEVICE);

		plan_set(plan, 250, 8, PLAN_DEVICE);
		plan_set(plan, 100, 16, PLAN_DEVICE);
		assert_int_equal(victim(8), way == PLAN_TO_PEERS ? 250 : 390);
		assert_int_equal(victim(16), 390);
	}
}

/* What comes again after 80,000 submissions is known, and nothing is measured for as long as that. */
TEST(a_span_is_a_period_that_is_not_too_long)
{
	enum { LONG = 80000 };
	stepping(3, PLAN_DEVICE);

	assert_int_equal(plan_span(plan), plan_period(plan));
	begin(PLAN_BESIDE_KERNELS);
	assert_int_equal(plan_span(plan), 0);
	for (uint32_t i = 0; i < LONG + 2000; i++)
		plan_note(plan, i % LONG, (uint32_t[]){i % LONG}, 1);
	assert_int_equal(plan_period(plan), LONG);
	assert_int_equal(plan_span(plan), PLAN_SPAN_MOST);
}

TEST(without_a_future_the_longest_unused_goes)
{
	stepping(1, PLAN_DEVICE);

	assert_false(plan_knows(plan));
	assert_int_equal(plan_period(plan), 0);
	plan_set(plan, 20, 4, PLAN_HOST);
	assert_int_equal(fetched(100), PLAN_PIECES);
	plan_note(plan, 999, (uint32_t[]){10}, 1);
	for (uint32_t expected = 30; expected <= 400; expected += 10) {
		assert_int_equal(victim(0), expected);
		plan_set(plan, piece, 4, PLAN_MOVING);
	}
	/* 10, named last: not for what named it, and later for another. */
	assert_int_equal(victim_for(0, 0), PLAN_NONE);
	assert_int_equal(victim_for(5, 0), PLAN_BUSY);
}

/* A captured step, again and again: it runs with the rest on the host, at once. */
TEST(what_names_more_than_fits_does_not_wait_for_itself)
{
	begin(PLAN_BESIDE_KERNELS);
	uint32_t pieces[N_STEP], loss = 10 * N_STEP + 10;

	for (uint32_t i = 0; i < N_STEP; i++) {
		pieces[i] = 10 * i;
		plan_set(plan, pieces[i], 4, i % 4 ? PLAN_DEVICE : PLAN_HOST);
	}
	for (int step = 0; step < 12; step++) {
		plan_note(plan, 1, pieces, N_STEP);
		assert_int_equal(victim_for(0, 4), PLAN_NONE);
		plan_note(plan, 2, &loss, 1);
	}
}

/*
 * Sixteen runs of submissions, each always the same, in an order that is never the same: where the program stands lies
 * ever further back, and changes with each run. All that is foreseen from there cannot be walked over each time.
 */
TEST(a_long_past_is_no_reason_to_know_nothing)
{
	enum { RUNS = 16, SUBMISSIONS = 300, NAMES = 16, FIRST = 100, MORE = 100 };
	struct seed seed = seed_start("a_long_past_is_no_reason_to_know_nothing");
	begin(PLAN_BESIDE_KERNELS);
	unsigned known = 0;

	for (unsigned i = 0; i < FIRST + MORE; i++) {
		uint32_t run = (uint32_t)(seed_next(&seed) % RUNS);

		for (uint32_t k = 0; k < SUBMISSIONS; k++) {
			uint32_t names[NAMES];

			for (uint32_t n = 0; n < NAMES; n++)
				names[n] = (run * SUBMISSIONS + k) % 1000 * NAMES + n;
			plan_note(plan, 1 + run * SUBMISSIONS + k, names, NAMES);
			known += i >= FIRST && plan_knows(plan);
		}
	}
	assert_in_range(known, MORE * SUBMISSIONS * 9 / 10, MORE * SUBMISSIONS);
}

TEST(a_piece_that_is_gone_is_forgotten_until_it_comes_back)
{
	stepping(3, PLAN_HOST);

	plan_set(plan, 10, 4, PLAN_GONE);
	assert_int_equal(fetched(100), 20);
	plan_set(plan, 20, 4, PLAN_MOVING); /* freed on its way: ahead of nothing */
	plan_set(plan, 20, 4, PLAN_GONE);
	assert_int_equal(fetched(1), 30);
	plan_set(plan, 10, 2, PLAN_HOST); /* the caching allocator took it again, for the same purpose */
	assert_int_equal(fetched(100), 10);
	plan_set(plan, 10, 2, PLAN_DEVICE);
	plan_set(plan, 10, 2, PLAN_GONE);
	assert_int_equal(victim_for(0, 0), PLAN_NONE);
}

TEST(without_memory_nothing_breaks)
{
	for (unsigned every = 1; every < 12; every++) {
		fail_every = every;
		begin(PLAN_BESIDE_KERNELS);

		for (uint32_t i = 0; plan && i < 30000; i++) {
			plan_set(plan, i * 7 % 20000, 4, i % 2 ? PLAN_HOST : PLAN_DEVICE);
			plan_note(plan, i % 500, (uint32_t[]){i % 500 * 3, i % 100}, 2);
			plan_fetch(plan, 100, &piece, &when);
			victim_for(0, 0);
		}
		free_plan(NULL);
	}
	fail_every = 0;
}
