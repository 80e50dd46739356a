// SPDX-License-Identifier: Apache-2.0
/*
 * made_up.h: the frame of programs that are made up from a seed (spill_random, peer_random, vmm_random, torch_random):
 * their options, their chance, their threads, and how they end.
 *
 *   PROGRAM [--seed N] [--operations N | --submissions N] [--threads N] [--bytes MIB] [--deadline SECONDS] [--trouble KINDS] [...]
 *
 * KINDS are those of trouble.h, which befall the process beside its work. TEST_SEED in the environment: of all runs.
 * Exit status: 0 all bytes are right; 1 the first wrong one, or an error, is told on stderr, with the seed; 2 bad
 * arguments; 3 a context died of an illegal address; 142 (SIGALRM) not done by the deadline.
 */
#ifndef PRELOAD_MADE_UP_H
#define PRELOAD_MADE_UP_H

#include "test/libc.h"
#include "test/forms.h"

/* Each program defines it, with what holds where no option says otherwise. */
extern struct made_up {
	const char *name;
	unsigned long operations;
	unsigned threads;
	size_t bytes;
	unsigned deadline;
	uint64_t seed;
	bool leave; /* the process ends by exit() while its threads are at work */
} made_up;

/* An option of the program's own. One of the three is there, and says whether it has an argument. */
struct made_up_option {
	const char *name;
	bool *flag;
	unsigned *number;
	bool (*read)(char *argument); /* returns false if it is wrong */
};

enum { MADE_UP_THREADS_MAX = 8 };

/*
 * Reads the options; those of the program's own end with one without a name. least: bytes of each thread. Then trouble
 * and deadline begin. The caller must call it first of all: before there are threads, and before the driver is used.
 */
void made_up_begin(int argc, char **argv, const struct made_up_option *own, unsigned threads_most, size_t least);
/* A thread for each worker, and their end. */
void made_up_start(void *(*run)(void *worker), void *workers, size_t worker_bytes);
void made_up_join(void);
/* Ends the process if trouble, or the model, has seen something wrong. All threads have ended. */
void made_up_check(void);

/* Says what is wrong, with the seed, and ends the process. */
void made_up_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void made_up_must(CUresult result, const char *call, const char *file, int line);
/* A kernel of a module (sim.h), loaded into the current context. */
CUfunction made_up_kernel(const void *module, const char *name);
#define GO(call) made_up_must((call), #call, __FILE__, __LINE__)

/* Where the chance of a thread begins, and its next number. */
static inline uint64_t made_up_chance(unsigned thread)
{
	return made_up.seed * 0x9e3779b97f4a7c15u + thread * 0x632be59bd9b4e019u;
}
static inline uint32_t made_up_next(uint64_t *chance)
{
	*chance = *chance * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*chance >> 33);
}

#endif
