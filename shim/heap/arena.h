/*
 * arena.h: the address space of a heap, and what lies at each of its 2 MiB units.
 *
 * Lock: HEAP for everything but arena_look(), which reads one word atomically. A word says of a unit that it is free
 * (0), part of a block that starts at a unit, or a slab of a size class; from that alone the start of a block can be
 * computed, so that a look-up needs no pointer that could go stale. The table costs 4 bytes a unit, and only pages of
 * it that were written exist.
 */
#ifndef SPILLWAY_ARENA_H
#define SPILLWAY_ARENA_H

#include "shim/heap/heap.h"
#include "shim/base/range.h"

struct block;
struct chunk;

/* Where the memory of a piece is, as the launch path sees it. */
enum block_state_where {
	BLOCK_STATE_NONE,   /* no piece starts here */
	BLOCK_STATE_DEVICE, /* mapped, in device memory */
	BLOCK_STATE_HOST,   /* in host memory; mapped, or (fast mode) about to be */
	BLOCK_STATE_MOVING, /* on its way */
	BLOCK_STATE_PINNED, /* mapped, here or there, where it will stay: nobody waits for it, nobody moves it */
};

/*
 * What the launch path and the mover tell each other about a unit, without a lock. A mark belongs to its address, not
 * to what lies there: it is never freed, so that a stale pointer can do no harm. A *piece* is where a chunk is mapped.
 *
 * All of it is of the block that starts at the unit; what is of pieces, and what submissions do not ask, is in
 * unit_state. Submissions and the mover meet by raising first and looking second: a submission raises holds and looks at
 * unmapped, the mover raises unmapped and looks at holds; at least one of them sees the other. Most submissions raise
 * something else and do not write here at all (inflight_ticket.h).
 */
struct block_state {
	/*
	 * Two in one, so that a submission writes it twice, not three times: above BLOCK_STATE_PINS bits the number of the last
	 * submission that held the block, and in them how many hold it that have not returned from the driver.
	 */
	_Atomic uint64_t use;
	_Atomic uint32_t waits;     /* submissions that wait for the block: it may come in, but not go out */
	_Atomic uint32_t unmapped;  /* pieces of the block with nothing mapped, beside kernels or in a gap */
	_Atomic uint32_t away;      /* pieces of the block on the host */
	_Atomic uint64_t discarded; /* of the block: something of it is; 0 again when a submission names it */
} __attribute__((aligned(64)));

#define BLOCK_STATE_PINS 16 /* bits: more threads than that do not launch at once; and 2^48 submissions are years */

static inline unsigned block_state_pins(const struct block_state *mark)
{
	return (unsigned)(atomic_load(&mark->use) & ((1u << BLOCK_STATE_PINS) - 1));
}

static inline uint64_t block_state_last(const struct block_state *mark)
{
	return atomic_load(&mark->use) >> BLOCK_STATE_PINS;
}

static inline void block_state_pin(struct block_state *mark)
{
	atomic_fetch_add(&mark->use, 1);
}

/* Nothing was submitted. */
static inline void block_state_unpin(struct block_state *mark)
{
	atomic_fetch_sub_explicit(&mark->use, 1, memory_order_release);
}

/* Submission `number` has returned from the driver. Another thread's later one may have been faster. */
static inline void block_state_submitted(struct block_state *mark, uint64_t number)
{
	uint64_t use = atomic_load_explicit(&mark->use, memory_order_relaxed), now;

	do {
		now = use >> BLOCK_STATE_PINS < number
			  ? number << BLOCK_STATE_PINS | (use & ((1u << BLOCK_STATE_PINS) - 1))
			  : use;
	} while (!atomic_compare_exchange_weak(&mark->use, &use, now - 1));
}

/*
 * What lies at a unit: of the piece, or of the block in use, that starts there. Not beside the marks: the mover reads
 * this for each submission, and to read a line that submitting threads write costs both of them some 50 ns.
 */
