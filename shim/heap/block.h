/*
 * block.h: a run of address space with chunks mapped all along it: one allocation of the program, or one slab.
 *
 * States: in use (the program's, or a slab's), warm (free, still mapped, on the list of its length and on the list by
 * age), stuck (the driver refused to unmap it; retried at every trim). A block in use may change the places of its chunks
 * (migration.h); one that is given back meanwhile becomes warm when the last of them has arrived. Lock: HEAP. Owner: the block_store from block_give() on, before that whoever took it.
 */
#ifndef SPILLWAY_BLOCK_H
#define SPILLWAY_BLOCK_H

#include "shim/heap/arena.h"
#include "shim/heap/chunk.h"

#include <stdatomic.h>

struct slab;

struct block {
	uint32_t unit, units;         /* where, how long; in units of the arena */
	uint32_t units_mapped;        /* less than units only while being built or taken down */
	uint32_t units_gone;          /* from the start: taken down already */
	uint64_t bytes[CHUNK_PLACES]; /* physical bytes by place */
	struct chunk *chunks;         /* in the order of their addresses */
	struct slab *slab;            /* the slab this block is, or NULL */
	enum chunk_kind kind;         /* of all its chunks */
	uint32_t n_pins;              /* heap_pin() calls that have not ended */
	bool stays;                   /* it is pinned for as long as it lives; fixed blocks always are */
	bool left;    /* others may know its memory, or it is striped: it goes back to the driver when freed */
	bool shared;  /* its chunks can be exported, and the program has asked for it (share.c) */
	bool
	    loose; /* it has the address that the program gives it, or none: units_mapped is 0 then (block_unmapped.h) */
	bool whole;   /* it is one chunk, whatever its size */
	bool placed;  /* loose: it has been, so it may hold something */
	bool open;    /* loose, placed: its device has been granted access */
	bool keep;    /* a rule says that it, or something in it (a slab), stays on the device in `fast` (piece.c) */
	bool to_host; /* the program wants it there: what is there stays, the rest is to follow */
	struct asked_pin *asked;           /* pins that the program itself has made (pin.c) */
	uint32_t n_moving;                 /* chunks of it that are changing places (migration.h) */
	bool given;                        /* given back while they are */
	struct block *bin_next, *bin_prev; /* warm, of like length */
	struct block *age_next, *age_prev; /* warm, oldest last */
};

#define BLOCK_BINS 513 /* one for each length up to 512 units (1 GiB), the last for all that are longer */

struct block_store {
	struct arena arena;
	struct chunk_store chunks;
	bool moves;          /* memory moves to where it is used, so it matters little where it begins */
	unsigned most_units; /* of a piece, as the user wants it; 0: as block_build.c thinks best, */
	unsigned auto_units; /* but no more than that */
	struct block *bin[BLOCK_BINS];
	struct block *newest, *oldest;
	struct block *stuck;
	uint64_t warm_bytes[CHUNK_PLACES];
	atomic_uint n_given;   /* blocks given back while pieces of theirs are on their way */
	atomic_uint n_awaited; /* calls that wait for pieces on their way to arrive */
	/*
	 * For the mover, while it wants to know: pieces that came or went, by their first units; `all` when some could
	 * not be written down.
	 */
	struct {
		bool wanted, all;
		uint32_t *pieces;
		size_t n, room;
	} news;
	/* Asked when nothing warm is left to take down: give up an empty slab. False when there is none. */
	bool (*reclaim_more)(void *owner);
	void *owner;
};

/*
 * A block of at least that many units, all mapped. From a warm block if one fits well, else built from warm chunks and
 * new ones; device memory as far as the budget goes, then that of peers, then host memory, as `from` allows. NO_MEMORY: nothing has changed,
 * except that warm memory may have gone back to the driver. *ret_reused: a warm block was taken.
 */
enum sw_status block_take(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from from,
			  struct block **ret_block, bool *ret_reused);
