/*
 * link.h: the link: the streams that pieces are copied on, and the copies queued on them. Only the mover's thread may
 * call these functions.
 */
#ifndef SPILLWAY_LINK_H
#define SPILLWAY_LINK_H

#include "shim/heap/migration.h"
#include "shim/plan/scheduler.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;

/* A copy of a piece that is in flight. */
struct move {
	struct migration transit;
	CUevent event;                                       /* belongs to the slot; is reused by later moves */
	uint64_t begun;                                      /* ns: time when the copy was queued */
	uint64_t number;                                     /* number in the trace; 0: not traced */
	uint64_t copied;                                     /* bytes that are copied: what is alive */
	enum { MAPPED_NONE, MAPPED_OLD, MAPPED_NEW } mapped; /* which memory is mapped at the program's address */
	bool is_raised;                                      /* piece_raise() was called for the piece */
	bool is_empty;                                       /* what it comes from holds nothing (alive_skip) */
	bool is_back; /* it was taken back before its copy ended (migrate_take_back) */
	/* the new memory is filled, but copies into the old one are still in flight (pte_contention.c) */
	bool is_measured;
};

/* Moves in one direction, in the order in which they were begun. */
struct queue {
	struct move at[MOVES];
	unsigned head, n;
	uint64_t bytes;
	uint64_t ended;   /* ns: when the last one was seen to have ended */
	uint64_t unit_ns; /* recent copy time of one unit, in ns; 0: no copy has ended yet */
};

/*
 * The streams of one engine, and the word that copies wait for between their parts. Only the mover's thread may touch
 * it, except `context`, which a thread that ends a context reads.
 */
struct link {
	_Atomic(CUcontext) context; /* context of the streams and events; NULL: none yet */
	CUstream stream_out, stream_in;
	_Atomic uint32_t *go; /* 1: copies proceed; host memory, allocated in the context; NULL: copies never pause */
	CUdeviceptr go_address;
	bool cannot_wait; /* the driver does not support waits for values */
	bool in_gap;      /* the device is quiesced: copies do not pause for the mover (quiesce.c) */
};

/*
 * Creates the streams and events in a context of the device, unless they exist. Returns false if that is not possible
 * now.
 */
bool link_open(struct engine *engine);
/* Destroys the streams and events and leaves their context. No copy may be in flight. */
void link_close(struct engine *engine);
/*
 * Queues the copy of a piece and records its event behind it; copies in one direction run in the order of the calls.
 * gap: the device is quiesced. If it returns an error, no part of the copy is in flight any more.
 */
CUresult link_copy(struct engine *engine, struct move *move, bool gap);
/*
 * Returns how many bytes of the piece can be copied at once from byte `at` on, at most `most`, and their addresses in
 * the old memory and in the new: compound chunks consist of parts (shim/heap/chunk.h).
 */
uint64_t link_part(const struct migration *transit, uint64_t at, uint64_t most, CUdeviceptr *ret_old,
		   CUdeviceptr *ret_new);
/* Queues the copy of all of a piece that comes, in a gap, without an event. */
CUresult link_fill(struct engine *engine, const struct migration *transit);
/* Waits until the stream is idle, or `until` (ns). Returns false if it is not then, or the driver fails. */
bool link_is_idle_by(CUstream stream, uint64_t until);
/* Waits until the stream is idle. Returns false if the driver keeps failing, usually because the context died. */
bool link_settle(CUstream stream);
/*
 * Lets copies that contend with changes of mappings proceed after their current part (go), or holds them there. They
 * must not be held for longer than a part takes. While the device is quiesced they always proceed.
 */
void link_let_go(struct engine *engine, bool go);

/*
 * Returns for how many ns the mover need not look at copies. tries: number of looks without effect since a copy ended.
 */
uint64_t link_nap_ns(const struct engine *engine, unsigned tries);
/* Updates the copy rate that link_nap_ns() uses. To be called when a copy has ended. */
void link_ended(struct queue *queue, const struct move *move);

#endif
