#include "shim/spill/done_inside.h"
#include "shim/capture.h"
#include "shim/context.h"
#include "shim/device.h"
#include "shim/log.h"
#include "shim/real.h"
#include "shim/spill/recent.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* Streams in use at once; further ones share the row of the others, which is proved by all contexts together. */
#define TRACKERS (DONE_ROWS - 1)
/* Events under way a stream. A program runs about a thousand launches ahead; further ones go without until some pass. */
#define EVENTS 512
/*
 * One event every so many submissions, where the mover does not ask for one behind each: an event costs the launch that
 * records it 0.35 us or more (H200, driver 580), one for every fourth 0.13 us on average.
 */
#define STRIDE 16

struct tracker {
	pthread_mutex_t lock;
	bool open;       /* new submissions may be counted here */
	bool ending;     /* its context is about to end: its events are not touched */
	bool recording;  /* a thread records an event, without the lock */
	bool per_thread; /* of the calls that submit */
	CUstream stream;
	CUcontext context;
	CUdevice device;      /* of the context; -1: not known */
	uint64_t thread;      /* of a per-thread default stream; else 0 */
	uint64_t first, last; /* the oldest submission not known to be done, 0: none; the latest */
	uint64_t recorded;    /* the latest with an event behind it */
	uint64_t seen;        /* the latest when the mover looked last */
	/* Of those from `first` on: whose heaps they may touch on other devices, and which of them may. 0: none. */
	uint64_t foreign, foreign_first, foreign_last;
	unsigned head, n; /* events under way, in the order they were recorded */
	struct {
		CUevent event;
		uint64_t number;
	} ring[EVENTS];
};

static struct tracker trackers[TRACKERS + 1]; /* the last one: all streams without a row of their own */
static atomic_uint n_trackers;
pthread_mutex_t done_table_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t newest;

static __thread struct {
	struct tracker *tracker;
	CUstream stream; /* as the program gave it */
	bool per_thread;
	bool submitted;    /* since the last flush */
	CUcontext current; /* for default streams; else NULL */
	CUstream key;      /* what the row must still be of */
	uint64_t thread;
	uint64_t serial; /* of this thread, from 1; 0: none yet */
} mine __attribute__((tls_model("initial-exec")));

uint64_t done_newest(void)
{
	return atomic_load(&newest);
}

/* ---- rows ---- */

/*
 * Not the thread's id: that is used again when a thread has ended, while work on its default stream may still run, and
 * an event on the new thread's proves nothing about it.
 */
static uint64_t my_serial(void)
{
	static _Atomic uint64_t n_threads;

	if (!mine.serial)
		mine.serial = atomic_fetch_add(&n_threads, 1) + 1;
	return mine.serial;
}

static bool is_own(CUstream stream, bool per_thread)
{
	return stream == CU_STREAM_PER_THREAD || (per_thread && !stream);
}

static bool is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

static bool is_idle(const struct tracker *tracker)
{
	return !tracker->first && !tracker->n && !tracker->recording;
}

static bool is_for(const struct tracker *tracker, CUstream stream, CUcontext context, uint64_t thread)
{
	return tracker->open && tracker->stream == stream && tracker->thread == thread &&
	       (!is_default(stream) || tracker->context == context);
}

static CUdevice device_of_context(CUcontext context)
{
	CUdevice device;

	return context && context_device(context_whole(context), &device) && device < DEVICE_MOST ? device : -1;
}

static struct tracker *open_locked(CUstream stream, bool per_thread, CUcontext context, CUdevice device,
				   uint64_t thread)
{
	unsigned n = atomic_load(&n_trackers);
	struct tracker *tracker = NULL;

	for (unsigned i = 0; i < n && !tracker; i++) {
		pthread_mutex_lock(&trackers[i].lock);
		if (is_idle(&trackers[i]) && !trackers[i].ending && (!trackers[i].open || n == TRACKERS))
			tracker = &trackers[i];
		else
			pthread_mutex_unlock(&trackers[i].lock);
	}
	if (!tracker && n < TRACKERS) {
		tracker = &trackers[n];
		pthread_mutex_lock(&tracker->lock);
		atomic_store(&n_trackers, n + 1);
	}
	if (!tracker)
		return &trackers[TRACKERS];
	/* Events of another context are of no use; they are few, and end with it. */
	if (tracker->context != context)
		memset(tracker->ring, 0, sizeof(tracker->ring));
	tracker->open = true;
	tracker->per_thread = per_thread;
	tracker->stream = stream;
	tracker->context = context;
	tracker->device = device;
	tracker->thread = thread;
	tracker->first = tracker->last = tracker->recorded = 0;
	tracker->foreign = 0;
	tracker->head = 0;
	pthread_mutex_unlock(&tracker->lock);
	return tracker;
}

