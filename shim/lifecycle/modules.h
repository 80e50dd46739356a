/*
 * modules.h: what each module does when the process loads us, starts, forks and ends. modules.c has the two tables that say
 * in which order; lifecycle.c says when.
 */
#ifndef SPILLWAY_MODULES_H
#define SPILLWAY_MODULES_H

#include "policy/policy.h"

#include <stdbool.h>

/* In our constructor. */
void modules_load(void);
/* Before the start. Locking: the caller must hold none, since the loader's may be needed. May run several times. */
void modules_bind(void);
/* Once, when the policy has been read. Locking: the caller must hold START. */
void modules_start(struct policy *policy);

/*
 * Around a fork of a process that has not started: the locks that a thread may hold by then, taken in the order of their
 * ranks. Bare mutexes, since ranks are not the fork's. Locking: the caller must hold START.
 */
void modules_lock(void);
void modules_unlock(void);
/* In the child of a fork: what belongs to the parent is given up. Async-signal-safe; takes no lock. */
void modules_child(void);

/*
 * At exit, before the stage is ENDING and after that. is_running: the stage was RUNNING. No driver call is made: the driver may
 * have ended already.
 */
void modules_end(bool is_running);
void modules_end_late(bool is_running);

#endif
