// SPDX-License-Identifier: Apache-2.0
/*
 * segments.c: the parts of segments: best fit, the lowest address among equal ones, so that equal sequences of
 * allocations and frees give equal addresses. Freeing joins neighbours and needs no memory.
 */
#include "shim/serve/segments.h"
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/heap/migration.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/submit/completion.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>

/* A free part, in units from the beginning of the segment. */
struct hole {
	uint32_t unit, units;
};

/* Guarded by DEFERRED_FREE; what is set when it is made (device, block, base, units, small) stays as it is. */
struct segment {
	struct segment *next;
	struct device *device;
	struct block *block;
	CUdeviceptr base;
	uint32_t units;
	CUcontext context; /* of the order, and of the event */
	uint64_t order;    /* 0: none any more */
	CUevent event;     /* behind the latest free in the order; NULL: everything that was freed is done */
	atomic_uint
	    n_given;  /* frees that have set the event; written under the lock, read without it by segments_mark() */
	bool ending;  /* its context is about to end, and the event with it: not to be used */
	bool held;    /* a stream is being made to wait for the event: not to be used */
	bool lost;    /* meanwhile its context has ended, and the event with it */
	bool small;   /* not longer than small blocks, for small parts only */
	bool stays;   /* its memory must not be used again */
	bool pinned;  /* it has small parts, but is not small */
	bool counted; /* in n_waiting */
	bool unused;  /* as told to the heap */
	unsigned ticks;
	uint64_t pool_id;                /* of the pool that has the first of its parts */
	uint32_t used, most_used;        /* units in parts: now, and the most that ever were */
	uint32_t n_parts, n_holes, room; /* room >= n_parts + 1 >= n_holes */
	struct hole *holes;              /* by unit */
};

static struct heap *heap_of(const struct device *device)
{
	return atomic_load(&device->heap);
}

/* ---- small parts ---- */

/*
 * In `fast`, blocks of up to SPILL_SMALL_BLOCK bytes stay on the device, up to a share of the budget, because kernels
 * may find what is in them by addresses that no launch names (mover/piece.c). So allocations of up to that size share
 * segments that are no longer. Under a budget of less than this, that share would hold too few segments: there, such
 * allocations have blocks of their own, as have those of up to a share of the budget, if that is less.
 */
#define SEGMENTS_SMALL_BUDGET ((uint64_t)1 << 30)
#define SMALL_SHARE           32 /* of a small budget */

/*
 * When spill.mode changes: in `exact`, small allocations share segments with larger ones. In `fast`, kernels
 * may find small memory by addresses that no launch names, so a segment that was made in `exact` and has small parts is
 * pinned, as long as it has any; new ones get segments, or blocks, of their own. While memory has been in `fast` from
 * the beginning there is no such segment.
 *
 * Returns the length, in bytes, up to which allocations share no segment with larger ones in `fast`. Locking: none.
 */
static uint64_t segments_small_most(const struct device *device)
{
	uint64_t budget = atomic_load(&device->budget.limit), share = budget / SMALL_SHARE;

	return budget >= SEGMENTS_SMALL_BUDGET || share > SPILL_SMALL_BLOCK ? SPILL_SMALL_BLOCK : share;
}

/* Returns whether memory moves beside what runs now, or is about to. Locking: none. */
static bool segments_are_beside(void)
{
	return atomic_load(&serve_state.segments.beside) || process_spill_mode() == POLICY_SPILL_FAST;
}

/* Returns whether the part at a unit of the segment is small; moves *unit behind it, or behind the hole there. */
static bool is_small_at(const struct segment *segment, uint32_t *hole, uint32_t *unit)
{
	if (*hole < segment->n_holes && segment->holes[*hole].unit == *unit) {
		*unit += segment->holes[(*hole)++].units;
		return false;
	}
	uint64_t bytes = heap_part_bytes(heap_of(segment->device), segment->base + *unit * HEAP_UNIT);

	*unit += bytes ? (uint32_t)(bytes / HEAP_UNIT) : 1;
	return bytes <= segments_small_most(segment->device);
}