/* Look the row up, or open it, and remember it in `mine`. */
static struct tracker *find(CUstream stream, bool per_thread, CUcontext current)
{
	uint64_t thread = is_own(stream, per_thread) ? my_serial() : 0;
	/* The explicit handles mean the same in both spellings of an entry point. */
	CUstream key = thread ? CU_STREAM_PER_THREAD : !stream ? CU_STREAM_LEGACY : stream;
	CUcontext told = is_default(key) ? current : context_told(stream, per_thread);
	CUcontext context = told ? told : context_current();
	struct tracker *tracker = NULL;

	pthread_mutex_lock(&done_table_lock);
	unsigned n = atomic_load(&n_trackers);
	for (unsigned i = 0; i < n && !tracker; i++) {
		pthread_mutex_lock(&trackers[i].lock);
		if (is_for(&trackers[i], key, context, thread))
			tracker = &trackers[i];
		pthread_mutex_unlock(&trackers[i].lock);
	}
	if (!tracker)
		tracker = open_locked(key, per_thread, context, device_of_context(told), thread);
	pthread_mutex_unlock(&done_table_lock);
	mine.tracker = tracker;
	mine.stream = stream;
	mine.per_thread = per_thread;
	mine.current = current;
	mine.key = key;
	mine.thread = thread;
	return tracker;
}

/* The row of a stream, locked. Rows are closed, and opened again for others, at any time: it is looked at each time. */
static struct tracker *take(CUstream stream, bool per_thread)
{
	CUcontext current = is_default(stream) ? context_current() : NULL;
	struct tracker *tracker = mine.tracker;

	if (tracker && mine.stream == stream && mine.per_thread == per_thread && mine.current == current) {
		pthread_mutex_lock(&tracker->lock);
		if (is_for(tracker, mine.key, current, mine.thread))
			return tracker;
		pthread_mutex_unlock(&tracker->lock);
	}
	tracker = find(stream, per_thread, current);
	pthread_mutex_lock(&tracker->lock);
	return tracker;
}

CUdevice done_device(CUstream stream, bool per_thread)
{
	struct tracker *tracker = take(stream, per_thread);
	CUdevice device = tracker == &trackers[TRACKERS] ? -1 : tracker->device;

	pthread_mutex_unlock(&tracker->lock);
	return device;
}

/* ---- submitting ---- */

/*
 * Record an event behind submission `number`. The lock is given up meanwhile, and not held on return. A capture that
 * opens just now waits for it, else the event would become part of it; behind one that has opened nothing is recorded.
 */
static void record_and_drop(struct tracker *tracker, uint64_t number)
{
	unsigned at = (tracker->head + tracker->n) % EVENTS;
	CUevent event = tracker->ring[at].event;
	CUcontext context = tracker->context;
	CUstream stream = tracker->stream;
	bool per_thread = tracker->per_thread;
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	bool pushed = false;

	tracker->recording = true;
	pthread_mutex_unlock(&tracker->lock);
	if (capture_pause()) {
		result = CUDA_SUCCESS;
		if (!event && context_enter(context, &pushed) == CUDA_SUCCESS) {
			result = REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING);
			context_leave(pushed);
		}
		if (result == CUDA_SUCCESS && event)
			result = (per_thread ? REAL(cuEventRecord_ptsz) : REAL(cuEventRecord))(event, stream);
		capture_resume();
	}
	pthread_mutex_lock(&tracker->lock);
	tracker->recording = false;
	/* When the context is ending, or has ended, the event is its. */
	if (!tracker->ending && event && tracker->context == context) {
		tracker->ring[at].event = event;
		if (result == CUDA_SUCCESS) {
			tracker->ring[at].number = number;
			tracker->n++;
			tracker->recorded = number;
		}
	}
	pthread_mutex_unlock(&tracker->lock);
}

static bool may_record(const struct tracker *tracker)
{
	return tracker != &trackers[TRACKERS] && !tracker->recording && !tracker->ending && tracker->n < EVENTS &&
	       tracker->open && !capture_is_open();
}

