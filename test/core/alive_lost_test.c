// SPDX-License-Identifier: Apache-2.0
/*
 * alive_lost_test.c: what is dead if submissions were not seen, because the submission log was full, or because they
 * were made before the mover began to look; or if an event takes long to be written. There is no mover's thread: the
 * test reads the log itself.
 */
#include "shim/lifetimes/types.h"
#include "shim/mover/mover.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"
#include "test/core/core.h"
#include "test/unit/seed.h"

static struct core_heap own;
static struct device device;
static struct engine *engine;
static struct heap_grant grant;

static void report_part(size_t offset, uint64_t bytes, bool born)
{
	static uint64_t in_use;

	in_use += born ? bytes : -bytes;
	lifetimes_tell(&(struct lifetimes_report){.address = grant.address + offset,
						  .bytes = bytes,
						  .born = born,
						  .reserved = 64 * MIB,
						  .allocated = in_use,
						  .reporter = &own});
}

static void report(size_t offset, bool born)
{
	report_part(offset, 4 * MIB, born);
}

static void submit(size_t offset)
{
	struct submission *use = submission_open(HOOK_cuLaunchKernel);

	assert_non_null(use);
	submission_name(use, grant.address + offset, 0);
	submission_close(use, admit(use));
}

static bool is_dead(size_t offset)
{
	const struct live_now late = {.done = UINT64_MAX, .unfinished = true};
	uint64_t begin = grant.address + offset - heap_arena(own.heap)->base;

	return live_map_is_dead(lifetimes_map(engine->lifetimes), begin, begin + 4 * MIB, late);
}

static void read_all(void)
{
	while (intake_read(engine))
		;
}

/* ---- another thread's event, which takes long to be written ---- */

static uint64_t place;
static bool ends_in_between; /* when it has been found to be incomplete, and before it is looked at once more */

static void other_begins(void)
{
	place = atomic_fetch_add(&engine->lifetimes->head, 1);
}

static void other_ends(void)
{
	struct lifetimes_record *record = &engine->lifetimes->ring[place % LIFETIMES_RING];

	/* The death of what was not born. */
	record->kind = LIFETIMES_DIED;
	record->begin = 60 * MIB;
	record->end = 61 * MIB;
	record->report = (struct live_report){0};
	record->position = 0;
	atomic_store_explicit(&record->sequence, place + 1, memory_order_release);
}

bool __real_lifetimes_is_read(const struct lifetimes *lifetimes, size_t position);
bool __wrap_lifetimes_is_read(const struct lifetimes *lifetimes, size_t position);
bool __wrap_lifetimes_is_read(const struct lifetimes *lifetimes, size_t position)
{
	if (ends_in_between)
		other_ends();
	ends_in_between = false;
	return __real_lifetimes_is_read(lifetimes, position);
}

BEFORE_ALL
{
	core_driver();
	core_heap_open(&own, 128 * MIB, 128 * MIB, 0);
	assert_ok(heap_alloc(own.heap, 64 * MIB, CHUNK_MOVABLE, HEAP_DEVICE, &grant));
	lifetimes_allocated(heap_arena(own.heap)->lifetimes, grant.address, 64 * MIB, 0, &own);
	report(0, true);
	report(4 * MIB, true);
	report(0, false);
	engine = core_engine(&own, &device, false);
	mover_keep(engine, POLICY_CONTENTS_ALIVE, true);
	/* Submissions that are made now are not seen; what they name has died before. */
	report(4 * MIB, false);
	report(16 * MIB, true);
	report(16 * MIB, false);
	assert_true(submission_add_arena(heap_arena(own.heap), &engine->channel));
	submission_set_tracking(true, true);
}

TEST(what_died_before_the_mover_looked_may_have_been_named)
{
	other_begins();
	report(20 * MIB, true);
	report(20 * MIB, false);
	read_all();
	other_ends();
	read_all();
	assert_false(is_dead(20 * MIB));
	assert_false(is_dead(0));
	assert_false(is_dead(4 * MIB));
	assert_false(is_dead(16 * MIB));
	/* From now on all is seen. */
	report(0, true);
	report(0, false);
	read_all();
	assert_true(is_dead(0));
	submit(1 * MIB);
	read_all();
	assert_false(is_dead(0));
}

TEST(what_died_before_a_lost_submission_may_have_been_named)
{
	uint64_t lost = atomic_load(&engine->channel.log.lost);

	report(8 * MIB, true);
	submit(8 * MIB);
	read_all();
	/* One is born before, the other one not: both die behind what is read next. */
	submit(40 * MIB);
	report(12 * MIB, true);
	report(8 * MIB, false);
	report(12 * MIB, false);
	while (atomic_load(&engine->channel.log.lost) == lost)
		submit(40 * MIB);
	submit(8 * MIB);
	submit(12 * MIB);
	assert_true(atomic_load(&engine->channel.log.lost) > lost);
	read_all();
	assert_false(is_dead(8 * MIB));
	assert_false(is_dead(12 * MIB));
	report(12 * MIB, true);
	report(12 * MIB, false);
	read_all();
	assert_true(is_dead(12 * MIB));
}

/* The submission that names it is behind its death, wherever that is read. */
TEST(what_was_named_after_its_death_is_alive)
{
	report(24 * MIB, true);
	read_all();
	other_begins();
	report(24 * MIB, false);
	submit(24 * MIB);
	ends_in_between = true;
	read_all();
	assert_false(ends_in_between);
	read_all();
	assert_false(is_dead(24 * MIB));
	report(24 * MIB, true);
	report(24 * MIB, false);
	read_all();
	assert_true(is_dead(24 * MIB));
}

