/*
 * inside.h: the engine of one device, for the mover's files. Each file has a header of its own; from the ground up, so that
 * a file calls those above it in this list, never those below:
 *
 *   engine.c     what submissions tell the mover and wait for; the device budget; how the engine dies
 *   piece.c      one piece: its marks, what the plan knows of it, small blocks that do not leave, the end of a move
 *   link.c       the streams that pieces are copied on
 *   turns.c      which copies changes of mappings wait for
 *   tell.c       what figures and the trace hear of moves
 *   rest.c       pieces on the host that are not mapped
 *   move.c       one piece from here to there, and what to do when the driver refuses
 *   listen.c     what the mover hears: of the heap, and of what was submitted
 *   choose.c     which piece comes in, which goes out, and whether to wait
 *   gap.c        the exact mode: moving while nothing runs
 *   gap_order.c  the same by order: suspending, making room for others and for new blocks
 *   recall.c     what goes back to peers that need their memory
 *   stop.c       what is said when `fast` has stopped a job
 *   discard.c    contents that need not be copied
 *   mover.c      the engine's beginning, and its thread: the order of business
 *
 * All of it belongs to the mover's thread alone but for what stands before the line.
 */
#ifndef SPILLWAY_SPILL_INSIDE_H
#define SPILLWAY_SPILL_INSIDE_H

#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/context/context.h"
#include "shim/submit/claims.h"
#include "shim/submit/done.h"
#include "shim/mover/choose.h"
#include "shim/mover/discard.h"
#include "shim/mover/engine.h"
#include "shim/mover/gap.h"
#include "shim/mover/link.h"
#include "shim/mover/listen.h"
#include "shim/mover/move.h"
#include "shim/mover/mover.h"
#include "shim/mover/piece.h"
#include "shim/mover/recall.h"
#include "shim/mover/rest.h"
#include "shim/mover/stop.h"
#include "shim/mover/tell.h"
#include "shim/mover/turns.h"
#include "shim/plan/extent.h"
#include "shim/plan/governor.h"
#include "shim/plan/plan.h"
#include "shim/plan/trial.h"
#include "shim/trace/trace.h"

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

struct engine {
	struct device *device;
	struct heap *heap;
	struct arena *arena;
	bool exact;

	struct tape tape; /* what was submitted, for the mover */

	struct lock lock;           /* waiters, order */
	struct clock_cond answered; /* a waiter, or an order */
	struct waiter *waiters;
	_Atomic unsigned n_waiters;
	enum engine_order order;
	uint64_t order_bytes; /* of the order, in and out */
	enum sw_status order_status;
	bool order_done, order_left; /* carried out; nobody waits for it any more */
	CUcontext order_context;
	_Atomic bool has_order;

	pthread_mutex_t wake_lock;
	struct clock_cond wake;
	_Atomic bool asleep;

	struct mark everything;
	_Atomic bool hungry, dead;
	_Atomic bool makes_room; /* for new blocks, if it is asked to (spill_room_for_new) */
	/* In `fast`: bytes that allocations wait for; how often it was found that nothing can go for them; not before: ns. */
	_Atomic uint64_t new_wanted, new_not_before;
	_Atomic unsigned new_hopeless;
	_Atomic bool telling; /* why fast stopped the job (on_lost); the process does not end in the midst of it */
	void (*on_lost)(struct engine *engine); /* called by engine_lost() for an illegal address in `fast` (stop.c) */

	pthread_t thread;
	bool has_thread, ended;

	/* ---- the mover's own ---- */
	struct claims *claims; /* NULL in `exact`: nothing is taken away from what runs there */
	struct plan *plan;
	struct extents *extents;
	struct governor governor;
	struct trial trial;
	bool governor_allows;

