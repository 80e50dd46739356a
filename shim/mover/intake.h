/*
 * intake.h: what the mover hears: of the heap, and of what was submitted. The mover's thread only.
 */
#ifndef SPILLWAY_INTAKE_H
#define SPILLWAY_INTAKE_H

#include "shim/mover/piece.h"
#include "shim/plan/tensor_extents.h"
#include "shim/submit/submission_log.h"

#include <stdbool.h>

struct engine;

/* What was heard so far. The mover's thread alone may touch it. */
struct intake {
	uint64_t n_submissions; /* heard of */
	uint64_t named_bytes;   /* that they named, as far as is known */
	uint64_t step_began;    /* the submission that began the program's present period; 0: none did */
	struct tensor_extents *extents;
	struct piece_list pieces; /* scratch: those of one submission (intake_pieces) */
	struct piece_list
	    leaving; /* those that the program wants on the host, for schedule_leave(); some twice, some gone */
};

/* Read the log and the news; keep the plan up to date. True: there was something. */
bool intake_read(struct engine *engine);
/* The pieces that a list of names touches, each once, into engine->pieces, stamped: how many. */
unsigned intake_pieces(struct engine *engine, const struct named *named, unsigned n);

#endif
