/*
 * oom_retry.h: the driver has no memory for somebody else than the heap: room is made, and the call is made again.
 *
 *	struct oom_retry room = {0};
 *
 *	do
 *		result = REAL(...);
 *	while (result == CUDA_ERROR_OUT_OF_MEMORY && oom_retry_make(&room, device, bytes));
 *	oom_retry_end(&room, result);
 *
 * What is there anyhow goes back first: frees that were put off, what the heap keeps warm. Then live memory of the heap
 * is spilled. That belongs to the request: each has its own spill, of the size it needs, and one request at a time has
 * the turn to make room on a device. The turn lasts until it has tried again, so that what left for it is not another's.
 * Those that come meanwhile wait for their turn, and try again with what is left before they spill. Devices do not wait
 * for each other. A request that is in vain ends: it has a spill or two, and waits for others for a bounded time.
 */
#ifndef SPILLWAY_OOM_RETRY_H
#define SPILLWAY_OOM_RETRY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* One request, on the stack of who makes it; all 0 to begin with. */
struct oom_retry {
	uint64_t until;  /* ns: it waits for others no longer; 0: it has not been refused yet */
	uint64_t turn;   /* ns: so long it is its turn; 0: it is not */
	int device;      /* that the turn is of */
	unsigned spills; /* that it had */
	bool made;       /* something became free */
};

/*
 * The driver has refused the request for lack of memory. True: try again. device: its ordinal, or -1 for the current
 * one. bytes: that the request asks for; 0: not known. Called with the scope of enter.h open, and without any lock.
 */
bool oom_retry_make(struct oom_retry *room, int device, uint64_t bytes);
/* The same for who has no scope open: the request is not one for memory, but takes some of the driver's. */
bool oom_retry_make_outside(struct oom_retry *room, int device);
/* The request has ended. */
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

/* Such a call, whatever it is, again while room is made for it. */
#define OOM_RETRY_CALL(result, device, call) OOM_RETRY_CALL_BY(oom_retry_make_outside(&room_, device), result, call)
/* The same with the scope of enter.h open. */
#define OOM_RETRY_CALL_INSIDE(result, device, call) OOM_RETRY_CALL_BY(oom_retry_make(&room_, device, 0), result, call)

#endif
