// SPDX-License-Identifier: Apache-2.0
/* signals.c: the handler of SIGSEGV in front of the program's own (signals.h). */
#include "shim/base/signals.h"
#include "shim/base/base_state.h"
#include "shim/base/libc.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct signals_state *const signals_state = &base_state.signals;

/* ---- the lock ---- */

/* By the system call, whose set is of 64 signals, so that none of the C library's own is left out. */
static uint64_t hold(void)
{
	uint64_t all = UINT64_MAX, before = 0;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof(before));
	while (atomic_exchange(&signals_state->held, true))
		sched_yield();
	return before;
}

static void let_go(uint64_t before)
{
	atomic_store(&signals_state->held, false);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof(before));
}

void signals_child(void)
{
	signals_state->pid = getpid();
	atomic_store(&signals_state->held, false);
}

/* ---- the C library's functions ---- */

void signals_bind(signals_action_function *action, signals_kin_function *const kin[SIGNALS_KIN_COUNT])
{
	for (int i = 0; i < SIGNALS_KIN_COUNT; i++)
		atomic_store(&signals_state->kin[i], kin[i]);
	/* Last: who sees it sees the others. */
	atomic_store(&signals_state->action, action);
}

bool signals_is_bound(void)
{
	return atomic_load(&signals_state->action) != NULL;
}

static signals_action_function *real_action(void)
{
	return atomic_load(&signals_state->action);
}

signals_kin_function *signals_kin(enum signals_kin which)
{
	return atomic_load(&signals_state->kin[which]);
}

/* ---- the handler ---- */

/*
 * A child of vfork() has the memory of its parent, whose record must stay as it is, but actions of its own. So has one
 * of a bare system call, in memory of its own.
 */
static bool is_child(void)
{
	return getpid() != signals_state->pid;
}

/* Sent again, it ends the process when the handler has returned, also if the fault would not come again. */
static void leave_to_default(int number, siginfo_t *info)
{
	struct sigaction none = {.sa_handler = SIG_DFL};

	real_action()(number, &none, NULL);
	syscall(SYS_rt_tgsigqueueinfo, getpid(), libc_gettid(), number, info);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
	void (*look)(uintptr_t address) = atomic_load(&signals_state->look);
	bool is_fault = info->si_code > 0, child = is_child(); /* a fault: by the kernel */
	struct sigaction none = {.sa_handler = SIG_DFL};
	int saved = errno;

	if (is_fault && look)
		look((uintptr_t)info->si_addr);
	uint64_t before = hold();
	struct sigaction theirs = signals_state->theirs;
	bool once = theirs.sa_flags & SA_RESETHAND && theirs.sa_handler != SIG_IGN;
	if (once && !child)
		signals_state->theirs.sa_handler = SIG_DFL;
	let_go(before);
	if (once && child)
		real_action()(number, &none, NULL);
	errno = saved;
	/* Whatever the flags say. It may be ignored since a moment ago; a fault ends the process then. */
	if (theirs.sa_handler == SIG_DFL || (theirs.sa_handler == SIG_IGN && is_fault))
		leave_to_default(number, info);
	else if (theirs.sa_handler == SIG_IGN)
		return;
	else if (theirs.sa_flags & SA_SIGINFO)
		theirs.sa_sigaction(number, info, context);
	else
		theirs.sa_handler(number);
}

/*
 * Sets the program's action for real, so that the C library and the kernel judge it, and then the handler in its
 * place, with the same mask and stack. A signal that is ignored is left to the kernel: programs that are executed
 * inherit that. Locking: the caller holds the lock.
 */
static int put_in_front(int number, const struct sigaction *action)
{
	struct sigaction ours = {.sa_sigaction = on_signal};

	if (action && real_action()(number, action, NULL))
		return -1;
	if (real_action()(number, NULL, &signals_state->theirs))
		return -1;
	if (signals_state->theirs.sa_handler == SIG_IGN)
		return 0;
	ours.sa_mask = signals_state->theirs.sa_mask;
	ours.sa_flags = SA_SIGINFO | (signals_state->theirs.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART));
	return real_action()(number, &ours, NULL);
}

bool signals_watch(void (*look)(uintptr_t address))
{
	int saved = errno;

	if (!real_action())
		return false;
	uint64_t before = hold();
	signals_state->pid = getpid();
	bool there = atomic_load(&signals_state->look) || !put_in_front(SIGSEGV, NULL);
	if (there)
		atomic_store(&signals_state->look, look);
	let_go(before);
	errno = saved;
	return there;
}

bool signals_is_watching(void)
{
	return atomic_load(&signals_state->look) != NULL;
}

/* Sets and reads the action of such a child. The parent's handler stands for what the parent has set. */
static int child_action(int number, const struct sigaction *action, struct sigaction *ret_before)
{
	int result = real_action()(number, action, ret_before);

	if (!result && ret_before && ret_before->sa_sigaction == on_signal) {
		uint64_t before = hold();

		*ret_before = signals_state->theirs;
		let_go(before);
	}
	return result;
}

/* What was set by the system call itself counts as the program's action. Locking: the caller holds the lock. */
static void refresh(int number)
{
	struct sigaction now;

	if (!real_action()(number, NULL, &now) && now.sa_sigaction != on_signal)
		signals_state->theirs = now;
}

int signals_action(int number, const struct sigaction *action, struct sigaction *ret_before)
{
	struct sigaction theirs, wanted;
	int result = 0;

	if (!real_action()) {
		errno = ENOSYS;
		return -1;
	}
	if (number != SIGSEGV || !atomic_load(&signals_state->look))
		return real_action()(number, action, ret_before);
	if (is_child())
		return child_action(number, action, ret_before);
	/* A wrong address is the caller's fault, before anything is held. */
	if (action)
		wanted = *action;
	uint64_t before = hold();
	refresh(number);
	theirs = signals_state->theirs;
	if (action)
		result = put_in_front(number, &wanted);
	let_go(before);
	if (!result && ret_before)
		*ret_before = theirs;
	return result;
}
