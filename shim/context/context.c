// SPDX-License-Identifier: Apache-2.0
/*
 * CUDA contexts of the process. The table of green contexts has no lock: a row is claimed by its `green` and found by
 * its `context`, which is set last and cleared first. The table of all contexts has their devices, calls that may be
 * ending one, and threads that work in it meanwhile (visits). A device is idle if an event of each of its contexts is
 * complete.
 */
#include "shim/context/context.h"
#include "shim/base/clock.h"
#include "shim/driver/real.h"

#include <stdatomic.h>

/* ---- green contexts, and the primary context that each belongs to ---- */

/* Green contexts are few; one that finds no row is treated as a separate context. */
#define GREEN_MOST 64

static struct {
	atomic_uint n; /* rows in use; read with each event of a context, so it lies apart from the locks */
	struct {
		_Atomic(CUgreenCtx) green;
		_Atomic(CUcontext) context;
		CUcontext primary; /* primary and device are set before context */
		CUdevice device;
	} row[GREEN_MOST];
} greens;

CUcontext context_whole(CUcontext context)
{
	if (!context || !atomic_load_explicit(&greens.n, memory_order_relaxed))
		return context;
	for (unsigned i = 0; i < GREEN_MOST; i++)
		if (atomic_load(&greens.row[i].context) == context)
			return greens.row[i].primary;
	return context;
}

/* The driver reuses handles: removes old rows that have one of these handles. */
static void forget_greens(CUgreenCtx green, CUcontext context)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx old = atomic_load(&greens.row[i].green);

		if (!old || (old != green && atomic_load(&greens.row[i].context) != context))
			continue;
		atomic_store(&greens.row[i].context, NULL);
		if (atomic_compare_exchange_strong(&greens.row[i].green, &old, NULL))
			atomic_fetch_sub(&greens.n, 1);
	}
}

/* Records the context, the primary context and the device of a green context that was created. */
static void context_green_add(CUgreenCtx green, CUcontext context, CUcontext primary, CUdevice device)
{
	forget_greens(green, context);
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx none = NULL;

		if (!atomic_compare_exchange_strong(&greens.row[i].green, &none, green))
			continue;
		greens.row[i].primary = primary;
		greens.row[i].device = device;
		atomic_fetch_add(&greens.n, 1);
		atomic_store(&greens.row[i].context, context);
		return;
	}
}

CUcontext context_green_ending(CUgreenCtx green, CUdevice *ret_device)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUcontext context = atomic_load(&greens.row[i].context);

		if (!context || atomic_load(&greens.row[i].green) != green)
			continue;
		*ret_device = greens.row[i].device;
		forget_greens(green, context);
		return context;
	}
	return NULL;
}

CUcontext context_green_take(CUcontext primary, CUgreenCtx *ret_green)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUcontext context = atomic_load(&greens.row[i].context);
		CUgreenCtx green = atomic_load(&greens.row[i].green);

		if (!context || !green || greens.row[i].primary != primary)
			continue;
		forget_greens(green, context);
		*ret_green = green;
		return context;
	}
	return NULL;
}

CUcontext context_of_memory(void)
{
	return context_whole(context_current());
}

/* ---- events that are kept to be used again, events behind the work of a stream, and waits for it ---- */

#define EVENTS_KEPT 256

static struct {
	struct lock lock;  /* EVENTS. Held over cuEventDestroy, so that the context does not end meanwhile. */
	CUcontext context; /* of all kept events; those of another context are not kept. Under the lock, as the rest */
	unsigned n;
	CUevent event[EVENTS_KEPT];
} kept_events = {.lock = LOCK_INIT(LOCK_EVENTS)};

/* Takes an event without timing; the context must be current. Returns the driver's error if none can be created. */
static CUresult context_event_take(CUcontext context, CUevent *ret_event)
{
	lock_take(&kept_events.lock);
	bool any = kept_events.n && kept_events.context == context;
	if (any)
		*ret_event = kept_events.event[--kept_events.n];
	lock_drop(&kept_events.lock);
	return any ? CUDA_SUCCESS : REAL(cuEventCreate)(ret_event, CU_EVENT_DISABLE_TIMING);
}

