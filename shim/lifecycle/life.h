/*
 * life.h: the first call of the program that needs the policy starts us.
 */
#ifndef SPILLWAY_LIFE_H
#define SPILLWAY_LIFE_H

#include "shim/process/enter.h"

/* Reads policy and environment and starts the modules, once. Returns the stage after it. Locking: takes START. */
enum stage life_start(void);

/* enter_serve() for a call that starts the process if nothing has started it yet. */
static inline bool life_enter(struct enter_scope *scope)
{
	if (__builtin_expect(enter_depth != 0, 0))
		return false;
	enum stage stage = life_stage();
	scope->saved_errno = errno;
	if (__builtin_expect(stage == STAGE_NEW, 0)) {
		stage = life_start();
		errno = scope->saved_errno;
	}
	return enter_serve_at(stage, scope);
}

#endif
