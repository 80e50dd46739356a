// SPDX-License-Identifier: Apache-2.0
/*
 * completion.c: completion of submissions: gives them numbers, records events behind them on their streams, and queries
 * the events to find out what is complete.
 */
#include "shim/submit/completion.h"
#include "shim/process/process.h"
#include "shim/submit/types.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

/*
 * One event per STRIDE submissions, unless the mover asks for one behind each. An event costs time in the launch that
 * records it. Measured (H200, driver 580): 0.35 us or more each; 0.13 us per launch on average with one event for every
 * fourth.
 */
#define STRIDE 16

/* Number of this thread's latest submission; 0: none. */
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

static struct row *const rows = submit_state.completion.rows;
static struct row *const shared = &submit_state.completion.rows[ROWS];

/*
 * Returns the row behind this one (NULL: the first) with its lock; the shared row comes last, then NULL. Drops the lock
 * of this one.
 */
static struct row *next_locked(struct row *row)
{
	unsigned next = row ? (unsigned)(row - rows) + 1 : 0, n = atomic_load(&submit_tables.rows.n);

	if (row)
		lock_drop(&row->lock);
	if (row == shared)
		return NULL;
	row = next < n ? &rows[next] : shared;
	lock_take(&row->lock);
	return row;
}

/* Returns the ring of EVENTS events of the row. Locking: the caller must hold the row's lock to use it. */
static struct row_event *ring_of(const struct row *row)
{
	return submit_tables.rows.rings[row - rows];
}

static void forget_events(struct row *row)
{
	memset(ring_of(row), 0, sizeof(submit_tables.rows.rings[0]));
	row->n = row->head = 0;
}

/* Returns whether the handle means different streams in different contexts or threads. */
static bool is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The row that this thread used last, and the arguments that it was found for. */
static __thread struct found {
	struct row *row;
	CUstream stream; /* as the program passed it */
	bool per_thread;
	CUcontext current; /* for default streams; else NULL */
	CUstream key;      /* the row is still the right one if its stream is this, and `thread` agrees */
	uint64_t thread;
} mine __attribute__((tls_model("initial-exec")));

/* Of this thread, from 1; 0 if not assigned yet. */
static __thread uint64_t serial __attribute__((tls_model("initial-exec")));

/* After a fork, locks may be held for ever. */
void completion_thread_ends(void)
{
	if (!serial || !process_counts() || !*process_fork_page)
		return;
	for (struct row *row = next_locked(NULL); row; row = next_locked(row))
		if (row->thread == serial)
			row->open = false;
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
	if (submit_state.has_thread_key)
		pthread_setspecific(submit_state.thread_key, &serial);
	return serial;
}

static bool is_for(const struct row *row, CUstream stream, CUcontext context, uint64_t thread)
{
	return row->open && row->stream == stream && row->thread == thread &&
	       (!is_default(stream) || row->context == context);
}

/* Returns a row without submissions or events under way, with its lock; NULL: none. open: whether it is to be open. */
static struct row *idle_locked(bool open)
{
	for (struct row *row = next_locked(NULL); row; row = next_locked(row))
		if (!row->first && !row->n && !row->recording && !row->ending && row->open == open && row != shared)
			return row;
	return NULL;
}

/* Returns a row for another stream, with its lock: a closed one, a new one, or an open one; NULL: none is left. */
static struct row *free_locked(void)
{
	unsigned n = atomic_load(&submit_tables.rows.n);
	struct row *row = idle_locked(false);

	if (row || n == ROWS)
		return row ? row : idle_locked(true);
	row = &rows[n];
	lock_take(&row->lock);
	atomic_store(&submit_tables.rows.n, n + 1);
	return row;
}

/* Without a context the stream shares the last row for this once: events of a wrong context would prove nothing. */
static struct row *open_locked(CUstream stream, bool per_thread, CUcontext context, CUdevice device, uint64_t thread)
{
	struct row *row = context ? free_locked() : NULL;

