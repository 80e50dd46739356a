/*
 * pool.h: the driver's memory pools, as far as they use device memory. The heap cannot use what a pool has reserved,
 * whether the program uses it at the moment or not, so it is charged to the device's budget (docs/design.md, Budgets).
 * A program that never allocates in stream order costs nothing here.
 *
 * Locking: POOL, held over driver calls (queries of attributes, and releasing unused memory; none waits for the GPU),
 * so that a pool cannot be destroyed meanwhile. The functions take POOL unless they say otherwise.
 */
#ifndef SPILLWAY_POOL_H
#define SPILLWAY_POOL_H

#include "shim/device/device.h"
#include "shim/accounting/ledger.h"

/*
 * The program allocated in stream order on this device: from now on its default pool is tracked and gets the policy's
 * async.release_threshold.
 */
void pool_used(struct device *device);
/*
 * The program is about to set the release threshold of this pool, which then holds. The policy's threshold of a default
 * pool is set before that.
 */
void pool_threshold_asked(CUmemoryPool pool);
/*
 * Records a pool that the program made. driver_only: it promises something (export, a limit) that the heap could not
 * keep.
 */
void pool_made(CUmemoryPool pool, CUdevice device, bool driver_only);
/*
 * pool_forget() must be called before the real pool is destroyed; it takes the pool off the list, or returns NULL if
 * the pool is unknown. pool_forgotten() then frees the record, or puts it back if the driver refused.
 */
struct pool;
struct pool *pool_forget(CUmemoryPool pool);
void pool_forgotten(struct pool *pool, bool gone); /* accepts NULL */
/* The program made graphs with allocation nodes on this device: what the driver reserves for them is tracked, too. */
void pool_graphs_used(struct device *device);
/* A pool, or a graph with allocation nodes, has existed; only ever set, by any thread. Until then nothing is charged. */
extern atomic_bool pool_any;
/*
 * Updates what the pools and graphs of a device are charged with. Closed pools first give back unused memory, as far as
 * the driver knows that the GPU has finished with it; at most every 10 ms.
 */
void pool_refresh(struct device *device);
/*
 * Must be called about once a second: pool_refresh() for every device whose pools are closed. Locking: must be called
 * under no lock.
 */
void pool_tick(void);
/* The same without the limit of 10 ms. Returns whether the budget has more room now. */
bool pool_give_back(struct device *device);

/*
 * For async.use: auto. Returns whether the driver may serve these bytes from this pool (NULL: the current one of the
 * device) within the device budget. Unused memory of the pool counts as room, and so does what the heap keeps warm. On
 * success *ret_id counts the bytes until pool_unclaim(); it is 0 if the pool is not known and nothing is counted. The
 * answer comes from the library's counters; near the limit the driver's counters are read to be exact.
 *
 * A pool is charged with what it had reserved when the driver was last asked, or with what was claimed of it if that is
 * more. While claims stay below the charge, a claim changes one number of the pool. A pool reserves more than is used
 * of it; if that has lifted the device over its budget, the pool gets no more than it had while the device was below.
 *
 * Locking: takes START, POOL and HEAP in turn; must be called without any of them.
 */
enum pool_claim {
	POOL_OPEN,   /* within the budget, from a pool that is not closed */
	POOL_WITHIN, /* within the budget, closed or not: the heap was tried before */
	POOL_OVER,   /* in any case */
};
bool pool_claim(struct device *device, CUmemoryPool pool, size_t bytes, enum pool_claim how, uint64_t *ret_id);
void pool_unclaim(uint64_t id, size_t bytes); /* accepts 0 */
/*
 * Must be called when the heap has served what the pools of the device could not. Where memory migrates, the pools are
 * then closed for good: the heap serves all further requests as far as it can, and what is freed of the pools goes back
 * to the driver. Locking: none.
 */
void pool_close(struct device *device);
/*
 * The program is about to choose another current pool: from now on the driver is asked which pool is current. Locking:
 * none.
 */
void pool_chosen(void);

/*
 * Pools as the program sees them when their memory is in the heap (async.h). Returns the number of the pool, or 0 if
 * its memory must stay with the driver or the pool is unknown.
 */
uint64_t pool_for_heap(CUmemoryPool pool, struct device *device);
/* Returns the number of any known pool, or 0. */
uint64_t pool_number(CUmemoryPool pool);
/*
 * Returns whether a pool, taken off the list by pool_forget(), has heap memory that is not freed yet. Accepts NULL.
 * Locking: none.
 */
bool pool_has_memory(const struct pool *forgotten);
/*
 * Count a heap row of pool row->heap.pool_id: so many bytes are new or more; freed by the program (may be called
 * several times); its memory is released.
 */
void pool_row_grown(const struct ledger_row *row, uint64_t bytes);
void pool_row_freed(struct ledger_row *row);
void pool_row_gone(struct ledger_row *row);
/*
 * Returns what heap memory adds to the driver's answer for one of the four attributes in bytes; 0 for other attributes.
 */
uint64_t pool_heap_bytes(CUmemoryPool pool, CUmemPool_attribute attribute);
/* The program asks for what is reserved: of freed memory of the heap so many bytes are, too, which no row has. */
void pool_heap_waits(CUmemoryPool pool, uint64_t bytes);
/* The program resets a high-water mark. */
void pool_heap_reset(CUmemoryPool pool, CUmemPool_attribute attribute);
/* Returns the device of a pool whose memory may be in the heap, or NULL. */
struct device *pool_heap_device(CUmemoryPool pool);

extern struct lock pool_lock;

#endif
