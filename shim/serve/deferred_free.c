// SPDX-License-Identifier: Apache-2.0
/*
 * deferred_free.c: the list of deferred frees. Rows are taken out when their event has completed, when their context
 * was seen idle, or to be used again before that. See deferred_free.h.
 */
#include "shim/serve/deferred_free.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/serve/backend.h"
#include "shim/serve/segments.h"
#include "shim/serve/types.h"

/* Orders with events that have not completed that one pass can remember; events of further ones are queried singly. */
#define MOST_ORDERS 32
/* A pass walks the whole list: with more rows than this on it, only every REAP_EVERY-th free makes one. */
#define REAP_EVERY 16

/*
 * Puts a row at the end of the list. If its event was recorded while the row was on no list, *ends is what n_ends was
 * before: the event is dropped if any context has ended since. Otherwise `ends` is NULL.
 */
static void deferred_free_put(struct ledger_row *row, const unsigned *ends)
{
	struct deferred_free_state *const state = &serve_state.deferred_free;

	lock_take(&state->lock);
	if (ends && atomic_load(&state->n_ends) != *ends)
		row->pending.event = NULL;
	row->next = NULL;
	*state->tail = row;
	state->tail = &row->next;
	state->n_eventless += !row->pending.event;
	atomic_fetch_add(&state->n_pending, 1);
	lock_drop(&state->lock);
}

void deferred_free_add(struct ledger_row *row)
{
	pool_row_freed(row, false);
	row->pending.whole = context_whole(row->pending.event ? row->pending.context : row->context);
	row->pending.since = atomic_fetch_add(&serve_state.deferred_free.n_added, 1);
	deferred_free_put(row, NULL);
}

uint64_t deferred_free_mark(void)
{
	return atomic_load(&serve_state.deferred_free.n_added);
}

bool deferred_free_any(void)
{
	return atomic_load_explicit(&serve_state.deferred_free.n_pending, memory_order_relaxed) != 0;
}

bool deferred_free_is_due(void)
{
	return atomic_load_explicit(&serve_state.deferred_free.n_pending, memory_order_relaxed) <= REAP_EVERY ||
	       atomic_load_explicit(&serve_state.deferred_free.n_added, memory_order_relaxed) % REAP_EVERY == 0;
}

bool deferred_free_has(CUdeviceptr address)
{
	struct deferred_free_state *const state = &serve_state.deferred_free;
	bool found = false;

	if (!deferred_free_any())
		return false;
	lock_take(&state->lock);
	for (const struct ledger_row *row = state->list; row && !found; row = row->next)
		found = row->key == address;
	lock_drop(&state->lock);
	return found;
}

static struct ledger_row *unlink_locked(struct ledger_row **at)
{
	struct deferred_free_state *const state = &serve_state.deferred_free;
	struct ledger_row *row = *at;

	lock_assert_held(LOCK_DEFERRED_FREE);
	*at = row->next;
	if (!row->next)
		state->tail = at;
	row->next = NULL;
	state->n_eventless -= !row->pending.event;
	atomic_fetch_sub(&state->n_pending, 1);
	return row;
}

static void end_event(struct ledger_row *row)
{
	if (row->pending.event)
		context_event_give(row->pending.context, row->pending.event);
	row->pending.event = NULL;
}

/*
 * Takes out the rows that the judge accepts; done: their events are no longer needed. The judge may query events,
 * under the lock: so no other thread sees a row whose event is being queried or given up, and a context that ends
 * waits for us here (deferred_free_take_context).
 */
static struct ledger_row *deferred_free_sift(bool (*judge)(struct ledger_row *row, void *argument), void *argument,
					     bool done)
{
	struct deferred_free_state *const state = &serve_state.deferred_free;
	struct ledger_row *taken = NULL, **taken_tail = &taken;

	lock_take(&state->lock);
	for (struct ledger_row **at = &state->list; *at;) {
		struct ledger_row *row = *at;

		if (!judge(row, argument)) {
			at = &row->next;
			continue;
		}
		*taken_tail = unlink_locked(at);
		if (done)
			end_event(row);
		taken_tail = &row->next;
	}
	lock_drop(&state->lock);
	return taken;
}

