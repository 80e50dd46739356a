/*
 * migration.h: one chunk of a block in use changes places: its piece of address space gets other physical memory.
 *
 * migration_begin() takes a spare chunk of the other place and of the same size, with aliases for both, and keeps the
 * block from being taken down. The mover then copies through the aliases, and unmaps and maps with migration_unmap() and
 * migration_map(), in the order that its mode asks for. migration_exchange() makes the spare the block's own and leaves the
 * old chunk warm in the store; migration_end() lets go of the piece, exchanged or not. A block that is freed meanwhile
 * stays until then. migration_turn() begins another one where one has been exchanged and has not ended.
 *
 * *In place*, which is for when nothing runs, device memory is read and written at the program's address instead, and
 * needs no alias: making one beside copies takes 0.25 ms (H200), and all of them were a quarter of what a gap took.
 *
 * Lock: HEAP, taken inside begin, turn, exchange and end; unmap and map are driver calls under no lock: while a piece is in
 * transit only the mover changes what is mapped there. One mover a heap.
 */
#ifndef SPILLWAY_MIGRATION_H
#define SPILLWAY_MIGRATION_H

#include "shim/heap/arena.h"

struct migration {
	uint32_t piece;      /* first unit */
	uint32_t block_unit; /* first unit of its block */
	unsigned units;
	enum chunk_place from, to;      /* one of them is CHUNK_DEVICE, but where memory leaves a peer for the host */
	CUdeviceptr address;            /* of the program */
	CUdeviceptr alias, spare_alias; /* copy from alias to spare_alias; in place the device's is `address` */
	CUmemGenericAllocationHandle handle, spare_handle;
	struct chunk *chunk, *spare; /* spare: NULL once exchanged */
	struct block *block;
};

static inline uint64_t migration_bytes(const struct migration *transit)
{
	return transit->units * HEAP_UNIT;
}

/*
 * to: CHUNK_DEVICE, or CHUNK_HOST for away: to a peer as long as one lends memory, else to the host; what the program
 * wants on the host (heap_to_host) the other way round. What is on a peer goes there, too, where the program wants that,
 * where peers no longer lend (heap_lend), and to another peer or the host where this one wants it back (lender.h).
 * *ret_transit says which.
 *
 * NO_MEMORY: no spare of that size at the other place; heap_make_spare() may make one, or has: a chunk that has never
 * moved is mapped at an alias here. INVALID: the piece is gone, its block is free or must stay where it is, or it is
 * on the device, or away, already.
 */
enum sw_status migration_begin(struct heap *heap, uint32_t piece, enum chunk_place to, bool in_place,
			       struct migration *ret_transit);
/*
 * Hold a piece that is away, as if it had just come there: it is to be unmapped, and perhaps turned, or mapped again.
 * INVALID: as migration_begin().
 */
enum sw_status migration_pin(struct heap *heap, uint32_t piece, struct migration *ret_transit);
/* The piece, exchanged or held but not ended, is to go back: as migration_begin(); unless it is made nothing changes. */
enum sw_status migration_turn(struct heap *heap, bool in_place, struct migration *transit);
/* A turn that is not made after all. Where the spare must not be used again (NULL) it is lost. */
void heap_give_spare(struct heap *heap, struct migration *transit);
void migration_exchange(struct heap *heap, struct migration *transit);
/* The same, but what the spare has become must not be used again, and is lost. */
void migration_exchange_lost(struct heap *heap, struct migration *transit);
void migration_end(struct heap *heap, struct migration *transit);

/* The device that lends the old memory, or the spare: -1 where it is the heap's own, or the host's. */
CUdevice migration_lender(const struct heap *heap, const struct migration *transit, bool spare);

/* What is mapped at the program's address, of the old memory (spare false) or the new. */
CUresult migration_unmap(const struct migration *transit);
CUresult migration_map(struct heap *heap, const struct migration *transit, bool spare);

/*
 * One more warm chunk of that size, which gets its alias when it is taken: on the host of a free block that has one, else
 * from the budget, else from warm memory of other sizes, which goes back to the driver. Asked for when there is none.
 * Making host memory takes 0.2 s a GiB. NO_MEMORY: there is no room.
 */
enum sw_status heap_make_spare(struct heap *heap, enum chunk_place place, unsigned units);
/* The same on the host, whatever peers lend. */
enum sw_status heap_make_host_spare(struct heap *heap, unsigned units);
/*
 * Before it is needed: pin one more chunk of host memory, of a size that less lies ready of than its part of `bytes`, as
 * long as no more than twice that, and no more than is kept, lies ready in all. Takes as long as pinning does, 25 to 50 ms
 * for 128 MiB. INVALID: nothing is missing, or there is no room to spare, or other processes are short; else the driver
 * has none.
 */
enum sw_status heap_fill_host_reserve(struct heap *heap, uint64_t bytes);
/*
 * Does what goes away go to peers, where they lend memory? It does, until the process is suspended; then what is there
 * may go to the host.
 */
void heap_lend(struct heap *heap, bool on);
/* Bytes of the largest piece the heap makes at present. No lock. */
uint64_t heap_largest_piece(const struct heap *heap);
/* Bytes that are free at a place, warm or left in the budget; where others fill the device, warm alone. */
uint64_t heap_free_bytes(struct heap *heap, enum chunk_place place);

struct arena *heap_arena(struct heap *heap);
/* Is the piece part of a block in use, and where? False: no such piece, or its block is free. */
bool heap_piece(struct heap *heap, uint32_t piece, uint32_t *ret_units, enum chunk_place *ret_place,
		uint32_t *ret_block_unit);

/*
 * Pieces that came and went since the last call, at most n of them, into `ret`; *ret_all: also all that are there now
 * (heap_pieces), because some news could not be kept. The first call begins the keeping of news, and says all.
 */
size_t heap_news(struct heap *heap, uint32_t *ret, size_t n, bool *ret_all);
/* Call for every piece of every block in use, under HEAP. */
void heap_pieces(struct heap *heap, void (*visit)(void *argument, uint32_t piece), void *argument);
/* The same for those that lie on peers which want memory back, and can move. */
void heap_wanted_pieces(struct heap *heap, void (*visit)(void *argument, uint32_t piece), void *argument);

#endif
