/*
 * block.h: blocks. A block is a run of address space with chunks mapped all along it: one allocation of the program,
 * one slab, or one divided block (divided.c).
 *
 * A block is in use (by the program or as a slab), warm (free and still mapped, on the list of its length and on the
 * list by age), or stuck (the driver refused to unmap it; tried again at every trim). Chunks of a block in use may
 * change places (migration.h); a block that is freed meanwhile becomes warm when the last of them has arrived.
 *
 * Locking: the caller holds HEAP, unless a function says otherwise. Owner: the caller of block_take() until
 * block_give(), then the block_store.
 */
#ifndef SPILLWAY_BLOCK_H
#define SPILLWAY_BLOCK_H

#include "shim/heap/arena.h"
#include "shim/heap/chunk.h"

#include <stdatomic.h>

struct slab;

struct block {
	uint32_t unit, units;         /* first unit and length */
	uint32_t units_mapped;        /* less than `units` only while the block is built or taken down, or 0 if loose */
	uint32_t units_gone;          /* units from the start that were taken down already */
	uint64_t bytes[CHUNK_PLACES]; /* physical bytes by place */
	struct chunk *chunks;         /* in the order of their addresses */
	struct slab *slab;            /* the slab in this block, or NULL */
	struct on_use *on_use; /* the allocation backed on use that it is a part of, whose address space it has */
	enum chunk_kind kind;  /* kind of all its chunks */
	uint32_t n_pins;       /* heap_pin() calls that have not ended */
	bool stays;            /* pinned until it is freed; always set for fixed memory */
	bool stays_beside;     /* pinned because of that while memory moves beside what runs */
	bool elsewhere;        /* its address is kept where no submission names it (heap_stay_beside) */
	bool left;             /* others may know its memory, or it is striped: it goes back to the driver when freed */
	bool shared;           /* its chunks can be exported, and the program has asked for it (share.c) */
	bool loose;            /* the program maps and unmaps it (block_unmapped.h); unmapped, it has no address */
	bool whole;            /* must be one chunk */
	bool placed;           /* loose: it was mapped at some time, so it may have contents */
	bool open;             /* loose, mapped: its device has been granted access */
	bool unreported;       /* loose, mapped in `fast`: pinned, for who knows how far pointers into it reach */
	bool bounded;          /* loose, mapped in `fast`: counted in n_bounded (arena.h) */
	bool keep;     /* a rule keeps it, or an allocation in it (a slab), on the device in `fast` mode (piece.c) */
	bool to_host;  /* the program wants it on the host: pieces there stay, the rest is to follow */
	void *divider; /* who divides it into parts (divided.c), or NULL */
	bool unused;   /* divided: no part is in use, and the memory counts as idle */
	struct asked_pin *asked;           /* pins that the program itself has made (pin.c) */
	uint32_t n_moving;                 /* its chunks that are moving (migration.h) */
	bool given;                        /* freed while chunks of it are moving */
	struct block *bin_next, *bin_prev; /* warm list of like length */
	struct block *age_next, *age_prev; /* warm list by age, oldest last */
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

#define BLOCK_BINS 513 /* one list for each length up to 512 units (1 GiB), the last for all longer blocks */

struct block_store {
	struct arena arena;
	struct chunk_store chunks;
	bool moves;             /* memory migrates to where it is used, so where it is allocated matters little */
	bool beside;            /* and beside what runs (heap_set_beside) */
	unsigned most_units;    /* largest piece set by the user; 0: chosen by block_build.c, */
	atomic_uint auto_units; /* up to this limit */
	const _Atomic uint64_t *piece_budget; /* heap.h */
	struct block *bin[BLOCK_BINS];
	struct block *newest, *oldest;
	struct block *stuck;
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
	/* Called when no warm block is left: gives up one empty slab; returns false if there is none. */
	bool (*reclaim_more)(void *owner);
	void *owner;
};

/*
 * Takes a block of at least `units` units, all mapped: a warm block that fits well, else one built from warm and new
 * chunks. Uses device memory as far as the budget goes, then memory of peers, then host memory, as `from` allows.
 * Returns NO_MEMORY if that is not enough; nothing has changed then, except that warm memory may have gone back to the
 * driver. *ret_reused: a warm block was taken.
 */
enum sw_status block_take(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from from,
			  struct block **ret_block, bool *ret_reused);
/*
 * Returns whether movable memory of the host may be compound chunks (compound.h). Memory that others are to know must
 * have one handle (share.c).
 */
static inline bool block_takes_parts(const struct block_store *store)
{
	return store->beside && !store->chunks.share;
}
/* Must be called when a block comes into use, after block_take() and before the block is marked in the arena. */
void block_begin(struct block_store *store, struct block *block);
/* Sets the upper limit of pieces whose size the user has not set, in bytes; 0: none. Locking: none. */
void block_limit_pieces(struct block_store *store, uint64_t bytes);
/* Returns the units of the largest piece that is made at present. Locking: none. */
unsigned block_largest_piece(const struct block_store *store);
/* Sets block.keep and the copy that the mover reads. Locking: the caller holds HEAP. */
void block_set_keep(struct block_store *store, struct block *block, bool keep);
/* Frees a block: it becomes warm, or goes back to the driver if others may know its memory. */
void block_give(struct block_store *store, struct block *block);
/*
 * Releases warm chunks and takes down warm blocks, oldest first, until at most `keep` free bytes are held at each
 * place.
 */
void block_trim(struct block_store *store, const uint64_t keep[CHUNK_PLACES]);

/*
 * Builds a block in address space that the caller has taken for it, as block_take() does without warm blocks. On
 * failure the address space has been given back.
 */
enum sw_status block_build(struct block_store *store, uint32_t unit, uint32_t units, enum chunk_kind kind,
			   enum heap_from from, struct block **ret_block);
/*
 * The same for a part of an allocation that is backed on use (on_use.c), which keeps the address space. The caller has
 * counted the part (n_blocks), which is over when it was taken down, also on failure.
 */
enum sw_status block_build_part(struct block_store *store, struct on_use *on_use, uint32_t unit, uint32_t units,
				enum heap_from from, struct block **ret_block);
/* Takes back such a count, and ends the allocation if it was freed and has no parts any more; and the second alone. */
void block_part_gone(struct block_store *store, struct on_use *on_use);
void block_parts_end(struct block_store *store, struct on_use *on_use);
/*
 * Builds a block without an address and without mappings (block_unmapped.h). whole: of one chunk only. On failure no
 * block exists.
 */
enum sw_status block_make_unmapped(struct block_store *store, uint32_t units, bool whole, enum heap_from from,
				   struct block **ret_block);
/*
 * Unmaps the block from the front; its chunks become warm. Returns true if the block is gone, false if the driver
 * refused: the rest of the block is then stuck. The block must not be on the warm lists.
 */
bool block_take_down(struct block_store *store, struct block *block);
/*
 * Tries again what the driver has refused: to take down the stuck blocks, and to release what chunk_drop() could not.
 */
void block_retry_refused(struct block_store *store);
/* Takes down the warm blocks that overlap this span. */
void block_vacate(struct block_store *store, uint32_t unit, uint32_t units);

/* Put a free, completely mapped block on both lists of warm blocks, and take it off both. */
void block_warm_add(struct block_store *store, struct block *block);
void block_warm_remove(struct block_store *store, struct block *block);
/*
 * Returns a warm block of about that length, or NULL. The block stays on the lists. what: where the block may be; from:
 * everything that the request would accept.
 */
struct block *block_warm_find(struct block_store *store, uint32_t units, enum chunk_kind kind, enum heap_from what,
			      enum heap_from from);

/* Returns one chunk as block_take() gets them: warm, new, or in exchange for free chunks of other sizes. */
enum sw_status block_get_chunk(struct block_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units,
			       struct chunk **ret_chunk);
/*
 * Takes down the oldest warm block that has such a chunk, which makes the chunk warm. Returns false if no block has
 * one.
 */
bool block_free_chunk(struct block_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units);
/* The same for every piece of a block. */
void block_tell_all(struct block_store *store, const struct block *block);

/* Returns the address of the part that is not taken down yet. */
static inline CUdeviceptr block_address(const struct block_store *store, const struct block *block)
{
	return arena_address(&store->arena, block->unit + block->units_gone);
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
/* Returns whether the block does not become warm when it is freed. */
static inline bool block_is_for_once(const struct block *block)
{
	return block->left || block->on_use;
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
/*
 * Counts the block, which the program has placed, among those of its address space that may move in `fast`, or no
 * more. Locking: the caller holds HEAP.
 */
void block_set_bounded(struct block_store *store, struct block *block, bool bounded);
/* Updates in the arena whether its pieces are pinned; a moving piece is updated when it arrives. */
void block_show_pin(struct block_store *store, struct block *block);

/* Returns the free bytes at a place, in warm blocks and warm chunks. */
uint64_t block_idle(const struct block_store *store, enum chunk_place place);
/* Returns the bytes at a place that block_retry_refused() is to give back. */
uint64_t block_refused(const struct block_store *store, enum chunk_place place);
bool block_store_is_valid(const struct block_store *store);

#endif