void context_event_give(CUcontext context, CUevent event)
{
	lock_take(&kept_events.lock);
	if (!kept_events.n)
		kept_events.context = context;
	if (kept_events.context == context && kept_events.n < EVENTS_KEPT)
		kept_events.event[kept_events.n++] = event;
	else
		REAL(cuEventDestroy_v2)(event);
	lock_drop(&kept_events.lock);
}

/* Drops the kept events of a context that ends. gone: they have ended with it already. Locking: takes EVENTS. */
static void context_events_drop(CUcontext context, bool gone)
{
	lock_take(&kept_events.lock);
	while (kept_events.context == context && kept_events.n) {
		kept_events.n--;
		if (!gone)
			REAL(cuEventDestroy_v2)(kept_events.event[kept_events.n]);
	}
	lock_drop(&kept_events.lock);
}

CUresult context_record_stream(CUstream stream, bool per_thread, CUevent *ret_event, CUcontext *ret_context)
{
	CUcontext context = NULL;
	CUevent event;
	bool pushed;
	CUresult result = (per_thread ? REAL(cuStreamGetCtx_ptsz) : REAL(cuStreamGetCtx))(stream, &context);

	/* An event must be of the stream's own context, which need not be the current one. */
	if (result == CUDA_SUCCESS)
		result = context_enter(context, &pushed);
	if (result != CUDA_SUCCESS)
		return result;
	result = context_event_take(context, &event);
	if (result == CUDA_SUCCESS) {
		result = (per_thread ? REAL(cuEventRecord_ptsz) : REAL(cuEventRecord))(event, stream);
		if (result != CUDA_SUCCESS)
			context_event_give(context, event);
	}
	context_leave(pushed);
	if (result == CUDA_SUCCESS) {
		*ret_event = event;
		*ret_context = context;
	}
	return result;
}

CUresult context_wait_stream(CUstream stream, bool per_thread)
{
	CUstreamCaptureMode mode = capture_relax();
	CUresult result = (per_thread ? REAL(cuStreamSynchronize_ptsz) : REAL(cuStreamSynchronize))(stream);

	capture_restore(mode);
	return result;
}

/* ---- every context of the process ---- */

/*
 * Rows of the table. While there are more than CONTEXT_MOST contexts, no events are recorded and no device is known to
 * be idle, until enough contexts have ended; if the rows run out, that is so for good.
 */
#define CONTEXT_ROWS 1024

struct known {
	CUcontext context;
	CUdevice device;
	unsigned visits;
	unsigned enders; /* calls in progress that may end it */
	bool again;      /* created again since the first of them began */
};

static struct {
	/*
	 * CONTEXTS, over all that follows. Held over queries and ends of events too, so that no context ends between
	 * the check of n_ends and the query.
	 */
	struct lock lock;
	struct known row[CONTEXT_ROWS];
	unsigned n;             /* rows in use */
	unsigned n_ends;        /* calls that may have ended a context, since the start */
	unsigned n_ending;      /* those of them in progress */
	atomic_uint n_changes;  /* of the set of contexts; written under the lock, read without it */
	bool lost_some;         /* a context got no row */
	struct clock_cond left; /* a visit has ended */
} all = {.lock = LOCK_INIT(LOCK_CONTEXTS), .n_changes = 1};

/*
 * The end of a context waits for visits, usually a microsecond. The limit counts waits and not time: while the process
 * is stopped (SIGSTOP) only one wait expires, so the visitors still run before the limit is reached.
 */
#define VISIT_NS    1000000000
#define VISIT_WAITS 30

static struct known *find_locked(CUcontext context)
{
	for (unsigned i = 0; i < all.n; i++)
		if (all.row[i].context == context)
			return &all.row[i];
	return NULL;
}

/*
 * Between context_all_visit() and visit_end() the context does not end. Returns false, without a visit, if it may be
 * about to end. A context without a row (context_known) has no visit counter. Locking: takes CONTEXTS.
 */
