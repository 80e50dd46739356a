// SPDX-License-Identifier: Apache-2.0
/*
 * live_share_test.c: how much of a range is dead, which decides about victims (shim/plan/live_map.h).
 */
#include "shim/plan/live_map.h"
#include "test/test.h"

static unsigned share(const struct live_map *map, uint64_t begin, uint64_t end)
{
	return live_map_dead_share(map, begin, end, (struct live_now){.done = UINT64_MAX, .unfinished = true}, 8);
}

static void birth(struct live_map *map, uint64_t begin, uint64_t end)
{
	assert_true(live_map_birth(map, begin, end, (struct live_report){0}));
}

TEST(share_is_all_only_if_nothing_is_alive)
{
	struct live_map *map = live_map_new(64 * MIB);

	assert_non_null(map);
	live_map_report(map, 2 * MIB, 12 * MIB);
	assert_int_equal(share(map, 2 * MIB, 10 * MIB), 8);
	assert_int_equal(share(map, 0, 4 * MIB), 4); /* the first half is not reported */
	birth(map, 3 * MIB, 6 * MIB);
	assert_int_equal(share(map, 2 * MIB, 10 * MIB), 5);
	assert_int_equal(share(map, 3 * MIB, 5 * MIB), 0);
	birth(map, 8 * MIB, 8 * MIB + 512);
	assert_int_equal(share(map, 8 * MIB, 10 * MIB), 7);
	live_map_death(map, 3 * MIB, 6 * MIB, (struct live_report){0});
	assert_int_equal(share(map, 3 * MIB, 5 * MIB), 8);
	live_map_free(map);
}
