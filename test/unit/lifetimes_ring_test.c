/*
 * lifetimes_ring_test.c: which blocks are reported by an allocator, and in which order events are read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

#include "shim/lifetimes/lifetimes_internal.h"
#include "shim/stats/stats.h"

#define MIB   ((uint64_t)1 << 20)
#define BASE  (UINT64_C(1) << 40)
#define BYTES (UINT64_C(1) << 30)

static const struct live_now late = {.done = UINT64_MAX, .unfinished = true};
static struct lifetimes *lifetimes;
static _Atomic size_t position;

static int begin(void **state)
{
	(void)state;
	lifetimes = lifetimes_new(0, BASE, BYTES);
	assert_non_null(lifetimes);
	atomic_store(&position, 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	lifetimes_free(lifetimes);
	return 0;
}

/* Ranges are in bytes from BASE. */
static void tell(uint64_t at, uint64_t bytes, bool born, uint64_t reserved)
{
	lifetimes_tell(&(struct lifetimes_report){.device = 0,
						  .address = BASE + at,
						  .bytes = bytes,
						  .born = born,
						  .reserved = reserved,
						  .number = 3,
						  .own = 3});
}

static void read_all(void)
{
	struct lifetimes_event event;

	while (lifetimes_read(lifetimes, atomic_load(&position), &event))
		;
}

static bool is_reported(uint64_t at)
{
	read_all();
	return live_map_is_reported(lifetimes_map(lifetimes), at);
}

/* ---- which blocks are reported ---- */

static void a_block_is_reported_whose_bytes_the_allocator_has_just_reserved(void **state)
{
	(void)state;
	lifetimes_allocated(lifetimes, BASE + 2 * MIB, 20 * MIB, 0);
	tell(2 * MIB, MIB, true, 20 * MIB);
	assert_true(is_reported(2 * MIB));
	assert_true(is_reported(21 * MIB));
	assert_false(is_reported(22 * MIB));
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).alive, MIB);
	/* A second one, beside memory that this thread has allocated for something else. */
	lifetimes_allocated(lifetimes, BASE + 100 * MIB, 8 * MIB, 0);
	lifetimes_allocated(lifetimes, BASE + 40 * MIB, 6 * MIB, 0);
	tell(40 * MIB, MIB, true, 26 * MIB);
	assert_true(is_reported(40 * MIB));
	assert_false(is_reported(100 * MIB));
}

static void a_part_of_what_somebody_else_has_allocated_is_not(void **state)
{
	(void)state;
	lifetimes_allocated(lifetimes, BASE, 64 * MIB, 0);
	tell(0, MIB, true, 20 * MIB);
	assert_false(is_reported(0));
	tell(20 * MIB, MIB, true, 40 * MIB);
	assert_false(is_reported(20 * MIB));
	/* Nor is it when the allocator reports the next time. */
	lifetimes_allocated(lifetimes, BASE + 64 * MIB, 20 * MIB, 0);
	tell(MIB, MIB, true, 40 * MIB);
	tell(3 * MIB, MIB, true, 60 * MIB);
	assert_false(is_reported(0));
	assert_false(is_reported(64 * MIB));
	/* As many bytes for something else, while the allocator gets that many from elsewhere. */
	lifetimes_allocated(lifetimes, BASE + 96 * MIB, 20 * MIB, 0);
	tell(40 * MIB, MIB, true, 80 * MIB);
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).reported, 0);
	assert_false(is_reported(96 * MIB));
}

static void *allocate_elsewhere(void *unused)
{
	(void)unused;
	lifetimes_allocated(lifetimes, BASE, 20 * MIB, 0);
	return NULL;
}

static void what_another_thread_has_allocated_is_not(void **state)
{
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	tell(0, MIB, true, 20 * MIB);
	assert_false(is_reported(0));
}

