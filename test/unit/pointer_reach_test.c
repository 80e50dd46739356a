// SPDX-License-Identifier: Apache-2.0
/*
 * pointer_reach_test.c: how far a pointer reaches into memory that the program has mapped itself, by births.
 */
#include "shim/lifetimes/lifetimes.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define BYTES (UINT64_C(1) << 40)

static struct crossings *reach;

FIXTURE(begin)
{
	reach = crossings_new(BYTES);
	assert_non_null(reach);
}

FIXTURE(end)
{
	crossings_free(reach);
}

EACH_TEST(begin, end)

static bool is_found(uint64_t at, uint64_t first, uint64_t last)
{
	struct live_range range;

	return crossings_find(reach, at, &range) && range.begin == first && range.end == last;
}

static bool is_none(uint64_t at)
{
	struct live_range range;

	return !crossings_find(reach, at, &range);
}

TEST(range_is_found_from_each_of_its_bytes)
{
	assert_true(is_none(0) && is_none(5 * MIB) && is_none(BYTES - 1) && is_none(BYTES) && is_none(UINT64_MAX));
	crossings_born(reach, 3 * MIB, 9 * MIB + 512);
	for (uint64_t at = 3 * MIB; at < 9 * MIB + 512; at += 512)
		assert_true(is_found(at, 3 * MIB, 9 * MIB + 512));
	assert_true(is_found(9 * MIB + 511, 3 * MIB, 9 * MIB + 512));
	assert_true(is_none(3 * MIB - 1) && is_none(9 * MIB + 512));
	/* Its neighbours share the first and the last unit. */
	crossings_born(reach, MIB, 3 * MIB);
	crossings_born(reach, 9 * MIB + 512, 30 * MIB);
	assert_true(is_found(3 * MIB - 1, MIB, 3 * MIB) && is_found(3 * MIB, 3 * MIB, 9 * MIB + 512));
	assert_true(is_found(9 * MIB + 511, 3 * MIB, 9 * MIB + 512) &&
		    is_found(9 * MIB + 512, 9 * MIB + 512, 30 * MIB));
}

TEST(what_begins_and_ends_with_units_reaches_no_further)
{
	crossings_born(reach, 4 * MIB, 8 * MIB);
	crossings_born(reach, 8 * MIB, 12 * MIB);
	crossings_born(reach, 12 * MIB, 14 * MIB);
	assert_true(is_found(8 * MIB - 1, 4 * MIB, 8 * MIB) && is_found(8 * MIB, 8 * MIB, 12 * MIB));
	assert_true(is_none(12 * MIB) && is_none(14 * MIB) && is_none(4 * MIB - 1));
	/* The last of the address space, and nonsense. */
	crossings_born(reach, BYTES - 3 * MIB, BYTES);
	assert_true(is_found(BYTES - 1, BYTES - 3 * MIB, BYTES));
	crossings_born(reach, BYTES - 3 * MIB, BYTES + MIB);
	crossings_born(reach, 9 * MIB, 9 * MIB);
	crossings_born(reach, UINT64_MAX - MIB, 3 * MIB);
	assert_true(is_found(BYTES - 1, BYTES - 3 * MIB, BYTES) && is_found(9 * MIB, 8 * MIB, 12 * MIB));
}

/* What is born takes the place of what has died; what has not been taken may be found as it was, but not from here. */
TEST(what_is_born_is_found_and_not_what_was_there)
{
	crossings_born(reach, MIB, 30 * MIB);
	crossings_born(reach, 5 * MIB, 5 * MIB + 1024);
	assert_true(is_none(5 * MIB) && is_none(5 * MIB + 1023));
	crossings_born(reach, 9 * MIB, 17 * MIB);
	assert_true(is_found(9 * MIB, 9 * MIB, 17 * MIB) && is_found(17 * MIB - 1, 9 * MIB, 17 * MIB));
	assert_true(is_found(29 * MIB, MIB, 30 * MIB));
}

