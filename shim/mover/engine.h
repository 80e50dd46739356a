/*
 * engine.h: the services of an engine that all files of the mover use: reading the submission log, orders from other
 * threads, the device budget, and declaring the engine dead.
 */
#ifndef SPILLWAY_ENGINE_H
#define SPILLWAY_ENGINE_H

#include "shim/base/status.h"
#include "shim/mover/order_watch.h"
#include "shim/plan/residence.h"
#include "shim/submit/channel.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;

/* Orders that other threads give the mover. */
enum engine_order {
	ORDER_NONE,
	ORDER_STOP,   /* end the thread */
	ORDER_RESIDE, /* change where memory is, and whether submissions pass (residence.h) */
	ORDER_ROOM,   /* give device memory back to the driver */
	ORDER_NEW,    /* make room for a new block */
	ORDER_BRING,  /* bring these units to the device: the first one << 32 | their number */
	ORDER_EXACT,  /* move memory in gaps alone from now on */
	ORDER_FAST,   /* or beside what runs */
	ORDER_PARK,   /* the link's context is about to end: finish the copies in it and close the link */
};

/* An order. `bytes`: of the device, to have free (ORDER_ROOM, ORDER_NEW) or to keep (ORDER_RESIDE). */
struct order {
	enum engine_order what;
	CUcontext context;            /* of ORDER_PARK */
	enum residence to;            /* of ORDER_RESIDE */
	enum residence_reason reason; /* and who asks */
	uint64_t bytes;
};

/*
 * The order slot of the mover; it holds one order at a time. Locking: SPILL (channel.lock) protects all fields except
 * `pending` and `room`, which any thread may read, and the order itself, which does not change until it is answered.
 */
struct orders {
	struct order order; /* its `bytes` are the result when it has been carried out */
	enum sw_status status;
	bool done, left;      /* done: carried out; left: the thread that gave it stopped waiting */
	bool left_away;       /* nothing ran any more when it did (quiesce.residence) */
	_Atomic bool pending; /* the mover has not taken the order yet */
	_Atomic int room;     /* enum order_room, as the thread that waits for the order has said last */
};

/*
 * Room for new blocks. The fields are atomic: threads that allocate and the mover's thread access them without a lock.
 */
struct new_blocks {
	_Atomic bool makes_room; /* the mover makes room on request (spill_room_for_new) */
	/* The rest is used in `fast` only. */
	_Atomic uint64_t wanted;     /* bytes that allocations wait for */
	_Atomic uint64_t not_before; /* ns: no allocation waits before this time */
	_Atomic unsigned hopeless;   /* how often the mover found that nothing can be evicted for new blocks */
};

/*
 * Whether the context is still alive. Only the mover's thread may touch it, except `telling`, which the thread that
 * ends the process reads.
 */
struct health {
	unsigned doubts;                        /* consecutive errors of event queries */
	uint64_t doubted;                       /* ns: time of the first of them */
	unsigned refused;                       /* how often in turn piece_map_soon() has failed */
	void (*on_lost)(struct engine *engine); /* called by engine_lost() for an illegal address in `fast`; set once */
	_Atomic bool telling;                   /* on_lost is running; the process must not end before it returns */
};

/*
 * Reads the oldest record of the submission log and removes it. Names beyond the first `most` are dropped. Returns
 * false if the log is empty, or if the pins that its oldest record stands for are not known yet (inflight_hear_oldest).
 */
bool engine_read_log(struct engine *engine, uint64_t *ret_function, struct named *ret_named, unsigned most,
		     unsigned *ret_n);
/*
 * Brings the mover's knowledge of which submission uses which block up to date. After it has returned true, the only
 * submissions that the mover does not know of are those that see every block that is `unmapped` now, and wait. Returns
 * false if a record is just being written.
 */
bool engine_hears_all(struct engine *engine);
/*
 * Counts the tries of a driver call that must succeed, because the driver may refuse it temporarily, for example for
 * lack of memory for page tables. *tries must be 0 at first. The first tries follow each other at once, later ones come
 * every 2 ms, for about a tenth of a second. Returns false if the caller should give up.
 */
bool engine_tries(unsigned *tries);
/*
 * Declares the engine dead: memory never moves again, and every wait ends. Called if the context died or memory is
 * lost. Writes `why` to the log.
 */
void engine_die(struct engine *engine, const char *why);
/* Does the same because a driver call returned `result`. In `fast`, an illegal address is first reported (on_lost). */
void engine_lost(struct engine *engine, CUresult result);
/*
 * Records that the query of an event failed. A single failure may be chance; repeated failures mean that the context
 * died, and then the engine is declared dead.
 */
void engine_doubt(struct engine *engine, CUresult result);

/*
 * Gives the mover an order and waits up to patience_ms for it. `bytes` is the argument of the order; *ret_bytes (may be
 * NULL) its result. Returns SW_BUSY if the order was not carried out in time (it still will be), SW_NOT_SUPPORTED if
 * the engine is dead and the order was not taken, else the status of the order. Locking: takes SPILL; must not be
 * called on the mover's thread.
 */
enum sw_status engine_ask(struct engine *engine, enum engine_order order, CUcontext context, uint64_t bytes,
			  unsigned patience_ms, uint64_t *ret_bytes);
/* The same for an order of the process, while which the caller is called once a ms. watch: NULL: it is not. */
enum sw_status engine_ask_watched(struct engine *engine, const struct order *order, unsigned patience_ms,
				  const struct order_watch *watch, uint64_t *ret_bytes);
/*
 * engine_ask_watched() in two steps, for orders of several engines that are carried out at the same time. If
 * engine_give() returns SW_OK, the caller must call engine_take_answer() before it gives that engine another order.
 * That returns SW_BUSY, as engine_ask(), also if the engine has died meanwhile.
 */
enum sw_status engine_give(struct engine *engine, const struct order *order, unsigned patience_ms,
			   const struct order_watch *watch);
enum sw_status engine_take_answer(struct engine *engine, unsigned patience_ms, const struct order_watch *watch);

/*
 * In `fast`: waits until `bytes` of the device are free, while the mover evicts what is not needed soon. Gives up when
 * nothing can be evicted, or after 50 ms; then the block starts on the host. Any thread may call this. Locking: takes
 * HEAP and WAKE, not both at once.
 */
void engine_wait_for_room(struct engine *engine, uint64_t bytes);

/* Returns the device budget in bytes; if others fill the device, the part of it that this process uses now. */
uint64_t engine_budget(const struct engine *engine);
/*
 * To be called when the device budget has no room for a piece of `units` units. Takes back device memory that the heaps
 * of other devices have borrowed but keep free, and returns true if that made room. Otherwise requests the return of
 * what they use, up to the amount that this heap has away from the device, and returns false.
 */
bool engine_recall_lent(struct engine *engine, unsigned units);

/* Returns whether to begin no other move: the engine has died, or the process ends, which waits for it. */
bool engine_is_over(const struct engine *engine);

#endif
