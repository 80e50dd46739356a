// SPDX-License-Identifier: Apache-2.0
/*
 * make_room.h: what is done when memory is wanted and there is none: one table of givers, in order, for requests to the
 * heap and for calls of the driver.
 *
 * A caller that has tried in vain says what was lacking, and calls make_room(). It asks the givers in the order of the
 * table, those alone that can give what lacks; once one has given, the caller tries again. A giver that had nothing is
 * asked again only after one behind it has given that may take long (renews). At the end of the table, the next place
 * of the policy is tried (serve.c).
 *
 *	struct room room = {0};
 *
 *	do
 *		result = REAL(...);
 *	while (result == CUDA_ERROR_OUT_OF_MEMORY && make_room_for_driver(&room, device, bytes));
 *	make_room_end(&room, result);
 *
 * A call of the driver needs memory outside the heap. What others freed, and what the heap keeps warm, goes back to the
 * driver first; then live memory of the heap is evicted. The eviction belongs to the request: each has its own, of the
 * size that it needs, and one request at a time has the turn to make memory free on a device. The turn lasts until the
 * request has retried, so that another does not take what it freed. Requests that come meanwhile wait for their turn,
 * and retry with what is left before they evict. Devices do not wait for each other. A request that cannot succeed
 * ends: it has an eviction or two, and waits for others for a bounded time.
 */
#ifndef SPILLWAY_MAKE_ROOM_H
#define SPILLWAY_MAKE_ROOM_H

#include "shim/heap/heap.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* One request, on the stack of its caller; all 0 at first. */
struct room {
	struct device *device;
	uint64_t bytes; /* 0: not known */
	unsigned lack;  /* bits of enum lack: what was lacking when it was tried */
	unsigned spent; /* bits: givers that had nothing */
	bool made;      /* something became free */
	/* a request to the heap */
	enum heap_from from, place; /* where it may be, and where it is tried now */
	enum chunk_kind kind;
	bool soon;            /* when it was tried, memory was about to become free */
	bool away, late;      /* it was tried in another's turn, or while suspended; that lasted too long */
	unsigned looks, cuts; /* waits for memory that the mover holds, and for the turn */
	unsigned asked;       /* waits for other processes */
	uint64_t refusals;    /* of the user's total, as they were before it was tried */
	/* a call of the driver */
	uint64_t until;  /* ns: until then it waits for others; 0: it has not been refused yet */
	uint64_t turn;   /* ns: end of its turn; 0: it has none */
	unsigned spills; /* evictions that it had */
};

/*
 * The driver has refused the request for lack of memory. Returns true if the caller should retry. device: its
 * ordinal, or -1 for the current one. bytes: that the request asks for; 0: not known. The scope of process.h must be
 * open. Locking: the caller must hold no lock.
 */
bool make_room_for_driver(struct room *room, int device, uint64_t bytes);
/* The same for callers without an open scope: the request is not for memory, but takes some of the driver's. */
bool make_room_outside(struct room *room, int device);
/* Ends the request and its turn. */
void make_room_end(struct room *room, CUresult result);

#define OOM_RETRY_CALL_BY(make, result, call)                                                                          \
	do {                                                                                                           \
		struct room room_ = {0};                                                                               \
                                                                                                                       \
		do                                                                                                     \
			(result) = (call);                                                                             \
		while (__builtin_expect((result) == CUDA_ERROR_OUT_OF_MEMORY, 0) && (make));                           \
		make_room_end(&room_, result);                                                                         \
	} while (0)

/* Makes the call, and retries it while memory can be made free for it. */
#define OOM_RETRY_CALL(result, device, call) OOM_RETRY_CALL_BY(make_room_outside(&room_, device), result, call)
/* As OOM_RETRY_CALL, with the scope of process.h open. bytes: as for make_room_for_driver(). */
#define OOM_RETRY_CALL_INSIDE(result, device, bytes, call)                                                             \
	OOM_RETRY_CALL_BY(make_room_for_driver(&room_, device, bytes), result, call)

#endif
