/*
 * submission.h: who touches what. Every entry point that submits work goes through here; while the heap is under no pressure
 * that costs one atomic increment and decrement, so that the engine knows how many submissions are inside the driver.
 *
 * With tracking on, a submission (struct submission, one a thread at a time) goes through these steps:
 *
 *   submission_open()    a submission begins
 *   submission_stream(), submission_function(), submission_name() ...
 *                 operands.h tells the stream, what is run, and every address it names
 *   admit()   it is logged for the mover, and nothing of the blocks named is unmapped from here on. If something it
 *                 wants is on its way, it waits for that. While a gap is open it waits at the gate.
 *   the real call
 *   submission_close()   the submission gets its number, until which the blocks are used; now and then an event is recorded
 *
 * What keeps its blocks where they are is one of three things:
 *
 *   the gate      where memory moves in gaps alone nothing is unmapped while anybody is inside the driver who may touch it
 *   a ticket      where it moves beside what runs (inflight_ticket.h): beside the names in the record for the mover
 *   holding them  each by its mark, two locked operations a block: what waits, lest that is taken for which it waits; what
 *                 has no ticket, since its names are too many, not all known, or found no room in the log; and everything
 *                 that is submitted once somebody must know at once who names what (submission_ask_to_pin)
 *
 * Every wait has an end but that of a suspended process: the mover answers within its patience (schedule.c), what is on its
 * way and does not get on is mapped where it was, and the gate is given up by whoever has waited too long while it is only
 * being closed. Nothing here can fail for the program: without memory for its names a
 * submission is one that may touch anything, and holds and waits as such.
 */
#ifndef SPILLWAY_SUBMISSION_H
#define SPILLWAY_SUBMISSION_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct submission;

/* ---- what operands.h tells ---- */

/* The stream of the submission. per_thread: a _ptsz or _ptds spelling, whose stream 0 is this thread's own. Entry points
 * without a stream (synchronous copies and sets) use stream NULL. */
void submission_stream(struct submission *use, CUstream stream, bool per_thread);

/*
 * The submission is several launches, each on a stream of its own. The first one's is told by submission_stream(), too; the list
 * must last until submission_close().
 */
void submission_launches(struct submission *use, const CUDA_LAUNCH_PARAMS *launches, unsigned n);

/* What is run: a number that is equal for equal work (a function handle, an entry point's id). */
void submission_function(struct submission *use, uint64_t function);
uint64_t submission_what(const struct submission *use); /* as told, or the entry point's id */

/*
 * The submission names memory at this address. bytes: how far it reaches if that is known (copies, sets), 0 for a
 * pointer about which nothing more is known (kernel parameters). Addresses outside the heaps are ignored, so it may be
 * called with any 8-byte word. No lock, a table look-up.
 */
void submission_name(struct submission *use, CUdeviceptr address, size_t bytes);

/* Is this an address of memory in a heap that is alive? Any 8-byte word; no lock. */
bool submission_is_heap(CUdeviceptr address);
/* What is not among these bytes is in no heap. None: there is no heap. */
void submission_heap_span(CUdeviceptr *ret_first, CUdeviceptr *ret_bytes);

/*
 * The submission may touch memory that cannot be read from its arguments: a graph with nodes we cannot look into. While
 * it runs nothing may be in transit unmapped.
 */
void submission_unknown(struct submission *use);

/* ---- what the entry points call ---- */

#define SUBMISSION_STRIPES 64

/*
 * Submissions inside the driver, by thread; a cache line each. With tracking on, also what the latest of them is; and
 * where memory moves in gaps and there are several devices, which of them, bits, have nothing to do with it: it neither
 * runs there nor touches the heap. Set once it is let in and taken back before it leaves, by each of several threads, so
 * that of the last one inside it says at most what is so.
 */
struct submission_stripe {
	_Atomic uint32_t inside;
	_Atomic uint32_t id;
	_Atomic uint64_t function;
	_Atomic uint64_t apart;
} __attribute__((aligned(64)));
extern struct submission_stripe submission_stripes[SUBMISSION_STRIPES];
extern __thread struct submission_stripe *submission_my_stripe __attribute__((tls_model("initial-exec")));

/* Bits of submission_state. 0: submissions pass straight through. */
#define SUBMISSION_TRACKING 1u /* they are tracked */
#define SUBMISSION_DRAINING                                                                                            \
	2u /* and wait at the gate, which is being closed: whoever has waited too long may open it again */
