// SPDX-License-Identifier: Apache-2.0
/* gpu_share_of(): shares of what the processes on one GPU may have together. */
#include "shim/plan/gpu_turn.h"
#include "test/check.h"
#include "test/test.h"
#include "test/unit/seed.h"

TEST(who_needs_little_gets_it_and_the_others_divide_the_rest)
{
	const struct gpu_turn_member members[] = {{.needs = 14 * GIB}, {.needs = 4 * GIB}, {.needs = 30 * GIB}};

	assert_int_equal(gpu_share_of(16 * GIB, members, 3, 0), 6 * GIB);
	assert_int_equal(gpu_share_of(16 * GIB, members, 3, 1), 4 * GIB);
	assert_int_equal(gpu_share_of(16 * GIB, members, 3, 2), 6 * GIB);
}

TEST(what_nobody_needs_is_divided_equally)
{
	const struct gpu_turn_member members[] = {{.needs = 2 * GIB}, {.needs = 4 * GIB}}, alone = {.needs = GIB};

	assert_int_equal(gpu_share_of(16 * GIB, members, 2, 0), 7 * GIB);
	assert_int_equal(gpu_share_of(16 * GIB, members, 2, 1), 9 * GIB);
	assert_int_equal(gpu_share_of(16 * GIB, &alone, 1, 0), 16 * GIB);
}

TEST(what_cannot_leave_counts_first)
{
	const struct gpu_turn_member members[] = {{.needs = 14 * GIB, .stuck = 10 * GIB}, {.needs = 14 * GIB}};

	assert_int_equal(gpu_share_of(16 * GIB, members, 2, 0), 10 * GIB);
	assert_int_equal(gpu_share_of(16 * GIB, members, 2, 1), 6 * GIB);
}

TEST(a_newcomer_has_something_to_begin_with)
{
	const struct gpu_turn_member members[] = {{.needs = 100 * GIB}, {.needs = 0}};

	assert_int_equal(gpu_share_of(16 * GIB, members, 2, 1), GIB);
	assert_int_equal(gpu_share_of(16 * GIB, members, 2, 0), 15 * GIB);
}

TEST(no_sum_is_more_than_the_total)
{
	struct seed dice = seed_start("gpu_share_test");

	for (unsigned round = 0; round < 20000; round++) {
		struct gpu_turn_member members[8];
		unsigned n = 1 + (unsigned)seed_below(&dice, 8);
		uint64_t total = seed_below(&dice, 100 * GIB), sum = 0, stuck = 0;

		for (unsigned i = 0; i < n; i++) {
			members[i].needs = seed_size(&dice, UINT64_MAX >> seed_below(&dice, 40));
			members[i].stuck = seed_below(&dice, total / n + 1);
			stuck += members[i].stuck;
		}
		for (unsigned i = 0; i < n; i++) {
			uint64_t share = gpu_share_of(total, members, n, i);

			assert_true(share + 2 * MIB > members[i].stuck);
			sum += share;
		}
		assert_true(stuck <= total && sum <= total);
	}
}

/* While the turn changes, all is on the host, but for what fits beside the one that needs most: 7 GiB of 32. */
TEST(one_more_comes_where_the_host_holds_what_is_away)
{
	struct gpu_turn_member members[3] = {{.needs = 24 * GIB}, {.needs = 10 * GIB}, {.needs = 6 * GIB}};

	assert_true(gpu_share_admits(32 * GIB, members, 0, 0));
	assert_false(gpu_share_admits(32 * GIB, members, 1, 41 * GIB - 1));
	assert_true(gpu_share_admits(32 * GIB, members, 1, 41 * GIB));
	assert_false(gpu_share_admits(32 * GIB, members, 3, 57 * GIB - 1));
	assert_true(gpu_share_admits(32 * GIB, members, 3, 57 * GIB));
	/* All fit. */
	assert_true(gpu_share_admits(64 * GIB, members, 3, 0));
	members[1].needs = 40 * GIB;
	assert_false(gpu_share_admits(32 * GIB, members, 3, 110 * GIB - 1));
	assert_true(gpu_share_admits(32 * GIB, members, 3, 110 * GIB));
	members[1].needs = UINT64_MAX;
	assert_false(gpu_share_admits(32 * GIB, members, 3, 1024 * GIB));
	assert_true(gpu_share_admits(32 * GIB, members, 3, UINT64_MAX));
}
