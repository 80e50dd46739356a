/*
 * kernel_params.h: where a kernel's parameters can hold an address, and what the kernel is called. Asked of the driver once a
 * function, then remembered.
 *
 * A handle may be given out again for another function once its module, library or context is gone. The launch of that
 * one must not be read by the old layout: what lies behind a pointer that is not there would be read. So whoever hooks
 * a function that ends modules calls kernel_params_drop(), before the real call and after it.
 *
 * No lock, nobody waits; any thread may call any of these at any time.
 */
#ifndef SPILLWAY_KERNEL_PARAMS_H
#define SPILLWAY_KERNEL_PARAMS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Parameters of one shape, in a row: of each of them `words` words of 8 bytes are looked at, one every `step` bytes.
 * Parameters that cannot hold an address are in no run.
 */
struct kernel_params_run {
	uint16_t first, count; /* parameters */
	uint16_t words, step;
};

/* What is remembered of one function fits 256 bytes with this many. */
#define KERNEL_PARAMS_RUNS 29

struct kernel_params {
	unsigned n;
	struct kernel_params_run run[KERNEL_PARAMS_RUNS];
};

enum kernel_params_answer {
	KERNEL_PARAMS_KNOWN,
	KERNEL_PARAMS_LONG,    /* more runs than we remember: go through kernel_params_one() */
	KERNEL_PARAMS_UNKNOWN, /* the driver does not say; the log has been told why */
};

/* A CUkernel may be given as well, as cuLaunchKernel takes it: cast to CUfunction. */
enum kernel_params_answer kernel_params_get(CUfunction function, struct kernel_params *ret_layout);

/* One parameter, asked of the driver: a run of one, without words if it cannot hold an address. False: past the last. */
bool kernel_params_one(CUfunction function, unsigned index, struct kernel_params_run *ret_run);

/*
 * What the function was called when its layout was asked for last: no driver call, so also when its context has died.
 * Longer names are cut. False: not known (the driver has no names before 12.3, or it has been forgotten).
 */
#define KERNEL_PARAMS_NAME 120
bool kernel_params_name(uint64_t function, char ret_name[KERNEL_PARAMS_NAME]);

/* Forget every layout. Names stay until their place is needed. */
void kernel_params_drop(void);
/* A number that changes each time. */
uint64_t kernel_params_generation(void);

#endif
