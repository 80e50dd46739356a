// SPDX-License-Identifier: Apache-2.0
/*
 * torch_random.h: what the files of torch_random share: its tensors and what is done with them (torch_random_op.c), how
 * they come and go (torch_random_tensor.c, torch_random_graph.c, torch_random_pool.c), and the program itself
 * (torch_random.c).
 */
#ifndef PRELOAD_TORCH_RANDOM_H
#define PRELOAD_TORCH_RANDOM_H

#include "shim/spillway.h"
#include "test/preload/fake_torch.h"
#include "test/preload/made_up.h"

enum {
	STREAMS = 3,
	TENSORS = 64,
	GRAPHS = 2,
	THREADS_MAX = 4,
};
#define TENSOR_MOST (5 * MIB)
#define FILL        0x5a5a5a5au /* what the allocator has filled new memory with */

/* MiB of a handle, where segments are expandable; or 0. */
extern unsigned handle_mib;

/* Any memory with contents; shadow: what all of its words must be once what was submitted is done. */
struct tensor {
	CUdeviceptr at;
	size_t bytes;
	uint32_t *shadow;
	unsigned pool;
	unsigned home, last; /* streams: that it was allocated for, that used it last */
	unsigned pins;       /* of graphs */
	bool is_slab;        /* the allocator has not got it, or has it back */
};

/*
 * Captured: from `in` by way of tensors that die in the capture to `sum`, which keeps what it has, and `out`.
 * The allocator may have `sum` back: nobody is given its memory as long as there is the graph.
 */
struct graph {
	CUgraphExec exec;  /* NULL: there is none */
	CUgraphExec other; /* a second thread's: it adds to `sum` */
	unsigned pool;
	uint32_t salt;
	struct tensor *in, *sum, *out;
};

struct worker {
	pthread_t thread;
	unsigned id;
	uint64_t random;
	size_t bytes, share; /* of tensors: there are, there may be */
	CUstream stream[STREAMS];
	CUevent event;
	struct tensor *tensor[TENSORS];
	unsigned n_tensors;
	struct graph graph[GRAPHS];
	bool is_capturing;
	unsigned saved; /* pool whose state is restored now and then */
	unsigned slab_pool;
	unsigned plugged, n_plugged; /* pool of the allocator that keeps; how many it has had */
	CUdeviceptr slab;            /* 0: there is none */
	uint32_t *words;             /* as large as a tensor may be */
	CUdeviceptr tables;          /* of each stream, addresses that no launch names; 0: there are none */
};

extern const struct fake_torch_functions *torch;
extern struct fake_torch *torch_cache;

/* ---- torch_random.c ---- */

extern CUcontext context;
extern bool suspends; /* they are wanted, and there is the library */
void suspend_for_a_while(void);
/* Suspends, and has another thread resume soon. Returns false if it does not suspend now. */
bool suspend_begin(pthread_t *ret_thread);

/* ---- torch_random_op.c ---- */

/* The next number of its own chance, 0 ... n - 1. */
uint32_t worker_below(struct worker *worker, uint32_t n);
void worker_settle(struct worker *worker);

/* Now and then a kernel finds in device memory where it writes and what it reads, so that nothing names them. */
extern bool op_has_tables;
/*
 * The same, with a kernel that waits for the address: it is told of the tensor later, by sets, copies or a graph on
 * another stream. It writes the first n words; nothing but op_tell() may follow on the stream before that.
 */
uint32_t op_wait(struct worker *worker, size_t n, unsigned stream);
void op_tell(struct worker *worker, struct tensor *tensor, unsigned stream);
/* Now and then a kernel is given where its memory ends, as by reverse iterators; natively that is always right. */
extern bool op_has_ends;
/* The cache gives back what it does not use. */
void cache_empty(void);
/* Loads the kernels. */
void op_prepare(void);
/* No other thread submits anything until op_release(). */
void op_hold(void);
void op_release(void);

