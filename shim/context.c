#include "shim/context.h"
#include "shim/capture.h"
#include "shim/clock.h"
#include "shim/real.h"

#include <pthread.h>
#include <stdatomic.h>

/* Green contexts are few; what does not fit here is treated as a context of its own. */
#define GREEN_MOST 64

static struct {
	_Atomic(CUgreenCtx) green;
	_Atomic(CUcontext) context;
	CUcontext primary; /* these are set before context */
	CUdevice device;
} greens[GREEN_MOST];
static atomic_uint n_greens;

CUcontext context_current(void)
{
	CUcontext current = NULL;

	return REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS ? current : NULL;
}

CUcontext context_whole(CUcontext context)
{
	if (!context || !atomic_load_explicit(&n_greens, memory_order_relaxed))
		return context;
	for (unsigned i = 0; i < GREEN_MOST; i++)
		if (atomic_load(&greens[i].context) == context)
			return greens[i].primary;
	return context;
}

/* Handles are given out anew: of one that is, nothing is known from before. */
static void forget_greens(CUgreenCtx green, CUcontext context)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx old = atomic_load(&greens[i].green);

		if (!old || (old != green && atomic_load(&greens[i].context) != context))
			continue;
		atomic_store(&greens[i].context, NULL);
		if (atomic_compare_exchange_strong(&greens[i].green, &old, NULL))
			atomic_fetch_sub(&n_greens, 1);
	}
}

void context_green(CUgreenCtx green, CUdevice device)
{
	CUcontext context, primary;

	/* It holds its primary one, so retaining that makes nothing new. */
	if (REAL(cuCtxFromGreenCtx)(&context, green) != CUDA_SUCCESS ||
	    REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS)
		return;
	REAL(cuDevicePrimaryCtxRelease_v2)(device);
	context_known(primary, device);
	forget_greens(green, context);
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx none = NULL;

		if (!atomic_compare_exchange_strong(&greens[i].green, &none, green))
			continue;
		greens[i].primary = primary;
		greens[i].device = device;
		atomic_fetch_add(&n_greens, 1);
		atomic_store(&greens[i].context, context);
		return;
	}
}

CUcontext context_green_ending(CUgreenCtx green, CUdevice *ret_device)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUcontext context = atomic_load(&greens[i].context);

		if (!context || atomic_load(&greens[i].green) != green)
			continue;
		*ret_device = greens[i].device;
		forget_greens(green, context);
		return context;
	}
	return NULL;
}

