// SPDX-License-Identifier: Apache-2.0
/*
 * heap.h: the growable heap of one device, built on CUDA's virtual memory management (VMM).
 *
 * Address space is one large reservation (arena.h). Physical memory comes in chunks (chunk.h). A block is one
 * allocation of the program, or a slab of small ones (block.h). migration.h moves chunks, block_unmapped.h
 * serves memory that the program maps itself.
 *
 * Locking: the functions below take HEAP unless they say otherwise. Under HEAP the driver is called for VMM calls only,
 * which neither wait for the GPU nor disturb a stream capture (docs/facts.md, Stream capture). The caller of a function
 * that frees must make sure that no submitted work uses the block any more.
 */
#ifndef SPILLWAY_HEAP_H
#define SPILLWAY_HEAP_H

#include "shim/accounting/budget.h"
#include "shim/base/lock.h"
#include "shim/base/status.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Granularity of device and host memory in the VMM calls (docs/facts.md, Mapping). heap_create() checks it against the
 * driver.
 */
#define HEAP_UNIT ((size_t)2 << 20)

struct heap;

/*
 * Where physical memory is. Memory that is not on the device is nonresident: the device still reads and writes it, over
 * a link, and it can be fetched. Memory of peers, where the policy lends any, is used before host memory.
 */
enum chunk_place {
	CHUNK_DEVICE,
	CHUNK_HOST, /* as the target of a migration: evict to wherever memory is free */
	CHUNK_PEER,
	CHUNK_PLACES, /* must be last */
};

#define HEAP_LENDERS 8 /* on some platforms a device reaches no more peers than this */

struct heap_config {
	CUdevice device;
	bool host_usable;            /* chunks of host memory can be made */
	CUmemLocation host_location; /* location of host chunks */
	bool moves;                  /* memory will migrate to where it is used (migration.h) */
	bool beside;                 /* and beside what runs (heap_set_beside) */
	bool rdma, exportable;       /* how fixed memory may be made on this device */
	bool share;                  /* movable memory must be exportable, too */
	struct budget *device_budget, *host_budget;
	unsigned n_lenders;                   /* peers whose memory may be used, in the order in which they are tried */
	struct lender *lenders[HEAP_LENDERS]; /* must outlive the heap */
	const _Atomic uint64_t *peers;        /* bits: the peers to which mappings are opened; NULL: never any */
	CUdeviceptr arena_hint;               /* preferred start of the address space, or 0; not guaranteed */
	uint64_t arena_bytes;                 /* size of the address space; halved until the driver agrees */
	/* free memory that is kept warm; more goes back to the driver, see heap_tick() */
	uint64_t keep_device, keep_host;
	bool device_at_once; /* device memory beyond keep_device goes back at once; must be set if no ticks will come */
	/* size of the largest piece, 2 to 128 MiB; 0: derived from the device budget and piece_most */
	uint64_t piece_bytes;
	uint64_t piece_most; /* upper limit of the size derived from the device budget; 0: none */
	/* bytes: the size is derived from this instead, where it is more; must outlive the heap; NULL: never */
	const _Atomic uint64_t *piece_budget;
};

/*
 * The two kinds of physical memory. They never mix in a block, in a slab or in the warm memory. Only fixed memory is
 * made so that it can be registered for RDMA and exported, because only fixed memory is known to stay where it is.
 */
enum chunk_kind {
	CHUNK_MOVABLE,
	CHUNK_FIXED, /* never migrates */
	CHUNK_KINDS, /* must be last */
};

/*
 * Where memory may come from when it is allocated. Movable memory may migrate elsewhere later. The first two values are
 * 0 and 1, so that they answer "may it go to the host?".
 */
enum heap_from {
	HEAP_DEVICE,       /* device memory only */
	HEAP_DEVICE_FIRST, /* device memory; beyond the device budget, memory of peers, then host memory */
	HEAP_HOST,         /* host memory only */
	HEAP_STRIPE,       /* the device and its peers in turn; for fixed memory only */
};

/* What was lacking when there was no memory, bits: memory that may be on the host lacks the device's and the host's. */
enum lack {
	LACK_DEVICE = 1 << 0,
	LACK_HOST = 1 << 1,
	LACK_ADDRESS = 1 << 2, /* no free address space of the heap is that long */
	LACK_DRIVER = 1 << 3,  /* device memory outside the heap; set by serve/make_room.c, never by the heap */
	LACK_LIMIT = 1 << 4,   /* spill.limit has no room (heap_is_beyond) */
};

