/*
 * modules.h: calls the modules when the library is loaded and starts, and when the process forks and ends. Two tables
 * in modules.c give the order; lifecycle.c decides when.
 */
#ifndef SPILLWAY_MODULES_H
#define SPILLWAY_MODULES_H

#include "policy/policy.h"
#include "shim/trace/trace.h"

#include <stdbool.h>

/* Called by the library's constructor. */
void modules_load(void);
/* Called before the start; may run several times. Locking: the caller must hold no lock: the loader's may be needed. */
void modules_bind(void);
/* Called once, when the policy has been read. Locking: the caller must hold START. */
void modules_start(struct policy *policy);

/*
 * Take and drop, around a fork of a process that has not started, the locks that a thread may hold by then, in the
 * order of their ranks. They use the mutexes directly: the fork does not follow the ranks. Locking: the caller must
 * hold START.
 */
void modules_lock(void);
void modules_unlock(void);
/* Called in the child of a fork: gives up what belongs to the parent. Async-signal-safe. Locking: takes no lock. */
void modules_child(void);

/*
 * Called at exit, before the stage is ENDING and after that. is_running: the stage was RUNNING. They make no driver
 * call: the driver may have ended already.
 */
void modules_end(bool is_running);
void modules_end_late(bool is_running);

#endif
