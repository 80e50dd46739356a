// SPDX-License-Identifier: Apache-2.0
/*
 * submission.h: submissions: which memory a call to the driver names, and how it is admitted. Every entry point that
 * submits work passes through here. While nothing is tracked, that costs one atomic increment and one decrement, by
 * which the mover knows whether submissions are inside the driver.
 *
 * With tracking on, a submission (struct submission, at most one per thread) takes these steps:
 *
 *   submission_open()    begins it
 *   submission_stream(), submission_function(), submission_name() ...
 *                        operands.c passes the stream, what is run, and every address that the call names
 *   submission_back()    takes memory for what it names of allocations that are backed on use
 *   admit()              logs it for the mover; from here on the blocks that it names are not unmapped. It waits if one
 *                        of them is not mapped or is worth waiting for, and waits at the gate during a quiesce.
 *   the real call
 *   submission_close()   gives it a number; its blocks are in use until that number is complete. Now and then an event
 *                        is recorded behind it.
 *
 * One of three mechanisms keeps its blocks where they are:
 *
 *   the gate    If memory moves only during a quiesce, nothing is unmapped while a submission that may touch it is
 *               inside the driver.
 *   a ticket    If memory moves beside running work (channel.h), a ticket in the submission log stands for the
 *               pins of the submission.
 *   pins        They cost two locked operations per block. They are for a submission that waits, so that what it waits
 *               for is not evicted; for one without a ticket, because its thread has no place for tickets, or its
 *               names are too many, not all known, or found no room in the log; and for every submission once
 *               submission_ask_to_pin() has been called, because the caller must see at once which blocks are named.
 *
 * Every wait ends, except while the process is suspended: the mover answers within its patience (schedule.c), a
 * migration that makes no progress is undone by mapping the piece where it was, and a submission that has waited too
 * long reopens a gate that is only being closed. Nothing but submission_back() can fail for the program: if there is
 * no memory for its names, a submission counts as one that may touch anything, and pins and waits as such.
 */
#ifndef SPILLWAY_SUBMISSION_H
#define SPILLWAY_SUBMISSION_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct submission;

/* ---- called by operands.c ---- */

/*
 * Sets the stream of the submission. per_thread: the entry point is a _ptsz or _ptds spelling, in which stream 0 is the
 * per-thread default stream. Entry points without a stream (synchronous copies and sets) use stream NULL.
 */
void submission_stream(struct submission *submission, CUstream stream, bool per_thread);

/* Sets what is run: a number that is equal for equal work (a function handle, the id of an entry point). */
void submission_function(struct submission *submission, uint64_t function);
/* Returns what submission_function() set, or else the id of the entry point. */
uint64_t submission_what(const struct submission *submission);

/*
 * Returns the address that an 8-byte word may be, or 0: most words of a structure are small numbers or undefined. No
 * device address is below 1 MiB, or above the 57 bits that the newest processors and GPUs translate; what a program
 * keeps in the bits above is not a part of it.
 */
static inline CUdeviceptr submission_pointer(uint64_t word)
{
	word &= (UINT64_C(1) << 57) - 1;
	return word >> 20 ? word : 0;
}

/*
 * Adds an address that the submission names. bytes: the length if it is known (copies, sets), or 0 (pointers in kernel
 * parameters). Addresses outside the heaps are ignored, so any address may be passed. Costs a table look-up. A pointer
 * that lies less than 512 bytes beside a block names that. In memory that the program has placed itself, in `fast`,
 * names all blocks that the pointer or the range means. Locking: takes no lock.
 */
void submission_name(struct submission *submission, CUdeviceptr address, size_t bytes);

/*
 * The submission writes a pointer with this value (0: many pointers) to device memory. Work that reads it later does
 * not name it, so memory is taken now for what it means in allocations backed on use. Locking: takes no lock.
 */
void submission_stores(struct submission *submission, CUdeviceptr address);

