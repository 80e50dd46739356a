// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_account_help.h: what the tests of gpu_account.h share: processes that use the account of a GPU as they are told.
 */
#ifndef UNIT_GPU_ACCOUNT_HELP_H
#define UNIT_GPU_ACCOUNT_HELP_H

#include "shim/accounting/gpu_account.h"
#include "test/unit/quota_help.h"

#define TOTAL 64 /* MiB */

extern unsigned char account_uuid[16];
extern struct gpu_account_view view; /* as a process read it last */
extern char account_path[160];
extern int child_waits[2]; /* a pipe: each child ends when it has read a byte */

/* Before and after each test. */
int make_account(void **state);
int drop_account(void **state);

/*
 * A process; 'j' N: join with a total of N MiB, 'b' N: begin with a limit of N MiB, 'r' N: raise to N MiB, 'd' N: down
 * to N MiB, 'l': look, 'e': leave and end. Answers: MiB that it may have; of 'l' how many members there are; 's': the
 * sum of all, 't': the total, 'h' N: holds N MiB from its next look on; 'f' N: fork a child that stays, and is told of
 * the fork (0), or not. 'w': whose turn it was at the last look (0: none, 1: its own, 2: of another); 'n': its number;
 * 'p' N: gives it to itself (1), another (2) or none (0), if it is as it was then. 'J' N: is of the job N from its next
 * look on; 'u' N: joins the account of GPU N; 'A': all accounts: 100 times the seats, 10 times the number of its own
 * account, and 1 if it has the turn there. 'S': the next write stops it. 'P' N: its slot is empty (0), or not, from its
 * next look on. 'I': its pid is that of its parent from its next look on, as in a container; 'X': it is in another PID
 * namespace. 'C': the descriptor is closed, as by a program that closes all. 'T' N: it has the clock N, and takes part
 * in turns, from its next look on; 'K': how many others take part, and 10 if its own clock is not that of the turns.
 * 'L' N: it may write no files of more than N bytes.
 */
struct rank account_start(void);
/* It is in the account of TOTAL. */
struct rank account_joined(void);
/* Asks until the answer is that one, for ten seconds at most. Returns the last answer. */
uint64_t ask_until(const struct rank *rank, char order, unsigned n, uint64_t wanted);

#endif
