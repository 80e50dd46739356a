/*
 * enter.h: how a call of the program becomes a call of ours: serve it, or pass it through?
 *
 * We serve when the process is running (not switched off, not ending, not a fork of a process that had used CUDA, a good
 * policy) and the call does not come from inside our own work on this thread. errno is as we found it when we leave.
 */
#ifndef SPILLWAY_ENTER_H
#define SPILLWAY_ENTER_H

#include "shim/process/process.h"
#include "shim/stats/stats.h"

#include <errno.h>
#include <stdbool.h>

struct enter_scope {
	int saved_errno;
};

/* The rest of enter_serve(), at this stage. The caller has looked at the depth, and saved errno in `scope`. */
static inline bool enter_serve_at(enum stage stage, const struct enter_scope *scope)
{
	if (stage != STAGE_RUNNING)
		return false;
	if (__builtin_expect(!*process_fork_page, 0)) {
		process_cloned();
		errno = scope->saved_errno;
		return false;
	}
	enter_depth = 1;
	return true;
}

/*
 * May this call be served? A process that has not started is not started by it: lifecycle_enter() of lifecycle/lifecycle.h does.
 * Returns false if the caller must call the real function; true if the caller must end with enter_leave(). Never true
 * while a driver call of ours is what called us.
 */
static inline bool enter_serve(struct enter_scope *scope)
{
	if (__builtin_expect(enter_depth != 0, 0))
		return false;
	scope->saved_errno = errno;
	return enter_serve_at(process_stage(), scope);
}

static inline CUresult enter_leave(const struct enter_scope *scope, CUresult result)
{
	enter_depth = 0;
	errno = scope->saved_errno;
	return result;
}

#endif
