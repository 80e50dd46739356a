// SPDX-License-Identifier: Apache-2.0
/* fake_torch_internal.h: the allocator of fake_torch.h, for its files. fake_torch.c calls fake_torch_block.c. */
#ifndef PRELOAD_FAKE_TORCH_INTERNAL_H
#define PRELOAD_FAKE_TORCH_INTERNAL_H

#include "test/preload/fake_torch.h"

#include <pthread.h>

#define FAKE_TORCH_POOLS    256
#define FAKE_TORCH_RECORDED 4

enum state {
	BLOCK_FREE,
	BLOCK_USED,
	BLOCK_PENDING,  /* a recorded stream has not passed yet */
	BLOCK_UNMAPPED, /* address space of an expandable segment: whole handles */
};

struct segment {
	struct segment *next;
	struct block *first;
	CUdeviceptr at;
	size_t bytes;
	unsigned pool;
	CUstream stream;
	bool small, is_slab;
	size_t handle; /* bytes of its handles if it is expandable; 0: it is not */
};

struct block {
	struct block *before, *after; /* in its segment */
	struct segment *segment;
	CUdeviceptr at;
	size_t bytes;
	enum state state;
	bool filled; /* it holds what it was filled with when it came from the driver: nobody had it before */
	unsigned n_recorded;
	CUstream recorded[FAKE_TORCH_RECORDED];
	CUevent event[FAKE_TORCH_RECORDED];
};

struct pool {
	CUdeviceptr slab;
	size_t slab_bytes, slab_used;
	struct fake_plug plug; /* NULL: the driver */
	bool is_kept;
};

struct fake_torch {
	pthread_mutex_t lock;
	int device;
	size_t allocated, reserved;
	size_t handle; /* of expandable segments that are made; 0: they are not expandable */
	unsigned word; /* what comes from the driver is filled with it; 0: it is not */
	struct segment *segments;
	struct pool pools[FAKE_TORCH_POOLS];
	unsigned n_pools, n_captures;
};

/* Programs that export their functions may have some of these names. */
#pragma GCC visibility push(hidden)

/* Ends the process, and says what failed. */
void must(CUresult result, const char *what);
/* A block behind this one, or, NULL, at the segment's beginning. */
struct block *block_new(struct segment *segment, struct block *before, CUdeviceptr at, size_t bytes);
/* The block that follows becomes part of this one. */
void block_join(struct block *block);
void block_free(struct block *block);
/* Cuts off what lies behind the first `bytes` bytes, as a block in the same state. */
void block_cut(struct block *block, size_t bytes);
struct block *block_at(const struct fake_torch *torch, CUdeviceptr at);
/* Blocks whose recorded streams have passed are free. wait: wait for them. */
void process_events(struct fake_torch *torch, bool wait);

#pragma GCC visibility pop

#endif
