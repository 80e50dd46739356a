/*
 * completion.c: completion of submissions: gives them numbers, records events behind them on their streams, and queries
 * the events to find out what is complete.
 */
#include "shim/submit/completion.h"
#include "shim/base/lock.h"
#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/process/process.h"
#include "shim/submit/types.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

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

/* ---- rows of streams ---- */

/*
 * One row per stream: which stream it is, which submissions to it are not known to be complete, and the events recorded
 * behind them.
 *
 * Locks: each row has a lock, ROW, for all of its fields; rows are opened under ROWS as well. A row may be closed and
 * reused for another stream whenever its lock is not held.
 */

static struct tracker *const rows = submit_state.completion.trackers;
static struct tracker *const shared = &submit_state.completion.trackers[TRACKERS];

/*
 * Returns the row behind this one (NULL: the first) with its lock; the shared row comes last, then NULL. Drops the lock
 * of this one.
 */
static struct tracker *next_locked(struct tracker *tracker)
{
	unsigned next = tracker ? (unsigned)(tracker - rows) + 1 : 0, n = atomic_load(&submit_tables.rows.n);

	if (tracker)
		lock_drop(&tracker->lock);
	if (tracker == shared)
		return NULL;
	tracker = next < n ? &rows[next] : shared;
	lock_take(&tracker->lock);
	return tracker;
}

/* Returns the ring of EVENTS events of the row. Locking: the caller must hold the row's lock to use it. */
static struct row_event *ring_of(const struct tracker *tracker)
{
	return submit_tables.rows.rings[tracker - rows];
}

static void forget_events(struct tracker *tracker)
{
	memset(ring_of(tracker), 0, sizeof(submit_tables.rows.rings[0]));
	tracker->n = tracker->head = 0;
}

/* Returns whether the handle means different streams in different contexts or threads. */
static bool is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The row that this thread used last, and the arguments that it was found for. */
static __thread struct found {
	struct tracker *tracker;
	CUstream stream; /* as the program passed it */
	bool per_thread;
	CUcontext current; /* for default streams; else NULL */
	CUstream key;      /* the row is still the right one if its stream is this, and `thread` agrees */
	uint64_t thread;
} mine __attribute__((tls_model("initial-exec")));

/* At the end of a thread: closes the rows of its default streams. After a fork, locks may be held for ever. */
static void close_own(void *its)
{
	if (!process_counts() || !*process_fork_page)
		return;
	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker))
		if (tracker->thread == (uintptr_t)its)
			tracker->open = false;
}

/* Of this thread, from 1; 0 if not assigned yet. */
static __thread uint64_t serial __attribute__((tls_model("initial-exec")));

static void make_key(void)
{
	submit_state.completion.has_key = pthread_key_create(&submit_state.completion.key, close_own) == 0;
}

/*
 * Returns a serial number of the thread. Not its id, which is reused after the thread has ended, while work on its
 * default stream may still run; an event on the new thread's default stream proves nothing about that work. Without a
 * key, its rows stay open when it ends.
 */
static uint64_t my_serial(void)
{
	if (!serial)
		serial = atomic_fetch_add(&submit_tables.rows.n_threads, 1) + 1;
	pthread_once(&submit_state.completion.key_once, make_key);
	if (submit_state.completion.has_key)
		pthread_setspecific(submit_state.completion.key, (void *)(uintptr_t)serial);
	return serial;
}

static bool is_for(const struct tracker *tracker, CUstream stream, CUcontext context, uint64_t thread)
{
	return tracker->open && tracker->stream == stream && tracker->thread == thread &&
	       (!is_default(stream) || tracker->context == context);
}

/* Returns a row, with its lock, that nothing is under way in: one that is closed, or an open one; or NULL. */
static struct tracker *idle_locked(bool open)
{
	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker))
		if (!tracker->first && !tracker->n && !tracker->recording && !tracker->ending &&
		    tracker->open == open && tracker != shared)
			return tracker;
	return NULL;
}

/* Returns a row for another stream, with its lock: a closed one, a new one, or an open one; NULL: none is left. */
static struct tracker *free_locked(void)
{
	unsigned n = atomic_load(&submit_tables.rows.n);
	struct tracker *tracker = idle_locked(false);

