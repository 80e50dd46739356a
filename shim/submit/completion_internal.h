/*
 * completion_internal.h: what the three files of completion.h share: completion_streams.c keeps the rows of streams
 * (completion_streams.h), completion.c the events behind their submissions, and completion_context.c the events of
 * whole contexts.
 */
#ifndef SPILLWAY_COMPLETION_INTERNAL_H
#define SPILLWAY_COMPLETION_INTERNAL_H

#include "shim/submit/completion.h"

/*
 * The results of queries of events. A single error may concern one call only; a dead context answers every query with
 * an error. So errors count only if no query succeeded ("done" or "not yet").
 */
struct completion_answers {
	bool any_good;
	CUresult error; /* the latest, or CUDA_SUCCESS */
};
/* Of an event that a capture has recorded which has ended: the documented answer, and what a driver gave (docs/facts.md). */
static inline bool completion_is_captured(CUresult result)
{
	return result == CUDA_ERROR_CAPTURED_EVENT || result == CUDA_ERROR_INVALID_VALUE;
}
static inline void completion_answered(struct completion_answers *answers, CUresult result)
{
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY || completion_is_captured(result))
		answers->any_good = true;
	else
		answers->error = result;
}

/* ---- completion_streams.c ---- */
/* Records that all submissions of the whole context up to the number are complete. Locking: takes ROW. */
void completion_streams_pass(CUcontext context, uint64_t number);
/* The same for the shared row. Locking: takes ROW. */
void completion_others_pass(uint64_t number);
/*
 * The first marks the rows of a context that is about to end, so that their events are no longer used. The second
 * closes them if the context ended, and else takes the mark back. Locking: the caller must hold ROWS; takes ROW.
 */
void completion_streams_ending_locked(CUcontext context);
void completion_streams_ended_locked(CUcontext context, bool ended);
/*
 * Waits until no thread records in the context. Its rows must be ending, so that no record begins. Returns false if a
 * thread still records after 30 s of naps. A cancellation point.
 * Locking: takes ROW; must be called without ROWS.
 */
bool completion_streams_wait(CUcontext context);

/*
 * The work of a green context that is about to end may go on afterwards, but events in it end with it. Its rows, which
 * must be ending, are closed, and wait for an event of its primary context, which covers that work (docs/facts.md).
 * Locking: takes ROW; must be called without it.
 */
void completion_streams_leave_part(CUcontext context);

/* ---- completion_context.c ---- */
/* Queries the events of contexts and records what they prove. Locking: the caller must hold ROWS; takes ROW. */
void completion_context_poll_locked(struct completion_answers *answers);
/*
 * Records an event of a context that has a tail; once it has passed, the submissions of that context up to the number
 * are complete. Locking: takes ROWS, and ROW; must be called without them.
 */
void completion_context_look_after(CUcontext context, uint64_t number);
/* The same for all contexts, which proves the submissions of the shared row. Locking: takes ROWS. */
void completion_context_ask_for_others(uint64_t number);

#endif
