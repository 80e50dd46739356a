/*
 * done_internal.h: what the files of done.h share: done_rows.c, rows of streams (done_rows.h); done.c, the events behind
 * their submissions; and done_context.c, what events of whole contexts prove of them.
 */
#ifndef SPILLWAY_DONE_INTERNAL_H
#define SPILLWAY_DONE_INTERNAL_H

#include "shim/base/lock.h"
#include "shim/submit/done.h"

/* Over opening and closing rows, and all of done_context.c. The locks of rows are taken under it. */
extern struct lock done_table_lock;

/*
 * What events answered. An error may be chance, or that of one call; a context that has died answers everything with one.
 * So after any good answer ("done", or "not yet") errors say nothing.
 */
struct done_answers {
	bool any_good;
	CUresult error; /* the latest; CUDA_SUCCESS: none */
};
static inline void done_answered(struct done_answers *answers, CUresult result)
{
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_CAPTURED_EVENT)
		answers->any_good = true;
	else
		answers->error = result;
}

/* ---- done_rows.c ---- */
/* Everything of that context up to the number is done. Locking: takes the locks of rows. */
void done_rows_pass(CUcontext context, uint64_t number);
/* The same of all streams without a row of their own. Locking: takes that row's lock. */
void done_others_pass(uint64_t number);
/* The rows of a context that is about to end: their events are not touched; and whether it did. */
void done_rows_ending_locked(CUcontext context);
void done_rows_ended_locked(CUcontext context, bool ended);
/*
 * Wait until no thread records in that context, whose rows are ending, so that none begins. Returns false if one still
 * does. A cancellation point. Locking: takes the locks of rows; the caller must not hold the table's.
 */
bool done_rows_wait(CUcontext context);

/* ---- done_context.c ---- */
/* What has been asked of contexts, as far as it is answered. */
void done_context_poll_locked(struct done_answers *answers);
/* Ask when what that context has been given is done: it has a tail, and the submissions are up to that number. */
void done_context_look_after(CUcontext context, uint64_t number);
/* The same of all contexts, for the streams without a row of their own. */
void done_context_ask_for_others(uint64_t number);

#endif