static bool has_small(const struct segment *segment)
{
	bool any = false;

	for (uint32_t unit = 0, hole = 0; unit < segment->units && !any;)
		any = is_small_at(segment, &hole, &unit);
	return any;
}

/* Pins the segment, or ends that, as its parts and the mode say. Locking: takes HEAP. */
static void segment_pin(struct segment *segment)
{
	bool pins = atomic_load(&serve_state.segments.beside) && !segment->small && has_small(segment);

	lock_assert_held(LOCK_DEFERRED_FREE);
	if (pins == segment->pinned)
		return;
	segment->pinned = pins;
	heap_hold(heap_of(segment->device), segment->block, pins);
}

/* ---- what becomes a segment ---- */

/*
 * Larger ones have blocks of their own, too. Submissions use a block as a whole (struct block_state): a segment of
 * which some part is always in use never leaves the device in `fast`.
 */
#define LARGE_PART  ((uint64_t)512 << 20)
#define LARGE_SHARE 4

/*
 * A segment has whole pieces of the largest size, as far as that loses little. What was never used of the length of the
 * segments of a device counts as lost: at most a LOST_SHARE of its budget; or a LOST_MOST, if the order has
 * MANY_PIECES, for then what is left of one segment serves smaller parts. In a model of a GPT's allocations (1.5 times
 * the budget of 9.4 GiB) these limits change nothing: a step fetches 368 pieces of up to 32 MiB (as `fast` had then),
 * or 104 of up to 128 MiB (`exact`). With a LOST_SHARE alone they are 357 and 152, without whole pieces 401 and 285. A
 * program of 32 streams with a part of 17 MiB each would lose 448 MiB without limits.
 */
#define LOST_SHARE  32
#define LOST_MOST   8
#define MANY_PIECES 4
/* New segments are made as long as the budgets have this share of the device budget left. */
#define PLENTY_SHARE 8

bool segments_are_for(const struct device *device, size_t bytes)
{
	uint64_t budget = atomic_load(&device->budget.limit);
	uint64_t least = segments_are_beside() && budget < SEGMENTS_SMALL_BUDGET ? segments_small_most(device) : 0;
	uint64_t most = budget / LARGE_SHARE < LARGE_PART ? budget / LARGE_SHARE : LARGE_PART;

	/* A part begins at a unit, which smaller blocks do not. */
	return bytes > least && bytes <= most && heap_rounded(bytes) >= HEAP_UNIT && spill_moves_alive(device);
}

bool segments_has(const struct ledger_row *row)
{
	return row->kind == LEDGER_HEAP && row->heap.block && heap_divider(row->heap.block) != NULL;
}

/* Returns whether the allocation takes part of a small segment only, which others do not. */
static bool is_small(const struct segment_want *want)
{
	return segments_are_beside() && want->bytes <= SPILL_SMALL_BLOCK &&
	       atomic_load(&want->device->budget.limit) >= SEGMENTS_SMALL_BUDGET;
}

static uint32_t units_for(size_t bytes)
{
	return (uint32_t)(heap_rounded(bytes) / HEAP_UNIT);
}

/* ---- what others know of a segment ---- */

/*
 * A part is born or dies behind submission `number`. Memory that a capture may have seen is alive as a whole, as it is
 * for PyTorch's cache.
 */
static void tell(const struct segment *segment, CUdeviceptr address, uint32_t units, bool born, uint64_t number)
{
	struct lifetimes *lifetimes = heap_arena(heap_of(segment->device))->lifetimes;
	struct lifetimes_report report = {
	    .address = address,
	    .bytes = units * HEAP_UNIT,
	    .born = born,
	    .number = number,
	    .own = completion_own(),
	};

	if (capture_is_open())
		lifetimes_distrust(lifetimes, address, segment->base, segment->units * HEAP_UNIT);
	else
		lifetimes_own_tell(lifetimes, &report);
}

