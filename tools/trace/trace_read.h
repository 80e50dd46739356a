// SPDX-License-Identifier: Apache-2.0
/*
 * trace_read.h: reads a trace file (shim/trace/trace_code.h) into memory and sorts it. Only for tools with one thread.
 *
 * The contents are not trusted: sizes, counts and numbers of names are checked. The reading ends at the first error;
 * everything before it is kept and `damaged` is set.
 */
#ifndef TOOLS_TRACE_READ_H
#define TOOLS_TRACE_READ_H

#include "shim/trace/trace_code.h"

#include <stdio.h>

#define TRACE_NONE UINT32_MAX

/* One event. `again` events are replaced by the submits that they repeat; named and text point into the trace. */
struct trace_row {
	struct trace_event event;
	/*
	 * For made, freed, grown, lent and managed: the number of the block. For submit: its number among the
	 * different submits, equal for equal names.
	 */
	uint32_t which;
	/* For submit: the blocks that it names, each once. */
	uint32_t n_blocks;
	const uint32_t *blocks;
};

/* One allocation, from its creation to its end. */
struct trace_block {
	uint64_t id, address, bytes, on_host; /* on_host: bytes placed on the host when it was made */
	uint64_t on_peers;                    /* bytes of on_host that were placed on devices that lend */
	uint64_t made, freed;                 /* ns; freed: UINT64_MAX if it was not freed */
	uint32_t device, api, backend, rule, site;
	/*
	 * Moves and submissions while the block lived. A piece that holds several blocks counts for each, with its
	 * share of the bytes. A refetch is a fetch within 10 s of the eviction. Pieces that did not move are not
	 * counted.
	 */
	uint64_t bytes_in, bytes_out, moves_in, moves_out, refetches, submits;
};

struct trace {
	char *path;
	char *head;             /* the text of the file's head */
	uint64_t start, clock;  /* ns since 1970, and CLOCK_MONOTONIC at that moment */
	uint64_t first, last;   /* times of the first and the last event, ns */
	struct trace_row *rows; /* sorted by time; equal times in the order of the file */
	size_t n_rows;
	struct trace_block *blocks; /* in the order of their creation */
	size_t n_blocks;
	uint32_t n_submits;        /* number of different submits */
	char **names[TRACE_LISTS]; /* by number; NULL: never defined */
	size_t n_names[TRACE_LISTS];
	uint64_t n_lost;     /* lost events, as the file counts them */
	uint64_t bytes;      /* size of the file, uncompressed */
	bool tells_peers;    /* records lending between devices; older versions count it as the host's */
	bool tells_uncopied; /* a move says what was not copied */
	bool ended;          /* the process ended by itself */
	bool cut;            /* the last frame is incomplete and was dropped, as expected of a killed process */
	bool damaged;        /* the middle of the file is damaged: what follows was not read */
	char problem[160];   /* why the file is damaged or unreadable, for people; "" if it is not */
	/* Internal. */
	char *file; /* contents of the file: texts of events point into it */
	struct trace_memory *memory;
	struct trace_places *places;
};

/*
 * Reads a file, which may be compressed with gzip; "-" is not special. Returns 0, or a negative errno with problem
 * filled in: out of memory, no such file, -EINVAL for a file that is no trace or of an unknown version. The caller
 * must pass the result to trace_free(), after a failure too.
 */
int trace_read_file(const char *path, struct trace *ret_trace);
void trace_free(struct trace *trace);

/* Copies a value of the head to the caller's buffer and returns it; "" if it does not exist. */
const char *trace_value(const struct trace *trace, const char *key, char *room, size_t bytes);
/* Reads a value that is a number. Returns false, and stores 0, if there is none. */
bool trace_number(const struct trace *trace, const char *key, uint64_t *ret_number);
/* Returns a name, or "?" if it was never defined. */
const char *trace_text(const struct trace *trace, enum trace_list list, uint64_t number);
/*
 * Returns the block that was alive at this address at this time (from made until before freed); TRACE_NONE if none
 * was.
 */
uint32_t trace_block_at(const struct trace *trace, uint64_t address, uint64_t time);

/*
 * Computes the maximum of bytes live at once, as requested by the program, of each of the first n devices and of all
 * together. Every "peak" that a tool reports is this one. Returns false if memory runs out; the results are then not
 * set.
 */
bool trace_peaks(const struct trace *trace, uint64_t *ret_devices, uint32_t n, uint64_t *ret_all);

/* ---- between trace_read.c and trace_blocks.c, which turns rows into blocks and finds them ---- */

/* Returns memory that lives as long as the trace, aligned for any type and never moved; NULL if memory runs out. */
void *trace_memory(struct trace *trace, size_t bytes);
void trace_memory_free(struct trace *trace);

/* Fills in the blocks, and `which` of the rows that refer to them. Returns false if memory runs out. */
bool trace_make_blocks(struct trace *trace);

void trace_places_free(struct trace_places *places); /* accepts NULL */

#endif
