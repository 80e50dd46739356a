/*
 * waiting.h: measures how long submissions wait for memory that is being fetched.
 *
 * Two figures come from here. Each submission's own wait (STAT_wait_us and those by site) is summed over all of them,
 * so two threads that wait together count twice. STAT_waiting_us is the time during which at least one submission
 * waited: never more than the time that has passed. It grows while somebody waits, not only once a wait has ended.
 *
 * A process that is stopped (SIGSTOP, a debugger, a frozen cgroup, a suspended machine) does not wait for memory. A
 * waiting thread therefore looks at the clock every WAITING_LOOK_NS, and time between two looks counts up to
 * WAITING_MOST_NS (stats_page.h): more has passed only where the thread could not run.
 *
 * Locking: takes WAITING. Makes no driver call.
 */
#ifndef SPILLWAY_WAITING_H
#define SPILLWAY_WAITING_H

#include "shim/stats/stats_page.h"

#include <stdint.h>

#define WAITING_LOOK_NS (WAITING_MOST_NS / 2)

/* The wait of one submission, owned by the thread that waits. */
struct waiting {
	uint64_t began, looked; /* CLOCK_MONOTONIC */
	uint64_t ns;            /* counted so far */
};

void waiting_begin(struct waiting *waiting);
/* The caller must call this at least every WAITING_LOOK_NS while it waits. */
void waiting_look(struct waiting *waiting);
/* Ends a wait and counts it, also for the sites. Returns the time left out because the process was stopped, ns. */
uint64_t waiting_end(struct waiting *waiting, const unsigned sites[], unsigned n);

#endif