TEST(what_is_longer_than_can_be_kept_is_doubted)
{
	crossings_born(reach, 0, (UINT64_C(256) << 30) - 512);
	assert_true(is_found(MIB, 0, (UINT64_C(256) << 30) - 512) && !crossings_is_all_doubted(reach));
	crossings_born(reach, 0, UINT64_C(256) << 30);
	assert_true(crossings_is_all_doubted(reach) && crossings_is_doubted(reach, 64 * MIB));
}

TEST(doubt_lasts_until_the_space_is_reserved_anew)
{
	crossings_doubt(reach, 64 * MIB);
	assert_true(crossings_is_doubted(reach, 64 * MIB) && !crossings_is_doubted(reach, 66 * MIB));
	crossings_born(reach, 65 * MIB, 70 * MIB);
	assert_true(crossings_is_doubted(reach, 64 * MIB) && !crossings_is_all_doubted(reach));
	crossings_renew(reach, 64 * MIB);
	assert_false(crossings_is_doubted(reach, 64 * MIB));
	crossings_doubt(reach, UINT64_MAX);
	crossings_doubt_all(reach);
	crossings_renew(reach, 64 * MIB);
	assert_true(crossings_is_doubted(reach, 64 * MIB));
}

/* ---- against a list of what is alive ---- */

enum { ALIVE = 40, OPERATIONS = 40000 };
#define SPACE (64 * MIB)

static struct live_range alive[ALIVE];
static unsigned n_alive;
static struct seed seed;

static bool meets(uint64_t first, uint64_t last)
{
	for (unsigned i = 0; i < n_alive; i++)
		if (alive[i].begin < last && alive[i].end > first)
			return true;
	return false;
}

static uint64_t any(uint64_t n)
{
	return seed_below(&seed, n);
}

/*
 * What is alive is found exactly if it crosses a unit; else at most, and never, anything that does not have the byte.
 */
static void check_one(const struct live_range *range)
{
	uint64_t at = range->begin + any(range->end - range->begin);
	bool crosses = range->begin / LIVE_MAP_UNIT != (range->end - 1) / LIVE_MAP_UNIT;

	assert_true(crosses ? is_found(at, range->begin, range->end) : is_none(at));
}

TEST(what_is_alive_is_found_whatever_was_there_before)
{
	seed = seed_start("pointer_reach_test");
	n_alive = 0;
	for (unsigned i = 0; i < OPERATIONS; i++) {
		uint64_t first = any(SPACE / 512) * 512, length = (1 + any(any(3) ? 20 : 30000)) * 512;

		if (n_alive < ALIVE && first + length <= SPACE && !meets(first, first + length)) {
			crossings_born(reach, first, first + length);
			alive[n_alive++] = (struct live_range){first, first + length};
		} else if (n_alive) {
			alive[any(n_alive)] = alive[n_alive - 1];
			n_alive--;
		}
		for (unsigned j = 0; j < n_alive; j++)
			check_one(&alive[j]);
	}
}

/* ---- where births are watched (place: on-use) ---- */

static bool reaches(uint64_t at, uint64_t first, uint64_t last)
{
	struct live_range range;

	return crossings_reach(reach, at, &range) && range.begin == first && range.end == last;
}

static bool is_unknown(uint64_t at)
{
	struct live_range range;

	return !crossings_reach(reach, at, &range);
}

