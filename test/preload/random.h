// SPDX-License-Identifier: Apache-2.0
/*
 * random.h: what the files of spill_random share, a program that is made up from a seed. It uses the GPU as programs
 * do and knows what every byte must be, because the order of any two accesses that conflict is always established: by
 * the stream, by an event, by a value that one stream writes and another waits for, or by the legacy stream's rules.
 *
 * Each thread (struct worker) has its own blocks and its own streams, and its own random numbers: what it does depends
 * on the seed alone, whatever the others are doing. Blocks change hands with an event; the shared ones are only read.
 * A block's shadow on the host is what it must hold when all that was submitted is done.
 *
 * An operation (struct op) is described first and executed after, so that a step of them can be repeated, or captured
 * into a graph and replayed. random_op.c says what each needs, how it is submitted and what it does to the shadows.
 */
#ifndef PRELOAD_RANDOM_H
#define PRELOAD_RANDOM_H

#include "test/preload/made_up.h"
#include "test/sim/sim.h"

enum {
	THREADS_MAX = 8,
	SLOTS = 7,       /* streams of a thread: legacy, per-thread, two blocking, three non-blocking */
	BLOCKS_MAX = 96, /* of a thread */
	RINGS = 8,       /* pinned pieces of a thread */
	TARGETS_MAX = 48,
	HIDDEN_MAX = 4,
	OPS_MAX = 256,
	TEXTURES_MAX = 5,
};
#define RING_BYTES (64 * KIB)

enum { SLOT_LEGACY, SLOT_OWN, SLOT_BLOCKING, SLOT_FREE = 4 };

struct options {
	bool hidden; /* pointers that lie in device memory */
	bool textures;
	unsigned in_order; /* 1: most blocks are allocated and freed in stream order */
};

/* A stream of a worker; the stream may be destroyed and another take its place, its order goes on. */
struct slot {
	CUstream handle;
	CUevent event;
	unsigned long n, recorded; /* operations so far; so many of them are before the event's last record */
	unsigned long seen[SLOTS]; /* so many of the other slots' operations are before our next one */
	unsigned value;            /* last value that was ordered to be written into our words */
};

struct block {
	CUdeviceptr at;
	size_t bytes;
	unsigned char *shadow;
	unsigned owner, number; /* told in messages */
	unsigned pins;          /* steps, graphs, tables and lists that name it: may not be freed or given away */
	bool pooled;            /* by cuMemAllocAsync */
	bool elsewhere;         /* allocated in another context: cuMemFree need not wait for the work of this one */
	bool addresses;         /* holds addresses, which differ from run to run: not for the digest */
	bool is_kept;           /* there was a texture of it */
	unsigned wrote_slot;
	unsigned long wrote, read[SLOTS]; /* the operation that wrote last, and of each slot the one that read last */
	const char *last;                 /* what wrote last, and the submission it was */
	unsigned long last_submission;
};

/*
 * Pointers in device memory: a table of them, or a list whose nodes lie in several blocks. Of a table's targets so many
 * are in it at a time, from some one on; behind the addresses is how far from each its words are (kernel_odd()).
 */
struct hidden {
	bool list;
	struct block *table; /* of a list: the block of the first node */
	unsigned n, used, first;
	uint32_t words; /* that each points to */
	struct target {
		struct block *block;
		size_t at;
	} target[TARGETS_MAX];
};

