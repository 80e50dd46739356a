/*
 * completion.c: completion of submissions: gives them numbers, records events behind them on their streams, and queries
 * the events to find out what is complete. completion_streams.c keeps the rows of streams.
 */
#include "shim/submit/completion.h"
#include "shim/submit/types.h"
#include "shim/base/lock.h"
#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"

#include <stdatomic.h>

/*
 * One event per STRIDE submissions, unless the mover asks for one behind each. An event costs time in the launch that
 * records it. Measured (H200, driver 580): 0.35 us or more each; 0.13 us per launch on average with one event for every
 * fourth.
 */
#define STRIDE 16

/* Whether this thread has submitted since its last flush or event. */
static __thread bool has_submitted __attribute__((tls_model("initial-exec")));
/* The number of its latest submission; 0: none. */
static __thread uint64_t latest_own __attribute__((tls_model("initial-exec")));

uint64_t completion_own(void)
{
	return latest_own;
}

uint64_t completion_newest(void)
{
	return atomic_load(&submit_state.completion.newest);
}

uint64_t completion_newest_wide(void)
{
	return atomic_load(&submit_state.completion.newest_wide);
}

/* Queries the events of contexts and records what they prove. Locking: the caller must hold ROWS; takes ROW. */
static void completion_context_poll_locked(struct completion_answers *answers);
/* Records events of all contexts, which prove the submissions of the shared row. Locking: takes ROWS. */
static void completion_context_ask_for_others(uint64_t number);

/* ---- the latest submissions ---- */

/*
 * A ring, for messages: each submission is noted over the oldest one, by any thread and without a lock. Each entry
 * carries its number, which is 0 while the entry is written. It is read when something has gone wrong, so reading makes
 * no driver call.
 */

/*
 * Writes the number last, and 0 before the rest. A reader that finds the same number before and after it reads the rest
 * has a consistent entry.
 */
static void recent_submissions_note(uint64_t number, const struct completion_what *what, unsigned row)
{
	unsigned at = number % SUBMISSIONS_KEPT;

	atomic_store_explicit(&submit_tables.recent[at].number, 0, memory_order_relaxed);
	atomic_store_explicit(&submit_tables.recent[at].function, what->function, memory_order_release);
	atomic_store_explicit(&submit_tables.recent[at].what, (uint64_t)what->id << 16 | row, memory_order_release);
	atomic_store_explicit(&submit_tables.recent[at].number, number, memory_order_release);
}

/* Returns the oldest number that the ring may still have when `newest` is the latest. */
static uint64_t recent_submissions_oldest(uint64_t newest)
{
	return newest < SUBMISSIONS_KEPT ? 1 : newest - SUBMISSIONS_KEPT + 1;
}

bool recent_submissions_look(uint64_t number, struct completion_what *ret_what, unsigned *ret_row)
{
	unsigned at = number % SUBMISSIONS_KEPT;

	if (atomic_load_explicit(&submit_tables.recent[at].number, memory_order_acquire) != number)
		return false;
	uint64_t function = atomic_load_explicit(&submit_tables.recent[at].function, memory_order_acquire);
	uint64_t what = atomic_load_explicit(&submit_tables.recent[at].what, memory_order_acquire);
	if (atomic_load_explicit(&submit_tables.recent[at].number, memory_order_relaxed) != number)
		return false;
	*ret_what = (struct completion_what){function, (uint32_t)(what >> 16)};
	*ret_row = (unsigned)(what & 0xffff);
	return true;
}

/* ---- submitting ---- */

/* Threads may come here in another order than that of their numbers. */
void completion_is_wide(uint64_t number)
{
	_Atomic uint64_t *newest = &submit_state.completion.newest_wide;
	uint64_t before = atomic_load_explicit(newest, memory_order_relaxed);

	while (before < number && !atomic_compare_exchange_weak(newest, &before, number))
		;
}

/*
 * Destroys a stream that the program destroyed while this thread recorded on it; the program's call has already
 * returned success. `recording` stays set meanwhile, so that the context does not end first.
 * Locking: the caller must hold ROW; drops it for the call.
 */