/* What heap_alloc() has given. The allocation was spilled, whole or in part, if bytes_away > 0. */
struct heap_grant {
	CUdeviceptr address;
	struct block *block; /* must be passed to heap_free() with the address */
	/* bytes of chunks that came into use; both 0 for a slot of a slab that existed before */
	uint64_t bytes_away, bytes_on_device;
	uint64_t bytes_lent; /* part of bytes_away that is on peers */
	bool reused;         /* no driver call was needed */
	/* written only on failure; then nothing else is, except what heap_on_use_take() took before it */
	unsigned lack; /* bits of enum lack */
	bool soon; /* memory was about to become free: pieces of freed blocks move, or host memory is pinned ahead */
};

/*
 * Returns NOT_SUPPORTED if the driver's granularity does not divide HEAP_UNIT, NO_MEMORY if no address space can be
 * reserved, NO_HOST_MEMORY if there is no memory for its tables. A heap lasts until the process ends.
 */
enum sw_status heap_create(const struct heap_config *config, struct heap **ret_heap);
/*
 * Allocates at least `bytes` bytes, aligned to 512 bytes, or to 2 MiB if bytes > 1 MiB. Returns NO_MEMORY, and changes
 * nothing, if the budgets or the driver have no more.
 */
enum sw_status heap_alloc(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
			  struct heap_grant *ret_grant);
/*
 * Migrations of the block, or the part, that begins at this address are counted for `site` (stats.h). Has no effect on
 * a small allocation. Locking: none.
 */
void heap_set_site(struct heap *heap, CUdeviceptr address, unsigned site);
/*
 * Asks the mover to leave the block on the device in `fast` mode (mover/piece.c) until it is freed; if it is a slab,
 * until it is empty.
 */
void heap_keep(struct heap *heap, struct block *block);
/* Frees an allocation. Cannot fail. The memory stays warm for the next allocation, as far as keep_* allow. */
void heap_free(struct heap *heap, struct block *block, CUdeviceptr address);

/*
 * Divided blocks (heap_divide): large allocations that share a block, each a *part* of whole units, so that allocating
 * and freeing changes no mapping. To submissions and to the mover it is one block. The heap knows where the parts are;
 * which part is used for what is up to the caller, the divider.
 *
 * heap_divide() makes a block that was just allocated a divided one, without parts, and returns its length in units.
 * heap_divider() returns the `divider` that the caller has passed to it; NULL: the block is not divided. It may be
 * called while the block has parts, or while the divider keeps others from freeing it. Locking: none.
 *
 * heap_part_begin() makes units of it a part; returns false if its memory must not be used again (PIN_STAYS, PIN_LEFT).
 * heap_part_end() ends the part that begins at an address, heap_part_bytes() returns its length. While the block is set
 * unused, it counts as idle; it must have no parts then. heap_free() frees the whole block, with the address of its
 * beginning.
 */
uint32_t heap_divide(struct heap *heap, struct block *block, void *divider);
void *heap_divider(const struct block *block);
bool heap_part_begin(struct heap *heap, struct block *block, uint32_t unit, uint32_t units);
void heap_part_end(struct heap *heap, struct block *block, CUdeviceptr address);
uint64_t heap_part_bytes(struct heap *heap, CUdeviceptr address);
void heap_set_unused(struct heap *heap, struct block *block, bool unused);

/*
 * These bytes have another user without having been freed: what was discarded in their blocks is of use again, also
 * where no submission names it. Locking: none.
 */
void heap_reused(struct heap *heap, CUdeviceptr address, uint64_t bytes);

/*
 * Pins (pin.c). heap_pin() pins every block in use that these bytes touch, and waits until no piece of them is moving.
 * Returns false, with nothing pinned, if that took too long. For each success the caller must call heap_pin_end() once;
 * `end` says whether the blocks may move afterwards.
 *
 * Locking: takes HEAP for a moment at a time. The caller must hold nothing that the mover or the GPU could wait for.
 */
