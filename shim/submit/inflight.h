/*
 * inflight.h: the mover's book of the blocks that submissions with tickets (inflight_ticket.h) use. It hears each record of the tape
 * before intake.c takes it off, and may read on to the end at any time. All of it belongs to the mover's thread.
 *
 * Blocks go by the unit they start at, as marks do (arena.h). What a record names is looked up when it is heard: had the
 * block been freed since, what used it would be done.
 */
#ifndef SPILLWAY_INFLIGHT_H
#define SPILLWAY_INFLIGHT_H

#include "shim/heap/arena.h"
#include "shim/submit/submission_log.h"

struct inflight;

/* NULL: no memory. It lives as long as the arena and the tape do. */
struct inflight *inflight_new(const struct arena *arena, const struct submission_log *tape);
void inflight_free(struct inflight *claims);

/*
 * Hear every record that is on the tape by now, and what has come back since. False: one is just being written, so that
 * nobody can tell what it and those behind it name.
 */
bool inflight_hear(struct inflight *claims);
/*
 * Has the oldest record on the tape been heard by now? Else it must not be taken off, though it may be complete a moment
 * after we looked.
 */
bool inflight_hear_oldest(struct inflight *claims);
/* Does a submission that was heard use the block, up to this number all of them being done? */
bool inflight_has(const struct inflight *claims, uint32_t block_unit, uint64_t done);

#endif
