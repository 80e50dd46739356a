/*
 * suspend_help.h: what the tests of suspending share: the `spillway` tool as from another terminal, and a job for it to
 * suspend. All of it is called in child processes (child.h); a CHECK that fails ends them.
 */
#ifndef PRELOAD_SUSPEND_HELP_H
#define PRELOAD_SUSPEND_HELP_H

#include "test/preload/child.h"

#define BUDGETS        "device.budget=32MiB,host.budget=128MiB,report.summary=no"
#define SETTINGS(more) ((const char *const[]){"SIM_MEMORY=128MiB", "SPILLWAY_SET=" BUDGETS more, NULL})

#define N_BLOCKS 12
#define BLOCK    (4 * MIB) /* 48 MiB in all: more than the budget */
#define N_WORDS  (BLOCK / 4)

/* Both outputs of `spillway COMMAND [this process]`; its exit status. */
int tool_run(const char *command, char ret_text[2048]);
/* Does it end with that status, and are these words in what it says? If not, that is printed. */
bool tool_says(const char *command, int status, const char *words);
/* Is that the state in which `spillway list` shows this process? Others may be there too. */
bool tool_lists(const char *state);

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

/* run() with the sockets of its children in a folder of its own, for they end by _exit() and leave them. Its result. */
int suspend_run(int (*run)(void));

#endif