/*
 * Such work is waited for by devices that would not wait for this one: its end is to be known as soon as it comes, not
 * when all else that its device runs is done.
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

uint64_t done_submitted(CUstream stream, bool per_thread, const struct done_what *what, uint64_t owners, bool hurry)
{
	struct tracker *tracker = take(stream, per_thread);
	uint64_t number = atomic_fetch_add(&newest, 1) + 1;

	recent_note(number, what, (unsigned)(tracker - trackers));

	if (!tracker->first)
		tracker->first = number;
	tracker->last = number;
	hurry |= note_foreign_locked(tracker, number, owners);
	mine.submitted = true;
	if ((hurry || number - tracker->recorded >= STRIDE) && may_record(tracker)) {
		mine.submitted = false;
		record_and_drop(tracker, number);
	} else {
		pthread_mutex_unlock(&tracker->lock);
	}
	return number;
}

void done_flush(void)
{
	struct tracker *tracker = mine.tracker;

	if (!tracker || !mine.submitted)
		return;
	mine.submitted = false;
	pthread_mutex_lock(&tracker->lock);
	/*
	 * Not on the legacy stream: an event there waits for all blocking streams and holds them back, also where this
	 * thread's own work would not have. Its tail is proved by an event of the context.
	 */
	if (tracker->recorded < tracker->last && may_record(tracker) && tracker->stream != CU_STREAM_LEGACY &&
	    is_for(tracker, mine.key, mine.current, mine.thread))
		record_and_drop(tracker, tracker->last);
	else
		pthread_mutex_unlock(&tracker->lock);
}

/* ---- finding out ---- */

static void is_done_locked(struct tracker *tracker, uint64_t number)
{
	if (tracker->first && tracker->first <= number)
		tracker->first = tracker->last > number ? number + 1 : 0;
	if (!tracker->first || tracker->first > tracker->foreign_last)
		tracker->foreign = 0;
}

static void poll_locked(struct tracker *tracker, struct done_answers *answers)
{
	while (tracker->n) {
		CUresult result = REAL(cuEventQuery)(tracker->ring[tracker->head].event);

		done_answered(answers, result);
		/* Captured: the record took longer than a capture waits, and became part of it. That proves nothing. */
		if (result != CUDA_SUCCESS && result != CUDA_ERROR_CAPTURED_EVENT)
			return;
		uint64_t number = tracker->ring[tracker->head].number;
		tracker->head = (tracker->head + 1) % EVENTS;
		tracker->n--;
		if (result == CUDA_SUCCESS)
			is_done_locked(tracker, number);
	}
}

/* As far as this thread may ask: a default stream of another thread, or of a context not current, has no name here. */
static void look_locked(struct tracker *tracker, CUcontext current)
{
	struct done_answers unused = {0};

	if (!tracker->first || !tracker->open || tracker->ending)
		return;
	poll_locked(tracker, &unused); /* an error stays there for the mover to see */
	if (!tracker->first || tracker->thread || (is_default(tracker->stream) && tracker->context != current))
		return;
	if (REAL(cuStreamQuery)(tracker->stream) == CUDA_SUCCESS)
		is_done_locked(tracker, tracker->last);
}

uint64_t done_oldest_elsewhere(CUstream stream, bool per_thread)
{
	struct tracker *own = take(stream, per_thread), *shared = &trackers[TRACKERS];
	CUcontext current = context_current();
	uint64_t oldest = UINT64_MAX;

	pthread_mutex_unlock(&own->lock);
	if (!capture_pause())
		return 0;
	CUstreamCaptureMode mode = capture_relax();
	/* Several streams share the last row: for those it is elsewhere, too. */
	for (struct tracker *tracker = trackers; tracker <= shared; tracker++) {
		if (tracker == own && own != shared)
			continue;
		pthread_mutex_lock(&tracker->lock);
		look_locked(tracker, current);
		if (tracker->first && tracker->first < oldest)
			oldest = tracker->first;
		pthread_mutex_unlock(&tracker->lock);
	}
	capture_restore(mode);
	capture_resume();
	return oldest;
}

void done_rows_pass(CUcontext context, uint64_t number)
{
	unsigned n = atomic_load(&n_trackers);

	for (unsigned i = 0; i < n; i++) {
		struct tracker *tracker = &trackers[i];

		pthread_mutex_lock(&tracker->lock);
		if (tracker->context == context)
			is_done_locked(tracker, number);
		pthread_mutex_unlock(&tracker->lock);
	}
}

void done_others_pass(uint64_t number)
{
	struct tracker *tracker = &trackers[TRACKERS];

	pthread_mutex_lock(&tracker->lock);
	is_done_locked(tracker, number);
	pthread_mutex_unlock(&tracker->lock);
}

/* A tail that has not grown since the last look. */
static bool has_tail(struct tracker *tracker)
{
	if (!tracker->first || tracker->n || tracker->recording || tracker->ending)
		return false;
	bool grown = tracker->seen != tracker->last;
	tracker->seen = tracker->last;
	return !grown;
}

/* Is all of the row's work that of one of these devices? */
static bool is_of(const struct tracker *tracker, uint64_t devices)
{
	return tracker != &trackers[TRACKERS] && tracker->device >= 0 && devices >> tracker->device & 1;
}

