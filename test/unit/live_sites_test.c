// SPDX-License-Identifier: Apache-2.0
/*
 * live_sites_test.c: which site what is alive has, in the map of what is alive.
 */
#include "test/test.h"
#include "test/unit/live_map_check.h"

static struct live_map *one_block(void)
{
	struct live_map *map = live_map_new(64 * MIB);

	assert_non_null(map);
	live_map_report(map, 2 * MIB, 12 * MIB);
	return map;
}

static void birth(struct live_map *map, uint64_t begin, uint64_t end, uint16_t site)
{
	assert_true(live_map_birth(map, begin, end, (struct live_report){.site = site}));
}

static void death(struct live_map *map, uint64_t begin, uint64_t end)
{
	live_map_death(map, begin, end, (struct live_report){.number = 1, .own = 1, .thread = 1});
}

/* Returns how many bytes of the range are of this site. */
static uint64_t of_site(const struct live_map *map, uint64_t begin, uint64_t end, uint16_t site)
{
	struct live_site sites[8];
	unsigned n = live_map_sites(map, begin, end, sites, 8);
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++) {
		assert_true(sites[i].site && sites[i].bytes);
		bytes += sites[i].site == site ? sites[i].bytes : 0;
	}
	return bytes;
}

TEST(what_is_alive_has_the_site_of_its_birth)
{
	struct live_map *map = one_block();
	struct live_site one;

	birth(map, 2 * MIB, 5 * MIB, 7);
	birth(map, 5 * MIB, 6 * MIB, 9);
	birth(map, 6 * MIB, 8 * MIB, 7);
	birth(map, 8 * MIB, 9 * MIB, 0);
	assert_int_equal(of_site(map, 2 * MIB, 12 * MIB, 7), 5 * MIB);
	assert_int_equal(of_site(map, 2 * MIB, 12 * MIB, 9), MIB);
	assert_int_equal(of_site(map, 4 * MIB, 5 * MIB + 512, 7), MIB);
	assert_int_equal(of_site(map, 4 * MIB, 5 * MIB + 512, 9), 512);
	assert_int_equal(live_map_sites(map, 8 * MIB, 12 * MIB, &one, 1), 0);
	assert_int_equal(live_map_sites(map, 2 * MIB, 12 * MIB, &one, 1), 1); /* no room for the second */
	assert_true(one.site == 7 && one.bytes == 5 * MIB);
	live_map_free(map);
}

TEST(a_range_that_is_born_again_has_another_site)
{
	struct live_map *map = one_block();

	birth(map, 2 * MIB, 5 * MIB, 7);
	birth(map, 5 * MIB, 6 * MIB, 9);
	death(map, 5 * MIB, 6 * MIB);
	assert_int_equal(of_site(map, 2 * MIB, 12 * MIB, 9), 0);
	birth(map, 5 * MIB, 6 * MIB, 8);
	birth(map, 3 * MIB, 4 * MIB, 9); /* cut out of what was there */
	assert_int_equal(of_site(map, 2 * MIB, 12 * MIB, 8), MIB);
	assert_int_equal(of_site(map, 2 * MIB, 12 * MIB, 7), 2 * MIB);
	assert_int_equal(of_site(map, 2 * MIB, 12 * MIB, 9), MIB);
	assert_true(live_map_is_valid(map));
	live_map_free(map);
}

TEST(what_a_submission_names_was_born_where_it_was)
{
	struct live_map *map = one_block();
	struct live_site one;
	struct live_range range;
	bool revived;

	birth(map, 6 * MIB, 8 * MIB, 7);
	death(map, 6 * MIB, 8 * MIB);
	assert_int_equal(of_site(map, 6 * MIB, 8 * MIB, 7), 0);
	assert_true(live_map_name(map, 7 * MIB, &range, &revived) && revived);
	assert_int_equal(of_site(map, 6 * MIB, 8 * MIB, 7), 2 * MIB);
	/* After a restart nobody knows what is whose. */
	live_map_restart(map);
	assert_int_equal(live_map_sites(map, 2 * MIB, 12 * MIB, &one, 1), 0);
	live_map_free(map);
}