/* Returns whether any 8-byte word is an address of live heap memory. Locking: takes no lock. */
bool submission_is_heap(CUdeviceptr address);
/* Returns whether a pointer names live heap memory, in it or less than 512 bytes beside it. Locking: takes no lock. */
bool submission_means_heap(CUdeviceptr address);
/* Returns a range outside which no pointer names heap memory. *ret_bytes is 0 if there is no heap. */
void submission_heap_span(CUdeviceptr *ret_first, CUdeviceptr *ret_bytes);

/*
 * The submission is a launch of a graph that names these. Takes over the caller's reference, until the submission ends.
 */
struct graph_names;
void submission_graph(struct submission *submission, struct graph_names *names);

/* Returns whether this work is anything but kernels and graphs, whose handles do not have the highest bit set. */
static inline bool submission_is_no_kernel(uint64_t function)
{
	return function >> 63;
}

/*
 * The submission clears memory: it touches nothing but what it names, and tells work that runs already no address. A
 * kernel, and what a graph runs, may follow pointers; a copy, or sets of other values, may bring a pointer to a kernel
 * that was submitted before.
 */
void submission_named_only(struct submission *submission);

/*
 * The submission may touch memory that its arguments do not show: a graph with nodes that we cannot look into. While it
 * runs, no piece may be unmapped for a migration.
 */
void submission_unknown(struct submission *submission);

/* ---- called by the entry points ---- */

#define SUBMISSION_STRIPES 64

/*
 * Counts the submissions that are inside the driver. Each thread has one stripe, and each stripe a cache line; threads
 * share stripes if there are more than SUBMISSION_STRIPES.
 */
struct submission_stripe {
	_Atomic uint32_t inside;
	_Atomic uint32_t id;       /* of the latest submission; with tracking on */
	_Atomic uint64_t function; /* the same */
	/*
	 * Devices (bits) on which the submission does not run and whose heaps it does not touch; set only if memory
	 * moves during a quiesce and there are several devices. Each thread sets it after it is admitted and clears it
	 * before it leaves, so if one submission is inside, the bits never claim too much about it.
	 */
	_Atomic uint64_t apart;
} __attribute__((aligned(64)));
/* Hidden, so that its address is not loaded from the GOT. */
extern struct submission_stripe submission_stripes[SUBMISSION_STRIPES] __attribute__((visibility("hidden")));
extern __thread struct submission_stripe *submission_my_stripe __attribute__((tls_model("initial-exec")));

/*
 * Bits of submission_state. At 0, submissions go straight to the driver.
 */
/* Submissions are tracked. */
#define SUBMISSION_TRACKING 1u
/* The gate is being closed: submissions wait at it, and one that has waited too long may reopen it. */
#define SUBMISSION_DRAINING 2u
/* The gate is closed: memory is being remapped, or the process is suspended. */
#define SUBMISSION_CLOSED 4u
/* Names are read for the trace (trace.h). */
#define SUBMISSION_TRACE 16u
/* Submissions pin their blocks even if they need not wait; with TRACKING. */
#define SUBMISSION_PINNING 32u
/* Memory moves beside submissions, so each has a ticket or pins its blocks; with TRACKING. */
#define SUBMISSION_TICKETS 64u
/* Names are read because allocations are backed on use (submission_back). */
#define SUBMISSION_ON_USE 128u
/* The CPU has pages of managed memory that the GPU has (serve/touch.c); they go back before anything is submitted. */
#define SUBMISSION_TOUCHED 256u
/* Bits by which nothing moves, and no submission waits for the mover. */
#define SUBMISSION_NO_MOVER (SUBMISSION_TRACE | SUBMISSION_ON_USE | SUBMISSION_TOUCHED)
/* Hidden, so that its address is not loaded from the GOT. */
extern _Atomic uint32_t submission_state __attribute__((visibility("hidden")));

/* Gives this thread a stripe, which it keeps. Called once per thread, by submission_enter(). */
struct submission_stripe *submission_take_stripe(void);

/*
 * Counts this thread as inside the driver. It raises the count first and reads submission_state second; the mover sets
 * the state first and reads the counts second, so at least one of the two sees the other.
 */
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

