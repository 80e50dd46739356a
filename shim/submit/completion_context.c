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
#include "shim/submit/submit_state.h"

/* ---- tails ---- */

static void poll_tails(struct completion_answers *answers)
{
	for (unsigned i = 0; i < COMPLETION_TAILS; i++) {
		if (!submit_tables.tails.at[i].under_way)
			continue;
		CUresult result = REAL(cuEventQuery)(submit_tables.tails.at[i].event);
		completion_answered(answers, result);
		if (result == CUDA_ERROR_NOT_READY)
			continue;
		submit_tables.tails.at[i].under_way = false;
		REAL(cuEventDestroy_v2)(submit_tables.tails.at[i].event);
		if (result == CUDA_SUCCESS)
			completion_streams_pass(submit_tables.tails.at[i].context, submit_tables.tails.at[i].number);
	}
}

/*
 * Returns a free entry for the tail of the context, or TAILS if it has one already or none is free.
 * Locking: the caller must hold ROWS.
 */
static unsigned free_tail(CUcontext context)
{
	unsigned found = COMPLETION_TAILS;

	for (unsigned i = 0; i < COMPLETION_TAILS; i++) {
		if (!submit_tables.tails.at[i].under_way)
			found = i;
		else if (submit_tables.tails.at[i].context == context)
			return COMPLETION_TAILS;
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

	lock_take(&submit_state.completion.table_lock);
	unsigned found = free_tail(context), ends = submit_tables.tails.n_ends;
	lock_drop(&submit_state.completion.table_lock);
	if (found == COMPLETION_TAILS || !capture_pause())
		return;
	CUevent event = context_record(context, &gone);
	capture_resume();
	if (gone)
		completion_streams_pass(context, number);
	lock_take(&submit_state.completion.table_lock);
	if (event && ends == submit_tables.tails.n_ends) {
		found = free_tail(context);
		if (found == COMPLETION_TAILS) {
			REAL(cuEventDestroy_v2)(event);
		} else {
			submit_tables.tails.at[found].context = context;
			submit_tables.tails.at[found].owner = context_whole(context);
			submit_tables.tails.at[found].event = event;
			submit_tables.tails.at[found].number = number;
			submit_tables.tails.at[found].under_way = true;
		}
	}
	lock_drop(&submit_state.completion.table_lock);
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

	lock_take(&submit_state.completion.table_lock);
	bool ask = submit_tables.others.state == OTHERS_NOT_ASKED;
	if (ask)
		submit_tables.others.state = OTHERS_BEING_ASKED;
	lock_drop(&submit_state.completion.table_lock);
	if (!ask)
		return;
	bool asked = context_idle_ask(CONTEXT_ALL_DEVICES, &idle);
	lock_take(&submit_state.completion.table_lock);
	submit_tables.others.state = asked ? OTHERS_ASKED : OTHERS_NOT_ASKED;
	if (asked) {
		submit_tables.others.idle = idle;
		submit_tables.others.number = number;
	}
	lock_drop(&submit_state.completion.table_lock);
}

static void poll_others(void)
{
	if (submit_tables.others.state != OTHERS_ASKED)
		return;
	enum context_idleness state = context_idle_look(&submit_tables.others.idle);
	if (state == CONTEXT_BUSY)
		return;
	submit_tables.others.state = OTHERS_NOT_ASKED;
	if (state == CONTEXT_IDLE)
		completion_others_pass(submit_tables.others.number);
}

void completion_context_poll_locked(struct completion_answers *answers)
{
	poll_tails(answers);
	poll_others();
}

/* ---- ends ---- */

bool completion_context_ending(CUcontext context)
{
	lock_take(&submit_state.completion.table_lock);
	submit_tables.tails.n_ends++;
	completion_streams_ending_locked(context);
	for (unsigned i = 0; i < COMPLETION_TAILS; i++) {
		if (submit_tables.tails.at[i].under_way &&
		    (submit_tables.tails.at[i].context == context || submit_tables.tails.at[i].owner == context)) {
			REAL(cuEventDestroy_v2)(submit_tables.tails.at[i].event);
			submit_tables.tails.at[i].under_way = false;
		}
	}
	lock_drop(&submit_state.completion.table_lock);
	bool may = completion_streams_wait(context);
	if (may)
		completion_streams_leave_part(context);
	return may;
}

void completion_context_ended(CUcontext context, bool ended)
{
	lock_take(&submit_state.completion.table_lock);
	completion_streams_ended_locked(context, ended);
	lock_drop(&submit_state.completion.table_lock);
}
