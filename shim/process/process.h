// SPDX-License-Identifier: Apache-2.0
/*
 * process.h: the stage of the process, its policy, whether the thread is inside the library's own work, and by these
 * whether a call is served.
 *
 * Only lifecycle/ changes the stage to RUNNING and sets the policy. Any room may read everything here at any time,
 * under any lock.
 */
#ifndef SPILLWAY_PROCESS_H
#define SPILLWAY_PROCESS_H

#include "policy/policy.h"
#include "shim/base/lock.h"

#include <cuda.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Stage of the process. It only moves down this list, except that the child of a fork may start again. */
enum stage {
	STAGE_NEW,     /* not started; the first request that needs the policy starts the library (lifecycle.c) */
	STAGE_RUNNING, /* policy read, requests are served */
	STAGE_OFF,     /* SPILLWAY=0, or a bad policy: pass through for good */
	STAGE_REFUSE,  /* a bad policy and SPILLWAY_STRICT=1: allocations fail */
	STAGE_ENDING,  /* the process is exiting: late calls pass through */
	STAGE_FORKED,  /* child of a process that had used CUDA: pass through for good */
};

extern _Atomic int process_stage_now;
/*
 * Points to 0 in a child for which no fork handler ran (_Fork(), clone()): the kernel wipes the page there. Such a
 * child must not count into its parent's figures, and it has none of the library's threads, so waits would never end.
 * Every call checks it except launches that pass straight through. A child that shares the memory (vfork(), CLONE_VM)
 * keeps the value: it shares the library's threads, too, and is served like a thread of its parent.
 */
extern const volatile unsigned *process_fork_page;
/*
 * Points process_fork_page to a page that the kernel wipes in each child with a separate address space. Called once, by
 * lifecycle_start(). Without memory for the page such children are not detected. on_cloned: process_cloned() calls it
 * once, after it has changed the stage. Locking: the caller must hold START.
 */
void process_make_fork_page(void (*on_cloned)(void));
/* Treats this process as the child of a fork from now on. The caller has found *process_fork_page to be 0. */
void process_cloned(void);
extern struct lock start_lock; /* START */
/* What else the process keeps, for this room. Hidden, so that its address is not loaded from the GOT. */
extern struct process_state {
	/* Written under START, once; read in STAGE_RUNNING (released by the stage). NULL: it has errors. */
	const struct policy *policy;
	const struct policy_settings *settings; /* of it */
	void (*on_cloned)(void);                /* set once, before the stage is RUNNING */
	_Atomic int is_off;     /* 0 not read yet, 1 on, 2 off; every thread that reads it writes the same */
	_Atomic int spill_mode; /* enum policy_spill. Written under START or ENGINE_START; any thread reads it. */
} process_state __attribute__((visibility("hidden")));
/* Not 0 while this thread is inside the library's own work. */
extern __thread unsigned enter_depth __attribute__((tls_model("initial-exec")));

static inline enum stage process_stage(void)
{
	return (enum stage)atomic_load_explicit(&process_stage_now, memory_order_acquire);
}

/*
 * Returns true if the library keeps its records: also before the first allocation, since captures and pools that exist
 * by then matter. Returns false if it is switched off, ending, or in a fork.
 */
bool process_counts(void);
/* Returns true if SPILLWAY=0. Called before anything else; reads the environment once. */
bool process_is_off(void);
/* Return the policy in force, and its settings; only in STAGE_RUNNING. */
static inline const struct policy *process_policy(void)
{
	return process_state.policy;
}

static inline const struct policy_settings *process_settings(void)
{
	return process_state.settings;
}

/* Called once, by lifecycle_start(). Locking: the caller must hold START. */
void process_set_policy(const struct policy *read);
/*
 * Returns what happens now over the device budget: spill.mode of the policy, or what `spillway set` has made of it. A
 * change is no barrier: what depends on the mode for correctness is kept where it is used, under the lock there.
 */
static inline enum policy_spill process_spill_mode(void)
{
	return (enum policy_spill)atomic_load_explicit(&process_state.spill_mode, memory_order_relaxed);
}

/* Changes it, between POLICY_SPILL_EXACT and POLICY_SPILL_FAST. Called by spill_change_mode(), under ENGINE_START. */
void process_set_spill_mode(enum policy_spill mode);

/*
 * ---- serve a call, or pass it through ----
 *
 * A call is served if the process is in STAGE_RUNNING (not switched off, not ending, no fork of a process that had used
 * CUDA, a valid policy) and the thread is not inside the library's own work already. enter_leave() restores errno.
 */
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
