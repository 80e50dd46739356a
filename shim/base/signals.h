// SPDX-License-Identifier: Apache-2.0
/*
 * signals.h: the one signal handler that the library has, for SIGSEGV. It stands in front of the program's own action,
 * says what it knows of the address, and does what the signal would have done without it.
 *
 * Before signals_watch() nothing is changed. After it the program's action is kept here: calls of sigaction() and its
 * kin (entry/entry_signal.c) change and read that one, with its flags and its mask, and the handler stays in front. A
 * program that ignores the signal, or makes the system call itself, replaces the handler, and the library says nothing
 * then. What a child of vfork() sets is its own.
 */
#ifndef SPILLWAY_SIGNALS_H
#define SPILLWAY_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* The C library's functions that are like signal(). */
enum signals_kin {
	SIGNALS_SIGNAL,
	SIGNALS_BSD_SIGNAL,
	SIGNALS_SSIGNAL,
	SIGNALS_SYSV_SIGNAL,
	SIGNALS_SYSV_SIGNAL_2,
	SIGNALS_SIGSET,
	SIGNALS_KIN_COUNT, /* must be last */
};

typedef int signals_action_function(int number, const struct sigaction *action, struct sigaction *before);
typedef sighandler_t signals_kin_function(int number, sighandler_t handler);

/*
 * Tells where the C library's sigaction() is, and the others; NULL: it has none. Must be called before the functions
 * below; a second call must say the same.
 */
void signals_bind(signals_action_function *action, signals_kin_function *const kin[SIGNALS_KIN_COUNT]);
bool signals_is_bound(void);
/* Returns NULL if the C library has none. */
signals_kin_function *signals_kin(enum signals_kin which);

/*
 * Installs the handler, once. look: called for each fault of this process, with its address, before the program's
 * action; must be async-signal-safe. Returns false if the handler cannot be installed. Locking: none; leaves errno.
 */
bool signals_watch(void (*look)(uintptr_t address));

bool signals_is_watching(void);

/* What sigaction() does, errno included. May be called in a signal handler. */
int signals_action(int number, const struct sigaction *action, struct sigaction *ret_before);

/* In the child of a fork. Async-signal-safe. */
void signals_child(void);

#endif
