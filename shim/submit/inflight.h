/*
 * inflight.h: which blocks the submissions in flight use that have tickets (channel.h). It reads each record of
 * the submission log before intake.c removes it, and may read ahead to the end at any time. Only the mover's thread
 * calls it.
 *
 * A block is identified by its first unit, as block states are (arena.h). The addresses of a record are looked up when
 * it is read: if a block has been freed since, the work that used it is complete.
 */
#ifndef SPILLWAY_INFLIGHT_H
#define SPILLWAY_INFLIGHT_H

#include "shim/heap/arena.h"
#include "shim/submit/channel.h"

struct inflight;

/*
 * Reads the records that are in the log now and those that follow; tickets of earlier ones are not known. Returns NULL if
 * memory is short. The arena and the log must outlive it.
 */
struct inflight *inflight_new(const struct arena *arena, const struct submission_log *tape);
void inflight_free(struct inflight *claims);

/*
 * Reads every record that is in the log now, and every ticket that has been given back. Returns false if a record is
 * still being written, so that the names in it and in those behind it are unknown.
 */
bool inflight_hear(struct inflight *claims);
/*
 * Reads the oldest record of the log unless it has been read. Returns false if it could not be read, because it was not
 * complete; then it must not be removed, even if it becomes complete a moment later.
 */
bool inflight_hear_oldest(struct inflight *claims);
/* Returns whether a submission that was read uses the block. done: the number up to which all are complete. */
bool inflight_has(const struct inflight *claims, uint32_t block_unit, uint64_t done);

#endif
