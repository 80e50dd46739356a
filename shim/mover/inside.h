/*
 * inside.h: the mover's state, for the files that make it up:
 *
 *   engine.c     what submissions tell it and wait for; the budget; death
 *   piece.c      one piece: its marks, what the plan knows of it, small blocks that do not leave, the end of a move
 *   mover.c      the engine's beginning, and its thread: the order of business
 *   listen.c     what it hears: of the heap, and of what was submitted
 *   claims.c     which blocks submissions with tickets use
 *   recall.c     what goes back to peers that need their memory
 *   choose.c     which piece comes in, which goes out, and whether to wait
 *   move.c       one piece from here to there, and what to do when the driver refuses
 *   tell.c       what figures and the trace hear of that
 *   rest.c       pieces on the host that are not mapped
 *   link.c       the streams it is copied on
 *   turns.c      which copies changes of mappings wait for
 *   gap.c        the exact mode: moving while nothing runs
 *   gap_order.c  the same by order: suspending, making room for others and for new blocks
 *   discard.c    what need not be copied
 *   stop.c       what is said when fast has stopped a job
 *
 * All of it belongs to the mover's thread alone but for what stands before the line.
 */
#ifndef SPILLWAY_SPILL_INSIDE_H
#define SPILLWAY_SPILL_INSIDE_H

#include "shim/base/clock.h"
#include "shim/context/context.h"
#include "shim/base/lock.h"
#include "shim/submit/claims.h"
#include "shim/submit/done.h"
#include "shim/mover/engine.h"
#include "shim/plan/extent.h"
#include "shim/plan/governor.h"
#include "shim/plan/plan.h"
#include "shim/plan/trial.h"
#include "shim/trace/trace.h"

/* Copies under way each way, at most; enough that the link never waits for us. */
#define MOVES         24
#define MOVES_AT_ONCE 8

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

/* A piece that is being copied. */
struct move {
	struct transit transit;
	CUevent event;                                       /* lives with the slot */
	uint64_t begun;                                      /* ns */
	uint64_t number;                                     /* in the trace; 0: not in it */
	enum { MAPPED_NONE, MAPPED_OLD, MAPPED_NEW } mapped; /* at the program's address, of the two */
	bool is_raised;                                      /* `unmapped` is, of its block */
	bool is_back;     /* it was let go of before its copy ended (move_take_back) */
	bool is_measured; /* the new memory is filled, and copies into the old are under way (turns.c) */
};

/* A piece on the host that is not mapped: it came out, or is about to come in. */
struct rest {
	struct transit transit;
	uint64_t since; /* ns */
	bool comes;     /* in a gap: not to be mapped while it may still come in */
};

/* Moves in the order they were begun. */
struct queue {
	struct move at[MOVES];
	unsigned head, n;
	uint64_t bytes;
	uint64_t ended;   /* ns: when the last one was seen to have ended */
	uint64_t unit_ns; /* what a unit took lately; 0: none has ended yet */
};

/* By place that memory goes to, and way: does a change of a mapping wait for such copies (turns.c)? */
enum turns_way { TURNS_IN, TURNS_OUT, TURNS_WAYS };
struct turns {
	bool waits[CHUNK_PLACES][TURNS_WAYS];
	unsigned pieces[CHUNK_PLACES]; /* that it was measured with */
};

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

/* Pieces on the host that are not mapped, oldest first. */
#define RESTS 512

