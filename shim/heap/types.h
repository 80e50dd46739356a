// SPDX-License-Identifier: Apache-2.0
/*
 * types.h: what this room keeps. Other rooms know only what heap.h, arena.h and migration.h say.
 *
 * Each field is guarded by HEAP unless its comment says otherwise; an _Atomic one is written under HEAP and may be read
 * without it.
 */
#ifndef SPILLWAY_HEAP_TYPES_H
#define SPILLWAY_HEAP_TYPES_H

#include "shim/heap/arena.h"
#include "shim/plan/piece_sizes.h"

#include <stdatomic.h>

struct small; /* below */

/*
 * A chunk is one physical allocation (cuMemCreate), or a compound one of several (chunk.h). Owner: the block that has
 * it, from chunk_take_warm() or chunk_make() to chunk_put(); otherwise it is warm or refused in the store, still
 * charged to its budget.
 */
struct chunk {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr alias; /* 0: none yet */
	uint8_t units, place, kind;
	uint8_t lender;  /* place is CHUNK_PEER: index into the store's lenders */
	bool moving;     /* being migrated (migration.h) */
	bool shut;       /* the alias is mapped without access, because the driver refused both access and unmapping */
	bool exportable; /* was made to be exported as a file descriptor */
	bool unbacked;   /* has no physical memory; place is CHUNK_HOST */
	struct chunk *parts; /* of a compound chunk (chunk.h), which has no handle and no alias itself; else NULL */
	struct block *block; /* the block in which it is mapped; NULL while warm */
	struct chunk *next;  /* next in its block, in the warm list or among the refused */
};

/* The chunks of a heap: those that no block has, and what they are charged to. */
struct chunk_store {
	CUdevice device;
	uint64_t own; /* the bit of the device, as in `peers` */
	unsigned n_lenders;
	struct lender *lenders[HEAP_LENDERS];
	const _Atomic uint64_t *peers; /* of heap_config */
	bool usable[CHUNK_PLACES];
	/* For device and host only; peers have theirs in `lenders`. */
	CUmemLocation location[CHUNK_PLACES];
	struct budget *budget[CHUNK_PLACES];
	bool rdma, exportable; /* fixed chunks: what the device supports */
	bool share;            /* movable chunks must be exportable, too */
	/* time (ns) when the driver last had no device memory within the budget; 0: it has had some since */
	_Atomic uint64_t full;
	struct chunk *warm[CHUNK_KINDS][CHUNK_PLACES][CHUNK_MOST + 1];
	struct chunk *refused; /* dropped, but the driver has refused to release them */
	/* warm chunks; all chunks that exist, made >= warm */
	uint64_t warm_bytes[CHUNK_PLACES], made_bytes[CHUNK_PLACES];
	CUdeviceptr alias_base; /* 0 until the first chunk moves */
	struct range_set alias_units;
};

/*
 * A block is a run of address space with chunks mapped all along it (block.h). Owner: the caller of block_take() until
 * block_give(), then the block_store.
 */
struct block {
	uint32_t unit, units;         /* first unit and length */
	uint32_t units_mapped;        /* less than `units` only while the block is built or taken down, or 0 if loose */
	uint32_t units_gone;          /* units from the start that were taken down already */
	uint64_t bytes[CHUNK_PLACES]; /* physical bytes by place */
	struct chunk *chunks;         /* in the order of their addresses */
	struct slab *slab;            /* the slab in this block, or NULL */
	struct on_use *on_use; /* the allocation backed on use that it is a part of, whose address space it has */
	enum chunk_kind kind;  /* kind of all its chunks */
	uint32_t n_pins;       /* that will end: of heap_pin(), heap_hold(), the program, or while it is not open */
	bool stays;            /* pinned until it is freed; always set for fixed memory */
	bool stays_beside;     /* pinned because of `elsewhere` while memory moves beside what runs */
	bool elsewhere;        /* its address is kept where no submission names it (heap_stay_beside) */
	bool left;             /* others may know its memory, or it is striped: it goes back to the driver when freed */
	bool shared;           /* its chunks can be exported, and the program has asked for it (heap_share_begin) */
	bool loose;            /* the program maps and unmaps it (block_unmapped.h); unmapped, it has no address */
	bool whole;            /* must be one chunk */
	bool placed;           /* loose: it was mapped at some time, so it may have contents */
	bool open;             /* loose, mapped: its device has been granted access */
	bool unreported;       /* loose, mapped in `fast`: pinned, as it is not known how far pointers into it reach */
	bool bounded;          /* loose, mapped in `fast`: counted in n_bounded (arena.h) */
	bool keep;     /* a rule keeps it, or an allocation in it (a slab), on the device in `fast` mode (piece.c) */
	bool to_host;  /* the program wants it on the host: pieces there stay, the rest is to follow */
	void *divider; /* who divides it into parts (heap_divide), or NULL */
	bool unused;   /* divided: no part is in use, and the memory counts as idle */
	struct asked_pin *asked;           /* pins that the program itself has made (pin.c) */
	uint32_t n_moving;                 /* its chunks that are moving (migration.h) */
	bool given;                        /* freed while chunks of it are moving */
	struct block *bin_next, *bin_prev; /* warm list of like length */
	struct block *age_next, *age_prev; /* warm list by age, oldest last */
};

