// SPDX-License-Identifier: Apache-2.0
/*
 * types.h: what the mover keeps: struct engine, one for each device, the structures in it by the file that they belong
 * to, and at the end what the room keeps for the process. Only the files of the room use them; the rest of the library
 * knows spill.h.
 */
#ifndef SPILLWAY_MOVER_TYPES_H
#define SPILLWAY_MOVER_TYPES_H

#include "shim/base/lock.h"
#include "shim/base/status.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/heap/migration.h"
#include "shim/mover/spill.h"
#include "shim/plan/live_map.h"
#include "shim/plan/governor.h"
#include "shim/plan/piece_sizes.h"
#include "shim/plan/plan.h"
#include "shim/plan/residence.h"
#include "shim/plan/scheduler.h"
#include "shim/plan/tensors.h"
#include "shim/submit/channel.h"
#include "shim/submit/completion.h"
#include "shim/trace/trace.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;

/* ---- engine.c ---- */

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

/* An order. `bytes`: of the device, to have free (ORDER_ROOM, ORDER_NEW) or keep (ORDER_RESIDE); ORDER_BRING: units. */
struct order {
	enum engine_order what;
	CUcontext context;            /* of ORDER_PARK */
	enum residence to;            /* of ORDER_RESIDE */
	enum residence_reason reason; /* and who asks */
	uint64_t bytes;
};

/* The order slot of the mover; it holds one order at a time. */
struct orders {
	/* Guarded by SPILL. It does not change until it is answered; then its `bytes` are the result. */
	struct order order;
	enum sw_status status; /* Guarded by SPILL. */
	bool done;             /* Guarded by SPILL. It was carried out. */
	bool left;             /* Guarded by SPILL. The thread that gave it stopped waiting. */
	bool left_away;        /* Guarded by SPILL. Nothing ran any more when it did (quiesce.residence). */
	/* The mover has not taken the order yet. Written under SPILL; mover_nap() reads it after it set `asleep`. */
	_Atomic bool pending;
	_Atomic int room; /* enum order_room: written by the thread that waits for the order, read by the mover */
};

