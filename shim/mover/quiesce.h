/*
 * quiesce.h: moving while nothing runs (quiesce.c), also by order (quiesce_orders.c). The mover's thread only.
 */
#ifndef SPILLWAY_QUIESCE_H
#define SPILLWAY_QUIESCE_H

#include "shim/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;

struct wish {
	uint32_t piece;
	uint64_t when;
};

/* The pieces a gap brings in, in the order they are needed; their victims are found on the way. */
#define WISHES 1024
struct wishes {
	struct wish at[WISHES];
	unsigned n, next, early; /* next: to be granted; early: to be unmapped early */
	uint64_t units;
};

/*
 * The gap that is open, the next one, and whether the process is suspended. The mover's thread alone may touch it, but
 * `is_away`, which threads that allocate read.
 */
struct quiesce {
	uint64_t began;               /* ns */
	uint64_t moved_in, moved_out; /* bytes, up to then */
	/* The latest submission when the gate began to be closed; up to there what the gap waits for is done. */
	uint64_t newest, done;
	uint64_t patience, not_before, backoff; /* ns */
	struct wishes wishes;
	uint32_t refused[64]; /* victims the driver would not let go */
	unsigned n_refused;
	bool suspended;
	_Atomic bool is_away; /* suspended, or about to be: what is made now begins on the host */
	uint64_t suspended_bytes;
};

/* Move everything that waiting submissions and the near future need while nothing runs. */
void quiesce_run(struct engine *engine);
/*
 * A gap begins, for what may touch the heap or for the whole process; false: given up, the gate is open. And ends.
 */
bool quiesce_close(struct engine *engine, bool whole);
void quiesce_open(struct engine *engine);
/* Or it ends, and the gate stays closed until quiesce_resume(); it opens when no engine is suspended any more. */
void quiesce_keep_closed(struct engine *engine);
void quiesce_resume(struct engine *engine);
/*
 * In a gap: send one piece out for what is needed at `when`, of so many units rather than others; false: nothing can go.
 * True and nothing has begun: there is no room for it before what is under way has ended.
 */
bool quiesce_send_out(struct engine *engine, uint64_t when, unsigned units);
/* Until a copy is expected to have ended; what is under way ends, and all of it is mapped. */
void quiesce_nap(const struct engine *engine);
void quiesce_finish(struct engine *engine);

/* ---- by order (quiesce_orders.c) ---- */

/* Everything out; the gate stays closed. */
enum sw_status quiesce_suspend(struct engine *engine, uint64_t *ret_bytes);
/* So much out. BUSY: no safe point came; NOT_SUPPORTED: nothing may move now. */
enum sw_status quiesce_make_room(struct engine *engine, uint64_t bytes);
/* Room for a new block, and for more to come. BUSY: not now, or nothing can go for it. */
enum sw_status quiesce_room_for_new(struct engine *engine, uint64_t bytes);

#endif