/* The block begins to be used, after it was taken and before it is marked in the arena. */
void block_begin(struct block_store *store, struct block *block);
/* Units of the largest piece it makes at present. No lock. */
unsigned block_largest_piece(const struct block_store *store);
/* Sets block.keep, and what the mover sees of it. Locking: the caller holds HEAP. */
void block_set_keep(struct block_store *store, struct block *block, bool keep);
/* The block is free; it becomes warm, or goes back to the driver if others may know its memory. */
void block_give(struct block_store *store, struct block *block);
/* Take warm blocks down, oldest first, and release chunks, until at most this much free memory is held. */
void block_trim(struct block_store *store, const uint64_t keep[CHUNK_PLACES]);

/*
 * Build a block in address space that was taken for it, as block_take() does without warm ones; on failure the address
 * space has been given back.
 */
enum sw_status block_build(struct block_store *store, uint32_t unit, uint32_t units, enum chunk_kind kind,
			   enum heap_from from, struct block **ret_block);
/* The same without an address and without mapping it (block_unmapped.h). whole: one chunk. On failure there is no block. */
enum sw_status block_make_unmapped(struct block_store *store, uint32_t units, bool whole, enum heap_from from,
				   struct block **ret_block);
/*
 * Unmap what is mapped, from the front; chunks become warm. True: nothing is left, the block is gone. False: the driver
 * refused; the block is stuck with what is left of it. For one that is not warm, or no longer.
 */
bool block_take_down(struct block_store *store, struct block *block);
/* Tries to take down the stuck blocks again. */
void block_retry_stuck(struct block_store *store);
/* Warm blocks that lie in this span are taken down. */
void block_vacate(struct block_store *store, uint32_t unit, uint32_t units);

/* The lists of warm blocks: a block that is free and all mapped is put on both, and taken off both. */
void block_warm_add(struct block_store *store, struct block *block);
void block_warm_remove(struct block_store *store, struct block *block);
/*
 * Returns a warm block of about that length, or NULL. It stays on the lists. what: where the block may lie; from: all that
 * the program would take.
 */
struct block *block_warm_find(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from what,
			      enum heap_from from);

/* One chunk, as block_take() gets its own: warm, new, or in the place of others. */
enum sw_status block_get_chunk(struct block_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units,
			       struct chunk **ret_chunk);
/* The oldest warm block that has such a chunk is taken down, so that this is a warm one. False: there is no such block. */
bool block_free_chunk(struct block_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units);
/* A piece came, went, or begins to be used: for the mover. */
void block_tell(struct block_store *store, uint32_t piece);
/* The same for every piece of a block. */
void block_tell_all(struct block_store *store, const struct block *block);

/* Where what is left of it starts. */
static inline CUdeviceptr block_address(const struct block_store *store, const struct block *block)
{
	return arena_address(&store->arena, block->unit + block->units_gone);
}
static inline bool block_is_pinned(const struct block *block)
{
	return block->n_pins || block->stays;
}
/* Must a piece of it stay at that place? */
static inline bool block_keeps(const struct block *block, enum chunk_place place)
{
	return block_is_pinned(block) || (block->to_host && place == CHUNK_HOST);
}
static inline uint64_t block_away(const struct block *block)
{
	return block->bytes[CHUNK_HOST] + block->bytes[CHUNK_PEER];
}
/* Does it lie where such an allocation may begin? */
static inline bool block_suits(const struct block *block, enum heap_from from)
{
	if (from == HEAP_DEVICE)
		return !block_away(block);
	if (from == HEAP_STRIPE)
		return false;
	return from == HEAP_DEVICE_FIRST || !(block->bytes[CHUNK_DEVICE] + block->bytes[CHUNK_PEER]);
}
/* Its pieces show whether it is pinned, from now on; what is on its way shows it when it arrives. */
void block_show_pin(struct block_store *store, struct block *block);

/* Free bytes held at a place, warm blocks and warm chunks together. */
uint64_t block_idle(const struct block_store *store, enum chunk_place place);
/* Bytes there of blocks that the driver would not unmap. */
uint64_t block_stuck(const struct block_store *store, enum chunk_place place);
bool block_store_is_valid(const struct block_store *store);

#endif
