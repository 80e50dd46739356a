/*
 * engine.h: what the mover reads of submissions, what other threads ask of it, what its device has room for, and how it
 * dies.
 */
#ifndef SPILLWAY_ENGINE_H
#define SPILLWAY_ENGINE_H

#include "shim/base/status.h"
#include "shim/submit/submission_log.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;

/* What others ask of the mover. */
enum engine_order {
	ORDER_NONE,
	ORDER_STOP,    /* end the thread */
	ORDER_SUSPEND, /* everything to the host, and the gate stays closed */
	ORDER_RESUME,
	ORDER_ROOM, /* give device memory back to the driver */
	ORDER_NEW,  /* make room for a new block */
	ORDER_PARK, /* its context is about to end: finish what is under way and let go of it */
};

/*
 * What others ask of the mover, one thing at a time. Locking: the channel's lock, but `pending`, which any thread may
 * read, and `context`, which stays as it is until the order is answered.
 */
struct orders {
	enum engine_order order;
	CUcontext context;
	uint64_t bytes; /* of the order, in and out */
	enum sw_status status;
	bool done, left;      /* carried out; nobody waits for it any more */
	_Atomic bool pending; /* the mover has not taken it yet */
};

/* Room for new blocks. Atomic: threads that allocate and the mover's touch it without a lock. */
struct new_blocks {
	_Atomic bool makes_room; /* the mover makes some, if it is asked to (spill_room_for_new) */
	/* In `fast`: */
	_Atomic uint64_t wanted;     /* bytes that allocations wait for */
	_Atomic uint64_t not_before; /* ns */
	_Atomic unsigned hopeless;   /* how often it was found that nothing can go for them */
};

/* Does the context live? The mover's thread alone may touch it, but `telling`, which the thread that exits reads. */
struct health {
	unsigned doubts;                        /* errors of events in a row, */
	uint64_t doubted;                       /* ns: the first of them */
	void (*on_lost)(struct engine *engine); /* called by engine_lost() for an illegal address in `fast`; set once */
	_Atomic bool telling;                   /* on_lost runs: the process must not end in the midst of it */
};

/* The oldest record of the log; names beyond `most` are dropped. False: there is none. */
bool engine_read_log(struct engine *engine, uint64_t *ret_function, struct named *ret_named, unsigned most,
		     unsigned *ret_n);
/*
 * The mover knows from here on who uses what, but for those who see all that is `unmapped` now, and wait. False: it does
 * not; somebody is just saying it.
 */
bool engine_hears_all(struct engine *engine);
/*
 * A refusal may be for a moment only, for lack of memory for page tables, say. So what must succeed is tried again and
 * again: the first times at once, then for a tenth of a second. *tries is 0 at first. False: that was enough.
 */
bool engine_tries(unsigned *tries);
/* Nothing moves any more, for good: the context died, or memory is lost. Every wait ends. */
void engine_die(struct engine *engine, const char *why);
/* The same, because a context answered with this error; says what was under way. */
void engine_lost(struct engine *engine, CUresult result);
/* An event answered with an error: once may be chance; again and again it is the context that died. */
void engine_doubt(struct engine *engine, CUresult result);

/* Give the mover an order and wait for it, for so long. BUSY: it was not carried out in time. */
enum sw_status engine_ask(struct engine *engine, enum engine_order order, CUcontext context, uint64_t bytes,
			  unsigned patience_ms, uint64_t *ret_bytes);

/*
 * In `fast`: wait until so many bytes of the device are free, while the mover sends out what is not needed soon. Not when
 * nothing can go, and not for ever: then the block begins on the host.
 */
void engine_wait_for_room(struct engine *engine, uint64_t bytes);

/* Bytes of the device budget; where others fill the device it is what there is. */
uint64_t engine_budget(const struct engine *engine);
/*
 * The device budget has no room for a piece of that many units. What the heaps of other devices keep free of it comes
 * back at once (returns true); what they use of it is asked back, up to as much as this heap has away from the
 * device.
 */
bool engine_recall_lent(struct engine *engine, unsigned units);

#endif
