// SPDX-License-Identifier: Apache-2.0
/*
 * rules_kernel.h: kernels for the programs of rules.h, on the simulated GPU and on a real one: one that runs until the
 * host lets it go, or for some seconds at most (4 s on a real one), and what a call of the driver does meanwhile.
 */
#ifndef SPILLWAY_TEST_RULES_KERNEL_H
#define SPILLWAY_TEST_RULES_KERNEL_H

#include "rules.h"

#define RULES_WORDS 1024u /* of 32 bits, that the kernel which was held writes when it goes on */

/* Pinned memory that the host and a kernel share. */
struct rules_hold {
	uint32_t go, beats, ended;
};

/* Of one context. */
struct rules_kernels {
	CUfunction hold, fill, differ;
};

/* Loads them in the current context, and runs each once: ends the program as skipped if the driver takes no PTX. */
void rules_kernels_load(struct rules_kernels *ret_kernels);
/* In the current context, with which it ends. */
struct rules_hold *rules_hold_new(void);

/* Launches the kernel that is held; it reads and then writes `value` at `at`. Returns when it runs. */
void rules_hold_start(const struct rules_kernels *kernels, struct rules_hold *hold, CUdeviceptr at, uint32_t value,
		      CUstream stream);
bool rules_is_running(const struct rules_hold *hold);
bool rules_has_ended(const struct rules_hold *hold); /* it has written everything */
void rules_let_go(struct rules_hold *hold);

/*
 * Makes the call in a thread of its own, in this context (NULL: none), and says what became of the kernel: RULES_WAITS
 * if the call does not return within at least 0.3 s (then the kernel is let go), RULES_RETURNS if the kernel goes on,
 * RULES_ENDS if it stands, RULES_REFUSED if the call fails.
 */
#define RULES_WAITS   "waits"
#define RULES_RETURNS "does not wait"
#define RULES_ENDS    "ends the kernel"
#define RULES_REFUSED "refused"
const char *rules_how(CUcontext context, CUresult (*call)(void *argument), void *argument, struct rules_hold *hold);

/* Many threads write this value to n words. */
void rules_fill(const struct rules_kernels *kernels, CUdeviceptr at, uint32_t value, size_t n, CUstream stream);
/* Adds the number of words that are not this value to the one at `count`. */
void rules_differ(const struct rules_kernels *kernels, CUdeviceptr at, uint32_t value, size_t n, uint32_t *count,
		  CUstream stream);
/* How many of RULES_WORDS are so, by a copy? */
unsigned rules_count(CUdeviceptr at, uint32_t value);

#endif
