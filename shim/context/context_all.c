/*
 * The table of all contexts of the process: device, calls that may be ending the context, and threads that work in it
 * meanwhile (visits). A device is idle if an event of each of its contexts is complete.
 */
#include "shim/context/capture.h"
#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/context/context_internal.h"
#include "shim/context/context_state.h"
#include "shim/driver/real.h"

#include <pthread.h>
#include <stdatomic.h>

/*
 * The end of a context waits for visits, usually a microsecond. The limit counts waits and not time: while the process
 * is stopped (SIGSTOP) only one wait expires, so the visitors still run before the limit is reached.
 */
#define VISIT_NS    1000000000
#define VISIT_WAITS 30

static struct known *find_locked(CUcontext context)
{
	for (unsigned i = 0; i < context_state.all.n; i++)
		if (context_state.all.row[i].context == context)
			return &context_state.all.row[i];
	return NULL;
}

/*
 * Between context_all_visit() and visit_end() the context does not end. Returns false, without a visit, if it may be
 * about to end. A context without a row (context_known) has no visit counter. Locking: takes CONTEXTS.
 */
static bool context_all_visit(CUcontext context)
{
	lock_take(&context_state.all.lock);
	struct known *known = find_locked(context);
	bool may = !known || !known->enders;
	if (known && may)
		known->visits++;
	lock_drop(&context_state.all.lock);
	return may;
}

static void visit_end(CUcontext context)
{
	lock_take(&context_state.all.lock);
	struct known *known = find_locked(context);
	if (known && known->visits && !--known->visits)
		clock_wake_all(&context_state.all.left);
	lock_drop(&context_state.all.lock);
}

/* Returns false if visits remain. Locking: the caller must hold CONTEXTS; drops it during the waits. */
static bool wait_for_visits_locked(CUcontext context)
{
	struct known *known;
	unsigned waits = 0;

	while ((known = find_locked(context)) && known->visits && waits < VISIT_WAITS) { /* rows may move meanwhile */
		const struct timespec until = clock_in(VISIT_NS);

		if (lock_wait(&context_state.all.lock, &context_state.all.left, &until))
			waits++;
	}
	return !known || !known->visits;
}

static void add_locked(CUcontext context, CUdevice device)
{
	if (context_state.all.n < CONTEXT_ROWS)
		context_state.all.row[context_state.all.n++] = (struct known){.context = context, .device = device};
	else
		context_state.all.lost_some = true;
	atomic_fetch_add(&context_state.all.n_changes, 1);
}

void context_known(CUcontext context, CUdevice device)
{
	lock_take(&context_state.all.lock);
	struct known *known = find_locked(context);
	if (!known)
		add_locked(context, device);
	if (known && known->device != device)
		atomic_fetch_add(&context_state.all.n_changes, 1);
	if (known) {
		known->again = known->enders != 0;
		known->device = device;
	}
	lock_drop(&context_state.all.lock);
}

bool context_ending(CUcontext context)
{
	bool may = true;

	context_events_drop(context, false);
	lock_take(&context_state.all.lock);
	context_state.all.n_ends++;
	context_state.all.n_ending++;
	struct known *known = find_locked(context);
	if (known) {
		known->again = known->enders && known->again;
		known->enders++;
		may = wait_for_visits_locked(context);
	}
	lock_drop(&context_state.all.lock);
	return may;
}

