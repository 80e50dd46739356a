// SPDX-License-Identifier: Apache-2.0
/*
 * lifetimes_ring_test.c: in which order events are read, and what is known if some were lost.
 */
#include "test/unit/lifetimes_help.h"
#include "test/unit/live_map_check.h"
#include "test/unit/seed.h"

static const struct live_now late = {.done = UINT64_MAX, .unfinished = true};

TEST(events_are_read_at_their_place_among_submissions)
{
	struct lifetimes_event event;

	allocated_and_told(0, 4 * MIB, 4 * MIB);
	tell(0, MIB, false, 4 * MIB);
	lifetimes_take_over(lifetimes, &position);
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).alive, 0);
	/* What submissions named before is not known. */
	live_map_restart(lifetimes_map(lifetimes));
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).alive, 4 * MIB);
	atomic_store(&position, 6);
	tell(0, MIB, true, 4 * MIB);
	atomic_store(&position, 7);
	tell(0, MIB, false, 4 * MIB);
	assert_false(lifetimes_read(lifetimes, 5, &event));
	assert_true(lifetimes_read(lifetimes, 6, &event));
	assert_int_equal(event.kind, LIFETIMES_BORN);
	assert_false(lifetimes_read(lifetimes, 6, &event));
	assert_true(lifetimes_is_read(lifetimes, 6));
	assert_false(lifetimes_is_read(lifetimes, 7));
	assert_false(live_map_is_dead(lifetimes_map(lifetimes), 0, MIB, late));
	assert_true(lifetimes_read(lifetimes, 7, &event));
	assert_int_equal(event.kind, LIFETIMES_DIED);
	assert_int_equal(event.end, MIB);
	assert_int_equal(event.report.number, 3);
	assert_true(live_map_is_dead(lifetimes_map(lifetimes), 0, MIB, late));
}

/* A launch of this thread, as its entry point counts it. */
static void launch(void)
{
	stats_call(HOOK_cuLaunchKernel);
}

TEST(deaths_count_when_their_thread_has_submitted)
{
	static const struct live_now now = {.done = UINT64_MAX};

	allocated(BASE, 4 * MIB, 0);
	tell(0, 4 * MIB, true, 4 * MIB);
	launch();
	tell(0, 4 * MIB, false, 4 * MIB);
	lifetimes_take_over(lifetimes, &position);
	lifetimes_hear(lifetimes);
	assert_false(live_map_is_dead(lifetimes_map(lifetimes), 0, 4 * MIB, now));
	stats_call(HOOK_cuMemAlloc_v2);
	lifetimes_hear(lifetimes);
	assert_false(live_map_is_dead(lifetimes_map(lifetimes), 0, 4 * MIB, now));
	launch();
	assert_false(live_map_is_dead(lifetimes_map(lifetimes), 0, 4 * MIB, now));
	lifetimes_hear(lifetimes);
	assert_true(live_map_is_dead(lifetimes_map(lifetimes), 0, 4 * MIB, now));
}

/* Although the thread has submitted nothing since: an allocation never has the contents of an earlier one. */
TEST(in_blocks_of_the_librarys_own_deaths_count_and_births_are_empty)
{
	struct lifetimes_report part = {
	    .address = BASE + 4 * MIB, .bytes = 8 * MIB, .born = true, .number = 3, .own = 1};
	struct live_map *map = lifetimes_map(lifetimes);

	lifetimes_own(lifetimes, BASE, 20 * MIB);
	launch();
	lifetimes_own_tell(lifetimes, &part);
	part.born = false;
	lifetimes_own_tell(lifetimes, &part);
	read_all();
	assert_true(live_map_is_dead(map, 4 * MIB, 12 * MIB, (struct live_now){.done = 3}));
	assert_false(live_map_is_dead(map, 4 * MIB, 12 * MIB, (struct live_now){.done = 2}));
	part.born = true;
	lifetimes_own_tell(lifetimes, &part);
	read_all();
	assert_true(live_map_is_dead(map, 4 * MIB, 12 * MIB, (struct live_now){.done = 3, .idle = 3}));
	assert_false(live_map_is_dead(map, 4 * MIB, 12 * MIB, (struct live_now){.done = 3}));
	assert_false(live_map_is_dead(map, 4 * MIB, 12 * MIB, (struct live_now){.done = 4, .idle = 4}));
}

/* More threads than have stripes of their own; whoever has none shares one with the launches of others. */
#define MANY 40

static void *report_once(void *argument)
{
	uint64_t at = (uintptr_t)argument * 2 * MIB;

	tell_both(at, 2 * MIB, 2 * MIB * MANY);
	return NULL;
}

