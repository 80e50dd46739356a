/*
 * replay_cut.h: a job under construction. Internal to replay_job.c, which decides where allocations go and names
 * pieces, and replay_cut.c, which gives blocks their pieces and address space.
 */
#ifndef TOOLS_REPLAY_CUT_H
#define TOOLS_REPLAY_CUT_H

#include "tools/replay/replay_job.h"

#include "shim/plan/tensor_extents.h"

/* Must equal SMALL_MOST of shim/heap/small.h. */
#define SMALL_MOST ((uint64_t)1 << 20)
#define CLASSES    40

/* A block of the model while it is alive. */
struct life {
	uint32_t first, n; /* its pieces; for a small block, the piece of the slab */
	uint32_t unit;     /* first unit of its address space, for extents; REPLAY_NONE: no address space was left */
	uint32_t units;
	uint32_t slab; /* REPLAY_NONE: not in a slab */
	uint8_t use;   /* enum policy_use; POLICY_USE_DENY: it was never made */
	int16_t rule;
};

/* Freed address space, kept by length for the next block of the same length. */
struct hole {
	uint32_t units, first, n, unit, next;
};

struct slab {
	uint32_t piece, unit, used, room, next;
	uint8_t class;
};

struct building {
	struct job *job;
	const struct job_setting *setting;
	struct tensor_extents *extents;
	struct life *lives;
	struct hole *holes;
	size_t n_holes, room_holes;
	uint32_t *hole_of; /* by length modulo HOLES: the head of a list */
	struct slab *slabs;
	size_t n_slabs, room_slabs;
	uint32_t partial[CLASSES];
	uint32_t n_units; /* of address space in use or freed */
	uint32_t n_lives; /* next number for block_of */
	size_t room_events, room_named, room_pieces;
	struct stamp {
		uint64_t launch, place; /* the last launch that named it, from 1, and its index in named */
	} * stamp;                      /* by piece */
	uint64_t in_heap, outside, live;
	bool pools_closed;
	uint64_t *rule_live; /* by rule */
	struct {
		uint64_t from;
		uint32_t n;
	} * last; /* by submission of the model: what it named the last time */
	uint64_t launches;
	char *library, *caller; /* scratch memory */
};

#define HOLES 4096

/* All of these return false if memory runs out or the job is too large; the caller must then give up the job. */
bool cut_add_event(struct building *b, const struct job_event *event);
bool cut_add_named(struct building *b, uint32_t piece, uint64_t bytes);
/* Takes pieces for that many units. */
bool cut_take(struct building *b, uint32_t units, struct life *life);
bool cut_give(struct building *b, const struct life *life);
/* Adds the event with all pieces of the block. */
bool cut_add_pieces(struct building *b, const struct life *life, const struct job_event *like);
/* Takes a slot of a slab, after making a new slab if necessary. */
bool cut_take_small(struct building *b, uint64_t bytes, struct life *life, const struct job_event *like);
bool cut_give_small(struct building *b, const struct life *life, const struct job_event *like);

#endif
