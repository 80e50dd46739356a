// SPDX-License-Identifier: Apache-2.0
/*
 * live_map_test.c: the map of what is alive: one test for each promise that live_map_random_test.c does not ask about
 * as it has one thread, small maps and no gaps to join.
 */

#include "test/test.h"
#include "test/unit/live_map_check.h"

static const struct live_now late = {.done = UINT64_MAX - 1, .unfinished = true};

static struct live_report at_number(uint64_t number)
{
	return (struct live_report){.number = number, .own = number, .thread = 1};
}

static struct live_map *map; /* made by a test, or a fixture */

/* A birth of which nobody knows what was submitted before. */
static bool birth(uint64_t begin, uint64_t end)
{
	return live_map_birth(map, begin, end, (struct live_report){0});
}

/* ---- what is promised, one sentence a test ---- */

FIXTURE(one_block)
{
	map = live_map_new(64 * MIB);
	assert_non_null(map);
	live_map_report(map, 2 * MIB, 12 * MIB);
}

FIXTURE(free_map)
{
	live_map_free(map);
}

EACH_TEST(one_block, free_map)

static bool is_dead(uint64_t begin, uint64_t end)
{
	return live_map_is_dead(map, begin, end, late);
}

static void range_is(struct live_range range, uint64_t begin, uint64_t end)
{
	assert_int_equal(range.begin, begin);
	assert_int_equal(range.end, end);
}

TEST(what_nobody_reports_is_alive)
{
	struct live_range range;
	bool revived;

	assert_false(is_dead(0, 2 * MIB));
	assert_false(is_dead(MIB, 3 * MIB));
	assert_true(is_dead(2 * MIB, 12 * MIB));
	assert_true(birth(12 * MIB, 14 * MIB));
	assert_int_equal(live_map_sums(map).alive, 0);
	assert_false(live_map_find(map, 13 * MIB, &range));
	assert_false(live_map_name(map, MIB, &range, &revived));
	assert_true(is_dead(2 * MIB, 12 * MIB));
}

static bool counts(uint64_t done)
{
	return live_map_is_dead(map, 2 * MIB, 4 * MIB, (struct live_now){.done = done});
}

TEST(a_death_counts_behind_what_was_submitted_before_and_before_what_its_thread_does_next)
{
	birth(2 * MIB, 6 * MIB);
	assert_false(is_dead(2 * MIB, 4 * MIB));
	live_map_death(map, 2 * MIB, 6 * MIB, (struct live_report){.number = 7, .own = 5, .thread = 3});
	assert_false(counts(100));
	/* Other threads go on, and the thread itself reports without having submitted anything. */
	live_map_heard(map, (struct live_report){.number = 9, .own = 9, .thread = 4});
	live_map_heard(map, (struct live_report){.number = 9, .own = 5, .thread = 3});
	assert_false(counts(100));
	live_map_heard(map, (struct live_report){.number = 10, .own = 10, .thread = 3});
	assert_false(counts(6));
	assert_true(counts(7));
	/* One thread too many. */
	birth(2 * MIB, 6 * MIB);
	live_map_death(map, 2 * MIB, 6 * MIB,
		       (struct live_report){.number = 7, .own = 5, .thread = LIVE_MAP_THREADS + 1});
	live_map_heard(map, (struct live_report){.number = 10, .own = 10, .thread = LIVE_MAP_THREADS + 1});
	assert_false(counts(100));
	assert_true(is_dead(2 * MIB, 4 * MIB));
}

/* Whatever was there: until something is submitted nobody can have written to it. */
TEST(what_is_said_to_be_born_empty_is)
{
	const struct live_now idle = {.done = 5, .idle = 5}, later = {.done = 6, .idle = 6}, runs = {.done = 5};

	birth(2 * MIB, 12 * MIB);
	live_map_birth(map, 4 * MIB, 6 * MIB, (struct live_report){.number = 5, .own = 5, .thread = 1, .empty = true});
	assert_true(live_map_is_dead(map, 4 * MIB, 6 * MIB, idle));
	assert_false(live_map_is_dead(map, 4 * MIB, 6 * MIB, runs) || live_map_is_dead(map, 4 * MIB, 6 * MIB, later));
	assert_false(live_map_is_dead(map, 2 * MIB, 4 * MIB, idle) || live_map_is_dead(map, 6 * MIB, 12 * MIB, idle));
}

