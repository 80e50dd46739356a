// SPDX-License-Identifier: Apache-2.0
/*
 * predict_test.c: programs made up of steps, and whether their place in the past is found. The linker sends calloc and
 * realloc through here (-Wl,--wrap), to let memory run out.
 */
#include "test/test.h"
#include "test/unit/failing_alloc.h"

#include "shim/plan/types.h"
#include "test/unit/seed.h"

#define LAYERS 12
#define LAYER  30 /* submissions of a layer */
#define ENDS   20 /* and at either end of the step */
#define STEP   (LAYERS * LAYER + 2 * ENDS)

static struct predict *predict;

FIXTURE(begin)
{
	predict = predict_new();
}

FIXTURE(end)
{
	predict_free(predict);
}

EACH_TEST(begin, end)

static void again(void)
{
	end(NULL);
	begin(NULL);
}

/*
 * One submission of a step that looks like a transformer's: the same functions in every layer, with the layer's own
 * pieces. shift: all pieces of activations are others (allocated anew).
 */
static void note(unsigned i, unsigned shift)
{
	uint32_t pieces[4];
	uint64_t function;

	if (i < ENDS || i >= STEP - ENDS) {
		function = 1000 + i;
		pieces[0] = 5000 + i % 7;
	} else {
		function = (i - ENDS) % LAYER;
		pieces[0] = 100 * ((i - ENDS) / LAYER) + (uint32_t)function / 4;
	}
	pieces[1] = 7000 + i % 11;
	pieces[2] = 8000 + i % 13;
	pieces[3] = 9000 + i % 5 + shift * 50;
	predict_note(predict, function, pieces, 4);
}

static void step(unsigned from, unsigned to, unsigned shift)
{
	for (unsigned i = from; i < to; i++)
		note(i, shift);
}

/* Does the place that was found name the same pieces as the latest submission? */
static bool foretold(void)
{
	uint64_t at = predict_at(predict), from, to, new_from, new_to;

	if (at == PREDICT_NONE)
		return false;
	predict_slots(predict, at, &from, &to);
	predict_slots(predict, predict_now(predict), &new_from, &new_to);
	if (to - from != new_to - new_from)
		return false;
	for (; from < to; from++, new_from++)
		if (predict_slot(predict, from)->piece != predict_slot(predict, new_from)->piece)
			return false;
	return true;
}

/* A step that was seen `back` submissions ago, as is known from its `few`th submission on. */
static void step_is_known(unsigned from, unsigned to, unsigned shift, unsigned back, unsigned few)
{
	for (unsigned i = from; i < to; i++) {
		note(i, shift);
		if (i >= from + few)
			assert_int_equal(predict_now(predict) - predict_at(predict), back);
	}
}

/* A step that was seen some time ago, maybe with a gap; all but a few of its submissions are foretold. */
static void step_is_foretold(unsigned few)
{
	unsigned misses = 0;

	for (unsigned i = 0; i < STEP; i++) {
		note(i, 0);
		misses += !foretold();
	}
	assert_true(misses <= few);
}

TEST(the_second_step_is_known_soon_after_it_began)
{
	step(0, STEP, 0);
	step_is_known(0, STEP, 0, STEP, 9); /* some of its beginning must have come again */
	step_is_known(0, STEP, 0, STEP, 0);
}

TEST(a_step_is_the_period_not_a_layer)
{
	unsigned right = 0;

	/* The same pieces in all layers: but for the ends, each layer is an exact repetition of the one before. */
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < STEP; i++) {
			bool end = i < ENDS || i >= STEP - ENDS;
			uint32_t piece = end ? i : 1000 + (i - ENDS) % LAYER;

			predict_note(predict, end ? 500 + i : (i - ENDS) % LAYER, &piece, 1);
			if (round && i > 8)
				right += predict_now(predict) - predict_at(predict) == STEP;
		}
	assert_true(right > 2 * STEP - 40);
}

TEST(other_pieces_in_the_second_step_do_not_matter)
{
	step(0, STEP, 0);
	step_is_known(0, STEP, 1, STEP, 32); /* a quarter of all pieces is new */
	step_is_known(0, STEP, 2, STEP, 0);
}