/* Returns whether the piece that has this byte may move without a copy, if it moves now. */
static bool moves_empty(size_t offset)
{
	const struct arena *arena = heap_arena(own.heap);
	uint32_t unit = arena_unit(arena, grant.address + offset);

	alive_hear(engine);
	return alive_is_none(engine, arena_unit(arena, grant.address), atomic_load(&arena->piece[unit]) - 1);
}

/* This thread goes on: what it has reported as dead counts. */
static void go_on(void)
{
	stats_call(HOOK_cuLaunchKernel);
	engine->link.in_gap = true;
}

/* Three tensors one behind the other, of which the second dies. */
static void live_and_die(void)
{
	report(44 * MIB, true);
	report(48 * MIB, true);
	report(52 * MIB, true);
	report(48 * MIB, false);
	go_on();
	read_all();
	assert_true(moves_empty(48 * MIB));
}

TEST(a_name_that_was_not_read_reaches_what_is_dead_behind_it)
{
	live_and_die();
	/* Alive: nothing else is meant. */
	submit(45 * MIB);
	assert_true(moves_empty(48 * MIB));
	report(44 * MIB, false);
	go_on();
	read_all();
	assert_true(moves_empty(48 * MIB));
	submit(45 * MIB);
	assert_false(moves_empty(48 * MIB));
	read_all();
	assert_false(moves_empty(48 * MIB));
	/* Behind the piece, in what has died there. */
	report(48 * MIB, true);
	report(48 * MIB, false);
	go_on();
	read_all();
	assert_true(moves_empty(48 * MIB));
	submit(51 * MIB);
	assert_false(moves_empty(48 * MIB));
	read_all();
	assert_false(moves_empty(48 * MIB));
	/* Neither was its death. */
	live_and_die();
	report(44 * MIB, false);
	assert_true(moves_empty(48 * MIB));
	submit(45 * MIB);
	assert_false(moves_empty(48 * MIB));
	read_all();
	assert_false(moves_empty(48 * MIB));
}

TEST(while_births_are_lost_nothing_moves_empty_and_later_it_does_again)
{
	struct live_range range;

	live_and_die();
	assert_true(alive_find(engine, grant.address + 45 * MIB, &range));
	while (lifetimes_is_known(engine->lifetimes))
		report(56 * MIB, atomic_load(&engine->lifetimes->head) % 2);
	report(48 * MIB, true);
	submit(48 * MIB);
	/* By what was read it is dead. */
	assert_false(moves_empty(48 * MIB));
	assert_false(alive_find(engine, grant.address + 45 * MIB, &range));
	read_all();
	assert_false(moves_empty(48 * MIB));
	assert_true(alive_find(engine, grant.address + 45 * MIB, &range));
	live_and_die();
}

/* ---- anything ---- */

enum { SLOTS = 64, STEPS = 8000 }; /* of 1 MiB */

/* A tensor begins in the slot; how many it has: 0: none does. */
static unsigned slots[SLOTS];

static void tell(unsigned slot, unsigned n, bool born)
{
	report_part(slot * MIB, n * MIB, born);
	slots[slot] = born ? n : 0;
}

static void give_birth(struct seed *seed)
{
	unsigned begin = (unsigned)seed_below(seed, SLOTS), end = begin;

	for (unsigned slot = 0; slot < begin; slot++)
		if (slot + slots[slot] > begin)
			return;
	while (end < SLOTS && end < begin + 6 && !slots[end])
		end++;
	if (end > begin)
		tell(begin, 1 + (unsigned)seed_below(seed, end - begin), true);
}

/* Until one is lost: the death of what was not born. */
static void lose_reports(void)
{
	while (lifetimes_is_known(engine->lifetimes))
		lifetimes_own_tell(engine->lifetimes,
				   &(struct lifetimes_report){.address = grant.address, .bytes = 512});
}

static void check_alive(unsigned step)
{
	for (unsigned slot = 0; slot < SLOTS; slot++)
		for (unsigned i = slot; i < slot + slots[slot]; i++)
			if (moves_empty(i / 2 * 2 * MIB))
				fail_msg("step %u: the tensor at %u MiB is alive", step, slot);
}

static void step(struct seed *seed)
{
	unsigned slot = (unsigned)seed_below(seed, SLOTS);

	switch (seed_below(seed, 8)) {
	case 0:
	case 1:
		give_birth(seed);
		break;
	case 2:
		submit(slot * MIB + 512);
		break;
	case 3:
	case 4:
	case 5:
		while (slot < SLOTS && !slots[slot])
			slot++;
		if (slot < SLOTS)
			tell(slot, slots[slot], false);
		break;
	case 6:
		if (seed_below(seed, 50) == 0)
			lose_reports();
		go_on();
		break;
	default:
		go_on();
		break;
	}
}

/*
 * What a piece holds does not depend on when a submission is read: what it keeps alive was not dead before. What was
 * born and has not died is alive, whatever reports were lost.
 */
TEST(whatever_is_submitted_keeps_what_it_names_from_then_on)
{
	struct seed seed = seed_start("alive_lost_test");
	bool empty[SLOTS / 2];
	unsigned n_empty = 0;

	read_all();
	live_map_restart(lifetimes_map(engine->lifetimes));
	for (unsigned i = 0; i < STEPS; i++) {
		step(&seed);
		for (unsigned piece = 0; piece < SLOTS / 2; piece++) {
			empty[piece] = moves_empty(piece * 2 * MIB);
			n_empty += empty[piece];
		}
		check_alive(i);
		if (seed_below(&seed, 4))
			continue;
		read_all();
		check_alive(i);
		for (unsigned piece = 0; piece < SLOTS / 2; piece++)
			if (empty[piece] && !moves_empty(piece * 2 * MIB))
				fail_msg("step %u: what lies at %u MiB was dead", i, piece * 2);
	}
	assert_true(n_empty > 100);
}
