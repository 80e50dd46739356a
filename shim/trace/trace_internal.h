/*
 * trace_internal.h: the parts of the trace:
 *
 *   trace_state.c  whether it is on, and which rings there are
 *   trace_names.c  numbers for places in the program and for names of ranges
 *   trace_file.c   the file: its name, its head, writing to it
 *   trace_drain.c  the thread that empties the rings
 *   trace.c        writing into a ring, and what the rest of the library calls
 *
 * A file calls those above it in this list, never those below.
 */
#ifndef SPILLWAY_TRACE_INTERNAL_H
#define SPILLWAY_TRACE_INTERNAL_H

#include "shim/base/clock.h"
#include "shim/trace/trace.h"

#include <stddef.h>
#include <sys/types.h>

/* ---- rings ---- */

/* 4 MiB, of which what was used is memory: 40000 launches with ten pointers, a tenth of a second of nothing else. */
#define RING_WORDS (1u << 19)
/* Threads at once; those beyond count what they lose. */
#define RINGS_MOST 1024

enum ring_state {
	RING_FREE,  /* empty, for the next thread that comes */
	RING_TAKEN, /* by a thread that has not said yet who it is */
	RING_USED,
	RING_LEFT, /* its thread has ended; the drainer makes it free when it is empty */
};

/*
 * Words, written by one thread and read by the drainer. A record is a head (kind, entry point, number of words), the
 * time, and the fields; a submission's are its function, its device, then for each address one word, which is odd when
 * the bytes follow in another one (addresses are told in units of 512).
 */
struct ring {
	uint64_t *words;
	_Atomic uint64_t head __attribute__((aligned(64))); /* written, ever */
	/* The writer's own. */
	uint64_t at, tail_seen;
	_Atomic bool busy; /* a record is begun: for signal handlers of the thread, and for all that have no ring */
	bool full;         /* it has found no room */
	_Atomic uint64_t lost;
	/* The drainer's. */
	_Atomic uint64_t tail __attribute__((aligned(64))); /* read, ever */
	uint64_t until, lost_told;
	uint32_t number_told;
	int seen; /* its state when `until` was read */
	/* Written by who takes it, before the state. */
	_Atomic int state;
	uint32_t number; /* of the thread, from 1 on */
	char name[48];
	struct ring *next;
};

#define RECORD(kind, id, words) ((uint64_t)(kind) | (uint64_t)(id) << 8 | (uint64_t)(words) << 32)
#define RECORD_KIND(head)       ((uint32_t)((head)&0xff))
#define RECORD_ID(head)         ((uint32_t)((head) >> 8 & 0xffffff))
#define RECORD_WORDS(head)      ((head) >> 32)

extern _Atomic(struct ring *) trace_rings; /* only ever added to */
extern struct ring trace_no_ring;          /* of threads that could get none: counts what they lose */

/* What trace_start() was given. */
extern const struct trace_sources *trace_sources_given;
/* The trace is on from here on, and submissions are traced; not any more. */
void state_begin(const struct trace_sources *sources);
void state_stop(void);
/* Stops it because of an error, which is logged once. */
void trace_fail(const char *why);

/* ---- the drainer ---- */

/* Start it. False: there is no thread to be had. */
bool drain_start(const struct policy *policy);
/* A ring is half full. */
void drain_hurry(void);
/* Once more, by the calling thread, and then `end`. */
void drain_last(void);

/* ---- names ---- */

/* Call visit for every name that was not told yet. */
void names_each_new(void (*visit)(void *argument, enum trace_list list, uint64_t number, const char *text),
		    void *argument);

/* ---- the file ---- */

#define FILE_NAME_MOST 4096

/*
 * The name that a pattern stands for: %p process, %h host, %e program, %r rank, %% a percent sign; anything else stays
 * as it is. False: too long. *ret_unique: it has %p.
 */
bool file_expand(const char *pattern, char *ret_name, size_t bytes, bool *ret_unique);
struct trace_file {
	int fd; /* -1: none */
	dev_t device;
	ino_t inode;
	char name[FILE_NAME_MOST];
};
/* Make it anew, under a name like it where it is there already. 0 or an errno. */
int file_make(struct trace_file *file, const char *pattern);
/* All of it, or an errno; EBADF when the program has closed the descriptor, which may be another file's now. */
int file_write(const struct trace_file *file, const void *bytes, size_t n);
void file_close(struct trace_file *file);
/* The text of the head. Cut where there is no room. */
void file_head(const struct policy *policy, const struct trace_sources *sources, char *ret_text, size_t bytes);

#endif
