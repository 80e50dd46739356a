// SPDX-License-Identifier: Apache-2.0
/*
 * waiting_test.c: how long submissions wait, on a clock of the test's own. Memory that nobody brings: no mover runs, so
 * a wait ends when the test answers it, or nobody has for as long as the engine is patient.
 */
#include "test/core/core.h"

#include "shim/mover/mover.h"
#include "shim/submit/submission.h"
#include "shim/stats/stats.h"

#include <limits.h>

#define SECOND (1000 * MS)

/* The time stands still but for waits, which last as long as asked for; in one of them the process is stopped. */
static uint64_t now_ns = 100 * SECOND;
static unsigned steps, stop_at_step;
static uint64_t stop_ns;

uint64_t __wrap_clock_now(void);
uint64_t __wrap_clock_now(void)
{
	return now_ns;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
	now_ns += steps++ == stop_at_step ? stop_ns : WAITING_LOOK_NS;
	return ETIMEDOUT;
}

static struct core_heap own_heap;
static struct engine *engine;
static struct named block;
static unsigned site;

static uint64_t get(enum stats_counter counter)
{
	return stats_page_get(&stats, counter, now_ns);
}

static uint64_t site_us(void)
{
	return stats.site[stats_site_place(site)].figures.figure[FIGURE_wait_us];
}

/* The longest wait that is in the histogram, ns, at least. */
static uint64_t longest(void)
{
	unsigned last = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		if (stats.histogram[HISTOGRAM_wait_ns][i])
			last = i;
	return stats_bucket_least(last);
}

/* Nobody answers: it ends when the engine's patience does, 2 s. */
static uint64_t wait_with_a_stop(unsigned at_step, uint64_t ns)
{
	stop_at_step = at_step;
	stop_ns = ns;
	steps = 0;
	return channel_wait(&engine->channel, &block, 1, false, NULL);
}

TEST(time_stopped_is_no_wait_of_a_site)
{
	assert_int_equal(wait_with_a_stop(3, 42 * SECOND), 42 * SECOND - WAITING_MOST_NS);
	assert_int_equal(site_us(), 2000000);
	assert_int_equal(get(STAT_wait_us), 2000000);
	assert_int_equal(get(STAT_waiting_us), 2000000);
	assert_int_equal(get(STAT_waits), 1);
	assert_true(longest() < 3 * SECOND);
}

/* Time in which nobody could answer is not time in which nobody did. */
TEST(a_stop_takes_nothing_of_the_patience)
{
	wait_with_a_stop(0, 42 * SECOND);
	assert_int_equal(steps, 19); /* of 100 ms; the stop counts for two of them */
}

TEST(a_wait_without_a_stop_counts_whole)
{
	assert_int_equal(wait_with_a_stop(UINT_MAX, 0), 0);
	assert_int_equal(site_us(), 2000000);
	assert_int_equal(get(STAT_waiting_us), 2000000);
}

/* Three submissions that wait for 1 s each, 0.9 s of it together. */
TEST(time_in_which_several_wait_counts_once)
{
	struct waiting one, two, three;

	waiting_begin(&one);
	now_ns += 50 * MS;
	waiting_begin(&two);
	now_ns += 50 * MS;
	waiting_begin(&three);
	for (unsigned i = 0; i < 9; i++) {
		waiting_look(&one);
		waiting_look(&two);
		waiting_look(&three);
		now_ns += 100 * MS;
	}
	waiting_end(&one, &site, 1);
	now_ns += 50 * MS;
	waiting_end(&two, &site, 1);
	now_ns += 50 * MS;
	waiting_end(&three, &site, 1);
	now_ns += 10 * SECOND;
	assert_int_equal(get(STAT_wait_us), 3000000);
	assert_int_equal(get(STAT_waiting_us), 1100000);
	assert_int_equal(site_us(), 3000000);
}

/* A reading in the middle of it: what has passed is there, and does not come again with the next one. */
TEST(a_wait_counts_in_the_time_in_which_it_is)
{
	struct waiting one;

	waiting_begin(&one);
	for (unsigned i = 0; i < 20; i++) {
		now_ns += 70 * MS;
		assert_int_equal(get(STAT_waiting_us), (i + 1) * 70000);
		waiting_look(&one);
		assert_int_equal(get(STAT_waiting_us), (i + 1) * 70000);
	}
	/* Stopped, and read meanwhile: it neither grows for ever nor goes back. */
	now_ns += 42 * SECOND;
	uint64_t stopped = get(STAT_waiting_us);
	assert_int_equal(stopped, 20 * 70000 + WAITING_MOST_NS / 1000);
	waiting_look(&one);
	assert_int_equal(get(STAT_waiting_us), stopped);
	waiting_end(&one, NULL, 0);
	assert_int_equal(get(STAT_waiting_us), stopped);
}

BEFORE_ALL
{
	core_start((const char *const[]){NULL});
	core_driver();
	core_heap_open(&own_heap, 64 * MIB, 64 * MIB, 0);
	static struct device device;
	engine = core_engine(&own_heap, &device, true);
	struct arena *arena = heap_arena(own_heap.heap);
	assert_true(submission_add_arena(arena, &engine->channel));
	arena_mark(arena, 0, 4, 1, 0, 0);
	site = stats_site(0, 0, -1, NULL, 8 * MIB);
	atomic_store(&arena->states[0].site, site);
	atomic_store(&arena->block_states[0].away, 1);
	block.address = arena_address(arena, 0);
	submission_set_tracking(true, false);
}

BEFORE_EACH
{
	memset((void *)stats.counter, 0, sizeof(stats.counter));
	memset((void *)stats.histogram, 0, sizeof(stats.histogram));
	memset((void *)&stats.site[stats_site_place(site)].figures, 0, sizeof(struct stats_figures));
}
