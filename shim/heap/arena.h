// SPDX-License-Identifier: Apache-2.0
/*
 * arena.h: the address space of a heap, and a table with one word for each unit of it (2 MiB).
 *
 * A word says that its unit is free (0), part of a block that starts at a given unit, or a slab of a size class. The
 * start of a block follows from the word alone, so a look-up follows no pointer that could be stale. The table takes 4
 * bytes a unit, and only pages of it that were written use memory.
 *
 * Locking: the caller holds HEAP. No lock is needed for arena_look(), arena_site(), the address computations, the block
 * state functions, and reads of _Atomic fields.
 */
#ifndef SPILLWAY_ARENA_H
#define SPILLWAY_ARENA_H

#include "shim/heap/heap.h"
#include "shim/base/range.h"

/* Where the memory of a piece is, as the launch path sees it. */
enum block_state_where {
	BLOCK_STATE_NONE,   /* no piece starts at this unit */
	BLOCK_STATE_DEVICE, /* mapped to device memory */
	BLOCK_STATE_HOST,   /* nonresident; mapped, or (fast mode) about to be */
	BLOCK_STATE_MOVING, /* moving */
	BLOCK_STATE_PINNED, /* mapped, resident or not, and will not move: no submission waits for it */
};

/*
 * Block state: what the launch path and the mover share about a block, without a lock. It belongs to the unit at which
 * the block starts, not to the block: it is never freed, so a stale address can do no harm. A *piece* is where a chunk
 * is mapped; the state of pieces, and what submissions do not read, is in unit_state.
 *
 * Both sides raise first and look second: a submission raises its pins and reads `unmapped`, the mover raises
 * `unmapped` and reads the pins, so at least one of them sees the other. Most submissions raise a ticket instead and do
 * not write here at all (channel.h).
 */
struct block_state {
	/*
	 * Two numbers in one word, so that a submission writes it twice, not three times: the upper bits are the number
	 * of the last submission that used the block, the lowest BLOCK_STATE_PINS bits count the submissions that pin
	 * it and have not returned from the driver.
	 */
	_Atomic uint64_t use;
	_Atomic uint32_t waits;    /* submissions that wait for the block: it may be fetched, but not evicted */
	_Atomic uint32_t unmapped; /* pieces of the block that are not mapped, in fast mode or in a quiesce */
	_Atomic uint32_t away;     /* nonresident pieces of the block that are neither moving nor pinned */
	/* nonzero while a part of the block is discarded; 0 again when a submission names it */
	_Atomic uint64_t discarded;
} __attribute__((aligned(64)));

/* bits: enough for 65535 threads that launch at once; the other 48 count submissions for years */
#define BLOCK_STATE_PINS 16

static inline unsigned block_state_pins(const struct block_state *block)
{
	return (unsigned)(atomic_load(&block->use) & ((1u << BLOCK_STATE_PINS) - 1));
}

static inline uint64_t block_state_last(const struct block_state *block)
{
	return atomic_load(&block->use) >> BLOCK_STATE_PINS;
}

static inline void block_state_pin(struct block_state *block)
{
	atomic_fetch_add(&block->use, 1);
}

/* Ends a pin when nothing was submitted. */
static inline void block_state_unpin(struct block_state *block)
{
	atomic_fetch_sub_explicit(&block->use, 1, memory_order_release);
}

/*
 * Ends a pin when submission `number` has returned from the driver. A later submission of another thread may have
 * returned before.
 */
static inline void block_state_submitted(struct block_state *block, uint64_t number)
{
	uint64_t use = atomic_load_explicit(&block->use, memory_order_relaxed), now;

	do {
		now = use >> BLOCK_STATE_PINS < number
			  ? number << BLOCK_STATE_PINS | (use & ((1u << BLOCK_STATE_PINS) - 1))
			  : use;
	} while (!atomic_compare_exchange_weak(&block->use, &use, now - 1));
}

/*
 * State of the piece, or of the block in use, that starts at a unit. Separate from block_state because the mover reads
 * this for each submission, and reading a cache line that submitting threads write costs both sides about 50 ns.
 */
