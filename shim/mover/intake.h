/*
 * intake.h: the mover's input: changes of the heap, and the log of submissions. Only the mover's thread may call these
 * functions.
 */
#ifndef SPILLWAY_INTAKE_H
#define SPILLWAY_INTAKE_H

#include "shim/mover/piece.h"
#include "shim/plan/tensor_extents.h"
#include "shim/submit/submission_log.h"

#include <stdbool.h>

struct engine;

/* What was read so far. Only the mover's thread may touch it. */
struct intake {
	uint64_t n_submissions; /* submissions read from the log */
	uint64_t read_at;       /* ns: when the latest of them was read */
	uint64_t named_bytes;   /* bytes that they named, as far as is known */
	uint64_t step_began;    /* number of the submission that began the program's present period; 0: none did */
	struct tensor_extents *extents;
	struct piece_list pieces; /* scratch: the pieces of one submission (intake_pieces) */
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
 * Puts the pieces that a list of names touches, each once, into engine->intake.pieces and stamps them. Returns their
 * number.
 */
unsigned intake_pieces(struct engine *engine, const struct named *named, unsigned n);

#endif
