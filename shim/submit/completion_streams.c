/*
 * completion_streams.c: the rows of streams: finds or opens the row of a submission, records in rows that submissions
 * are complete, and closes rows when their streams and contexts end.
 */
#include "shim/submit/types.h"
#include "shim/base/lock.h"
#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/process/process.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* The row that this thread used last, and the arguments that it was found for. */
static __thread struct {
	struct tracker *tracker;
	CUstream stream; /* as the program passed it */
	bool per_thread;
	CUcontext current; /* for default streams; else NULL */
	CUstream key;      /* the row is still the right one if its stream is this, and `thread` agrees */
	uint64_t thread;
	uint64_t serial; /* of this thread, from 1; 0 if not assigned yet */
} mine __attribute__((tls_model("initial-exec")));

unsigned completion_n_trackers(void)
{
	return atomic_load(&submit_tables.rows.n);
}

/*
 * At the end of a thread: closes the rows of its default streams. In the child of a fork, locks may be held for ever.
 */
static void close_own(void *serial)
{
	unsigned n = process_counts() && *process_fork_page ? completion_n_trackers() : 0;

	for (unsigned i = 0; i < n; i++) {
		struct tracker *tracker = &submit_state.completion.trackers[i];

		lock_take(&tracker->lock);
		if (tracker->thread == (uintptr_t)serial)
			tracker->open = false;
		lock_drop(&tracker->lock);
	}
}

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
	if (!mine.serial)
		mine.serial = atomic_fetch_add(&submit_tables.rows.n_threads, 1) + 1;
	pthread_once(&submit_state.completion.key_once, make_key);
	if (submit_state.completion.has_key)
		pthread_setspecific(submit_state.completion.key, (void *)(uintptr_t)mine.serial);
	return mine.serial;
}

static bool is_own(CUstream stream, bool per_thread)
{
	return stream == CU_STREAM_PER_THREAD || (per_thread && !stream);
}

static bool is_idle(const struct tracker *tracker)
{
	return !tracker->first && !tracker->n && !tracker->recording;
}

static bool is_for(const struct tracker *tracker, CUstream stream, CUcontext context, uint64_t thread)
{
	return tracker->open && tracker->stream == stream && tracker->thread == thread &&
	       (!completion_is_default(stream) || tracker->context == context);
}

static CUdevice device_of_context(CUcontext context)
{
	CUdevice device;

	return context && context_device(context, &device) && device < DEVICE_MOST ? device : -1;
}

/* Returns a row, with its lock, that nothing is under way in: one that is closed, or an open one; or NULL. */
static struct tracker *idle_locked(bool open)
{
	unsigned n = completion_n_trackers();

	for (unsigned i = 0; i < n; i++) {
		struct tracker *tracker = &submit_state.completion.trackers[i];

		lock_take(&tracker->lock);
		if (is_idle(tracker) && !tracker->ending && tracker->open == open)
			return tracker;
		lock_drop(&tracker->lock);
	}
	return NULL;
}

/* Returns a row for another stream, with its lock: a closed one, a new one, or an open one; NULL: none is left. */
static struct tracker *free_locked(void)
{
	unsigned n = completion_n_trackers();
	struct tracker *tracker = idle_locked(false);

	if (tracker || n == TRACKERS)
		return tracker ? tracker : idle_locked(true);
	tracker = &submit_state.completion.trackers[n];
	lock_take(&tracker->lock);
	atomic_store(&submit_tables.rows.n, n + 1);
	return tracker;
}

/*
 * Without a context, the stream shares the last row for this once: events of a wrong context would prove nothing.
 */