#define SUBMISSION_CLOSED 4u /* the gate is closed: memory is being remapped, or the process is suspended */
#define SUBMISSION_AHEAD                                                                                               \
	8u /* they go that way for what they name alone: managed memory is brought ahead of them (managed_prefetch.h) */
#define SUBMISSION_TRACE   16u /* or to be traced (trace.h); with these two alone nothing is moved and nobody waits */
#define SUBMISSION_PINNING 32u /* they hold their blocks also when they need not wait; with tracking */
#define SUBMISSION_TICKETS 64u /* memory moves beside them: they have a ticket, or hold their blocks; with tracking */
extern _Atomic uint32_t submission_state;

struct submission_stripe *submission_take_stripe(void);

/* Raise first, look second: the mover does it the other way round, so that one of the two sees the other. */
static inline struct submission_stripe *submission_enter(void)
{
	struct submission_stripe *stripe = submission_my_stripe;

	if (__builtin_expect(!stripe, 0))
		stripe = submission_take_stripe();
	atomic_fetch_add(&stripe->inside, 1);
	return stripe;
}

static inline void submission_leave(struct submission_stripe *stripe)
{
	atomic_fetch_sub_explicit(&stripe->inside, 1, memory_order_release);
}

static inline bool submission_is_watched(void)
{
	return atomic_load(&submission_state) !=
	       0; /* after submission_enter(), in one order with the mover's look (submission_is_quiet) */
}

/* The mover is at work: waiting for it has an end. */
static inline bool submission_is_tracking(void)
{
	return (atomic_load(&submission_state) &
		~(SUBMISSION_AHEAD | SUBMISSION_TRACE | SUBMISSION_PINNING | SUBMISSION_TICKETS)) != 0;
}

/* NULL: a call from inside another one, which is tracked, or from inside ours; it may still be admitted. */
struct submission *submission_open(uint64_t id);
struct submission_stripe *admit(struct submission *use);
/* Admitted: does it hold what it names? */
bool submission_pins(const struct submission *use);
void submission_close(struct submission *use, struct submission_stripe *stripe);

/* ---- what the mover calls ---- */

struct channel;
struct arena;

/* Addresses of this arena count, and what names them is posted to this channel. */
bool submission_add_arena(const struct arena *arena, struct channel *channel);
/* Is no submission inside the driver at this moment? Those at the gate are not inside. */
bool submission_is_quiet(void);
/* The same of those that may have to do with these devices, bits; while the gate lets none of them in. */
bool submission_is_quiet_on(uint64_t devices);
/* Stripes, a bit each, in which nobody is inside at this moment but the submission that asks, which is. */
uint64_t submission_empty_stripes(void);
/* What those who are inside the driver wrote before they entered it can be read from here on. */
void submission_see_inside(void);
/* What is inside the driver at this moment, as far as it is known; for messages. Has no number yet (completion.h). */
struct completion_what;
void submission_each_inside(void (*visit)(void *argument, const struct completion_what *what), void *argument);
/*
 * Switch on and off, not both at once. beside: memory moves beside what runs. Off: every wait ends, and nothing is held
 * from then on.
 */
void submission_set_tracking(bool on, bool beside);
/*
 * From now on, until tracking is switched off, every submission that enters the driver holds its blocks: for who must
 * know what has been submitted (discard.c). False: it was so already.
 */
bool submission_ask_to_pin(void);
/* There is managed memory that launches are to bring. Stays on; costs what tracking costs. */
void submission_set_ahead(void);
/* Submissions are to be traced, or no more. */
void submission_set_trace(bool on);
/*
 * Those are to wait at the gate that may have to do with these devices, bits; all, at first. Before it is being closed;
 * later, only more.
 */
extern _Atomic uint64_t gate_devices;
void gate_for(uint64_t devices);
/*
 * The gate, in three steps: begin to close it; close it for good, false when a submission has lost its patience and
 * opened it again; open it.
 */
void gate_drain(void);
bool gate_close(void);
void gate_open(void);
/* It is not to be closed after all; a gate that was closed before stays so. */
void gate_undrain(void);
/* A submission waits, outside of the driver, until the gate is open. */
void gate_wait(void);
/* How long a submission waits at a gate that is only being closed, in ms. */
#define GATE_PATIENCE_MS 500

/* After a fork, in the child, and at the end of the process: everything passes, nobody waits. */
void submission_stop(void);

#endif