static void blocks_freed_since_do_not_hide_a_new_one(void **state)
{
	(void)state;
	lifetimes_allocated(lifetimes, BASE, 20 * MIB, 0);
	tell(0, MIB, true, 20 * MIB);
	tell(0, MIB, false, 20 * MIB);
	lifetimes_freed(lifetimes, BASE, 20 * MIB);
	lifetimes_allocated(lifetimes, BASE + 32 * MIB, 30 * MIB, 0);
	tell(32 * MIB, MIB, true, 30 * MIB);
	assert_false(is_reported(0));
	assert_true(is_reported(32 * MIB));
	/* And what was freed before it was reported is nobody's. */
	lifetimes_allocated(lifetimes, BASE + 64 * MIB, 4 * MIB, 0);
	lifetimes_freed(lifetimes, BASE + 64 * MIB, 4 * MIB);
	tell(33 * MIB, MIB, true, 34 * MIB);
	assert_false(is_reported(64 * MIB));
}

static void if_the_allocator_has_less_and_freed_nothing_it_is_not_trusted(void **state)
{
	(void)state;
	lifetimes_allocated(lifetimes, BASE, 20 * MIB, 0);
	tell(0, MIB, true, 20 * MIB);
	lifetimes_allocated(lifetimes, BASE + 20 * MIB, 6 * MIB, 0);
	tell(20 * MIB, MIB, true, 26 * MIB);
	/* Freed by any thread. */
	lifetimes_freed(lifetimes, BASE + 20 * MIB, 6 * MIB);
	tell(2 * MIB, MIB, true, 20 * MIB);
	assert_true(is_reported(0));
	/* Memory that is not its own does not count. */
	lifetimes_freed(lifetimes, BASE + 40 * MIB, 4 * MIB);
	tell(3 * MIB, MIB, true, 16 * MIB);
	assert_false(is_reported(0));
}

static void what_is_placed_where_something_was_unmapped_is_not_new(void **state)
{
	(void)state;
	lifetimes_allocated(lifetimes, BASE, 4 * MIB, BASE);
	tell(0, MIB, true, 4 * MIB);
	assert_true(is_reported(0));
	lifetimes_freed(lifetimes, BASE, 4 * MIB);
	lifetimes_allocated(lifetimes, BASE, 4 * MIB, BASE);
	tell(MIB, MIB, true, 4 * MIB);
	assert_false(is_reported(0));
}

static void what_is_placed_where_a_graph_may_use_everything_is_not_reported(void **state)
{
	(void)state;
	lifetimes_allocated(lifetimes, BASE + 100 * MIB, 20 * MIB, 0);
	tell(100 * MIB, MIB, true, 20 * MIB);
	lifetimes_reserved(lifetimes, BASE);
	lifetimes_allocated(lifetimes, BASE, 8 * MIB, BASE);
	tell(0, MIB, true, 28 * MIB);
	assert_true(is_reported(0));
	lifetimes_distrust(lifetimes, BASE + 6 * MIB, BASE, 64 * MIB);
	assert_false(is_reported(0));
	/* Nor when it is unmapped and mapped again. */
	for (unsigned i = 0; i < 2; i++) {
		lifetimes_allocated(lifetimes, BASE + 8 * MIB, 8 * MIB, BASE);
		tell(8 * MIB, MIB, true, 36 * MIB);
		assert_false(is_reported(8 * MIB));
		assert_false(lifetimes_is_reported(lifetimes, BASE + 8 * MIB, 8 * MIB));
		lifetimes_freed(lifetimes, BASE + 8 * MIB, 8 * MIB);
		tell(2 * MIB, MIB, true, 28 * MIB);
	}
	/* The allocator has given back what was its own: the others are trusted. */
	assert_true(is_reported(100 * MIB));
	lifetimes_freed(lifetimes, BASE, 8 * MIB);
	tell(101 * MIB, MIB, true, 20 * MIB);
	lifetimes_reserved(lifetimes, BASE);
	lifetimes_allocated(lifetimes, BASE + 8 * MIB, 8 * MIB, BASE);
	tell(8 * MIB, MIB, true, 28 * MIB);
	assert_true(is_reported(8 * MIB) && is_reported(100 * MIB));
}

