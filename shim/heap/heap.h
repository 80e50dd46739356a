/*
 * heap.h: the growable heap of one device, on CUDA's virtual memory management. The one header of this folder that
 * others include.
 *
 * Address space is one large reservation (arena.h), physical memory comes in chunks (chunk.h), a block is one
 * allocation of the program or a slab of small ones (block.h, small.h). All of it is guarded by one lock, HEAP, taken
 * inside the functions below; driver calls under it are VMM calls alone, which neither wait for the GPU nor disturb a
 * stream capture (docs/facts.md, Stream capture). heap_base_of() takes no lock.
 *
 * Whoever frees has made sure that no submitted work uses the block any more.
 */
#ifndef SPILLWAY_HEAP_H
#define SPILLWAY_HEAP_H

#include "shim/accounting/budget.h"
#include "shim/accounting/lender.h"
#include "shim/base/lock.h"
#include "shim/base/status.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Granularity of device and host memory in the VMM calls (docs/facts.md, Mapping); checked against the driver at
 * heap_create().
 */
#define HEAP_UNIT ((size_t)2 << 20)

struct heap;
struct block;

/*
 * Where physical memory is. What is not on the device is *away*: the device reads and writes it all the same, over a
 * link, and it can be brought in. Memory of other devices, where the policy lends any, comes before that of the host.
 */
enum chunk_place {
	CHUNK_DEVICE,
	CHUNK_HOST, /* also the name for "away, wherever there is room" where something is to go out */
	CHUNK_PEER,
	CHUNK_PLACES, /* must be last */
};

#define HEAP_LENDERS 8 /* devices reach no more peers than that on some platforms */

struct heap_config {
	CUdevice device;
	bool host_usable;            /* host-backed chunks can be made */
	CUmemLocation host_location; /* where */
	bool moves;                  /* memory will be moved to where it is used (migration.h) */
	bool rdma, exportable;       /* what fixed memory may be made with on this device */
	bool share;                  /* memory that moves is to be exportable, too */
	struct budget *device_budget, *host_budget;
	unsigned n_lenders; /* devices whose memory may be used, too, in the order in which they are asked for it */
	struct lender *lenders[HEAP_LENDERS]; /* they live longer than the heap */
	const _Atomic uint64_t *peers;   /* bits: other devices that are to reach what is mapped; NULL: never any */
	CUdeviceptr arena_hint;          /* where the address space should lie, or 0; a hint, not a promise */
	uint64_t arena_bytes;            /* how much to ask for; halved until the driver agrees */
	uint64_t keep_device, keep_host; /* free memory kept warm; more goes back to the driver, see heap_tick() */
	bool device_at_once;             /* of the device's even that which was in use lately */
	uint64_t piece_bytes;            /* the largest piece, 2 to 128 MiB; 0: by the device budget, and piece_most */
	uint64_t piece_most;             /* no larger than that by the device budget; 0: no such limit */
};

/*
 * Physical memory of two kinds, which never mix: not in a block, not in a slab, not in what is kept warm. Only fixed
 * memory is made so that it can be registered for RDMA and exported, for only it is known to stay where it is.
 */
enum chunk_kind {
	CHUNK_MOVABLE,
	CHUNK_FIXED, /* stays where it was placed */
	CHUNK_KINDS, /* must be last */
};

/*
 * Where memory may come from when it is allocated; movable memory may go elsewhere later. The first two are 0 and 1: "may
 * it go to the host?"
 */
enum heap_from {
	HEAP_DEVICE,       /* device memory, or none */
	HEAP_DEVICE_FIRST, /* memory of peers, then of the host, for what the device budget does not hold */
	HEAP_HOST,         /* host memory, or none */
	HEAP_STRIPE,       /* the device and its peers in turn, or none; fixed memory alone */
};

/* What an allocation got. bytes_away > 0: it was spilled, whole or in part. */
struct heap_grant {
	CUdeviceptr address;
	struct block *block;                  /* to be handed to heap_free() with the address */
	uint64_t bytes_away, bytes_on_device; /* chunks taken into use; 0 both for a place in a slab already in use */
	uint64_t bytes_lent;                  /* of bytes_away: on other devices */
	bool reused;                          /* no driver call was needed */
};