static void *launch_once(void *unused)
{
	launch();
	return NULL;
}

TEST(submissions_of_other_threads_do_not_make_deaths_count)
{
	static const struct live_now now = {.done = UINT64_MAX};

	allocated_and_told(0, 2 * MIB * MANY, 2 * MIB * MANY);
	tell(0, MIB, false, 2 * MIB * MANY);
	for (uintptr_t i = 1; i < MANY; i++)
		test_beside(report_once, (void *)i);
	for (unsigned i = 0; i < 2 * STATS_SHARED; i++)
		test_beside(launch_once, NULL);
	lifetimes_take_over(lifetimes, &position);
	lifetimes_hear(lifetimes);
	for (uint64_t i = 0; i < MANY; i++)
		assert_false(live_map_is_dead(lifetimes_map(lifetimes), i * 2 * MIB, i * 2 * MIB + MIB, now));
}

TEST(before_there_is_a_mover_the_ring_is_read_by_its_writers)
{
	allocated_and_told(0, 4 * MIB, 4 * MIB);
	for (unsigned i = 0; i < 200000; i++)
		tell(0, MIB, i % 2, 4 * MIB);
	tell(2 * MIB, MIB, true, 4 * MIB);
	assert_true(is_reported_at(0));
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).alive, 2 * MIB);
}

/* ---- a full ring ---- */

#define OWN (512 * MIB) /* from BASE: the library's own, in which anything may be told */

/* Writes events until only `room` more find a place. */
static void fill_but(uint64_t room)
{
	const struct lifetimes_report part = {.address = BASE + OWN, .bytes = MIB, .born = true};

	for (uint64_t used = atomic_load(&lifetimes->head) - lifetimes->tail; used + room < LIFETIMES_RING; used++)
		lifetimes_own_tell(lifetimes, &part);
}

/* A block of the allocator's, and one of the library's own; the mover reads. */
static void begin_reading(void)
{
	allocated_and_told(0, 8 * MIB, 8 * MIB);
	lifetimes_own(lifetimes, BASE + OWN, 2 * MIB);
	lifetimes_take_over(lifetimes, &position);
}

static bool is_dead(uint64_t begin, uint64_t end)
{
	read_all();
	return live_map_is_dead(lifetimes_map(lifetimes), begin, end, late);
}

/* One of them was held up in the middle of an event. */
TEST(a_ring_that_its_writers_did_not_read_in_time_is_read_by_the_next_one)
{
	uint64_t place;

	allocated_and_told(0, 8 * MIB, 8 * MIB);
	struct lifetimes_record *record = lifetimes_begin_write(lifetimes, &place);
	assert_non_null(record);
	for (unsigned i = 0; i < 100000; i++)
		tell(2 * MIB, MIB, i % 2 == 0, 8 * MIB);
	*record = (struct lifetimes_record){.kind = LIFETIMES_DIED, .end = MIB, .sequence = record->sequence};
	lifetimes_end_write(lifetimes, record, place);
	tell(4 * MIB, MIB, true, 8 * MIB);
	tell_both(4 * MIB, MIB, 8 * MIB);
	assert_true(is_reported_at(0));
	assert_true(live_map_is_dead(lifetimes_map(lifetimes), 4 * MIB, 5 * MIB, late));
}

TEST(after_a_lost_event_all_is_alive_until_its_next_birth_and_death)
{
	begin_reading();
	for (unsigned i = 0; i < 200000; i++)
		tell(0, MIB, i % 2, 8 * MIB);
	assert_true(is_reported_at(0));
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).alive, 10 * MIB);
	tell_both(2 * MIB, MIB, 8 * MIB);
	assert_true(is_dead(2 * MIB, 3 * MIB));
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).dead, MIB);
	/* So is a block that was made since. */
	allocated_and_told(64 * MIB, 4 * MIB, 12 * MIB);
	assert_true(is_reported_at(64 * MIB) && is_dead(65 * MIB, 68 * MIB));
}

