// SPDX-License-Identifier: Apache-2.0
/*
 * best_fit_test.c: which free range an allocator like PyTorch's gives out next, also against a table of all memory.
 */
#include "shim/plan/tensors.h"
#include "test/test.h"
#include "test/unit/naive_fit.h"
#include "test/unit/seed.h"

static struct best_fit fit;

AFTER_EACH
{
	best_fit_fini(&fit);
}

static void give(uint64_t begin, uint64_t end, uint32_t block)
{
	assert_true(best_fit_give(&fit, begin * MIB, end * MIB, block));
}

static void takes(uint64_t mib, uint64_t begin, uint64_t end)
{
	struct best_fit_range range;

	assert_true(best_fit_take(&fit, mib * MIB, &range));
	assert_int_equal(range.begin, begin * MIB);
	assert_int_equal(range.end, end * MIB);
}

TEST(the_smallest_that_suffices_and_the_lowest_of_equals)
{
	struct best_fit_range range;

	give(300, 340, 3);
	give(100, 110, 1);
	give(200, 210, 2);
	give(0, 100, 0);
	takes(8, 100, 108);
	takes(10, 200, 210);
	takes(11, 300, 311);
	assert_false(best_fit_take(&fit, 101 * MIB, &range));
	takes(100, 0, 100);
}

TEST(a_rest_of_a_mebibyte_is_not_split_off)
{
	struct best_fit_range range;

	give(0, 10, 0);
	takes(9, 0, 10);
	give(0, 10, 0);
	assert_true(best_fit_take(&fit, 9 * MIB - 512, &range));
	assert_int_equal(range.end, 9 * MIB - 512);
}

TEST(neighbours_of_one_block_are_joined)
{
	give(0, 10, 0);
	give(20, 30, 0);
	give(10, 20, 0);
	assert_int_equal(fit.n, 1);
	give(30, 40, 1);
	assert_int_equal(fit.n, 2);
	give(50, 60, 1);
	give(48, 50, 1);
	give(40, 42, 1);
	assert_int_equal(fit.n, 3);
	takes(30, 0, 30);
	fit.n = 0;
	assert_int_equal(fit.n, 0);
}

TEST(there_is_a_limit)
{
	for (uint64_t i = 0; i < BEST_FIT_MOST; i++)
		give(10 * i, 10 * i + 5, 0);
	assert_false(best_fit_give(&fit, 10 * BEST_FIT_MOST * MIB, (10 * BEST_FIT_MOST + 5) * MIB, 0));
	/* What joins needs no room. */
	give(5, 10, 0);
	assert_int_equal(fit.n, BEST_FIT_MOST - 1);
}

/* ---- against a table of all memory ---- */

static struct naive_fit naive;

struct held {
	uint64_t begin, bytes;
};

static void check_ranges(void)
{
	uint32_t n = 0;

	for (uint32_t at = 0; at < NAIVE_GRAINS; at++) {
		uint32_t run = naive_run(&naive, at);

		if (!run)
			continue;
		assert_true(n < fit.n);
		assert_int_equal(fit.range[n].begin, at * NAIVE_GRAIN);
		assert_int_equal(fit.range[n].end, (at + run) * NAIVE_GRAIN);
		n++;
	}
	assert_int_equal(n, fit.n);
}

TEST(random_sizes)
{
	struct seed seed = seed_start("best_fit");
	struct held held[512];
	unsigned n = 0;

	memset(&naive, 0, sizeof(naive));
	for (uint64_t at = 0; at < 2000; at += 100)
		if (at % 300) {
			naive_block(&naive, at * MIB, (at + 100) * MIB);
			give(at, at + 100, naive.n_blocks);
		}
	for (unsigned i = 0; i < 20000; i++) {
		struct best_fit_range range = {0};

		if (n == 512 || (n && seed_below(&seed, 2))) {
			struct held *one = &held[seed_below(&seed, n)];

			naive_give(&naive, one->begin, one->bytes);
			assert_true(best_fit_give(&fit, one->begin, one->begin + one->bytes,
						  naive.block[one->begin / NAIVE_GRAIN]));
			*one = held[--n];
		} else {
			uint64_t bytes = seed_size(&seed, 400) * NAIVE_GRAIN;
			bool fits = naive_take(&naive, bytes, &held[n].begin, &held[n].bytes);

			assert_true(best_fit_take(&fit, bytes, &range) == fits);
			if (!fits)
				continue;
			assert_int_equal(range.begin, held[n].begin);
			assert_int_equal(range.end - range.begin, held[n].bytes);
			n++;
		}
		if (i % 64 == 0)
			check_ranges();
	}
}
