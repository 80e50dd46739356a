/*
 * What is proved by events of whole contexts: the tails of streams, behind which no event of their own was recorded,
 * and the row that streams without one of their own share. And what the end of a context does to both. The rows
 * themselves are completion_streams.c's.
 */
#include "shim/context/capture.h"
#include "shim/base/lock.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/submit/completion_internal.h"

/* Contexts whose tails are looked after at once: one that is busy must not have another device wait for it. */
#define TAILS CONTEXT_MOST

static struct {
	CUcontext context, owner; /* whose tail it is, and whose event: a green one's is of its primary context */
	CUevent event;
	uint64_t number;
	bool under_way;
} tails[TAILS];         /* under completion_table_lock */
static unsigned n_ends; /* of contexts, ever; under completion_table_lock */

/* The row of the others: submissions up to `number` are done when all contexts have passed what they were asked for. */
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

/* An entry for the context's tail; TAILS: it has one, or there is no more room. Under completion_table_lock. */
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
 * Have an event of the context recorded, outside the lock, since that may wait for room in the driver's queues. If a
 * context has ended meanwhile the event may have ended with it, and is forgotten; if the mover of another device was
 * faster the event is not needed.
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

/* ---- the row of the others ---- */

/*
 * The row of the others has streams of all contexts, and no events: it is done up to where all contexts are through with
 * what they had when they were asked. One question at a time, so that it moves on however much is submitted meanwhile.
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
	enum context_state state = context_idle_look(&others.idle);
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
