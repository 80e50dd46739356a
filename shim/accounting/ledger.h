// SPDX-License-Identifier: Apache-2.0
/*
 * ledger.h: the ledger: one row for each live allocation, handle and mapping of the program, found by its address (or
 * handle) in O(1).
 *
 * A row belongs to its maker until ledger_commit(), to the ledger until ledger_take*(), then to the taker, who ends
 * it with ledger_row_free(). What a free needs is in the row, so freeing needs no memory.
 *
 * Locking: functions that look at rows take LEDGER. Under it they call only stats_grown() and a given `change`.
 */
#ifndef SPILLWAY_LEDGER_H
#define SPILLWAY_LEDGER_H

#include "shim/base/lock.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits, so that a look-up can name several. */
enum ledger_kind {
	LEDGER_HEAP = 1 << 0,       /* heap memory; block is set */
	LEDGER_DRIVER = 1 << 1,     /* cuMemAlloc and cuMemAllocPitch, passed through */
	LEDGER_MANAGED = 1 << 2,    /* cuMemAllocManaged */
	LEDGER_ASYNC = 1 << 3,      /* cuMemAllocAsync and cuMemAllocFromPoolAsync */
	LEDGER_PINNED = 1 << 4,     /* cuMemHostAlloc, cuMemAllocHost */
	LEDGER_REGISTERED = 1 << 5, /* cuMemHostRegister */
	LEDGER_HANDLE = 1 << 6,     /* the program's own cuMemCreate; key is the handle */
	LEDGER_MAPPING = 1 << 7,    /* the program's own cuMemMap; mapping.handle is the handle */
	LEDGER_ARRAY = 1 << 8,      /* cuArrayCreate and its variants; key is the handle */
	LEDGER_SYSTEM = 1 << 9,     /* pages of the process (backend.c) */
	LEDGER_TAKEN = 1 << 10,     /* memory of another process (ipc.c), while it is open */
	LEDGER_FREEABLE = LEDGER_HEAP | LEDGER_DRIVER | LEDGER_MANAGED | LEDGER_ASYNC | LEDGER_SYSTEM,
	/*
	 * If ->home is set, the program asked for device memory. Managed rows without it are what the program made
	 * itself.
	 */
	LEDGER_OURS = LEDGER_HEAP | LEDGER_MANAGED | LEDGER_SYSTEM,
};

/* What the program has said of managed memory on the heap, of all of an allocation; type INVALID: nothing. */
struct ledger_hints {
	CUmemLocation preferred, prefetched;
	uint64_t accessed_by; /* bits: devices */
	bool accessed_by_cpu, read_mostly;
};

/*
 * The fields before the variants hold for every kind. Each variant is for the kind of its name, and is read and
 * written only where the kind is known. A kind without a variant has no fields of its own.
 */
struct ledger_row {
	uint64_t key; /* CUdeviceptr, host address or handle */
	enum ledger_kind kind;
	int device;   /* ordinal */
	size_t bytes; /* as the program asked */
	uint64_t id;  /* unique in the process; CU_POINTER_ATTRIBUTE_BUFFER_ID of heap blocks */
	CUcontext context;
	const struct backend *home; /* backend that made it and frees it; NULL: the driver, as the program asked */
	int rule;                   /* rule that decided about it, -1: none */
	struct budget *cap;         /* of that rule, NULL: none; ledger_row_free() gives bytes back to it */
	uint64_t on_host_bytes;     /* heap: bytes placed on the host or on peers when it was made */
	uint64_t freeing;           /* while the driver is asked to free it: start time, for the trace; 0: not traced */
	unsigned site;              /* site that it is counted for, once counted (stats.h) */
	bool counted;               /* it is counted for its site */
	bool fixed;                 /* by rule it never moves, and heap memory may be registered and exported */
	bool sync_memops;           /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS was set */
	bool orphan;                /* its context has ended, and with it what belonged to the context */
	bool spans;                 /* found by every address in it (ledger_find) */

	/* While its free is deferred (deferred_free.h). */
	struct {
		CUevent event;     /* the free waits for it; NULL: for all of `whole` */
		CUcontext context; /* of that event; not always the block's context */
		CUcontext whole;   /* the same, or for a green one its primary context */
		uint64_t order;    /* events of one order (a stream, a whole context) complete one after the other */
		uint64_t since;    /* sequence number */
	} pending;

