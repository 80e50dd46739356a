// SPDX-License-Identifier: Apache-2.0
/*
 * tensor_future_test.c: where tensors will be born, and which pieces will be used, against what a program with
 * sequences of any length then does.
 */
#include "shim/plan/tensor_future.h"
#include "test/test.h"
#include "test/unit/length_job.h"

#define PIECE 8u /* units */

static struct tensor_future *future;
static struct pieces pieces;
static struct length_job *job;
static uint64_t now;               /* the position of the latest submission */
static uint64_t n_births, n_right; /* since the latest walk */
/* Of each position since the latest walk: which pieces were named. */
static bool named[LENGTH_LAUNCHES + 1][NAIVE_GRAINS * NAIVE_GRAIN / PLAN_UNIT];
static uint64_t walked;
/* After this many launches more, a walk is to be made; 0: none is. */
static unsigned walk_after, walk_steps;

/* Pieces begin at multiples of PIECE units; all memory has some. */
static bool piece_at(void *argument, uint32_t unit, uint32_t *ret_piece, uint32_t *ret_past)
{
	assert_ptr_equal(argument, &pieces);
	*ret_piece = unit / PIECE * PIECE;
	*ret_past = *ret_piece + PIECE;
	return true;
}

static void hear_birth(uint64_t begin, uint64_t end)
{
	uint64_t before = future->n_wrong;

	tensor_future_birth(future, now, begin, end);
	n_births++;
	n_right += future->compared && future->n_wrong == before;
}

static void hear_death(uint64_t begin, uint64_t end)
{
	tensor_log_death(&future->log, now, begin, end);
}

/* Makes a walk from the position `steps` steps ago. */
static bool walk(unsigned steps)
{
	uint64_t at = now - steps * LENGTH_LAUNCHES, did;

	n_births = n_right = 0;
	walked = now;
	memset(named, 0, sizeof(named));
	enum tensor_future_result result = tensor_future_make(future, &pieces, at, now, UINT64_MAX, &did);
	return result == TENSOR_FUTURE_MADE;
}

static void hear_launch(uint64_t function, const struct length_tensor *tensors, unsigned n)
{
	uint64_t begins[LENGTH_NAMES] = {0};

	for (unsigned i = 0; i < n; i++)
		begins[i] = tensors[i].begin;
	tensor_log_name(&future->log, ++now, begins, n);
	for (unsigned i = 0; i < n && now - walked <= LENGTH_LAUNCHES; i++)
		for (uint64_t at = begins[i] / PLAN_UNIT / PIECE * PIECE; at * PLAN_UNIT < begins[i] + tensors[i].bytes;
		     at += PIECE)
			named[now - walked][at] = true;
	if (walk_after && !--walk_after)
		assert_true(walk(walk_steps));
}

static void begin_with(const uint64_t *blocks, unsigned n)
{
	uint64_t at = 0;

	for (unsigned i = 0; i < n; at += blocks[i++])
		tensor_future_report(future, at, at + blocks[i]);
	length_begin(job, (struct length_calls){hear_birth, hear_death, hear_launch}, blocks, n);
}

static const uint64_t sizes[] = {300 * MIB, 120 * MIB, 60 * MIB, 400 * MIB, 90 * MIB, 200 * MIB, 256 * MIB, 300 * MIB};

BEFORE_EACH
{
	future = calloc(1, sizeof(*future));
	job = calloc(1, sizeof(*job));
	assert_true(pieces_init(&pieces));
	for (uint32_t unit = 0; unit < NAIVE_GRAINS * NAIVE_GRAIN / PLAN_UNIT; unit += PIECE)
		pieces_make(&pieces, unit)->units = PIECE;
	future->piece_at = piece_at;
	future->argument = &pieces;
	now = n_births = n_right = walked = walk_after = 0;
	begin_with(sizes, sizeof(sizes) / sizeof(*sizes));
}

AFTER_EACH
{
	tensor_future_fini(future);
	free(future);
	free(job);
	pieces_fini(&pieces);
}

