// SPDX-License-Identifier: Apache-2.0
/*
 * move_limits_test.c: what moving takes up of the device memory: little of it, never less than keeps both links at
 * work.
 */
#include "shim/plan/governor.h"
#include "test/test.h"

/*
 * A GPT at 1.5 times its budget of 9757 MiB, whose pieces were of up to 32 MiB in `fast` when that was measured best
 * (governor.c).
 */
TEST(a_training_job_gives_up_little_of_its_budget)
{
	assert_int_equal(move_limits_reserve(9757 * MIB, 32 * MIB), 96 * MIB);
	assert_int_equal(move_limits_under_way(9757 * MIB, 32 * MIB), 64 * MIB);
	assert_int_equal(move_limits_ahead(9757 * MIB, true), 9757 * MIB / 8);
}

TEST(a_piece_is_copied_and_one_behind_it)
{
	for (uint64_t largest = 2 * MIB; largest <= 128 * MIB; largest *= 2)
		for (uint64_t budget = 32 * largest; budget <= 1024 * 1024 * MIB; budget *= 2) {
			uint64_t share = budget / 32 > 8 * MIB ? budget / 32 : 8 * MIB;
			uint64_t reserve = move_limits_reserve(budget, largest),
				 under_way = move_limits_under_way(budget, largest);

			assert_true(under_way >= 2 * largest || under_way == share);
			assert_true(under_way <= reserve && reserve <= share);
			/* Less is under way, but for the piece that reaches it. */
			assert_true(reserve <= 96 * MIB || reserve <= 2 * largest);
			assert_true(move_limits_reserve(2 * budget, largest) >= reserve);
			assert_true(move_limits_ahead(budget, true) <= move_limits_ahead(budget, false));
		}
}

/* Budgets of tests. */
TEST(a_small_budget_is_not_given_up_to_moving)
{
	assert_int_equal(move_limits_reserve(16 * MIB, 4 * MIB), 8 * MIB);
	assert_int_equal(move_limits_under_way(16 * MIB, 4 * MIB), 8 * MIB);
	assert_int_equal(move_limits_ahead(16 * MIB, false), 2 * MIB);
	assert_int_equal(move_limits_new(16 * MIB), 4 * MIB);
}

TEST(what_is_not_needed_soon_is_a_part_of_a_period_and_never_far)
{
	assert_int_equal(move_limits_not_soon(0), 0);
	assert_int_equal(move_limits_not_soon(313), 39);
	assert_int_equal(move_limits_not_soon(1328), 64);
}