static bool context_all_visit(CUcontext context)
{
	lock_take(&all.lock);
	struct known *known = find_locked(context);
	bool may = !known || !known->enders;
	if (known && may)
		known->visits++;
	lock_drop(&all.lock);
	return may;
}

static void visit_end(CUcontext context)
{
	lock_take(&all.lock);
	struct known *known = find_locked(context);
	if (known && known->visits && !--known->visits)
		clock_wake_all(&all.left);
	lock_drop(&all.lock);
}

/* Returns false if visits remain. Locking: the caller must hold CONTEXTS; drops it during the waits. */
static bool wait_for_visits_locked(CUcontext context)
{
	struct known *known;
	unsigned waits = 0;

	while ((known = find_locked(context)) && known->visits && waits < VISIT_WAITS) { /* rows may move meanwhile */
		const struct timespec until = clock_in(VISIT_NS);

		if (lock_wait(&all.lock, &all.left, &until))
			waits++;
	}
	return !known || !known->visits;
}

static void add_locked(CUcontext context, CUdevice device)
{
	if (all.n < CONTEXT_ROWS)
		all.row[all.n++] = (struct known){.context = context, .device = device};
	else
		all.lost_some = true;
	atomic_fetch_add(&all.n_changes, 1);
}

void context_known(CUcontext context, CUdevice device)
{
	lock_take(&all.lock);
	struct known *known = find_locked(context);
	if (!known)
		add_locked(context, device);
	if (known && known->device != device)
		atomic_fetch_add(&all.n_changes, 1);
	if (known) {
		known->again = known->enders != 0;
		known->device = device;
	}
	lock_drop(&all.lock);
}

bool context_ending(CUcontext context)
{
	bool may = true;

	context_events_drop(context, false);
	lock_take(&all.lock);
	all.n_ends++;
	all.n_ending++;
	struct known *known = find_locked(context);
	if (known) {
		known->again = known->enders && known->again;
		known->enders++;
		may = wait_for_visits_locked(context);
	}
	lock_drop(&all.lock);
	return may;
}

/* A context that was created under the same handle meanwhile keeps its row. */
void context_ended(CUcontext context, bool ended)
{
	/* Another thread may have given events back meanwhile. */
	if (ended)
		context_events_drop(context, true);
	lock_take(&all.lock);
	all.n_ending--;
	struct known *known = find_locked(context);
	if (known && known->enders)
		known->enders--;
	if (known && ended && !known->again) {
		*known = all.row[--all.n];
		atomic_fetch_add(&all.n_changes, 1);
	}
	lock_drop(&all.lock);
}

void context_green(CUgreenCtx green, CUdevice device)
{
	CUcontext context, primary;

	/* A green context holds its primary context, so retaining that creates nothing. */
	if (REAL(cuCtxFromGreenCtx)(&context, green) != CUDA_SUCCESS ||
	    REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS)
		return;
	REAL(cuDevicePrimaryCtxRelease_v2)(device);
	context_known(primary, device);
	context_green_add(green, context, primary, device);
}

/*
 * Cache of the devices of contexts that this thread looked up recently; valid while n_changes is the same. Each copy
 * looks one up, and the lock of the table is held over driver queries.
 */
#define LATELY 4
static __thread struct {
	unsigned changes, next;
	struct {
		CUcontext context;
		CUdevice device;
	} at[LATELY];
} lately __attribute__((tls_model("initial-exec")));

static bool is_from_lately(CUcontext context, CUdevice *ret_device)
{
	if (!context || lately.changes != atomic_load(&all.n_changes))
		return false;
	for (unsigned i = 0; i < LATELY; i++) {
		if (lately.at[i].context != context)
			continue;
		*ret_device = lately.at[i].device;
		return true;
	}
	return false;
}

static void context_all_remember(CUcontext context, CUdevice device, unsigned changes)
{
	for (unsigned i = 0; i < LATELY && lately.changes != changes; i++)
		lately.at[i].context = NULL;
	lately.changes = changes;
	lately.at[lately.next].context = context;
	lately.at[lately.next].device = device;
	lately.next = (lately.next + 1) % LATELY;
}