enum pin_end {
	PIN_OFF,   /* the block may move, unless another pin holds it */
	PIN_STAYS, /* the block stays until it is freed */
	PIN_LEFT,  /* as PIN_STAYS; others may know its physical memory, so it is never reused for another allocation */
};
bool heap_pin(struct heap *heap, CUdeviceptr address, size_t bytes);
/* Pins a block in use without waiting for what is moving, or ends such a pin. Locking: takes HEAP. */
void heap_hold(struct heap *heap, struct block *block, bool hold);
/*
 * Says whether memory of the heap moves beside what runs (`fast`), so that nothing may move that work reaches without
 * naming it. On: blocks whose address is kept elsewhere (heap_stay_beside) are pinned, and those that the program has
 * placed itself until heap_follow_reports(). Off: those that this has pinned may move, in gaps. piece_most: as in
 * heap_config, for new memory. Pieces that are moving go on, so the caller must switch it on before the gap after which
 * memory moves so, and off after the gap before which it did for the last time. Does nothing if it is so already.
 * Locking: takes HEAP.
 */
void heap_set_beside(struct heap *heap, bool beside, uint64_t piece_most);
/*
 * An address in these bytes is kept where no submission names it (a texture). If memory moves beside what runs now, the
 * blocks stay where they are, or arrive, until they are freed; else they stay while it moves so later. Returns false if
 * it does now and a moving piece did not arrive in time; the piece stays where it arrives. Locking: as heap_pin().
 */
bool heap_stay_beside(struct heap *heap, CUdeviceptr address, size_t bytes);
void heap_pin_end(struct heap *heap, CUdeviceptr address, size_t bytes, enum pin_end end);
/* Returns the bytes, on the device and on peers, of pinned blocks in use. Visits every block. */
uint64_t heap_pinned_device(struct heap *heap);
/*
 * Pin and unpin the allocation that begins at `base`, at the program's request (spillway.h). Pins count; they end with
 * the allocation. Return BUSY if a moving piece did not arrive in time, INVALID if no block is in use there, or if the
 * allocation has no such pin to undo.
 */
enum sw_status heap_pin_asked(struct heap *heap, CUdeviceptr base);
enum sw_status heap_unpin_asked(struct heap *heap, CUdeviceptr base);
/* Returns whether a thread waits for moving pieces to arrive (heap_pin(), heap_reach()). Locking: none. */
bool heap_is_awaited(const struct heap *heap);

/*
 * Memory for other processes (block_query.c).
 *
 * heap_share_begin() checks that the chunks of the block at `base` can be exported, and stores the offset of `base` in
 * what is exported. The caller must have pinned the block and must end the pin with PIN_LEFT. Returns INVALID if no
 * block is in use there, NOT_SUPPORTED if its memory was not made to be exported.
 *
 * heap_share() returns file descriptors of the chunks from number `first` on, in the order of their addresses, as many
 * as fit. The caller owns them until heap_share_end() closes them. Returns INVALID if the block is not shared.
 */
#define HEAP_SHARE_MOST 64
struct heap_share {
	unsigned n_all, n;
	uint64_t bytes_all;
	uint64_t bytes[HEAP_SHARE_MOST];
	int file[HEAP_SHARE_MOST];
};
enum sw_status heap_share_begin(struct heap *heap, CUdeviceptr base, uint64_t *ret_offset);
enum sw_status heap_share(struct heap *heap, CUdeviceptr base, unsigned first, struct heap_share *ret_share);
void heap_share_end(struct heap_share *share);

/*
 * heap_rounded() returns the bytes that an allocation of `bytes` takes, heap_room_of() the bytes that this block in use
 * can hold. With both, a caller can pass a freed block from one part of the program to another without heap_free().
 * heap_room_of() returns 0 if the block is pinned, and so cannot be reused, or if it is not where such an allocation
 * may be.
 */
size_t heap_rounded(size_t bytes);
size_t heap_room_of(struct heap *heap, const struct block *block, CUdeviceptr address, enum heap_from from);
/* Returns whether the heap can use host memory. Locking: none. */
bool heap_has_host(const struct heap *heap);

/*
 * Returns whether freed blocks have pieces that are still moving; their memory will be free in a moment. Locking: none.
 */
bool heap_has_given(const struct heap *heap);
/*
 * Returns whether other processes fill the device: in the last second the driver had no memory although the budget did.
 * Locking: none.
 */
bool heap_is_full(const struct heap *heap);

/* Returns whether the address is in the heap's address space. Locking: none. */
bool heap_contains(const struct heap *heap, CUdeviceptr address);
/*
 * Stores the start of the allocation in use at this address; returns false if there is none. If the block is being
 * freed at the same time, either answer is possible. Locking: none.
 */
bool heap_base_of(const struct heap *heap, CUdeviceptr address, CUdeviceptr *ret_base);

/* ---- queries of one block by its start (block_query.c); they return INVALID if no block is in use there ---- */

