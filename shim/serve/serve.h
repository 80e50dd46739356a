/*
 * serve.h: the flow of one request: decide, act, commit, count; and the other way round for a free. Called by the
 * entries with the scope of enter.h open, that is with the policy read.
 */
#ifndef SPILLWAY_SERVE_H
#define SPILLWAY_SERVE_H

#include "shim/serve/backend.h"

#include <cuda.h>

/* cuMemAlloc and cuMemAllocPitch. *ret_address and *ret_pitch (pitched only) are written on success alone. */
CUresult serve_alloc(const struct backend_request *request, CUdeviceptr *ret_address, size_t *ret_pitch);
/* cuMemFree, of anything: ours, what the driver gave, or a stranger. */
CUresult serve_free(CUdeviceptr address);

/*
 * For an address that is no live block's first: may the driver not be asked to free it? So it is in a heap, and for
 * managed memory whose free was put off: the driver still has that, and would free it a second time later.
 */
bool serve_is_dead(CUdeviceptr address);

/* At exit nothing of ours is called any more, and heap and system memory go back with the process. */
bool serve_is_late_free(CUdeviceptr address);

/* Is this one of our heap blocks? Its row, with key = its first byte. No driver call. */
bool serve_find(CUdeviceptr address, struct ledger_row *ret_row);

/* The same for what the program asked of cuMemAlloc and got as managed or system memory. */
bool serve_find_outside(CUdeviceptr address, struct ledger_row *ret_row);
/* In a heap, alive or not, or in such a block. */
bool serve_is_ours(CUdeviceptr address);
/* Take the block of ours that begins there out of the ledger; NULL: none does. */
struct ledger_row *serve_take_ours(CUdeviceptr address);

/*
 * A context ends, and what lives in it with it. Before the real call: what waits for its events is taken aside, and a
 * line is drawn between what is alive now and what another thread may allocate under the same handle once it is free
 * again. After it: what was alive is freed, or, if the context did not end after all, stays.
 */
struct serve_ending {
	uint64_t line; /* rows from here on are not meant */
	struct ledger_row *pending;
	bool busy; /* it must not end yet: the caller must not make the real call */
};
struct serve_ending serve_context_ending(CUcontext context);
void serve_context_ended(CUcontext context, struct serve_ending ending, bool ended);

/* May allocations fail because the policy is bad and SPILLWAY_STRICT=1? The result to return, or CUDA_SUCCESS. */
CUresult serve_refusal(void);

#endif
