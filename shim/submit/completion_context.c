/*
 * completion_context.c: completion that is proved by events of whole contexts: of the tails of streams, which no event
 * on the stream follows, and of the row that streams without one share. Also what the end of a context does to both.
 * completion_streams.c keeps the rows.
 */
#include "shim/context/capture.h"
#include "shim/base/lock.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/submit/completion_internal.h"

/* Contexts with an event for their tail at once; enough for all, so that no device waits for another's busy context. */
#define TAILS CONTEXT_MOST

static struct {
	CUcontext context, owner; /* of the tail; of the event, which for a green context is its primary context */
	CUevent event;
	uint64_t number;
	bool under_way;
} tails[TAILS];         /* under completion_table_lock */
static unsigned n_ends; /* contexts that ended or tried to, ever; under completion_table_lock */

/* The shared row: submissions up to `number` are complete once all contexts have passed the events in `idle`. */
static struct {
	enum { OTHERS_NOT_ASKED, OTHERS_BEING_ASKED, OTHERS_ASKED } state;
	struct context_idle idle;
	uint64_t number;
} others; /* under completion_table_lock */

/* ---- tails ---- */

static void poll_tails(struct completion_answers *answers)
{
	for (unsigned i = 0; i < TAILS; i++) {
		if (!tails[i].under_way)
			continue;
		CUresult result = REAL(cuEventQuery)(tails[i].event);
		completion_answered(answers, result);
		if (result == CUDA_ERROR_NOT_READY)
			continue;
		tails[i].under_way = false;
		REAL(cuEventDestroy_v2)(tails[i].event);
		if (result == CUDA_SUCCESS)
			completion_streams_pass(tails[i].context, tails[i].number);
	}
}

/*
 * Returns a free entry for the tail of the context, or TAILS if it has one already or none is free.
 * Locking: the caller must hold ROWS.
 */
static unsigned free_tail(CUcontext context)
{
	unsigned found = TAILS;

	for (unsigned i = 0; i < TAILS; i++) {
		if (!tails[i].under_way)
			found = i;
		else if (tails[i].context == context)
			return TAILS;
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

	lock_take(&completion_table_lock);
	unsigned found = free_tail(context), ends = n_ends;
	lock_drop(&completion_table_lock);
	if (found == TAILS || !capture_pause())
		return;
	CUevent event = context_record(context, &gone);
	capture_resume();
	if (gone)
		completion_streams_pass(context, number);
	lock_take(&completion_table_lock);
	if (event && ends == n_ends) {
		found = free_tail(context);
		if (found == TAILS) {
			REAL(cuEventDestroy_v2)(event);
		} else {
			tails[found].context = context;
			tails[found].owner = context_whole(context);
			tails[found].event = event;
			tails[found].number = number;
			tails[found].under_way = true;
		}
	}
	lock_drop(&completion_table_lock);
}

/* ---- the shared row ---- */

/*
 * The shared row has streams of all contexts and no events. It is complete up to `number` once every context has
 * completed what it had when it was asked. Only one such question is open at a time, so that it is answered however
 * much is submitted meanwhile.
 */
void completion_context_ask_for_others(uint64_t number)
{
	struct context_idle idle;

	lock_take(&completion_table_lock);
	bool ask = others.state == OTHERS_NOT_ASKED;
	if (ask)
		others.state = OTHERS_BEING_ASKED;
	lock_drop(&completion_table_lock);
	if (!ask)
		return;
	bool asked = context_idle_ask(CONTEXT_ALL_DEVICES, &idle);
	lock_take(&completion_table_lock);
	others.state = asked ? OTHERS_ASKED : OTHERS_NOT_ASKED;
	if (asked) {
		others.idle = idle;
		others.number = number;
	}
	lock_drop(&completion_table_lock);
}

static void poll_others(void)
{
	if (others.state != OTHERS_ASKED)
		return;
	enum context_idleness state = context_idle_look(&others.idle);
	if (state == CONTEXT_BUSY)
		return;
	others.state = OTHERS_NOT_ASKED;
	if (state == CONTEXT_IDLE)
		completion_others_pass(others.number);
}

void completion_context_poll_locked(struct completion_answers *answers)
{
	poll_tails(answers);
	poll_others();
}

/* ---- ends ---- */

bool completion_context_ending(CUcontext context)
{
	lock_take(&completion_table_lock);
	n_ends++;
	completion_streams_ending_locked(context);
	for (unsigned i = 0; i < TAILS; i++) {
		if (tails[i].under_way && (tails[i].context == context || tails[i].owner == context)) {
			REAL(cuEventDestroy_v2)(tails[i].event);
			tails[i].under_way = false;
		}
	}
	lock_drop(&completion_table_lock);
	return completion_streams_wait(context);
}

void completion_context_ended(CUcontext context, bool ended)
{
	lock_take(&completion_table_lock);
	completion_streams_ended_locked(context, ended);
	lock_drop(&completion_table_lock);
}