enum op_kind {
	OP_LAUNCH,
	OP_STRUCT,
	OP_EXTRA,
	OP_COOPERATIVE,
	OP_EX,
	OP_ODD,
	OP_HIDDEN,
	OP_COPY,
	OP_COPY_SYNC,
	OP_COPY_PLAIN,
	OP_COPY_2D,
	OP_COPY_3D,
	OP_COPY_BATCH,
	OP_COPY_UNKNOWN,
	OP_HTOD_PINNED,
	OP_HTOD_PAGEABLE,
	OP_HTOD_SYNC,
	OP_HOST_FUNCTION,
	OP_DTOH_PINNED,
	OP_DTOH_SYNC,
	OP_SET8,
	OP_SET16,
	OP_SET32,
	OP_SET_SYNC,
	OP_SET_2D,
	OP_KINDS
};
struct op {
	enum op_kind kind;
	unsigned slot;
	struct block *to, *from;     /* from: NULL where there is none */
	size_t to_at, from_at;       /* in bytes */
	uint32_t words, rows, pitch; /* rows, pitch in bytes: of 2D and 3D; pitch as the stride in words of kernels */
	uint32_t salt;
	struct hidden *hidden;
	void *host; /* of a graph: pinned memory of its own */
};

struct ring {
	void *memory, *expected;
	unsigned slot;
	unsigned long n;      /* busy until that operation of the slot is done */
	size_t check;         /* so many bytes must then be as expected */
	uint32_t words, salt; /* for the host function */
};

struct graph {
	CUgraphExec exec;
	unsigned n, n_left;
	struct op op[16]; /* the last n - n_left on a branch of their own */
	CUgraph built;    /* of one that was built and not captured: it, and its nodes */
	CUgraphNode node[16];
	void *host;
};

/* An address that the GPU keeps: a texture, or a tensor map; block is NULL where there is none. */
struct texture {
	struct block *block;
	size_t at;
	uint32_t words;
	bool is_map;
	CUtexObject object;
};

struct worker {
	const struct options *options;
	unsigned id;
	uint64_t random, digest;
	unsigned long submitted, quota;
	struct slot slot[SLOTS];
	struct block *block[BLOCKS_MAX];
	unsigned n_blocks, n_made;
	size_t bytes, share, pooled;
	struct ring ring[RINGS];
	unsigned next_ring;
	unsigned *words, *host_words; /* device and pinned memory that streams write and wait for, one word a slot */
	struct hidden hidden[HIDDEN_MAX];
	unsigned n_hidden;
	struct texture texture[TEXTURES_MAX];
	unsigned char *scratch;
	CUevent fork, join;
	unsigned n_captures, phase;
	struct other *other;
};

/* ---- spill_random.c ---- */

extern CUcontext random_context;
extern struct block *random_shared[4];
extern unsigned random_n_shared;
extern int random_has_values; /* streams can write values, and wait for them */
/* A capture is read, cuCtxSynchronize is write: it makes every capture of its context invalid, natively too. */
extern pthread_rwlock_t random_captures;
static inline uint32_t random_next(struct worker *worker)
{
	return made_up_next(&worker->random);
}
static inline uint32_t random_below(struct worker *worker, uint32_t n)
{
	return random_next(worker) % n;
}
static inline bool random_one_in(struct worker *worker, uint32_t n)
{
	return random_next(worker) % n == 0;
}

/* ---- random_block.c: blocks, and the order of what touches them ---- */

/* Makes, fills and adds a block; NULL when there is no place for more. */
struct block *block_make(struct worker *worker, size_t bytes);
/* Adds memory that is filled with the byte, by an operation that the caller says (block_use). */
struct block *block_add(struct worker *worker, CUdeviceptr at, size_t bytes, unsigned char byte, bool pooled);
/* Submitted work may still use it: the driver promises to wait. */
void block_free(struct worker *worker, unsigned index);
void block_take_off(struct worker *worker, unsigned index);
/* Every byte against the shadow; all that was submitted must be done. */
void block_check(struct worker *worker, struct block *block);
void digest_add(uint64_t *digest, const void *bytes, size_t n);
/* From now on the slot's next operation comes after everything that conflicts with it; and it is that operation. */
void block_use(struct worker *worker, unsigned slot, struct block *block, bool write, const char *what);
/* The slot's next operation comes after the other slot's first n. */
void slot_order(struct worker *worker, unsigned slot, unsigned other, unsigned long n);
void slot_open(struct worker *worker, unsigned slot);
/* Destroys the stream with its work in flight and puts another in its place. */
void slot_renew(struct worker *worker, unsigned slot);
void slot_wait(struct worker *worker, unsigned slot);

