/*
 * mover_state.h: everything that this room keeps for the process, in one object. Only the files of the room use it.
 * What belongs to one device is in its engine (mover_internal.h).
 */
#ifndef SPILLWAY_MOVER_STATE_H
#define SPILLWAY_MOVER_STATE_H

#include "shim/base/array.h"
#include "shim/base/lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;

/* ---- discard.c ---- */

struct discard_state {
	_Atomic bool any; /* something was ever discarded */
	struct lock lock; /* DISCARD, over all that follows */
	uint64_t last;    /* number given last */
	uint64_t empty;   /* stripes that were seen empty after pinning was requested */
	uint64_t since;   /* first number that only submissions with pins can have; 0: not known */
};

/* ---- mover.c ---- */

struct alive_state {
	struct lock lock; /* MOVERS */
	unsigned n;       /* engines whose mover runs; under the lock. While it is not 0, submissions are tracked. */
	unsigned n_fast;  /* those of them whose memory moves beside what runs; under the lock */
};

/* ---- quiesce.c ---- */

struct quiescing_state {
	struct lock lock; /* QUIESCE: at most one gap in the process, because all gaps use the one gate */
	/* Engines that do not run (residence.h); under the lock. They keep the gate closed for all devices. */
	unsigned n_held;
};

/* ---- spill.c ---- */

struct spill_state {
	struct lock lock;                              /* ENGINE_START: held over the start of an engine */
	_Atomic(struct engine *) engines[DEVICE_MOST]; /* by device; NULL: not started */
	bool registered;                               /* spill_end() runs at exit; under the lock */
	_Atomic bool ending;                           /* the process ends: moves by order are broken off */
};

struct mover_state {
	struct alive_state alive;
	struct discard_state discard;
	struct quiescing_state quiescing;
	struct spill_state spill;
	_Atomic uint64_t n_moves_traced; /* numbers of moves in the trace (move_stats.c) */
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct mover_state mover_state __attribute__((visibility("hidden")));

#endif
