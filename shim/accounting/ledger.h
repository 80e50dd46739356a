/*
 * ledger.h: what is live and whose. One row for each allocation, handle and mapping the program holds, found by its
 * address (or handle) in O(1).
 *
 * Lock: LEDGER, taken inside; nobody calls out under it. A row belongs to its maker until ledger_commit(), to the
 * ledger until ledger_take*(), then to the taker, who ends it with ledger_row_free(). What a free needs is in the row,
 * so freeing needs no memory.
 */
#ifndef SPILLWAY_LEDGER_H
#define SPILLWAY_LEDGER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;
struct block;
struct budget;

/* Bits, so that a look-up can name several. */
enum ledger_kind {
	LEDGER_HEAP = 1 << 0,       /* ours: block is set */
	LEDGER_DRIVER = 1 << 1,     /* cuMemAlloc and pitch, passed through */
	LEDGER_MANAGED = 1 << 2,    /* cuMemAllocManaged */
	LEDGER_ASYNC = 1 << 3,      /* cuMemAllocAsync and from a pool */
	LEDGER_PINNED = 1 << 4,     /* cuMemHostAlloc, cuMemAllocHost */
	LEDGER_REGISTERED = 1 << 5, /* cuMemHostRegister */
	LEDGER_HANDLE = 1 << 6,     /* the program's own cuMemCreate; key is the handle */
	LEDGER_MAPPING = 1 << 7,    /* the program's own cuMemMap; handle says of what */
	LEDGER_ARRAY = 1 << 8,      /* cuArrayCreate and kin; key is the handle */
	LEDGER_SYSTEM = 1 << 9,     /* pages of the process (backend_system.c) */
	LEDGER_TAKEN = 1 << 10,     /* memory of another process (ipc_take.c), while it is open */
	LEDGER_FREEABLE = LEDGER_HEAP | LEDGER_DRIVER | LEDGER_MANAGED | LEDGER_ASYNC | LEDGER_SYSTEM,
	/* With ->home: the program asked for device memory. Managed rows without are what it made itself. */
	LEDGER_OURS = LEDGER_HEAP | LEDGER_MANAGED | LEDGER_SYSTEM,
};

/*
 * What a row of any kind has comes first; what only some kinds have is in the variant that bears the name of the kind, and
 * is read and written only where the kind is known. A kind without a variant has nothing of its own.
 */
struct ledger_row {
	uint64_t key; /* CUdeviceptr, host address or handle */
	enum ledger_kind kind;
	int device;   /* ordinal */
	size_t bytes; /* as the program asked */
	uint64_t id;  /* unique in the process; CU_POINTER_ATTRIBUTE_BUFFER_ID of heap blocks */
	CUcontext context;
	const struct backend *home; /* who made it and frees it; NULL: the driver, as the program asked */
	int rule;                   /* that decided where it lives, -1: none; of what serve.c allocates */
	struct budget *cap;         /* of that rule, NULL: none; ledger_row_free() gives bytes back to it */
	uint64_t on_host_bytes;     /* of the heap: placed on the host when it was made */
	uint64_t freeing;           /* while the driver is asked to free it: since when, for the trace; 0: not traced */
	unsigned site;              /* that it counts for, once counted (stats.h) */
	bool counted;               /* for its site */
	bool fixed;                 /* by rule it never moves, and heap memory may be registered and exported */
	bool sync_memops;           /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS was set */
	bool orphan;                /* its context has ended, and what belonged to that with it */
	bool spans;                 /* found by every address in it (ledger_find) */

	/* While its free is put off (deferred_free.h). */
	struct {
		CUevent event;     /* the free waits for it; NULL: for the whole context */
		CUcontext context; /* of that event; not always the context of the block */
		uint64_t order;    /* events of one order (a stream, a whole context) pass one after the other */
		uint64_t since;    /* sequence number */
	} pending;