/*
 * Steps of another size each: other kernels for the products, one more before some of them, and scratch memory that is
 * the same in every layer. Only the weights say which layer it is.
 */
static unsigned sized_step(unsigned size, unsigned *right)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LAYERS * LAYER; i++) {
		uint32_t layer = i / LAYER, k = i % LAYER;
		uint32_t pieces[3] = {100 * layer + k / 4, 10000 + k % 11 + 100 * size, 20000 + k % 13 + 100 * size};
		uint64_t from, to, at;

		if (k % 10 == 3 && size % 2)
			predict_note(predict, 400, &pieces[2], 1);
		predict_note(predict, k % 5 == 3 ? k + 1000 * size : k, pieces, 3);
		n++;
		at = predict_at(predict);
		if (at == PREDICT_NONE)
			continue;
		predict_slots(predict, at, &from, &to);
		*right +=
		    predict_slot(predict, from)->piece == pieces[0] && predict_now(predict) - at > LAYER * LAYERS / 2;
	}
	return n;
}

TEST(steps_of_another_size_are_steps)
{
	unsigned n = 0, right = 0;

	sized_step(1, &right);
	sized_step(2, &right);
	right = 0;
	for (unsigned size = 3; size < 13; size++)
		n += sized_step(size, &right);
	printf("  %u of %u right\n", right, n);
	assert_true(right > n * 8 / 10);
}

TEST(a_skipped_part_is_passed_over)
{
	for (int i = 0; i < 3; i++)
		step(0, STEP, 0);
	/* A few submissions left out within a step, */
	step_is_known(0, 100, 0, STEP, 0);
	step_is_known(140, STEP, 0, STEP - 40, 2);
	/* and the end of one, which comes again in the next. */
	step(0, STEP, 0);
	step(0, STEP - 2 * LAYER, 0);
	for (int i = 0; i < 8; i++)
		step_is_foretold(12); /* when the odd ones are what follows in the past, it is noticed */
	step_is_foretold(0);
}

TEST(an_insert_is_waited_for)
{
	uint32_t piece = 77;

	for (int i = 0; i < 3; i++)
		step(0, STEP, 0);
	step_is_known(0, 100, 0, STEP, 0);
	for (unsigned i = 0; i < 5; i++) {
		uint64_t at = predict_at(predict);

		predict_note(predict, 4242 + i, &piece, 1);
		assert_int_equal(predict_at(predict), at);
	}
	step_is_known(100, STEP, 0, STEP + 5, 0);
}

static void validation(void)
{
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t pieces[2] = {100 * (i / 20), 6000 + i % 3};

		predict_note(predict, 300000 + i, pieces, 2);
	}
}

TEST(a_validation_pass_is_recognised_when_it_comes_again)
{
	uint64_t first = 0;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 4; i++)
			step(0, STEP, 0);
		uint64_t begin = predict_now(predict);
		validation();
		if (round)
			assert_int_equal(predict_now(predict) - predict_at(predict), begin - first);
		first = begin;
		step_is_foretold(12); /* and out of it again */
	}
}

/* Returns how often something is foretold of 20,000 submissions by chance, each of three pieces. */
static unsigned known_by_chance(struct seed *seed, unsigned functions, unsigned of)
{
	unsigned known = 0;

	again();
	for (unsigned i = 0; i < 20000; i++) {
		uint32_t pieces[3];

		for (int k = 0; k < 3; k++)
			pieces[k] = (uint32_t)seed_below(seed, of);
		predict_note(predict, seed_below(seed, functions), pieces, 3);
		known += predict_at(predict) != PREDICT_NONE;
	}
	printf("  %u functions, pieces of %u: %u\n", functions, of, known);
	return known;
}

TEST(a_program_without_repetition_is_not_foretold)
{
	struct seed seed = seed_start(__func__);
	unsigned known = 0;

	for (unsigned functions = 1; functions <= 100; functions *= 10)
		known += known_by_chance(&seed, functions, 4000);
	assert_true(known < 600);
}