static void a_graph_finds_the_rest_of_a_space_by_what_is_not_reported_there(void **state)
{
	(void)state;
	lifetimes_reserved(lifetimes, BASE);
	lifetimes_allocated(lifetimes, BASE, 4 * MIB, BASE);
	tell(0, MIB, true, 4 * MIB);
	lifetimes_allocated(lifetimes, BASE + 4 * MIB, 4 * MIB, BASE);
	tell(4 * MIB, MIB, true, 8 * MIB);
	lifetimes_freed(lifetimes, BASE, 4 * MIB);
	lifetimes_allocated(lifetimes, BASE, 4 * MIB, BASE);
	tell(MIB, MIB, true, 8 * MIB);
	assert_true(!is_reported(0) && is_reported(4 * MIB));
	lifetimes_distrust(lifetimes, BASE, BASE, 64 * MIB);
	assert_false(is_reported(4 * MIB));
}

static void parts_that_follow_each_other_count_together(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 50; i++)
		lifetimes_allocated(lifetimes, BASE + 2 * MIB * i, 2 * MIB, BASE);
	tell(0, MIB, true, 100 * MIB);
	assert_true(is_reported(0));
	assert_true(is_reported(99 * MIB));
}

static void a_block_used_in_a_capture_is_distrusted(void **state)
{
	(void)state;
	lifetimes_allocated(lifetimes, BASE, 20 * MIB, 0);
	tell(0, MIB, true, 20 * MIB);
	assert_true(is_reported(0));
	lifetimes_tell(&(struct lifetimes_report){
	    .address = BASE, .bytes = MIB, .reserved = 20 * MIB, .block = BASE, .block_bytes = 20 * MIB});
	assert_false(is_reported(0));
	assert_false(live_map_is_dead(lifetimes_map(lifetimes), 2 * MIB, 4 * MIB, late));
	lifetimes_freed(lifetimes, BASE, 20 * MIB);
	lifetimes_allocated(lifetimes, BASE, 20 * MIB, 0);
	tell(0, MIB, true, 20 * MIB);
	assert_true(is_reported(0));
	lifetimes_distrust(lifetimes, BASE + MIB, BASE, 20 * MIB);
	assert_false(is_reported(0));
}

/* A thread that has marked a block, and is held up before it writes so into the ring. */
static _Atomic bool is_held;
static _Atomic unsigned n_held;

struct lifetimes_record *__real_lifetimes_begin_write(struct lifetimes *lifetimes, uint64_t *ret_at);
struct lifetimes_record *__wrap_lifetimes_begin_write(struct lifetimes *lifetimes, uint64_t *ret_at);

struct lifetimes_record *__wrap_lifetimes_begin_write(struct lifetimes *of, uint64_t *ret_at)
{
	bool first = atomic_load(&is_held) && atomic_fetch_add(&n_held, 1) == 0;

	while (first && atomic_load(&is_held))
		sched_yield();
	return __real_lifetimes_begin_write(of, ret_at);
}

static void *distrust_slowly(void *unused)
{
	(void)unused;
	lifetimes_distrust(lifetimes, BASE, BASE, 20 * MIB);
	return NULL;
}

static void whoever_distrusts_a_block_while_another_thread_does_is_read_too(void **state)
{
	pthread_t thread;

	(void)state;
	lifetimes_allocated(lifetimes, BASE, 20 * MIB, 0);
	tell(0, MIB, true, 20 * MIB);
	atomic_store(&n_held, 0);
	atomic_store(&is_held, true);
	assert_int_equal(pthread_create(&thread, NULL, distrust_slowly, NULL), 0);
	while (!atomic_load(&n_held))
		sched_yield();
	lifetimes_distrust(lifetimes, BASE + 3 * MIB, BASE, 20 * MIB);
	assert_false(is_reported(0));
	atomic_store(&is_held, false);
	assert_int_equal(pthread_join(thread, NULL), 0);
	/* Afterwards nothing is written for it any more. */
	read_all();
	lifetimes_distrust(lifetimes, BASE + 3 * MIB, BASE, 20 * MIB);
	assert_true(lifetimes_is_read(lifetimes, 0));
}

/* ---- what the program itself says ---- */

static void declare(uint64_t at, uint64_t bytes, bool born, uint64_t block, uint64_t block_bytes)
{
	lifetimes_declare(&(struct lifetimes_report){.address = BASE + at, .bytes = bytes, .born = born, .number = 3},
			  BASE + block, block_bytes);
}

