/*
 * kernel_params.h: the layout of each kernel's parameters, as the places where an address can be, and the kernel's
 * name. Each function's layout is queried from the driver once and then cached.
 *
 * The driver may reuse a handle for another function once its module, library or context is gone. A launch of the new
 * function must not be read by the old layout, which would follow pointers that do not exist. So each entry point that
 * ends modules must call kernel_params_drop() before the real call and after it.
 *
 * Locking: none; no function waits, and any thread may call any of them at any time.
 */
#ifndef SPILLWAY_KERNEL_PARAMS_H
#define SPILLWAY_KERNEL_PARAMS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * A run of consecutive parameters of the same shape. `words` words of 8 bytes are read from each, one every `step`
 * bytes. Parameters that cannot hold an address are in no run.
 */
struct kernel_params_run {
	uint16_t first, count; /* index of the first parameter, and number of parameters */
	uint16_t words, step;
};

/* The most runs of a cached layout, so that a cache slot has 256 bytes. */
#define KERNEL_PARAMS_RUNS 29

struct kernel_params {
	unsigned n;
	struct kernel_params_run run[KERNEL_PARAMS_RUNS];
};

enum kernel_params_answer {
	KERNEL_PARAMS_KNOWN,
	KERNEL_PARAMS_LONG,    /* more than KERNEL_PARAMS_RUNS runs: the caller must use kernel_params_one() */
	KERNEL_PARAMS_UNKNOWN, /* the driver does not say; the reason has been logged */
};

/*
 * Finds the layout of a function, and fills *ret_layout if the result is KERNEL_PARAMS_KNOWN. As in cuLaunchKernel, the
 * function may be a CUkernel, cast to CUfunction.
 */
enum kernel_params_answer kernel_params_get(CUfunction function, struct kernel_params *ret_layout);

/*
 * Queries one parameter from the driver, as a run of one, with no words if it cannot hold an address. Returns false if
 * index is past the last parameter, or if the driver fails.
 */
bool kernel_params_one(CUfunction function, unsigned index, struct kernel_params_run *ret_run);

/*
 * Copies the cached name of a function, as it was when its layout was last queried. Calls no driver function, so it
 * also works after the function's context has ended. Longer names are truncated. Returns false if the name is not
 * known: the driver has no name functions before 12.3, or the slot has been reused.
 */
#define KERNEL_PARAMS_NAME 120
bool kernel_params_name(uint64_t function, char ret_name[KERNEL_PARAMS_NAME]);

/* Invalidates all layouts. Names stay until their slots are needed. */
void kernel_params_drop(void);
/* Returns a number that changes with each kernel_params_drop(). */
uint64_t kernel_params_generation(void);

#endif