	if (tracker || n == TRACKERS)
		return tracker ? tracker : idle_locked(true);
	tracker = &rows[n];
	lock_take(&tracker->lock);
	atomic_store(&submit_tables.rows.n, n + 1);
	return tracker;
}

/* Without a context the stream shares the last row for this once: events of a wrong context would prove nothing. */
static struct tracker *open_locked(CUstream stream, bool per_thread, CUcontext context, CUdevice device,
				   uint64_t thread)
{
	struct tracker *tracker = context ? free_locked() : NULL;

	if (!tracker) {
		lock_take(&shared->lock);
		return shared;
	}
	/* Events of another context cannot be reused; they are few, and end with that context. */
	if (tracker->context != context)
		forget_events(tracker);
	tracker->open = true;
	tracker->per_thread = per_thread;
	tracker->stream = stream;
	tracker->context = context;
	tracker->whole = context_whole(context);
	tracker->device = device;
	tracker->thread = thread;
	tracker->first = tracker->last = tracker->recorded = 0;
	tracker->foreign = 0;
	tracker->head = 0;
	return tracker;
}

/*
 * Finds the row or opens it, and remembers it in `mine`. Returns it with its lock, which is not dropped in between:
 * the row might be closed, and opened for another stream.
 */
static struct tracker *find_or_open_locked(CUstream stream, bool per_thread, CUcontext current)
{
	uint64_t thread = stream == CU_STREAM_PER_THREAD || (per_thread && !stream) ? my_serial() : 0;
	/* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD mean the same in both spellings of an entry point. */
	CUstream key = thread ? CU_STREAM_PER_THREAD : !stream ? CU_STREAM_LEGACY : stream;
	CUcontext context = is_default(key) ? current : context_told(stream, per_thread);
	/* Also makes the context known, so that a gap waits for it (quiesce.c). */
	CUcontext likely = context ? context : context_current();
	CUdevice device;
	if (!likely || !context_device(likely, &device) || device >= DEVICE_MOST)
		device = -1;

	lock_take(&submit_state.completion.table_lock);
	struct tracker *tracker = next_locked(NULL);
	while (tracker && !is_for(tracker, key, context, thread))
		tracker = next_locked(tracker);
	if (!tracker)
		tracker = open_locked(key, per_thread, context, device, thread);
	lock_drop(&submit_state.completion.table_lock);
	mine = (struct found){tracker, stream, per_thread, current, key, thread};
	return tracker;
}

/*
 * Returns the row that this thread used last, or NULL if there is none or it now belongs to another stream.
 * Locking: takes ROW, which the caller must drop.
 */
static struct tracker *last_locked(void)
{
	struct tracker *tracker = mine.tracker;

	if (!tracker)
		return NULL;
	lock_take(&tracker->lock);
	if (is_for(tracker, mine.key, mine.current, mine.thread))
		return tracker;
	lock_drop(&tracker->lock);
	return NULL;
}

/*
 * Returns the row of a stream; opens one if it has none. Never NULL.
 * Locking: takes ROW, which the caller must drop; takes ROWS to search and open.
 */
static struct tracker *stream_locked(CUstream stream, bool per_thread)
{
	if (stream == COMPLETION_ANY_STREAM) {
		lock_take(&shared->lock);
		return shared;
	}
	CUcontext current = is_default(stream) ? context_current() : NULL;
	if (mine.stream == stream && mine.per_thread == per_thread && mine.current == current) {
		struct tracker *tracker = last_locked();

		if (tracker)
			return tracker;
	}
	return find_or_open_locked(stream, per_thread, current);
}

CUdevice completion_device(CUstream stream, bool per_thread)
{
	struct tracker *tracker = stream_locked(stream, per_thread);
	CUdevice device = tracker == shared ? -1 : tracker->device;

	lock_drop(&tracker->lock);
	return device;
}

/* ---- what is done ---- */

/* Records that all submissions of the row up to the number are complete. Locking: the caller must hold ROW. */
static void pass_locked(struct tracker *tracker, uint64_t number)
{
	if (tracker->first && tracker->first <= number)
		tracker->first = tracker->last > number ? number + 1 : 0;
	if (!tracker->first || tracker->first > tracker->foreign_last)
		tracker->foreign = 0;
}

/* The same of the whole context. Locking: takes ROW. */
static void pass_context(CUcontext context, uint64_t number)
{
	CUcontext whole = context_whole(context);

	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker))
		if (tracker->whole == whole)
			pass_locked(tracker, number);
}