static void destroy_inherited_locked(struct tracker *tracker)
{
	CUcontext context = tracker->context;
	CUstream stream = tracker->stream;
	bool pushed = false;

	tracker->inherited = false;
	lock_drop(&tracker->lock);
	if (context_enter(context, &pushed) == CUDA_SUCCESS) {
		REAL(cuStreamDestroy_v2)(stream);
		context_leave(pushed);
	}
	lock_take(&tracker->lock);
}

/*
 * Records an event behind submission `number`. A capture that is opening waits for it, because the event would become
 * part of the capture; while a capture is open, nothing is recorded. The stream and its context stay until `recording`
 * is cleared (completion.h). Locking: the caller must hold ROW; drops it.
 */
static void record_and_drop(struct tracker *tracker, uint64_t number)
{
	unsigned at = (tracker->head + tracker->n) % EVENTS;
	CUevent event = completion_ring(tracker)[at].event;
	CUcontext context = tracker->context;
	CUstream stream = tracker->stream;
	bool per_thread = tracker->per_thread;
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	bool pushed = false;

	tracker->recording = true;
	lock_drop(&tracker->lock);
	if (capture_pause()) {
		result = CUDA_SUCCESS;
		if (!event && context_enter(context, &pushed) == CUDA_SUCCESS) {
			result = REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING);
			context_leave(pushed);
		}
		if (result == CUDA_SUCCESS && event)
			result = (per_thread ? REAL(cuEventRecord_ptsz) : REAL(cuEventRecord))(event, stream);
		/*
		 * It may have taken longer than a capture waits. Asking for an event of an open capture would end that.
		 */
		if (capture_is_open())
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		capture_resume();
	}
	lock_take(&tracker->lock);
	if (__builtin_expect(tracker->inherited, 0))
		destroy_inherited_locked(tracker);
	tracker->recording = false;
	/* If the context is ending or has ended, the event ends with it. */
	if (!tracker->ending && event && tracker->context == context) {
		completion_ring(tracker)[at].event = event;
		if (result == CUDA_SUCCESS) {
			completion_ring(tracker)[at].number = number;
			tracker->n++;
			tracker->recorded = number;
		}
	}
	lock_drop(&tracker->lock);
}

static bool may_record(const struct tracker *tracker)
{
	return !completion_is_shared(tracker) && !tracker->recording && !tracker->ending && tracker->n < EVENTS &&
	       tracker->open && !capture_is_open();
}

/*
 * Notes a submission that may touch heaps of other devices, and returns whether it is one. Movers of those devices wait
 * for it, but not for other work of this device; so it gets its own event, by which they learn of its completion early.
 * Locking: the caller must hold ROW.
 */
static bool note_foreign_locked(struct tracker *tracker, uint64_t number, uint64_t owners)
{
	if (tracker->device >= 0)
		owners &= ~(UINT64_C(1) << tracker->device);
	if (!owners)
		return false;
	if (!tracker->foreign)
		tracker->foreign_first = number;
	tracker->foreign |= owners;
	tracker->foreign_last = number;
	return true;
}

uint64_t completion_submitted(CUstream stream, bool per_thread, const struct completion_what *what, uint64_t owners,
			      bool hurry)
{
	struct tracker *tracker = completion_stream(stream, per_thread);
	uint64_t number = atomic_fetch_add(&submit_state.completion.newest, 1) + 1;

	latest_own = number;
	recent_submissions_note(number, what, (unsigned)(tracker - submit_state.completion.trackers));

	if (!tracker->first)
		tracker->first = number;
	tracker->last = number;
	hurry |= note_foreign_locked(tracker, number, owners);
	has_submitted = true;
	if ((hurry || number - tracker->recorded >= STRIDE) && may_record(tracker)) {
		has_submitted = false;
		record_and_drop(tracker, number);
	} else {
		lock_drop(&tracker->lock);
	}
	return number;
}

void completion_flush(void)
{
	if (!has_submitted)
		return;
	has_submitted = false;
	struct tracker *tracker = completion_stream_last();
	if (!tracker)
		return;
	/*
	 * Not on the legacy stream: an event there waits for all blocking streams and holds them back, even if this
	 * thread's work would not have. An event of the context proves its tail complete.
	 */
	if (tracker->recorded < tracker->last && may_record(tracker) && tracker->stream != CU_STREAM_LEGACY)
		record_and_drop(tracker, tracker->last);
	else
		lock_drop(&tracker->lock);
}