/* Updates the count of segments whose event matters, and whether the heap counts the segment as idle. */
static void segment_note(struct segment *segment)
{
	bool still = !segment->held && !segment->ending;
	bool waits = segment->event && still && (!segment->n_parts || !segment->order);
	bool unused = !segment->event && still && !segment->n_parts;

	lock_assert_held(LOCK_DEFERRED_FREE);
	if (waits != segment->counted)
		atomic_fetch_add(&serve_state.segments.n_waiting, waits ? 1 : -1u);
	segment->counted = waits;
	if (unused != segment->unused)
		heap_set_unused(heap_of(segment->device), segment->block, unused);
	segment->unused = unused;
	if (!unused)
		segment->ticks = 0;
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

/* ---- parts ---- */

/* Makes room for the hole that the free of one more part may leave. Returns false if there is no memory. */
static bool has_room(struct segment *segment)
{
	return ARRAY_ROOM(segment->holes, segment->n_parts + 1, segment->room, ARRAY_MOST);
}

static void drop_hole(struct segment *segment, uint32_t at)
{
	for (segment->n_holes--; at < segment->n_holes; at++)
		segment->holes[at] = segment->holes[at + 1];
}

/* Takes the beginning of a hole. Returns false if the memory must not be used again, or there is no memory. */
static bool take_part(struct segment *segment, uint32_t at, uint32_t units, CUdeviceptr *ret_address)
{
	if (!has_room(segment))
		return false;
	struct hole *hole = &segment->holes[at];
	if (!heap_part_begin(heap_of(segment->device), segment->block, hole->unit, units)) {
		segment->stays = true;
		return false;
	}
	*ret_address = segment->base + hole->unit * HEAP_UNIT;
	hole->unit += units;
	hole->units -= units;
	if (!hole->units)
		drop_hole(segment, at);
	segment->n_parts++;
	segment->used += units;
	if (segment->used > segment->most_used)
		segment->most_used = segment->used;
	segment_pin(segment);
	return true;
}

/*
 * Frees a part, which is used by nothing behind submission `number`. Its death is told first: afterwards something else
 * may be born there.
 */
static void give_part(struct segment *segment, CUdeviceptr address, uint32_t units, uint64_t number)
{
	uint32_t unit = (uint32_t)((address - segment->base) / HEAP_UNIT), at = 0;
	struct hole *holes = segment->holes;

	tell(segment, address, units, false, number);
	heap_part_end(heap_of(segment->device), segment->block, address);
	while (at < segment->n_holes && holes[at].unit < unit)
		at++;
	bool before = at && holes[at - 1].unit + holes[at - 1].units == unit;
	bool behind = at < segment->n_holes && unit + units == holes[at].unit;
	if (before) {
		holes[at - 1].units += units + (behind ? holes[at].units : 0);
		if (behind)
			drop_hole(segment, at);
	} else if (behind) {
		holes[at].unit = unit;
		holes[at].units += units;
	} else {
		for (uint32_t i = segment->n_holes++; i > at; i--)
			holes[i] = holes[i - 1];
		holes[at] = (struct hole){unit, units};
	}
	segment->n_parts--;
	segment->used -= units;
	segment_pin(segment);
}

/* Returns the units of the part at an address. */
static uint32_t units_at(const struct segment *segment, CUdeviceptr address)
{
	return (uint32_t)(heap_part_bytes(heap_of(segment->device), address) / HEAP_UNIT);
}

/* ---- allocating ---- */

/* Returns whether the segment is of the right kind, and can be used at all. */
static bool is_fit(const struct segment *segment, const struct segment_want *want)
{
	return segment->device == want->device && segment->small == is_small(want) && !segment->held &&
	       !segment->ending && !segment->stays;
}

static bool is_of_order(const struct segment *segment, const struct segment_want *want)
{
	return segment->order == want->order && segment->context == want->context;
}

static bool may_use(const struct segment *segment, const struct segment_want *want, enum segments_whose whose)
{
	if (!is_fit(segment, want))
		return false;
	return is_of_order(segment, want) || (!segment->event && (!segment->order || whose >= SEGMENTS_DONE));
}

/* Returns the number of the shortest hole with room for this, the first of equal ones; n_holes: none. */
static uint32_t shortest_hole(const struct segment *segment, uint32_t units)
{
	uint32_t best = segment->n_holes;

	for (uint32_t i = 0; i < segment->n_holes; i++)
		if (segment->holes[i].units >= units &&
		    (best == segment->n_holes || segment->holes[i].units < segment->holes[best].units))
			best = i;
	return best;
}

/* Finds the best hole for the order. Returns false if there is none. */
static bool best_hole(const struct segment_want *want, uint32_t units, enum segments_whose whose,
		      struct segment **ret_segment, uint32_t *ret_at)
{
	uint32_t least = UINT32_MAX;
	CUdeviceptr lowest = 0;

	for (struct segment *segment = serve_state.segments.list; segment; segment = segment->next) {
		uint32_t at = may_use(segment, want, whose) ? shortest_hole(segment, units) : segment->n_holes;
		const struct hole *hole = &segment->holes[at];

		if (at == segment->n_holes || hole->units > least ||
		    (hole->units == least && segment->base + hole->unit * HEAP_UNIT > lowest))
			continue;
		least = hole->units;
		lowest = segment->base + hole->unit * HEAP_UNIT;
		*ret_segment = segment;
		*ret_at = at;
	}
	return least != UINT32_MAX;
}

/* Gives a part of the segment to the row. Returns false if that is not possible. */
static bool take_at(const struct segment_want *want, struct segment *segment, uint32_t at, uint32_t units,
		    struct ledger_row *row)
{
	CUdeviceptr address;

	if (!take_part(segment, at, units, &address))
		return false;
	/* Of a segment that others use, the frees of its order are used again at once, ours when they are done. */
	if (segment->n_parts == 1 || !segment->order) {
		segment->order = want->order;
		segment->context = want->context;
		segment->pool_id = row->heap.pool_id;
	}
	segment_note(segment);
	tell(segment, address, units, true, completion_newest());
	row->key = address;
	row->heap.block = segment->block;
	return true;
}

/*
 * Returns the shortest segment with room whose latest free, in an order of this context, is not known to be done.
 * unused: only one without parts.
 */
static struct segment *segment_behind(const struct segment_want *want, uint32_t units, bool unused)
{
	struct segment *best = NULL;

	for (struct segment *segment = serve_state.segments.list; segment; segment = segment->next)
		if (is_fit(segment, want) && segment->event && segment->context == want->context &&
		    (!unused || !segment->n_parts) && shortest_hole(segment, units) < segment->n_holes &&
		    (!best || segment->units < best->units))
			best = segment;
	return best;
}

/* The stream is made to wait outside the lock: the call may wait for room in the driver's queues. */
static bool take_behind(const struct segment_want *want, uint32_t units, bool unused, struct ledger_row *row)
{
	struct lock *lock = &serve_state.deferred_free.lock;

	lock_take(lock);
	struct segment *segment = segment_behind(want, units, unused);
	CUevent event = segment ? segment->event : NULL;
	if (segment) {
		segment->held = true;
		segment->event = NULL;
		segment_note(segment);
	}
	lock_drop(lock);
	if (!segment)
		return false;
	bool waits = (want->per_thread ? REAL(cuStreamWaitEvent_ptsz) : REAL(cuStreamWaitEvent))(want->stream, event,
												 0) == CUDA_SUCCESS;
	lock_take(lock);
	/* If its context has ended meanwhile, so has the event, and all that the context was given is done. */
	bool same = !segment->lost;
	/* Frees that are done may have changed the holes. */
	uint32_t at = shortest_hole(segment, units);
	bool taken = waits && at < segment->n_holes && take_at(want, segment, at, units, row);
	/* What this stream frees there comes behind it, too. */
	if (same)
		segment->event = event;
	if (taken)
		stats_add(STAT_stream_reuses, 1);
	segment->held = segment->lost = false;
	segment_note(segment);
	lock_drop(lock);
	return taken;
}

bool segments_take(const struct segment_want *want, enum segments_whose whose, struct ledger_row *row)
{
	struct lock *lock = &serve_state.deferred_free.lock;
	uint32_t units = units_for(want->bytes), at;
	struct segment *segment;
	bool taken = false;

	if (whose >= SEGMENTS_DONE)
		look_at_events(UINT_MAX, true);
	lock_take(lock);
	/* A segment that cannot be used is not found again, unless there is no memory at all. */
	for (unsigned tries = 0; !taken && tries < 64 && best_hole(want, units, whose, &segment, &at); tries++) {
		bool behind = segment->event;

		taken = take_at(want, segment, at, units, row);
		if (taken)
			stats_add(behind ? STAT_stream_reuses : STAT_block_reuses, 1);
	}
	lock_drop(lock);
	if (!taken && (whose == SEGMENTS_UNUSED || whose == SEGMENTS_ANY))
		taken = take_behind(want, units, whose == SEGMENTS_UNUSED, row);
	return taken;
}

/* ---- new segments ---- */

/*
 * Returns whether the budgets have so much left that a segment may be made. Its holes serve stream-ordered allocations
 * only, so where memory is about to run out each allocation has a block of its own.
 */
static bool has_plenty(const struct device *device)
{
	const struct heap *heap = heap_of(device);
	uint64_t left = budget_left(&device->budget) + heap_idle(heap, CHUNK_DEVICE) + budget_left(&host_budget) +
			heap_idle(heap, CHUNK_HOST);

	return left >= atomic_load(&device->budget.limit) / PLENTY_SHARE;
}

/*
 * Returns whether a segment of this order may be so much longer than its first part. Locking: the caller holds
 * DEFERRED_FREE.
 */
static bool may_lose(const struct segment_want *want, uint32_t more, uint32_t units, uint32_t piece)
{
	uint64_t limit = atomic_load(&want->device->budget.limit) / HEAP_UNIT, lost = more, of_order = units;

	for (const struct segment *segment = serve_state.segments.list; segment; segment = segment->next) {
		if (segment->device != want->device)
			continue;
		lost += segment->units - segment->most_used;
		of_order += is_of_order(segment, want) ? segment->units : 0;
	}
	return lost <= limit / LOST_SHARE || (of_order >= (uint64_t)MANY_PIECES * piece && lost <= limit / LOST_MOST);
}

uint64_t segments_length(const struct segment_want *want)
{
	uint32_t piece = (uint32_t)(heap_largest_piece(heap_of(want->device)) / HEAP_UNIT);
	if (is_small(want) && piece > SPILL_SMALL_BLOCK / HEAP_UNIT)
		piece = SPILL_SMALL_BLOCK / HEAP_UNIT;
	uint32_t units = units_for(want->bytes), rounded = (units + piece - 1) / piece * piece;

	if (!has_plenty(want->device))
		return 0;
	lock_take(&serve_state.deferred_free.lock);
	bool may = may_lose(want, rounded - units, rounded, piece);
	lock_drop(&serve_state.deferred_free.lock);
	return (may ? rounded : units) * HEAP_UNIT;
}

bool segments_add(const struct segment_want *want, const struct heap_grant *grant, struct ledger_row *row)
{
	struct heap *heap = heap_of(want->device);
	struct segment *segment = calloc(1, sizeof(*segment));

	if (!segment || !has_room(segment)) {
		free(segment);
		heap_free(heap, grant->block, grant->address);
		return false;
	}
	segment->device = want->device;
	segment->small = is_small(want);
	segment->block = grant->block;
	segment->base = grant->address;
	segment->units = heap_divide(heap, grant->block, segment);
	segment->holes[segment->n_holes++] = (struct hole){0, segment->units};
	lifetimes_own(heap_arena(heap)->lifetimes, segment->base, segment->units * HEAP_UNIT);
	lock_take(&serve_state.deferred_free.lock);
	bool taken = take_at(want, segment, 0, units_for(want->bytes), row);
	segment->next = serve_state.segments.list;
	serve_state.segments.list = segment;
	segment_note(segment);
	lock_drop(&serve_state.deferred_free.lock);
	return taken;
}

/* ---- freeing ---- */

unsigned segments_mark(const struct ledger_row *row)
{
	const struct segment *segment = segments_has(row) ? heap_divider(row->heap.block) : NULL;

	return segment ? atomic_load(&segment->n_given) : 0;
}

/*
 * The free counts as a submission, because the part is the program's until the stream reaches it, also where the stream
 * waits for something that is none. The number is taken outside the lock: an event may be recorded, which may wait.
 */
bool segments_give(struct ledger_row *row, CUstream stream, bool per_thread, unsigned mark)
{
	const struct completion_what what = {.id = HOOK_cuMemFreeAsync};

	if (!segments_has(row))
		return false;
	uint64_t number = completion_submitted(stream, per_thread, &what, UINT64_C(1) << row->device, false);
	lock_take(&serve_state.deferred_free.lock);
	struct segment *segment = heap_divider(row->heap.block);
	bool in_order = !segment->held && !segment->ending && segment->order == row->pending.order &&
			segment->context == row->pending.context && row->pending.event &&
			atomic_load(&segment->n_given) == mark;
	if (in_order) {
		atomic_fetch_add(&segment->n_given, 1);
		if (segment->event)
			context_event_give(segment->context, segment->event);
		segment->event = row->pending.event;
		row->pending.event = NULL;
		give_part(segment, row->key, units_at(segment, row->key), number);
		segment_note(segment);
	}
	lock_drop(&serve_state.deferred_free.lock);
	if (!in_order)
		return false;
	pool_row_freed(row, true);
	ledger_row_free(row);
	return true;
}

void segments_release(const struct ledger_row *row)
{
	lock_take(&serve_state.deferred_free.lock);
	struct segment *segment = heap_divider(row->heap.block);
	give_part(segment, row->key, units_at(segment, row->key), completion_newest());
	segment_note(segment);
	lock_drop(&serve_state.deferred_free.lock);
}

/* ---- the end of a segment ---- */

/*
 * The events of segments, and their end: who finds out that a segment is unused, and when it becomes a
 * free block.
 */

/*
 * Ticks without use after which a segment is freed: as many as idle host memory stays (heap_tick). A program whose
 * steps take less than this has the same addresses in each; meanwhile what is dead leaves the device first. If the user
 * has said how much idle memory is kept, or other processes are short of host memory, unused segments go at once.
 */
#define UNUSED_TICKS 20
/* A pass gives up after this many events that have not completed: later ones have hardly completed either. */
#define MOST_WAITING 2

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
		heap_free(heap_of(list->device), list->block, list->base);
		free(list->holes);
		free(list);
	}
	return any;
}