/* Room for new blocks. Threads that allocate and the mover share it without a lock; their order does not matter. */
struct new_blocks {
	_Atomic bool makes_room; /* the mover makes room on request (spill_room_for_new); written by the mover */
	/* The rest is used in `fast` only. */
	_Atomic uint64_t wanted;     /* bytes that allocations wait for; written by those threads */
	_Atomic uint64_t not_before; /* ns: no allocation waits before this time; written by those threads */
	_Atomic unsigned hopeless;   /* how often the mover found that nothing can be evicted for them; written by it */
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

/* ---- piece.c ---- */

/* A list of pieces, each named by its first unit. It grows (piece_list_add) and never shrinks. */
struct piece_list {
	uint32_t *at;
	unsigned n, room;
};

/* Why a piece stays on the device (piece.c); a later reason is preferred. */
enum keep { KEEP_SMALL, KEEP_MANAGED, KEEP_RULED, KEEP_REASONS };

/* What the mover remembers of pieces, indexed by their first units. Only the mover's thread may touch it. */
struct piece_tables {
	struct {
		uint64_t stamp;   /* equal to `stamp` below: the piece is in the present list (intake.c) */
		uint64_t touched; /* bytes that the submission in intake.weighed uses, as often as it does */
		uint32_t awaited; /* equal to `round` below, or one less: a submission that waits names the piece */
		uint32_t left;    /* ms (clock_now) when it left the device; 0: it is there, or never was */
		uint8_t kept;     /* number of its units that stay on the device; 0: none */
		uint8_t why;      /* enum keep; without meaning if `kept` is 0 */
		bool ahead;       /* prefetched, and not named by a submission since */
	} * at;
	uint64_t stamp;
	uint32_t round;                    /* of looks at the submissions that wait */
	uint64_t kept_units[KEEP_REASONS]; /* sums of what is kept */
};

/* Which memory of a move may be mapped at the program's address. */
enum piece_memory { PIECE_OLD = 1, PIECE_NEW = 2, PIECE_EITHER = 3 /* the new one first: both hold the contents */ };

/* Sums of moves, and of the time that they take. Only the mover's thread may touch it. */
struct move_stats {
	/* reason of the moves that begin now, for the trace; set by the code that begins moves */
	enum trace_why why_in, why_out;
	uint64_t moved_in, moved_out; /* bytes since the start */
	unsigned n_told;              /* moves that have begun and not ended */
	uint64_t busy_since;          /* ns: time with moves in flight is counted in STAT_link_us up to here, */
	uint64_t busy_rest;           /* except for this remainder, which is valid while none is in flight */
};

/* ---- alive.c ---- */

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

/* What is dead is overwritten with this byte (policy.h, POLICY_CONTENTS_POISON). */
#define ALIVE_POISON 0xFF

/* ---- link.c ---- */

/* A copy of a piece that is in flight. */
struct move {
	struct migration migration;
	CUevent event;                                       /* belongs to the slot; is reused by later moves */
	uint64_t begun;                                      /* ns: time when the copy was queued */
	uint64_t number;                                     /* number in the trace; 0: not traced */
	uint64_t copied;                                     /* bytes that are copied: what is alive */
	enum { MAPPED_NONE, MAPPED_OLD, MAPPED_NEW } mapped; /* which memory is mapped at the program's address */
	bool is_raised;                                      /* piece_raise() was called for the piece */
	bool is_empty;                                       /* what it comes from holds nothing (alive_skip) */
	bool is_back; /* it was taken back before its copy ended (migrate_take_back) */
	/* the new memory is filled, but copies into the old one are still in flight (link.c) */
	bool is_measured;
};

/* Moves in one direction, in the order in which they were begun. */
struct queue {
	struct move at[MOVES];
	unsigned head, n;
	uint64_t bytes;
	uint64_t ended;   /* ns: when the last one was seen to have ended */
	uint64_t unit_ns; /* recent copy time of one unit, in ns; 0: no copy has ended yet */
};

/*
 * The streams of one engine, and the word that copies wait for between their parts. Only the mover's thread may touch
 * it, except `context`, which a thread that ends a context reads.
 */
struct link {
	/*
	 * Context of the streams and events; NULL: none yet. Written by the mover, which reads context_any() after it
	 * (link_open). A thread that ends the context takes it out of there first, then reads this (has_let_go).
	 */
	_Atomic(CUcontext) context;
	CUstream stream_out, stream_in;
	_Atomic uint32_t *go; /* 1: copies proceed; host memory, allocated in the context; NULL: copies never pause */
	CUdeviceptr go_address;
	bool cannot_wait; /* the driver does not support waits for values */
	bool in_gap;      /* the device is quiesced: copies do not pause for the mover (quiesce.c) */
};

/*
 * Whether a change of a mapping waits for copies, by the place that memory is evicted to, and by direction
 * (link.c).
 */
enum pte_contention_way { PTE_CONTENTION_IN, PTE_CONTENTION_OUT, PTE_CONTENTION_WAYS };

struct pte_contention {
	bool waits[CHUNK_PLACES][PTE_CONTENTION_WAYS];
	unsigned pieces[CHUNK_PLACES]; /* number of pieces that it was measured with */
};

/* ---- migrate.c ---- */

/* A piece on the host that is not mapped: it was evicted, or is about to be fetched. */
struct deferred_map {
	struct migration migration;
	uint64_t since; /* ns: time of the unmapping */
	bool comes;     /* while the device is quiesced: not to be mapped while it may still be fetched */
	bool is_empty;  /* nothing was copied when it left: see alive.c */
};

/* The most deferred maps; they are kept oldest first. */
#define DEFERRED_MAPS 512

/* Only the mover's thread may touch it. */
struct deferred_maps {
	struct deferred_map at[DEFERRED_MAPS];
	unsigned n;
};

/* What may not leave because a submission waits for it. */
enum waits_keep {
	WAITS_KEEP_BLOCKS, /* all of its blocks: what moves now does not help it */
	/*
	 * The pieces that it names, as far as is known: what leaves makes room for it. A submission looks whether all
	 * of its blocks are mapped when it has pinned them, and waits again if not.
	 */
	WAITS_KEEP_PIECES,
	WAITS_KEEP_NOTHING, /* what it names is exchanged */
};

/* The copies in flight each way. Only the mover's thread may touch it. */
struct migrations {
	struct queue out, in;
	unsigned n_back; /* number of them that were taken back (migrate_take_back) */
	enum waits_keep waits_keep;
};

/* Only the mover's thread may touch it. */
struct unbacked {
	struct migration *at;
	unsigned n, room;
};

/* ---- intake.c ---- */

/* The pieces of a submission that waits, the most used first, and what they were computed for. */
struct weighed {
	uint64_t *keys; /* scratch for sorting; one piece of memory with what follows */
	uint32_t *pieces, *uses;
	unsigned n, room;
	uint64_t who; /* hash of the names */
	const struct waiter *waiter;
	uint64_t since; /* of the waiter */
};

/* What was read so far. Only the mover's thread may touch it. */
struct intake {
	uint64_t n_submissions; /* submissions read from the log */
	uint64_t read_at;       /* ns: when the latest of them was read */
	uint64_t named_bytes;   /* bytes that they named, as far as is known */
	uint64_t step_began;    /* number of the submission that began the program's present period; 0: none did */
	struct tensor_extents *extents;
	/* Scratch: what the submission names where an allocator reports, in bytes from the beginning of the arena. */
	uint64_t named_at[INTAKE_NAMED_AT];
	unsigned n_named_at;
	bool no_kernel; /* the record that is being read is of a copy, a set, or anything but kernels and graphs */
	struct piece_list pieces; /* scratch: the pieces of one submission (intake.c) */
	struct weighed weighed;
	/* Pieces that the program wants on the host, for schedule_leave(). May contain duplicates and freed pieces. */
	struct piece_list leaving;
};

/* ---- schedule.c ---- */

/* The progress of the GPU. Only the mover's thread may touch it, except `done`, which any thread may read. */
struct progress {
	_Atomic uint64_t done;   /* submissions up to this one that can matter have completed (completion_poll) */
	uint64_t last;           /* ns: when `done` last grew, or a gap began or ended */
	struct piece_list aside; /* pieces that the plan must not choose until the GPU makes progress */
};

/* ---- quiesce.c ---- */

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
	/*
	 * enum residence; not RUNS from the moment at which nothing runs any more: new blocks start on the host.
	 * Written by the mover, and by spill_finish() where nobody waits for what does not leave. Any thread reads it.
	 */
	_Atomic int residence;
	_Atomic unsigned reasons; /* enum residence_reason: who holds it; written by the mover, read by any thread */
	uint64_t left_bytes;      /* of the device, that were given back */
};