bool context_device(CUcontext context, CUdevice *ret_device)
{
	bool pushed;

	context = context_whole(context);
	if (is_from_lately(context, ret_device))
		return true;
	lock_take(&all.lock);
	const struct known *known = find_locked(context);
	unsigned changes = atomic_load(&all.n_changes);
	bool found = known;
	if (known)
		*ret_device = known->device;
	lock_drop(&all.lock);
	if (found)
		context_all_remember(context, *ret_device, changes);
	if (found || !context || context_enter(context, &pushed) != CUDA_SUCCESS)
		return found;
	found = REAL(cuCtxGetDevice)(ret_device) == CUDA_SUCCESS;
	context_leave(pushed);
	if (!found)
		return false;
	/* Not context_known(), which is for contexts that were just created. */
	lock_take(&all.lock);
	if (!find_locked(context))
		add_locked(context, *ret_device);
	lock_drop(&all.lock);
	return true;
}

CUcontext context_any(CUdevice device)
{
	CUcontext context = NULL;

	lock_take(&all.lock);
	for (unsigned i = 0; i < all.n && !context; i++)
		if (all.row[i].device == device && !all.row[i].enders)
			context = all.row[i].context;
	lock_drop(&all.lock);
	return context;
}

/* A transient error of the driver differs the next time; a dead context always gives the same one. */
#define DIED_TRIES 3

/*
 * Queries the range of stream priorities: the call is valid at any time, never waits, creates nothing, disturbs no
 * capture, and fails with the context's error if that has died (the rules of test/sim). Creating an event fails so,
 * too, but costs more, and each allocation asks. An out-of-memory error says nothing about the context. Measured
 * (H200, driver 580): 13 ns; creating an event 183 ns.
 */
static CUresult current_died_of(void)
{
	CUresult result = CUDA_SUCCESS;
	int least, greatest;

	for (unsigned i = 0; i < DIED_TRIES; i++) {
		result = REAL(cuCtxGetStreamPriorityRange)(&least, &greatest);
		if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
			return CUDA_SUCCESS;
	}
	return result;
}

CUresult context_died_of(CUcontext context)
{
	bool pushed;

	CUresult result = context_enter(context, &pushed);
	if (result != CUDA_SUCCESS)
		return result;
	result = current_died_of();
	context_leave(pushed);
	return result;
}

CUresult context_for_memory(CUdevice device, CUcontext *ret_context)
{
	CUresult result = current_died_of();

	if (result == CUDA_SUCCESS)
		result = REAL(cuCtxGetCurrent)(ret_context);
	if (result != CUDA_SUCCESS)
		return result;
	*ret_context = context_whole(*ret_context);
	context_known(*ret_context, device);
	return CUDA_SUCCESS;
}

/* Stores the contexts, and returns how many these are. */
static unsigned list_contexts(CUcontext ret_contexts[CONTEXT_MOST], CUdevice ret_devices[CONTEXT_MOST])
{
	lock_take(&all.lock);
	unsigned n = all.n < CONTEXT_MOST ? all.n : CONTEXT_MOST;
	for (unsigned i = 0; i < n; i++) {
		ret_contexts[i] = all.row[i].context;
		ret_devices[i] = all.row[i].device;
	}
	lock_drop(&all.lock);
	return n;
}

/* As context_died_of(), for a context that may be about to end. Returns false, and stores nothing, if it is. */
static bool died_of(CUcontext context, CUresult *ret_error)
{
	if (!context_all_visit(context))
		return false;
	*ret_error = context_died_of(context);
	visit_end(context);
	return true;
}

bool context_any_died_of(CUresult error)
{
	CUcontext contexts[CONTEXT_MOST];
	CUdevice unused[CONTEXT_MOST];
	unsigned n = list_contexts(contexts, unused);
	bool any = false;
	CUresult of;

	for (unsigned i = 0; i < n && !any; i++)
		any = died_of(contexts[i], &of) && of == error;
	return any;
}