/* The same of the shared row. Locking: takes ROW. */
static void pass_shared(uint64_t number)
{
	lock_take(&shared->lock);
	pass_locked(shared, number);
	lock_drop(&shared->lock);
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
	CUevent event = ring_of(tracker)[at].event;
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
		/* A capture may have begun, which a question about the event would end. */
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
		ring_of(tracker)[at].event = event;
		if (result == CUDA_SUCCESS) {
			ring_of(tracker)[at].number = number;
			tracker->n++;
			tracker->recorded = number;
		}
	}
	lock_drop(&tracker->lock);
}

static bool may_record(const struct tracker *tracker)
{
	return tracker != shared && !tracker->recording && !tracker->ending && tracker->n < EVENTS && tracker->open &&
	       !capture_is_open();
}

uint64_t completion_submitted(CUstream stream, bool per_thread, const struct completion_what *what, uint64_t owners,
			      bool hurry)
{
	struct tracker *tracker = stream_locked(stream, per_thread);
	uint64_t number = atomic_fetch_add(&submit_state.completion.newest, 1) + 1;

	latest_own = number;
	recent_submissions_note(number, what, (unsigned)(tracker - rows));

	if (!tracker->first)
		tracker->first = number;
	tracker->last = number;
	if (tracker->device >= 0)
		owners &= ~(UINT64_C(1) << tracker->device);
	/* Movers of other devices wait for it, not for other work of this one: they hear of its completion early. */
	if (owners) {
		if (!tracker->foreign)
			tracker->foreign_first = number;
		tracker->foreign |= owners;
		tracker->foreign_last = number;
		hurry = true;
	}
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
	struct tracker *tracker = last_locked();
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

/*
 * The results of queries of events. A single error may concern one call only; a dead context answers every query with
 * an error. So errors count only if no query succeeded ("done" or "not yet").
 */
struct completion_answers {
	bool any_good;
	CUresult error; /* the latest, or CUDA_SUCCESS */
};

/* Of an event that an ended capture has recorded: the documented answer, and what a driver gave (docs/facts.md). */
static bool is_captured(CUresult result)
{
	return result == CUDA_ERROR_CAPTURED_EVENT || result == CUDA_ERROR_INVALID_VALUE;
}

static void note_answer(struct completion_answers *answers, CUresult result)
{
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY || is_captured(result))
		answers->any_good = true;
	else
		answers->error = result;
}

/* ---- tails of streams, which events of whole contexts prove complete; under ROWS ---- */

static struct tails_state *const tails = &submit_tables.tails;

static void poll_tails(struct completion_answers *answers)
{
	for (struct tail *tail = tails->at; tail < tails->at + COMPLETION_TAILS; tail++) {
		if (!tail->under_way)
			continue;
		CUresult result = REAL(cuEventQuery)(tail->event);
		note_answer(answers, result);
		if (result == CUDA_ERROR_NOT_READY)
			continue;
		tail->under_way = false;
		REAL(cuEventDestroy_v2)(tail->event);
		if (result == CUDA_SUCCESS)
			pass_context(tail->context, tail->number);
	}
}

/* Returns a free entry for the tail of the context; NULL: it has one, or none is free. */
static struct tail *free_tail_locked(CUcontext context)
{
	struct tail *found = NULL;

	for (struct tail *tail = tails->at; tail < tails->at + COMPLETION_TAILS; tail++) {
		if (!tail->under_way)
			found = tail;
		else if (tail->context == context)
			return NULL;
	}
	return found;
}

/*
 * Records an event of a context that has a tail; once it has passed, the submissions of that context up to the number
 * are complete. Records it without the lock, because that may wait for room in the driver's queues. If any context has
 * ended meanwhile, the event may have ended with it and is dropped; if the mover of another device was faster, the
 * event is not needed.
 */
void completion_context_look_after(CUcontext context, uint64_t number)
{
	bool gone;

	lock_take(&submit_state.completion.table_lock);
	bool may = free_tail_locked(context);
	unsigned ends = tails->n_ends;
	lock_drop(&submit_state.completion.table_lock);
	if (!may || !capture_pause())
		return;
	CUevent event = context_record(context, &gone);
	capture_resume();
	if (gone)
		pass_context(context, number);
	lock_take(&submit_state.completion.table_lock);
	struct tail *tail = event && ends == tails->n_ends ? free_tail_locked(context) : NULL;
	if (tail)
		*tail = (struct tail){context, context_whole(context), event, number, true};
	else if (event && ends == tails->n_ends)
		REAL(cuEventDestroy_v2)(event);
	lock_drop(&submit_state.completion.table_lock);
}