static void of_a_block_the_program_may_say_what_is_in_it(void **state)
{
	struct live_map *map = lifetimes_map(lifetimes);

	(void)state;
	/* Not a death first. */
	declare(5 * MIB, MIB, false, 4 * MIB, 20 * MIB);
	assert_false(is_reported(4 * MIB));
	declare(5 * MIB, MIB, true, 4 * MIB, 20 * MIB);
	assert_true(is_reported(4 * MIB) && is_reported(23 * MIB));
	assert_int_equal(live_map_sums(map).alive, 20 * MIB);
	declare(5 * MIB, MIB, false, 4 * MIB, 20 * MIB);
	read_all();
	assert_int_equal(live_map_sums(map).dead, MIB);
	/* What it frees is not what the allocator has given back. */
	lifetimes_allocated(lifetimes, BASE + 64 * MIB, 20 * MIB, 0);
	tell(64 * MIB, MIB, true, 20 * MIB);
	lifetimes_freed(lifetimes, BASE + 4 * MIB, 20 * MIB);
	assert_true(!is_reported(4 * MIB) && is_reported(64 * MIB));
	tell(65 * MIB, MIB, true, MIB); /* the allocator has given something away */
	assert_false(is_reported(64 * MIB));
}

static void what_a_block_has_grown_by_takes_part(void **state)
{
	struct live_map *map = lifetimes_map(lifetimes);

	(void)state;
	declare(4 * MIB, MIB, true, 4 * MIB, 20 * MIB);
	declare(4 * MIB, MIB, false, 4 * MIB, 20 * MIB);
	read_all();
	assert_int_equal(live_map_sums(map).dead, MIB);
	declare(4 * MIB, MIB, true, 4 * MIB, 40 * MIB);
	assert_true(is_reported(43 * MIB) && !is_reported(44 * MIB));
	assert_int_equal(live_map_sums(map).alive, 40 * MIB);
	/* A death may come first. What is behind stays alive. */
	declare(4 * MIB, MIB, false, 4 * MIB, 60 * MIB);
	assert_true(is_reported(63 * MIB));
	assert_int_equal(live_map_sums(map).alive, 59 * MIB);
	declare(50 * MIB, 2 * MIB, true, 4 * MIB, 60 * MIB);
	declare(50 * MIB, 2 * MIB, false, 4 * MIB, 60 * MIB);
	read_all();
	assert_true(live_map_is_dead(map, 50 * MIB, 52 * MIB, late));
}

static void a_block_of_which_the_program_speaks_for_a_part_is_distrusted(void **state)
{
	(void)state;
	declare(4 * MIB, MIB, true, 4 * MIB, 20 * MIB);
	declare(4 * MIB, MIB, false, 4 * MIB, 20 * MIB);
	lifetimes_allocated(lifetimes, BASE + 24 * MIB, 20 * MIB, 0);
	tell(24 * MIB, MIB, true, 20 * MIB);
	assert_true(is_reported(4 * MIB) && is_reported(24 * MIB));
	declare(4 * MIB, MIB, true, 4 * MIB, 40 * MIB);
	assert_false(is_reported(4 * MIB) || is_reported(24 * MIB));
	assert_false(live_map_is_dead(lifetimes_map(lifetimes), 4 * MIB, 5 * MIB, late));
}

static void of_the_allocators_blocks_it_may_not(void **state)
{
	(void)state;
	lifetimes_allocated(lifetimes, BASE, 20 * MIB, 0);
	tell(0, MIB, true, 20 * MIB);
	tell(4 * MIB, MIB, true, 20 * MIB);
	declare(0, MIB, false, 0, 20 * MIB);
	declare(4 * MIB, 2 * MIB, true, 0, 20 * MIB);
	read_all();
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).alive, 2 * MIB);
}

