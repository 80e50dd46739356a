/*
 * layout.h: where a kernel's parameters can hold an address, and what the kernel is called. Asked of the driver once a
 * function, then remembered.
 *
 * A handle may be given out again for another function once its module, library or context is gone. The launch of that
 * one must not be read by the old layout: what lies behind a pointer that is not there would be read. So whoever hooks
 * a function that ends modules calls layout_drop(), before the real call and after it.
 *
 * No lock, nobody waits; any thread may call any of these at any time.
 */
#ifndef SPILLWAY_SPILL_LAYOUT_H
#define SPILLWAY_SPILL_LAYOUT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Parameters of one shape, in a row: of each of them `words` words of 8 bytes are looked at, one every `step` bytes.
 * Parameters that cannot hold an address are in no run.
 */
struct layout_run {
	uint16_t first, count; /* parameters */
	uint16_t words, step;
};

/* What is remembered of one function fits 256 bytes with this many. */
#define LAYOUT_RUNS 29

struct layout {
	unsigned n;
	struct layout_run run[LAYOUT_RUNS];
};

enum layout_answer {
	LAYOUT_KNOWN,
	LAYOUT_LONG,    /* more runs than we remember: go through layout_param() */
	LAYOUT_UNKNOWN, /* the driver does not say; the log has been told why */
};

/* A CUkernel may be given as well, as cuLaunchKernel takes it: cast to CUfunction. */
enum layout_answer layout_get(CUfunction function, struct layout *ret_layout);

/* One parameter, asked of the driver: a run of one, without words if it cannot hold an address. False: past the last. */
bool layout_param(CUfunction function, unsigned index, struct layout_run *ret_run);

/*
 * What the function was called when its layout was asked for last: no driver call, so also when its context has died.
 * Longer names are cut. False: not known (the driver has no names before 12.3, or it has been forgotten).
 */
#define LAYOUT_NAME 120
bool layout_name(uint64_t function, char ret_name[LAYOUT_NAME]);

/* Forget every layout. Names stay until their place is needed. */
void layout_drop(void);
/* A number that changes each time. */
uint64_t layout_generation(void);

#endif
