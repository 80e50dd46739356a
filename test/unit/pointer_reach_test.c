/*
 * pointer_reach_test.c: how far a pointer reaches into memory that the program has mapped itself, by births.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>

#include "shim/lifetimes/crossings.h"
#include "test/unit/seed.h"

#define MIB   ((uint64_t)1 << 20)
#define BYTES (UINT64_C(1) << 40)

static struct crossings *reach;

static int begin(void **state)
{
	(void)state;
	reach = crossings_new(BYTES);
	assert_non_null(reach);
	return 0;
}

static int end(void **state)
{
	(void)state;
	crossings_free(reach);
	return 0;
}

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

static void range_is_found_from_each_of_its_bytes(void **state)
{
	(void)state;
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

static void what_begins_and_ends_with_units_reaches_no_further(void **state)
{
	(void)state;
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
static void what_is_born_is_found_and_not_what_was_there(void **state)
{
	(void)state;
	crossings_born(reach, MIB, 30 * MIB);
	crossings_born(reach, 5 * MIB, 5 * MIB + 1024);
	assert_true(is_none(5 * MIB) && is_none(5 * MIB + 1023));
	crossings_born(reach, 9 * MIB, 17 * MIB);
	assert_true(is_found(9 * MIB, 9 * MIB, 17 * MIB) && is_found(17 * MIB - 1, 9 * MIB, 17 * MIB));
	assert_true(is_found(29 * MIB, MIB, 30 * MIB));
}

static void what_is_longer_than_can_be_kept_is_doubted(void **state)
{
	(void)state;
	crossings_born(reach, 0, (UINT64_C(256) << 30) - 512);
	assert_true(is_found(MIB, 0, (UINT64_C(256) << 30) - 512) && !crossings_is_all_doubted(reach));
	crossings_born(reach, 0, UINT64_C(256) << 30);
	assert_true(crossings_is_all_doubted(reach) && crossings_is_doubted(reach, 64 * MIB));
}

static void doubt_lasts_until_the_space_is_reserved_anew(void **state)
{
	(void)state;
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

/* What is alive is found exactly if it crosses a unit; else at most, and never, anything that does not have the byte. */
static void check_one(const struct live_range *range)
{
	uint64_t at = range->begin + any(range->end - range->begin);
	bool crosses = range->begin / LIVE_MAP_UNIT != (range->end - 1) / LIVE_MAP_UNIT;

	assert_true(crosses ? is_found(at, range->begin, range->end) : is_none(at));
}

static void what_is_alive_is_found_whatever_was_there_before(void **state)
{
	(void)state;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(range_is_found_from_each_of_its_bytes, begin, end),
	    cmocka_unit_test_setup_teardown(what_begins_and_ends_with_units_reaches_no_further, begin, end),
	    cmocka_unit_test_setup_teardown(what_is_born_is_found_and_not_what_was_there, begin, end),
	    cmocka_unit_test_setup_teardown(what_is_longer_than_can_be_kept_is_doubted, begin, end),
	    cmocka_unit_test_setup_teardown(doubt_lasts_until_the_space_is_reserved_anew, begin, end),
	    cmocka_unit_test_setup_teardown(what_is_alive_is_found_whatever_was_there_before, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
