// SPDX-License-Identifier: Apache-2.0
/*
 * Exported functions of the C library that set what a signal does. For SIGSEGV they change and read the action behind
 * the library's handler, once that is installed (signals.h). Everything else is left to the C library's own functions.
 */
#include "shim/base/signals.h"
#include "shim/entry/entry.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#define SIGNAL_EXPORT __attribute__((visibility("default"), nothrow))

/* glibc exports them, and has no prototype of them any more. */
int __sigaction(int number, const struct sigaction *action, struct sigaction *before);
sighandler_t bsd_signal(int number, sighandler_t handler);

/* In the order of enum signals_kin. */
static const char *const names[SIGNALS_KIN_COUNT] = {"signal",      "bsd_signal",    "ssignal",
						     "sysv_signal", "__sysv_signal", "sigset"};

/*
 * Finds the C library's functions: while the program is loaded, so that nothing need be found in a signal handler, or
 * earlier if the constructor of another library calls.
 */
__attribute__((constructor)) static void find(void)
{
	signals_kin_function *kin[SIGNALS_KIN_COUNT];
	signals_action_function *action;

	if (signals_is_bound())
		return;
	void *found = dlsym(RTLD_NEXT, "sigaction");
	memcpy(&action, &found, sizeof(action));
	for (int i = 0; i < SIGNALS_KIN_COUNT; i++) {
		found = dlsym(RTLD_NEXT, names[i]);
		memcpy(&kin[i], &found, sizeof(kin[i]));
	}
	signals_bind(action, kin);
}

static int act(int number, const struct sigaction *action, struct sigaction *before)
{
	find();
	return signals_action(number, action, before);
}

SIGNAL_EXPORT int sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
	return act(number, action, before);
}

SIGNAL_EXPORT int __sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
	return act(number, action, before);
}

static sighandler_t set(enum signals_kin kin, int number, sighandler_t handler, int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, before;

	if (number != SIGSEGV || !signals_is_watching() || handler == SIG_ERR) {
		find();
		signals_kin_function *kin_of = signals_kin(kin);

		if (kin_of)
			return kin_of(number, handler);
		errno = ENOSYS;
		return SIG_ERR;
	}
	sigemptyset(&action.sa_mask);
	if (flags == SA_RESTART)
		sigaddset(&action.sa_mask, number);
	return signals_action(number, &action, &before) ? SIG_ERR : before.sa_handler;
}

#define KIN(name, kin, flags)                                                                                          \
	SIGNAL_EXPORT sighandler_t name(int number, sighandler_t handler)                                              \
	{                                                                                                              \
		return set(kin, number, handler, flags);                                                               \
	}
KIN(signal, SIGNALS_SIGNAL, SA_RESTART)
KIN(bsd_signal, SIGNALS_BSD_SIGNAL, SA_RESTART)
KIN(ssignal, SIGNALS_SSIGNAL, SA_RESTART)
KIN(sysv_signal, SIGNALS_SYSV_SIGNAL, SA_RESETHAND | SA_NODEFER)
KIN(__sysv_signal, SIGNALS_SYSV_SIGNAL_2, SA_RESETHAND | SA_NODEFER)

/* It also blocks (SIG_HOLD) or unblocks the signal, and answers SIG_HOLD if that was blocked. */
SIGNAL_EXPORT sighandler_t sigset(int number, sighandler_t handler)
{
	sigset_t one, before;
	sighandler_t was = SIG_DFL;

	if (number != SIGSEGV || !signals_is_watching() || handler == SIG_ERR)
		return set(SIGNALS_SIGSET, number, handler, 0);
	if (handler == SIG_HOLD) {
		struct sigaction now;

		signals_action(number, NULL, &now);
		was = now.sa_handler;
	} else {
		was = set(SIGNALS_SIGSET, number, handler, 0);
	}
	sigemptyset(&one);
	sigaddset(&one, number);
	pthread_sigmask(handler == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &one, &before);
	return sigismember(&before, number) ? SIG_HOLD : was;
}

SIGNAL_EXPORT int sigignore(int number)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};

	return act(number, &ignore, NULL);
}