/*
 * Returns whether submissions must take the slow way (submission_open). To decide, the caller must read this after
 * submission_enter(), in one order with the mover's look (submission_is_quiet).
 */
static inline bool submission_is_watched(void)
{
	return atomic_load(&submission_state) != 0;
}

/* Returns whether tracking is on or the gate is in use: a mover is at work, so that a wait for it ends. */
static inline bool submission_is_tracking(void)
{
	return (atomic_load(&submission_state) & ~(SUBMISSION_NO_MOVER | SUBMISSION_PINNING | SUBMISSION_TICKETS)) != 0;
}

/*
 * Returns true if a launch of this kernel with these arguments surely names no allocation that is backed on use and has
 * not all its memory or its contents (submission_set_on_use()). Locking: takes none.
 */
bool submission_glance(CUfunction function, void *const *params, void *const *extra);

/*
 * Begins the submission of this thread. id: of the entry point. Returns NULL if the call was made inside another
 * tracked call, by the library, or in a cloned child (process.h); admit() and submission_close() accept NULL.
 */
struct submission *submission_open(uint64_t id);
/*
 * Takes memory for what the submission names, or may touch, of allocations that are backed on use, and has none; and
 * brings back what the CPU has touched. If that fails, returns the error for the program; the submission has ended
 * then. Preserves errno. Locking: takes what an allocation takes; the caller must hold nothing.
 */
CUresult submission_back_slowly(struct submission *submission);
static inline CUresult submission_back(struct submission *submission)
{
	return submission && atomic_load_explicit(&submission_state, memory_order_relaxed) &
				 (SUBMISSION_ON_USE | SUBMISSION_TOUCHED)
		   ? submission_back_slowly(submission)
		   : CUDA_SUCCESS;
}
/*
 * Stores the stream of the submission that this thread has begun. Returns false if there is none, or if it has no
 * certain stream.
 */
bool submission_stream_now(CUstream *ret_stream, bool *ret_per_thread);
/*
 * Returns whether submission_back() has refused the latest submission of this thread. Everything that could have made
 * memory for it has been tried then.
 */
bool submission_was_refused(void);
/*
 * Admits the submission; waits if it must. Returns the stripe, which the caller must pass to submission_close() after
 * the real call; or NULL if the CPU has touched managed memory since submission_back(), which the caller must call
 * again then. Preserves errno. Locking: takes SPILL if it waits, and higher ranks.
 */
struct submission_stripe *admit(struct submission *submission);
/* Returns whether an admitted submission pins the blocks that it names. */
bool submission_pins(const struct submission *submission);
/* Counts the submission and gives up its pins or its ticket. Preserves errno. Locking: as completion_submitted(). */
void submission_close(struct submission *submission, struct submission_stripe *stripe);

/*
 * A call returned that the context died of an illegal access: one that submits, waits for work, asks whether it is
 * complete, or frees. Where allocations that are backed on use have no memory, that may be the cause: it is counted,
 * and said once. Preserves errno.
 */
void submission_faulted(void);

/* ---- called by the mover ---- */

struct channel;
struct arena;

/*
 * From now on submissions that name addresses of this arena are posted to the channel. Returns false if there are
 * DEVICE_MOST arenas. Arenas are never removed.
 */
bool submission_add_arena(const struct arena *arena, struct channel *channel);
/*
 * Returns whether no submission is inside the driver now that may touch these devices (bits); CONTEXT_ALL_DEVICES: none
 * at all, for what is inside runs on some device. Submissions at the gate are not inside. Unless all devices are asked
 * for, the gate must be keeping out submissions that may touch them. Also called by serve/touch.c.
 */
bool submission_is_quiet(uint64_t devices);
/*
 * Returns the stripes (bits) with no submission inside now, except that of this thread, which must be inside if it has
 * a stripe. After this, the caller can read what the threads inside the driver wrote before they entered it.
 */
uint64_t submission_empty_stripes(void);
/*
 * Visits what is known of the submissions that are inside the driver now, which have no number yet (completion.h); for
 * messages.
 */
