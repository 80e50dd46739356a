/*
 * lifetimes_ring_test.c: in which order events are read.
 */
#include "shim/stats/stats.h"
#include "test/unit/lifetimes_help.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static const struct live_now late = {.done = UINT64_MAX, .unfinished = true};

static void events_are_read_at_their_place_among_submissions(void **state)
{
	struct lifetimes_event event;

	(void)state;
	allocated(BASE, 4 * MIB, 0);
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
	allocated(BASE, 2 * MIB * MANY, 0);
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
	allocated(BASE, 4 * MIB, 0);
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
	allocated(BASE, 4 * MIB, 0);
	tell(0, MIB, true, 4 * MIB);
	lifetimes_take_over(lifetimes, &position);
	for (unsigned i = 0; i < 200000; i++)
		tell(0, MIB, i % 2, 4 * MIB);
	assert_false(is_reported(0));
	assert_false(live_map_is_dead(lifetimes_map(lifetimes), 2 * MIB, 4 * MIB, late));
	lifetimes_freed(lifetimes, BASE, 4 * MIB);
	allocated(BASE, 4 * MIB, 0);
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
	allocated(BASE, 4 * MIB * THREADS, 0);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, lifetimes_begin, lifetimes_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(events_are_read_at_their_place_among_submissions),
	    TEST(deaths_count_when_their_thread_has_submitted),
	    TEST(in_blocks_of_the_librarys_own_deaths_count_and_births_are_empty),
	    TEST(submissions_of_other_threads_do_not_make_deaths_count),
	    TEST(before_there_is_a_mover_the_ring_is_read_by_its_writers),
	    TEST(if_an_event_is_lost_everything_is_alive_from_then_on),
	    TEST(threads_may_report_while_the_mover_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
