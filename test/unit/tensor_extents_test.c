// SPDX-License-Identifier: Apache-2.0
/*
 * tensor_extents_test.c: guessed ends of tensors, by example and against a plain list of starts.
 */
#include "shim/plan/plan.h"
#include "shim/plan/tensors.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define UNIT (2 * MIB)

TEST(an_end_is_the_next_start)
{
	struct tensor_extents *extents = tensor_extents_new();

	assert_int_equal(tensor_extents_end(extents, 100, 0), 1); /* never heard of it */
	tensor_extents_note(extents, 100, 64 * MIB, 0);
	assert_int_equal(tensor_extents_end(extents, 100, 0), 64 * MIB);
	tensor_extents_note(extents, 100, 64 * MIB, 40 * MIB + 512);
	assert_int_equal(tensor_extents_end(extents, 100, 0), 40 * MIB + 512);
	assert_int_equal(tensor_extents_end(extents, 100, 10 * MIB), 40 * MIB + 512);
	assert_int_equal(tensor_extents_end(extents, 100, 40 * MIB + 512), 64 * MIB);
	tensor_extents_note(extents, 100, 64 * MIB, 20 * MIB);
	assert_int_equal(tensor_extents_end(extents, 100, 0), 20 * MIB);
	tensor_extents_note(extents, 100, 64 * MIB, 64 * MIB); /* one past the end is no start */
	assert_int_equal(tensor_extents_end(extents, 132, 0), 1);
	tensor_extents_free(extents);
	tensor_extents_free(NULL);
}

TEST(nothing_is_known_of_a_block_beyond_the_last_piece)
{
	struct tensor_extents *extents = tensor_extents_new();

	for (uint32_t block = PLAN_PIECES - 1; block < UINT32_MAX - PLAN_PIECES; block += PLAN_PIECES) {
		tensor_extents_note(extents, block, 64 * MIB, 0);
		assert_int_equal(tensor_extents_end(extents, block, 5), 6);
		tensor_extents_forget(extents, block);
	}
	tensor_extents_free(extents);
}

TEST(a_view_does_not_end_its_tensor)
{
	struct tensor_extents *extents = tensor_extents_new();

	tensor_extents_note(extents, 7, 64 * MIB, 0);
	tensor_extents_note(extents, 7, 64 * MIB, 0xc00);
	tensor_extents_note(extents, 7, 64 * MIB, 0x1800);
	assert_int_equal(tensor_extents_end(extents, 7, 0), 64 * MIB);
	assert_int_equal(tensor_extents_end(extents, 7, 0x1800), 64 * MIB);
	tensor_extents_note(extents, 7, 64 * MIB, TENSOR_EXTENTS_VIEW);
	assert_int_equal(tensor_extents_end(extents, 7, 0), TENSOR_EXTENTS_VIEW);
	tensor_extents_free(extents);
}

static void new_age(struct tensor_extents *extents)
{
	for (int i = 0; i < TENSOR_EXTENTS_AGE; i++)
		tensor_extents_submitted(extents, 1);
}

TEST(starts_grow_old)
{
	struct tensor_extents *extents = tensor_extents_new();

	tensor_extents_note(extents, 0, 64 * MIB, 0);
	tensor_extents_note(extents, 0, 64 * MIB, 20 * MIB);
	tensor_extents_note(extents, 0, 64 * MIB, 21 * MIB);
	tensor_extents_note(extents, 0, 64 * MIB, 40 * MIB);
	for (int age = 0; age < 5; age++) {
		new_age(extents);
		assert_int_equal(tensor_extents_end(extents, 0, 0), age ? 21 * MIB : 20 * MIB);
		tensor_extents_note(extents, 0, 64 * MIB, 21 * MIB); /* seen in every age */
		assert_int_equal(tensor_extents_end(extents, 0, 22 * MIB), age ? 64 * MIB : 40 * MIB);
	}
	new_age(extents);
	new_age(extents);
	assert_int_equal(tensor_extents_end(extents, 0, 0), 64 * MIB);
	tensor_extents_free(extents);
}