TEST(everything_reported_is_alive_after_a_restart)
{
	live_map_report(map, 20 * MIB, 24 * MIB);
	birth(2 * MIB, 6 * MIB);
	live_map_death(map, 2 * MIB, 6 * MIB, at_number(1));
	live_map_restart(map);
	assert_true(live_map_is_valid(map));
	assert_int_equal(live_map_sums(map).alive, 14 * MIB);
	assert_false(is_dead(4 * MIB, 6 * MIB));
	/* What dies was not born since; what is born from now on may die. */
	live_map_death(map, 2 * MIB, 6 * MIB, at_number(1));
	assert_int_equal(live_map_sums(map).alive, 14 * MIB);
	birth(4 * MIB, 6 * MIB);
	live_map_death(map, 4 * MIB, 6 * MIB, at_number(1));
	assert_true(is_dead(4 * MIB, 6 * MIB));
	assert_int_equal(live_map_sums(map).alive, 12 * MIB);
	live_map_distrust_reported(map);
	assert_int_equal(live_map_sums(map).reported, 0);
	live_map_report(map, 2 * MIB, 4 * MIB);
	live_map_report(map, 30 * MIB, 32 * MIB); /* what was not reported before may be from now on */
	assert_int_equal(live_map_sums(map).reported, 2 * MIB);
}

TEST(parts_alive_are_joined_across_small_gaps)
{
	struct live_range parts[4];

	birth(2 * MIB, 2 * MIB + 512);
	birth(2 * MIB + 4 * KIB, 2 * MIB + 8 * KIB);
	birth(5 * MIB, 12 * MIB);
	assert_int_equal(live_map_alive(map, 2 * MIB, 12 * MIB, late, 64 * KIB, parts, 4), 2);
	range_is(parts[0], 2 * MIB, 2 * MIB + 8 * KIB);
	range_is(parts[1], 5 * MIB, 12 * MIB);
	assert_int_equal(live_map_alive(map, 2 * MIB, 12 * MIB, late, 0, parts, 4), 3);
	assert_int_equal(live_map_alive(map, 2 * MIB, 12 * MIB, late, 0, parts, 2), 2);
	range_is(parts[1], 2 * MIB + 4 * KIB, 12 * MIB);
	assert_int_equal(live_map_alive(map, 6 * MIB, 13 * MIB, late, 0, parts, 4), 1);
	range_is(parts[0], 6 * MIB, 13 * MIB);
}

/* ---- limits ---- */

TEST(what_is_born_is_not_written_by_sets_that_do_not_name_it)
{
	const struct live_now after_sets = {.done = 9, .idle = 9, .named_only = 7},
			      after_kernel = {.done = 9, .idle = 9, .named_only = 8};

	live_map_birth(map, 2 * MIB, 4 * MIB, at_number(7));
	live_map_birth(map, 4 * MIB, 6 * MIB, at_number(7));
	assert_true(live_map_is_dead(map, 2 * MIB, 6 * MIB, after_sets));
	assert_false(live_map_is_dead(map, 2 * MIB, 4 * MIB, after_kernel));
	live_map_touch(map, 3 * MIB);
	assert_false(live_map_is_dead(map, 2 * MIB, 4 * MIB, after_sets));
	assert_true(live_map_is_dead(map, 4 * MIB, 6 * MIB, after_sets));
	/* It is the set that waits, and nothing else was submitted. */
	assert_true(live_map_is_dead(map, 2 * MIB, 4 * MIB, (struct live_now){.done = 7, .idle = 7, .named_only = 7}));
	/* Another birth. */
	live_map_death(map, 2 * MIB, 4 * MIB, at_number(9));
	live_map_birth(map, 8 * MIB, 9 * MIB, at_number(10));
	live_map_birth(map, 2 * MIB, 4 * MIB, at_number(10));
	assert_true(
	    live_map_is_dead(map, 2 * MIB, 4 * MIB, (struct live_now){.done = 12, .idle = 12, .named_only = 10}));
	/* Contents that were to survive are not empty, whatever was submitted. */
	live_map_death(map, 4 * MIB, 6 * MIB, at_number(11));
	live_map_birth(map, 4 * MIB, 6 * MIB, at_number(11));
	assert_false(
	    live_map_is_dead(map, 4 * MIB, 6 * MIB, (struct live_now){.done = 12, .idle = 12, .named_only = 1}));
}

