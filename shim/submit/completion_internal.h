/*
 * completion_internal.h: what the files of completion.h share: completion_streams.c, rows of streams (completion_streams.h); completion.c, the events behind
 * their submissions; and completion_context.c, what events of whole contexts prove of them.
 */
#ifndef SPILLWAY_COMPLETION_INTERNAL_H
#define SPILLWAY_COMPLETION_INTERNAL_H

#include "shim/base/lock.h"
#include "shim/submit/completion.h"

/* Over opening and closing rows, and all of completion_context.c. The locks of rows are taken under it. */
extern struct lock completion_table_lock;

/*
 * What events answered. An error may be chance, or that of one call; a context that has died answers everything with one.
 * So after any good answer ("done", or "not yet") errors say nothing.
 */
struct completion_answers {
	bool any_good;
	CUresult error; /* the latest; CUDA_SUCCESS: none */
};
static inline void completion_answered(struct completion_answers *answers, CUresult result)
{
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_CAPTURED_EVENT)
		answers->any_good = true;
	else
		answers->error = result;
}

/* ---- completion_streams.c ---- */
/* Everything of that context up to the number is done. Locking: takes the locks of rows. */
void completion_streams_pass(CUcontext context, uint64_t number);
/* The same of all streams without a row of their own. Locking: takes that row's lock. */
void completion_others_pass(uint64_t number);
/* The rows of a context that is about to end: their events are not touched; and whether it did. */
void completion_streams_ending_locked(CUcontext context);
void completion_streams_ended_locked(CUcontext context, bool ended);
/*
 * Wait until no thread records in that context, whose rows are ending, so that none begins. Returns false if one still
 * does. A cancellation point. Locking: takes the locks of rows; the caller must not hold the table's.
 */
bool completion_streams_wait(CUcontext context);

/* ---- completion_context.c ---- */
/* What has been asked of contexts, as far as it is answered. */
void completion_context_poll_locked(struct completion_answers *answers);
/* Ask when what that context has been given is done: it has a tail, and the submissions are up to that number. */
void completion_context_look_after(CUcontext context, uint64_t number);
/* The same of all contexts, for the streams without a row of their own. */
void completion_context_ask_for_others(uint64_t number);

#endif
