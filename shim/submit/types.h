// SPDX-License-Identifier: Apache-2.0
/*
 * types.h: struct submission, and everything that this room keeps for the process: submit_state, and submit_tables,
 * which begins as zeros. Only the files of the room use them. What inline functions of other rooms read (submission.h,
 * arguments.h, pointer_arrays.h) stays apart and is defined beside them.
 */
#ifndef SPILLWAY_SUBMIT_TYPES_H
#define SPILLWAY_SUBMIT_TYPES_H

#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/submit/completion.h"
#include "shim/submit/channel.h"
#include "shim/submit/arguments.h"
#include "shim/driver/real.h"
#include "shim/heap/arena.h"
#include "shim/submit/submission.h"

#include <pthread.h>

/* ---- struct submission ---- */

/* Repeated blocks are found by a linear search among up to this many; beyond, the list is sorted. */
#define SUBMISSION_FEW 24

/* A block that a submission names. */
struct held {
	struct block_state *block;
	uint32_t arena;   /* whose it is: its number */
	uint32_t awaited; /* all bits, or none: it is not waited for while it is mapped (NAMED_ASIDE) */
};

/*
 * What one thread submits now. Four questions make its way: what it may reach, how its blocks are kept, whether it is
 * recorded (`state`), and whether it must wait (admit.c).
 *
 * Per-thread and statically allocated, so it needs no memory to exist. If the list of names cannot grow, it may reach
 * anything. Only its thread uses it.
 */
struct submission {
	enum {
		PHASE_NONE,
		PHASE_OPEN,    /* between open and close */
		PHASE_REFUSED, /* the latest one ended in submission_back() */
	} phase;
	enum {
		REACH_NAMED,    /* what it names, and no other work learns an address from it (submission_named_only) */
		REACH_POINTERS, /* also what pointers in that lead to */
		REACH_ALL,      /* anything (submission_unknown) */
	} reach;
	enum {
		KEPT_BY_GATE, /* nothing is unmapped while it is inside the driver; or it is not admitted yet */
		KEPT_BY_TICKET,
		KEPT_BY_PINS,
	} kept;
	/*
	 * submission_state when it was opened, and then when it was admitted. In between, with TRACE, its names go into
	 * a record of the trace; with PINNING each block is listed once, as far as that is cheap.
	 */
	uint32_t state;
	bool per_thread;
	bool stores_any; /* it stores pointers that are not listed */
	bool has_key;    /* the thread's end frees the lists */
	int device;      /* device of the first heap address that it named, for the trace; -1: none */
	CUstream stream;
	uint64_t id, function;
	unsigned n_all;            /* the `everything` of the first n_all arenas is pinned, too */
	unsigned n_arenas;         /* number of arenas before anything was named */
	unsigned n_besides;        /* submit_state.submission.n_besides before anything was named */
	struct graph_names *graph; /* of the graph that it launches; NULL: it launches none, or an unknown one */
	struct channel *checked;   /* it is being checked in this channel (check.h); NULL: it is not */
	struct inflight_ticket_place *place; /* the thread's place for tickets; NULL: none */
	uint32_t n_named, n_held, room;      /* room: of `named`, and at least so much of `held` */
	struct named *named;
	struct held *held; /* blocks of the names; pinned if KEPT_BY_PINS */
	/* names in allocations that are backed on use, where some of what they may mean has no memory */
	uint32_t n_wanted, room_wanted;
	struct named *wanted;
};

/* This thread ends: closes the rows of its default streams (completion.c). Locking: takes ROW. */
void completion_thread_ends(void);

/* Drops the names of the graph. To be called when the submission ends. */
void submission_drop_graph(struct submission *submission);

/* The part of submission_name() that is about memory in heaps. */
void submission_name_in_heaps(struct submission *submission, CUdeviceptr address, size_t bytes);

/*
 * Returns the devices (bits) whose allocations backed on use the submission may touch, if it may touch anything.
 * Locking: as completion_device().
 */
uint64_t on_use_names_devices(const struct submission *submission);

bool submission_is_graph(const struct submission *submission);

/* The arenas of the heaps and their channels. Entries are only added. device: a bit. */
struct submission_arena {
	const struct arena *arena;
	struct channel *channel;
	uint64_t device;
	uint32_t number; /* its own, among the arenas */
};

/* ---- what the room keeps ---- */

/* ---- completion.c ---- */

/* Streams with a row. Further streams share the last row, which only all contexts together prove complete. */
#define ROWS (COMPLETION_STREAMS - 1)
/*
 * Events under way per stream; a program runs about a thousand launches ahead. When all are under way, no event is
 * recorded until some pass.
 */