TEST(until_a_loss_is_read_nothing_is_known)
{
	struct lifetimes_event event;

	begin_reading();
	fill_but(0);
	assert_true(lifetimes_is_known(lifetimes));
	assert_false(lifetimes_is_unread(lifetimes, 0, 8 * MIB, true));
	tell(2 * MIB, MIB, true, 8 * MIB);
	for (unsigned i = 0; i < LIFETIMES_RING; i++) {
		assert_false(lifetimes_is_known(lifetimes));
		assert_true(lifetimes_is_unread(lifetimes, 0, 8 * MIB, false));
		assert_true(lifetimes_read(lifetimes, 0, &event));
	}
	assert_true(lifetimes_read(lifetimes, 0, &event));
	assert_int_equal(event.kind, LIFETIMES_LOST);
	assert_true(lifetimes_is_known(lifetimes));
	assert_false(is_dead(2 * MIB, 3 * MIB));
	/* Another one is one more. */
	fill_but(0);
	tell(4 * MIB, MIB, true, 8 * MIB);
	assert_false(lifetimes_is_known(lifetimes));
	assert_true(lifetimes_read(lifetimes, 0, &event));
	fill_but(0);
	tell(5 * MIB, MIB, true, 8 * MIB);
	read_all();
	assert_true(lifetimes_is_known(lifetimes));
}

/* The death that is read is that of an earlier one at this address. */
TEST(a_death_before_a_lost_birth_does_not_count)
{
	begin_reading();
	fill_but(2);
	tell_both(2 * MIB, MIB, 8 * MIB);
	tell(2 * MIB, MIB, true, 8 * MIB);
	assert_false(is_dead(2 * MIB, 3 * MIB));
	/* Its own does not either: nobody knows how far it reached. */
	tell(2 * MIB, MIB, false, 8 * MIB);
	assert_false(is_dead(2 * MIB, 3 * MIB));
}

TEST(where_a_death_was_lost_what_is_born_there_later_ends_it_as_far_as_it_reaches)
{
	begin_reading();
	tell(2 * MIB, 4 * MIB, true, 8 * MIB);
	fill_but(0);
	tell(2 * MIB, 4 * MIB, false, 8 * MIB);
	assert_false(is_dead(2 * MIB, 3 * MIB));
	tell_both(2 * MIB, MIB, 8 * MIB);
	assert_true(is_dead(2 * MIB, 3 * MIB));
	assert_false(is_dead(3 * MIB, 6 * MIB));
}

TEST(what_was_freed_unseen_is_alive_until_it_is_freed_once_more)
{
	begin_reading();
	fill_but(0);
	lifetimes_freed(lifetimes, BASE, 8 * MIB);
	allocated_for(&other, BASE, 8 * MIB, 0);
	read_all();
	/* Part of a pool of somebody else's, of which the allocator reports. */
	tell_both(2 * MIB, MIB, 8 * MIB);
	assert_false(is_reported_at(0) || is_dead(2 * MIB, 3 * MIB));
	lifetimes_freed(lifetimes, BASE, 8 * MIB);
	allocated_and_told(0, 8 * MIB, 16 * MIB);
	assert_true(is_reported_at(0) && is_dead(2 * MIB, 3 * MIB));
}

TEST(what_a_graph_named_unseen_is_alive_until_it_is_freed)
{
	begin_reading();
	fill_but(0);
	lifetimes_distrust(lifetimes, BASE + MIB, BASE, 8 * MIB);
	assert_false(is_reported_at(0));
	tell_both(2 * MIB, MIB, 8 * MIB);
	assert_false(is_dead(2 * MIB, 3 * MIB));
	fill_but(0);
	lifetimes_distrust_all();
	assert_false(is_reported_at(OWN));
}

/* ---- anything, with a ring that is full most of the time ---- */

enum { BLOCKS = 8, SLOTS = 4, STEPS = 40000 }; /* slots of 1 MiB */

static struct {
	enum { NOBODYS, ALLOCATORS, OTHERS } whose;
	bool all;               /* is alive: a graph has named it */
	unsigned begins[SLOTS]; /* how many slots the tensor has that begins there; 0: none does */
	bool alive[SLOTS];
} blocks[BLOCKS];
static uint64_t kept; /* bytes that the allocator has */

static void tell_tensor(unsigned block, unsigned slot, unsigned n, bool born)
{
	blocks[block].begins[slot] = born ? n : 0;
	for (unsigned i = slot; i < slot + n; i++)
		blocks[block].alive[i] = born;
	tell((block * SLOTS + slot) * MIB, n * MIB, born, kept);
}

static void allocate(unsigned block, bool by_other)
{
	allocated_for(by_other ? &other : &allocator, BASE + block * SLOTS * MIB, SLOTS * MIB, 0);
	blocks[block].whose = by_other ? OTHERS : ALLOCATORS;
	if (by_other)
		return;
	kept += SLOTS * MIB;
	tell_tensor(block, 0, 1, true);
}

