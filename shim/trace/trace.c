// SPDX-License-Identifier: Apache-2.0
/*
 * The writing side of the trace: gives each thread a ring and writes the records of its events into it.
 *
 * A ring has one writer, its thread, and one reader, the drainer. The writer fills words after the head and advances
 * the head when the record is complete; the drainer reads up to the head and advances the tail. The writer keeps the
 * last tail that it read, and reads it again only if that leaves no space.
 *
 * A record is begun, filled and committed; that of a submission is filled while its operands are read. An event of a
 * signal handler that interrupts this on the same thread is dropped and counted.
 */
#include "policy/policy.h"
#include "shim/base/array.h"
#include "shim/base/call_site.h"
#include "shim/base/log.h"
#include "shim/process/process.h"
#include "shim/trace/trace_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static __thread struct ring *mine __attribute__((tls_model("initial-exec")));

/* ---- rings ---- */

static void trace_leave(void *argument)
{
	struct ring *ring = argument;

	mine = NULL;
	atomic_store_explicit(&ring->state, RING_LEFT, memory_order_release);
}

static struct ring *new_ring(void)
{
	if (atomic_fetch_add(&trace_state.rings.n_made, 1) >= RINGS_MOST)
		return NULL;
	void *words = lazy_memory_new(RING_WORDS * sizeof(uint64_t));
	struct ring *ring = words ? aligned_alloc(_Alignof(struct ring), sizeof(*ring)) : NULL;
	if (!ring) {
		lazy_memory_free(words, RING_WORDS * sizeof(uint64_t));
		return NULL;
	}
	memset(ring, 0, sizeof(*ring));
	ring->words = words;
	return ring;
}

/* Returns an empty ring whose thread has ended, marked as taken, or NULL. */
static struct ring *old_ring(void)
{
	for (struct ring *ring = atomic_load(&trace_state.rings.first); ring; ring = ring->next) {
		int is = RING_FREE;

		if (atomic_compare_exchange_strong(&ring->state, &is, RING_TAKEN))
			return ring;
	}
	return NULL;
}

/*
 * Starts the drainer at the first event of the process, so that a process without events gets neither a thread nor a
 * file.
 *
 * Locking: takes TRACE_START, unless the drainer runs already.
 */
static bool has_thread(void)
{
	if (atomic_load(&trace_state.start.drainer_is) == DRAINER_STARTED)
		return true;
	lock_take(&trace_state.start.lock);
	if (trace_state.start.drainer_is == DRAINER_NONE) {
		trace_state.start.drainer_is = drain_start() ? DRAINER_STARTED : DRAINER_REFUSED;
		if (trace_state.start.drainer_is == DRAINER_REFUSED)
			trace_fail("no thread can be had for it");
	}
	bool has = trace_state.start.drainer_is == DRAINER_STARTED;
	lock_drop(&trace_state.start.lock);
	return has;
}

static struct ring *take_ring(void)
{
	char name[16] = "?"; /* the kernel's limit for a thread name */
	int saved = errno;

	if (!has_thread()) {
		errno = saved;
		return &trace_state.rings.none;
	}
	struct ring *ring = old_ring();
	bool is_new = !ring;
	if (is_new)
		ring = new_ring();
	if (ring) {
		prctl(PR_GET_NAME, name);
		snprintf(ring->name, sizeof(ring->name), "%s %ld", name, (long)syscall(SYS_gettid));
		ring->number = atomic_fetch_add(&trace_state.rings.n_threads, 1) + 1;
		atomic_store_explicit(&ring->busy, false, memory_order_relaxed);
		ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
		atomic_store_explicit(&ring->state, RING_USED, memory_order_release);
		if (is_new) {
			ring->next = atomic_load(&trace_state.rings.first);
			while (!atomic_compare_exchange_weak(&trace_state.rings.first, &ring->next, ring))
				;
		}
		if (trace_state.rings.has_key)
			pthread_setspecific(trace_state.rings.at_end, ring);
	}
	errno = saved;
	return mine = ring ? ring : &trace_state.rings.none;
}

/* ---- records ---- */

static void look_at_tail(struct ring *ring)
{
	ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
}

