// SPDX-License-Identifier: Apache-2.0
/*
 * At which lines tensors are born: that a step that repeats is named once, that a range has another line when another
 * line has made it, and that naming takes no more than its share of the time. Python and the clock are stood for here
 * (-Wl,--wrap).
 */
#include <stdatomic.h>

#include "shim/base/call_site.h"
#include "shim/base/python.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/lifetimes/types.h"
#include "test/test.h"

#define BASE (UINT64_C(1) << 40)

static uint64_t now, cpu;
static bool python_is_here;
static char line[PYTHON_NAME];
static uint64_t python_takes, stopped_for; /* ns */
static unsigned n_named, n_looks;          /* of the clock */

uint64_t __wrap_clock_now(void);
uint64_t __wrap_clock_now(void)
{
	n_looks++;
	return now;
}

uint64_t __wrap_clock_thread(void);
uint64_t __wrap_clock_thread(void)
{
	return cpu;
}

bool __wrap_python_process_is_here(void);
bool __wrap_python_process_is_here(void)
{
	return python_is_here;
}

enum python_found __wrap_python_process_name(char *room, char *callers);
enum python_found __wrap_python_process_name(char *room, char *callers)
{
	now += python_takes + stopped_for;
	cpu += python_takes;
	n_named++;
	strcpy(room, line);
	if (callers)
		callers[0] = 0;
	return *line ? PYTHON_OF_USER : PYTHON_NO_FRAMES;
}

BEFORE_EACH
{
	memset(&lifetimes_state.births, 0, sizeof(lifetimes_state.births));
	now = 60000 * MS;
	python_is_here = true;
	python_takes = 15000;
	stopped_for = 0;
	n_named = n_looks = 0;
}

/* A birth at line `at` of the program. Returns the text of the site that it has; NULL: none. */
static const char *born(unsigned at, uint64_t offset, uint64_t bytes)
{
	snprintf(line, sizeof(line), "train.py:%u in forward", at);
	const struct call_site *site = call_site_numbered(birth_lines_name(BASE + offset, bytes));

	return site ? site->text : NULL;
}

/* Two activations and a gradient at the place of the first, of its size. */
static void step(void)
{
	assert_string_equal(born(10, 0, 8 * MIB), "train.py:10 in forward");
	assert_string_equal(born(11, 8 * MIB, 8 * MIB), "train.py:11 in forward");
	assert_string_equal(born(20, 0, 8 * MIB), "train.py:20 in forward");
	now += 100 * MS;
}

TEST(a_step_that_repeats_is_named_once)
{
	for (unsigned i = 0; i < 200; i++)
		step();
	/* The first step knows no births before it, so its first two are named again in the second. */
	assert_int_equal(n_named, 5);
	for (unsigned i = 0; i < 100; i++)
		step();
	assert_int_equal(n_named, 8); /* it is looked again */
}

/* A look at the clock takes longer than to recognize a birth. */
TEST(where_there_is_no_time_to_look_again_the_clock_is_hardly_asked)
{
	python_takes =
	    4 * MS; /* three births, until the last two before it are known, take more than half of what is saved */
	for (unsigned i = 0; i < 4000; i++)
		born(10, 0, 8 * MIB);
	assert_int_equal(n_named, 3);
	assert_in_range(n_looks, 1, 4000 / 30);
}

/* The second half of the run comes from other lines: after a while they have their names. */
TEST(a_range_that_is_made_elsewhere_has_another_line)
{
	unsigned right = 0;

	for (unsigned i = 0; i < 100; i++)
		step();
	for (unsigned i = 0; i < 300; i++) {
		right += !strcmp(born(30, 0, 8 * MIB), "train.py:30 in forward");
		born(31, 8 * MIB, 8 * MIB);
		born(40, 0, 8 * MIB);
		now += 100 * MS;
	}
	assert_true(right >= 100);
	assert_string_equal(born(30, 0, 8 * MIB), "train.py:30 in forward");
}

/* A step whose tensors have twelve sizes, at addresses that it has never had. All lines must be right. */
static void step_elsewhere(unsigned which)
{
	for (unsigned i = 0; i < 12; i++) {
		char text[32];

		snprintf(text, sizeof(text), "train.py:%u in forward", 10 + i);
		assert_string_equal(born(10 + i, (which * 12 + i) * 40 * MIB, (i + 2) * MIB), text);
	}
}

