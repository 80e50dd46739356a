/*
 * oom_retry.h: when the driver is out of memory for a call outside the heap, makes memory free and retries the call.
 *
 *	struct oom_retry room = {0};
 *
 *	do
 *		result = REAL(...);
 *	while (result == CUDA_ERROR_OUT_OF_MEMORY && oom_retry_make(&room, device, bytes));
 *	oom_retry_end(&room, result);
 *
 * Unused memory goes back first: deferred frees, and what the heap keeps warm. Then live memory of the heap is
 * spilled. The spill belongs to the request: each request has its own, of the size it needs, and one request at a
 * time has the turn to make memory free on a device. The turn lasts until the request has retried, so that another
 * does not take what it freed. Requests that come meanwhile wait for their turn, and retry with what is left before
 * they spill. Devices do not wait for each other. A request that cannot succeed ends: it has a spill or two, and
 * waits for others for a bounded time.
 */
#ifndef SPILLWAY_OOM_RETRY_H
#define SPILLWAY_OOM_RETRY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* One request, on the stack of its caller; all 0 at first. */
struct oom_retry {
	uint64_t until;  /* ns: until then it waits for others; 0: it has not been refused yet */
	uint64_t turn;   /* ns: end of its turn; 0: it has none */
	int device;      /* that the turn is for */
	unsigned spills; /* spills that it had */
	bool made;       /* something became free */
};

/*
 * The driver has refused the request for lack of memory. Returns true if the caller should retry. device: its
 * ordinal, or -1 for the current one. bytes: that the request asks for; 0: not known. The scope of process.h must be
 * open. Locking: the caller must hold no lock.
 */
bool oom_retry_make(struct oom_retry *room, int device, uint64_t bytes);
/*
 * As oom_retry_make(), for callers without an open scope: the request is not for memory, but takes some of the
 * driver's.
 */
bool oom_retry_make_outside(struct oom_retry *room, int device);
/* Ends the request and its turn. */
void oom_retry_end(struct oom_retry *room, CUresult result);

#define OOM_RETRY_CALL_BY(make, result, call)                                                                          \
	do {                                                                                                           \
		struct oom_retry room_ = {0};                                                                          \
                                                                                                                       \
		do                                                                                                     \
			(result) = (call);                                                                             \
		while (__builtin_expect((result) == CUDA_ERROR_OUT_OF_MEMORY, 0) && (make));                           \
		oom_retry_end(&room_, result);                                                                         \
	} while (0)

/* Makes the call, and retries it while memory can be made free for it. */
#define OOM_RETRY_CALL(result, device, call) OOM_RETRY_CALL_BY(oom_retry_make_outside(&room_, device), result, call)
/* As OOM_RETRY_CALL, with the scope of process.h open. bytes: as for oom_retry_make(). */
#define OOM_RETRY_CALL_INSIDE(result, device, bytes, call)                                                             \
	OOM_RETRY_CALL_BY(oom_retry_make(&room_, device, bytes), result, call)

#endif
