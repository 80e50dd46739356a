/*
 * lifecycle.h: the first call of the program that needs the policy starts us.
 */
#ifndef SPILLWAY_LIFECYCLE_H
#define SPILLWAY_LIFECYCLE_H

#include "shim/process/enter.h"

/* Reads policy and environment and starts the modules, once. Returns the stage after it. Locking: takes START. */
enum stage lifecycle_start(void);

/* enter_serve() for a call that starts the process if nothing has started it yet. */
static inline bool lifecycle_enter(struct enter_scope *scope)
{
	if (__builtin_expect(enter_depth != 0, 0))
		return false;
	enum stage stage = process_stage();
	scope->saved_errno = errno;
	if (__builtin_expect(stage == STAGE_NEW, 0)) {
		stage = lifecycle_start();
		errno = scope->saved_errno;
	}
	return enter_serve_at(stage, scope);
}

#endif