CUcontext context_of_memory(void)
{
	return context_whole(context_current());
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

/* ---- visits ---- */

/* How long the end of a context waits for events to be recorded in it: as a rule a microsecond. */
#define VISIT_NS 1000000000

static struct known {
	CUcontext context;
	CUdevice device;
	unsigned visits;
	unsigned enders; /* calls under way that end it, perhaps */
	bool again;      /* made again since the first of them */
} all[CONTEXT_MOST];
static unsigned n_all, n_ends, n_ending;
static atomic_uint n_changes = 1; /* of which contexts there are */
static bool too_many;
/* Over queries and ends of events too, so that no context ends between a look at its event and the question. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;

static struct known *find_locked(CUcontext context)
{
	for (unsigned i = 0; i < n_all; i++)
		if (all[i].context == context)
			return &all[i];
	return NULL;
}

/* False: it may be about to end. Contexts that nobody told us of are not counted. */
static bool begin_visit(CUcontext context)
{
	pthread_mutex_lock(&all_lock);
	struct known *known = find_locked(context);
	bool may = !known || !known->enders;
	if (known && may)
		known->visits++;
	pthread_mutex_unlock(&all_lock);
	return may;
}

static void end_visit(CUcontext context)
{
	pthread_mutex_lock(&all_lock);
	struct known *known = find_locked(context);
	if (known && known->visits && !--known->visits)
		pthread_cond_broadcast(&left);
	pthread_mutex_unlock(&all_lock);
}

static void wait_for_visits_locked(CUcontext context)
{
	const struct timespec until = clock_in(VISIT_NS);
	struct known *known;
	int before, error = 0;

	/* The wait is a cancellation point, and we have the lock. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	while ((known = find_locked(context)) && known->visits && !error) /* rows change their places */
		error = pthread_cond_timedwait(&left, &all_lock, &until);
	if (known)
		known->visits = 0;
	pthread_setcancelstate(before, NULL);
}

/* The one question that the driver answers about any handle (the rules of test/sim, on driver 580). */
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
 * The driver makes a context current that has ended, too, says so of everything that is asked of it, and has ended
 * processes for taking it away again.
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

/* The thread is the program's, or the mover's for good: neither is to go on in a context that is not its own. */
#define LEAVE_TRIES 16

void context_leave(bool pushed)
{
	CUcontext popped;

	for (unsigned tries = 0; pushed && tries < LEAVE_TRIES; tries++)
		pushed = REAL(cuCtxPopCurrent_v2)(&popped) != CUDA_SUCCESS;
}

/* ---- events to be used again ---- */

#define EVENTS_KEPT 256

static struct {
	CUcontext context; /* of all of them; those of another one are not kept */
	unsigned n;
	CUevent event[EVENTS_KEPT];
} kept;
/* The last to be taken; over ends of events, so that their context does not end meanwhile. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult context_event_take(CUcontext context, CUevent *ret_event)
{
	pthread_mutex_lock(&kept_lock);
	bool any = kept.n && kept.context == context;
	if (any)
		*ret_event = kept.event[--kept.n];
	pthread_mutex_unlock(&kept_lock);
	return any ? CUDA_SUCCESS : REAL(cuEventCreate)(ret_event, CU_EVENT_DISABLE_TIMING);
}

void context_event_give(CUcontext context, CUevent event)
{
	pthread_mutex_lock(&kept_lock);
	if (!kept.n)
		kept.context = context;
	if (kept.context == context && kept.n < EVENTS_KEPT)
		kept.event[kept.n++] = event;
	else
		REAL(cuEventDestroy_v2)(event);
	pthread_mutex_unlock(&kept_lock);
}

/* gone: they have ended with their context. */
static void drop_events(CUcontext context, bool gone)
{
	pthread_mutex_lock(&kept_lock);
	while (kept.context == context && kept.n) {
		kept.n--;
		if (!gone)
			REAL(cuEventDestroy_v2)(kept.event[kept.n]);
	}
	pthread_mutex_unlock(&kept_lock);
}

/* What a context answers that has died, to a question that waits for nothing and disturbs no capture. */
static CUresult state_of(CUcontext context)
{
	CUevent event;
	bool pushed;

	CUresult result = context_enter(context, &pushed);
	if (result != CUDA_SUCCESS)
		return result;
	result = REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		REAL(cuEventDestroy_v2)(event);
	context_leave(pushed);
	return result;
}

bool context_any_died_of(CUresult error)
{
	CUcontext contexts[CONTEXT_MOST];
	bool any = false;

	pthread_mutex_lock(&all_lock);
	unsigned n = n_all;
	for (unsigned i = 0; i < n; i++)
		contexts[i] = all[i].context;
	pthread_mutex_unlock(&all_lock);
	for (unsigned i = 0; i < n && !any; i++) {
		if (!begin_visit(contexts[i]))
			continue;
		any = state_of(contexts[i]) == error;
		end_visit(contexts[i]);
	}
	return any;
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

static CUevent record(CUcontext context, bool *ret_gone)
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
	if (!begin_visit(context))
		return NULL;
	CUevent event = record(context, ret_gone);
	end_visit(context);
	return event;
}

static bool is_busy(CUevent event)
{
	CUstreamCaptureMode mode = capture_relax();
	bool busy = REAL(cuEventQuery)(event) == CUDA_ERROR_NOT_READY;

	capture_restore(mode);
	return busy;
}

void context_await(CUcontext context, unsigned ms)
{
	bool gone;
	int before;

	if (!capture_pause())
		return;
	CUevent event = record(context, &gone);
	capture_resume();
	/* Sleeping is a cancellation point. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	for (; event && ms && !capture_is_open() && is_busy(event); ms--)
		clock_sleep(1000000);
	if (event)
		REAL(cuEventDestroy_v2)(event);
	pthread_setcancelstate(before, NULL);
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

/* ---- all contexts ---- */

void context_known(CUcontext context, CUdevice device)
{
	pthread_mutex_lock(&all_lock);
	struct known *known = find_locked(context);
	bool is_new = !known || known->device != device;
	if (known) {
		known->again = known->enders != 0;
		known->device = device;
	} else if (n_all < CONTEXT_MOST) {
		all[n_all++] = (struct known){.context = context, .device = device};
	} else {
		too_many = true;
	}
	if (is_new)
		atomic_fetch_add(&n_changes, 1);
	pthread_mutex_unlock(&all_lock);
}

void context_ending(CUcontext context)
{
	drop_events(context, false);
	pthread_mutex_lock(&all_lock);
	n_ends++;
	n_ending++;
	struct known *known = find_locked(context);
	if (known) {
		known->again = known->enders && known->again;
		known->enders++;
		wait_for_visits_locked(context);
	}
	pthread_mutex_unlock(&all_lock);
}

/* What was made under the same handle meanwhile stays known. */
void context_ended(CUcontext context, bool ended)
{
	/* Another thread may have given some back meanwhile. */
	if (ended)
		drop_events(context, true);
	pthread_mutex_lock(&all_lock);
	n_ending--;
	struct known *known = find_locked(context);
	if (known && known->enders)
		known->enders--;
	if (known && ended && !known->again) {
		*known = all[--n_all];
		atomic_fetch_add(&n_changes, 1);
	}
	pthread_mutex_unlock(&all_lock);
}

/*
 * The devices of contexts that this thread asked about lately, as long as none has come or gone since: copies ask, and the
 * lock is held over questions to the driver.
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
	if (!context || lately.changes != atomic_load(&n_changes))
		return false;
	for (unsigned i = 0; i < LATELY; i++) {
		if (lately.at[i].context != context)
			continue;
		*ret_device = lately.at[i].device;
		return true;
	}
	return false;
}

static void remember(CUcontext context, CUdevice device, unsigned changes)
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

	if (is_from_lately(context, ret_device))
		return true;
	pthread_mutex_lock(&all_lock);
	const struct known *known = find_locked(context);
	unsigned changes = atomic_load(&n_changes);
	bool found = known;
	if (known)
		*ret_device = known->device;
	pthread_mutex_unlock(&all_lock);
	if (found)
		remember(context, *ret_device, changes);
	if (found || !context || context_enter(context, &pushed) != CUDA_SUCCESS)
		return found;
	found = REAL(cuCtxGetDevice)(ret_device) == CUDA_SUCCESS;
	context_leave(pushed);
	return found;
}

CUcontext context_any(CUdevice device)
{
	CUcontext context = NULL;

	pthread_mutex_lock(&all_lock);
	for (unsigned i = 0; i < n_all && !context; i++)
		if (all[i].device == device && !all[i].enders)
			context = all[i].context;
	pthread_mutex_unlock(&all_lock);
	return context;
}

static bool is_among(CUdevice device, uint64_t devices)
{
	return devices == CONTEXT_ALL_DEVICES || (device >= 0 && device < 64 && devices >> device & 1);
}

bool context_idle_ask(uint64_t devices, struct context_idle *ret_idle)
{
	CUcontext some[CONTEXT_MOST];
	unsigned n = 0;
	bool gone;

	pthread_mutex_lock(&all_lock);
	*ret_idle = (struct context_idle){.ends = n_ends};
	bool can = !too_many && !n_ending;
	for (unsigned i = 0; i < n_all; i++)
		if (is_among(all[i].device, devices))
			some[n++] = all[i].context;
	pthread_mutex_unlock(&all_lock);
	if (!can || !capture_pause())
		return false;
	for (unsigned i = 0; i < n; i++) {
		CUevent event = context_record(some[i], &gone);

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

enum context_state context_idle_look(struct context_idle *idle)
{
	enum context_state state = CONTEXT_IDLE;

	pthread_mutex_lock(&all_lock);
	if (idle->ends != n_ends) {
		state = CONTEXT_UNKNOWN; /* the events may have ended with it: they are lost */
		idle->n = 0;
	}
	while (idle->n && state == CONTEXT_IDLE) {
		CUresult result = REAL(cuEventQuery)(idle->event[idle->n - 1]);

		if (result == CUDA_ERROR_NOT_READY)
			state = CONTEXT_BUSY;
		else if (result != CUDA_SUCCESS)
			state = CONTEXT_UNKNOWN;
		else
			REAL(cuEventDestroy_v2)(idle->event[--idle->n]);
	}
	pthread_mutex_unlock(&all_lock);
	if (state == CONTEXT_UNKNOWN)
		context_idle_forget(idle);
	return state;
}

void context_idle_forget(struct context_idle *idle)
{
	pthread_mutex_lock(&all_lock);
	while (idle->n)
		if (idle->ends == n_ends)
			REAL(cuEventDestroy_v2)(idle->event[--idle->n]);
		else
			idle->n = 0;
	pthread_mutex_unlock(&all_lock);
}