#define EVENTS 512
struct row {
	struct lock lock; /* ROW: guards all the other fields */
	bool open;        /* new submissions may be counted here */
	bool ending;      /* the context is about to end, so the events are not used */
	bool recording;   /* a thread records an event, without the lock */
	bool inherited;   /* that thread must destroy the stream afterwards (completion_stream_ending) */
	bool per_thread;  /* spelling of the calls that submit */
	CUstream stream;
	CUcontext context;
	CUcontext whole;      /* the same, or for a green one its primary context */
	CUdevice device;      /* of the context; -1: not known */
	uint64_t thread;      /* serial of the thread of a per-thread default stream; else 0 */
	uint64_t first, last; /* the oldest submission not known to be complete (0: none); the latest */
	uint64_t recorded;    /* the latest submission with an event behind it */
	uint64_t seen;        /* `last` when a mover looked for tails before */
	/*
	 * foreign: other devices (bits) whose heaps submissions from `first` on may touch; 0: none. foreign_first and
	 * foreign_last: the first and the last of those submissions.
	 */
	uint64_t foreign, foreign_first, foreign_last;
	unsigned head, n; /* events under way, in the order in which they were recorded */
};

/* An event of a row, and the submission that it follows. Kept apart from the rows, because they take 8 KiB per row. */
struct row_event {
	CUevent event;
	uint64_t number;
};

struct completion_state {
	/*
	 * Number of the latest submission. Every submission adds to it, under the ROW of its stream, so it has a cache
	 * line of its own. A reader that takes it first, then looks at the rows, has seen all submissions up to it.
	 */
	_Atomic uint64_t newest __attribute__((aligned(64)));
	_Atomic uint64_t newest_wide; /* completion_newest_wide(); raised before the submission leaves its stripe */
	/* ROWS: protects opening rows, and the tails and the shared row below. ROW is taken under it. */
	struct lock table_lock __attribute__((aligned(64)));
	/* The last row, which is always open, is shared by all streams without a row. */
	struct row rows[ROWS + 1] __attribute__((aligned(64)));
};

struct rows_state {
	struct row_event rings[ROWS + 1][EVENTS]; /* each under the lock of its row */
	_Atomic uint64_t n_threads;               /* threads with a serial number, ever */
	atomic_uint n;                            /* rows that have ever been opened; written under table_lock */
};

/* ---- completion.c: tails ---- */

/* Contexts with an event for their tail at once; enough for all, so that no device waits for another's busy context. */
#define COMPLETION_TAILS CONTEXT_MOST

/* Under table_lock. */
struct tails_state {
	struct tail {
		CUcontext context; /* of the tail */
		CUcontext owner;   /* of the event, which for a green context is its primary context */
		CUevent event;
		uint64_t number;
		bool under_way;
	} at[COMPLETION_TAILS];
	unsigned n_ends; /* contexts that ended or tried to, ever */
};

/*
 * The shared row: submissions up to `number` are complete once all contexts have passed the events in `idle`. Under
 * table_lock.
 */
struct others_state {
	enum { OTHERS_NOT_ASKED, OTHERS_BEING_ASKED, OTHERS_ASKED } state;
	struct context_idle idle;
	uint64_t number;
};

/* ---- channel.c: the latest submissions ---- */

/* Number of submissions that are kept. */
#define SUBMISSIONS_KEPT 8192

struct recent_submissions_entry {
	_Atomic uint64_t number, function, what; /* what: id << 16 | row */
};

/* ---- admit.c: the gate ---- */

struct gate_state {
	_Atomic uint64_t devices;   /* gate_for(): written by a mover before it closes the gate, read behind `inside` */
	_Atomic uint32_t n_waiting; /* written by those that wait */
	/* GATE. Waiting submissions sleep here; the gate is rarely closed. */
	struct lock lock;
	struct clock_cond opened;
};

/* ---- submission.c ---- */

struct submissions_state {
	struct submission_arena arenas[DEVICE_MOST]; /* each written once, before n_arenas counts it */
	atomic_uint n_arenas;                        /* written by movers that start, one at a time (ENGINE_START) */
	atomic_uint next_stripe;                     /* threads that took a stripe, ever */
	atomic_uint n_besides; /* how often memory began to move beside submissions; raised before TICKETS is set */
	_Atomic(const struct submission_takes *) takes; /* submission_on_take(); NULL: none yet */
	/* Where allocations are that are backed on use and may lack something; valid while that is looked at. */
	_Atomic uint64_t on_use_low, on_use_span;
	_Atomic(const struct arena *) on_use_arena; /* that they are in; NULL: they are in several */
};

/* ---- arguments.c: parameters of kernels ---- */