	union {
		struct {
			struct block *block; /* NULL: on_use */
			bool on_use;         /* it is backed on use (heap/on_use.c) */
			bool managed;        /* the program asked for managed memory (serve/managed.h); with on_use */
			struct ledger_hints hints; /* with managed */
			uint64_t had;              /* with on_use: bytes of memory that it had when it was freed */
			CUmemoryPool pool;         /* pool that the program thinks it is from, or NULL */
			uint64_t pool_id;          /* number of our pool that counts it (device.h); 0: none */
			bool handed_back;          /* the program has freed it to the pool */
		} heap;
		struct {
			bool gpu_has_used; /* a GPU has used it (ledger_find_driven) */
		} managed;
		struct {
			uint64_t pool_id; /* as in heap */
		} async;
		struct {
			size_t mapped;      /* bytes of the mapping */
			bool asked_managed; /* the program asked for managed memory */
			bool registered;    /* by cuMemHostRegister */
		} system;
		struct {
			struct block *block;  /* heap handle (serve.h): its memory; NULL: the driver's */
			uint64_t drivers;     /* our handle without a block: the driver's handle that replaces it */
			uint64_t asked_flags; /* borrowed or heap handle: allocFlags as the program expects them */
			unsigned asked_types; /* heap handle: handle types that it may be exported as */
			unsigned refs;        /* releases still to come, plus mappings */
			unsigned maps;        /* the mappings among refs */
			bool on_host;         /* in host memory, as the program asked */
			bool borrowed;        /* retained from a heap block on the host; counted with the block */
		} handle;
		struct {
			struct block *block; /* heap mapping: the block that is mapped */
			uint64_t handle;     /* the handle that is mapped */
			unsigned asked_types;
		} mapping;
		struct taken *taken; /* its mapping (ipc.c) */
	};
	struct ledger_row *next;
};

/* Returns true if it is a handle, or a mapping, whose memory is the heap's (serve.h). */
static inline bool ledger_is_heap_handle(const struct ledger_row *row)
{
	return row->kind == LEDGER_HANDLE && row->handle.block;
}
static inline bool ledger_is_heap_mapping(const struct ledger_row *row)
{
	return row->kind == LEDGER_MAPPING && row->mapping.block;
}
/* Returns true if it is a handle that is counted with the heap block it was retained from. */
static inline bool ledger_is_borrowed(const struct ledger_row *row)
{
	return row->kind == LEDGER_HANDLE && row->handle.borrowed;
}

/* Returns true if it is stream-ordered memory: of a pool, and not of a context. */
static inline bool ledger_is_of_pool(const struct ledger_row *row)
{
	return row->kind == LEDGER_ASYNC || (row->kind == LEDGER_HEAP && row->heap.pool);
}

/* Returns a row to fill in, zero but for kind, id and rule (-1), or NULL if out of memory. */
struct ledger_row *ledger_row_new(enum ledger_kind kind);
void ledger_row_free(struct ledger_row *row); /* accepts NULL */

/* Makes the row known by its address. Cannot fail. */
void ledger_commit(struct ledger_row *row);
/* Takes out the row with this key and one of these kinds. Returns NULL if there is none. */
struct ledger_row *ledger_take(unsigned kinds, uint64_t key);
/* Returns the id that the next row will get. It separates the rows of now from later ones. */
uint64_t ledger_line(void);
/*
 * Takes out every row of these kinds that belongs to the context and has an id below `line`. Returns a list by ->next.
 * Rows of pools are their device's: they stay, as rows of `heir` if that is not NULL.
 */
struct ledger_ending {
	unsigned kinds;
	CUcontext context, heir;
	uint64_t line;
};
struct ledger_row *ledger_take_context(const struct ledger_ending *ending);
/* Copies the row to *ret. Returns false, and leaves *ret untouched, if there is none. */
bool ledger_get(unsigned kinds, uint64_t key, struct ledger_row *ret);
/*
 * Makes a row findable by every address in it, not by its first alone. The caller must call this before the commit,
 * once key and bytes are known. Returns false if out of memory; then the row is not findable like that.
 */
bool ledger_span(struct ledger_row *row);
/*
 * Copies the spanning row of these kinds that has the address in it. Returns false if there is none. Managed memory
 * that the program made itself is not found.
 */
bool ledger_find(unsigned kinds, uint64_t address, struct ledger_row *ret);
/*
 * Copies the row of the program's own managed memory that has the address in it, and then notes that a GPU has used it
 * if by_gpu. Returns false if there is none.
 */