	if (!row) {
		lock_take(&shared->lock);
		return shared;
	}
	/* Events of another context cannot be reused; they are few, and end with that context. */
	if (row->context != context)
		forget_events(row);
	row->open = true;
	row->per_thread = per_thread;
	row->stream = stream;
	row->context = context;
	row->whole = context_whole(context);
	row->device = device;
	row->thread = thread;
	row->first = row->last = row->recorded = 0;
	row->foreign = 0;
	row->head = 0;
	return row;
}

/*
 * Finds the row or opens it, and remembers it in `mine`. Returns it with its lock, which is not dropped in between:
 * the row might be closed, and opened for another stream.
 */
static struct row *find_or_open_locked(CUstream stream, bool per_thread, CUcontext current)
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
	struct row *row = next_locked(NULL);
	while (row && !is_for(row, key, context, thread))
		row = next_locked(row);
	if (!row)
		row = open_locked(key, per_thread, context, device, thread);
	lock_drop(&submit_state.completion.table_lock);
	mine = (struct found){row, stream, per_thread, current, key, thread};
	return row;
}

/*
 * Returns the row that this thread used last, or NULL if there is none or it now belongs to another stream.
 * Locking: takes ROW, which the caller must drop.
 */
static struct row *last_locked(void)
{
	struct row *row = mine.row;

	if (!row)
		return NULL;
	lock_take(&row->lock);
	if (is_for(row, mine.key, mine.current, mine.thread))
		return row;
	lock_drop(&row->lock);
	return NULL;
}

/*
 * Returns the row of a stream; opens one if it has none. Never NULL.
 * Locking: takes ROW, which the caller must drop; takes ROWS to search and open.
 */
static struct row *stream_locked(CUstream stream, bool per_thread)
{
	if (stream == COMPLETION_ANY_STREAM) {
		lock_take(&shared->lock);
		return shared;
	}
	CUcontext current = is_default(stream) ? context_current() : NULL;
	if (mine.stream == stream && mine.per_thread == per_thread && mine.current == current) {
		struct row *row = last_locked();

		if (row)
			return row;
	}
	return find_or_open_locked(stream, per_thread, current);
}

CUdevice completion_device(CUstream stream, bool per_thread)
{
	struct row *row = stream_locked(stream, per_thread);
	CUdevice device = row == shared ? -1 : row->device;

	lock_drop(&row->lock);
	return device;
}

/* ---- what is done ---- */

/* Records that all submissions of the row up to the number are complete. Locking: the caller must hold ROW. */
static void pass_locked(struct row *row, uint64_t number)
{
	if (row->first && row->first <= number)
		row->first = row->last > number ? number + 1 : 0;
	if (!row->first || row->first > row->foreign_last)
		row->foreign = 0;
}