void segments_reap(void)
{
	if (!atomic_load_explicit(&serve_state.segments.n_waiting, memory_order_relaxed))
		return;
	look_at_events(MOST_WAITING, false);
	if (!heap_is_ticking(atomic_load(&serve_state.segments.ticked)))
		free_unused(NULL, 0);
}

uint64_t segments_waiting(uint64_t pool_id)
{
	uint64_t units = 0;

	look_at_events(UINT_MAX, true);
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

bool segments_patience(bool (*look)(const struct device *device), const struct device *device,
		       const atomic_uint *n_waiting)
{
	const struct timespec step = {.tv_nsec = 50000};
	bool any = look(device);

	for (unsigned i = 0; i < DEFERRED_FREE_PATIENCE_MS * 20 && !any && atomic_load(n_waiting); i++) {
		nanosleep(&step, NULL);
		any = look(device);
	}
	return any;
}

bool segments_wait(struct device *device)
{
	return segments_patience(segments_give_up, device, &serve_state.segments.n_waiting);
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

/* ---- when the mode changes ---- */

void segments_set_beside(bool beside)
{
	lock_take(&serve_state.deferred_free.lock);
	atomic_store(&serve_state.segments.beside, beside);
	for (struct segment *segment = serve_state.segments.list; segment; segment = segment->next)
		segment_pin(segment);
	lock_drop(&serve_state.deferred_free.lock);
}
