/*
 * use.h: who touches what. Every entry point that submits work goes through here; while the heap is under no pressure
 * that costs one atomic increment and decrement, so that the engine knows how many submissions are inside the driver.
 *
 * With tracking on, a submission (struct use, one a thread at a time) goes through these steps:
 *
 *   use_open()    a submission begins
 *   use_stream(), use_function(), use_name() ...
 *                 operands.h tells the stream, what is run, and every address it names
 *   use_admit()   it is logged for the mover, and nothing of the blocks named is unmapped from here on. If something it
 *                 wants is on its way, it waits for that. While a gap is open it waits at the gate.
 *   the real call
 *   use_close()   the submission gets its number, until which the blocks are used; now and then an event is recorded
 *
 * What keeps its blocks where they are is one of three things:
 *
 *   the gate      where memory moves in gaps alone nothing is unmapped while anybody is inside the driver who may touch it
 *   a ticket      where it moves beside what runs (ticket.h): beside the names in the record for the mover
 *   holding them  each by its mark, two locked operations a block: what waits, lest that is taken for which it waits; what
 *                 has no ticket, since its names are too many, not all known, or found no room in the log; and everything
 *                 that is submitted once somebody must know at once who names what (use_ask_to_hold)
 *
 * Every wait has an end but that of a suspended process: the mover answers within its patience (choose.c), what is on its
 * way and does not get on is mapped where it was, and the gate is given up by whoever has waited too long while it is only
 * being closed. Nothing here can fail for the program: without memory for its names a
 * submission is one that may touch anything, and holds and waits as such.
 */
#ifndef SPILLWAY_USE_H
#define SPILLWAY_USE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct use;

/* ---- what operands.h tells ---- */

/* The stream of the submission. per_thread: a _ptsz or _ptds spelling, whose stream 0 is this thread's own. Entry points
 * without a stream (synchronous copies and sets) use stream NULL. */
void use_stream(struct use *use, CUstream stream, bool per_thread);

/*
 * The submission is several launches, each on a stream of its own. The first one's is told by use_stream(), too; the list
 * must last until use_close().
 */
void use_launches(struct use *use, const CUDA_LAUNCH_PARAMS *launches, unsigned n);

/* What is run: a number that is equal for equal work (a function handle, an entry point's id). */
void use_function(struct use *use, uint64_t function);
uint64_t use_what(const struct use *use); /* as told, or the entry point's id */

/*
 * The submission names memory at this address. bytes: how far it reaches if that is known (copies, sets), 0 for a
 * pointer about which nothing more is known (kernel parameters). Addresses outside the heaps are ignored, so it may be
 * called with any 8-byte word. No lock, a table look-up.
 */
void use_name(struct use *use, CUdeviceptr address, size_t bytes);

/* Is this an address of memory in a heap that is alive? Any 8-byte word; no lock. */
bool use_is_heap(CUdeviceptr address);
/* What is not among these bytes is in no heap. None: there is no heap. */
void use_heap_span(CUdeviceptr *ret_first, CUdeviceptr *ret_bytes);

/*
 * The submission may touch memory that cannot be read from its arguments: a graph with nodes we cannot look into. While
 * it runs nothing may be in transit unmapped.
 */
void use_unknown(struct use *use);

/* ---- what the entry points call ---- */

#define USE_STRIPES 64

/*
 * Submissions inside the driver, by thread; a cache line each. With tracking on, also what the latest of them is; and
 * where memory moves in gaps and there are several devices, which of them, bits, have nothing to do with it: it neither
 * runs there nor touches the heap. Set once it is let in and taken back before it leaves, by each of several threads, so
 * that of the last one inside it says at most what is so.
 */
struct use_stripe {
	_Atomic uint32_t inside;
	_Atomic uint32_t id;
	_Atomic uint64_t function;
	_Atomic uint64_t apart;
} __attribute__((aligned(64)));
extern struct use_stripe use_stripes[USE_STRIPES];
extern __thread struct use_stripe *use_my_stripe __attribute__((tls_model("initial-exec")));

