/*
 * quiesce.h: quiescing, that is migrating while nothing runs on the device: on demand (quiesce.c) or by order
 * (quiesce_orders.c). A gap is the time for which the device is quiesced. Only the mover's thread may call these
 * functions. Locking: those that migrate take QUIESCE for the whole gap, then HEAP.
 */
#ifndef SPILLWAY_QUIESCE_H
#define SPILLWAY_QUIESCE_H

#include "shim/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct order;

/*
 * The present gap, when the next one may begin, and where the memory is. Only the mover's thread may touch it, except
 * `residence` and `reasons`, which others read.
 */
struct quiesce {
	uint64_t began;               /* ns: when the gap, or the attempt, began */
	uint64_t moved_in, moved_out; /* bytes moved before it */
	/*
	 * newest: the latest submission when the gate began to close; done: the submissions that the gap waits for have
	 * completed up to here.
	 */
	uint64_t newest, done;
	uint64_t patience, not_before, backoff; /* ns: bound of the wait; no gap before; present pause */
	/* enum residence; not RUNS from the moment at which nothing runs any more: new blocks start on the host */
	_Atomic int residence;
	_Atomic unsigned reasons; /* enum residence_reason: who holds it */
	uint64_t left_bytes;      /* of the device, that were given back */
};

/* Quiesces the device if submissions wait, and moves everything that they and the near future need. */
void quiesce_run(struct engine *engine);
/*
 * quiesce_close() begins a gap: it stops everything that may touch the heap, or the whole process. Returns false if it
 * gave up; the gate is open then. quiesce_open() ends the gap. Locking: takes QUIESCE, and holds it until
 * quiesce_open() or quiesce_keep_closed().
 */
bool quiesce_close(struct engine *engine, bool whole);
void quiesce_open(struct engine *engine);
/*
 * Ends the gap but keeps the gate closed until quiesce_resume(). The gate opens when no engine is held any more.
 * Locking: drops QUIESCE.
 */
void quiesce_keep_closed(struct engine *engine);
/*
 * Ends the hold on this engine, if there is one, whoever asked for it. Returns NO_MEMORY if there is no memory for all
 * pieces that have none; it is held on then. by_force: it ends in any case; what has no memory has no address any more.
 * Locking: takes and drops HEAP, then QUIESCE.
 */
enum sw_status quiesce_resume(struct engine *engine, bool by_force);
/*
 * quiesce_nap() sleeps until a copy is expected to have ended. quiesce_finish() completes all moves in flight and maps
 * every piece, also while it waits for copies.
 */
void quiesce_nap(const struct engine *engine);
void quiesce_finish(struct engine *engine);
/* In a gap: fetches what is wished for (scheduler_wish), as far as room can be made for it, and completes that. */
void quiesce_fetch_wishes(struct engine *engine);

/* ---- by order (quiesce_orders.c) ---- */

/* In a gap: reads what was submitted and reported before it. */
void quiesce_read_all(struct engine *engine);

/*
 * Carries out ORDER_RESIDE (plan/residence.h). *bytes: in: how many may stay on the device; out: those of the device
 * that were given back, or are to be fetched again.
 *
 * A leave that fails returns SW_BUSY if no safe point came, SW_NO_MEMORY or SW_NO_HOST_MEMORY if the host cannot hold
 * it, SW_DRIVER if the driver refused. For turns it gives up sooner if the device makes no progress, and counts from
 * the moment at which nothing runs any more: others may count on that. A fetch moves what the device budget has room
 * for, while the gate is closed: nothing runs that could use the link meanwhile, and no submission waits for its memory
 * afterwards. It waits for room as long as the thread that gave the order says that it comes (order_watch.h), and
 * returns SW_BUSY if that thread has given it up.
 */
enum sw_status quiesce_reside(struct engine *engine, const struct order *order, uint64_t *bytes);
/* Evicts `bytes`. Returns SW_BUSY if no safe point came, SW_NOT_SUPPORTED if nothing may move now. */
enum sw_status quiesce_make_room(struct engine *engine, uint64_t bytes);
/*
 * Makes room for a new block of `bytes`, and for more blocks to come. Returns SW_BUSY if that is not possible now or
 * nothing can be evicted for it.
 */
enum sw_status quiesce_room_for_new(struct engine *engine, uint64_t bytes);

#endif