/* All tensors die first. */
static void free_block(unsigned block)
{
	for (unsigned slot = 0; slot < SLOTS; slot++)
		if (blocks[block].begins[slot])
			tell_tensor(block, slot, blocks[block].begins[slot], false);
	kept -= blocks[block].whose == ALLOCATORS ? SLOTS * MIB : 0;
	lifetimes_freed(lifetimes, BASE + block * SLOTS * MIB, SLOTS * MIB);
	memset(&blocks[block], 0, sizeof(blocks[block]));
}

static void live_or_die(struct seed *seed, unsigned block)
{
	unsigned slot = (unsigned)seed_below(seed, SLOTS), n = 0;

	if (blocks[block].begins[slot]) {
		tell_tensor(block, slot, blocks[block].begins[slot], false);
		return;
	}
	while (slot + n < SLOTS && !blocks[block].alive[slot + n])
		n++;
	if (n)
		tell_tensor(block, slot, 1 + (unsigned)seed_below(seed, n), true);
}

static void step(struct seed *seed)
{
	unsigned block = (unsigned)seed_below(seed, BLOCKS), what = (unsigned)seed_below(seed, 200);

	if (blocks[block].whose == NOBODYS) {
		allocate(block, what % 8 == 0);
	} else if (what < 4) {
		free_block(block);
	} else if (what == 4) {
		blocks[block].all = true;
		lifetimes_distrust(lifetimes, BASE + block * SLOTS * MIB, BASE + block * SLOTS * MIB, SLOTS * MIB);
	} else if (blocks[block].whose == ALLOCATORS) {
		live_or_die(seed, block);
	}
}

/* Returns whether the map says that it is dead. */
static bool check_slot(unsigned block, unsigned slot)
{
	uint64_t begin = (block * SLOTS + slot) * MIB;
	bool alive = blocks[block].alive[slot] || blocks[block].all || blocks[block].whose == OTHERS;
	bool dead = live_map_is_dead(lifetimes_map(lifetimes), begin, begin + MIB, late);

	if (alive && dead && !lifetimes_is_unread(lifetimes, begin, begin + MIB, false))
		fail_msg("slot %u of block %u is alive, and said to be dead", slot, block);
	return dead && lifetimes_is_known(lifetimes);
}

TEST(whatever_is_lost_nothing_that_is_alive_is_taken_to_be_dead)
{
	struct seed seed = seed_start("lifetimes_ring_test");
	struct lifetimes_event event;
	unsigned n_dead = 0, n_lost = 0;

	memset(blocks, 0, sizeof(blocks));
	kept = 0;
	lifetimes_own(lifetimes, BASE + OWN, 2 * MIB);
	lifetimes_take_over(lifetimes, &position);
	for (unsigned i = 0; i < STEPS; i++) {
		step(&seed);
		if (seed_below(&seed, 1000) == 0)
			fill_but(seed_below(&seed, 40));
		for (unsigned n = seed_below(&seed, 2000) ? (unsigned)seed_below(&seed, 2) : 2 * LIFETIMES_RING;
		     n && lifetimes_read(lifetimes, 0, &event); n--)
			n_lost += event.kind == LIFETIMES_LOST;
		for (unsigned block = 0; block < BLOCKS; block++)
			n_dead += check_slot(block, i % SLOTS);
	}
	assert_true(n_lost > 0 && n_dead > 0);
	assert_true(live_map_is_valid(lifetimes_map(lifetimes)));
}

/* Threads report of blocks of their own; the mover reads meanwhile. */
#define THREADS 4
#define ROUNDS  50000
static _Atomic unsigned n_running;

static void *report_much(void *argument)
{
	uint64_t at = (uintptr_t)argument * 4 * MIB;

	for (unsigned i = 0; i < ROUNDS; i++) {
		tell_both(at, MIB, 4 * MIB * THREADS);
		if (i % 64 == 0)
			sched_yield();
	}
	tell(at, 2 * MIB, true, 4 * MIB * THREADS);
	atomic_fetch_sub(&n_running, 1);
	return NULL;
}

TEST(threads_may_report_while_the_mover_reads)
{
	pthread_t thread[THREADS];

	allocated_and_told(0, 4 * MIB * THREADS, 4 * MIB * THREADS);
	lifetimes_take_over(lifetimes, &position);
	live_map_restart(lifetimes_map(lifetimes));
	read_all();
	atomic_store(&n_running, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, report_much, (void *)i), 0);
	while (atomic_load(&n_running))
		read_all();
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	read_all();
	/* The second half of each block is alive since the mover took over. */
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).alive, 4 * MIB * THREADS);
	assert_true(live_map_is_valid(lifetimes_map(lifetimes)));
}

EACH_TEST(lifetimes_begin, lifetimes_end)