/* Pieces, by their first units. A list grows (piece_list_add) and keeps its memory. */
struct piece_list {
	uint32_t *at;
	unsigned n, room;
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

/* ---- piece.c ---- */
/* Adds a piece to a list that grows. Returns false if there is no memory; the list is as it was then. */
bool piece_list_add(struct piece_list *list, uint32_t piece);
/*
 * Lists the pieces in use. but_moving: without those that are on their way. The caller must free() its `at`, which is NULL
 * if there is no memory. Locking: takes the heap's lock.
 */
struct piece_list piece_list_all(const struct engine *engine, bool but_moving);
/* The marks of the block, or of the slab, that the piece is of; NULL: of none any more. */
struct mark *piece_block_mark(struct engine *engine, uint32_t piece);
/* May a submission use the piece's block, or wait for it? One that waits does not keep it from coming in. */
bool piece_is_busy(struct engine *engine, uint32_t piece, bool in);
/*
 * Nobody is to submit what names the piece's block: it is about to be unmapped, or is; until it is lowered, as often as it
 * was raised.
 */
void piece_raise(struct engine *engine, const struct transit *transit);
void piece_lower(struct engine *engine, const struct transit *transit);
/* Where submissions find the piece. */
void piece_set_where(struct engine *engine, const struct transit *transit, enum mark_where where);
/* The plan hears where the piece is. */
void piece_tell_plan(struct engine *engine, uint32_t piece);
/* Does the program want this block on the host? */
bool piece_wants_host(const struct engine *engine, const struct mark *block);
/* Need the piece not be copied? Asked while no submission that names it can be given to the driver. */
bool piece_is_discarded(const struct engine *engine, uint32_t block_unit, uint32_t piece);
/* Now and then: what is kept beyond what the present budget allows is not kept any more. */
void piece_keep_follow(struct engine *engine);
/*
 * Map the new memory, else the old, which holds the same as long as the piece is not mapped. When nothing can be mapped
 * the data is safe, but the process cannot go on with it: that is the end of the engine, and false.
 */
bool piece_map_either(struct engine *engine, struct transit *transit, bool *ret_new);
/* The piece is there now, and let go of. is_raised: piece_raise() was called for it. */
void piece_arrived(struct engine *engine, struct transit *transit, enum mark_where where, bool is_raised);

/* ---- stop.c ---- */
struct travels *stop_new(void); /* NULL without memory; free() */
/* Once a look of the mover, before it changes anything: what is in transit. */
void stop_note(struct engine *engine);
/*
 * The context died of an illegal address in `fast`: if anything was in transit within a second before the last look at
 * which all was well, say what, what ran, and what avoids it. Asks the driver nothing.
 */
void stop_tell(struct engine *engine);

/* ---- mover.c ---- */
/* The engine of a device, without its thread yet. Returns NULL if there is no memory for it. */
struct engine *mover_new(struct device *device, struct heap *heap, bool exact);
/* Starts its thread. Returns false if the system has none. */
bool mover_start(struct engine *engine);
/* Bytes: driver calls are made on the threads of an engine. */
#define ENGINE_STACK ((size_t)1 << 20)

/* ---- move.c ---- */
enum move_answer {
	MOVE_BEGUN,
	MOVE_BUSY,    /* submissions use it */
	MOVE_NO_ROOM, /* no memory where it would go */
	MOVE_FAILED,  /* the driver refused; it is where it was */
};
/* gap: nothing runs that may touch it, so use is not asked about, and device memory is copied in place (transit.h). */
enum move_answer move_begin(struct engine *engine, uint32_t piece, enum chunk_place to, bool gap);
/* See to copies that have ended. True: there were some. */
bool move_finish(struct engine *engine);
/* Are any copies under way, any pieces not mapped? */
bool move_any(const struct engine *engine);
/*
 * Copies get on unless the driver has put them behind work of the program's that is held: streams share queues of the
 * hardware. move_is_stuck(): none has ended for much longer than they take. move_take_back(): the pieces are mapped again
 * where they were, for submissions that wait for them; their copies end when they end, for nothing, and until then
 * nothing else begins. A piece that is measured with (turns.c) is mapped where it went. True: nothing is unmapped any more
 * on account of a copy.
 */
bool move_is_stuck(const struct engine *engine);
bool move_take_back(struct engine *engine);
/* Copies under way are given up: what they were to replace is mapped, and stays. */
void move_abandon(struct engine *engine);

/* ---- tell.c ---- */
/* A move begins, and has ended: its data are where they were (stayed), or where they were to go. Each once. */
void tell_begin(struct engine *engine, struct move *move);
void tell_end(struct engine *engine, const struct move *move, bool stayed);
/* The data of one have moved: before what it left is the spare's. */
void tell_moved(struct engine *engine, const struct move *move);
/* The time with moves under way so far, into the figures. */
void tell_busy(struct engine *engine);

/* ---- rest.c ---- */
struct rest *rest_find(struct engine *engine, uint32_t piece); /* NULL: it is none of them */
void rest_add(struct engine *engine, const struct transit *transit);
void rest_drop(struct engine *engine, struct rest *rest);
/* Map the one that came out first. True: there was one. */
bool rest_map(struct engine *engine);
/* Map all of a block but those with this stamp. */
void rest_map_of(struct engine *engine, uint32_t block_unit, uint64_t but);
/* In a gap: unmap a piece on the host that is about to come in. False: not now. */
bool rest_unmap_early(struct engine *engine, uint32_t piece);
/* What has not come in is to be mapped again. */
void rest_give_up_early(struct engine *engine);

/* ---- link.c ---- */
/* Streams and events, in some context of the device. False: none can be had now. */
bool link_open(struct engine *engine);
void link_close(struct engine *engine);
/* Copy a piece, in the order of the calls, and record its event behind that. On an error nothing of it runs any more. */
CUresult link_copy(struct engine *engine, struct move *move, bool gap);
/* Wait until the stream has done all that it was given. False: the driver does not wait; the context died, as a rule. */
bool link_settle(CUstream stream);
/* May copies that changes of mappings wait for go on after the part they are at? Not for longer than one; in gaps always. */
void link_let_go(struct engine *engine, bool go);

/* How long nothing need be looked at for the sake of copies: ns. tries: looks in vain since the last that ended. */
uint64_t link_nap_ns(const struct engine *engine, unsigned tries);
/* A copy has ended: for link_nap_ns(). */
void link_ended(struct queue *queue, const struct move *move);

/* ---- turns.c ---- */
/* As on most machines. */
void turns_init(struct turns *turns);
/*
 * The copy of a piece that comes out has ended, and nobody uses the piece, or nothing runs: if nothing is known of the
 * place it went to, measure it. Takes about 25 ms, once, and changes neither of its chunks. What cannot be measured stays as
 * it is. False: copies that it made are still under way, and the move's event is behind them.
 */
bool turns_learn(struct engine *engine, struct move *move);

/* ---- listen.c ---- */
/* Read the log and the news; keep the plan up to date. True: there was something. */
bool listen_read(struct engine *engine);
/* The pieces that a list of names touches, each once, into engine->pieces, stamped: how many. */
unsigned listen_pieces(struct engine *engine, const struct named *named, unsigned n);

/* ---- choose.c ---- */
/* See to everybody who waits; begin what they want. */
void choose_for_waiters(struct engine *engine);
/* Begin what the plan foresees. */
void choose_ahead(struct engine *engine);
/* Send out what the program wants on the host, as far as it can go now. */
void choose_leave(struct engine *engine, bool gap);
void choose_progress(struct engine *engine);
/* In `fast`: room for the new blocks that are waited for. */
void choose_for_new(struct engine *engine);
bool choose_may_move(const struct engine *engine);
/* Can it, whether that pays or not? */
bool choose_can_move(const struct engine *engine);
/* Is there room in the queue, and is so much memory free to be under way? */
bool choose_may_begin(const struct engine *engine, const struct queue *queue);
uint32_t choose_ahead_units(const struct engine *engine);
/* So much host memory is to lie ready for what leaves (heap_stock). */
uint64_t choose_stock_bytes(const struct engine *engine);
/* The piece has begun to come in: for the statistics. ahead: before a submission wanted it. */
void choose_count(struct engine *engine, uint32_t piece, bool ahead);

/* ---- recall.c ---- */
/* What peers have lent and want back is sent away from there, as far as it can go now. */
void recall_run(struct engine *engine);

/* ---- discard.c ---- */
/* The program no longer needs these bytes of one block. */
void discard_bytes(struct engine *engine, CUdeviceptr address, uint64_t bytes);
/* The same in the order of a stream; the caller is inside a submission to it that names the block. held: and holds it. */
void discard_behind(struct engine *engine, CUdeviceptr address, uint64_t bytes, CUstream stream, bool per_thread,
		    bool held);

/* ---- gap.c ---- */
/* Move everything that waiting submissions and the near future need while nothing runs. */
void gap_run(struct engine *engine);
/*
 * A gap begins, for what may touch the heap or for the whole process; false: given up, the gate is open. And ends.
 */
bool gap_close(struct engine *engine, bool whole);
void gap_open(struct engine *engine);
/* Or it ends, and the gate stays closed until gap_resume(); it opens when no engine is suspended any more. */
void gap_keep_closed(struct engine *engine);
void gap_resume(struct engine *engine);
/*
 * In a gap: send one piece out for what is needed at `when`, of so many units rather than others; false: nothing can go.
 * True and nothing has begun: there is no room for it before what is under way has ended.
 */
bool gap_send_out(struct engine *engine, uint64_t when, unsigned units);
/* Until a copy is expected to have ended; what is under way ends, and all of it is mapped. */
void gap_nap(const struct engine *engine);
void gap_finish(struct engine *engine);

/* ---- gap_order.c ---- */
/* Everything out; the gate stays closed. */
enum sw_status gap_suspend(struct engine *engine, uint64_t *ret_bytes);
/* So much out. BUSY: no safe point came; NOT_SUPPORTED: nothing may move now. */
enum sw_status gap_make_room(struct engine *engine, uint64_t bytes);
/* Room for a new block, and for more to come. BUSY: not now, or nothing can go for it. */
enum sw_status gap_room_for_new(struct engine *engine, uint64_t bytes);

#endif
