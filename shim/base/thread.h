/*
 * thread.h: starts threads of the library. They block all signals, which belong to the program.
 */
#ifndef SPILLWAY_THREAD_H
#define SPILLWAY_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Starts a thread with a stack of `stack` bytes, of which only touched pages use memory, or of 8 MiB if the
 * thread-local memory of all libraries does not fit. joined: the caller will join it. Returns 0 or an errno.
 * ret_thread may be NULL.
 */
int thread_start(void *(*run)(void *), void *argument, size_t stack, bool joined, pthread_t *ret_thread);

#endif