/* A context that was created under the same handle meanwhile keeps its row. */
void context_ended(CUcontext context, bool ended)
{
	/* Another thread may have given events back meanwhile. */
	if (ended)
		context_events_drop(context, true);
	lock_take(&context_state.all.lock);
	context_state.all.n_ending--;
	struct known *known = find_locked(context);
	if (known && known->enders)
		known->enders--;
	if (known && ended && !known->again) {
		*known = context_state.all.row[--context_state.all.n];
		atomic_fetch_add(&context_state.all.n_changes, 1);
	}
	lock_drop(&context_state.all.lock);
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
	if (!context || lately.changes != atomic_load(&context_state.all.n_changes))
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

/* Not context_known(), which is for contexts that were just created. */
static void context_all_meet(CUcontext context, CUdevice device)
{
	lock_take(&context_state.all.lock);
	if (!find_locked(context))
		add_locked(context, device);
	lock_drop(&context_state.all.lock);
}

bool context_device(CUcontext context, CUdevice *ret_device)
{
	bool pushed;

	context = context_whole(context);
	if (is_from_lately(context, ret_device))
		return true;
	lock_take(&context_state.all.lock);
	const struct known *known = find_locked(context);
	unsigned changes = atomic_load(&context_state.all.n_changes);
	bool found = known;
	if (known)
		*ret_device = known->device;
	lock_drop(&context_state.all.lock);
	if (found)
		context_all_remember(context, *ret_device, changes);
	if (found || !context || context_enter(context, &pushed) != CUDA_SUCCESS)
		return found;
	found = REAL(cuCtxGetDevice)(ret_device) == CUDA_SUCCESS;
	context_leave(pushed);
	if (found)
		context_all_meet(context, *ret_device);
	return found;
}

CUcontext context_any(CUdevice device)
{
	CUcontext context = NULL;

	lock_take(&context_state.all.lock);
	for (unsigned i = 0; i < context_state.all.n && !context; i++)
		if (context_state.all.row[i].device == device && !context_state.all.row[i].enders)
			context = context_state.all.row[i].context;
	lock_drop(&context_state.all.lock);
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
static CUresult ask_current(void)
{
	int least, greatest;
	CUresult result = REAL(cuCtxGetStreamPriorityRange)(&least, &greatest);

	return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

CUresult context_died_of(CUcontext context)
{
	bool pushed;

	CUresult result = context_enter(context, &pushed);
	if (result != CUDA_SUCCESS)
		return result;
	for (unsigned i = 0; i < DIED_TRIES; i++) {
		result = ask_current();
		if (result == CUDA_SUCCESS)
			break;
	}
	context_leave(pushed);
	return result;
}

bool context_any_died_of(CUresult error)
{
	CUcontext contexts[CONTEXT_MOST];
	bool any = false;

	lock_take(&context_state.all.lock);
	unsigned n = context_state.all.n < CONTEXT_MOST ? context_state.all.n : CONTEXT_MOST;
	for (unsigned i = 0; i < n; i++)
		contexts[i] = context_state.all.row[i].context;
	lock_drop(&context_state.all.lock);
	for (unsigned i = 0; i < n && !any; i++) {
		if (!context_all_visit(contexts[i]))
			continue;
		any = context_died_of(contexts[i]) == error;
		visit_end(contexts[i]);
	}
	return any;
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

static bool is_among(CUdevice device, uint64_t devices)
{
	return devices == CONTEXT_ALL_DEVICES || (device >= 0 && device < 64 && devices >> device & 1);
}

bool context_idle_ask(uint64_t devices, struct context_idle *ret_idle)
{
	bool gone;

	lock_take(&context_state.all.lock);
	*ret_idle = (struct context_idle){.ends = context_state.all.n_ends,
					  .changes = atomic_load(&context_state.all.n_changes)};
	bool can = !context_state.all.lost_some && !context_state.all.n_ending;
	for (unsigned i = 0; i < context_state.all.n && can; i++) {
		if (!is_among(context_state.all.row[i].device, devices))
			continue;
		can = ret_idle->n_asked < CONTEXT_MOST;
		if (can)
			ret_idle->asked[ret_idle->n_asked++] = context_state.all.row[i].context;
	}
	lock_drop(&context_state.all.lock);
	if (!can || !capture_pause())
		return false;
	for (unsigned i = 0; i < ret_idle->n_asked; i++) {
		CUevent event = context_record(ret_idle->asked[i], &gone);

		if (event)
			ret_idle->event[ret_idle->n++] = event;
		else
			can = can && gone;
	}
	capture_resume();
	if (!can)
		context_idle_forget(ret_idle);
	return can;
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

	lock_take(&context_state.all.lock);
	if (idle->ends != context_state.all.n_ends) {
		state = CONTEXT_UNKNOWN; /* the events may have ended with a context: they are lost */
		idle->n = 0;
	} else if (idle->changes != atomic_load(&context_state.all.n_changes)) {
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
	lock_drop(&context_state.all.lock);
	if (state == CONTEXT_UNKNOWN)
		context_idle_forget(idle);
	return state;
}

void context_idle_forget(struct context_idle *idle)
{
	lock_take(&context_state.all.lock);
	while (idle->n)
		if (idle->ends == context_state.all.n_ends)
			REAL(cuEventDestroy_v2)(idle->event[--idle->n]);
		else
			idle->n = 0;
	lock_drop(&context_state.all.lock);
}
