/*
 * trace_read.h: a trace file (shim/trace/trace_code.h), read whole into memory and put in order. For tools of one thread.
 *
 * Nothing in a file is believed: sizes, counts and numbers of names are checked, and what is wrong ends the reading
 * there, with everything before it kept and `damaged` set.
 */
#ifndef TOOLS_TRACE_READ_H
#define TOOLS_TRACE_READ_H

#include "shim/trace/trace_code.h"

#include <stdio.h>

#define TRACE_NONE UINT32_MAX

/* One event. `again` events have become submits; named and text point into the trace. */
struct trace_row {
	struct trace_event event;
	/* made, freed, grown, lent: which block. submit: its number among the different submits, the same for the same names. */
	uint32_t which;
};

/* One allocation from beginning to end. */
struct trace_block {
	uint64_t id, address, bytes, on_host; /* on_host: bytes placed there when it was made ... */
	uint64_t on_peers;                    /* ... or, so many of these, on devices that lend */
	uint64_t made, freed;                 /* ns; freed: UINT64_MAX where it was not */
	uint32_t device, api, backend, rule, site;
	/*
	 * While it lived: what was moved of it, and how many submissions named it. A piece that holds several blocks counts
	 * for each, with its share of the bytes. A refetch comes in within 10 s of having left. What stayed counts nowhere.
	 */
	uint64_t bytes_in, bytes_out, moves_in, moves_out, refetches, submits;
};

struct trace {
	char *path;
	char *head;             /* the text of the file's head */
	uint64_t start, clock;  /* ns since 1970, and CLOCK_MONOTONIC at that moment */
	uint64_t first, last;   /* times of the first and the last event, ns */
	struct trace_row *rows; /* in the order of their times; equal ones in that of the file */
	size_t n_rows;
	struct trace_block *blocks; /* in the order in which they were made */
	size_t n_blocks;
	uint32_t n_submits;        /* different ones */
	char **names[TRACE_LISTS]; /* by number; NULL: never named */
	size_t n_names[TRACE_LISTS];
	uint64_t n_lost;  /* events, by the file's own count */
	uint64_t bytes;   /* of the file, unpacked */
	bool tells_peers; /* it has what devices lend to each other; files of older versions count that as the host's */
	bool ended;       /* the process ended by itself */
	bool cut;         /* the last frame is not whole: dropped, as expected of a process that was killed */
	bool damaged;     /* something in the middle is wrong: what comes after it was not read */
	char problem[160]; /* what, for people; "" */
	/* The reader's own. */
	char *file; /* its bytes: texts of events point there */
	struct trace_memory *memory;
	struct trace_places *places;
};

/*
 * Read a file, also one that is gzipped; "-" is not special. 0, or a negative errno with problem filled in: no memory, no such file, -EINVAL: not
 * a trace, or of a version that is not known. What was read must be given to trace_free().
 */
int trace_read_file(const char *path, struct trace *ret_trace);
void trace_free(struct trace *trace);

/* A value of the head, in room of the caller; "" when it is not there. */
const char *trace_value(const struct trace *trace, const char *key, char *room, size_t bytes);
/* A name, or "?" */
const char *trace_text(const struct trace *trace, enum trace_list list, uint64_t number);
/* The block that was alive at this address at this time, from made to before freed; TRACE_NONE: none was. */
uint32_t trace_block_at(const struct trace *trace, uint64_t address, uint64_t time);

/*
 * The most bytes that were live at once, as the program asked for them: of each of the first n devices, and of all together.
 * This is "the peak" wherever a tool names one. False: no memory, and the results are not set.
 */
bool trace_peaks(const struct trace *trace, uint64_t *ret_devices, uint32_t n, uint64_t *ret_all);

#endif
