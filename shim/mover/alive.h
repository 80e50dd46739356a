/*
 * alive.h: what births and deaths (lifetimes.h) mean for pieces. Only the mover's thread may call these functions.
 * Locking: none.
 */
#ifndef SPILLWAY_ALIVE_H
#define SPILLWAY_ALIVE_H

#include "shim/heap/migration.h"
#include "shim/plan/live_map.h"
#include "shim/plan/piece_sizes.h"
#include "shim/submit/channel.h"

#include <stdbool.h>
#include <stddef.h>

struct engine;

/*
 * Submissions whose names the mover has not seen: lost records of the submission log, or what came before the log. They
 * may have named what had died before them, and that is known to be dead only later, when the log has been read as far
 * as it went then (`end`). Until then everything counts as alive.
 */
struct unseen {
	uint64_t lost;      /* records that were lost and are accounted for */
	bool any, bounded;  /* there are some more; `end` and lost_then are known */
	size_t end;         /* of the log when they were noticed */
	uint64_t lost_then; /* records that were lost by then */
};

/*
 * Tells the plan what is reported and alive already. all_now: nobody has seen what submissions have named so far. To be
 * called once, before the first event is read.
 */
void alive_begin(struct engine *engine, bool all_now);

/*
 * Reads the events that come before the record at this position of the submission log, and updates the plan. Returns
 * false if one of them is still being written: the record must not be read yet.
 */
bool alive_read(struct engine *engine, size_t position);

/*
 * Finds out how far the threads that report have come, so that more deaths count. The caller must read events
 * afterwards, before anything moves.
 */
void alive_hear(struct engine *engine);

/* Updates the figures of what is alive. */
void alive_count(const struct engine *engine);

/*
 * Something that submissions named is not known: everything that is reported is alive until its next birth and death.
 */
void alive_restart(struct engine *engine);

/*
 * Finds the range that was born at an address, in bytes of the heap's address space, or else what is fresh around it.
 * Returns false if nothing is known about the address.
 */
bool alive_find(const struct engine *engine, CUdeviceptr address, struct live_range *ret);
/*
 * A submission was read that names this: what is dead there is alive from now on. no_kernel: it is a copy, a set, or
 * anything but kernels and graphs.
 */
void alive_name(struct engine *engine, const struct named *named, bool no_kernel);

/*
 * Stores the parts of a piece that have to be copied when it moves, in bytes from its beginning, and returns how many.
 * To be called while no submission that names the piece can enter the driver.
 */
unsigned alive_ranges(struct engine *engine, const struct migration *transit, struct live_range *ret);
/*
 * To be called instead where alive_is_none() was true and the piece is mapped nowhere; also when it comes back, if it
 * has been mapped nowhere since: whatever was born meanwhile, nobody can have written there, not even by an address
 * that no submission names, which would have ended the context. Counts what need not be copied, and returns 0.
 */
unsigned alive_skip(const struct migration *transit);
/* Returns whether alive_ranges() would find nothing. */
bool alive_is_none(struct engine *engine, uint32_t block_unit, uint32_t piece);
/* Returns whether these parts are the whole piece. */
bool alive_is_all(const struct migration *transit, const struct live_range *parts, unsigned n);
/* What is dead is overwritten with this byte (policy.h, POLICY_CONTENTS_POISON). */
#define ALIVE_POISON 0xFF

#endif