TEST(an_age_is_a_period_but_no_less_than_so_long)
{
	static const uint64_t periods[] = {0, 1, TENSOR_EXTENTS_AGE, TENSOR_EXTENTS_AGE + 1, 100 * TENSOR_EXTENTS_AGE};
	struct tensor_extents *extents = tensor_extents_new();

	for (unsigned i = 0; i < sizeof(periods) / sizeof(*periods); i++) {
		uint64_t age = !periods[i]                       ? TENSOR_EXTENTS_AGE_BLIND
			       : periods[i] < TENSOR_EXTENTS_AGE ? TENSOR_EXTENTS_AGE
								 : periods[i];

		tensor_extents_note(extents, 0, 64 * MIB, 20 * MIB);
		for (uint64_t k = 1; k < 2 * age; k++)
			tensor_extents_submitted(extents, periods[i]);
		assert_int_equal(tensor_extents_end(extents, 0, 0), 20 * MIB);
		tensor_extents_submitted(extents, periods[i]);
		assert_int_equal(tensor_extents_end(extents, 0, 0), 64 * MIB);
	}
	tensor_extents_free(extents);
}

TEST(blocks_up_to_a_share_of_the_budget_are_whole)
{
	assert_int_equal(tensor_extents_whole(0), 128 * MIB);
	assert_int_equal(tensor_extents_whole(1 * GIB), 128 * MIB);
	assert_int_equal(tensor_extents_whole(4 * GIB), 256 * MIB);
	assert_int_equal(tensor_extents_whole(100 * GIB), 512 * MIB);
}

TEST(a_new_block_knows_nothing_of_the_old)
{
	struct tensor_extents *extents = tensor_extents_new();

	tensor_extents_note(extents, 10, 64 * MIB, 20 * MIB);
	tensor_extents_note(extents, 42, 64 * MIB, 4 * MIB); /* right behind it */
	tensor_extents_forget(extents, 10);
	tensor_extents_note(extents, 10, 64 * MIB, 0);
	assert_int_equal(tensor_extents_end(extents, 10, 0), 64 * MIB);
	assert_int_equal(tensor_extents_end(extents, 42, 0), 4 * MIB);
	tensor_extents_forget(extents, 42);
	tensor_extents_forget(extents, 4711);
	tensor_extents_free(extents);
}

/* The plain way: all starts, and the ages in which they were seen last. Ends are compared by unit. */
#define BLOCK  3900u /* across the border of a leaf */
#define UNITS  40000u
#define STARTS 400

TEST(random_starts_as_a_list_has_them)
{
	struct seed seed = seed_start(__func__);
	struct tensor_extents *extents = tensor_extents_new();
	static uint64_t starts[STARTS], seen[STARTS];
	uint64_t age = 2, bytes = UNITS * UNIT;

	for (int i = 0; i < STARTS; i++)
		starts[i] = seed_below(&seed, bytes / 512) * 512;
	tensor_extents_note(extents, BLOCK, bytes, 0);
	for (int round = 0; round < 20000; round++) {
		int i = (int)seed_below(&seed, STARTS);

		if (seed_below(&seed, 300) == 0) {
			new_age(extents);
			age++;
		}
		tensor_extents_note(extents, BLOCK, bytes, starts[i]);
		seen[i] = age;
		uint64_t offset = seed_below(&seed, 4) ? starts[seed_below(&seed, STARTS)] : seed_below(&seed, bytes);
		uint64_t expected = bytes;
		for (int k = 0; k < STARTS; k++)
			if (seen[k] + 1 >= age && starts[k] >= offset + TENSOR_EXTENTS_VIEW && starts[k] < expected)
				expected = starts[k];
		uint64_t end = tensor_extents_end(extents, BLOCK, offset);
		assert_true(end > offset);
		assert_int_equal((end - 1) / UNIT, (expected - 1) / UNIT);
	}
	tensor_extents_free(extents);
}
