/*
 * Starts threads of the library.
 */
#include "shim/base/thread.h"

#include <errno.h>
#include <signal.h>

#define STACK_ENOUGH ((size_t)8 << 20)

int thread_start(void *(*run)(void *), void *argument, size_t stack, bool joined, pthread_t *ret_thread)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, joined ? PTHREAD_CREATE_JOINABLE : PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, stack);
	int error = pthread_create(ret_thread ? ret_thread : &thread, &attributes, run, argument);
	if (error == EINVAL) {
		pthread_attr_setstacksize(&attributes, STACK_ENOUGH);
		error = pthread_create(ret_thread ? ret_thread : &thread, &attributes, run, argument);
	}
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}