/* NOT_SUPPORTED when the driver's granularity is not ours, NO_MEMORY when no address space can be had. */
enum sw_status heap_create(const struct heap_config *config, struct heap **ret_heap);
/* Give everything back to the driver. Only for tests: the process's end is the driver's own business. */
void heap_destroy(struct heap *heap);

/*
 * A block of at least bytes, aligned to 512 bytes, 2 MiB when bytes > 1 MiB. NO_MEMORY when the budgets or the driver have
 * no more; nothing changes then.
 */
enum sw_status heap_alloc(struct heap *heap, size_t bytes, enum chunk_kind kind, enum heap_from from,
			  struct heap_grant *ret_grant);
/* What becomes of the block in use at this address is counted for that site (stats.h); one for small allocations is not. */
void heap_set_site(struct heap *heap, CUdeviceptr address, unsigned site);
/*
 * The mover should leave the block on the device in `fast` (mover/piece.c) until it is freed; if it is a slab, until nothing
 * of it is in use. Locking: takes HEAP.
 */
void heap_keep(struct heap *heap, struct block *block);
/* Cannot fail. The memory stays warm for the next allocation, as far as keep_* allow. */
void heap_free(struct heap *heap, struct block *block, CUdeviceptr address);

/*
 * Blocks that must stay where they are (pin.c). heap_pin(): every block in use that these bytes touch stays from now on;
 * returns when nothing of them is on its way any more, false when that took too long: then they are not held. Each
 * success is ended by one heap_pin_end(), which says what becomes of it. Takes HEAP for a moment at a time; whoever calls
 * holds nothing that the mover or the GPU could wait for.
 */
enum pin_end {
	PIN_OFF,   /* it may move again, as far as this pin goes */
	PIN_STAYS, /* it stays for as long as it lives */
	PIN_LEFT,  /* that too; and others may know its physical memory, which is never used for anything else */
};
bool heap_pin(struct heap *heap, CUdeviceptr address, size_t bytes);
void heap_pin_end(struct heap *heap, CUdeviceptr address, size_t bytes, enum pin_end end);
/* Bytes, of the device and of peers, of blocks in use that must stay. Looks at every block. */
uint64_t heap_pinned_device(struct heap *heap);
/*
 * The same for a block that the program itself wants to stay (spillway.h), by any address in it: it must be undone as
 * often as it was done, and ends with the block. BUSY: what is on its way did not arrive. INVALID: no such block, or
 * nothing to undo.
 */
enum sw_status heap_pin_asked(struct heap *heap, CUdeviceptr base);
enum sw_status heap_unpin_asked(struct heap *heap, CUdeviceptr base);
/* Does heap_pin() wait for memory that the mover has in hand? */
bool heap_is_awaited(const struct heap *heap);

/*
 * Memory for other processes (share.c). heap_share_begin(): can the chunks of the block at base be exported? It must be
 * pinned, and with PIN_LEFT afterwards; INVALID: there is none, NOT_SUPPORTED: its memory was not made so. *ret_offset:
 * where base lies in what is exported. heap_share(): file descriptors of its chunks from the first-th on, in the order
 * of their addresses, as many as fit; the caller's, until heap_share_end() closes them. INVALID: it is not shared.
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
 * What an allocation of that many bytes takes, and what this block in use could hold: for giving a block that one part of
 * the program has freed to another without a way through heap_free(). 0: it is pinned, and is for nobody else, or it is
 * not where such an allocation may lie.
 */
size_t heap_rounded(size_t bytes);
size_t heap_room_of(struct heap *heap, const struct block *block, CUdeviceptr address, enum heap_from from);
/* Can there be memory on the host at all? */
bool heap_has_host(const struct heap *heap);

/* Are there freed blocks whose memory is still on its way between device and host? It will be free in a moment. */
bool heap_has_given(const struct heap *heap);
/* Do others fill the device, so that the budget allows more than the driver has had in the last second? No lock. */
bool heap_is_full(const struct heap *heap);
/* Is host memory being pinned ahead of need (heap_fill_host_reserve), charged and not yet free? No lock. */
bool heap_is_filling_host_reserve(const struct heap *heap);