void deferred_free_release(struct ledger_row *rows)
{
	if (!rows)
		return;
	/* Managed and registered memory goes by calls that would end captures of other threads. */
	CUstreamCaptureMode mode = capture_relax();
	for (struct ledger_row *next; rows; rows = next) {
		next = rows->next;
		rows->home->release(rows);
	}
	capture_restore(mode);
}

void deferred_free_put_back(struct ledger_row *rows)
{
	for (struct ledger_row *next; rows; rows = next) {
		next = rows->next;
		deferred_free_put(rows, NULL);
	}
}

/*
 * The streams, and whole contexts, of which a pass has found an uncompleted event: what was put behind it later waits
 * too.
 */
struct look {
	unsigned n;
	uint64_t order[MOST_ORDERS];
};

static bool is_waiting(const struct look *look, uint64_t order)
{
	for (unsigned i = 0; i < look->n; i++)
		if (look->order[i] == order)
			return true;
	return false;
}

/*
 * Accepts a row only if its event has completed: an error proves nothing. One query for each stream that is not done.
 */
static bool by_event(struct ledger_row *row, void *argument)
{
	struct look *look = argument;

	if (!row->pending.event || is_waiting(look, row->pending.order))
		return false;
	if (REAL(cuEventQuery)(row->pending.event) != CUDA_SUCCESS) {
		if (look->n < MOST_ORDERS)
			look->order[look->n++] = row->pending.order;
		return false;
	}
	return true;
}

static bool by_lack_of_event(struct ledger_row *row, void *argument)
{
	(void)argument;
	return !row->pending.event;
}

/*
 * Gives rows that wait for a whole context an event of it, outside the lock, since recording may wait for room in the
 * driver's queues. Rows of a context that is gone are done. If any context ended meanwhile, the event may have ended
 * with it: then it is forgotten, and the next pass records another or finds the context gone.
 */
static void record_events(void)
{
	struct deferred_free_state *const state = &serve_state.deferred_free;

	lock_take(&state->lock);
	bool any = state->n_eventless != 0;
	lock_drop(&state->lock);
	if (!any || !capture_pause())
		return;
	for (struct ledger_row *row = deferred_free_sift(by_lack_of_event, NULL, false), *next; row; row = next) {
		unsigned ends = atomic_load(&state->n_ends);
		bool gone;

		next = row->next;
		row->pending.event = context_record(row->pending.whole, &gone);
		row->pending.context = row->pending.whole;
		row->pending.order = (uintptr_t)row->pending.whole;
		row->orphan = gone;
		if (gone)
			row->home->release(row);
		else
			deferred_free_put(row, &ends);
	}
	capture_resume();
}

static unsigned reap_done(int device)
{
	struct look look = {0};
	unsigned n = 0;
	CUstreamCaptureMode mode = capture_relax();
	struct ledger_row *done = deferred_free_sift(by_event, &look, true);
	capture_restore(mode);
	for (const struct ledger_row *row = done; row; row = row->next)
		n += row->device == device;
	deferred_free_release(done);
	return n;
}

unsigned deferred_free_reap(int device)
{
	segments_reap();
	if (!deferred_free_any())
		return 0;
	record_events();
	return reap_done(device);
}

void deferred_free_tick(void)
{
	if (deferred_free_any())
		reap_done(-1);
}

static bool reap_of(const struct device *device)
{
	return deferred_free_reap(device->ordinal);
}

bool deferred_free_wait(struct device *device)
{
	return deferred_free_any() && segments_patience(reap_of, device, &serve_state.deferred_free.n_pending);
}

/* ---- reuse before the free is done ---- */

/*
 * Returns what the block could hold, 0 if it does not fit the request. Only heap blocks are reused. The heap is only
 * asked about blocks that might be large enough: a block was made for what it holds, or is at most an eighth larger
 * (async.c).
 */
static size_t room_for(const struct deferred_free_want *want, const struct ledger_row *row, bool behind)
{
	if (row->kind != LEDGER_HEAP || !row->heap.block || !row->pending.event || row->device != want->device ||
	    row->fixed != want->fixed || row->bytes > want->most || heap_rounded(row->bytes) / 8 * 9 < want->bytes ||
	    row->pending.context != want->context || (row->pending.order == want->order) != behind)
		return 0;
	size_t room = heap_room_of(atomic_load(&device_get(row->device)->heap), row->heap.block, row->key, want->from);
	return room >= want->bytes && room <= want->most ? room : 0;
}