/* ---- the shared row ---- */

/*
 * The shared row has streams of all contexts and no events. It is complete up to `number` once every context has
 * completed what it had when it was asked. Only one such question is open at a time, so that it is answered however
 * much is submitted meanwhile.
 */
static struct others_state *const others = &submit_tables.others;

static void ask_for_shared(uint64_t number)
{
	struct context_idle idle;

	lock_take(&submit_state.completion.table_lock);
	bool ask = others->state == OTHERS_NOT_ASKED;
	if (ask)
		others->state = OTHERS_BEING_ASKED;
	lock_drop(&submit_state.completion.table_lock);
	if (!ask)
		return;
	bool asked = context_idle_ask(CONTEXT_ALL_DEVICES, &idle);
	lock_take(&submit_state.completion.table_lock);
	*others = asked ? (struct others_state){OTHERS_ASKED, idle, number} : (struct others_state){0};
	lock_drop(&submit_state.completion.table_lock);
}

static void poll_shared(void)
{
	if (others->state != OTHERS_ASKED)
		return;
	enum context_idleness state = context_idle_look(&others->idle);
	if (state == CONTEXT_BUSY)
		return;
	others->state = OTHERS_NOT_ASKED;
	if (state == CONTEXT_IDLE)
		pass_shared(others->number);
}

/* ---- all of it ---- */

static void poll_locked(struct tracker *tracker, struct completion_answers *answers)
{
	while (tracker->n) {
		CUresult result = REAL(cuEventQuery)(ring_of(tracker)[tracker->head].event);

		note_answer(answers, result);
		/* Captured: a capture took it, and had ended when the record returned. It proves nothing. */
		if (result != CUDA_SUCCESS && !is_captured(result))
			return;
		uint64_t number = ring_of(tracker)[tracker->head].number;
		tracker->head = (tracker->head + 1) % EVENTS;
		tracker->n--;
		if (result == CUDA_SUCCESS)
			pass_locked(tracker, number);
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
	    (is_default(tracker->stream) && tracker->context != current))
		return;
	if (REAL(cuStreamQuery)(tracker->stream) == CUDA_SUCCESS)
		pass_locked(tracker, tracker->last);
}

uint64_t completion_oldest_elsewhere(CUstream stream, bool per_thread)
{
	struct tracker *own = stream_locked(stream, per_thread);
	CUcontext current = context_current();
	uint64_t oldest = UINT64_MAX;

	lock_drop(&own->lock);
	if (!capture_pause())
		return 0;
	CUstreamCaptureMode mode = capture_relax();
	/* Several streams share the last row, so it counts as another stream even for those. */
	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker)) {
		if (tracker == own && own != shared)
			continue;
		look_locked(tracker, current);
		if (tracker->first && tracker->first < oldest)
			oldest = tracker->first;
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
	return tracker != shared && tracker->device >= 0 && devices >> tracker->device & 1;
}

/*
 * Returns the oldest submission of the row that is not known to be complete and may touch the heap of `owner`, by the
 * owners that it was counted with, or 0. Locking: the caller must hold ROW.
 */
static uint64_t oldest_told_locked(const struct tracker *tracker, CUdevice owner)
{
	if (tracker == shared || tracker->device < 0)
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
	poll_tails(&answers);
	poll_shared();
	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker)) {
		if (!tracker->ending)
			poll_locked(tracker, &answers);
		uint64_t oldest = is_of(tracker, devices) ? tracker->first : oldest_told_locked(tracker, owner);
		if (oldest && oldest <= result)
			result = oldest - 1;
		if (look_after_tails && tracker != shared && has_tail(tracker))
			*(oldest ? &tail : &other_tail) = tracker->context;
		any_others |= tracker == shared && tracker->first;
	}
	lock_drop(&submit_state.completion.table_lock);
	if (answers.error != CUDA_SUCCESS && !answers.any_good)
		*ret_error = answers.error;
	/* Tails that do not matter to `owner` come second; they are looked after so that their rows can be reused. */
	if (tail || other_tail)
		completion_context_look_after(tail ? tail : other_tail, all);
	if (any_others)
		ask_for_shared(all);
	return result;
}