bool heap_contains(const struct heap *heap, CUdeviceptr address);
/* The start of the block in use at this address. No lock: a block being freed at the same time may or may not show. */
bool heap_base_of(const struct heap *heap, CUdeviceptr address, CUdeviceptr *ret_base);

/* ---- what a program asks of one block, by its start (block_query.c). INVALID: there is none ---- */

/* Where the first `bytes` of it are, and whether something keeps it where it is. */
enum sw_status heap_where(struct heap *heap, CUdeviceptr base, size_t bytes, uint64_t ret_bytes[CHUNK_PLACES],
			  bool *ret_stays);
/* What of that other devices lend, by device; returns how many they are. 0 also where there is no block. */
struct heap_loan {
	CUdevice device;
	uint64_t bytes;
};
unsigned heap_loans(struct heap *heap, CUdeviceptr base, size_t bytes, struct heap_loan ret_loans[HEAP_LENDERS]);
/* Is the block in use at this address one physical allocation, and has it for itself? Then a handle of it is of the whole. */
bool heap_is_one_chunk(struct heap *heap, CUdeviceptr address);
/*
 * The same of any bytes; false unless all of them are of one block in use, or of several side by side that the program has
 * mapped itself (block_unmapped.h). They stay what they are only while something
 * holds the block (heap_pin).
 */
bool heap_spread(struct heap *heap, CUdeviceptr address, size_t bytes, uint64_t ret_bytes[CHUNK_PLACES]);
/*
 * It should live on the host: what is there stays, what is not goes as soon as the mover can. NOT_SUPPORTED: it shares
 * its memory with others (small.h), must stay where it is, or there is no host memory.
 */
enum sw_status heap_to_host(struct heap *heap, CUdeviceptr base);
/*
 * Make it at least that long where it is. NO_MEMORY: what follows it is not free, or the budgets have no more; nothing
 * has changed then. *ret_away: bytes that were added away from the device.
 */
enum sw_status heap_grow(struct heap *heap, CUdeviceptr base, size_t bytes, enum heap_from from, uint64_t *ret_away);

/*
 * Other devices (peer_access.c). Every mapping from now on is open to those that *config.peers names when it is made. After it
 * has come to name more, heap_reach() opens what is mapped already, warm memory too: the driver's error, or NOT_READY when
 * something that is on its way did not arrive; what was opened stays open then. After it names fewer, heap_unreach() takes
 * what is mapped away from those devices, of which no work may be running; what the driver refuses, and what is on its way,
 * stays open. heap_reached_by(): bits of the devices that something is open to.
 */
CUresult heap_reach(struct heap *heap);
void heap_unreach(struct heap *heap, uint64_t devices);
uint64_t heap_reached_by(struct heap *heap);

/* Free memory we hold: budgeted, but there for the next allocation. */
uint64_t heap_idle_device(const struct heap *heap);
uint64_t heap_idle_host(const struct heap *heap);
/*
 * What peers may lend, how much of it is in use, by this heap or others, and how much this heap may still have. No lock:
 * they may be behind.
 */
uint64_t heap_lent(const struct heap *heap, uint64_t *ret_in_use, uint64_t *ret_left);
/* Free memory of peers goes back to them. */
void heap_give_back_lent(struct heap *heap);
/* Bytes that peers want back (lender.h), of this heap or of others. No lock. */
uint64_t heap_wanted(const struct heap *heap);
/* All memory of the device that we hold, and of peers. */
uint64_t heap_made_device(struct heap *heap);
/*
 * Give free memory back to the driver until at most this much is kept. Bytes of the device, and of peers, that the driver
 * would not take.
 */
uint64_t heap_trim(struct heap *heap, uint64_t keep_device, uint64_t keep_host);

/*
 * About once a second. What is idle beyond keep_device and keep_host, since it was freed or has moved away, goes back to
 * the driver when nobody has needed it for some seconds: a program that allocates in each of its steps finds it again.
 * Where ticks do not come it goes back at once, as what peers lend always does; of that, what nobody has needed follows to
 * the last byte. Host memory that is owed to other processes of the user (quota.h) goes back in any case.
 */
void heap_tick(struct heap *heap);

bool heap_is_valid(struct heap *heap); /* every invariant of this folder; takes the lock */

#endif