	union {
		struct {
			struct block *block;
			CUmemoryPool pool; /* the pool that the program thinks it is of, or NULL */
			uint64_t pool_id;  /* which of ours counts it (pool.h); 0: none */
			bool handed_back;  /* of a pool: the program has freed it */
		} heap;
		struct {
			uint64_t pool_id; /* as in heap */
		} async;
		struct {
			uint64_t headroom; /* with ahead: bytes of the device that stay free */
			unsigned turn;     /* how many launches named it (ledger_find_ahead) */
			bool ahead;        /* launches that name it bring it (managed_prefetch.h) */
			bool quiet;        /* the program's own: spans for ledger_find_any() alone */
		} managed;
		struct {
			size_t mapped;      /* bytes of the mapping */
			bool asked_managed; /* the program asked for managed memory */
			bool registered;    /* by cuMemHostRegister */
		} system;
		struct {
			struct block *block;  /* of the heap's (vmm.h): its memory; NULL: the driver's */
			uint64_t drivers;     /* of ours without a block: the driver's handle in its place */
			uint64_t asked_flags; /* spilled or the heap's: allocFlags as the program asked for them */
			unsigned asked_types; /* the heap's: types of handle it may be exported as */
			unsigned refs;        /* releases still to come, plus mappings */
			unsigned maps;        /* of those, mappings */
			bool on_host;         /* located in host memory, as the program asked */
			bool spilled;         /* asked for on the device, made in host memory */
			bool borrowed;        /* of a heap block on the host, retained; counted with the block */
		} handle;
		struct {
			struct block *block; /* of the heap's: where it lies */
			uint64_t handle;     /* of which */
			unsigned asked_types;
		} mapping;
	};
	struct ledger_row *next;
};

/* Is it a handle, or a mapping, whose memory is the heap's (vmm.h)? */
static inline bool ledger_is_heap_handle(const struct ledger_row *row)
{
	return row->kind == LEDGER_HANDLE && row->handle.block;
}
static inline bool ledger_is_heap_mapping(const struct ledger_row *row)
{
	return row->kind == LEDGER_MAPPING && row->mapping.block;
}
/* Is it a handle that is counted with the heap block it was retained from? */
static inline bool ledger_is_borrowed(const struct ledger_row *row)
{
	return row->kind == LEDGER_HANDLE && row->handle.borrowed;
}

/* A row to fill in, zero but for kind and id, of no rule; NULL without memory. */
struct ledger_row *ledger_row_new(enum ledger_kind kind);
void ledger_row_free(struct ledger_row *row); /* accepts NULL */

/* The address becomes known. Cannot fail. */
void ledger_commit(struct ledger_row *row);
/* Take the row with this key and one of these kinds out; NULL when there is none. */
struct ledger_row *ledger_take(unsigned kinds, uint64_t key);
/* The id that the next row will get: a line between the rows of now and of later. */
uint64_t ledger_line(void);
/* Take every row of these kinds that belongs to the context and is older than the line; a list by ->next. */
struct ledger_row *ledger_take_context(unsigned kinds, CUcontext context, uint64_t line);
/* A copy of the row; false, and *ret untouched, when there is none. */
bool ledger_get(unsigned kinds, uint64_t key, struct ledger_row *ret);
/*
 * A row that is to be found by every address in it, not by its first alone. To be called before it is committed, once
 * key and bytes are known. False: no memory, and it is not.
 */
bool ledger_span(struct ledger_row *row);
/* The row of these kinds that spans and has the address in it: a copy, false when there is none. */
bool ledger_find(unsigned kinds, uint64_t address, struct ledger_row *ret);
/* The same for rows that are quiet, too, and for any of these bytes: the first that has one of them. */
bool ledger_find_any(unsigned kinds, uint64_t address, uint64_t bytes, struct ledger_row *ret);
/* As ledger_find() for rows with ->ahead, one time in LEDGER_TURNS that it is asked. */
#define LEDGER_TURNS 64
bool ledger_find_ahead(uint64_t address, struct ledger_row *ret);
/* False: certainly no row spans the address. Two atomic loads. */
bool ledger_may_span(uint64_t address);

/* Set sync_memops of a row of ours; false when there is none. */
bool ledger_set_sync_memops(uint64_t key, bool on);
/* A heap row has become that long; a shorter one than it was is ignored. False when there is none. */
bool ledger_grow(uint64_t key, size_t bytes);
/* Rows with sync_memops set, at this moment; read on the path of synchronous copies. */
unsigned ledger_n_sync_memops(void);
/*
 * One reference more / less on a handle, for a release to come or for a mapping; false when it is not known, or has none of
 * that sort. Down to none of both: the row is taken out and given to the caller in *ret_gone, which is NULL otherwise.
 */
bool ledger_handle_ref(uint64_t handle);
bool ledger_handle_unref(uint64_t handle, struct ledger_row **ret_gone);
/* The memory of a handle of ours is the driver's from now on, by that one. False: it is not known, or was so already. */
bool ledger_handle_become(uint64_t handle, uint64_t drivers);
bool ledger_handle_map(uint64_t handle);
bool ledger_handle_unmap(uint64_t handle, struct ledger_row **ret_gone);

size_t ledger_n_rows(void);
bool ledger_is_valid(void);

#endif
