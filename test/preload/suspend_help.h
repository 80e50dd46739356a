// SPDX-License-Identifier: Apache-2.0
/*
 * suspend_help.h: what the tests of suspending, and of `spillway set`, share: what the tool (tool.h) does to this process
 * and shows of it, and a job for it to suspend. All of it is called in child processes (child.h), whose files are in a
 * folder for the whole program (folder.h); a CHECK that fails ends them.
 */
#ifndef PRELOAD_SUSPEND_HELP_H
#define PRELOAD_SUSPEND_HELP_H

#include "test/preload/child.h"
#include "test/preload/folder.h"
#include "test/preload/tool.h"

#define BUDGETS        "device.budget=32MiB,host.budget=128MiB,report.summary=no"
#define SETTINGS(more) ((const char *const[]){"SIM_MEMORY=128MiB", "SPILLWAY_SET=" BUDGETS more, NULL})

#define N_BLOCKS 12
#define BLOCK    (4 * MIB) /* 48 MiB in all: more than the budget */
#define N_WORDS  (BLOCK / 4)

/* Does `spillway COMMAND [this process]` end with that status, and say these words? If not, that is printed. */
bool tool_says(const char *command, int status, const char *words);
/* The same of `spillway set [this process] SETTING`. */
bool set_says(const char *setting, int status, const char *words);
/* Is that the state in which `spillway list` shows this process? Others may be there too. */
bool tool_lists(const char *state);
/* Is that the mode in which `spillway top` shows this process? And a number that it shows. */
bool shows_mode(const char *mode);
unsigned long shown_number(const char *name);

extern CUdeviceptr job_blocks[N_BLOCKS];
/* The blocks anew, in the current context; block i holds 0x1000 + i. */
void job_allocate(void);
/* The same, on device 0, which is current after that. */
void job_start(void);
/* Block i holds base + i. */
void job_check(unsigned base);
/* Fills block i with base + i. */
void job_fill(unsigned base);
/* A thread that calls step(base) again and again, each time with the next base; each must leave base + i in block i. */
void steps_begin(void (*step)(unsigned base));
void await_steps(unsigned more);
/* Ends it after another step, and checks the blocks. */
void steps_end(void);

/* A thread that goes round all blocks once, to fill block i with base + i; *done when every call has returned. */
struct worker {
	pthread_t thread;
	CUcontext context;
	unsigned base;
	_Atomic bool begun, done;
};
void worker_begin(struct worker *worker, unsigned base);
void worker_end(struct worker *worker);

#endif