bool ledger_find_driven(uint64_t address, bool by_gpu, struct ledger_row *ret);

/* Sets sync_memops of a LEDGER_OURS row. Returns false if there is none. */
bool ledger_set_sync_memops(uint64_t key, bool on);
/* Lets `change` change the hints of a heap row. Returns false if there is none. */
bool ledger_hint(uint64_t key, void (*change)(struct ledger_hints *hints, const void *argument), const void *argument);
/* Raises the size of the heap row with this id. Returns by how much: 0 if it has gone or is as long already. */
size_t ledger_grow(uint64_t key, uint64_t id, size_t bytes);
/* Returns how many rows have sync_memops set at this moment. Read on the path of synchronous copies. */
unsigned ledger_n_sync_memops(void);
/*
 * Add or remove one reference of a handle: for a release to come, or of a mapping (maps). Return false if the handle is
 * not known, or has no reference of that sort. When the last reference of both sorts goes, the row is taken out and
 * given to the caller in *ret_gone, which is NULL otherwise.
 */
bool ledger_handle_ref(uint64_t handle, bool maps);
bool ledger_handle_unref(uint64_t handle, bool maps, struct ledger_row **ret_gone);
/*
 * From now on the memory of our handle is the driver's handle `drivers`. Returns false if it is unknown, or was so
 * already.
 */
bool ledger_handle_become(uint64_t handle, uint64_t drivers);

/* ---- the table; for ledger.c, and tests that look into it ---- */

#define LEDGER_FIRST_BUCKETS 256

struct ledger_state {
	struct lock lock; /* LEDGER. Guards all that follows but the atomics. */
	size_t n_rows;
	struct ledger_row *idle_rows; /* rows that wait for reuse */
	size_t n_idle;
	uint32_t n_spans, n_spanning, spans_room; /* in the array; with those out of the ledger; allocated */
	_Atomic uint64_t next_id;                 /* begins far from the driver's own buffer ids, which count from 1 */
	struct ledger_row *first_table[LEDGER_FIRST_BUCKETS];
	/* Read often and written seldom, so it lies apart from the lock. */
	struct ledger_row **table;
	size_t n_buckets;
	struct ledger_row **spans; /* committed ones, by key, never overlapping */
	/*
	 * Bounds of all that ever spanned; they only widen. Written under the lock, read without it first: a row whose
	 * address somebody knows has been committed before.
	 */
	_Atomic uint64_t low, high;
	atomic_uint n_sync_memops; /* written under the lock, read without it by synchronous copies */
};
extern struct ledger_state ledger __attribute__((visibility("hidden")));

/* Returns the bucket of a key if there are so many. Locking: none. */
size_t ledger_bucket(uint64_t key, size_t buckets);

/*
 * ---- ranges ----
 *
 * Address space that the program has reserved (cuMemAddressReserve) and that is part of a heap's arena, so that what is
 * placed there can move (heap/block_unmapped.h). Reservations elsewhere are not in this list. The list is short:
 * PyTorch has two ranges per stream. Locking: each function takes VA_RANGES, and calls nothing outside under it.
 */
struct va_range {
	CUdeviceptr start;
	uint64_t bytes;
	CUdevice device;   /* the device of the arena */
	unsigned n_others; /* mappings there that are not the heap's: of other handles, of other devices */
	struct va_range *next;
};

/* True if any range was ever added. While false, no other question need be asked. */
extern _Atomic bool va_ranges_any;

/* Adds a range. Returns false if out of memory. */
bool va_ranges_add(CUdeviceptr start, uint64_t bytes, CUdevice device);
/* Copies the range that has the address in it. Returns false if there is none. */
bool va_ranges_find(CUdeviceptr address, struct va_range *ret);
/*
 * Removes the range that begins at `start`, and copies it to *ret. Returns false unless it has exactly that length
 * and nothing but the heap's mappings.
 */
bool va_ranges_take(CUdeviceptr start, uint64_t bytes, struct va_range *ret);
/* Adds `more` (1 or -1) to the count of mappings at the address that are not the heap's. */
void va_ranges_count(CUdeviceptr address, int more);

/* Returns true if all of these bytes are in the range. */
static inline bool va_ranges_has(const struct va_range *space, CUdeviceptr address, uint64_t bytes)
{
	return address - space->start < space->bytes && bytes <= space->bytes - (address - space->start);
}

#endif