/* Few pieces come again at any place by chance. */
TEST(few_pieces_in_any_order_are_not_foretold)
{
	struct seed seed = seed_start(__func__);

	for (unsigned of = 10; of <= 640; of *= 4)
		assert_true(known_by_chance(&seed, 10, of) < 2000);
}

TEST(pieces_in_another_order_are_the_same)
{
	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t i = 0; i < 100; i++) {
			uint32_t one[3] = {i, i + 1, i + 2}, two[3] = {i + 2, i, i + 1};

			predict_note(predict, i % 10, round ? two : one, 3);
		}
	assert_int_equal(predict_at(predict), 100);
}

/* What is remembered: against a plain record of everything. */
TEST(the_record_is_right_while_it_forgets)
{
	struct seed seed = seed_start(__func__);
	enum { N = 600000, PIECES = 3000 };
	uint32_t(*record)[4] = calloc(N + 1, sizeof(*record));
	uint64_t from, to;

	for (uint32_t i = 1; i <= N; i++) {
		for (int k = 0; k < 4; k++)
			record[i][k] = (uint32_t)seed_below(&seed, PIECES);
		predict_note(predict, i % 5000, record[i], 4);
	}
	for (int round = 0; round < 2000; round++) {
		uint64_t position = N - seed_below(&seed, PREDICT_MOST / 2);

		predict_slots(predict, position, &from, &to);
		assert_int_equal(to - from, 4);
		unsigned k = (unsigned)seed_below(&seed, 4);
		assert_int_equal(predict_slot(predict, from + k)->piece, record[position][k]);
		uint64_t slot, again = predict_again_after(predict, from + k, 0, &slot), expected = position;
		bool later = false; /* named again further on in the same submission */
		for (unsigned j = k + 1; j < 4; j++)
			later |= record[position][j] == record[position][k];
		for (bool found = later; !found && expected++ < N;)
			for (unsigned j = 0; j < 4; j++)
				found |= record[expected][j] == record[position][k];
		assert_true(again == (expected > N ? PREDICT_NONE : expected));
	}
	free(record);
}

TEST(what_was_done_200000_submissions_ago_is_known)
{
	struct seed seed = seed_start(__func__);
	enum { PART = 2000, OTHERS = 200000 };

	for (unsigned i = 0; i < PART + OTHERS + PART; i++) {
		unsigned at = i < PART ? i : i - OTHERS;
		bool other = i >= PART && i < PART + OTHERS;
		uint32_t pieces[2] = {at / 2, at / 2 + 1};

		if (other)
			pieces[0] = pieces[1] = (uint32_t)(5000 + seed_below(&seed, 3000));
		predict_note(predict, other ? 100 + seed_below(&seed, 50) : at % 50, pieces, 2);
	}
	assert_int_equal(predict_at(predict), PART);
}

TEST(huge_submissions_shorten_the_record)
{
	uint32_t *pieces = calloc(100000, sizeof(*pieces));
	uint64_t from, to;

	for (uint32_t i = 0; i < 100000; i++)
		pieces[i] = i;
	for (unsigned i = 0; i < 300; i++) {
		predict_note(predict, i % 10, pieces, 100000);
		predict_slots(predict, predict_now(predict), &from, &to);
		assert_int_equal(to - from, 16384);
		assert_int_equal(predict_slot(predict, to - 1)->piece, 16383);
	}
	assert_int_equal(predict_now(predict) - predict_at(predict), 10);
	free(pieces);
}

TEST(without_memory_it_only_knows_less)
{
	fail_every = 1;
	assert_null(predict_new());
	fail_every = 0;
	for (unsigned every = 2; every < 40; every++) {
		again();
		fail_every = every;
		for (int i = 0; i < 12; i++)
			step(0, STEP, 0);
		fail_every = 0;
		assert_int_equal(predict_now(predict), 12 * STEP);
		for (int i = 0; i < 2; i++)
			step(0, STEP, 0);
		step_is_known(0, STEP, 0, STEP, 0); /* it recovers */
	}
}