struct completion_what;
void submission_each_inside(void (*visit)(void *argument, const struct completion_what *what), void *argument);
/*
 * Switches tracking on or off. beside: memory moves beside running work. Off ends every wait, and nothing is pinned
 * from then on. The caller must not run two calls at once. Locking: takes GATE if off.
 */
void submission_set_tracking(bool on, bool beside);
/*
 * Says, while tracking is on, whether memory moves beside running work. On: submissions whose names were read before
 * this count as ones that may touch anything. Off: those that have a ticket keep it until they are closed. The caller
 * must be in a gap of the whole process (quiesce.c), and not run two calls at once.
 */
void submission_set_beside(bool on);
/* Returns whether memory of any device moves so, or tracking began with that. */
bool submission_is_beside(void);
/*
 * From now on, until tracking is switched off, every submission that enters the driver pins its blocks, so that the
 * caller can see what has been submitted (spill.c). Returns false if they did so already; returns true and changes
 * nothing if tracking is off.
 */
bool submission_ask_to_pin(void);
/* Switches tracing of submissions on or off. */
void submission_set_trace(bool on);

/* ---- called for allocations that are backed on use (serve/named.h) ---- */

struct named;

struct submission_takes {
	/*
	 * Takes memory for what has none of these bytes; bytes 0: for all that the pointer may mean; whole: for all of
	 * the allocation.
	 */
	CUresult (*named)(CUdeviceptr address, uint64_t bytes, bool whole);
	/* Takes memory for what has none of all allocations on these devices (bits). */
	CUresult (*all)(uint64_t devices);
	/*
	 * Called after those, once: brings to the GPU what the CPU has of managed memory among n names, and on the
	 * devices; and all that the CPU has touched, named or not. All of it goes, or nothing does.
	 */
	CUresult (*bring)(const struct named *names, uint32_t n, uint64_t devices);
};
/* Sets what submission_back() calls. Must be called before submission_set_on_use(); *takes must stay. */
void submission_on_take(const struct submission_takes *takes);
/*
 * Lets submission_back() work for allocations in this range, in addition to earlier ones. Off: no allocation lacks
 * memory or contents any more. The caller must not run two calls at once.
 */
void submission_set_on_use(CUdeviceptr address, uint64_t bytes);
void submission_set_on_use_off(void);
/*
 * Says whether the CPU has touched managed memory. On: no submission enters the driver any more before that is off;
 * those that are inside by then show in submission_is_quiet().
 */
void submission_set_touched(bool on);

/* ---- called by the mover ---- */

/*
 * Sets the devices (bits) of the gate: submissions that may run on them or touch their heaps wait at it. Initially all.
 * The caller must set them before gate_drain(); afterwards it may only add devices.
 */
void gate_for(uint64_t devices);
/*
 * The three steps of the gate: gate_drain() begins to close it; gate_close() closes it, and returns false if a
 * submission has waited too long and reopened it; gate_open() opens it.
 * Locking: gate_open() and gate_undrain() take GATE.
 */
void gate_drain(void);
bool gate_close(void);
void gate_open(void);
/* Takes gate_drain() back; a closed gate stays closed. */
void gate_undrain(void);
/*
 * Waits until the gate is open. The caller must be outside the driver (submission_leave). After GATE_PATIENCE_MS it
 * reopens a gate that is only being closed. Locking: takes ROW and GATE, one after the other.
 */
void gate_wait(void);
/*
 * As gate_wait(), and also while `held`, which says that the gate is about to be closed, or opened for more; but for at
 * most `ms` with an open gate. Returns false if that was too short.
 */
bool gate_wait_while(const _Atomic bool *held, unsigned ms);
#define GATE_PATIENCE_MS 500
/* Returns how many submissions wait at the gate now. */
unsigned gate_n_waiting(void);

/*
 * At the end of the process: every submission passes, and none waits; submission_back() still sees what has no memory.
 * Locking: takes none.
 */
void submission_stop(void);

#endif