struct unit_state {
	_Atomic uint8_t where; /* enum block_state_where, of the piece */
	_Atomic bool to_host;  /* the program wants the block on the host; written under HEAP */
	_Atomic bool keep;     /* copy of block.keep; written under HEAP */
	_Atomic bool divided;  /* the block is divided (heap_divide); written under HEAP */
	/*
	 * of the block, or of the part of a divided one: the site for which it is counted (stats.h); see arena_site()
	 */
	_Atomic uint32_t site;
	_Atomic uint32_t units; /* length of the block */
	/* length of the piece; written under HEAP; the mover may read it of a piece that has just ended */
	_Atomic uint32_t units_of_piece;
	struct chunk *chunk; /* of the piece; under HEAP */
	uint8_t gap; /* of what was taken and begins here: units before it that were taken with it; under HEAP */
	/* of a block that the program has mapped itself (block_unmapped.h): where its address space begins */
	_Atomic uint32_t space;
	_Atomic uint32_t space_units; /* and the length of that address space; 0: not such a block */
	_Atomic uint32_t n_bounded;   /* of the address space that begins here: blocks in it that may move in `fast` */
	/* of the piece: bits of the peers to which its mapping is open; valid while it is mapped */
	_Atomic uint64_t peers;
	_Atomic uint64_t discard; /* of the piece: it is discarded if this equals `discarded` of its block */
	/* of an allocation that is backed on use and begins here (on_use.c): its length, and how much has no memory */
	_Atomic uint32_t on_use_units, on_use_left;
	struct on_use *on_use; /* the same; under HEAP */
	/*
	 * the same: who may touch it, for managed memory (serve/managed.c), with the rule that decided; the site that
	 * it counts for; how many allocations have begun here, ever
	 */
	_Atomic uint8_t side; /* enum on_use_side */
	_Atomic uint32_t on_use_site;
	_Atomic uint16_t on_use_rule;
	_Atomic uint32_t on_use_id;
	/* managed.c: all of it is mapped for good (heap_stay_beside); its place on the list of who has the turn */
	_Atomic bool on_use_stays;
	_Atomic uint32_t on_use_list;
};

struct arena {
	CUdeviceptr base;
	uint64_t bytes;
	uint32_t n_units;
	_Atomic uint32_t n_units_seen; /* no piece was ever mapped at or beyond this unit; written under HEAP */
	_Atomic uint32_t *table;
	_Atomic uint32_t *piece;  /* first unit of the piece that covers a unit, plus 1; 0: none is mapped */
	_Atomic uint32_t *part;   /* in a divided block: first unit of the part that covers a unit, plus 1; 0: none */
	_Atomic uint32_t *on_use; /* first unit of the allocation backed on use that covers a unit, plus 1; 0: none */
	struct block_state *block_states;
	struct unit_state *states;
	/* in `fast`, a block was placed or backed on use: a pointer may mean several blocks (arena_extent) */
	_Atomic bool any_unreported;
	_Atomic bool any_on_use; /* an allocation was backed on use */
	struct range_set free_units;
	struct lifetimes *lifetimes; /* what is alive in the blocks; NULL: not known. Locking: lifetimes.h */
};

/* flag of a slab, with its class in the low bits. Other words: first unit of the block, plus 1 */
#define ARENA_SLAB 0x80000000u

/* Returns the arena of a heap. Locking: none. */
struct arena *heap_arena(struct heap *heap);
/*
 * Reserves the address space: at `hint` if possible, and halved until the driver agrees. Returns NO_MEMORY if the
 * driver has none, NO_HOST_MEMORY if there is no memory for the tables.
 */
enum sw_status arena_init(struct arena *arena, CUdeviceptr hint, uint64_t bytes);
/*
 * Undoes arena_init(). Returns false, with everything left in place, if the driver refuses to free the reservation
 * because something is mapped in it.
 */
bool arena_fini(struct arena *arena);

/*
 * Takes address space for a block; returns false if no free range is that long. The unit before it stays free of
 * anything else, so that a pointer to where a block ends, or a little before where it begins, means no other block.
 */
bool arena_take(struct arena *arena, uint32_t units, uint32_t *ret_unit);
/* Takes a range right behind what has been taken. Returns false if that is not free, or too short. */
bool arena_take_at(struct arena *arena, uint32_t unit, uint32_t units);
/* Gives address space back as it was taken. */
void arena_give(struct arena *arena, uint32_t unit, uint32_t units);

/*
 * Sets the words of a block in use, or of a slab. From then on arena_look() finds it. word: ARENA_SLAB with the class,
 * or for any other block the first unit plus 1. space: where its address space begins, if the program has mapped the
 * block itself in so many units of it (block_unmapped.h), or if it is a part of what is backed on use; else 0.
 */
void arena_mark(struct arena *arena, uint32_t unit, uint32_t units, uint32_t word, uint32_t space,
		uint32_t space_units);
/* Clears the words of a block or slab. */
void arena_unmark(struct arena *arena, uint32_t unit, uint32_t units);

/* Record that a piece of `units` units is mapped at `unit`, or no longer is. block_unit: first unit of its block. */
void arena_mark_piece(struct arena *arena, uint32_t block_unit, uint32_t unit, struct chunk *chunk, unsigned units,
		      bool on_host);
