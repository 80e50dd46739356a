// SPDX-License-Identifier: Apache-2.0
/*
 * plan_horizon_test.c: a walk of the plan foresees where tensors will lie for some hundred submissions. What the plan
 * foretells near its end, for pieces that are freed meanwhile, and what a walk costs. The program has layers of which
 * each takes tensors of its step's length, and names many weights, so that walks are short.
 */
#include "test/test.h"
#include "test/unit/even_pieces.h"
#include "test/unit/plan_check.h"

#define POOL    512u  /* units: the allocator's block */
#define WEIGHTS 1024u /* units: where the weights begin, each a piece */
#define LAYERS  300u
#define KINDS   20u /* of layers: those of one kind name the same weights */
#define NAMES   1100u
#define AHEAD   16u

static struct plan *plan;
static struct best_fit fit;
static struct live_range tensor[2 * KINDS + 2];
static unsigned n_weights; /* that each launch names */
static bool reported;      /* weights are tensors of the allocator */
static unsigned n_steps;
/* Launches of which the place was known; those of them after which nothing was foretold from AHEAD submissions on. */
static unsigned n_launches, n_blind;
static unsigned n_trusted; /* launches that went by a walk */
static unsigned longest;   /* launches without a walk, or a try to make one */
static uint32_t also;      /* a piece that each launch names, too; 0: none */
static int64_t least_credit;

static void end(struct live_range *one)
{
	if (one->end) {
		plan_death(plan, one->begin, one->end);
		best_fit_give(&fit, one->begin, one->end, 0);
	}
	one->end = 0;
}

static void begin(struct live_range *one, uint64_t bytes)
{
	struct best_fit_range range;

	end(one);
	assert_true(best_fit_take(&fit, bytes, &range));
	*one = (struct live_range){range.begin, range.end};
	plan_birth(plan, one->begin, one->end);
}

static bool is_blind(void)
{
	for (uint64_t at = plan->at + AHEAD; at <= plan->at + 64 && at <= plan_now(plan); at++)
		if (pieces_due(&plan->pieces, at) != PIECES_NONE)
			return false;
	return true;
}

static void launch(uint64_t function, unsigned kind)
{
	const struct live_range *named[] = {&tensor[kind], &tensor[KINDS + kind], &tensor[2 * KINDS],
					    &tensor[2 * KINDS + 1]};
	static uint64_t begins[NAMES];
	static uint32_t pieces[NAMES + POOL];
	bool listed[POOL] = {false};
	unsigned n = 0, n_pieces = 0;

	for (unsigned i = 0; i < 4; i++) {
		if (!named[i]->end)
			continue;
		begins[n++] = named[i]->begin;
		for (uint64_t unit = named[i]->begin / PLAN_UNIT / PIECE * PIECE; unit * PLAN_UNIT < named[i]->end;
		     unit += PIECE) {
			if (!listed[unit])
				pieces[n_pieces++] = (uint32_t)unit;
			listed[unit] = true;
		}
	}
	for (unsigned i = 0; i < n_weights; i++) {
		pieces[n_pieces] = WEIGHTS + PIECE * (kind * n_weights + i);
		if (reported)
			begins[n++] = pieces[n_pieces] * PLAN_UNIT;
		n_pieces++;
	}
	if (also)
		pieces[n_pieces++] = also;
	plan_name(plan, begins, n);
	plan_note(plan, function, pieces, n_pieces);
	n_launches += plan_knows(plan);
	n_trusted += plan->tensors.trusted_walk;
	if (plan_now(plan) - plan->tensors.walked > longest)
		longest = (unsigned)(plan_now(plan) - plan->tensors.walked);
	n_blind += plan_knows(plan) && is_blind();
	if (plan->tensors.credit < least_credit)
		least_credit = plan->tensors.credit;
}

/* Half of a layer: three launches, before which tensors are born or die. */
static void half_layer(bool back, unsigned kind, uint64_t bytes)
{
	for (unsigned i = 0; i < 3; i++) {
		if (!back)
			begin(i == 0   ? &tensor[kind]
			      : i == 1 ? &tensor[KINDS + kind]
				       : &tensor[2 * KINDS],
			      i == 1 ? 2 * bytes : bytes);
		else if (i == 0)
			begin(&tensor[2 * KINDS + 1], 2 * bytes);
		else
			end(i == 1 ? &tensor[kind] : &tensor[KINDS + kind]);
		launch(back * 3 + i, kind);
	}
}

