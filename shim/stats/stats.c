/*
 * Counters, histograms and gauges of the statistics page, and the names of unknown entry points. Nothing here takes a
 * lock.
 */
#include "shim/stats/stats.h"
#include "shim/base/clock.h"
#include "shim/stats/stats_state.h"

#include <string.h>

__thread unsigned stats_my_stripe __attribute__((tls_model("initial-exec")));

unsigned stats_take_stripe(void)
{
	return stats_my_stripe =
		   atomic_fetch_add_explicit(&stats_state.count.next_stripe, 1, memory_order_relaxed) % STATS_SHARED +
		   1;
}

unsigned stats_own_stripe(void)
{
	unsigned n = atomic_load_explicit(&stats_state.count.n_own, memory_order_relaxed);

	do {
		if (n == STATS_STRIPES - STATS_SHARED)
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(&stats_state.count.n_own, &n, n + 1, memory_order_relaxed,
							memory_order_relaxed));
	return stats_my_stripe = STATS_SHARED + n + 1;
}

static const enum hook_id submissions[] = {
#define HOOK_LAUNCH(name, params, args) HOOK_##name,
#include "shim/driver/hooks.def"
    HOOK_cuMemcpyAsync,        HOOK_cuMemcpyAsync_ptsz,
    HOOK_cuMemcpyHtoDAsync_v2, HOOK_cuMemcpyHtoDAsync_v2_ptsz,
    HOOK_cuMemcpyDtoHAsync_v2, HOOK_cuMemcpyDtoHAsync_v2_ptsz,
    HOOK_cuMemcpyDtoDAsync_v2, HOOK_cuMemcpyDtoDAsync_v2_ptsz,
    HOOK_cuMemsetD8Async,      HOOK_cuMemsetD8Async_ptsz,
};

uint64_t stats_submissions(unsigned stripe)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < sizeof(submissions) / sizeof(submissions[0]); i++)
		sum += atomic_load_explicit(&stats_stripes[stripe - 1].calls[submissions[i]], memory_order_relaxed);
	return sum;
}

uint64_t stats_submitted(void)
{
	static const enum hook_id all[] = {
#define HOOK_SUBMIT(name, params, args)      HOOK_##name,
#define HOOK_SUBMIT_SYNC(name, params, args) HOOK_##name,
#include "shim/driver/hooks.def"
	};
	unsigned n_taken = atomic_load_explicit(&stats_state.count.next_stripe, memory_order_relaxed),
		 n_own = atomic_load_explicit(&stats_state.count.n_own, memory_order_relaxed);
	uint64_t sum = atomic_load_explicit(&stats_state.unknown.calls, memory_order_relaxed);

	for (unsigned stripe = 0; stripe < STATS_SHARED + n_own; stripe++) {
		if (stripe >= n_taken && stripe < STATS_SHARED)
			continue;
		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			sum += atomic_load_explicit(&stats_stripes[stripe].calls[all[i]], memory_order_relaxed);
	}
	return sum;
}

uint64_t stats_get(enum stats_counter stat)
{
	return stats_page_get(&stats, stat, clock_now());
}

uint64_t stats_calls(enum hook_id id)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < STATS_STRIPES; i++)
		sum += atomic_load_explicit(&stats_stripes[i].calls[id], memory_order_relaxed);
	return sum;
}

void stats_took(enum histogram histogram, uint64_t ns)
{
	atomic_fetch_add_explicit(&stats.histogram[histogram][stats_bucket(ns)], 1, memory_order_relaxed);
}

void stats_time(enum histogram histogram, uint64_t begin)
{
	stats_took(histogram, clock_now() - begin);
}

static void gauge_add(_Atomic uint64_t *live, _Atomic uint64_t *most, uint64_t bytes)
{
	uint64_t before = atomic_fetch_add_explicit(live, bytes, memory_order_relaxed);
	uint64_t peak = atomic_load_explicit(most, memory_order_relaxed);

	while (before + bytes > peak && !atomic_compare_exchange_weak_explicit(
					    most, &peak, before + bytes, memory_order_relaxed, memory_order_relaxed))
		;
}

/*
 * Integrates bytes over time without a lock and without reading old values: bytes that arrive at time t subtract
 * bytes x t, bytes that leave add it, and stats_page_get() adds the present bytes x now. The sums may overflow; their
 * difference is still correct.
 */
static void stats_weigh(uint64_t bytes, bool comes)
{
	uint64_t before = comes ? atomic_fetch_add_explicit(&stats_state.count.away, bytes, memory_order_relaxed)
				: atomic_fetch_sub_explicit(&stats_state.count.away, bytes, memory_order_relaxed);
	uint64_t after = comes ? before + bytes : before - bytes;
	uint64_t clock = clock_now(), now = clock - stats.start_clock, weight = bytes / 1024 * (now / 1000000);

	atomic_store_explicit(&stats.last_clock, clock, memory_order_relaxed);
	stats_add(STAT_host_time, comes ? -weight : weight);
	if (!before && after)
		stats_add(STAT_over_us, -(now / 1000));
	else if (before && !after)
		stats_add(STAT_over_us, now / 1000);
}

void stats_live_add(int device, enum place place, uint64_t bytes)
{
	gauge_add(&stats.live[place], &stats.peak[place], bytes);
	if ((unsigned)device < STATS_DEVICES)
		gauge_add(&stats.device[device].live[place], &stats.device[device].peak[place], bytes);
	if ((place == PLACE_HOST || place == PLACE_PEER) && bytes)
		stats_weigh(bytes, true);
}

void stats_live_sub(int device, enum place place, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&stats.live[place], bytes, memory_order_relaxed);
	if ((unsigned)device < STATS_DEVICES)
		atomic_fetch_sub_explicit(&stats.device[device].live[place], bytes, memory_order_relaxed);
	if ((place == PLACE_HOST || place == PLACE_PEER) && bytes)
		stats_weigh(bytes, false);
}

uint64_t stats_live(enum place place)
{
	return atomic_load_explicit(&stats.live[place], memory_order_relaxed);
}

uint64_t stats_peak(enum place place)
{
	return atomic_load_explicit(&stats.peak[place], memory_order_relaxed);
}

void stats_unknown_call(void)
{
	atomic_fetch_add_explicit(&stats_state.unknown.calls, 1, memory_order_relaxed);
}

void stats_unknown(const char *name)
{
	unsigned n = atomic_load(&stats_state.unknown.n);

	for (unsigned i = 0; i < n && i < N_UNKNOWN; i++)
		if (atomic_load(&stats_state.unknown.ready[i]) &&
		    !strncmp(stats_state.unknown.name[i], name, UNKNOWN_BYTES - 1))
			return;
	n = atomic_fetch_add(&stats_state.unknown.n, 1);
	if (n >= N_UNKNOWN)
		return;
	stats_add(STAT_unknown_names, 1);
	snprintf(stats_state.unknown.name[n], UNKNOWN_BYTES, "%s", name);
	atomic_store(&stats_state.unknown.ready[n], true);
}

const char *stats_unknown_names(char *buffer, size_t bytes)
{
	size_t at = 0;

	buffer[0] = 0;
	for (unsigned i = 0; i < N_UNKNOWN; i++) {
		if (!atomic_load(&stats_state.unknown.ready[i]))
			continue;
		int n = snprintf(buffer + at, bytes - at, "%s%s", at ? " " : "", stats_state.unknown.name[i]);
		if (n < 0 || at + (size_t)n >= bytes)
			break;
		at += (size_t)n;
	}
	return buffer;
}