/* ---- fault_report.c ---- */

/* One block, as it was last seen in transit. */
struct travel {
	uint32_t block_unit;
	uint64_t seen;             /* ns; 0: this entry is free */
	uint64_t out, in, resting; /* bytes on their way to the host, to the device, and evicted but not mapped yet */
};

/* The most blocks that are remembered. */
#define TRAVELS 64

/* What was in transit recently. Only the mover's thread may touch it. */
struct travels {
	struct travel at[TRAVELS];
	unsigned latest; /* index of the last entry used; pieces of one block follow each other */
	uint64_t well;   /* ns: the last pass before any sign of a death; 0: none */
};

/* ---- mover.c ---- */

/* Only the mover's thread may touch it. */
struct recall {
	struct piece_list pieces; /* pieces on peers that want memory back; some may have gone since */
	uint64_t not_before;      /* ns: nothing is recalled before this time */
};

/*
 * The thread of the engine, and when memory last moved. Only the thread itself may touch it once it runs,
 * but for `left`, which others read.
 */
struct loop {
	bool has_thread;
	/* Its thread calls the driver no more. Written before channel.dead, read after it (has_ended). */
	_Atomic bool left;
	uint64_t copied;   /* ns: when copies were last in flight */
	uint64_t quiet_ns; /* how long ago that was when this pass began */
	uint64_t governed; /* ns: when the governor was last updated */
};

/* Whether everything that runs on the device is known. Only the mover's thread may touch it. */
struct tracking {
	bool asked; /* `idle` holds a query that is not answered yet */
	struct context_idle idle;
	bool complete; /* every submission that was not tracked has completed */
	uint64_t from; /* the latest submission when that was so: what comes after it is numbered */
};

/*
 * State of pinning host memory ahead of use (pin_reserve() in mover.c). Only the mover's thread may touch it, except
 * `leaving` and `pinned`.
 */