CUcontext context_living(CUdevice device)
{
	CUcontext contexts[CONTEXT_MOST];
	CUdevice devices[CONTEXT_MOST];
	unsigned n = list_contexts(contexts, devices);
	CUresult of;

	for (unsigned i = 0; i < n; i++)
		if (devices[i] == device && died_of(contexts[i], &of) && of == CUDA_SUCCESS)
			return contexts[i];
	return NULL;
}

/* ---- events behind the work of a context, and waits for it ---- */

static CUevent context_all_record(CUcontext context, bool *ret_gone)
{
	CUevent event = NULL;
	bool pushed;

	CUresult result = context_enter(context, &pushed);
	*ret_gone = context_is_gone(result);
	if (result != CUDA_SUCCESS)
		return NULL;
	if (!context || !real_has(HOOK_cuCtxRecordEvent)) {
		context_leave(pushed);
		return NULL;
	}
	result = REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING);
	*ret_gone = context_is_gone(result);
	if (result != CUDA_SUCCESS)
		event = NULL;
	if (event && REAL(cuCtxRecordEvent)(context, event) != CUDA_SUCCESS) {
		REAL(cuEventDestroy_v2)(event);
		event = NULL;
	}
	context_leave(pushed);
	return event;
}

CUevent context_record(CUcontext context, bool *ret_gone)
{
	context = context_whole(context);
	*ret_gone = false;
	if (!context_all_visit(context))
		return NULL;
	CUevent event = context_all_record(context, ret_gone);
	visit_end(context);
	return event;
}

CUresult context_wait_idle(CUcontext context)
{
	bool pushed;

	CUresult result = context_enter(context_whole(context), &pushed);
	if (result != CUDA_SUCCESS)
		return context_is_gone(result) ? CUDA_SUCCESS : result;
	result = REAL(cuCtxSynchronize)();
	context_leave(pushed);
	return context_is_gone(result) ? CUDA_SUCCESS : result;
}

bool context_memory(CUdevice device, size_t *ret_free, size_t *ret_total)
{
	CUcontext context = context_whole(context_any(device));
	bool known = false, pushed;

	if (!context || !context_all_visit(context))
		return false;
	if (context_enter(context, &pushed) == CUDA_SUCCESS) {
		CUstreamCaptureMode mode = capture_relax();

		known = REAL(cuMemGetInfo_v2)(ret_free, ret_total) == CUDA_SUCCESS;
		capture_restore(mode);
		context_leave(pushed);
	}
	visit_end(context);
	return known;
}

/* ---- is a device idle? ---- */

static bool idle_ask(uint64_t devices, bool spares_dead, struct context_idle *ret_idle)
{
	CUresult of;
	bool gone;

	lock_take(&all.lock);
	*ret_idle = (struct context_idle){.ends = all.n_ends, .changes = atomic_load(&all.n_changes)};
	bool can = !all.lost_some && !all.n_ending;
	for (unsigned i = 0; i < all.n && can; i++) {
		CUdevice device = all.row[i].device;

		if (devices != CONTEXT_ALL_DEVICES && (device < 0 || device >= 64 || !(devices >> device & 1)))
			continue;
		can = ret_idle->n_asked < CONTEXT_MOST;
		if (can)
			ret_idle->asked[ret_idle->n_asked++] = all.row[i].context;
	}
	lock_drop(&all.lock);
	if (!can || !capture_pause())
		return false;
	for (unsigned i = 0; i < ret_idle->n_asked; i++) {
		CUevent event = context_record(ret_idle->asked[i], &gone);

		if (event)
			ret_idle->event[ret_idle->n++] = event;
		else
			can = can && (gone || (spares_dead && died_of(ret_idle->asked[i], &of) && of != CUDA_SUCCESS));
	}
	capture_resume();
	if (!can)
		context_idle_forget(ret_idle);
	return can;
}

bool context_idle_ask(uint64_t devices, struct context_idle *ret_idle)
{
	return idle_ask(devices, false, ret_idle);
}

bool context_idle_ask_living(uint64_t devices, struct context_idle *ret_idle)
{
	return idle_ask(devices, true, ret_idle);
}