bool completion_is_idle(CUdevice owner, uint64_t devices, const struct context_idle *idle, uint64_t number)
{
	CUresult unused;

	for (unsigned i = 0; i < idle->n_asked; i++)
		pass_context(idle->asked[i], number);
	if (devices == CONTEXT_ALL_DEVICES)
		pass_shared(number);
	return completion_poll(owner, devices, false, &unused) >= number;
}

bool completion_touches(CUdevice owner, uint64_t devices)
{
	bool any = false;

	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker))
		any |= !is_of(tracker, devices) && oldest_told_locked(tracker, owner);
	return any;
}

void completion_each_in_flight(void (*visit)(void *argument, unsigned row, const struct completion_what *what),
			       void *argument)
{
	uint64_t first[COMPLETION_STREAMS] = {0}, last = atomic_load(&submit_state.completion.newest);

	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker))
		first[tracker - rows] = tracker->first;
	for (uint64_t number = last < SUBMISSIONS_KEPT ? 1 : last - SUBMISSIONS_KEPT + 1; number <= last; number++) {
		struct completion_what what;
		unsigned row;

		if (recent_submissions_look(number, &what, &row) && first[row] && first[row] <= number)
			visit(argument, row, &what);
	}
}

/* ---- ends ---- */

/* Recording usually takes a microsecond; a full queue in the driver, or the system, may delay it. */
#define NAP_NS       100000
#define SHORT_NAPS   100 /* afterwards, the recording thread must destroy the stream */
#define LONG_NAP_NS  1000000
#define CONTEXT_NAPS 30000

/* Returns whether no record is under way any more. Locking: the caller must hold ROW; drops it during the naps. */
static bool wait_for_record_locked(struct tracker *tracker, long nap_ns, unsigned naps)
{
	while (tracker->recording && naps--) {
		lock_drop(&tracker->lock);
		nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
		lock_take(&tracker->lock);
	}
	return !tracker->recording;
}

bool completion_stream_ending(CUstream stream)
{
	bool inherited = false;
	int before;

	if (is_default(stream))
		return false;
	/* A nap is a cancellation point. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker)) {
		if (!tracker->open || tracker->stream != stream)
			continue;
		tracker->open = false;
		if (!wait_for_record_locked(tracker, NAP_NS, SHORT_NAPS))
			inherited = tracker->inherited = true;
	}
	pthread_setcancelstate(before, NULL);
	return inherited;
}

bool completion_context_ending(CUcontext context)
{
	bool may = true;

	lock_take(&submit_state.completion.table_lock);
	tails->n_ends++;
	/* From here on no record begins in these rows, and their events are not used. */
	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker))
		tracker->ending |= tracker->context == context;
	for (struct tail *tail = tails->at; tail < tails->at + COMPLETION_TAILS; tail++) {
		if (tail->under_way && (tail->context == context || tail->owner == context)) {
			REAL(cuEventDestroy_v2)(tail->event);
			tail->under_way = false;
		}
	}
	lock_drop(&submit_state.completion.table_lock);
	/* A cancellation point; without ROWS. */
	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker))
		if (may && tracker->context == context)
			may = wait_for_record_locked(tracker, LONG_NAP_NS, CONTEXT_NAPS);
	if (!may)
		return false;
	/*
	 * The work of a green context may go on after its end, but events in it end with it. Its rows are closed, and
	 * wait for an event of its primary context, which covers that work (docs/facts.md).
	 */
	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker)) {
		if (tracker->ending && tracker->context == context && tracker->whole != context && tracker->first) {
			forget_events(tracker);
			tracker->context = tracker->whole;
			tracker->open = tracker->ending = false;
		}
	}
	return true;
}

void completion_context_ended(CUcontext context, bool ended)
{
	lock_take(&submit_state.completion.table_lock);
	for (struct tracker *tracker = next_locked(NULL); tracker; tracker = next_locked(tracker)) {
		if (!tracker->ending || tracker->context != context)
			continue;
		tracker->ending = false;
		if (ended) {
			forget_events(tracker);
			tracker->open = false;
			tracker->first = tracker->foreign = 0;
			tracker->context = NULL;
		}
	}
	lock_drop(&submit_state.completion.table_lock);
}