/* The same of the whole context. Locking: takes ROW. */
static void pass_context(CUcontext context, uint64_t number)
{
	CUcontext whole = context_whole(context);

	for (struct row *row = next_locked(NULL); row; row = next_locked(row))
		if (row->whole == whole)
			pass_locked(row, number);
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
static void destroy_inherited_locked(struct row *row)
{
	CUcontext context = row->context;
	CUstream stream = row->stream;
	bool pushed = false;

	row->inherited = false;
	lock_drop(&row->lock);
	if (context_enter(context, &pushed) == CUDA_SUCCESS) {
		REAL(cuStreamDestroy_v2)(stream);
		context_leave(pushed);
	}
	lock_take(&row->lock);
}

/*
 * Records an event behind submission `number`. A capture that is opening waits for it, because the event would become
 * part of the capture; while a capture is open, nothing is recorded. The stream and its context stay until `recording`
 * is cleared (completion.h). Locking: the caller must hold ROW; drops it.
 */
static void record_and_drop(struct row *row, uint64_t number)
{
	unsigned at = (row->head + row->n) % EVENTS;
	CUevent event = ring_of(row)[at].event;
	CUcontext context = row->context;
	CUstream stream = row->stream;
	bool per_thread = row->per_thread;
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	bool pushed = false;

	row->recording = true;
	lock_drop(&row->lock);
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
	lock_take(&row->lock);
	if (__builtin_expect(row->inherited, 0))
		destroy_inherited_locked(row);
	row->recording = false;
	/* If the context is ending or has ended, the event ends with it. */
	if (!row->ending && event && row->context == context) {
		ring_of(row)[at].event = event;
		if (result == CUDA_SUCCESS) {
			ring_of(row)[at].number = number;
			row->n++;
			row->recorded = number;
		}
	}
	lock_drop(&row->lock);
}

static bool may_record(const struct row *row)
{
	return row != shared && !row->recording && !row->ending && row->n < EVENTS && row->open && !capture_is_open();
}

uint64_t completion_submitted(CUstream stream, bool per_thread, const struct completion_what *what, uint64_t owners,
			      bool hurry)
{
	struct row *row = stream_locked(stream, per_thread);
	uint64_t number = atomic_fetch_add(&submit_state.completion.newest, 1) + 1;

	latest_own = number;
	recent_submissions_note(number, what, (unsigned)(row - rows));

	if (!row->first)
		row->first = number;
	row->last = number;
	if (row->device >= 0)
		owners &= ~(UINT64_C(1) << row->device);
	/*
	 * Movers of other devices wait for it, but not for other work of this one: they hear of its completion early.
	 */
	if (owners) {
		if (!row->foreign)
			row->foreign_first = number;
		row->foreign |= owners;
		row->foreign_last = number;
		hurry = true;
	}
	if ((hurry || number - row->recorded >= STRIDE) && may_record(row))
		record_and_drop(row, number);
	else
		lock_drop(&row->lock);
	return number;
}

void completion_flush(void)
{
	struct row *row = last_locked();

	if (!row)
		return;
	/*
	 * Not on the legacy stream: an event there waits for all blocking streams and holds them back, even if this
	 * thread's work would not have. An event of the context proves its tail complete.
	 */
	if (row->recorded < row->last && may_record(row) && row->stream != CU_STREAM_LEGACY)
		record_and_drop(row, row->last);
	else
		lock_drop(&row->lock);
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

static void poll_locked(struct row *row, struct completion_answers *answers)
{
	while (row->n) {
		CUresult result = REAL(cuEventQuery)(ring_of(row)[row->head].event);

		note_answer(answers, result);
		/* Captured: a capture took it, and had ended when the record returned. It proves nothing. */
		if (result != CUDA_SUCCESS && !is_captured(result))
			return;
		uint64_t number = ring_of(row)[row->head].number;
		row->head = (row->head + 1) % EVENTS;
		row->n--;
		if (result == CUDA_SUCCESS)
			pass_locked(row, number);
	}
}

/* Queries the stream too, if this thread can: it has no handle for default streams of other threads or contexts. */
static void look_locked(struct row *row, CUcontext current)
{
	struct completion_answers unused = {0};

	if (!row->first || row->ending)
		return;
	poll_locked(row, &unused); /* an error stays there for the mover to see */
	/* Asking for a stream that captures would end that: a capture waits only for a while. */
	if (!row->first || !row->open || row->thread || capture_is_open() ||
	    (is_default(row->stream) && row->context != current))
		return;
	if (REAL(cuStreamQuery)(row->stream) == CUDA_SUCCESS)
		pass_locked(row, row->last);
}

uint64_t completion_oldest_elsewhere(CUstream stream, bool per_thread)
{
	struct row *own = stream_locked(stream, per_thread);
	CUcontext current = context_current();
	uint64_t oldest = UINT64_MAX;

	lock_drop(&own->lock);
	if (!capture_pause())
		return 0;
	CUstreamCaptureMode mode = capture_relax();
	/* Several streams share the last row, so it counts as another stream even for those. */
	for (struct row *row = next_locked(NULL); row; row = next_locked(row)) {
		if (row == own && own != shared)
			continue;
		look_locked(row, current);
		if (row->first && row->first < oldest)
			oldest = row->first;
	}
	capture_restore(mode);
	capture_resume();
	return oldest;
}

/* Returns whether the row has submissions that no event follows, and no new ones since the last look. */
static bool has_tail(struct row *row)
{
	if (!row->first || row->n || row->recording || row->ending)
		return false;
	bool grown = row->seen != row->last;
	row->seen = row->last;
	return !grown;
}

/* Returns whether all work of the row runs on one of these devices (bits). */
static bool is_of(const struct row *row, uint64_t devices)
{
	return row != shared && row->device >= 0 && devices >> row->device & 1;
}

/*
 * Returns the oldest submission of the row that is not known to be complete and may touch the heap of `owner`, by the
 * owners that it was counted with, or 0. Locking: the caller must hold ROW.
 */
static uint64_t oldest_told_locked(const struct row *row, CUdevice owner)
{
	if (row == shared || row->device < 0)
		return row->first;
	if (!row->first || !(row->foreign >> owner & 1))
		return 0;
	return row->first > row->foreign_first ? row->first : row->foreign_first;
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
	for (struct row *row = next_locked(NULL); row; row = next_locked(row)) {
		if (!row->ending)
			poll_locked(row, &answers);
		uint64_t oldest = is_of(row, devices) ? row->first : oldest_told_locked(row, owner);
		if (oldest && oldest <= result)
			result = oldest - 1;
		if (look_after_tails && row != shared && has_tail(row))
			*(oldest ? &tail : &other_tail) = row->context;
		any_others |= row == shared && row->first;
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

	for (struct row *row = next_locked(NULL); row; row = next_locked(row))
		any |= !is_of(row, devices) && oldest_told_locked(row, owner);
	return any;
}

void completion_each_in_flight(void (*visit)(void *argument, unsigned row, const struct completion_what *what),
			       void *argument)
{
	uint64_t first[COMPLETION_STREAMS] = {0}, last = atomic_load(&submit_state.completion.newest);

	for (struct row *row = next_locked(NULL); row; row = next_locked(row))
		first[row - rows] = row->first;
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
static bool wait_for_record_locked(struct row *row, long nap_ns, unsigned naps)
{
	while (row->recording && naps--) {
		lock_drop(&row->lock);
		nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
		lock_take(&row->lock);
	}
	return !row->recording;
}

bool completion_stream_ending(CUstream stream)
{
	bool inherited = false;
	int before;

	if (is_default(stream))
		return false;
	/* A nap is a cancellation point. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	for (struct row *row = next_locked(NULL); row; row = next_locked(row)) {
		if (!row->open || row->stream != stream)
			continue;
		row->open = false;
		if (!wait_for_record_locked(row, NAP_NS, SHORT_NAPS))
			inherited = row->inherited = true;
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
	for (struct row *row = next_locked(NULL); row; row = next_locked(row))
		row->ending |= row != shared && row->context == context;
	for (struct tail *tail = tails->at; tail < tails->at + COMPLETION_TAILS; tail++) {
		if (tail->under_way && (tail->context == context || tail->owner == context)) {
			REAL(cuEventDestroy_v2)(tail->event);
			tail->under_way = false;
		}
	}
	lock_drop(&submit_state.completion.table_lock);
	/* A cancellation point; without ROWS. */
	for (struct row *row = next_locked(NULL); row; row = next_locked(row))
		if (may && row->context == context)
			may = wait_for_record_locked(row, LONG_NAP_NS, CONTEXT_NAPS);
	if (!may)
		return false;
	/*
	 * The work of a green context may go on after its end, but events in it end with it. Its rows are closed, and
	 * wait for an event of its primary context, which covers that work (docs/facts.md).
	 */
	for (struct row *row = next_locked(NULL); row; row = next_locked(row)) {
		if (row->ending && row->context == context && row->whole != context && row->first) {
			forget_events(row);
			row->context = row->whole;
			row->open = row->ending = false;
		}
	}
	return true;
}

void completion_context_ended(CUcontext context, bool ended)
{
	lock_take(&submit_state.completion.table_lock);
	for (struct row *row = next_locked(NULL); row; row = next_locked(row)) {
		if (!row->ending || row->context != context)
			continue;
		row->ending = false;
		if (ended) {
			forget_events(row);
			row->open = false;
			row->first = row->foreign = 0;
			row->context = NULL;
		}
	}
	lock_drop(&submit_state.completion.table_lock);
}
