// SPDX-License-Identifier: Apache-2.0
/*
 * trace_internal.h: functions and types that the files of the trace share, and what both keep for the process:
 *
 *   trace_drain.c  the state of the room, numbers of names, the file, and the thread that empties the rings into it
 *   trace.c        writing into a ring, and what the rest of the library calls
 *
 * A file calls only files above it in this list.
 */
#ifndef SPILLWAY_TRACE_INTERNAL_H
#define SPILLWAY_TRACE_INTERNAL_H

#include "shim/base/lock.h"
#include "shim/stats/stats_page.h"
#include "shim/trace/trace.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/types.h>

/* ---- rings ---- */

/*
 * 4 MiB, of which only touched pages use memory: 40000 launches with ten pointers, a tenth of a second of launches
 * only.
 */
#define RING_WORDS (1u << 19)
/* Most threads at a time; further ones only count the events they drop. */
#define RINGS_MOST 1024

enum ring_state {
	RING_FREE,  /* empty, for the next new thread */
	RING_TAKEN, /* by a thread that has not written its name yet */
	RING_USED,
	RING_LEFT, /* its thread has ended; the drainer frees it once it is empty */
};

/*
 * Words, written by one thread and read by the drainer. A record is a head (kind, entry point, number of words), the
 * time, and the fields; a submission's are its function, its device, then for each address one word, which is odd if
 * the bytes follow in another word (addresses are recorded in units of 512).
 */
struct ring {
	uint64_t *words;
	_Atomic uint64_t head __attribute__((aligned(64))); /* written, ever */
	/* Writing thread only. */
	uint64_t at, tail_seen;
	_Atomic bool busy; /* a record is begun: for signal handlers of the thread, and for all that have no ring */
	bool full;         /* an event found no space */
	_Atomic uint64_t lost;
	/* Drainer only. */
	_Atomic uint64_t tail __attribute__((aligned(64))); /* read, ever */
	uint64_t until, lost_told;
	uint32_t number_told;
	int seen; /* its state when `until` was read */
	/* Written by the thread that takes the ring, before the state. */
	_Atomic int state;
	uint32_t number; /* of the thread, from 1 on */
	char name[48];
	struct ring *next;
};

#define RECORD(kind, id, words) ((uint64_t)(kind) | (uint64_t)(id) << 8 | (uint64_t)(words) << 32)
#define RECORD_KIND(head)       ((uint32_t)((head)&0xff))
#define RECORD_ID(head)         ((uint32_t)((head) >> 8 & 0xffffff))
#define RECORD_WORDS(head)      ((head) >> 32)

/* Stops the trace, with that of submissions. */
void state_stop(void);
/* Stops it because of an error, which is logged once. */
void trace_fail(const char *why);

/* ---- the drainer ---- */

/* Starts the drainer. Returns false if no thread can be created. */
bool drain_start(void);
/* Wakes the drainer because a ring is half full. */
void drain_hurry(void);
/* Empties the rings a last time, on the calling thread, and writes `end`. */
void drain_last(void);

/* ---- names ---- */

/* Calls visit for each name of this list, TRACE_SITES or TRACE_RANGES, that has not been written to the file yet. */
void names_each_new(enum trace_list list, void (*visit)(enum trace_list list, uint64_t number, const char *text));

/* ---- the file ---- */

#define FILE_NAME_MOST 4096

/*
 * Expands a file name pattern: %p process, %h host, %e program, %r rank, %% a percent sign; other text is copied.
 * Returns false if the name is too long. *ret_unique: the pattern has %p.
 */
bool file_expand(const char *pattern, char *ret_name, size_t bytes, bool *ret_unique);
struct trace_file {
	int fd; /* -1: none */
	dev_t device;
	ino_t inode;
	char name[FILE_NAME_MOST];
};
/* Creates the file, under a similar name if that exists already. Returns 0 or an errno. */
int file_make(struct trace_file *file, const char *pattern);
/*
 * Writes all bytes. Returns 0 or an errno; EBADF if the program has closed the descriptor, which may be reused by
 * now.
 */
int file_write(const struct trace_file *file, const void *bytes, size_t n);
void file_close(struct trace_file *file);

/* ---- the state, one part a subject ---- */

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
	const struct policy *policy;         /* as given to trace_start(); set before the drainer starts */
	const struct trace_sources *sources; /* the same */
	struct lock lock;                    /* TRACE_START */
	/* Whether the drainer runs; it is started at the first event. Changed only under `lock`. */
	_Atomic enum { DRAINER_NONE, DRAINER_STARTED, DRAINER_REFUSED } drainer_is;
};

struct trace_state {
	struct trace_rings_state rings;
	struct trace_start_state start;
};
/* Hidden, so that its address is not loaded from the GOT. */
extern struct trace_state trace_state __attribute__((visibility("hidden")));

#endif