TEST(a_watched_range_knows_what_is_alive)
{
	crossings_born(reach, 11 * MIB, 12 * MIB);
	assert_true(is_unknown(11 * MIB));
	crossings_watch(reach, 10 * MIB, 30 * MIB);
	assert_true(is_unknown(11 * MIB)); /* it was born before */
	/* Within a unit: the unit. Over several: the range. */
	crossings_born(reach, 11 * MIB, 11 * MIB + 1536);
	assert_true(is_unknown(11 * MIB - 1) && is_unknown(11 * MIB + 1536));
	assert_true(reaches(11 * MIB, 10 * MIB, 12 * MIB) && reaches(11 * MIB + 1535, 10 * MIB, 12 * MIB));
	crossings_born(reach, 13 * MIB, 19 * MIB);
	assert_true(reaches(13 * MIB, 13 * MIB, 19 * MIB) && reaches(19 * MIB - 1, 13 * MIB, 19 * MIB));
	assert_true(is_unknown(13 * MIB - 1) && is_unknown(19 * MIB));
	/* What died is not known any more, its neighbours are. */
	crossings_died(reach, 13 * MIB, 19 * MIB);
	for (uint64_t at = 13 * MIB; at < 19 * MIB; at += 512)
		assert_true(is_unknown(at));
	assert_true(reaches(11 * MIB + 512, 10 * MIB, 12 * MIB));
	/* A small one where a large one was reaches no further than its unit. */
	crossings_born(reach, 14 * MIB, 15 * MIB);
	assert_true(reaches(14 * MIB + 512, 14 * MIB, 16 * MIB) && is_unknown(15 * MIB));
	/* Nothing outside is. */
	crossings_born(reach, 29 * MIB, 33 * MIB);
	assert_true(reaches(30 * MIB - 1, 29 * MIB, 33 * MIB) && is_unknown(30 * MIB) && is_unknown(32 * MIB));
	crossings_unwatch(reach, 10 * MIB, 30 * MIB);
	assert_true(is_unknown(14 * MIB));
	crossings_watch(reach, 10 * MIB, 30 * MIB);
	assert_true(is_unknown(14 * MIB) && is_unknown(29 * MIB));
	assert_true(is_unknown(BYTES) && is_unknown(UINT64_MAX));
}

enum { WATCHED_UNITS = 16, GRAINS_OF_UNIT = 4096 };

/* Births and deaths by chance, against a byte for each 512 bytes: the number of the range that is alive there. */
TEST(what_is_watched_is_known_as_long_as_it_is_alive)
{
	static uint16_t owner[WATCHED_UNITS * GRAINS_OF_UNIT];
	struct {
		uint64_t first, n;
	} ranges[200] = {0};
	uint64_t base = 64 * MIB;

	seed = seed_start("pointer_reach_test, watched");
	crossings_watch(reach, base, base + WATCHED_UNITS * 2 * MIB);
	for (unsigned step = 0; step < 3000; step++) {
		unsigned which = 1 + (unsigned)any(199);
		uint64_t n = ranges[which].n, first = ranges[which].first;

		if (n) {
			crossings_died(reach, base + first * 512, base + (first + n) * 512);
			for (uint64_t i = 0; i < n; i++)
				owner[first + i] = 0;
			ranges[which].n = 0;
			continue;
		}
		n = 1 + any(any(3) ? 3000 : 20000);
		first = any(WATCHED_UNITS * GRAINS_OF_UNIT);
		for (uint64_t i = 0; i < n; i++)
			if (first + i >= WATCHED_UNITS * GRAINS_OF_UNIT || owner[first + i])
				n = i;
		if (!n)
			continue;
		crossings_born(reach, base + first * 512, base + (first + n) * 512);
		ranges[which].first = first;
		ranges[which].n = n;
		for (uint64_t i = 0; i < n; i++)
			owner[first + i] = (uint16_t)which;
		for (unsigned look = 0; look < 200; look++) {
			uint64_t grain = any(WATCHED_UNITS * GRAINS_OF_UNIT);
			struct live_range range;

			if (!owner[grain]) {
				assert_true(is_unknown(base + grain * 512));
				continue;
			}
			uint64_t begin = base + ranges[owner[grain]].first * 512,
				 last = begin + ranges[owner[grain]].n * 512;
			assert_true(crossings_reach(reach, base + grain * 512 + any(512), &range));
			assert_true(range.begin <= begin && range.end >= last);
			assert_true(range.end - range.begin <= (last - begin > 2 * MIB ? last - begin : 2 * MIB));
		}
	}
}