struct unit_state {
	_Atomic uint8_t where;           /* enum block_state_where, of the piece */
	_Atomic bool to_host;            /* the program wants the block on the host; written under HEAP */
	_Atomic bool keep;               /* of the block: as block.keep says; written under HEAP */
	_Atomic uint32_t site;           /* of the block: who its moves are counted for (stats.h); see arena_site() */
	_Atomic uint32_t units;          /* of the block */
	_Atomic uint32_t units_of_piece; /* written under HEAP; the mover may read it of a piece that just went */
	struct chunk *chunk;             /* of the piece; under HEAP */
	_Atomic uint32_t space; /* of a block that the program has placed (block_unmapped.h): where the address space */
	_Atomic uint32_t space_units;    /* begins that it lies in, and how long that is; 0: it is no such block */
	_Atomic uint64_t peers;   /* of the piece: other devices that its mapping is open to; while it is mapped */
	_Atomic uint64_t discard; /* of the piece: the value of `discarded` for which it is one of them */
};

struct arena {
	CUdeviceptr base;
	uint64_t bytes;
	uint32_t n_units;
	_Atomic uint32_t n_units_seen; /* no piece was ever mapped beyond; written under HEAP */
	_Atomic uint32_t *table;
	_Atomic uint32_t *piece; /* first unit of the piece that covers a unit, plus 1; 0: nothing is mapped */
	struct block_state *marks;
	struct unit_state *states;
	struct range_set free_units;
};

#define ARENA_SLAB 0x80000000u /* a slab; the class is in the low bits. Else: first unit of the block, plus 1 */

enum sw_status arena_init(struct arena *arena, CUdeviceptr hint, uint64_t bytes);
/* False when the driver kept the reservation (something is still mapped there). */
bool arena_fini(struct arena *arena);

/* Address space for a block. */
bool arena_take(struct arena *arena, uint32_t units, uint32_t *ret_unit);
void arena_give(struct arena *arena, uint32_t unit, uint32_t units);

void arena_mark_block(struct arena *arena, uint32_t unit, uint32_t units);
/* A block that the program has placed, in address space of so many units from `space` on (block_unmapped.h). */
void arena_mark_placed(struct arena *arena, uint32_t unit, uint32_t units, uint32_t space, uint32_t space_units);
void arena_mark_slab(struct arena *arena, uint32_t unit, unsigned size_class);
void arena_unmark(struct arena *arena, uint32_t unit, uint32_t units);

/* A piece of so many units is mapped at the unit, and is no longer. block_unit: where its block starts. */
void arena_mark_piece(struct arena *arena, uint32_t block_unit, uint32_t unit, struct chunk *chunk, unsigned units,
		      bool on_host);
void arena_unmark_piece(struct arena *arena, uint32_t block_unit, uint32_t unit);
/* Where a piece is that is not on its way, and what its block has away. */
void arena_mark_where(struct arena *arena, uint32_t block_unit, uint32_t unit, enum block_state_where where);

static inline CUdeviceptr arena_address(const struct arena *arena, uint32_t unit)
{
	return arena->base + (CUdeviceptr)unit * HEAP_UNIT;
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
 * Whom the block counts for that starts at the unit. Its allocating thread may have made the site a moment ago: with the
 * number the reader gets what the site says of itself.
 */
static inline unsigned arena_site(const struct arena *arena, uint32_t unit)
{
	return atomic_load_explicit(&arena->states[unit].site, memory_order_acquire);
}

/* The table's word for an address inside the arena. */
static inline uint32_t arena_look(const struct arena *arena, CUdeviceptr address)
{
	return __atomic_load_n((const uint32_t *)&arena->table[(address - arena->base) / HEAP_UNIT], __ATOMIC_ACQUIRE);
}

/* Returns the block in use at an address, or NULL if there is none. Locking: the caller holds HEAP. */
struct block *arena_block_at(const struct arena *arena, CUdeviceptr address);

#endif
