/*
 * lifetimes_state.h: everything that this room keeps for the process, in one object. Only the files of the room use it.
 */
#ifndef SPILLWAY_LIFETIMES_STATE_H
#define SPILLWAY_LIFETIMES_STATE_H

#include "shim/lifetimes/lifetimes.h"

#define LIFETIMES_HEAPS 64

struct lifetimes_state {
	struct lifetimes *_Atomic all[LIFETIMES_HEAPS]; /* NULL: free */
	_Atomic uint32_t n_threads;                     /* that have reported */
	_Atomic unsigned n;                             /* those from here on were never used */
};

extern struct lifetimes_state lifetimes_state __attribute__((visibility("hidden")));

#endif