/*
 * A single error may be transient, and a query is polled many times: if one error ended it, a quiesce beside a long
 * kernel would hardly ever succeed. engine_doubt() does the same.
 */
#define DOUBTS_MOST 8
#define DOUBTS_NS   20000000

static enum context_idleness context_all_doubt(struct context_idle *idle)
{
	uint64_t now = clock_now();

	if (!idle->doubts++)
		idle->doubted = now;
	return idle->doubts >= DOUBTS_MOST && now - idle->doubted >= DOUBTS_NS ? CONTEXT_UNKNOWN : CONTEXT_BUSY;
}

enum context_idleness context_idle_look(struct context_idle *idle)
{
	enum context_idleness state = CONTEXT_IDLE;

	lock_take(&all.lock);
	if (idle->ends != all.n_ends) {
		state = CONTEXT_UNKNOWN; /* the events may have ended with a context: they are lost */
		idle->n = 0;
	} else if (idle->changes != atomic_load(&all.n_changes)) {
		state = CONTEXT_UNKNOWN; /* what runs in a context that was not asked may have begun before */
	}
	while (idle->n && state == CONTEXT_IDLE) {
		CUresult result = REAL(cuEventQuery)(idle->event[idle->n - 1]);

		if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
			state = context_all_doubt(idle);
			break;
		}
		idle->doubts = 0;
		if (result == CUDA_ERROR_NOT_READY)
			state = CONTEXT_BUSY;
		else
			REAL(cuEventDestroy_v2)(idle->event[--idle->n]);
	}
	lock_drop(&all.lock);
	if (state == CONTEXT_UNKNOWN)
		context_idle_forget(idle);
	return state;
}

void context_idle_forget(struct context_idle *idle)
{
	lock_take(&all.lock);
	while (idle->n)
		if (idle->ends == all.n_ends)
			REAL(cuEventDestroy_v2)(idle->event[--idle->n]);
		else
			idle->n = 0;
	lock_drop(&all.lock);
}

/* ---- the current context of the thread; without state ---- */

CUcontext context_current(void)
{
	CUcontext current = NULL;

	return REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS ? current : NULL;
}

CUcontext context_told(CUstream stream, bool per_thread)
{
	CUcontext context = NULL;
	CUresult result = (per_thread ? REAL(cuStreamGetCtx_ptsz) : REAL(cuStreamGetCtx))(stream, &context);

	return result == CUDA_SUCCESS ? context : NULL;
}

CUcontext context_of_stream(CUstream stream, bool per_thread)
{
	CUcontext context = context_told(stream, per_thread);

	return context ? context : context_current();
}

/*
 * The only query that the driver answers for any handle, also of an ended context (the rules of test/sim, driver
 * 580).
 */
static CUresult ask_about(CUcontext context)
{
	unsigned version;

	return REAL(cuCtxGetApiVersion)(context, &version);
}

bool context_has_ended(CUcontext context)
{
	return context_is_gone(ask_about(context));
}

/*
 * Checks the context first: the driver also pushes a context that has ended, fails every call in it then, and has ended
 * processes when it was popped again.
 */
CUresult context_enter(CUcontext context, bool *ret_pushed)
{
	*ret_pushed = false;
	if (!context || context_current() == context)
		return CUDA_SUCCESS;
	CUresult result = ask_about(context);
	if (!context_is_gone(result))
		result = REAL(cuCtxPushCurrent_v2)(context);
	*ret_pushed = result == CUDA_SUCCESS;
	return result;
}

bool context_is_gone(CUresult error)
{
	return error == CUDA_ERROR_INVALID_CONTEXT || error == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	       error == CUDA_ERROR_DEINITIALIZED;
}

/* The pop is retried: neither a thread of the program nor the mover may continue in a foreign context. */
#define LEAVE_TRIES 16

void context_leave(bool pushed)
{
	CUcontext popped;

	for (unsigned tries = 0; pushed && tries < LEAVE_TRIES; tries++)
		pushed = REAL(cuCtxPopCurrent_v2)(&popped) != CUDA_SUCCESS;
}