/* ---- random_kernel.c: the kernels, and the same on shadows ---- */

enum { KERNEL_MIX, KERNEL_STRUCT, KERNEL_ODD, KERNEL_TABLE, KERNEL_LIST, KERNELS };
extern CUfunction kernel_function[KERNELS];          /* of random_context */
void kernel_open(CUfunction ret_functions[KERNELS]); /* of the current context */
/*
 * A pointer that stands for this place in the block, though it lies less than 512 bytes before or behind the block, or
 * has bits that no address has; the place is ret_by bytes from it.
 */
CUdeviceptr kernel_odd(const struct block *block, size_t at, uint32_t salt, int32_t *ret_by);
struct kernel_struct {
	uint32_t words, stride;
	uint32_t *to;
	const uint32_t *from;
	uint32_t salt;
};
struct kernel_node {
	CUdeviceptr next;
	uint32_t data[];
};
/* to[i * stride] = f(to[i * stride], from[i], salt, i); from may be NULL */
void kernel_mix(uint32_t *to, const uint32_t *from, uint32_t words, uint32_t stride, uint32_t salt);
/* What host memory is filled with. */
void kernel_fill(uint32_t *to, uint32_t words, uint32_t salt);

/* ---- random_op.c: operations ---- */

/* A block whose contents operations may change. */
struct block *op_pick(struct worker *worker);
/* An operation of any kind, or of those that can be captured, or of those that do not wait on the host. */
void op_make(struct worker *worker, struct op *ret_op, bool capturable);
/* One launch of the kernel that takes its pointers as parameters. */
void op_make_launch(struct worker *worker, struct op *ret_op);
/* Its parameters, as cuLaunchKernel takes them; good while both live. */
struct op_params {
	CUdeviceptr to, from;
	uint32_t words, stride, salt;
	void *at[5];
};
void op_params(const struct op *op, struct op_params *ret_params);
/* One that touches the whole of a block, a word every few KiB. */
void op_make_stride(struct worker *worker, struct op *ret_op, struct block *to, struct block *from);
void op_pin(const struct op *op, int by);
void op_order(struct worker *worker, const struct op *op, unsigned slot);
void op_submit(struct worker *worker, const struct op *op, CUstream stream, unsigned slot);
void op_apply(struct worker *worker, const struct op *op);
void op_run(struct worker *worker, const struct op *op); /* the three above */
void op_submitted(struct worker *worker);
struct ring *ring_take(struct worker *worker, unsigned slot);
void ring_settle(struct worker *worker, struct ring *ring);

/* ---- random_hidden.c: pointers in device memory ---- */

void hidden_make(struct worker *worker);
void hidden_drop(struct worker *worker, unsigned index);
void hidden_apply(const struct hidden *hidden, uint32_t salt);
/*
 * The slot writes other addresses into the table, perhaps; always if no pointer is to be hidden, for then a launch may
 * only follow what was copied from the host just before (spillway-limits(7)).
 */
void hidden_renew(struct worker *worker, struct hidden *hidden, unsigned slot);

/* ---- random_crowd.c: many streams, many threads ---- */

/* Up to hundreds at once write a part of a block each; streams are destroyed, threads end with their work in flight. */
void crowd_play(struct worker *worker);

/* ---- random_context.c: other contexts of the device ---- */

/* What runs in one works on the thread's blocks. It ends with its work in flight, and with frees that are to come. */
void context_play(struct worker *worker);
void context_close(struct worker *worker);

/* ---- random_texture.c: addresses that the GPU keeps ---- */

void texture_open(void);
/* Makes some, drops one, or launches with one. */
void texture_play(struct worker *worker);
void texture_drop(struct worker *worker, struct texture *texture);

/* ---- random_graph.c: captures and graphs ---- */

/* Captures some operations, or builds a graph of them, and replays them a few times. */
void graph_play(struct worker *worker);

#endif