static struct tracker *open_locked(CUstream stream, bool per_thread, CUcontext context, CUdevice device,
				   uint64_t thread)
{
	struct tracker *tracker = context ? free_locked() : NULL;

	if (!tracker) {
		tracker = &submit_state.completion.trackers[TRACKERS];
		lock_take(&tracker->lock);
		return tracker;
	}
	/* Events of another context cannot be reused; they are few, and end with that context. */
	if (tracker->context != context)
		memset(completion_ring(tracker), 0, sizeof(submit_tables.rows.rings[0]));
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

static struct tracker *find_locked(CUstream stream, CUcontext context, uint64_t thread)
{
	unsigned n = completion_n_trackers();

	for (unsigned i = 0; i < n; i++) {
		struct tracker *tracker = &submit_state.completion.trackers[i];

		lock_take(&tracker->lock);
		if (is_for(tracker, stream, context, thread))
			return tracker;
		lock_drop(&tracker->lock);
	}
	return NULL;
}

/*
 * Finds the row or opens it, and remembers it in `mine`. Returns it with its lock, which is not dropped in between:
 * the row might be closed, and opened for another stream.
 */
static struct tracker *completion_streams_find(CUstream stream, bool per_thread, CUcontext current)
{
	uint64_t thread = is_own(stream, per_thread) ? my_serial() : 0;
	/* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD mean the same in both spellings of an entry point. */
	CUstream key = thread ? CU_STREAM_PER_THREAD : !stream ? CU_STREAM_LEGACY : stream;
	CUcontext context = completion_is_default(key) ? current : context_told(stream, per_thread);
	/*
	 * Also makes the context known, so that a gap waits for it (quiesce.c); one that is not told is most likely
	 * this.
	 */
	CUdevice device = device_of_context(context ? context : context_current());

	lock_take(&submit_state.completion.table_lock);
	struct tracker *tracker = find_locked(key, context, thread);
	if (!tracker)
		tracker = open_locked(key, per_thread, context, device, thread);
	lock_drop(&submit_state.completion.table_lock);
	mine.tracker = tracker;
	mine.stream = stream;
	mine.per_thread = per_thread;
	mine.current = current;
	mine.key = key;
	mine.thread = thread;
	return tracker;
}

struct tracker *completion_stream(CUstream stream, bool per_thread)
{
	if (stream == COMPLETION_ANY_STREAM) {
		lock_take(&submit_state.completion.trackers[TRACKERS].lock);
		return &submit_state.completion.trackers[TRACKERS];
	}
	CUcontext current = completion_is_default(stream) ? context_current() : NULL;
	struct tracker *tracker = mine.tracker;

	if (tracker && mine.stream == stream && mine.per_thread == per_thread && mine.current == current) {
		lock_take(&tracker->lock);
		if (is_for(tracker, mine.key, current, mine.thread))
			return tracker;
		lock_drop(&tracker->lock);
	}
	return completion_streams_find(stream, per_thread, current);
}

struct tracker *completion_stream_last(void)
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

CUdevice completion_device(CUstream stream, bool per_thread)
{
	struct tracker *tracker = completion_stream(stream, per_thread);
	CUdevice device = completion_is_shared(tracker) ? -1 : tracker->device;

	lock_drop(&tracker->lock);
	return device;
}

/* ---- what is done ---- */

void completion_stream_pass_locked(struct tracker *tracker, uint64_t number)
{
	if (tracker->first && tracker->first <= number)
		tracker->first = tracker->last > number ? number + 1 : 0;
	if (!tracker->first || tracker->first > tracker->foreign_last)
		tracker->foreign = 0;
}

void completion_streams_pass(CUcontext context, uint64_t number)
{
	CUcontext whole = context_whole(context);
	unsigned n = completion_n_trackers();

	for (unsigned i = 0; i < n; i++) {
		struct tracker *tracker = &submit_state.completion.trackers[i];

		lock_take(&tracker->lock);
		if (tracker->whole == whole)
			completion_stream_pass_locked(tracker, number);
		lock_drop(&tracker->lock);
	}
}

void completion_others_pass(uint64_t number)
{
	struct tracker *tracker = &submit_state.completion.trackers[TRACKERS];

	lock_take(&tracker->lock);
	completion_stream_pass_locked(tracker, number);
	lock_drop(&tracker->lock);
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
	unsigned n = completion_n_trackers();
	bool inherited = false;
	int before;

	/* A nap is a cancellation point. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	for (unsigned i = 0; i < n; i++) {
		lock_take(&submit_state.completion.trackers[i].lock);
		if (submit_state.completion.trackers[i].open && submit_state.completion.trackers[i].stream == stream &&
		    !completion_is_default(stream)) {
			submit_state.completion.trackers[i].open = false;
			if (!wait_for_record_locked(&submit_state.completion.trackers[i], NAP_NS, SHORT_NAPS))
				inherited = submit_state.completion.trackers[i].inherited = true;
		}
		lock_drop(&submit_state.completion.trackers[i].lock);
	}
	pthread_setcancelstate(before, NULL);
	return inherited;
}

bool completion_streams_wait(CUcontext context)
{
	unsigned n = completion_n_trackers();
	bool all = true;

	for (unsigned i = 0; i < n && all; i++) {
		lock_take(&submit_state.completion.trackers[i].lock);
		if (submit_state.completion.trackers[i].context == context)
			all = wait_for_record_locked(&submit_state.completion.trackers[i], LONG_NAP_NS, CONTEXT_NAPS);
		lock_drop(&submit_state.completion.trackers[i].lock);
	}
	return all;
}

void completion_streams_ending_locked(CUcontext context)
{
	unsigned n = completion_n_trackers();

	for (unsigned i = 0; i < n; i++) {
		lock_take(&submit_state.completion.trackers[i].lock);
		submit_state.completion.trackers[i].ending |= submit_state.completion.trackers[i].context == context;
		lock_drop(&submit_state.completion.trackers[i].lock);
	}
}

void completion_streams_leave_part(CUcontext context)
{
	unsigned n = completion_n_trackers();

	for (unsigned i = 0; i < n; i++) {
		struct tracker *tracker = &submit_state.completion.trackers[i];

		lock_take(&tracker->lock);
		if (tracker->ending && tracker->context == context && tracker->whole != context && tracker->first) {
			memset(completion_ring(tracker), 0, sizeof(submit_tables.rows.rings[0]));
			tracker->n = tracker->head = 0;
			tracker->context = tracker->whole;
			tracker->open = tracker->ending = false;
		}
		lock_drop(&tracker->lock);
	}
}

void completion_streams_ended_locked(CUcontext context, bool ended)
{
	unsigned n = completion_n_trackers();

	for (unsigned i = 0; i < n; i++) {
		struct tracker *tracker = &submit_state.completion.trackers[i];

		lock_take(&tracker->lock);
		if (tracker->ending && tracker->context == context) {
			tracker->ending = false;
			if (ended) {
				memset(completion_ring(tracker), 0, sizeof(submit_tables.rows.rings[0]));
				tracker->open = false;
				tracker->first = tracker->foreign = 0;
				tracker->n = tracker->head = 0;
				tracker->context = NULL;
			}
		}
		lock_drop(&tracker->lock);
	}
}