TEST(a_step_at_other_addresses_is_known_by_its_sizes)
{
	python_takes = MS * 8 / 10;
	step_elsewhere(0);
	step_elsewhere(1); /* other births come before its first seven than before those of the first step */
	assert_int_equal(n_named, 19);
	step_elsewhere(2);
	step_elsewhere(3);
	assert_int_equal(n_named, 19);
}

/*
 * The same sizes from other lines: that is noticed as soon as there is time, or else at the next birth at that place.
 */
TEST(what_sizes_say_is_looked_at_when_there_is_time)
{
	python_takes = MS * 8 / 10;
	for (unsigned i = 0; i < 4; i++)
		step_elsewhere(i);
	assert_string_equal(born(99, 5000 * MIB, 2 * MIB), "train.py:10 in forward");
	now += 60000 * MS;
	assert_string_equal(born(98, 6000 * MIB, 3 * MIB), "train.py:98 in forward");
}

/* Births that are never the same again, 12,000 a second, for a minute. */
TEST(naming_takes_its_share_of_the_time_and_no_more)
{
	uint64_t begin = now, seed = 1;

	while (now - begin < 60000 * MS) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		born(10, (seed >> 40) * 512, 8 * MIB);
		now += 70000;
	}
	assert_true(n_named * python_takes <= 20 * MS + (now - begin) / 125 + python_takes);
	assert_true(n_named * python_takes >= (now - begin) / 125);
}

TEST(large_tensors_are_named_first)
{
	python_takes = MS;
	for (unsigned i = 0; i < 100; i++)
		born(10, i * 512, 512);
	assert_int_equal(n_named, 11); /* half of the 20 ms that are saved at first, and one more */
	for (unsigned i = 0; i < 100; i++)
		born(10, i * 16 * MIB, 9 * MIB + i * 512);
	assert_true(n_named >= 20 && n_named <= 22);
	assert_null(born(10, 900 * MIB, 8 * MIB));
	assert_int_equal(birth_lines_at(BASE + 900 * MIB), 0);
	now += 1000 * MS;
	assert_non_null(born(10, 900 * MIB, 8 * MIB));
}

/* On a machine that others keep busy. */
TEST(time_in_which_the_thread_does_not_run_is_none_of_naming)
{
	stopped_for = 30 * MS;
	for (unsigned i = 0; i < 100; i++)
		assert_non_null(born(10, i * 8 * MIB, 8 * MIB));
}

static const char *at(uint64_t offset)
{
	const struct call_site *site = call_site_numbered(birth_lines_at(BASE + offset));

	return site ? site->text : "";
}

TEST(a_unit_has_the_line_of_what_was_born_there_last)
{
	born(10, 0, 9 * MIB);
	assert_string_equal(at(0), "train.py:10 in forward");
	assert_string_equal(at(7 * MIB), "train.py:10 in forward");
	assert_string_equal(at(9 * MIB), ""); /* the smaller part of a unit is not enough */
	born(11, 9 * MIB, 7 * MIB);
	assert_string_equal(at(9 * MIB), "train.py:11 in forward");
	assert_string_equal(at(15 * MIB), "train.py:11 in forward");
	assert_string_equal(at(16 * MIB), "");
	born(12, 4 * MIB, 2 * MIB);
	assert_string_equal(at(2 * MIB), "train.py:10 in forward");
	assert_string_equal(at(5 * MIB), "train.py:12 in forward");
	/* 128 GiB further lies another heap. */
	assert_string_equal(at(4 * MIB + ((uint64_t)128 << 30)), "");
	born(13, 4 * MIB + ((uint64_t)128 << 30), 2 * MIB);
	assert_string_equal(at(4 * MIB), "");
}

TEST(without_python_there_is_no_line)
{
	python_is_here = false;
	assert_null(born(10, 0, 8 * MIB));
	python_is_here = true;
	line[0] = 0;
	assert_int_equal(birth_lines_name(BASE, 8 * MIB), 0);
	assert_int_equal(birth_lines_at(BASE), 0);
}
