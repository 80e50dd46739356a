// SPDX-License-Identifier: Apache-2.0
/*
 * turns_gpus_check.h: checks what the accounts of two GPUs say about ranks that take turns there, a rank on one of them
 * or on both.
 *
 * Who has just come, or was just resumed, runs beside others until it has looked and has stopped, and so do all when
 * turns begin. So what is wrong is found by comparing what is said now with what was said before: a process does not go
 * on without the turn once it has given it on, or has been away.
 */
#ifndef PRELOAD_TURNS_GPUS_CHECK_H
#define PRELOAD_TURNS_GPUS_CHECK_H

#include "test/preload/turns_help.h"

enum { TURNS_GPUS = 2 };

/* The accounts, as turns_gpus_read() has read them last; zeros where there is none. */
extern struct account_page turns_gpus_pages[TURNS_GPUS];
void turns_gpus_read(void);

/* Reads them, and fails if they say what must not be. The ranks may be others than before. */
void turns_gpus_check(const struct rank *ranks, unsigned n);
/* Hears the answer of one of them, and checks every few ms until it comes. */
uint64_t turns_gpus_hear(const struct rank *rank, const struct rank *ranks, unsigned n);
/* It was resumed: what was seen of it does not count, nor what it has published before that. */
void turns_gpus_resumed(const struct rank *rank);

#endif