	_Atomic(CUcontext) context; /* of the streams and events; NULL: none yet. Also read by who ends one */
	CUstream stream_out, stream_in;
	_Atomic uint32_t *go; /* 1: copies go on; host memory of the context's; NULL: they never pause */
	CUdeviceptr go_address;
	bool in_gap;                         /* nothing pauses for the mover */
	enum trace_why why_in, why_out;      /* of the moves that begin now, for the trace */
	uint64_t gap_began, gap_in, gap_out; /* ns; bytes moved up to then */
	/* The latest submission when the gate began to be closed; up to there what the gap waits for is done. */
	uint64_t gap_newest, gap_done;
	uint64_t step_began; /* the submission with which the program began its period anew; 0: none did */
	bool cannot_wait;    /* the driver refuses such waits */
	struct turns turns;  /* which copies they are for */
	struct queue out, in;
	struct rest rest[RESTS]; /* oldest first */
	unsigned n_rest;

	bool ready_asked;
	struct context_idle ready_idle;
	uint64_t begun;         /* ns: when it began to look; 0: not yet */
	bool knows_most;        /* the future of most memory has been known since then */
	uint64_t governed;      /* ns: when the governor was asked last */
	uint64_t stock_after;   /* ns: nothing is pinned ahead before */
	uint64_t stocked;       /* ns: when no host memory was missing that could be pinned ahead, */
	uint64_t stocked_moved; /* what had moved until then, */
	uint64_t stocked_heard; /* and n_submissions */
	bool ready;             /* tracked long enough: every submission that was not is done */
	uint64_t n_submissions; /* heard of */
	uint64_t named_bytes;   /* that they named, as far as is known */
	bool *ahead;            /* by piece: brought ahead, and not named by a submission since */
	uint8_t *kept;          /* by piece: units of it that stay on the device, and why, 0: none (piece.c) */
	uint64_t kept_units[2]; /* their sums: of small blocks, and of those that a rule keeps */
	uint32_t *left;         /* by piece: ms (clock_now) at which it left the device; 0: it is there, or never was */
	uint64_t *stamps, stamp; /* by piece: seen in this look */
	uint32_t refused[64];    /* in a gap: victims the driver would not let go */
	unsigned n_refused;
	unsigned doubts;         /* errors of events in a row, */
	uint64_t doubted;        /* the first of them */
	uint64_t copied;         /* ns: when copies were last under way */
	uint64_t busy_since;     /* ns: up to then the time with moves under way is in STAT_link_us, */
	uint64_t busy_rest;      /* but for this, while none is */
	unsigned n_told;         /* of moves that have begun, and not ended */
	unsigned n_back;         /* of those under way, how many were taken back */
	struct travels *travels; /* what was in transit lately (stop.c) */

	uint64_t done;                /* submissions up to this one are done that can matter (done_poll) */
	uint64_t progress;            /* ns: when `done` last grew, or a copy ended */
	bool stalled;                 /* the GPU was waited for in vain; nobody waits for it until it makes progress */
	uint64_t moved_in, moved_out; /* bytes, ever */
	bool starving;                /* somebody waits for memory that is not free yet */
	bool suspended;
	_Atomic bool is_away; /* suspended, or about to be: what is made now begins on the host */
	uint64_t suspended_bytes;

	struct wishes wishes;                               /* of one gap */
	uint64_t gap_patience, gap_not_before, gap_backoff; /* ns */

	struct piece_list pieces;   /* scratch: those of one submission */
	struct piece_list leaving;  /* those that the program wants on the host; some twice, some gone */
	struct piece_list recalled; /* those on peers that want memory back; some gone (recall.c) */
	uint64_t recall_not_before; /* ns */
	struct piece_list aside;    /* those that the plan must not name until the GPU gets on */
};

/* ---- engine.c ---- */
/* The oldest record of the log; names beyond `most` are dropped. False: there is none. */
bool engine_read_log(struct engine *engine, uint64_t *ret_function, struct named *ret_named, unsigned most,
		     unsigned *ret_n);
/*
 * The mover knows from here on who uses what, but for those who see all that is `unmapped` now, and wait. False: it does
 * not; somebody is just saying it.
 */
bool engine_hears_all(struct engine *engine);
void engine_wake(struct engine *engine);
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
 * The device budget has no room for a piece of that many units. What the heaps of other devices keep free of it comes back
 * at once (returns true); what they use of it is asked back, up to as much as this heap has away from the device.
 */
bool engine_recall_lent(struct engine *engine, unsigned units);

#endif
