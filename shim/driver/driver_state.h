/*
 * driver_state.h: everything that this room keeps for the process, in one object, which real.c defines. Only the files
 * of the room use it. The table itself, `real` (real.h), which REAL() reads in all rooms, stays apart beside it.
 */
#ifndef SPILLWAY_DRIVER_STATE_H
#define SPILLWAY_DRIVER_STATE_H

#include "shim/driver/real.h"

#include <stdatomic.h>

/* ---- real.c ---- */

/* clang-format off */
enum exempt_id {
#define EXEMPT(name, reason) EXEMPT_##name,
#include "shim/driver/hooks.def"
	EXEMPT_COUNT, /* must be last */
};
/* clang-format on */

/* Has no lock: each field is only ever written with the same value, by atomic stores. */
struct real_state {
	_Atomic(real_dlsym_function *) c_dlsym; /* what real_dlsym() has found */
	atomic_bool bound;                      /* all addresses have been looked up */
	void *exempt_address[EXEMPT_COUNT];     /* of the exempt functions, in the order of hooks.def; NULL: not there */
};

/* ---- door_log.c ---- */

struct door_log_state {
	_Atomic int wanted; /* 0: not read yet, 1: no, 2: yes */
};

struct driver_state {
	struct real_state real;
	_Atomic(void *) unknown[128]; /* functions that no row knows, from the first on (entry/unknown.h) */
	struct door_log_state door_log;
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct driver_state driver_state __attribute__((visibility("hidden")));

#endif