static void nor_of_those_that_a_graph_has_named(void **state)
{
	(void)state;
	lifetimes_distrust(lifetimes, BASE + 3 * MIB, BASE + 2 * MIB, 20 * MIB);
	declare(2 * MIB, MIB, true, 2 * MIB, 20 * MIB);
	assert_false(is_reported(2 * MIB));
	/* Until it is freed. */
	lifetimes_freed(lifetimes, BASE + 2 * MIB, 20 * MIB);
	declare(2 * MIB, MIB, true, 2 * MIB, 20 * MIB);
	assert_true(is_reported(2 * MIB));
	lifetimes_distrust(lifetimes, BASE + 9 * MIB, BASE + 2 * MIB, 20 * MIB);
	assert_false(is_reported(2 * MIB));
	declare(2 * MIB, MIB, true, 2 * MIB, 20 * MIB);
	assert_false(is_reported(2 * MIB));
	/* One that cannot be read may name any. */
	lifetimes_distrust_all();
	declare(100 * MIB, MIB, true, 100 * MIB, 20 * MIB);
	assert_false(is_reported(100 * MIB));
}

/* A pool of somebody else, in memory that the library divides, of which the allocator was given a part. */
static void what_the_allocator_does_in_blocks_of_the_librarys_own_does_not_count(void **state)
{
	const struct lifetimes_report part = {
	    .address = BASE + 4 * MIB, .bytes = 8 * MIB, .born = true, .number = 1, .own = 1};

	(void)state;
	lifetimes_own(lifetimes, BASE, 20 * MIB);
	lifetimes_own_tell(lifetimes, &part);
	tell(6 * MIB, 2 * MIB, true, 2 * MIB);
	tell(6 * MIB, 2 * MIB, false, 2 * MIB);
	assert_true(is_reported(6 * MIB));
	assert_false(live_map_is_dead(lifetimes_map(lifetimes), 6 * MIB, 8 * MIB, late));
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).alive, 8 * MIB);
}

/* ---- the order of events ---- */

