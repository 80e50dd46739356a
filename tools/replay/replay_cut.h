// SPDX-License-Identifier: Apache-2.0
/*
 * replay_cut.h: a job under construction. Internal to replay_job.c, which decides where allocations go and names
 * pieces, and replay_cut.c, which gives blocks their pieces and address space, and follows what is alive.
 */
#ifndef TOOLS_REPLAY_CUT_H
#define TOOLS_REPLAY_CUT_H

#include "tools/replay/replay_job.h"

#include "shim/plan/live_map.h"
#include "shim/plan/piece_sizes.h"
#include "shim/plan/tensors.h"
#include "tools/common/grow.h"

#define CLASSES 40

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
	struct live_map *map; /* what is alive; NULL: no births were recorded */
	struct number_map
	    tensor_from;        /* by the address where it begins: the number of a tensor that is alive, plus 1 */
	uint64_t *tensor_stamp; /* by tensor: the last launch that named it, from 1 */
	size_t room_tensors, room_tensor_begins, room_tensor_stamps, room_tensors_named;
	uint32_t n_lives; /* next number for block_of */
	size_t room_events, room_named, room_pieces, room_units;
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

/* ---- what is alive ---- */
/* Does nothing, as all below, if no births were recorded. */
bool parts_begin(struct building *b);
void parts_end(struct building *b);
/* What an allocator reports; at: the number of the event in the model. */
bool parts_event(struct building *b, const struct replay_event *reported, uint32_t at);
/* The block's address space is given back. */
bool parts_gone(struct building *b, const struct life *life, const struct job_event *like);
/*
 * A launch names this byte of a block, or these bytes. *ret_first: the range that the byte lies in, in bytes from the
 * beginning of the block; only if it is known.
 */
bool parts_name(struct building *b, const struct life *life, uint64_t offset, uint64_t bytes, struct job_event *launch,
		struct live_range *ret_first, bool *ret_known);
/* Adds the launch's pieces of which nobody reports what is alive to its tensors, as one each. */
bool parts_name_rest(struct building *b, struct job_event *launch);

#endif
