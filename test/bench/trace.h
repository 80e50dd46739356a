/*
 * trace.h: a recorded trace of a job's submissions, read whole into memory. Text, numbers in decimal but for function and
 * offset:
 *   A id bytes                     an allocation
 *   F id                           its end
 *   L function id:offset ...       a submission and the memory it names
 * Other lines are skipped. For tools of one thread that end when memory does.
 */
#ifndef SPILLWAY_TRACE_H
#define SPILLWAY_TRACE_H

#include <stdint.h>
#include <stdio.h>

#define NEVER UINT32_MAX

/* Offsets are kept in 512 B, the least that allocators give out: 32 bits reach 2 TiB. */
#define OFFSET_UNIT 512

struct block {
	uint64_t id, bytes;
	uint32_t *offsets; /* every one that was ever named, in units of OFFSET_UNIT, sorted, each once */
	uint32_t *named;   /* for whoever reads the trace: of each offset, zero */
	uint32_t n_offsets, room, first_piece;
	uint32_t died; /* by number of submissions before; NEVER: not */
};

struct submission { /* one block:offset of a submission */
	uint32_t block, offset;
};

struct launch {
	uint64_t function;
	uint64_t first; /* use */
	uint32_t n;
};

struct trace {
	struct block *blocks;
	struct submission *uses;
	struct launch *launches;
	uint64_t n_blocks, n_uses, n_launches;
	uint64_t peak; /* bytes alive at once, at most */
};

void trace_read(struct trace *trace, FILE *file);

/* An array with room for one more element than n, and zeroed memory; both end the program when there is none. */
void *grown(void *array, uint64_t n, uint64_t *room, size_t each);
void *zeros(uint64_t n, size_t each);

#endif