/* Stores where the first `bytes` bytes of the block are, and whether it is pinned. */
enum sw_status heap_where(struct heap *heap, CUdeviceptr base, size_t bytes, uint64_t ret_bytes[CHUNK_PLACES],
			  bool *ret_stays);
/* Stores how many of these bytes each peer lends; returns the number of peers, 0 if no block is in use there. */
struct heap_loan {
	CUdevice device;
	uint64_t bytes;
};
unsigned heap_loans(struct heap *heap, CUdeviceptr base, size_t bytes, struct heap_loan ret_loans[HEAP_LENDERS]);
/*
 * Returns whether the block in use at this address is one chunk and not a slab, so that a handle of the chunk stands
 * for the whole block.
 */
bool heap_is_one_chunk(struct heap *heap, CUdeviceptr address);
/*
 * Stores where any range of bytes is. Returns false unless all of them are in one block in use, or in adjacent blocks
 * that the program has mapped itself (block_unmapped.h), or that are parts of one allocation (on_use.c). The answer
 * stays true only while the blocks are pinned (heap_pin).
 */
bool heap_spread(struct heap *heap, CUdeviceptr address, size_t bytes, uint64_t ret_bytes[CHUNK_PLACES]);
/*
 * Moves the block to the host: pieces there stay, the others follow as soon as the mover can move them. Returns
 * NOT_SUPPORTED if it is a slab (block.h) or divided, if it must stay where it is, or if the heap has no host memory.
 */
enum sw_status heap_to_host(struct heap *heap, CUdeviceptr base);
/*
 * Extends the block in place to at least `bytes`. Returns NO_MEMORY, and changes nothing, if the address space behind
 * it is not free or the budgets have no more. *ret_away: nonresident bytes that were added.
 */
enum sw_status heap_grow(struct heap *heap, CUdeviceptr base, size_t bytes, enum heap_from from, uint64_t *ret_away);

/*
 * Access of peers (peers.c). Each new mapping is opened to the devices in *config.peers at that moment.
 *
 * heap_reach() must be called after a device was added to it: it opens the existing mappings, warm memory included, but
 * not those that the program has made itself. Returns the driver's error, or NOT_READY if a moving piece did not arrive
 * in time; what was opened by then stays open.
 *
 * heap_unreach() must be called after devices were removed from it: it closes the existing mappings to them. No work of
 * these devices may be running. A mapping that is moving, or that the driver refuses to close, stays open.
 *
 * heap_reached_by() returns bits: the devices to which any mapping is open.
 */
CUresult heap_reach(struct heap *heap);
void heap_unreach(struct heap *heap, uint64_t devices);
uint64_t heap_reached_by(struct heap *heap);

/* Returns free memory that the heap holds: charged to a budget, available to the next allocation. Locking: none. */
uint64_t heap_idle(const struct heap *heap, enum chunk_place place);
/*
 * Returns how many bytes peers may lend; stores how many of them are in use, by this heap or others, and how many this
 * heap may still take. The numbers may be slightly out of date. Locking: none.
 */
uint64_t heap_lent(const struct heap *heap, uint64_t *ret_in_use, uint64_t *ret_left);
/* Gives free memory of peers back to them. */
void heap_give_back_lent(struct heap *heap);
/* Returns the bytes that peers want back (budget.h), from this heap or others. Locking: none. */
uint64_t heap_wanted(const struct heap *heap);
/* Returns the bytes of the device and of peers that the heap holds, in use or free. */
uint64_t heap_made_device(struct heap *heap);
/* Returns the bytes of all blocks in use, wherever they are. A piece that is moving counts once. */
uint64_t heap_block_bytes(struct heap *heap);
/*
 * Returns what the device budget is charged with that is not this heap's: the driver's pools, what the program makes
 * itself.
 * Locking: takes HEAP, under which the heap charges what it makes.
 */
uint64_t heap_others_bytes(struct heap *heap);
/*
 * Returns whether one allocation more would lift all of this above `limit`: bytes of blocks, also of unused divided
 * ones, and of others. Then *ret_grant says what is lacking. The caller must not let a second thread ask before this
 * one has taken what it asks for.
 */
bool heap_is_beyond(struct heap *heap, size_t bytes, enum chunk_kind kind, uint64_t limit,
		    struct heap_grant *ret_grant);
/*
 * Gives free memory back to the driver until at most this much is kept. Returns the bytes, of the device and of peers,
 * that the driver refused to take.
 */