struct host_reserve {
	uint64_t after;           /* ns: nothing is pinned ahead before this time */
	uint64_t since;           /* ns: when the reserve last needed nothing that could be pinned */
	uint64_t moved;           /* bytes that had moved until then */
	uint64_t heard;           /* submissions that had been read until then */
	_Atomic uint64_t leaving; /* bytes that will leave at once; 0: not known (spill_leaves_soon) */
	_Atomic uint64_t pinned;  /* ns: when pinning for them last began; 0: none is pinned now */
	uint64_t leaving_after;   /* ns: nothing is pinned for them before this time */
};

/* Stack size in bytes; driver calls are made on the threads of an engine. */
#define ENGINE_STACK ((size_t)1 << 20)

/* ---- the engine ---- */

struct engine {
	/* Set by mover_new(), constant afterwards. */
	struct device *device;
	struct heap *heap;
	struct arena *arena;

	/*
	 * Moves memory in gaps alone. Written by the mover's thread alone (orders.c), in a gap; any thread may read it.
	 */
	_Atomic bool exact;

	/* Shared with submissions. Its lock (SPILL) also protects `orders`. */
	struct channel channel;

	/* Requests of other threads. */
	struct orders orders;
	struct new_blocks new_blocks;

	/*
	 * State of the mover. Each struct says who may touch it; only the mover's thread may touch what the pointers
	 * here point to.
	 */
	/* pins of submissions in flight; NULL if memory has not moved beside what runs yet */
	struct inflight *inflight;
	struct plan *plan;
	struct travels travels;
	struct health health;
	struct piece_tables by_piece;
	struct lifetimes *lifetimes; /* births and deaths in the heap; NULL: everything is alive */
	struct unseen unseen;
	bool poisons; /* what is dead is overwritten when it moves */
	struct link link;
	struct pte_contention contention; /* which copies contend with changes of mappings */
	struct move_stats stats;
	struct deferred_maps deferred; /* deferred maps, oldest first */
	struct migrations moves;
	struct intake intake;
	struct scheduler scheduler;
	struct progress progress;
	struct quiesce quiesce;
	/* What an order brings (mode_bring()), by units: of these no piece leaves for another. End 0: nothing. */
	uint32_t brings, brings_end;
	struct unbacked unbacked;
	struct recall recall;
	struct tracking tracking;
	struct move_governor governor;
	struct host_reserve reserve;
	struct loop loop;
};

/* ---- for the process ---- */

/* spill.c */
struct discard_state {
	_Atomic bool any; /* something was ever discarded */
	struct lock lock; /* DISCARD */
	uint64_t last;    /* Guarded by DISCARD. Number given last. */
	uint64_t empty;   /* Guarded by DISCARD. Stripes that were seen empty after pinning was requested. */
	uint64_t since;   /* Guarded by DISCARD. First number that only submissions with pins can have; 0: not known. */
};

/* mover.c */
struct alive_state {
	struct lock lock; /* MOVERS */
	unsigned n;       /* Guarded by MOVERS. Engines whose mover runs; while it is not 0, submissions are tracked. */
	unsigned n_fast;  /* Guarded by MOVERS. Those of them whose memory moves beside what runs. */
};

/* quiesce.c */
struct quiescing_state {
	struct lock lock; /* QUIESCE: at most one gap in the process, because all gaps use the one gate */
	/* Guarded by QUIESCE. Engines that do not run (residence.h). They keep the gate closed for all devices. */
	unsigned n_held;
};

/* spill.c */
struct spill_state {
	struct lock lock;                              /* ENGINE_START: held over the start of an engine */
	_Atomic(struct engine *) engines[DEVICE_MOST]; /* by device; NULL: not started; written under ENGINE_START */
	bool registered;                               /* Guarded by ENGINE_START. spill_end() runs at exit. */
	/*
	 * The process ends: moves by order are broken off. Written by spill_end(), which looks after that whether a gap
	 * is open or a piece is unmapped; the mover closes the gate or raises `unmapped` first, then reads this.
	 */
	_Atomic bool ending;
};

struct mover_state {
	struct alive_state alive;
	struct discard_state discard;
	struct quiescing_state quiescing;
	struct spill_state spill;
	_Atomic uint64_t n_moves_traced; /* numbers of moves in the trace (piece.c) */
};

/* Hidden, so that its address is not loaded from the GOT. */
extern struct mover_state mover_state __attribute__((visibility("hidden")));

#endif