static struct ledger_row *take_best(const struct deferred_free_want *want, bool behind, unsigned *ret_ends)
{
	struct deferred_free_state *const state = &serve_state.deferred_free;
	struct ledger_row **best = NULL, *row = NULL;
	size_t least = SIZE_MAX, tight = heap_rounded(want->bytes);

	lock_take(&state->lock);
	for (struct ledger_row **at = &state->list; *at && least > tight; at = &(*at)->next) {
		size_t room = room_for(want, *at, behind);

		if (!room || room >= least)
			continue;
		least = room;
		best = at;
	}
	if (best)
		row = unlink_locked(best);
	if (row && behind)
		end_event(row);
	*ret_ends = atomic_load(&state->n_ends);
	lock_drop(&state->lock);
	return row;
}

struct ledger_row *deferred_free_take_behind(const struct deferred_free_want *want)
{
	unsigned ends;

	return deferred_free_any() ? take_best(want, true, &ends) : NULL;
}

/* Makes the stream wait outside the lock: the call may wait for room in the driver's queues. */
struct ledger_row *deferred_free_take_after(const struct deferred_free_want *want, CUstream stream, bool per_thread)
{
	struct deferred_free_state *const state = &serve_state.deferred_free;
	unsigned ends;
	struct ledger_row *row = deferred_free_any() ? take_best(want, false, &ends) : NULL;

	if (!row)
		return NULL;
	if ((per_thread ? REAL(cuStreamWaitEvent_ptsz) : REAL(cuStreamWaitEvent))(stream, row->pending.event, 0) !=
	    CUDA_SUCCESS) {
		deferred_free_put(row, &ends);
		return NULL;
	}
	lock_take(&state->lock);
	if (atomic_load(&state->n_ends) == ends)
		end_event(row);
	row->pending.event = NULL;
	lock_drop(&state->lock);
	return row;
}

void deferred_free_stream_ending(CUstream stream)
{
	struct deferred_free_state *const state = &serve_state.deferred_free;

	if (!deferred_free_any())
		return;
	lock_take(&state->lock);
	for (struct ledger_row *row = state->list; row; row = row->next)
		if (row->pending.event && row->pending.order == (uintptr_t)stream)
			row->pending.order = row->id << 1 | 1; /* an order of no stream: handles are even */
	lock_drop(&state->lock);
}

static CUcontext waits_in(const struct ledger_row *row)
{
	return row->pending.event ? row->pending.context : row->pending.whole;
}

struct idle {
	CUcontext context;
	uint64_t before;
};

/* Accepts rows of that context, added before the wait began, that wait for nothing else. */
static bool by_idle(struct ledger_row *row, void *argument)
{
	const struct idle *idle = argument;

	return row->context == idle->context && row->pending.since < idle->before && waits_in(row) == idle->context;
}

void deferred_free_context_idle(CUcontext context, uint64_t before)
{
	struct idle idle = {context, before};

	if (deferred_free_any())
		deferred_free_release(deferred_free_sift(by_idle, &idle, true));
}

static bool by_end(struct ledger_row *row, void *argument)
{
	return waits_in(row) == argument;
}

/*
 * The work of a green context may go on when it has ended, but its events end with it: what waited for one waits for
 * the whole context from now on.
 */
static void leave_part_locked(CUcontext context)
{
	for (struct ledger_row *row = serve_state.deferred_free.list; row; row = row->next) {
		if (!row->pending.event || row->pending.context != context || row->pending.whole == context)
			continue;
		end_event(row);
		serve_state.deferred_free.n_eventless++;
	}
}

struct ledger_row *deferred_free_take_context(CUcontext context)
{
	struct deferred_free_state *const state = &serve_state.deferred_free;

	lock_take(&state->lock);
	atomic_fetch_add(&state->n_ends, 1);
	leave_part_locked(context);
	lock_drop(&state->lock);
	return deferred_free_sift(by_end, context, false);
}
