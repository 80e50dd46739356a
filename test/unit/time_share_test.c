// SPDX-License-Identifier: Apache-2.0
/*
 * A share of the time: what may be spent, what is saved, and that the share holds whatever is asked for.
 */
#include "shim/base/clock.h"
#include "test/test.h"

static const struct time_share share = {.one_in = 125, .most = 20 * MS};

TEST(it_is_full_at_first)
{
	_Atomic uint64_t paid = 0;

	assert_int_equal(time_share_left(share, &paid, 60000 * MS), 20 * MS);
	time_share_spend(share, &paid, 60000 * MS, 5 * MS);
	assert_int_equal(time_share_left(share, &paid, 60000 * MS), 15 * MS);
}

TEST(what_is_spent_comes_back_with_time)
{
	_Atomic uint64_t paid = 0;
	uint64_t now = 60000 * MS;

	time_share_spend(share, &paid, now, 20 * MS);
	assert_int_equal(time_share_left(share, &paid, now), 0);
	assert_int_equal(time_share_left(share, &paid, now + 125 * MS), MS);
	assert_int_equal(time_share_left(share, &paid, now + 60000 * MS), 20 * MS); /* no more is saved */
}

TEST(what_was_too_much_is_owed)
{
	_Atomic uint64_t paid = 0;
	uint64_t now = 60000 * MS;

	time_share_spend(share, &paid, now, 24 * MS);
	assert_int_equal(time_share_left(share, &paid, now + 4 * 125 * MS), 0);
	assert_int_equal(time_share_left(share, &paid, now + 5 * 125 * MS), MS);
}

/*
 * Something that takes 15 us, wanted every 85 us, for ten minutes: what was saved and 1/125 of the time, once exceeded.
 */
TEST(whoever_asks_gets_no_more_than_the_share)
{
	_Atomic uint64_t paid = 0;
	uint64_t begin = 60000 * MS, now = begin, spent = 0, wanted = 0;

	while (now - begin < 600000 * MS) {
		now += 85000;
		wanted += 15000;
		if (!time_share_left(share, &paid, now))
			continue;
		now += 15000;
		spent += 15000;
		time_share_spend(share, &paid, now, 15000);
	}
	assert_true(spent <= 20 * MS + (now - begin) / 125 + 15000);
	assert_true(spent >= (now - begin) / 125 && wanted > 10 * spent);
}
