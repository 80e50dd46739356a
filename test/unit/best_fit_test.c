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

/* random_sizes() has no size but multiples of NAIVE_GRAIN. */
TEST(a_rest_of_a_mebibyte_is_not_split_off)
{
	struct best_fit_range range;

	for (uint64_t less = 0; less <= 512; less += 512) {
		give(0, 10, 0);
		assert_true(best_fit_take(&fit, 9 * MIB - less, &range));
		assert_true(range.begin == 0 && range.end == (less ? 9 * MIB - less : 10 * MIB));
	}
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
