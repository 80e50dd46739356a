/*
 * trace_state.h: all that the trace keeps for the process, one part a subject.
 */
#ifndef SPILLWAY_TRACE_STATE_H
#define SPILLWAY_TRACE_STATE_H

#include "shim/base/lock.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace_internal.h"

#include <pthread.h>

/* The rings of the threads. */
struct trace_rings_state {
	_Atomic(struct ring *) first; /* only ever added to */
	struct ring none;             /* for threads without a ring: counts the events they drop */
	atomic_uint n_made;           /* rings that were made or asked for, ever */
	atomic_uint n_threads;        /* that took a ring, ever: the latest number of a thread */
	pthread_key_t at_end;         /* marks a thread's ring as left when the thread ends */
	bool has_key;                 /* at_end could be created */
};

/* The start of the trace and of its drainer. */
struct trace_start_state {
	const struct policy *policy;         /* as given to trace_start() */
	const struct trace_sources *sources; /* the same */
	struct lock lock;                    /* TRACE_START */
	/* Whether the drainer runs; it is started at the first event. Changed only under `lock`. */
	_Atomic enum { DRAINER_NONE, DRAINER_STARTED, DRAINER_REFUSED } drainer_is;
};

/* The drainer and its file. Locking: from `writer` on, under `lock`, unless the field says otherwise. */
struct trace_drainer_state {
	struct lock lock;            /* TRACE_FILE: protects the writer and the file */
	const struct policy *policy; /* set before the thread starts */
	_Atomic uint32_t hurry;      /* a futex: 1 if a ring is half full; without the lock */
	struct trace_writer *writer;
	struct trace_file file;
	_Atomic bool has_path; /* file.name is complete and does not change any more; read without the lock */
	bool failed, closed;
	struct trace_named *named; /* the addresses of one submission, reused */
	size_t named_room;         /* entries that `named` has room for */
};

#define TRACE_FUNCTIONS_MOST (1u << 15) /* remembered at a time; beyond that all are forgotten */

struct trace_known_function {
	uint64_t function; /* 0: the slot is free */
	uint64_t number;
};

/* The numbers of functions. Locking: under the drainer's lock. */
struct trace_functions_state {
	struct trace_known_function slots[2 * TRACE_FUNCTIONS_MOST];
	unsigned n;          /* slots in use */
	uint64_t latest;     /* the number that was given last; 0: none */
	uint64_t generation; /* function_generation() when the slots were emptied */
};

/* The samples of devices that were written last. Locking: under the drainer's lock. */
struct trace_samples_state {
	uint64_t time;                          /* of the latest samples, ns; 0: none */
	struct trace_event last[STATS_DEVICES]; /* by ordinal */
	bool is_told[STATS_DEVICES];            /* `last` of the device is set */
};

#define TRACE_NAMES_SLOTS 4096 /* call sites, or names of ranges; numbers 1 ... TRACE_NAMES_SLOTS - 1 */

struct trace_name {
	const struct call_site *site; /* NULL: of a range */
	char text[];
};

/* Numbers of names: read and extended without a lock (trace_names.c). */
struct trace_names {
	_Atomic(struct trace_name *) slot[TRACE_NAMES_SLOTS];
	/*
	 * Upper bound of the slots in use; counted before a slot is taken. Another thread may find a name and use its
	 * number before the thread that stored it continues; the drainer must see then that there is a new name.
	 */
	atomic_uint n;
	bool told[TRACE_NAMES_SLOTS]; /* this and the next: drainer only */
	unsigned n_told;
};

struct trace_state {
	struct trace_rings_state rings;
	struct trace_start_state start;
	struct trace_drainer_state drainer;
};
/* Hidden, so that its address is not loaded from the GOT. */
extern struct trace_state trace_state __attribute__((visibility("hidden")));

/* What begins as zeros, 1.2 MiB: apart, so that it takes no space in the library's file. */
struct trace_tables {
	struct trace_functions_state functions;
	struct trace_samples_state samples;
	struct trace_names sites, ranges;
	/* The head of the file and its text, made once; too large for the drainer's frame. Under the drainer's lock. */
	char head[16384], text[12288];
};
extern struct trace_tables trace_tables __attribute__((visibility("hidden")));

#endif
