// SPDX-License-Identifier: Apache-2.0
/*
 * arguments.h: what arguments of calls, and parameters of graph nodes, mean: where parameters of kernels can hold
 * addresses, which bytes a copy touches, and whether a launch may overlap with the one before it.
 */
#ifndef SPILLWAY_ARGUMENTS_H
#define SPILLWAY_ARGUMENTS_H

#include "policy/policy.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- parameters of kernels ---- */

/*
 * The layout of each kernel's parameters, as the places where an address can be, and the kernel's
 * name. Each function's layout is queried from the driver once and then cached.
 *
 * The driver may reuse a handle for another function once its module, library or context is gone. A launch of the new
 * function must not be read by the old layout, which would follow pointers that do not exist. So each entry point that
 * ends modules must call kernel_params_drop() before the real call and after it.
 *
 * Locking: none; no function waits, and any thread may call any of them at any time.
 */

/*
 * A run of consecutive parameters of the same shape. `words` words of 8 bytes are read from each, one every `step`
 * bytes. Parameters that cannot hold an address are in no run.
 */
struct kernel_params_run {
	uint16_t first, count; /* index of the first parameter, and number of parameters */
	uint16_t words, step;
};

/* The most runs of a cached layout, so that a cache slot has 256 bytes. */
#define KERNEL_PARAMS_RUNS 28

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

/* The same without asking the driver. Returns false if the layout is not cached, or too long. */
bool kernel_params_cached(CUfunction function, struct kernel_params *ret_layout);

/*
 * Queries one parameter from the driver, as a run of one, with no words if it cannot hold an address. Returns false if
 * index is past the last parameter, or if the driver fails.
 */
bool kernel_params_one(CUfunction function, unsigned index, struct kernel_params_run *ret_run);

/*
 * Calls `look` for each 8-byte word of a kernel's parameters that can be an address; with NULL for one that is missing
 * (the driver reports that as an error). Returns false if the driver does not say what the kernel takes.
 */
static inline __attribute__((always_inline)) void kernel_params_look(struct kernel_params_run run, void *const *params,
								     void (*look)(void *argument, const char *at),
								     void *argument)
{
	for (unsigned i = run.first; i < run.first + (unsigned)run.count; i++) {
		const char *param = params ? params[i] : NULL;

		for (unsigned word = 0; word < run.words; word++)
			look(argument, param ? param + (size_t)word * run.step : NULL);
	}
}
static inline __attribute__((always_inline)) bool kernel_params_each(CUfunction function, void *const *params,
								     void (*look)(void *argument, const char *at),
								     void *argument)
{
	struct kernel_params layout;
	struct kernel_params_run run;
	enum kernel_params_answer answer = kernel_params_get(function, &layout);

	for (unsigned i = 0; answer == KERNEL_PARAMS_KNOWN && i < layout.n; i++)
		kernel_params_look(layout.run[i], params, look, argument);
	for (unsigned i = 0; answer == KERNEL_PARAMS_LONG && kernel_params_one(function, i, &run); i++)
		kernel_params_look(run, params, look, argument);
	return answer != KERNEL_PARAMS_UNKNOWN;
}

/*
 * Finds the parameters in one buffer, laid out as on the device, that a launch may pass instead (`extra`); NULL if
 * there are none, or more than the driver takes. Returns false if the list has an entry that is unknown to this code.
 */
bool kernel_params_buffer(void *const *extra, const char **ret_buffer, size_t *ret_bytes);

/*
 * Copies the cached name of a function, as it was when its layout was last queried. Calls no driver function, so it
 * also works after the function's context has ended. Longer names are truncated. Returns false if the name is not
 * known: the driver has no name functions before 12.3, or the slot has been reused.
 */
#define KERNEL_PARAMS_NAME 120
bool kernel_params_name(uint64_t function, char ret_name[KERNEL_PARAMS_NAME]);

/* Asks the driver for the whole name, which lives as long as the function; returns NULL if the driver does not say. */
const char *kernel_params_full_name(CUfunction function);

/* Invalidates all layouts. Names stay until their slots are needed. */
void kernel_params_drop(void);
/* Returns a number that changes with each kernel_params_drop(). */
uint64_t kernel_params_generation(void);

/* ---- extents of copies ---- */

/*
 * Which bytes a copy or set of up to three dimensions touches. Pure.
 */

/* Where one side of a copy starts; x and pitch are in bytes. pitch and height are 0 if they follow from the extent. */
struct copy_extent_place {
	size_t x, y, z, pitch, height;
};

struct copy_extent {
	size_t width, height, depth; /* bytes, rows, slices */
};

/*
 * Computes the range from the first byte touched to the last, including gaps. Sets *ret_bytes to 0, and leaves
 * *ret_first alone, if no byte is touched. Returns false if the range exceeds the address space; the driver will refuse
 * such a copy.
 */
bool copy_extent_range(CUdeviceptr base, const struct copy_extent_place *place, const struct copy_extent *extent,
		       CUdeviceptr *ret_first, size_t *ret_bytes);

/* ---- memory operations of streams ---- */

/*
 * Finds the bytes that an operation touches; none: *ret_bytes is 0. *ret_word: what it writes there, if that are 64
 * bits; else 0. Returns false if the operation is unknown to this code.
 */
bool memory_operation(const CUstreamBatchMemOpParams *operation, CUdeviceptr *ret_address, size_t *ret_bytes,
		      uint64_t *ret_word);

/* ---- overlap of launches ---- */

/*
 * Programmatic dependent launch (PDL), and when the library turns it off.
 *
 * A kernel launched with the attribute for programmatic stream serialization may start before its predecessor in the
 * stream has ended, and must itself wait for the predecessor before it reads what that writes. Some libraries read too
 * early (CCCL issue 5297, fixed in CCCL 3.0, still present in PyTorch 2.11). In device memory such a read loses the
 * race too rarely to be noticed; over a link it fails often, whether the memory is spilled or pinned by the program
 * itself.
 *
 * So once memory is reached over a link, the attribute, and no other, is cleared in a copy of the launch's
 * configuration. Kernels then run one after the other, as they did before CUDA 11.8. The policy key submit.pdl says
 * when.
 *
 * Two things are not changed. Programmatic events and launch-completion events stay, because work that waits for them
 * would wait forever. Graphs that exist already stay, because their edges are fixed when they are captured or built.
 */

/*
 * True if launches lose the attribute; never set back. Read on the path of cuLaunchKernelEx; set by the two functions
 * below. Hidden, so that its address is not loaded from the GOT.
 */
extern _Atomic bool pdl_cleared __attribute__((visibility("hidden")));

static inline bool pdl_is_cleared(void)
{
	return atomic_load_explicit(&pdl_cleared, memory_order_relaxed);
}

/* Applies the policy's setting. The caller must call it once, when the process starts to be served. */
void pdl_start(enum policy_pdl setting);

/* Called when heap memory is placed on the host or on another device, so that kernels reach it over a link. */
void pdl_spilled(void);

/* The driver's cuLaunchKernelEx or its _ptsz variant. */
typedef CUresult(CUDAAPI *pdl_launch_function)(const CUlaunchConfig *config, CUfunction function, void **params,
					       void **extra);

/*
 * Launches with `launch`, without programmatic stream serialization, and returns its result. Does not change `config`;
 * passes it on as it is if it does not ask for programmatic stream serialization.
 */
CUresult pdl_launch(pdl_launch_function launch, const CUlaunchConfig *config, CUfunction function, void **params,
		    void **extra);

#endif
