/*
 * intake.h: the mover's input: changes of the heap, and the log of submissions. Only the mover's thread may call these
 * functions.
 */
#ifndef SPILLWAY_INTAKE_H
#define SPILLWAY_INTAKE_H

#include "shim/mover/piece.h"
#include "shim/plan/piece_sizes.h"
#include "shim/plan/scheduler.h"
#include "shim/plan/tensors.h"
#include "shim/submit/channel.h"

#include <stdbool.h>

struct engine;
struct waiter;

/* The pieces of a submission that waits, the most used first, and what they were computed for. */
struct weighed {
	uint64_t *keys; /* scratch for sorting */
	uint32_t *pieces, *uses;
	unsigned n, room;
	uint64_t who; /* hash of the names */
	const struct waiter *waiter;
	uint64_t since; /* of the waiter */
};

/* What was read so far. Only the mover's thread may touch it. */
struct intake {
	uint64_t n_submissions; /* submissions read from the log */
	uint64_t read_at;       /* ns: when the latest of them was read */
	uint64_t named_bytes;   /* bytes that they named, as far as is known */
	uint64_t step_began;    /* number of the submission that began the program's present period; 0: none did */
	struct tensor_extents *extents;
	/* Scratch: what the submission names where an allocator reports, in bytes from the beginning of the arena. */
	uint64_t named_at[INTAKE_NAMED_AT];
	unsigned n_named_at;
	bool no_kernel; /* the record that is being read is of a copy, a set, or anything but kernels and graphs */
	struct piece_list pieces; /* scratch: the pieces of one submission (intake_pieces) */
	struct weighed weighed;
	struct piece_list
	    /*
	     * pieces that the program wants on the host, for schedule_leave(); may contain duplicates and freed pieces
	     */
	    leaving;
};

/*
 * Reads the log and the changes of the heap, and updates the plan. Returns false if there was nothing to read. Locking:
 * takes HEAP.
 */
bool intake_read(struct engine *engine);
/* Returns whether the program has submitted nothing for a while, so that looking rarely suffices. */
bool intake_is_quiet(const struct engine *engine);
/*
 * Does the same for a submission that waits. If it is the only one and launches a graph that is known, *ret_named also
 * says how much it uses each piece, and is good until the next call; else it is good until the next intake_pieces().
 * Locking: the caller must hold SPILL.
 */
void intake_waiter(struct engine *engine, const struct waiter *waiter, struct scheduler_named *ret_named);

#endif