/* ---- finding out ---- */

static void poll_locked(struct tracker *tracker, struct completion_answers *answers)
{
	while (tracker->n) {
		CUresult result = REAL(cuEventQuery)(completion_ring(tracker)[tracker->head].event);

		completion_answered(answers, result);
		/* Captured: a capture took it, and had ended when the record returned. It proves nothing. */
		if (result != CUDA_SUCCESS && !completion_is_captured(result))
			return;
		uint64_t number = completion_ring(tracker)[tracker->head].number;
		tracker->head = (tracker->head + 1) % EVENTS;
		tracker->n--;
		if (result == CUDA_SUCCESS)
			completion_stream_pass_locked(tracker, number);
	}
}

/* Queries the stream too, if this thread can: it has no handle for default streams of other threads or contexts. */
static void look_locked(struct tracker *tracker, CUcontext current)
{
	struct completion_answers unused = {0};

	if (!tracker->first || tracker->ending)
		return;
	poll_locked(tracker, &unused); /* an error stays there for the mover to see */
	/* Asking for a stream that captures would end that: a capture waits only for a while. */
	if (!tracker->first || !tracker->open || tracker->thread || capture_is_open() ||
	    (completion_is_default(tracker->stream) && tracker->context != current))
		return;
	if (REAL(cuStreamQuery)(tracker->stream) == CUDA_SUCCESS)
		completion_stream_pass_locked(tracker, tracker->last);
}

uint64_t completion_oldest_elsewhere(CUstream stream, bool per_thread)
{
	struct tracker *own = completion_stream(stream, per_thread),
		       *shared = &submit_state.completion.trackers[TRACKERS];
	CUcontext current = context_current();
	uint64_t oldest = UINT64_MAX;

	lock_drop(&own->lock);
	if (!capture_pause())
		return 0;
	CUstreamCaptureMode mode = capture_relax();
	/* Several streams share the last row, so it counts as another stream even for those. */
	for (struct tracker *tracker = submit_state.completion.trackers; tracker <= shared; tracker++) {
		if (tracker == own && own != shared)
			continue;
		lock_take(&tracker->lock);
		look_locked(tracker, current);
		if (tracker->first && tracker->first < oldest)
			oldest = tracker->first;
		lock_drop(&tracker->lock);
	}
	capture_restore(mode);
	capture_resume();
	return oldest;
}

/* Returns whether the row has submissions that no event follows, and no new ones since the last look. */
static bool has_tail(struct tracker *tracker)
{
	if (!tracker->first || tracker->n || tracker->recording || tracker->ending)
		return false;
	bool grown = tracker->seen != tracker->last;
	tracker->seen = tracker->last;
	return !grown;
}

/* Returns whether all work of the row runs on one of these devices (bits). */
static bool is_of(const struct tracker *tracker, uint64_t devices)
{
	return !completion_is_shared(tracker) && tracker->device >= 0 && devices >> tracker->device & 1;
}

/*
 * Returns the oldest submission of the row that is not known to be complete and may touch the heap of `owner`, by the
 * owners that it was counted with, or 0. Locking: the caller must hold ROW.
 */
static uint64_t oldest_told_locked(const struct tracker *tracker, CUdevice owner)
{
	if (completion_is_shared(tracker) || tracker->device < 0)
		return tracker->first;
	if (!tracker->first || !(tracker->foreign >> owner & 1))
		return 0;
	return tracker->first > tracker->foreign_first ? tracker->first : tracker->foreign_first;
}