uint64_t heap_trim(struct heap *heap, uint64_t keep_device, uint64_t keep_host);

/*
 * From now on at least this much idle host memory is kept, because it will be needed again: pinning it anew takes much
 * longer than to copy into it. What is owed to other processes of the user goes back in any case. Locking: takes HEAP.
 */
void heap_keep_host(struct heap *heap, uint64_t bytes);
/*
 * Must be called about once a second. Idle memory beyond keep_device and keep_host goes back to the driver when it was
 * not needed for some seconds, so that a program that allocates in each of its steps finds it again. Without ticks for
 * 3 s it goes back at once, as memory of peers always does, and host memory until the first tick; of memory of peers
 * that was not needed, nothing is kept. Host memory that is owed to other processes of the user (quota.h) goes back in
 * any case.
 */
void heap_tick(struct heap *heap);
/*
 * Returns whether ticks go on, by the time of the last one; 0: there was none. After 3 s without, they have stopped:
 * their thread has ended, or is not wanted (control: no).
 */
bool heap_is_ticking(uint64_t ticked);

/* ---- allocations backed on use ---- */

/*
 * Allocations that are backed on use (on_use.c). Such an allocation is address space at first. Memory is taken for
 * parts of it when they are used, each time for a run of units that has none yet: that is a block of its own, which
 * moves, is pinned and is counted as any other. What was never used costs nothing.
 *
 * Nothing is mapped where no memory was taken, so somebody must take it before the GPU gets there: serve/named.h does,
 * by what submissions name.
 */

/*
 * A kernel may be given where its memory ends, and go backwards, or a little before where it begins (submission.c):
 * what lies this close to what a pointer of known reach means is taken as well.
 */
#define ON_USE_NEAR 512

/* Who may touch an allocation that the program takes for managed memory (serve/managed.h). */
enum on_use_side {
	ON_USE_PLAIN, /* it is not managed memory */
	ON_USE_CPU,   /* the CPU: its contents lie in plain memory at the same address */
	ON_USE_GOING, /* the CPU may read it; its contents are being copied to memory of the heap */
	ON_USE_GPU,   /* the GPU: its contents lie in memory of the heap */
	ON_USE_READ,  /* as GPU, which does nothing now, and the CPU may read some pages (serve/touch.c) */
	ON_USE_DIRTY, /* the same, and some of these pages hold what the CPU has written since */
};

/*
 * Reserves address space for an allocation of `bytes`. Returns NO_MEMORY if there is none. keep: as heap_keep(), for
 * all parts.
 */
enum sw_status heap_on_use_reserve(struct heap *heap, size_t bytes, bool keep, CUdeviceptr *ret_address);
/*
 * Takes memory for what has none of the `bytes` bytes from ret_grant->address on, which may reach beyond the end of the
 * allocation. Adds what it took to the grant. Returns NO_MEMORY if some of it has none then; what was taken stays, and
 * the next call goes on from there. Returns INVALID if the address is in no such allocation. kind is not used: it is
 * movable memory. The parameters are those of heap_alloc().
 */
enum sw_status heap_on_use_take(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
				struct heap_grant *ret_grant);
/*
 * Narrows a range, which begins in an allocation, to what of it has no memory; round: and extends that to multiples of
 * the size in which memory is best taken. Returns false if nothing is missing. Locking: none; another thread may take
 * some at any time.
 */
bool heap_on_use_missing(const struct heap *heap, bool round, CUdeviceptr *address, uint64_t *bytes);
/*
 * Stores the lowest address, from `from` on, at which an allocation begins that has not all its memory, or that the CPU
 * has. Returns false if there is none.
 */
bool heap_on_use_next(struct heap *heap, CUdeviceptr from, CUdeviceptr *ret_base, uint64_t *ret_bytes);
/* Returns whether there is any. */
bool heap_on_use_any(struct heap *heap);
/* Adds up, by place, the bytes that it has; *ret_stays: any of them are pinned. Returns INVALID if there is none. */
enum sw_status heap_on_use_where(struct heap *heap, CUdeviceptr base, uint64_t ret_bytes[CHUNK_PLACES],
				 bool *ret_stays);
/* Counts moves of all its parts, also of those to come, for a site. Locking: takes HEAP. */
void heap_on_use_set_site(struct heap *heap, CUdeviceptr base, unsigned site);
/* Frees the allocation that begins there, and returns how many bytes of memory it had. Cannot fail. */
uint64_t heap_on_use_free(struct heap *heap, CUdeviceptr base);

#endif