/* Bits of use_state. 0: submissions pass straight through. */
#define USE_TRACKING 1u /* they are tracked */
#define USE_DRAINING 2u /* and wait at the gate, which is being closed: whoever has waited too long may open it again */
#define USE_CLOSED   4u /* the gate is closed: memory is being remapped, or the process is suspended */
#define USE_AHEAD    8u /* they go that way for what they name alone: managed memory is brought ahead of them (ahead.h) */
#define USE_TRACE    16u /* or to be traced (trace.h); with these two alone nothing is moved and nobody waits */
#define USE_HOLDING  32u /* they hold their blocks also when they need not wait; with tracking */
#define USE_TICKETS  64u /* memory moves beside them: they have a ticket, or hold their blocks; with tracking */
extern _Atomic uint32_t use_state;

struct use_stripe *use_take_stripe(void);

/* Raise first, look second: the mover does it the other way round, so that one of the two sees the other. */
static inline struct use_stripe *use_enter(void)
{
	struct use_stripe *stripe = use_my_stripe;

	if (__builtin_expect(!stripe, 0))
		stripe = use_take_stripe();
	atomic_fetch_add(&stripe->inside, 1);
	return stripe;
}

static inline void use_leave(struct use_stripe *stripe)
{
	atomic_fetch_sub_explicit(&stripe->inside, 1, memory_order_release);
}

static inline bool use_is_watched(void)
{
	return atomic_load(&use_state) != 0; /* after use_enter(), in one order with the mover's look (use_is_quiet) */
}

/* The mover is at work: waiting for it has an end. */
static inline bool use_is_tracking(void)
{
	return (atomic_load(&use_state) & ~(USE_AHEAD | USE_TRACE | USE_HOLDING | USE_TICKETS)) != 0;
}

/* NULL: a call from inside another one, which is tracked, or from inside ours; it may still be admitted. */
struct use *use_open(uint64_t id);
struct use_stripe *use_admit(struct use *use);
/* Admitted: does it hold what it names? */
bool use_holds(const struct use *use);
void use_close(struct use *use, struct use_stripe *stripe);

/* ---- what the mover calls ---- */

struct channel;
struct arena;

/* Addresses of this arena count, and what names them is posted to this channel. */
bool use_add_arena(const struct arena *arena, struct channel *channel);
/* Is no submission inside the driver at this moment? Those at the gate are not inside. */
bool use_is_quiet(void);
/* The same of those that may have to do with these devices, bits; while the gate lets none of them in. */
bool use_is_quiet_on(uint64_t devices);
/* Stripes, a bit each, in which nobody is inside at this moment but the submission that asks, which is. */
uint64_t use_empty_stripes(void);
/* What those who are inside the driver wrote before they entered it can be read from here on. */
void use_see_inside(void);
/* What is inside the driver at this moment, as far as it is known; for messages. Has no number yet (done.h). */
struct done_what;
void use_each_inside(void (*visit)(void *argument, const struct done_what *what), void *argument);
/*
 * Switch on and off, not both at once. beside: memory moves beside what runs. Off: every wait ends, and nothing is held
 * from then on.
 */
void use_set_tracking(bool on, bool beside);
/*
 * From now on, until tracking is switched off, every submission that enters the driver holds its blocks: for who must
 * know what has been submitted (discard.c). False: it was so already.
 */
bool use_ask_to_hold(void);
/* There is managed memory that launches are to bring. Stays on; costs what tracking costs. */
void use_set_ahead(void);
/* Submissions are to be traced, or no more. */
void use_set_trace(bool on);
/*
 * Those are to wait at the gate that may have to do with these devices, bits; all, at first. Before it is being closed;
 * later, only more.
 */
extern _Atomic uint64_t use_gate_devices;
void use_gate_for(uint64_t devices);
/*
 * The gate, in three steps: begin to close it; close it for good, false when a submission has lost its patience and
 * opened it again; open it.
 */
void use_gate_drain(void);
bool use_gate_close(void);
void use_gate_open(void);
/* It is not to be closed after all; a gate that was closed before stays so. */
void use_gate_undrain(void);
/* A submission waits, outside of the driver, until the gate is open. */
void use_wait_at_gate(void);
/* How long a submission waits at a gate that is only being closed, in ms. */
#define USE_GATE_PATIENCE_MS 500

/* After a fork, in the child, and at the end of the process: everything passes, nobody waits. */
void use_stop(void);

#endif