/* A tensor in the pool, for that stream; NULL: not in this slab. Its words are not known. */
struct tensor *tensor_make(struct worker *worker, unsigned pool, unsigned home, size_t bytes);
/* Adds memory that the allocator does not have, or has not got from this program. */
struct tensor *tensor_add(struct worker *worker, CUdeviceptr at, size_t bytes);
/* A tensor that is not of a slab's part dies. What was submitted may still use it. */
void tensor_drop(struct worker *worker, struct tensor *tensor);
/* The same, but its memory is not given to anybody: it can be used until it is dropped. */
void tensor_die(struct worker *worker, struct tensor *tensor);
/* Give it contents, by a kernel and by a set. */
void tensor_fill(struct worker *worker, struct tensor *tensor, unsigned stream);
void tensor_set(struct worker *worker, struct tensor *tensor, unsigned stream);
/* Every word against the shadow. */
void tensor_check(struct worker *worker, struct tensor *tensor);

/* The stream's next operation comes after what was done with the tensor. */
void tensor_order(struct worker *worker, struct tensor *tensor, unsigned stream);

/* The kernel, over n words, and what it does to a shadow; from may be NULL. keep: what `to` has counts, too. */
void kernel_submit(const struct tensor *to, const struct tensor *from, size_t n, uint32_t salt, bool keep,
		   CUstream stream);
void kernel_apply(uint32_t *to, const uint32_t *from, size_t n, uint32_t salt, bool keep);
/* Both, in order, over whole tensors. */
void kernel_run(struct worker *worker, struct tensor *to, struct tensor *from, bool keep, unsigned stream);
/* The same, later: other streams go on meanwhile. */
void kernel_run_late(struct worker *worker, struct tensor *to, struct tensor *from, unsigned stream);
/* Any operation on a part of a tensor. */
void part_run(struct worker *worker, struct tensor *to, struct tensor *from, unsigned stream);
void graph_launch(struct worker *worker, CUgraphExec exec, unsigned stream);

/* ---- torch_random_tensor.c ---- */

size_t any_size(struct worker *worker);
unsigned any_stream(struct worker *worker);
struct tensor *any_tensor(struct worker *worker);
/* There is room for so many bytes more. */
bool has_room(const struct worker *worker, size_t bytes);
/* In any pool, of known contents; NULL: not in this slab. */
struct tensor *tensor_any_new(struct worker *worker, size_t bytes);
void drop_any(struct worker *worker);
/* Drops tensors until there is room. Returns false if there is none. */
bool make_room(struct worker *worker, size_t bytes);
/* A tensor dies right after the launch of a kernel that reads it, on a stream that is perhaps not its own. */
void drop_behind_a_reader(struct worker *worker);
/*
 * A kernel that runs is told of a tensor that is born in memory that has died, and was perhaps discarded: nothing was
 * submitted since but what tells it. Nothing is allocated or freed by the driver while the kernel waits: the memory is
 * there.
 */
void tell_running(struct worker *worker);
/* The same again and again: tensors that live for a part of it, of always the same sizes. */
void repeat_step(struct worker *worker);

/* ---- torch_random_birth.c ---- */

/* Tensors are born while a stream captures, though not for its graph, and where a segment had other memory before. */
void be_born_beside_captures(struct worker *worker);
/* Tensors are born, die and are used while the process is suspended. */
void go_on_away(struct worker *worker);
/* A block of which the program itself says what is alive, also in what it has grown by. */
void speak_of_a_block(struct worker *worker);

/* ---- torch_random_graph.c ---- */

void graph_drop(struct worker *worker, struct graph *graph);
void graph_play(struct worker *worker);

/* ---- torch_random_pool.c ---- */

void restore(struct worker *worker);
void slab_drop(struct worker *worker);
/* Its outer parts are memory like any other, of which nobody reports anything. */
void slab_change(struct worker *worker);
void plug_pool(struct worker *worker);
/* The cache gives back what it does not use; somebody else has it now, and reports nothing. */
void plug_change(struct worker *worker);

#endif
