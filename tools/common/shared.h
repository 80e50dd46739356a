// SPDX-License-Identifier: Apache-2.0
/*
 * shared.h: the accounts of the GPUs that processes of this user share (shim/accounting/gpu_account.h), in the folders
 * that the tool's own environment names. Those in other containers are not looked for. Nothing is changed there.
 */
#ifndef TOOLS_SHARED_H
#define TOOLS_SHARED_H

#include "shim/accounting/gpu_account.h"

#include <stdio.h>

struct shared_gpu {
	char uuid[33]; /* digits */
	uint64_t total;
	bool turns;      /* they take turns */
	unsigned holder; /* number of the member whose turn it is; n: none */
	double since;    /* seconds since the turn began */
	unsigned n;
	struct gpu_account_member member[GPU_ACCOUNT_MOST];
	bool ended[GPU_ACCOUNT_MOST]; /* of each member: its process has ended, and a child keeps its memory */
	bool other_clock
	    [GPU_ACCOUNT_MOST];         /* of each member: it takes no turns, because its clock is not that of most */
	unsigned job[GPU_ACCOUNT_MOST]; /* of each member: number of its job, from 1 on; 0: its process is alone */
};

/* Calls visit() for each GPU that is shared by running processes. */
void shared_each(void (*visit)(const struct shared_gpu *gpu, void *argument), void *argument);

/* Returns for how many seconds the member has waited for its turn; 0 if it does not wait. */
double shared_waits(const struct shared_gpu *gpu, unsigned member);
/* Returns the part of the time of all turns that the member has had, or, if due, that its weight stands for; 0 to 1. */
double shared_part(const struct shared_gpu *gpu, unsigned member, bool due);

/*
 * Prints a table for each GPU that is shared, with an empty line before each. shared_text() returns the same as a text,
 * which the caller must free; NULL if no GPU is shared, or memory runs out.
 */
void shared_print(FILE *out);
char *shared_text(void);

#endif
