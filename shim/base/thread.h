/*
 * thread.h: threads of the library's own. They take no signals: these are the program's.
 */
#ifndef SPILLWAY_THREAD_H
#define SPILLWAY_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Start one with a stack of so many bytes, of which only what is touched is memory; a larger one where it would not hold
 * the thread-local memory of all libraries. joined: somebody will wait for its end. 0 or an errno; ret_thread may be NULL.
 */
int thread_start(void *(*run)(void *), void *argument, size_t stack, bool joined, pthread_t *ret_thread);

#endif