/* Checks that the uses that the walk foresaw are those that came. */
static void check_uses(unsigned steps)
{
	uint64_t from = walked - steps * LENGTH_LAUNCHES;

	for (uint32_t unit = 0; unit < NAIVE_GRAINS * NAIVE_GRAIN / PLAN_UNIT; unit += PIECE) {
		const struct piece *piece = pieces_find(&pieces, unit);
		uint32_t use = tensor_future_has(future, piece) ? piece->walk_first : TENSOR_USE_NONE;
		uint64_t at = from;

		for (uint64_t i = 1; i <= now - walked; i++) {
			if (!named[i][unit])
				continue;
			at = tensor_future_use_after(future, use, at, &use);
			assert_int_equal(at, from + i);
		}
		/* A walk sees farther than to the end of the step. */
		assert_true(tensor_future_use_after(future, use, at, &use) > from + now - walked);
	}
}

/* ---- what is foreseen ---- */

/* Runs steps, with a walk before each: what the allocator was asked for shows where it corresponds to something. */
static void steps(const unsigned *lengths, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		walk(1);
		length_step(job, lengths[i]);
	}
}

/* Runs a step that is like the one so many steps ago, with a walk when half of its forward pass has been made. */
static void half_known_step(unsigned length, unsigned steps_ago)
{
	walk_after = LENGTH_LAYERS;
	walk_steps = steps_ago;
	length_step(job, length);
	assert_int_equal(n_births, 3 * LENGTH_LAYERS + 1);
}

TEST(a_step_of_the_same_length_lies_elsewhere)
{
	/* The last has the length of the third; but what the step before has put out is larger. */
	steps((unsigned[]){8, 4, 7, 5, 6}, 5);
	half_known_step(7, 3);
	assert_int_equal(future->match.now, future->match.then);
	assert_int_equal(n_right, n_births);
	check_uses(3);
}

TEST(what_lies_where_it_lay_needs_no_walk)
{
	unsigned period = 1;

	for (unsigned i = 0; i < 40; i++)
		length_step(job, 5);
	/* Each step puts out into other memory than the one before, until that is where it was once. */
	while (walk(period))
		assert_true(++period < 20);
	assert_true(future->compared && !future->until);
	length_step(job, 5);
	assert_int_equal(n_right, n_births);
}

TEST(a_length_that_never_was)
{
	steps((unsigned[]){8, 5, 7, 8}, 4);
	half_known_step(6, 2);
	/* The births so far show the ratio, and those of the steps before which sizes do not depend on the length. */
	assert_int_equal(future->match.now * 7, future->match.then * 6);
	assert_int_equal(n_right, n_births);
	check_uses(2);
}

TEST(a_block_may_be_named_as_a_whole)
{
	steps((unsigned[]){8, 4, 8}, 3);
	future->whole_units = 60 * MIB / PLAN_UNIT;
	length_step(job, 5);
	assert_true(walk(3));
	/* The third block, of 60 MiB, has pieces at units 208 and 224, and parts of those before and after. */
	assert_int_equal(sizes[2], 60 * MIB);
	uint32_t first = pieces_find(&pieces, 216)->walk_first;
	assert_int_not_equal(first, TENSOR_USE_NONE);
	for (uint32_t use = first; use != TENSOR_USE_NONE; use = future->uses[use].next) {
		uint32_t other = pieces_find(&pieces, 224)->walk_first;

		while (other != TENSOR_USE_NONE && future->uses[other].position < future->uses[use].position)
			other = future->uses[other].next;
		assert_true(other != TENSOR_USE_NONE && future->uses[other].position == future->uses[use].position);
	}
}

/* ---- blocks ---- */

