/*
 * stats.h: counters and gauges. No lock: relaxed atomics, on the launch path one of 16 padded stripes by thread.
 *
 * Figures of two counters read at different moments need not fit together to the byte while the program runs.
 */
#ifndef SPILLWAY_STATS_H
#define SPILLWAY_STATS_H

#include "shim/real.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

/* Where live bytes are. Every row of the ledger counts in exactly one place, heap blocks chunk by chunk in two. */
enum place {
	PLACE_DEVICE,  /* heap chunks in device memory */
	PLACE_HOST,    /* heap chunks in host memory */
	PLACE_MANAGED, /* managed memory: the program's own, and what it asked for as device memory */
	PLACE_SYSTEM,  /* pages of the process that it asked for as device memory */
	PLACE_DRIVER,  /* device memory the driver gave directly: passed through, pools, the program's cuMemCreate */
	PLACE_PINNED,  /* host memory the program pinned itself */
	PLACE_COUNT,   /* must be last */
};

enum stat {
#define STAT(name, text) STAT_##name,
#include "shim/stats.def"
	STAT_COUNT, /* must be last */
};

#define STATS_STRIPES 16

struct stats {
	_Atomic uint64_t counter[STAT_COUNT];
	_Atomic uint64_t live[PLACE_COUNT], peak[PLACE_COUNT];
	/* Calls by row; striped so that threads that launch at once do not share a cache line. */
	struct {
		_Atomic uint64_t calls[HOOK_COUNT];
	} __attribute__((aligned(64))) stripe[STATS_STRIPES];
};

extern struct stats stats;
extern __thread unsigned stats_my_stripe __attribute__((tls_model("initial-exec"))); /* stripe + 1; 0 = none yet */

unsigned stats_take_stripe(void);

/* A hooked entry point was reached. On the launch path: one thread-local load, one uncontended atomic add. */
static inline void stats_call(enum hook_id id)
{
	unsigned stripe = stats_my_stripe;

	if (__builtin_expect(!stripe, 0))
		stripe = stats_take_stripe();
	atomic_fetch_add_explicit(&stats.stripe[stripe - 1].calls[id], 1, memory_order_relaxed);
}

static inline void stats_add(enum stat stat, uint64_t n)
{
	atomic_fetch_add_explicit(&stats.counter[stat], n, memory_order_relaxed);
}

uint64_t stats_get(enum stat stat);
uint64_t stats_calls(enum hook_id id);

void stats_live_add(enum place place, uint64_t bytes);
void stats_live_sub(enum place place, uint64_t bytes);
uint64_t stats_live(enum place place);
uint64_t stats_peak(enum place place);
const char *stats_place_name(enum place place);

/* Remember an entry point that no list knows; each name counts once. */
void stats_unknown(const char *name);
/* The kept names, separated by blanks; "" when there are none. */
const char *stats_unknown_names(char *buffer, size_t bytes);

#endif