static void events_are_read_at_their_place_among_submissions(void **state)
{
	struct lifetimes_event event;

	(void)state;
	lifetimes_allocated(lifetimes, BASE, 4 * MIB, 0);
	tell(0, MIB, true, 4 * MIB);
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

static void deaths_count_when_their_thread_has_submitted(void **state)
{
	static const struct live_now now = {.done = UINT64_MAX};

	(void)state;
	lifetimes_allocated(lifetimes, BASE, 4 * MIB, 0);
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
static void in_blocks_of_the_librarys_own_deaths_count_and_births_are_empty(void **state)
{
	struct lifetimes_report part = {
	    .address = BASE + 4 * MIB, .bytes = 8 * MIB, .born = true, .number = 3, .own = 1};
	struct live_map *map = lifetimes_map(lifetimes);

	(void)state;
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

	tell(at, 2 * MIB, true, 2 * MIB * MANY);
	tell(at, 2 * MIB, false, 2 * MIB * MANY);
	return NULL;
}

static void *launch_once(void *unused)
{
	(void)unused;
	launch();
	return NULL;
}

static void submissions_of_other_threads_do_not_make_deaths_count(void **state)
{
	static const struct live_now now = {.done = UINT64_MAX};
	pthread_t thread;

	(void)state;
	lifetimes_allocated(lifetimes, BASE, 2 * MIB * MANY, 0);
	tell(0, MIB, true, 2 * MIB * MANY);
	tell(0, MIB, false, 2 * MIB * MANY);
	for (uintptr_t i = 1; i < MANY; i++) {
		assert_int_equal(pthread_create(&thread, NULL, report_once, (void *)i), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	for (unsigned i = 0; i < 2 * STATS_SHARED; i++) {
		assert_int_equal(pthread_create(&thread, NULL, launch_once, NULL), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	lifetimes_take_over(lifetimes, &position);
	lifetimes_hear(lifetimes);
	for (uint64_t i = 0; i < MANY; i++)
		assert_false(live_map_is_dead(lifetimes_map(lifetimes), i * 2 * MIB, i * 2 * MIB + MIB, now));
}

static void before_there_is_a_mover_the_ring_is_read_by_its_writers(void **state)
{
	(void)state;
	lifetimes_allocated(lifetimes, BASE, 4 * MIB, 0);
	tell(0, MIB, true, 4 * MIB);
	for (unsigned i = 0; i < 200000; i++)
		tell(0, MIB, i % 2, 4 * MIB);
	tell(2 * MIB, MIB, true, 4 * MIB);
	assert_true(is_reported(0));
	assert_int_equal(live_map_sums(lifetimes_map(lifetimes)).alive, 2 * MIB);
}

static void if_an_event_is_lost_everything_is_alive_from_then_on(void **state)
{
	(void)state;
	lifetimes_allocated(lifetimes, BASE, 4 * MIB, 0);
	tell(0, MIB, true, 4 * MIB);
	lifetimes_take_over(lifetimes, &position);
	for (unsigned i = 0; i < 200000; i++)
		tell(0, MIB, i % 2, 4 * MIB);
	assert_false(is_reported(0));
	assert_false(live_map_is_dead(lifetimes_map(lifetimes), 2 * MIB, 4 * MIB, late));
	lifetimes_freed(lifetimes, BASE, 4 * MIB);
	lifetimes_allocated(lifetimes, BASE, 4 * MIB, 0);
	tell(0, MIB, true, 8 * MIB);
	assert_false(is_reported(0));
}

/* Threads report of blocks of their own; the mover reads meanwhile. */
#define THREADS 4
#define ROUNDS  50000
static _Atomic unsigned n_running;

static void *report_much(void *argument)
{
	uint64_t at = (uintptr_t)argument * 4 * MIB;

	for (unsigned i = 0; i < ROUNDS; i++) {
		tell(at, MIB, true, 4 * MIB * THREADS);
		tell(at, MIB, false, 4 * MIB * THREADS);
		if (i % 64 == 0)
			sched_yield();
	}
	tell(at, 2 * MIB, true, 4 * MIB * THREADS);
	atomic_fetch_sub(&n_running, 1);
	return NULL;
}

static void threads_may_report_while_the_mover_reads(void **state)
{
	pthread_t thread[THREADS];

	(void)state;
	lifetimes_allocated(lifetimes, BASE, 4 * MIB * THREADS, 0);
	tell(0, MIB, true, 4 * MIB * THREADS);
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
	/*
	 * The second half of each block is alive since the mover took over. If the mover was held up for long, an event
	 * may have been lost; then nothing is reported.
	 */
	struct live_map_sums sums = live_map_sums(lifetimes_map(lifetimes));
	assert_true(!sums.reported || sums.alive == 4 * MIB * THREADS);
	assert_true(live_map_is_valid(lifetimes_map(lifetimes)));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_block_is_reported_whose_bytes_the_allocator_has_just_reserved),
	    TEST(a_part_of_what_somebody_else_has_allocated_is_not),
	    TEST(what_another_thread_has_allocated_is_not),
	    TEST(blocks_freed_since_do_not_hide_a_new_one),
	    TEST(if_the_allocator_has_less_and_freed_nothing_it_is_not_trusted),
	    TEST(what_is_placed_where_something_was_unmapped_is_not_new),
	    TEST(what_is_placed_where_a_graph_may_use_everything_is_not_reported),
	    TEST(a_graph_finds_the_rest_of_a_space_by_what_is_not_reported_there),
	    TEST(parts_that_follow_each_other_count_together),
	    TEST(a_block_used_in_a_capture_is_distrusted),
	    TEST(whoever_distrusts_a_block_while_another_thread_does_is_read_too),
	    TEST(what_the_allocator_does_in_blocks_of_the_librarys_own_does_not_count),
	    TEST(in_blocks_of_the_librarys_own_deaths_count_and_births_are_empty),
	    TEST(events_are_read_at_their_place_among_submissions),
	    TEST(deaths_count_when_their_thread_has_submitted),
	    TEST(submissions_of_other_threads_do_not_make_deaths_count),
	    TEST(before_there_is_a_mover_the_ring_is_read_by_its_writers),
	    TEST(if_an_event_is_lost_everything_is_alive_from_then_on),
	    TEST(threads_may_report_while_the_mover_reads),
	    TEST(of_a_block_the_program_may_say_what_is_in_it),
	    TEST(what_a_block_has_grown_by_takes_part),
	    TEST(a_block_of_which_the_program_speaks_for_a_part_is_distrusted),
	    TEST(of_the_allocators_blocks_it_may_not),
	    TEST(nor_of_those_that_a_graph_has_named), /* the last: a graph that cannot be read stays unread */
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
