// SPDX-License-Identifier: Apache-2.0
/*
 * serve_away_test.c: an allocation that finds no memory while the process is suspended. What the mover and the gate
 * would say, the test says; a wait at the gate is the next line of its story.
 */
#include "test/core/child_alloc.h"

#include "shim/mover/spill.h"

#define SETTINGS                                                                                                       \
	((const char *const[]){"SIM_MEMORY=256MiB", "SPILLWAY_SET=device.budget=32MiB,host.budget=32MiB", NULL})

static struct {
	unsigned waits; /* at the gate */
	unsigned looks; /* at whether it is suspended */
	bool away, ends;
	bool waits_long;   /* its turn does not come */
	unsigned comes_at; /* the look at whether it is suspended at which it comes back */
} story;

/* What others have had goes back to it. */
static void come_back(void)
{
	story.away = false;
	atomic_store(&device_get(0)->budget.limit, 32 * MIB);
}

enum residence __wrap_spill_residence(const struct device *device);
enum residence __wrap_spill_residence(const struct device *device)
{
	if (++story.looks == story.comes_at)
		come_back();
	return story.away ? RESIDENCE_AWAY : RESIDENCE_RUNS;
}

bool __wrap_spill_is_ending(void);
bool __wrap_spill_is_ending(void)
{
	return story.ends && story.waits;
}

bool __wrap_gate_wait_while(_Atomic bool *held, unsigned ms);
bool __wrap_gate_wait_while(_Atomic bool *held, unsigned ms)
{
	story.waits++;
	if (story.ends || (atomic_load(held) && !story.waits_long))
		come_back();
	atomic_store(held, atomic_load(held) && story.waits_long);
	return !story.waits_long;
}

static void leave(void)
{
	/* Where it does not come to an end, this process does. */
	alarm(20);
	start();
	CHECK(cuMemFree_v2(alloc(2 * MIB)) == CUDA_SUCCESS);
	atomic_store(&device_get(0)->budget.limit, 0);
	story.looks = 0;
	story.away = true;
}

/* A look comes before the first try, which fails, and one after it. */
PART_TEST(who_comes_back_as_it_is_refused_tries_again, assert_ok(core_in_child(SETTINGS, part, NULL)))
{
	leave();
	story.comes_at = 2;
	CHECK(cuMemFree_v2(alloc(48 * MIB)) == CUDA_SUCCESS);
	return 0;
}

/* Each of its turns is over before the try is. */
PART_TEST(who_has_too_short_turns_is_refused_at_last, assert_ok(core_in_child(SETTINGS, part, NULL)))
{
	leave();
	CHECK(is_refused(48 * MIB) && story.waits);
	return 0;
}

/* The gate is open, and what it may have is not what it is due. */
static int is_not_away_yet(void *waits_long)
{
	leave();
	story.away = false;
	atomic_store(&device_get(0)->out_of_turn, true);
	story.waits_long = waits_long;
	CHECK(is_refused(48 * MIB) == story.waits_long && story.waits == 1);
	return 0;
}

TEST(who_is_due_a_turn_waits_for_it_before_it_is_away)
{
	assert_ok(core_in_child(SETTINGS, is_not_away_yet, NULL));
}

TEST(who_waits_too_long_for_its_turn_is_refused_at_last)
{
	assert_ok(core_in_child(SETTINGS, is_not_away_yet, ""));
}

PART_TEST(what_can_never_be_had_is_refused_at_once, assert_ok(core_in_child(SETTINGS, part, NULL)))
{
	leave();
	CHECK(is_refused(65 * MIB) && !story.waits);
	return 0;
}

/* The driver may have shut down. */
PART_TEST(who_waits_when_the_process_ends_asks_for_nothing_more, assert_ok(core_in_child(SETTINGS, part, NULL)))
{
	leave();
	story.ends = true;
	CHECK(is_refused(48 * MIB) && story.waits == 1);
	return 0;
}