/* Pins of the program on one allocation; a slab may have several of these. */
struct asked_pin {
	struct asked_pin *next;
	CUdeviceptr base;
	uint32_t n;
};

/* An allocation that is backed on use (on_use.c). Its parts are blocks, which have its address space. */
struct on_use {
	uint32_t unit, units;
	uint32_t n_blocks; /* parts that are not taken down */
	unsigned site;     /* that all of them count for */
	bool keep;         /* as heap_on_use_reserve() got it */
	bool freed;
	struct on_use *next, **link; /* in the list of those that are not freed */
};

/* The blocks of a heap: warm and stuck ones, and how new ones are made. */
#define BLOCK_BINS 513 /* one list for each length up to 512 units (1 GiB), the last for all longer blocks */

struct block_store {
	struct arena arena;
	struct chunk_store chunks;
	bool moves;             /* memory migrates to where it is used, so where it is allocated matters little */
	bool beside;            /* and beside what runs (heap_set_beside) */
	unsigned most_units;    /* largest piece set by the user; 0: chosen by block.c, */
	atomic_uint auto_units; /* up to this limit */
	const _Atomic uint64_t *piece_budget; /* heap.h */
	struct block *bin[BLOCK_BINS];
	struct block *newest, *oldest;
	struct block *stuck;
	bool tight;      /* as much again as the latest request was beyond the limit (heap_is_beyond) */
	bool no_address; /* the latest block found no address space */
	uint64_t warm_bytes[CHUNK_PLACES];
	uint64_t unused_bytes[CHUNK_PLACES]; /* of unused divided blocks */
	atomic_uint n_given;                 /* freed blocks with moving pieces */
	atomic_uint n_awaited;               /* threads that wait for moving pieces to arrive */
	/*
	 * News for the mover, if it has asked for them: first units of pieces that came or went; `all`: some could not
	 * be stored.
	 */
	struct {
		bool wanted, all;
		uint32_t *pieces;
		uint32_t n, room;
	} news;
	uint64_t empty_bytes[CHUNK_PLACES]; /* of empty slabs, which small.c gives up when no warm block is left */
	bool (*give_up_slab)(struct small *small); /* small_reclaim(); block.c knows nothing of small.c */
	struct small *small;
};

/* A slab (small.c): its block, and which of its slots are free. */
struct slab {
	struct block *block;
	struct slab *next, *prev; /* on a partial list */
	uint16_t size_class, n_slots, n_free;
	uint16_t first_word; /* no free slot in the words before this one */
	uint64_t free[];     /* one bit a slot, as many words as the class needs */
};

/* The slabs of a heap that have a free slot (small.c). */
#define SMALL_CLASSES 40

struct small {
	struct block_store *store;
	/* slabs with a free slot; device memory is tried first */
	struct slab *partial[CHUNK_KINDS][SMALL_CLASSES][CHUNK_PLACES];
	struct slab *empty[CHUNK_KINDS][SMALL_CLASSES]; /* at most one of each class, not on `partial` */
};

/*
 * What a heap holds at each place, in bytes, as it was when HEAP was last dropped. Written under HEAP where that has
 * changed, read without it.
 */
