/*
 * completion.c: completion of submissions: gives them numbers, records events behind them on their streams, and queries
 * the events to find out what is complete. completion_streams.c keeps the rows of streams.
 */
#include "shim/submit/completion_streams.h"
#include "shim/base/lock.h"
#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/submit/recent_submissions.h"

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
		/* It may have taken longer than a capture waits. Asking for an event of an open capture would end that. */
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
