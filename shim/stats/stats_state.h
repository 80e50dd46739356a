/*
 * stats_state.h: what this room keeps for the process besides the figures, in one object. Only the files of the room
 * use it. The page and the stripes of calls (stats.h) stay apart, because inline functions count in them, and because a
 * file is mapped over the page; they are defined beside the object.
 */
#ifndef SPILLWAY_STATS_STATE_H
#define SPILLWAY_STATS_STATE_H

#include "shim/base/lock.h"
#include "shim/stats/stats.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- stats.c ---- */

#define N_UNKNOWN     8
#define UNKNOWN_BYTES 64

/* Names of entry points that are in no list. A name is complete when `ready` is set. */
struct stats_unknown_state {
	char name[N_UNKNOWN][UNKNOWN_BYTES];
	atomic_uint n; /* names that were recorded, and those that found no room */
	atomic_bool ready[N_UNKNOWN];
	_Atomic uint64_t calls; /* of such entry points, which have no row to be counted in */
};

struct stats_count_state {
	atomic_uint next_stripe; /* counts threads; modulo STATS_SHARED it is the stripe of the next one */
	atomic_uint n_own;       /* threads that asked for a stripe of their own */
	_Atomic uint64_t away;   /* bytes on the host and on devices that lend memory */
};

/* ---- stats_file.c ---- */

/* Used by one thread at a time: under START at first, then by the thread that looks once a second, and at the end. */
struct stats_file_state {
	bool is_there;
	pid_t owner;
	char name[64];
	char path[300]; /* path of the file at its creation; empty: not known */
	char leave[200]; /* SPILLWAY_FIGURES: where a copy is left at the end; empty: nowhere */
	dev_t device;
	ino_t inode;
};

/* ---- waiting.c ---- */

struct waiting_state {
	struct lock lock;   /* WAITING. Protects n_waiting and, for writers, stats.waiting_since with its counter. */
	unsigned n_waiting; /* submissions that wait */
};

struct stats_state {
	struct waiting_state waiting;
	struct stats_unknown_state unknown;
	struct stats_file_state file;
	struct stats_count_state count; /* apart from the lock: both are written often */
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct stats_state stats_state __attribute__((visibility("hidden")));

#endif