static inline void trace_put(struct ring *ring, uint64_t word)
{
	if (__builtin_expect(ring->at - ring->tail_seen >= RING_WORDS, 0))
		look_at_tail(ring);
	if (__builtin_expect(ring->at - ring->tail_seen >= RING_WORDS, 0))
		ring->full = true;
	else
		ring->words[ring->at++ % RING_WORDS] = word;
}

/* Returns the thread's ring, or NULL if the event is dropped. */
static inline struct ring *trace_begin(void)
{
	struct ring *ring = mine;

	if (__builtin_expect(!ring, 0))
		ring = take_ring();
	if (__builtin_expect(atomic_load_explicit(&ring->busy, memory_order_relaxed), 0)) {
		atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
		return NULL;
	}
	atomic_store_explicit(&ring->busy, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst); /* a signal handler from here on sees `busy` */
	ring->full = false;
	ring->at = atomic_load_explicit(&ring->head, memory_order_relaxed);
	trace_put(ring, 0);
	trace_put(ring, 0);
	return ring;
}

static inline void trace_commit(struct ring *ring, uint32_t kind, uint32_t id, uint64_t time)
{
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	if (__builtin_expect(ring->full, 0)) {
		atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
	} else {
		ring->words[head % RING_WORDS] = RECORD(kind, id, ring->at - head);
		ring->words[(head + 1) % RING_WORDS] = time;
		atomic_store_explicit(&ring->head, ring->at, memory_order_release);
	}
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&ring->busy, false, memory_order_relaxed);
	if (__builtin_expect(ring->at - ring->tail_seen > RING_WORDS / 2, 0)) {
		look_at_tail(ring);
		if (ring->at - ring->tail_seen > RING_WORDS / 2)
			drain_hurry();
	}
}

void trace_write(uint32_t kind, uint64_t time, const uint64_t *fields, unsigned n)
{
	struct ring *ring = trace_begin();

	if (!ring)
		return;
	for (unsigned i = 0; i < n; i++)
		trace_put(ring, fields[i]);
	trace_commit(ring, kind, 0, time ? time : clock_now());
}

bool trace_submit_begin(void)
{
	struct ring *ring = trace_is_on() ? trace_begin() : NULL;

	if (!ring)
		return false;
	trace_put(ring, 0); /* function */
	trace_put(ring, 0); /* device */
	return true;
}

void trace_submit_name(uint64_t address, uint64_t bytes)
{
	trace_put(mine, (address & ~(uint64_t)(TRACE_UNIT - 1)) | (bytes != 0));
	if (bytes)
		trace_put(mine, bytes);
}

void trace_submit_commit(uint64_t function, uint32_t id, int device)
{
	struct ring *ring = mine;
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	if (!ring->full) {
		ring->words[(head + 2) % RING_WORDS] = trace_function(function, id);
		ring->words[(head + 3) % RING_WORDS] = (uint64_t)(device < 0 ? 0 : device);
	}
	trace_commit(ring, TRACE_submit, id, clock_now());
}

/*
 * The function of a copy or set is a number with bit 63 set that also depends on its length. The addresses of the
 * record give the length already, so the trace uses the entry point.
 */
uint64_t trace_function(uint64_t function, uint32_t id)
{
	return function >> 63 ? id : function;
}

/* ---- start and end ---- */

static const char *trace_pattern(void)
{
	const char *value = secure_getenv("SPILLWAY_TRACE");

	return value && *value ? value : NULL;
}

bool trace_is_wanted(void)
{
	return trace_pattern() && !process_is_off();
}

void trace_start(const struct policy *read, const struct trace_sources *from)
{
	if (!trace_pattern())
		return;
	call_site_callers();
	trace_state.start.policy = read;
	trace_state.rings.has_key = pthread_key_create(&trace_state.rings.at_end, trace_leave) == 0;
	trace_state.start.sources = from;
	atomic_store(&trace_on, true);
	from->submissions(true);
}

void trace_end(void)
{
	if (!trace_is_on())
		return;
	state_stop();
	/* Without events there is no file, and none is created just for `end`. */
	if (atomic_load(&trace_state.rings.first) || trace_lost())
		drain_last();
	if (trace_lost())
		log_line("  %llu events of the trace had no room and are missing in it",
			 (unsigned long long)trace_lost());
}