uint64_t completion_poll(CUdevice owner, uint64_t devices, bool look_after_tails, CUresult *ret_error)
{
	/* Must be read first: the result says nothing about submissions that are counted later. */
	uint64_t result = atomic_load(&submit_state.completion.newest), all = result;
	struct completion_answers answers = {0};
	CUcontext tail = NULL, other_tail = NULL;
	bool any_others = false;

	lock_take(&submit_state.completion.table_lock);
	completion_context_poll_locked(&answers);
	unsigned n = completion_n_trackers();
	for (unsigned i = 0; i <= n; i++) {
		struct tracker *tracker =
		    i < n ? &submit_state.completion.trackers[i] : &submit_state.completion.trackers[TRACKERS];

		lock_take(&tracker->lock);
		if (!tracker->ending)
			poll_locked(tracker, &answers);
		uint64_t oldest = is_of(tracker, devices) ? tracker->first : oldest_told_locked(tracker, owner);
		if (oldest && oldest <= result)
			result = oldest - 1;
		if (look_after_tails && i < n && has_tail(tracker))
			*(oldest ? &tail : &other_tail) = tracker->context;
		any_others |= i == n && tracker->first;
		lock_drop(&tracker->lock);
	}
	lock_drop(&submit_state.completion.table_lock);
	if (answers.error != CUDA_SUCCESS && !answers.any_good)
		*ret_error = answers.error;
	/* Tails that do not matter to `owner` come second; they are looked after so that their rows can be reused. */
	if (tail || other_tail)
		completion_context_look_after(tail ? tail : other_tail, all);
	if (any_others)
		completion_context_ask_for_others(all);
	return result;
}

bool completion_is_idle(CUdevice owner, uint64_t devices, const struct context_idle *idle, uint64_t number)
{
	CUresult unused;

	for (unsigned i = 0; i < idle->n_asked; i++)
		completion_streams_pass(idle->asked[i], number);
	if (devices == CONTEXT_ALL_DEVICES)
		completion_others_pass(number);
	return completion_poll(owner, devices, false, &unused) >= number;
}

bool completion_touches(CUdevice owner, uint64_t devices)
{
	bool any = false;

	for (unsigned i = 0; i < COMPLETION_STREAMS && !any; i++) {
		lock_take(&submit_state.completion.trackers[i].lock);
		any = !is_of(&submit_state.completion.trackers[i], devices) &&
		      oldest_told_locked(&submit_state.completion.trackers[i], owner);
		lock_drop(&submit_state.completion.trackers[i].lock);
	}
	return any;
}

void completion_each_in_flight(void (*visit)(void *argument, unsigned row, const struct completion_what *what),
			       void *argument)
{
	uint64_t first[COMPLETION_STREAMS], last = atomic_load(&submit_state.completion.newest);

	for (unsigned i = 0; i < COMPLETION_STREAMS; i++) {
		lock_take(&submit_state.completion.trackers[i].lock);
		first[i] = submit_state.completion.trackers[i].first;
		lock_drop(&submit_state.completion.trackers[i].lock);
	}
	for (uint64_t number = recent_submissions_oldest(last); number <= last; number++) {
		struct completion_what what;
		unsigned row;

		if (recent_submissions_look(number, &what, &row) && first[row] && first[row] <= number)
			visit(argument, row, &what);
	}
}

/* ---- whole contexts ---- */

/*
 * Completion that is proved by events of whole contexts: of the tails of streams, which no event
 * on the stream follows, and of the row that streams without one share. Also what the end of a context does to both.
 * completion_streams.c keeps the rows.
 */

/* ---- tails ---- */

static void poll_tails(struct completion_answers *answers)
{
	for (unsigned i = 0; i < COMPLETION_TAILS; i++) {
		if (!submit_tables.tails.at[i].under_way)
			continue;
		CUresult result = REAL(cuEventQuery)(submit_tables.tails.at[i].event);
		completion_answered(answers, result);
		if (result == CUDA_ERROR_NOT_READY)
			continue;
		submit_tables.tails.at[i].under_way = false;
		REAL(cuEventDestroy_v2)(submit_tables.tails.at[i].event);
		if (result == CUDA_SUCCESS)
			completion_streams_pass(submit_tables.tails.at[i].context, submit_tables.tails.at[i].number);
	}
}

/*
 * Returns a free entry for the tail of the context, or TAILS if it has one already or none is free.
 * Locking: the caller must hold ROWS.
 */
