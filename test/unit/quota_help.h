// SPDX-License-Identifier: Apache-2.0
/*
 * quota_help.h: what the tests of quota.h share: a folder of the test's own with the file in it, and processes that
 * take and give as they are told. They are real ones, with nothing faked.
 */
#ifndef UNIT_QUOTA_HELP_H
#define UNIT_QUOTA_HELP_H

#include "shim/accounting/quota.h"
#include "test/check.h"
#include "test/rank.h"

#define ROOM (64 * MIB)

/* The folder is XDG_RUNTIME_DIR; the file is below it, where the first to take makes it. */
extern char folder[64], file[128];
int make_folder(void **state);
int drop_folder(void **state);

/* The terms of this process; no time decides, but where one is to run out. */
void arrange(uint64_t total, bool given);

/*
 * A process, with ROOM or other terms, for these orders. 't' N: take N MiB, 'g' N: give; 's' N: of those, so much is
 * spare, 'u' N: no more; 'w' N: wait once; 'p' N: wait no longer than N ms for
 * the lock of the file; 'S': its next write to the file stops it, before (0) or after (1); 'C': the descriptor is
 * closed, as by a program that closes all; 'k': tick; 'l': leave and stay; 'e': leave and end; 'x': end. Questions:
 * 'o': MiB owed; 'r': how many dead it has found; 'f': MiB left; 'h' N: with how many MiB for all it could have N more;
 * 'n': how many processes there are.
 */
struct rank share_start(void);
struct rank share_start_with(uint64_t total, bool given);
/* It has taken so many MiB. */
struct rank share_taking(unsigned mib);
/* It gets so many MiB, which is all that there is for it. */
void share_takes_the_rest(const struct rank *rank, unsigned mib);
/* All of a file of the user's, or in it, as one writes that is not the library. */
void share_overwrite(const char *path, size_t at, const void *bytes, size_t n);

/* A process stops at its next write to the file. */
extern enum stop { RUNS_ON, STOPS_BEFORE, STOPS_AFTER } stops_at_write;

/* Printed; QUOTA_SEED gives one. */
uint32_t seed_of_test(void);
uint32_t next_random(uint32_t *seed);

#endif
