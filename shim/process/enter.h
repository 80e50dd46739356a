/*
 * enter.h: decides for each call of the program whether the library serves it or passes it to the driver.
 *
 * A call is served if the process is in STAGE_RUNNING (not switched off, not ending, no fork of a process that had used
 * CUDA, a valid policy) and the thread is not inside the library's own work already. enter_leave() restores errno.
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

/* Second half of enter_serve(). The caller must have checked enter_depth and saved errno in `scope`. */
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
 * Decides whether this call is served. Does not start the library: lifecycle_enter() (lifecycle/lifecycle.h) does.
 * Returns true if the call is served; the caller must then end with enter_leave(). Returns false if the caller must
 * call the real function; always so inside a driver call that the library itself made.
 */
static inline bool enter_serve(struct enter_scope *scope)
{
	if (__builtin_expect(enter_depth != 0, 0))
		return false;
	scope->saved_errno = errno;
	return enter_serve_at(process_stage(), scope);
}

/* Ends a served call: restores errno and returns `result`. */
static inline CUresult enter_leave(const struct enter_scope *scope, CUresult result)
{
	enter_depth = 0;
	errno = scope->saved_errno;
	return result;
}

#endif