/* Calls each(number) after each half of a layer, if it is not NULL. */
static void steps(unsigned n, void (*each)(unsigned number))
{
	static const uint8_t lengths[] = {3, 7, 1, 0, 5, 8, 4, 7, 2, 6, 0, 8, 3, 1, 5, 4, 6, 2, 7};

	for (; n; n--) {
		uint64_t bytes = (UINT64_C(20) + lengths[n_steps++ % sizeof(lengths)]) << 17;

		for (unsigned i = 0; i < 2 * LAYERS; i++) {
			half_layer(i >= LAYERS, (i < LAYERS ? i : 2 * LAYERS - 1 - i) % KINDS, bytes);
			if (each)
				each(i);
		}
	}
}

static void begin_with(unsigned weights, bool of_allocator)
{
	n_steps = 0;
	n_weights = weights;
	reported = of_allocator;
	memset(tensor, 0, sizeof(tensor));
	also = 0;
	least_credit = 0;
	plan = plan_new(PLAN_BESIDE_KERNELS);
	plan_set_pieces(plan, even_piece_at, NULL);
	plan_report(plan, 0, POOL * PLAN_UNIT);
	best_fit_give(&fit, 0, POOL * PLAN_UNIT, 0);
	for (uint32_t unit = 0; unit < POOL; unit += PIECE)
		plan_set(plan, unit, PIECE, PLAN_DEVICE);
	for (uint32_t i = 0; i < KINDS * weights; i++) {
		uint32_t unit = WEIGHTS + PIECE * i;

		plan_set(plan, unit, PIECE, PLAN_HOST);
		if (!reported)
			continue;
		plan_report(plan, unit * PLAN_UNIT, (unit + PIECE) * PLAN_UNIT);
		plan_birth(plan, unit * PLAN_UNIT, (unit + PIECE) * PLAN_UNIT);
	}
}

FIXTURE(finish)
{
	plan_free(plan);
	best_fit_fini(&fit);
	fit = (struct best_fit){0};
}

EACH_TEST(NULL, finish)

TEST(walks_that_are_short_leave_nothing_unforetold)
{
	static const unsigned weights[] = {100, 200, 300};

	for (unsigned i = 0; i < 3; i++) {
		if (i)
			finish(state);
		begin_with(weights[i], true);
		steps(12, NULL);
		n_launches = n_blind = n_trusted = 0;
		steps(8, NULL);
		print_message("%u weights: of %u launches %u were followed by nothing foretold; %u went by a walk\n",
			      weights[i], n_launches, n_blind, n_trusted);
		assert_true(plan_is_valid(plan));
		assert_true(100 * n_blind < n_launches);
		assert_true(20 * n_trusted > n_launches);
	}
}

/* In the middle of a step, with a walk that goes on, another allocator takes a part of the block. */
static unsigned n_looked, n_far;

static void reuse(unsigned number)
{
	uint64_t next;

	if (!also && number > 20 && plan->tensors.trusted_walk) {
		also = POOL - PIECE;
		plan_forget(plan, also * PLAN_UNIT, POOL * PLAN_UNIT);
		plan_set(plan, also, PIECE, PLAN_GONE);
		plan_set(plan, also, PIECE, PLAN_DEVICE);
	} else if (also && n_looked < 30) {
		next = plan_next_use(plan, also);
		n_looked++;
		n_far += next > plan_now(plan) + 100 && next != PLAN_NEVER;
	}
}

TEST(a_piece_that_is_used_again_is_another_one)
{
	n_looked = n_far = 0;
	begin_with(20, true);
	steps(12, NULL);
	steps(8, reuse);
	assert_true(plan_is_valid(plan));
	assert_int_equal(n_looked, 30);
	/* Each launch names it. */
	assert_in_range(n_far, 0, 2);
}

/* Of so many weights none comes far enough. */
TEST(a_walk_that_cannot_be_made_is_tried_again)
{
	begin_with(450, true);
	steps(4, NULL);
	longest = 0;
	steps(12, NULL);
	print_message("%u launches without a try\n", longest);
	assert_in_range(longest, 100, 5000);
}

TEST(a_walk_costs_no_more_than_its_limit)
{
	begin_with(1000, false);
	steps(6, NULL);
	/* The most that is saved up, and the two walks: the one over tensors, and the one over slots. */
	assert_true(least_credit > -(131072 + 131072 / 4));
}