static unsigned free_tail(CUcontext context)
{
	unsigned found = COMPLETION_TAILS;

	for (unsigned i = 0; i < COMPLETION_TAILS; i++) {
		if (!submit_tables.tails.at[i].under_way)
			found = i;
		else if (submit_tables.tails.at[i].context == context)
			return COMPLETION_TAILS;
	}
	return found;
}

/*
 * Records the event without the lock, because that may wait for room in the driver's queues. If any context has ended
 * meanwhile, the event may have ended with it and is dropped; if the mover of another device was faster, the event is
 * not needed.
 */
void completion_context_look_after(CUcontext context, uint64_t number)
{
	bool gone;

	lock_take(&submit_state.completion.table_lock);
	unsigned found = free_tail(context), ends = submit_tables.tails.n_ends;
	lock_drop(&submit_state.completion.table_lock);
	if (found == COMPLETION_TAILS || !capture_pause())
		return;
	CUevent event = context_record(context, &gone);
	capture_resume();
	if (gone)
		completion_streams_pass(context, number);
	lock_take(&submit_state.completion.table_lock);
	if (event && ends == submit_tables.tails.n_ends) {
		found = free_tail(context);
		if (found == COMPLETION_TAILS) {
			REAL(cuEventDestroy_v2)(event);
		} else {
			submit_tables.tails.at[found].context = context;
			submit_tables.tails.at[found].owner = context_whole(context);
			submit_tables.tails.at[found].event = event;
			submit_tables.tails.at[found].number = number;
			submit_tables.tails.at[found].under_way = true;
		}
	}
	lock_drop(&submit_state.completion.table_lock);
}

/* ---- the shared row ---- */

/*
 * The shared row has streams of all contexts and no events. It is complete up to `number` once every context has
 * completed what it had when it was asked. Only one such question is open at a time, so that it is answered however
 * much is submitted meanwhile.
 */
static void completion_context_ask_for_others(uint64_t number)
{
	struct context_idle idle;

	lock_take(&submit_state.completion.table_lock);
	bool ask = submit_tables.others.state == OTHERS_NOT_ASKED;
	if (ask)
		submit_tables.others.state = OTHERS_BEING_ASKED;
	lock_drop(&submit_state.completion.table_lock);
	if (!ask)
		return;
	bool asked = context_idle_ask(CONTEXT_ALL_DEVICES, &idle);
	lock_take(&submit_state.completion.table_lock);
	submit_tables.others.state = asked ? OTHERS_ASKED : OTHERS_NOT_ASKED;
	if (asked) {
		submit_tables.others.idle = idle;
		submit_tables.others.number = number;
	}
	lock_drop(&submit_state.completion.table_lock);
}

static void poll_others(void)
{
	if (submit_tables.others.state != OTHERS_ASKED)
		return;
	enum context_idleness state = context_idle_look(&submit_tables.others.idle);
	if (state == CONTEXT_BUSY)
		return;
	submit_tables.others.state = OTHERS_NOT_ASKED;
	if (state == CONTEXT_IDLE)
		completion_others_pass(submit_tables.others.number);
}

static void completion_context_poll_locked(struct completion_answers *answers)
{
	poll_tails(answers);
	poll_others();
}

/* ---- ends ---- */

bool completion_context_ending(CUcontext context)
{
	lock_take(&submit_state.completion.table_lock);
	submit_tables.tails.n_ends++;
	completion_streams_ending_locked(context);
	for (unsigned i = 0; i < COMPLETION_TAILS; i++) {
		if (submit_tables.tails.at[i].under_way &&
		    (submit_tables.tails.at[i].context == context || submit_tables.tails.at[i].owner == context)) {
			REAL(cuEventDestroy_v2)(submit_tables.tails.at[i].event);
			submit_tables.tails.at[i].under_way = false;
		}
	}
	lock_drop(&submit_state.completion.table_lock);
	bool may = completion_streams_wait(context);
	if (may)
		completion_streams_leave_part(context);
	return may;
}

void completion_context_ended(CUcontext context, bool ended)
{
	lock_take(&submit_state.completion.table_lock);
	completion_streams_ended_locked(context, ended);
	lock_drop(&submit_state.completion.table_lock);
}
