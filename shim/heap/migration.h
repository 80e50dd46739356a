// SPDX-License-Identifier: Apache-2.0
/*
 * migration.h: migrates one chunk of a block in use: its piece of address space gets other physical memory.
 *
 * migration_begin() takes a spare chunk of the same size at the other place, gives both chunks an alias, and keeps the
 * block from being taken down. The mover then copies through the aliases, and unmaps and maps with migration_unmap()
 * and migration_map(), in the order that its mode requires. migration_exchange() makes the spare the block's chunk and
 * leaves the old chunk warm in the store. migration_end() ends the migration, exchanged or not; a block that was freed
 * meanwhile stays until then. migration_turn() begins the way back of a piece that was exchanged and not ended.
 *
 * In place (in_place) device memory needs no alias: while nothing runs, it is copied at the program's address; or
 * nothing is copied. Making an alias beside copies takes 0.25 ms, and the aliases were a quarter of the time of a
 * quiesce. Measured (H200).
 *
 * Locking: begin, pin, turn, exchange and end take HEAP. Unmap and map call the driver under no lock: while a piece is
 * moving, only the mover changes its mapping. One mover a heap.
 */
#ifndef SPILLWAY_MIGRATION_H
#define SPILLWAY_MIGRATION_H

#include "shim/heap/arena.h"

struct migration {
	uint32_t piece;      /* first unit */
	uint32_t block_unit; /* first unit of its block */
	unsigned units;
	/* one of them is CHUNK_DEVICE, except when memory leaves a peer for the host or another peer */
	enum chunk_place from, to;
	CUdeviceptr address; /* program's address */
	/* see migration_at(); in place, the one on the device is `address`; 0: of a compound chunk (chunk.h) */
	CUdeviceptr alias, spare_alias;
	CUmemGenericAllocationHandle handle; /* of the old memory; 0: of a compound chunk */
	struct chunk *chunk, *spare;         /* spare: NULL once exchanged */
	struct block *block;
};

static inline uint64_t migration_bytes(const struct migration *migration)
{
	return migration->units * HEAP_UNIT;
}

/*
 * Begins to fetch a piece (to: CHUNK_DEVICE) or to evict it (to: CHUNK_HOST). An evicted piece goes to a peer while one
 * lends memory, else to the host; a block that the program wants on the host (heap_to_host) the other way round. A
 * piece on a peer may be evicted, too: if the program wants it on the host, if peers no longer lend (heap_lend), or, to
 * another peer or the host, if this peer wants the memory back (budget.h). *ret_migration says where it goes.
 *
 * Returns NO_MEMORY if no spare of that size exists at the other place. heap_make_spare() may make one: a chunk that
 * has never moved gets its alias here. Returns INVALID if the piece has ended, its block is free or pinned, or it is
 * already on the device, or nonresident.
 */
enum sw_status migration_begin(struct heap *heap, uint32_t piece, enum chunk_place to, bool in_place,
			       struct migration *ret_migration);
/*
 * Takes a nonresident piece as if it had just been evicted: the caller will unmap it, and perhaps turn it or map it
 * again. anywhere: or one on the device, and the caller will not turn it. Returns INVALID as migration_begin() does.
 */
enum sw_status migration_pin(struct heap *heap, uint32_t piece, bool anywhere, struct migration *ret_migration);
/*
 * Begins to take the memory away from a piece on the device whose contents need not be kept: as migration_begin(), with
 * an unbacked chunk (chunk.h) as the spare, which must not be mapped. After migration_exchange() the caller must keep
 * the piece moving until it has memory again, by migration_turn() or migration_back(), or its block was given up.
 * Returns INVALID for slabs and for what the program has mapped itself, and errors as migration_begin() does.
 */
enum sw_status migration_begin_unbacked(struct heap *heap, uint32_t piece, struct migration *ret_migration);
/*
 * Gives an unbacked piece host memory: warm memory, or, if `may_pin`, new, which has to be pinned. The caller must map
 * it as the old memory. Returns an error if there is none. Locking: takes HEAP, but not while memory is made.
 */
enum sw_status migration_back(struct heap *heap, struct migration *migration, bool may_pin);
/*
 * Returns whether the block of an unbacked piece was freed meanwhile. Then the caller must end the migration; what the
 * block still has goes back to the driver. Locking: takes HEAP.
 */
bool migration_is_given(struct heap *heap, const struct migration *migration);
/*
 * Begins the way back of a piece that was exchanged or taken by migration_pin() and not ended. Returns errors as
 * migration_begin() does; changes nothing then.
 */
enum sw_status migration_turn(struct heap *heap, bool in_place, struct migration *migration);
/* The driver may still write to the spare, or have it mapped: nobody gets it any more. Locking: takes HEAP. */
void migration_leave_spare(struct heap *heap, struct migration *migration);

/*
 * Ends a turn that is not made after all: the spare goes back to the store. One that was left (migration_leave_spare)
 * is lost.
 */
void heap_give_spare(struct heap *heap, struct migration *migration);
/*
 * Makes the spare the block's chunk, and puts the old memory into the store as warm, or releases it if its peer wants
 * it back. lost: the old memory must not be reused; it is in neither. Locking: takes HEAP.
 */