/* The oldest submission that is not known to be done and may touch the heap of that device, by what it told; 0: none. */
static uint64_t oldest_told_locked(const struct tracker *tracker, CUdevice owner)
{
	if (tracker == &trackers[TRACKERS] || tracker->device < 0)
		return tracker->first;
	if (!tracker->first || !(tracker->foreign >> owner & 1))
		return 0;
	return tracker->first > tracker->foreign_first ? tracker->first : tracker->foreign_first;
}

uint64_t done_poll(CUdevice owner, uint64_t devices, bool look_after_tails, CUresult *ret_error)
{
	/* Read first: what is counted later is not spoken of. */
	uint64_t result = atomic_load(&newest), all = result;
	struct done_answers answers = {0};
	CUcontext tail = NULL, other_tail = NULL;
	bool any_others = false;

	pthread_mutex_lock(&done_table_lock);
	done_context_poll_locked(&answers);
	unsigned n = atomic_load(&n_trackers);
	for (unsigned i = 0; i <= n; i++) {
		struct tracker *tracker = i < n ? &trackers[i] : &trackers[TRACKERS];

		pthread_mutex_lock(&tracker->lock);
		if (!tracker->ending)
			poll_locked(tracker, &answers);
		uint64_t oldest = is_of(tracker, devices) ? tracker->first : oldest_told_locked(tracker, owner);
		if (oldest && oldest <= result)
			result = oldest - 1;
		if (look_after_tails && i < n && has_tail(tracker))
			*(oldest ? &tail : &other_tail) = tracker->context;
		any_others |= i == n && tracker->first;
		pthread_mutex_unlock(&tracker->lock);
	}
	pthread_mutex_unlock(&done_table_lock);
	if (answers.error != CUDA_SUCCESS && !answers.any_good)
		*ret_error = answers.error;
	/* Those of others prove nothing here, but their rows are wanted again. */
	if (tail || other_tail)
		done_context_look_after(tail ? tail : other_tail, all);
	if (any_others)
		done_context_ask_for_others(all);
	return result;
}

bool done_touches(CUdevice owner, uint64_t devices)
{
	bool any = false;

	for (unsigned i = 0; i < DONE_ROWS && !any; i++) {
		pthread_mutex_lock(&trackers[i].lock);
		any = !is_of(&trackers[i], devices) && oldest_told_locked(&trackers[i], owner);
		pthread_mutex_unlock(&trackers[i].lock);
	}
	return any;
}

void done_each_in_flight(void (*visit)(void *argument, unsigned row, const struct done_what *what), void *argument)
{
	uint64_t first[DONE_ROWS], last = atomic_load(&newest);

	for (unsigned i = 0; i < DONE_ROWS; i++) {
		pthread_mutex_lock(&trackers[i].lock);
		first[i] = trackers[i].first;
		pthread_mutex_unlock(&trackers[i].lock);
	}
	for (uint64_t number = recent_oldest(last); number <= last; number++) {
		struct done_what what;
		unsigned row;

		if (recent_look(number, &what, &row) && first[row] && first[row] <= number)
			visit(argument, row, &what);
	}
}

/* ---- ends ---- */

/* Another thread may be recording on the stream just now; it must not be destroyed under it. Bounded: it may be held. */
static void wait_for_record(struct tracker *tracker)
{
	for (unsigned i = 0; i < 1000 && tracker->recording; i++) {
		pthread_mutex_unlock(&tracker->lock);
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		pthread_mutex_lock(&tracker->lock);
	}
}

void done_stream_ending(CUstream stream)
{
	unsigned n = atomic_load(&n_trackers);

	for (unsigned i = 0; i < n; i++) {
		pthread_mutex_lock(&trackers[i].lock);
		if (trackers[i].open && trackers[i].stream == stream && !is_default(stream)) {
			trackers[i].open = false;
			wait_for_record(&trackers[i]);
		}
		pthread_mutex_unlock(&trackers[i].lock);
	}
}

void done_rows_ending_locked(CUcontext context)
{
	unsigned n = atomic_load(&n_trackers);

	for (unsigned i = 0; i < n; i++) {
		pthread_mutex_lock(&trackers[i].lock);
		trackers[i].ending |= trackers[i].context == context;
		pthread_mutex_unlock(&trackers[i].lock);
	}
}

void done_rows_ended_locked(CUcontext context, bool ended)
{
	unsigned n = atomic_load(&n_trackers);

	for (unsigned i = 0; i < n; i++) {
		struct tracker *tracker = &trackers[i];

		pthread_mutex_lock(&tracker->lock);
		if (tracker->ending && tracker->context == context) {
			tracker->ending = false;
			if (ended) {
				memset(tracker->ring, 0, sizeof(tracker->ring));
				tracker->open = false;
				tracker->first = tracker->foreign = 0;
				tracker->n = tracker->head = 0;
				tracker->context = NULL;
			}
		}
		pthread_mutex_unlock(&tracker->lock);
	}
}
