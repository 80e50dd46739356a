/*
 * segments_end.c: the events of segments, and their end: who finds out that a segment is unused, and when it becomes a
 * free block.
 */
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"
#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/process/process.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/segments_internal.h"
#include "shim/serve/serve_state.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/*
 * Ticks without use after which a segment is freed: as many as idle host memory stays (heap_lock.c). A program whose
 * steps take less than this has the same addresses in each; meanwhile what is dead leaves the device first. If the user
 * has said how much idle memory is kept, or other processes are short of host memory, unused segments go at once.
 */
#define UNUSED_TICKS 20
/* After so long without a tick, ticks have stopped (heap_lock.c): then what is unused is freed at once. */
#define TICKING_NS 3000000000u
/* A pass gives up after this many events that have not completed: later ones have hardly completed either. */
#define MOST_WAITING 2

void segment_note(struct segment *segment)
{
	bool still = !segment->held && !segment->ending;
	bool waits = segment->event && still && (!segment->n_parts || !segment->order);
	bool unused = !segment->event && still && !segment->n_parts;

	lock_assert_held(LOCK_DEFERRED_FREE);
	if (waits != segment->counted)
		atomic_fetch_add(&serve_state.segments.n_waiting, waits ? 1 : -1u);
	segment->counted = waits;
	if (unused != segment->unused)
		heap_set_unused(segment_heap(segment), segment->block, unused);
	segment->unused = unused;
	if (!unused)
		segment->ticks = 0;
}

static bool is_ticking(void)
{
	uint64_t ticked = atomic_load(&serve_state.segments.ticked);

	return ticked && clock_now() - ticked < TICKING_NS;
}

/*
 * Frees the unused segments of a device (NULL: any) that had no use for this many ticks. Returns whether there were
 * any.
 */
static bool free_unused(const struct device *device, unsigned ticks)
{
	struct segment *list = NULL, *next;

	lock_take(&serve_state.deferred_free.lock);
	for (struct segment **at = &serve_state.segments.list; *at;) {
		struct segment *segment = *at;

		if (!segment->unused || segment->ticks < ticks || (device && segment->device != device)) {
			at = &segment->next;
			continue;
		}
		*at = segment->next;
		segment->next = list;
		list = segment;
	}
	lock_drop(&serve_state.deferred_free.lock);
	bool any = list != NULL;
	for (; list; list = next) {
		next = list->next;
		heap_free(segment_heap(list), list->block, list->base);
		free(list->holes);
		free(list);
	}
	return any;
}

/* Gives up after `most` events that have not completed. all: also those that matter to their own order only. */
static void look_at_events(unsigned most, bool all)
{
	unsigned n = 0;

	if (!all && !atomic_load_explicit(&serve_state.segments.n_waiting, memory_order_relaxed))
		return;
	CUstreamCaptureMode mode = capture_relax();
	lock_take(&serve_state.deferred_free.lock);
	for (struct segment *segment = serve_state.segments.list; segment && n < most; segment = segment->next) {
		if (!segment->counted && !(all && segment->event && !segment->held && !segment->ending))
			continue;
		if (REAL(cuEventQuery)(segment->event) != CUDA_SUCCESS) {
			n++;
			continue;
		}
		context_event_give(segment->context, segment->event);
		segment->event = NULL;
		if (!segment->n_parts)
			segment->order = 0;
		segment_note(segment);
	}
	lock_drop(&serve_state.deferred_free.lock);
	capture_restore(mode);
}

void segments_reap(void)
{
	if (!atomic_load_explicit(&serve_state.segments.n_waiting, memory_order_relaxed))
		return;
	look_at_events(MOST_WAITING, false);
	if (!is_ticking())
		free_unused(NULL, 0);
}

void segments_settle(void)
{
	look_at_events(UINT_MAX, true);
}

uint64_t segments_waiting(uint64_t pool_id)
{
	uint64_t units = 0;

	segments_settle();
	lock_take(&serve_state.deferred_free.lock);
	for (const struct segment *segment = serve_state.segments.list; segment; segment = segment->next)
		if (segment->event && segment->pool_id == pool_id)
			units += segment->units - segment->used;
	lock_drop(&serve_state.deferred_free.lock);
	return units * HEAP_UNIT;
}

bool segments_give_up(const struct device *device)
{
	look_at_events(UINT_MAX, false);
	return free_unused(device, 0);
}

bool segments_wait(const struct device *device)
{
	const struct timespec step = {.tv_nsec = 50000};
	bool any = segments_give_up(device);
	int before;

	/* As in deferred_free_wait(). */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	for (unsigned i = 0; i < DEFERRED_FREE_PATIENCE_MS * 20 && !any && atomic_load(&serve_state.segments.n_waiting);
	     i++) {
		nanosleep(&step, NULL);
		any = segments_give_up(device);
	}
	pthread_setcancelstate(before, NULL);
	return any;
}

void segments_tick(void)
{
	atomic_store(&serve_state.segments.ticked, clock_now());
	look_at_events(UINT_MAX, false);
	lock_take(&serve_state.deferred_free.lock);
	for (struct segment *segment = serve_state.segments.list; segment; segment = segment->next)
		segment->ticks += segment->unused;
	lock_drop(&serve_state.deferred_free.lock);
	bool at_once = process_settings()->heap_release_threshold.kind != POLICY_SIZE_AUTO || quota_is_asked();
	free_unused(NULL, at_once ? 0 : UNUSED_TICKS);
}

void segments_stream_ending(CUstream stream)
{
	lock_take(&serve_state.deferred_free.lock);
	for (struct segment *segment = serve_state.segments.list; segment; segment = segment->next)
		if (segment->order == (uintptr_t)stream) {
			segment->order = 0;
			segment_note(segment);
		}
	lock_drop(&serve_state.deferred_free.lock);
}

void segments_context_ending(CUcontext context)
{
	lock_take(&serve_state.deferred_free.lock);
	for (struct segment *segment = serve_state.segments.list; segment; segment = segment->next)
		if (segment->context == context) {
			segment->ending = true;
			segment_note(segment);
		}
	lock_drop(&serve_state.deferred_free.lock);
}

void segments_context_ended(CUcontext context, bool ended)
{
	lock_take(&serve_state.deferred_free.lock);
	for (struct segment *segment = serve_state.segments.list; segment; segment = segment->next) {
		if (segment->context != context || !segment->ending)
			continue;
		segment->ending = false;
		if (ended) {
			segment->event = NULL;
			segment->order = 0;
			segment->lost = segment->held;
		}
		segment_note(segment);
	}
	lock_drop(&serve_state.deferred_free.lock);
}