struct heap_figures {
	_Atomic uint64_t free[CHUNK_PLACES];   /* in warm blocks and warm chunks */
	_Atomic uint64_t idle[CHUNK_PLACES];   /* with empty slabs and unused divided blocks */
	_Atomic uint64_t in_use[CHUNK_PLACES]; /* all the rest */
};

/* One device's heap. */
struct heap {
	struct lock lock;
	struct block_store store;
	struct small small;
	struct on_use *on_use;        /* on_use.c */
	_Atomic bool no_peers;        /* evictions go to the host only (heap_lend) */
	_Atomic unsigned n_pinning;   /* threads that pin host memory for spare.c */
	_Atomic uint64_t taken_bytes; /* of spares that are not exchanged yet (migration.c) */
	struct chunk *left;           /* spares that the driver may still write to: never reused. Under HEAP */
	uint64_t keep[CHUNK_PLACES];
	uint64_t ahead; /* host memory that is kept pinned for what lies on the device (spare.c) */
	/* what is kept (heap.c) */
	bool at_once[CHUNK_PLACES];   /* idle memory goes back at once, even if it was in use lately */
	uint64_t least[CHUNK_PLACES]; /* minimum of idle bytes in the present span of ticks */
	unsigned ticks[CHUNK_PLACES]; /* ticks in the present span */
	uint64_t ticked;              /* time of the last tick, or of the start, ns; 0: no ticks */
	struct heap_figures figures;
};

/* ---- what the fields say ---- */

#define COMPOUND_PART_MOST 16 /* units: 32 MiB */

static inline uint64_t chunk_bytes(unsigned units)
{
	return (uint64_t)units * HEAP_UNIT;
}

/* Returns bits: the peers to which a mapping that is made now must be opened. */
static inline uint64_t chunk_peers(const struct chunk_store *store)
{
	return store->peers ? atomic_load(store->peers) : 0;
}

/* Returns the length, in units, of the first part of what is so long; of a power of two up to the limit, all of it. */
static inline unsigned compound_part(unsigned units)
{
	unsigned part = COMPOUND_PART_MOST;

	while (part > units)
		part /= 2;
	return part;
}

/*
 * Returns whether movable memory of the host may be compound chunks. Memory that others are to know must
 * have one handle (heap_share_begin).
 */
static inline bool block_takes_parts(const struct block_store *store)
{
	return store->beside && !store->chunks.share;
}

/* Returns the address of the part that is not taken down yet. */
static inline CUdeviceptr block_address(const struct block_store *store, const struct block *block)
{
	return arena_address(&store->arena, block->unit + block->units_gone);
}

/*
 * Returns whether a piece starts here and its block is in use. A freed block has no words in the table, but its pieces
 * stay mapped while it is warm.
 */
static inline bool block_has_piece(const struct arena *arena, uint32_t piece)
{
	return piece < arena->n_units && atomic_load(&arena->piece[piece]) == piece + 1 &&
	       atomic_load(&arena->table[piece]) != 0;
}

static inline bool block_is_pinned(const struct block *block)
{
	return block->n_pins || block->stays || block->stays_beside || block->unreported;
}

/* Returns whether a piece at `place` must stay there. */
static inline bool block_keeps(const struct block *block, enum chunk_place place)
{
	return block_is_pinned(block) || (block->to_host && place == CHUNK_HOST);
}

static inline uint64_t block_away(const struct block *block)
{
	return block->bytes[CHUNK_HOST] + block->bytes[CHUNK_PEER];
}

/* Returns whether an allocation with this `from` may use the block where it is. */
static inline bool block_suits(const struct block *block, enum heap_from from)
{
	if (from == HEAP_DEVICE)
		return !block_away(block);
	if (from == HEAP_STRIPE)
		return false;
	return from == HEAP_DEVICE_FIRST || !(block->bytes[CHUNK_DEVICE] + block->bytes[CHUNK_PEER]);
}

/* Adds what the block has to what a request was given. */
static inline void block_grant(const struct block *block, struct heap_grant *grant)
{
	grant->bytes_on_device += block->bytes[CHUNK_DEVICE];
	grant->bytes_away += block->bytes[CHUNK_HOST] + block->bytes[CHUNK_PEER];
	grant->bytes_lent += block->bytes[CHUNK_PEER];
}

#endif
