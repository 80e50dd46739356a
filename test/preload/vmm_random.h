// SPDX-License-Identifier: Apache-2.0
/*
 * vmm_random.h: what the files of vmm_random share: its memory and how it comes and goes (vmm_random_memory.c),
 * what is done with it and what every word must be (vmm_random_op.c), what it does besides where --also says so
 * (vmm_random_known.c, vmm_random_ask.c, vmm_random_grow.c), and the program itself (vmm_random.c).
 */
#ifndef SPILLWAY_TEST_VMM_RANDOM_H
#define SPILLWAY_TEST_VMM_RANDOM_H

#include "test/preload/made_up.h"

#define GRANULE    (2 * MIB)
#define ONE_HANDLE (6 * MIB) /* vmm_random.yaml: a block that does not move, and has a handle */

enum {
	STREAMS = 3,
	SEGMENTS = 5,
	SLOTS = 32,  /* of a segment */
	PIECES = 64, /* of a span */
	STEP = 24,   /* operations that are repeated */
	GRAPHS = 4,
	GRAPH_OPS = 6,
	THREADS_MAX = 4,
};

/* Physical memory, or a block of cuMemAlloc. */
struct memory {
	CUmemGenericAllocationHandle handle;
	size_t bytes;
	uint32_t *shadow;
	unsigned slots; /* where it is mapped */
	bool released;
	bool shown;      /* made for other processes */
	unsigned stream; /* of the last operation on it */
};
struct segment {
	CUdeviceptr at;
	size_t piece; /* bytes of each handle */
	bool block;   /* of cuMemAlloc: all of it or nothing */
	struct memory *slot[SLOTS];
};
struct span {
	struct segment *segment;
	size_t start, words; /* in words from the segment's start */
};
enum kind { MIX, COPY_KERNEL, SET32, SET8, COPY, UPLOAD, KINDS };
struct op {
	enum kind kind;
	unsigned stream;
	struct span to, from; /* from.words is 0 where there is none */
	uint32_t salt;
};
struct graph {
	CUgraphExec exec;
	struct op op[GRAPH_OPS];
	unsigned n;
	uint32_t *host; /* what its uploads read */
};
struct worker {
	pthread_t thread;
	unsigned id;
	uint64_t random;
	CUstream stream[STREAMS];
	CUevent event;
	struct segment segment[SEGMENTS];
	struct graph graph[GRAPHS];
	uint32_t *pinned, *buffer, *other;
	size_t live, share; /* bytes of handles there are, and may be */
};

/* ---- vmm_random_op.c ---- */

/* The next number of its own chance, 0 ... n - 1. */
uint32_t worker_below(struct worker *worker, uint32_t n);

/*
 * Somewhere in a run of mapped slots; words: at most so many, 0: as it comes. Returns false if nothing is mapped there.
 */
bool span_make(struct worker *worker, struct span *ret_span, size_t words);
bool span_is_mapped(const struct span *span);
/* Ends the process if a word of it is not what it must be. */
void span_check(struct worker *worker, const struct span *span);
void worker_check(struct worker *worker); /* the same for all that is mapped */

/* Loads the kernel. */
void op_prepare(void);
/* Returns false if the chance gave nothing that can be done. */
bool op_make(struct worker *worker, struct op *ret_op);
/* Are the words after it known? All that it names must be mapped. */
bool op_is_defined(const struct op *op);
/*
 * The stream waits for what was done with its memory; it is submitted; and the shadow is changed as it changes memory.
 */
void op_order(struct worker *worker, const struct op *op, unsigned stream);
void op_submit(const struct op *op, CUstream stream, const uint32_t *host);
void op_apply(struct worker *worker, const struct op *op, const uint32_t *host);
/* All three, on its own stream. */
void op_run(struct worker *worker, const struct op *op);

/* ---- vmm_random_memory.c ---- */

/* NULL: the worker has its share. shown: for other processes, beside the share. */
struct memory *memory_make(struct worker *worker, size_t bytes, bool shown);
void memory_release(struct worker *worker, struct memory *memory); /* it goes with its last mapping */
void handle_release(CUmemGenericAllocationHandle handle);
/* A slot that is not mapped. */
void slot_map(struct segment *segment, unsigned slot, struct memory *memory);
void slot_fill(struct worker *worker, struct segment *segment, unsigned slot);
/* Waits for all of its streams. */
void worker_settle(struct worker *worker);
/* One change of what memory there is, by chance. */
void worker_change(struct worker *worker);
void segment_grow(struct worker *worker, struct segment *segment);
/* The streams must have nothing to do. */
void segment_unmap(struct worker *worker, struct segment *segment, unsigned first, unsigned n);
/* Allocates the block of that segment, or frees it. */
void block_change(struct worker *worker, struct segment *segment);

/* ---- what --also names ---- */

void known_play(struct worker *worker);
void ask_play(struct worker *worker);
void stray_play(struct worker *worker);
void grow_play(struct worker *worker);

#endif
