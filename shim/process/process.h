/*
 * process.h: in which stage this process is, its policy, and how deep this thread is inside our own work.
 *
 * Only lifecycle/ changes the stage to RUNNING and sets the policy. Everything here may be read by any room, at any time,
 * under any lock.
 */
#ifndef SPILLWAY_PROCESS_H
#define SPILLWAY_PROCESS_H

#include "policy/policy.h"
#include "shim/base/lock.h"
#include "shim/base/status.h"

#include <stdatomic.h>
#include <stdbool.h>

/* One stage for the process; it only moves down this list, except that a fork may start again. */
enum stage {
	STAGE_NEW,     /* nothing asked for yet: the first request that matters starts us (lifecycle.c) */
	STAGE_RUNNING, /* policy read, requests are served */
	STAGE_OFF,     /* SPILLWAY=0, or a bad policy: pass through for good */
	STAGE_REFUSE,  /* a bad policy and SPILLWAY_STRICT=1: allocations fail */
	STAGE_ENDING,  /* the process is exiting: late calls pass through */
	STAGE_FORKED,  /* child of a process that had used CUDA: pass through for good */
};

extern _Atomic int process_stage_now;
/*
 * 0 in a child that no handler of fork() was told of (_Fork(), clone()): the kernel wipes it there. What such a child
 * counts must not go into its parent's figures, and it has no thread of ours, so that nothing it waits for ever comes. Asked
 * by all but launches that pass straight through. It stays as it is in a child that shares the memory (vfork(), CLONE_VM):
 * that one has our threads, too, and is served like a thread of its parent.
 */
extern const volatile unsigned *process_fork_page;
/*
 * process_fork_page becomes a page that the kernel wipes in any child with an address space of its own. Called once, by
 * lifecycle_start(), under START. If there is no memory for it, such children are not noticed.
 */
void process_make_fork_page(void);
/* The caller found process_fork_page to be 0: from now on this process is treated as the child of a fork. */
void process_cloned(void);
/* What process_cloned() calls, once, after the change of stage. Given by lifecycle_start(), before the stage is RUNNING. */
void process_on_cloned(void (*let_go)(void));
extern struct lock start_lock;
extern __thread unsigned enter_depth __attribute__((tls_model("initial-exec")));

static inline enum stage process_stage(void)
{
	return (enum stage)atomic_load_explicit(&process_stage_now, memory_order_acquire);
}

/*
 * Do we keep books? Already before the first allocation: captures and pools that are there when it comes matter. Not
 * when switched off, ending, or in a fork.
 */
bool process_counts(void);
/* SPILLWAY=0? Asked before anything else; reads the environment once and does nothing more. */
bool process_is_off(void);
/* The policy in force; only in STAGE_RUNNING. */
const struct policy *process_policy(void);
/* Called once, by lifecycle_start(), under START. */
void process_set_policy(const struct policy *read);

#endif
