#include "shim/stats.h"

#include <string.h>

struct stats stats;
__thread unsigned stats_my_stripe __attribute__((tls_model("initial-exec")));

#define N_UNKNOWN     8
#define UNKNOWN_BYTES 64
static char unknown[N_UNKNOWN][UNKNOWN_BYTES];
static atomic_uint n_unknown;
static atomic_bool unknown_ready[N_UNKNOWN];

unsigned stats_take_stripe(void)
{
	static atomic_uint next;

	return stats_my_stripe = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % STATS_STRIPES + 1;
}

uint64_t stats_get(enum stat stat)
{
	return atomic_load_explicit(&stats.counter[stat], memory_order_relaxed);
}

uint64_t stats_calls(enum hook_id id)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < STATS_STRIPES; i++)
		sum += atomic_load_explicit(&stats.stripe[i].calls[id], memory_order_relaxed);
	return sum;
}

void stats_live_add(enum place place, uint64_t bytes)
{
	uint64_t now = atomic_fetch_add_explicit(&stats.live[place], bytes, memory_order_relaxed) + bytes;
	uint64_t peak = atomic_load_explicit(&stats.peak[place], memory_order_relaxed);

	while (now > peak && !atomic_compare_exchange_weak_explicit(&stats.peak[place], &peak, now,
								    memory_order_relaxed, memory_order_relaxed))
		;
}

void stats_live_sub(enum place place, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&stats.live[place], bytes, memory_order_relaxed);
}

uint64_t stats_live(enum place place)
{
	return atomic_load_explicit(&stats.live[place], memory_order_relaxed);
}

uint64_t stats_peak(enum place place)
{
	return atomic_load_explicit(&stats.peak[place], memory_order_relaxed);
}

const char *stats_place_name(enum place place)
{
	static const char *const names[] = {
	    [PLACE_DEVICE] = "device", [PLACE_HOST] = "host",     [PLACE_MANAGED] = "managed",
	    [PLACE_SYSTEM] = "system", [PLACE_DRIVER] = "driver", [PLACE_PINNED] = "pinned",
	};
	return (unsigned)place < PLACE_COUNT ? names[place] : "?";
}

void stats_unknown(const char *name)
{
	unsigned n = atomic_load(&n_unknown);

	for (unsigned i = 0; i < n && i < N_UNKNOWN; i++)
		if (atomic_load(&unknown_ready[i]) && !strncmp(unknown[i], name, UNKNOWN_BYTES - 1))
			return;
	n = atomic_fetch_add(&n_unknown, 1);
	if (n >= N_UNKNOWN)
		return;
	stats_add(STAT_unknown_names, 1);
	snprintf(unknown[n], UNKNOWN_BYTES, "%s", name);
	atomic_store(&unknown_ready[n], true);
}

const char *stats_unknown_names(char *buffer, size_t bytes)
{
	size_t at = 0;

	buffer[0] = 0;
	for (unsigned i = 0; i < N_UNKNOWN; i++) {
		if (!atomic_load(&unknown_ready[i]))
			continue;
		int n = snprintf(buffer + at, bytes - at, "%s%s", at ? " " : "", unknown[i]);
		if (n < 0 || at + (size_t)n >= bytes)
			break;
		at += (size_t)n;
	}
	return buffer;
}