void migration_exchange(struct heap *heap, struct migration *migration, bool lost);
/*
 * Ends a migration; a spare that was not exchanged goes back to the store. Frees the block if it was freed meanwhile
 * and no other piece of it is moving. Locking: takes HEAP.
 */
void migration_end(struct heap *heap, struct migration *migration);
/*
 * Returns the number of the first of n migrations, `stride` bytes apart, that somebody waits for; n if there is none.
 * The block was freed or pinned (heap_pin, heap_stay_beside), or a thread opens the heap to a device that could not
 * access the piece where it was mapped last (heap_reach). Locking: takes HEAP, once: it may be held by a thread that
 * calls the driver.
 */
unsigned migration_first_awaited(struct heap *heap, const struct migration *first, size_t stride, unsigned n);

/*
 * Returns the device that lends the old memory, or the spare; -1 if it is memory of the heap's device or of the host.
 */
CUdevice migration_lender(const struct heap *heap, const struct migration *migration, bool spare);

/*
 * Returns the address at which the mover copies this byte of the piece: of the old memory (spare false), or of the new.
 * Stores in *ret_bytes how many bytes follow there. Locking: none.
 */
CUdeviceptr migration_at(const struct migration *migration, bool spare, uint64_t at, uint64_t *ret_bytes);
/* Unmap the program's address, and map the old memory (spare false) or the new there. */
CUresult migration_unmap(const struct migration *migration);
CUresult migration_map(struct heap *heap, const struct migration *migration, bool spare);

/*
 * Makes one more warm chunk of that size, or what parts a compound one lacks (chunk.h). New host memory gets its alias
 * at once, others when taken. On the host it comes from a free block that has one, else from the budget, else in
 * exchange for warm memory of other sizes, which goes back to the driver. To be called when no spare was found. Making
 * host memory takes 0.2 s a GiB. lend: if nonresident, peers come first. Returns NO_MEMORY if there is no room.
 */
enum sw_status heap_make_spare(struct heap *heap, enum chunk_place place, unsigned units, bool lend);
/*
 * Pins one more chunk of host memory before it is needed, of a size that lacks its share of `bytes`, as long as no more
 * than twice `bytes`, and no more than the heap keeps, is ready in all. Takes as long as pinning: 25 to 50 ms for 128
 * MiB. Returns INVALID if nothing is missing, if there is no room to spare, if a peer can lend `bytes`, or if other
 * processes are short of host memory; else the error if the driver has none.
 */
enum sw_status heap_fill_host_reserve(struct heap *heap, uint64_t bytes);
/*
 * The same for `bytes` that are all going to leave at once (lifecycle/turn.c): as long as no more than `bytes` are
 * ready, and the host budget has room for what is missing.
 */
enum sw_status heap_fill_host_ahead(struct heap *heap, uint64_t bytes);
/*
 * Takes one step to have host memory pinned for everything that may leave the device, at most `most` bytes of it: pins
 * one chunk, or gives one back of a size that is not needed any more. That much idle host memory is kept from now on,
 * but what is owed to other processes of the user goes back in any case. Takes as long as pinning. Returns INVALID if
 * nothing is missing, if the budget has no room, or if other processes are short of host memory; else the error if the
 * driver has none. Locking: takes HEAP, but not while it pins.
 */
enum sw_status heap_pin_ahead(struct heap *heap, uint64_t most);
/*
 * Sets whether evictions go to peers that lend memory. They do until the process is suspended; afterwards pieces on
 * peers may be evicted to the host.
 */
void heap_lend(struct heap *heap, bool on);
/* Returns the bytes of the largest piece that the heap makes at present. Locking: none. */
uint64_t heap_largest_piece(const struct heap *heap);
/*
 * Returns the bytes that are free at a place, warm or left in the budget; warm ones only where other processes fill the
 * device. Another thread that holds HEAP may be taking them. Locking: none.
 */
uint64_t heap_free_bytes(const struct heap *heap, enum chunk_place place);

/*
 * Stores the length, the place and the block of a piece. Returns false if no piece starts there, or its block is free.
 */
bool heap_piece(struct heap *heap, uint32_t piece, uint32_t *ret_units, enum chunk_place *ret_place,
		uint32_t *ret_block_unit);

/*
 * Stores the pieces that came and went since the last call, at most `n`, into `ret`; returns their number. *ret_all:
 * some news could not be stored, so the caller must read all pieces (heap_pieces). The first call starts the news and
 * sets *ret_all.
 */
size_t heap_news(struct heap *heap, uint32_t *ret, size_t n, bool *ret_all);
/* Calls `visit` for every piece of every block in use. Locking: `visit` is called under HEAP. */
void heap_pieces(struct heap *heap, void (*visit)(void *argument, uint32_t piece), void *argument);
/* The same for the movable pieces on peers that want memory back, but for those that are pinned. */
void heap_wanted_pieces(struct heap *heap, void (*visit)(void *argument, uint32_t piece), void *argument);

#endif