TEST(blocks_in_which_a_tensor_lies_are_one)
{
	uint32_t n = future->n_blocks;
	uint64_t at = 1800 * MIB;

	tensor_future_report(future, at, at + 20 * MIB);
	tensor_future_report(future, at + 20 * MIB, at + 40 * MIB);
	tensor_future_report(future, at + 40 * MIB, at + 60 * MIB);
	assert_int_equal(future->n_blocks, n + 3);
	tensor_future_birth(future, now, at + 15 * MIB, at + 25 * MIB);
	assert_int_equal(future->n_blocks, n + 2);
	/* A tensor that reaches beyond them is not the allocator's. */
	uint64_t events = future->log.n_events;
	tensor_future_birth(future, now, at + 50 * MIB, at + 70 * MIB);
	assert_int_equal(future->log.n_events, events);
	/* Reported again, it keeps what it has. */
	tensor_future_report(future, at, at + 20 * MIB);
	assert_non_null(tensor_log_at(&future->log, at + 15 * MIB));
	assert_int_equal(future->n_blocks, n + 2);
	/* The middle is gone. */
	tensor_future_forget(future, at + 10 * MIB, at + 20 * MIB);
	assert_int_equal(future->n_blocks, n + 3);
	assert_null(tensor_log_at(&future->log, at + 15 * MIB));
	tensor_future_forget(future, 0, UINT64_MAX);
	assert_int_equal(future->n_blocks, 0);
	assert_int_equal(future->log.n_alive, 0);
	assert_false(walk(0));
}

/* Without room for one more, nothing is known of any. */
TEST(too_many_blocks_are_none)
{
	uint64_t at = 2048 * MIB;

	while (future->n_blocks < 65536) {
		tensor_future_report(future, at, at + 6 * MIB);
		at += 8 * MIB;
	}
	tensor_future_birth(future, now, at - 8 * MIB, at - 4 * MIB);
	assert_non_null(tensor_log_at(&future->log, at - 8 * MIB));
	tensor_future_forget(future, at - 14 * MIB, at - 12 * MIB);
	assert_int_equal(future->n_blocks, 0);
	assert_int_equal(future->log.n_alive, 0);
	tensor_future_report(future, 0, 6 * MIB);
	assert_int_equal(future->n_blocks, 1);
}

/* ---- limits of a walk ---- */

TEST(a_walk_ends_where_it_may_look_at_no_more)
{
	uint64_t at, all, did;

	steps((unsigned[]){8, 4, 7, 5, 6, 5}, 6);
	at = now - 4 * LENGTH_LAUNCHES;
	assert_int_equal(tensor_future_make(future, &pieces, at, now, UINT64_MAX, &all), TENSOR_FUTURE_MADE);
	assert_int_equal(future->until, now);
	assert_int_equal(tensor_future_make(future, &pieces, at, now, all * 3 / 4, &did), TENSOR_FUTURE_MADE);
	assert_true(future->until > at + 64 && future->until < now && did < all);
	assert_int_equal(tensor_future_make(future, &pieces, at, now, 1, &did), TENSOR_FUTURE_FAILED);
	assert_true(!future->until && !future->compared && did < all / 2);
}

TEST(what_is_forgotten_is_not_foreseen)
{
	uint64_t at, did;

	steps((unsigned[]){8, 4, 7, 5}, 4);
	at = now - 3 * LENGTH_LAUNCHES;
	for (uint64_t i = 0; i < TENSOR_LOG_EVENTS / 2; i++) {
		tensor_future_birth(future, now, 0, 2 * MIB);
		tensor_log_death(&future->log, now, 0, 2 * MIB);
	}
	assert_int_equal(tensor_future_make(future, &pieces, at, now, UINT64_MAX, &did), TENSOR_FUTURE_FAILED);
}

/* ---- an allocator with another rule ---- */

static struct seed seed;

TEST(another_rule_shows)
{
	static const unsigned lengths[] = {5, 8, 6, 7, 4, 8, 5};

	seed = seed_start("tensor_future");
	steps(lengths, 7);
	for (unsigned i = 0; i < 7; i++)
		half_known_step(lengths[i], 1);
	assert_true(future->score > TENSOR_FUTURE_SCORE / 2);
	job->anywhere = &seed;
	for (unsigned i = 0; i < 7; i++)
		half_known_step(lengths[i], 1);
	assert_true(future->score < TENSOR_FUTURE_SCORE / 4);
}
