// SPDX-License-Identifier: Apache-2.0
/*
 * peers.h: what the files of peer_random share, a program made up from a seed that uses several GPUs as programs do and
 * knows what every byte must be, because the order of any two accesses that conflict is always established.
 *
 * Each thread (struct worker) has its own blocks, streams and random numbers. A stream of a worker is a lane: of each
 * device two streams, the legacy one and the thread's default one, and at times one of a context that the worker has
 * made beside the primary ones, its guest. Contexts, pools, and who may reach whose memory, are common to all threads
 * (struct world): operations are made and submitted under its lock for reading, and whatever takes access away or waits
 * for a whole context, which no stream capture survives, is done under it for writing.
 *
 * A block's shadow on the host is what it must hold when all that was submitted is done.
 */
#ifndef PRELOAD_PEERS_H
#define PRELOAD_PEERS_H

#include "test/preload/made_up.h"
#include "test/sim/sim.h"

enum {
	DEVICES = 8,
	THREADS = 4,
	POOLS = 2,      /* of each device: the default one, and one that was made */
	PER_DEVICE = 4, /* lanes: two streams, the legacy one, the thread's default one */
	LANE_LEGACY = 2,
	LANE_OWN = 3,
	LANE_GUEST = DEVICES * PER_DEVICE,
	LANES,
	BLOCKS = 160, /* of a thread */
	GRAPHS = 3,
	GRAPH_OPS = 10,
	HOST_WORDS = 64 << 10,
	NO_DEVICE = -1,
};

struct functions {
	CUfunction mix, chase, rest; /* rest: for so many us */
};

enum access { ACCESS_NONE, ACCESS_READ, ACCESS_WRITE };

struct world {
	bool hidden;
	int devices;
	CUcontext context[DEVICES];
	struct functions functions[DEVICES];
	CUmemoryPool pool[DEVICES][POOLS];
	int wired[DEVICES][DEVICES];
	pthread_rwlock_t lock;
	/* Under the lock: may kernels of the first device touch memory of the second; memory of that pool of it. */
	bool open[DEVICES][DEVICES];
	enum access pool_open[DEVICES][DEVICES][POOLS];
};
extern struct world world;

struct lane {
	CUstream stream;
	CUevent event, fork; /* fork: of captures */
	CUcontext context;
	int device;
	bool exists, dirty; /* dirty: given work since the event's last record */
};

enum block_kind { BLOCK_PLAIN, BLOCK_POOLED, BLOCK_HOST };

struct block {
	CUdeviceptr at;
	enum block_kind kind;
	int device; /* of BLOCK_HOST: NO_DEVICE */
	int pool;
	bool guest;      /* of the guest's context */
	bool registered; /* of BLOCK_HOST: the program's own pages */
	size_t words;
	uint32_t *shadow;
	uint64_t writer, readers; /* lanes, bits; of the work since the last write */
	unsigned pins;            /* graphs that name it: may not be freed */
	const char *last;         /* what wrote last, and which operation of the worker it was */
	unsigned long last_number;
};

enum op_kind {
	OP_MIX,
	OP_CHASE,
	OP_SET,
	OP_DTOD,
	OP_PLAIN,
	OP_PEER,
	OP_PEER_NOW,
	OP_PEER_3D,
	OP_BATCH,
	OP_2D,
	OP_3D,
	OP_IN,
	OP_OUT,
	OP_KINDS
};

/* An operation is described first and submitted after, so that it can be part of a graph. */
struct op {
	enum op_kind kind;
	unsigned lane;
	struct block *to, *from; /* from: NULL where there is none */
	size_t to_at, from_at, words;
	uint32_t salt;
};

struct graph {
	CUgraphExec exec;
	CUgraph built; /* one that was built and not captured: it, and its nodes */
	CUgraphNode node[GRAPH_OPS];
	struct op op[GRAPH_OPS];
	unsigned n;
	bool chain; /* each operation after the one before: may be captured anew, with other blocks */
};

/* A context beside the primary ones, in which one worker works for a while. */
struct guest {
	CUcontext context; /* NULL: there is none now */
	int device;
	struct functions functions;
	bool reaches[DEVICES], reached[DEVICES]; /* memory of primary contexts; by kernels of them */
};

