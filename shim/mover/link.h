/*
 * link.h: the streams that pieces are copied on, and the copies queued on them. The mover's thread only.
 */
#ifndef SPILLWAY_LINK_H
#define SPILLWAY_LINK_H

#include "shim/heap/migration.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;

/* Copies under way each way, at most; enough that the link never waits for us. */
#define MOVES         24
#define MOVES_AT_ONCE 8

/* A piece that is being copied. */
struct move {
	struct migration transit;
	CUevent event;                                       /* lives with the slot */
	uint64_t begun;                                      /* ns */
	uint64_t number;                                     /* in the trace; 0: not in it */
	enum { MAPPED_NONE, MAPPED_OLD, MAPPED_NEW } mapped; /* at the program's address, of the two */
	bool is_raised;                                      /* `unmapped` is, of its block */
	bool is_back;     /* it was let go of before its copy ended (migrate_take_back) */
	bool is_measured; /* the new memory is filled, and copies into the old are under way (pte_contention.c) */
};

/* Moves in the order they were begun. */
struct queue {
	struct move at[MOVES];
	unsigned head, n;
	uint64_t bytes;
	uint64_t ended;   /* ns: when the last one was seen to have ended */
	uint64_t unit_ns; /* what a unit took lately; 0: none has ended yet */
};

/*
 * The streams of one engine, and what copies wait for between their parts. The mover's thread alone may touch it, but
 * `context`, which a thread that ends a context reads.
 */
struct link {
	_Atomic(CUcontext) context; /* of the streams and events; NULL: none yet */
	CUstream stream_out, stream_in;
	_Atomic uint32_t *go; /* 1: copies go on; host memory of the context's; NULL: they never pause */
	CUdeviceptr go_address;
	bool cannot_wait; /* the driver refuses such waits */
	bool in_gap;      /* nothing pauses for the mover (quiesce.c) */
};

/* Streams and events, in some context of the device. False: none can be had now. */
bool link_open(struct engine *engine);
void link_close(struct engine *engine);
/* Copy a piece, in the order of the calls, and record its event behind that. On an error nothing of it runs any more. */
CUresult link_copy(struct engine *engine, struct move *move, bool gap);
/* Wait until the stream has done all that it was given. False: the driver does not wait; the context died, as a rule. */
bool link_settle(CUstream stream);
/* May copies that changes of mappings wait for go on after the part they are at? Not for longer than one; in gaps always. */
void link_let_go(struct engine *engine, bool go);

/* How long nothing need be looked at for the sake of copies: ns. tries: looks in vain since the last that ended. */
uint64_t link_nap_ns(const struct engine *engine, unsigned tries);
/* A copy has ended: for link_nap_ns(). */
void link_ended(struct queue *queue, const struct move *move);

#endif