void arena_unmark_piece(struct arena *arena, uint32_t block_unit, uint32_t unit);
/* Sets where a piece is, and keeps the count of nonresident pieces of its block. */
void arena_mark_where(struct arena *arena, uint32_t block_unit, uint32_t unit, enum block_state_where where);

static inline CUdeviceptr arena_address(const struct arena *arena, uint32_t unit)
{
	return arena->base + (CUdeviceptr)unit * HEAP_UNIT;
}

/* Returns the length of the part of a divided block that begins at a unit, in units. Locking: the caller holds HEAP. */
static inline uint32_t arena_part_units(const struct arena *arena, uint32_t unit)
{
	uint32_t end = unit;

	while (end < arena->n_units && atomic_load_explicit(&arena->part[end], memory_order_relaxed) == unit + 1)
		end++;
	return end - unit;
}

static inline bool arena_contains(const struct arena *arena, CUdeviceptr address)
{
	return address - arena->base < arena->bytes;
}

static inline uint32_t arena_unit(const struct arena *arena, CUdeviceptr address)
{
	return (uint32_t)((address - arena->base) / HEAP_UNIT);
}

/*
 * Returns the site for which a unit of a block is counted; of a divided one, for which the part there is, or, where
 * there is none, the part that was at the beginning of the block. The allocating thread may have created the site a
 * moment ago; the acquire makes the site's contents visible with its number. Locking: none.
 */
static inline unsigned arena_site(const struct arena *arena, uint32_t block_unit, uint32_t unit)
{
	uint32_t part = atomic_load_explicit(&arena->states[block_unit].divided, memory_order_acquire)
			    ? atomic_load_explicit(&arena->part[unit], memory_order_acquire)
			    : 0;

	return atomic_load_explicit(&arena->states[part ? part - 1 : block_unit].site, memory_order_acquire);
}

/* Returns the table's word for an address inside the arena. Locking: none. */
static inline uint32_t arena_look(const struct arena *arena, CUdeviceptr address)
{
	return __atomic_load_n((const uint32_t *)&arena->table[(address - arena->base) / HEAP_UNIT], __ATOMIC_ACQUIRE);
}

/*
 * Returns whether an address lies in an allocation that is backed on use (on_use.c), whether or not it has memory
 * there, and stores the first unit of the allocation. Locking: none.
 */
static inline bool arena_is_on_use(const struct arena *arena, CUdeviceptr address, uint32_t *ret_first)
{
	if (!atomic_load_explicit(&arena->any_on_use, memory_order_relaxed))
		return false;
	uint32_t word = atomic_load_explicit(&arena->on_use[arena_unit(arena, address)], memory_order_acquire);
	*ret_first = word - 1;
	return word != 0;
}
/* Returns whether its contents are the CPU's, or are still being copied from there. Locking: none. */
static inline bool arena_on_use_is_cpus(const struct arena *arena, uint32_t first)
{
	uint8_t side = atomic_load(&arena->states[first].side);

	return side == ON_USE_CPU || side == ON_USE_GOING;
}
/*
 * Stores the bytes that a pointer into such an allocation may mean: what was born there, or more. Returns false if that
 * is not known; it is all of the allocation then. Locking: none.
 */
bool arena_on_use_extent(const struct arena *arena, uint32_t first, CUdeviceptr address, CUdeviceptr *ret_begin,
			 uint64_t *ret_bytes);

/*
 * Returns the first unit, and the length, of the block that begins at a unit; or, if the program has placed it in
 * address space that it reserved, of that whole range; or of the whole allocation, if the block is a part of one that
 * is backed on use. Locking: none.
 */
uint32_t arena_reach(const struct arena *arena, uint32_t block_unit, uint32_t *ret_units);
/*
 * Stores the same bounds of the block at an address, in bytes. Returns false if there is none, or a slab. Locking:
 * none.
 */
bool arena_bounds(const struct arena *arena, CUdeviceptr address, CUdeviceptr *ret_begin, uint64_t *ret_bytes);

/*
 * Stores which bytes a pointer means for certain: its own, and, if the program has placed the block there, those of the
 * tensor that was born there, within the address space (lifetimes.h); in an allocation that is backed on use all that
 * it may mean. Locking: none.
 */
void arena_extent(const struct arena *arena, CUdeviceptr address, CUdeviceptr *ret_begin, uint64_t *ret_bytes);

/* Returns the block in use at an address, or NULL if there is none. Locking: the caller holds HEAP. */
struct block *arena_block_at(const struct arena *arena, CUdeviceptr address);

#endif