struct worker {
	pthread_t thread;
	unsigned id, operations;
	uint64_t random;
	struct lane lane[LANES];
	struct guest guest;
	struct block *block[BLOCKS];
	unsigned n_blocks;
	size_t words[DEVICES + 1]; /* live on each, and on the host */
	struct block table[DEVICES];
	struct graph *graph[GRAPHS];
	unsigned n_graphs;
	uint32_t *pinned, *pageable;
	unsigned long done;
};
extern struct worker workers[THREADS];

static inline uint32_t peers_next(struct worker *worker)
{
	return made_up_next(&worker->random);
}
static inline uint32_t peers_below(struct worker *worker, size_t n)
{
	return peers_next(worker) % (uint32_t)n;
}
static inline bool peers_one_in(struct worker *worker, unsigned n)
{
	return peers_next(worker) % n == 0;
}

/* ---- peer_lane.c: lanes, and the order of what they do ---- */

void lanes_open(struct worker *worker);
void lane_make(struct worker *worker, unsigned lane, CUcontext context, int device, CUstream stream);
unsigned lane_any(struct worker *worker);
unsigned lane_of(struct worker *worker, int device);
void lane_be(const struct worker *worker, unsigned lane);
/* What the lane does next comes after all that conflicts with it; its context is current after that. */
void lane_order(struct worker *worker, unsigned lane, struct block *block, bool write, const char *what);
void lane_submitted(struct worker *worker, unsigned lane);
/* All that uses the block is done. */
void lane_settle(struct worker *worker, struct block *block);
/* Another stream takes the lane's place, with work in flight. */
void lane_renew(struct worker *worker, unsigned lane);

/* ---- peer_reach.c: contexts, pools, and who may reach whose memory ---- */

void reach_open(void);
/* May kernels of the lane touch the block? Under the world's lock, as all that follows from the answer. */
bool reach_may(const struct worker *worker, unsigned lane, const struct block *block, bool write);
/* Access between two devices, or to a pool, comes or goes. Takes the lock for writing. */
void reach_change(struct worker *worker);
/* The worker's guest comes, or goes with all that is in it. */
void guest_change(struct worker *worker);
void guest_end(struct worker *worker);

/* ---- peer_kernel.c ---- */

void kernel_load(struct functions *ret_functions); /* into the current context */
void kernel_mix(uint32_t *to, const uint32_t *from, size_t n, uint32_t salt);

/* ---- peer_block.c ---- */

void block_make(struct worker *worker);
/* Every word against the shadow. */
void block_check(struct worker *worker, struct block *block);
void block_free(struct worker *worker, unsigned index);
/* Nothing more is done with it: forgotten as it is, with the context that goes. */
void block_forget(struct worker *worker, unsigned index);
void block_open_tables(struct worker *worker);

/* ---- peer_op.c ---- */

/* false: nothing was found that may be done now. Of a graph: what can be captured, or a kernel. */
enum op_use { OP_ANY, OP_OF_GRAPH, OP_KERNEL };
bool op_make(struct worker *worker, struct op *ret_op, enum op_use use);
bool op_may(const struct worker *worker, const struct op *op);
/* Is it only submitted, and nothing waited for? */
bool op_returns(const struct op *op);
/* Other blocks for the same kernel on the same lane. */
bool op_change_blocks(struct worker *worker, struct op *op);
bool op_conflict(const struct op *a, const struct op *b);
void op_pin(const struct op *op, int by);
void op_order(struct worker *worker, const struct op *op, unsigned lane);
void op_submit(struct worker *worker, const struct op *op);
void op_apply(const struct op *op);
void op_run(struct worker *worker, const struct op *op);
struct op_params {
	CUdeviceptr to, from;
	size_t n;
	uint32_t salt;
	void *at[4];
};
void op_params(const struct op *op, struct op_params *ret_params);
const struct functions *op_functions(const struct worker *worker, unsigned lane);

/* ---- peer_beside.c: copies beside what their waits must leave alone, and behind what they must wait for ---- */

/*
 * Two lanes take turns in a pool that has room for one block: the second copies into it from anywhere as soon as the
 * first has freed it, still with work to do.
 */
void beside_pool(struct worker *worker);
/* What a copy needs in between comes from such a pool. Takes the lock for writing, as the next one does. */
void beside_full_pool(struct worker *worker);
/* Copies and kernels while another thread captures, in the mode that forbids all threads to wait. */
void beside_capture(struct worker *worker);

/* ---- peer_graph.c ---- */

void graph_make(struct worker *worker);
void graph_play(struct worker *worker);
void graph_drop(struct worker *worker, unsigned index);

#endif