TEST(what_dies_and_is_born_with_nothing_in_between_keeps_its_contents)
{
	struct live_now idle_at_7 = {.done = 7, .idle = 7};

	live_map_birth(map, 2 * MIB, 4 * MIB, at_number(3));
	live_map_death(map, 2 * MIB, 4 * MIB, at_number(7));
	/* Its thread enters the next submission before the birth is applied, but after it was reported. */
	live_map_heard(map, at_number(8));
	live_map_birth(map, 2 * MIB, 4 * MIB, at_number(7));
	assert_false(live_map_is_dead(map, 2 * MIB, 4 * MIB, idle_at_7));
	/* Whoever else is born there: what the thread of the death has done since is not known. */
	live_map_death(map, 2 * MIB, 4 * MIB, at_number(7));
	live_map_birth(map, 2 * MIB, 3 * MIB, (struct live_report){.number = 7, .own = 99, .thread = 2});
	assert_false(live_map_is_dead(map, 2 * MIB, 3 * MIB, idle_at_7));
	/* It reports something else first. */
	live_map_birth(map, 8 * MIB, 9 * MIB, at_number(8));
	live_map_birth(map, 3 * MIB, 4 * MIB, (struct live_report){.number = 7, .own = 99, .thread = 2});
	assert_true(live_map_is_dead(map, 3 * MIB, 4 * MIB, idle_at_7));
}

TEST_WITH(a_map_of_many_terabytes_finds_what_is_far_apart, NULL, free_map)
{
	map = live_map_new(UINT64_C(40) << 40);
	const uint64_t far = UINT64_C(33) << 40;
	struct live_range range;

	assert_non_null(map);
	live_map_report(map, 0, 2 * MIB);
	live_map_report(map, far, far + 4 * MIB);
	birth(512, 1024);
	birth(far + 2 * MIB, far + 3 * MIB);
	assert_true(live_map_find(map, far + MIB, &range));
	range_is(range, far, far + 2 * MIB);
	assert_int_equal(live_map_sums(map).alive, MIB + 512);
	live_map_distrust(map, 0, UINT64_C(1) << 40);
	assert_int_equal(live_map_sums(map).alive, MIB);
}

TEST_WITH(without_memory_for_a_birth_nothing_is_reported_any_more, NULL, free_map)
{
	map = live_map_new(UINT64_C(2) << 30);
	bool ok = true;
	uint64_t at;

	assert_non_null(map);
	live_map_report(map, 0, UINT64_C(2) << 30);
	for (at = 0; ok && at < UINT64_C(2) << 30; at += 1024)
		ok = birth(at, at + 512);
	assert_false(ok);
	assert_int_equal(live_map_sums(map).reported, 0);
	assert_int_equal(live_map_sums(map).alive, 0);
	assert_false(is_dead(512, 1024));
}

/* 16 TiB of address space have 8 million units: to look at all of them takes milliseconds. */
TEST_WITH(nothing_looks_where_no_block_ever_was, NULL, free_map)
{
	map = live_map_new(16 * MIB * MIB);
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = n_units(map->bytes);

	live_map_report(map, 2 * MIB, 12 * MIB);
	live_map_report(map, 64 * MIB, 66 * MIB);
	assert_int_equal(mprotect(map->trust + page, bytes / page * page - page, PROT_NONE), 0);
	live_map_restart(map);
	assert_int_equal(live_map_sums(map).alive, 12 * MIB);
	assert_true(birth(64 * MIB, 2 * map->bytes));
	assert_int_equal(live_map_sums(map).reported, 10 * MIB);
	assert_true(live_map_is_reported(map, 11 * MIB));
	live_map_distrust_reported(map);
	assert_int_equal(live_map_sums(map).reported, 0);
}