#define KERNEL_PARAMS_SLOT_BITS 12 /* 4096 functions, 1 MiB, of which only the used part is ever touched */

/* Written by who holds `writing`; a reader copies it, and looks at `sequence` before and after. */
struct kernel_params_slot {
	_Atomic uint32_t sequence; /* odd while the slot is written */
	_Atomic uint32_t n;
	_Atomic uint64_t function, generation;
	_Atomic uint64_t plain; /* bits: the parameters, if each is one word; 0: read the runs */
	_Atomic uint64_t run[KERNEL_PARAMS_RUNS];
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct kernel_params_slot) == 256, "four cache lines");

#define KERNEL_PARAMS_NAME_WORDS (KERNEL_PARAMS_NAME / sizeof(uint64_t))

struct kernel_params_state {
	struct kernel_params_slot slots[1 << KERNEL_PARAMS_SLOT_BITS];
	/* Names of the functions in the slots; written and read under the same sequence numbers. */
	_Atomic uint64_t names[1 << KERNEL_PARAMS_SLOT_BITS][KERNEL_PARAMS_NAME_WORDS];
	atomic_flag writing; /* guards the writing of slots and names, and `turn` */
	unsigned turn;       /* which of a function's slots is displaced next */
};

/* ---- graph.c ---- */

/* Fixed, so that the table never grows: even thousands of instances make short chains. */
#define GRAPH_BUCKETS 1024

struct graph_state {
	struct graph_exec *buckets[GRAPH_BUCKETS]; /* guarded by GRAPH */
	atomic_uint n_unknown, n_sealed;           /* instances; written under GRAPH */
};

/* ---- pointer_arrays.c ---- */

#define POINTER_ARRAYS_TABLES 256
#define POINTER_ARRAYS_SETS   512
#define POINTER_ARRAYS_WAYS   4
/* Bytes of one read: a system call costs more than reading a few pages more. */
#define POINTER_ARRAYS_READ 16384u

struct pointer_arrays_state {
	/* Written under pointer_arrays_lock, read without it. */
	_Atomic uint64_t lines[POINTER_ARRAYS_SETS][POINTER_ARRAYS_WAYS];
	/* Under pointer_arrays_lock. */
	struct pointer_array *tables[POINTER_ARRAYS_TABLES];
	unsigned next_table, next_way;
	CUdeviceptr words[POINTER_ARRAYS_READ / sizeof(CUdeviceptr)]; /* of the thread that has set `taken` */
	atomic_flag taken;
	/* Set if process_vm_readv() is refused for good. Seccomp filters return EPERM, emulators ENOSYS. */
	atomic_bool call_refused;
};

/* ---- all of it ---- */

struct submit_state {
	/* What submissions read stands first, apart from the locks that few of them take. */
	struct completion_state completion;
	struct submissions_state submission;
	/*
	 * Of threads that end: frees their lists and closes their rows. A thread that has a row or a list sets it to
	 * something. Both written at load.
	 */
	pthread_key_t thread_key;
	bool has_thread_key;
	_Atomic uint64_t kernel_params_generation; /* from 1 on; an empty slot is of generation 0 */
	_Atomic int pdl_setting;                   /* enum policy_pdl */
	struct check_list *check;                  /* of check.c; written at start; NULL: no launch is checked */
	struct gate_state gate __attribute__((aligned(64)));
	struct lock graph_lock, pointer_arrays_lock;
};
/* Hidden, so that its address is not loaded from the GOT. */
extern struct submit_state submit_state __attribute__((visibility("hidden")));

/* What begins as zeros, 4 MiB: apart, so that it takes no space in the library's file. */
struct submit_tables {
	struct kernel_params_state kernel_params;
	struct inflight_ticket_place places[INFLIGHT_TICKET_PLACES]; /* one per thread */
	struct rows_state rows;
	struct tails_state tails;
	struct others_state others;
	struct recent_submissions_entry recent[SUBMISSIONS_KEPT];
	struct graph_state graph;
	struct pointer_arrays_state pointer_arrays;
};
extern struct submit_tables submit_tables __attribute__((visibility("hidden")));

/* Returns the slot that a function may use, from its home slot (way 0) on. */
static inline struct kernel_params_slot *kernel_params_slot_of(uint64_t function, unsigned way)
{
	uint64_t home = (function * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - KERNEL_PARAMS_SLOT_BITS);

	return &submit_tables.kernel_params.slots[(home + way) & ((1u << KERNEL_PARAMS_SLOT_BITS) - 1)];
}

/*
 * Looks after the tail of a context (completion.c), up to the number; for tests, too. Locking: takes ROWS, and ROW;
 * must be called without them.
 */
void completion_context_look_after(CUcontext context, uint64_t number);

#endif
