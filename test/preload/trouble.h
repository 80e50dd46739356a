// SPDX-License-Identifier: Apache-2.0
/*
 * trouble.h: what befalls a made-up program (spill_random, vmm_random, torch_random, peer_random) beside its work: the
 * kinds that --trouble names, in an order and at operations that follow from the seed.
 *
 *   clock    the time of day is set, up to half a minute forward or back, as an administrator or NTP does. Only this
 *            process sees it: the program's own clock_gettime() and waits by the time of day come before the C library's
 *            (trouble_clock.c). CLOCK_MONOTONIC goes on.
 *   stop     the whole process is stopped and goes on again, by a process beside it (SIGSTOP, SIGCONT)
 *   stall    one thread stands still wherever it is, in a signal handler, as where a runtime stops its threads
 *   refuse   from some operation on the kernel refuses system calls that libraries like to use (seccomp)
 *   files    descriptors are closed: the standard error, and those that lead to Spillway's files or to sockets, as by a
 *            program that becomes a daemon; files of the program's own come to lie there, and hold what it wrote alone
 *   folder   the run folder is removed, as logging out does; its parent may come back
 *   mode     spill.mode is changed from outside, to exact or fast, by a thread of its own (trouble_mode.c)
 *   stack    threads have 24 KiB of stack, or what the system asks for at least; not under a sanitizer
 *
 * Every program with them must do natively what it does without.
 */
#ifndef PRELOAD_TROUBLE_H
#define PRELOAD_TROUBLE_H

#include "test/libc.h"

/* Where the programs say what is wrong: the standard error that they were started with. */
extern FILE *trouble_errors;

/* Reads a list like "clock,stop"; returns false if a word of it is unknown. */
bool trouble_read(const char *list);
/* The caller must call it first of all: before there are threads, and before the driver is used. */
void trouble_begin(uint64_t seed);
/* By any thread, about once an operation. */
void trouble_step(void);
/* As pthread_create() without attributes; the thread may be stalled, and its stack may be small. */
int trouble_thread(pthread_t *ret_thread, void *(*run)(void *), void *argument);
/* All threads have ended. Returns what the trouble has shown to be wrong, or NULL. */
const char *trouble_end(void);

/* trouble_clock.c: sets the emulated time of day, by so many nanoseconds. */
void trouble_set_clock(int64_t by);

#endif
