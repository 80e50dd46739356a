/*
 * enter.h: how a call of the program becomes a call of ours: serve it, or pass it through?
 *
 * We serve when the process is running (not switched off, not ending, not a fork of a process that had used CUDA, a good
 * policy) and the call does not come from inside our own work on this thread. errno is as we found it when we leave.
 */
#ifndef SPILLWAY_ENTER_H
#define SPILLWAY_ENTER_H

#include "policy/policy.h"
#include "shim/base/lock.h"
#include "shim/stats/stats.h"
#include "shim/base/status.h"

#include <errno.h>
#include <stdbool.h>

/* One stage for the process; it only moves down this list, except that a fork may start again. */
enum stage {
	STAGE_NEW,     /* nothing asked for yet: the first request that matters starts us (life.c) */
	STAGE_RUNNING, /* policy read, requests are served */
	STAGE_OFF,     /* SPILLWAY=0, or a bad policy: pass through for good */
	STAGE_REFUSE,  /* a bad policy and SPILLWAY_STRICT=1: allocations fail */
	STAGE_ENDING,  /* the process is exiting: late calls pass through */
	STAGE_FORKED,  /* child of a process that had used CUDA: pass through for good */
};

extern _Atomic int life_stage_now;
/*
 * 0 in a child that no handler of fork() was told of (_Fork(), clone()): the kernel wipes it there. What such a child
 * counts must not go into its parent's figures, and it has no thread of ours, so that nothing it waits for ever comes. Asked
 * by all but launches that pass straight through. It stays as it is in a child that shares the memory (vfork(), CLONE_VM):
 * that one has our threads, too, and is served like a thread of its parent.
 */
extern const volatile unsigned *life_mark;
/* It is: from now on as the child of a fork. */
void life_cloned(void);
extern struct lock start_lock;
extern __thread unsigned enter_depth __attribute__((tls_model("initial-exec")));

static inline enum stage life_stage(void)
{
	return (enum stage)atomic_load_explicit(&life_stage_now, memory_order_acquire);
}

/*
 * Do we keep books? Already before the first allocation: captures and pools that are there when it comes matter. Not
 * when switched off, ending, or in a fork.
 */
bool life_counts(void);
/* Read policy and environment, once; returns the stage after it. */
enum stage life_start(void);
/* SPILLWAY=0? Asked before anything else; reads the environment once and does nothing more. */
bool life_is_off(void);
/* The policy in force; only in STAGE_RUNNING. */
const struct policy *life_policy(void);
/* The summary at exit; also for tests. */
void life_print_summary(void);

struct enter_scope {
	int saved_errno;
};

/*
 * May this call be served? start: it is one that brings us to life. False: call the real function. True: the caller
 * must end with enter_leave(). Never while a driver call of ours is what called us.
 */
static inline bool enter_serve(struct enter_scope *scope, bool start)
{
	if (__builtin_expect(enter_depth != 0, 0))
		return false;
	enum stage stage = life_stage();
	scope->saved_errno = errno;
	if (__builtin_expect(stage == STAGE_NEW, 0)) {
		if (!start)
			return false;
		stage = life_start();
		errno = scope->saved_errno;
	}
	if (stage != STAGE_RUNNING)
		return false;
	if (__builtin_expect(!*life_mark, 0)) {
		life_cloned();
		errno = scope->saved_errno;
		return false;
	}
	enter_depth = 1;
	return true;
}

static inline CUresult enter_leave(const struct enter_scope *scope, CUresult result)
{
	enter_depth = 0;
	errno = scope->saved_errno;
	return result;
}

#endif
