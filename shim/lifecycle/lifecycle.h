/*
 * lifecycle.h: starts the library at the first call of the program that needs the policy, and sums up.
 */
#ifndef SPILLWAY_LIFECYCLE_H
#define SPILLWAY_LIFECYCLE_H

#include "shim/process/process.h"

/*
 * Reads policy and environment and starts the modules, once. Returns the stage afterwards.
 * Locking: takes START; the caller must hold no lock (it binds modules).
 */
enum stage lifecycle_start(void);

/* Does the same as enter_serve(), but starts the library first if it has not started. */
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

/* Writes the summary; at any time in STAGE_RUNNING. Locking: tries SUMMARY; does nothing if another thread holds it. */
void exit_summary_print(void);

#endif
