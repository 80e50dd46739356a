/*
 * Wait times of submissions, and the time during which at least one waits.
 */
#include "shim/stats/waiting.h"
#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/stats/stats.h"
#include "shim/stats/stats_state.h"

#include <stdbool.h>

static uint64_t waiting_counted(uint64_t since, uint64_t now)
{
	uint64_t ns = now > since ? now - since : 0;

	return ns < WAITING_MOST_NS ? ns : WAITING_MOST_NS;
}

/*
 * Adds the time since the last check by any thread, and starts the next interval. `since` is cleared first and set
 * last: a reader in between sees a little less, and never counts time twice.
 */
static void count_until(uint64_t now)
{
	uint64_t since = atomic_load_explicit(&stats.waiting_since, memory_order_relaxed);

	atomic_store(&stats.waiting_since, 0);
	if (since)
		stats_add(STAT_waiting_us, waiting_counted(since, now) / 1000);
	if (stats_state.waiting.n_waiting)
		atomic_store(&stats.waiting_since, now);
}

/* Changes the number of waiting threads and counts up to now. Returns the time. Locking: takes WAITING. */
static uint64_t waiting_count(int change)
{
	lock_take(&stats_state.waiting.lock);
	uint64_t now = clock_now();
	stats_state.waiting.n_waiting += (unsigned)change;
	count_until(now);
	lock_drop(&stats_state.waiting.lock);
	return now;
}

void waiting_begin(struct waiting *waiting)
{
	uint64_t now = waiting_count(1);

	*waiting = (struct waiting){.began = now, .looked = now};
}

static void waiting_look_one(struct waiting *waiting, uint64_t now)
{
	waiting->ns += waiting_counted(waiting->looked, now);
	waiting->looked = now;
}

void waiting_look(struct waiting *waiting)
{
	waiting_look_one(waiting, waiting_count(0));
}

uint64_t waiting_end(struct waiting *waiting, const unsigned sites[], unsigned n)
{
	waiting_look_one(waiting, waiting_count(-1));
	uint64_t us = waiting->ns / 1000;

	stats_add(STAT_waits, 1);
	stats_add(STAT_wait_us, us);
	stats_took(HISTOGRAM_wait_ns, waiting->ns);
	for (unsigned i = 0; i < n; i++)
		stats_waited(sites[i], us);
	return waiting->looked - waiting->began - waiting->ns;
}
