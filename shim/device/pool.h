/*
 * pool.h: the driver's memory pools, as far as they take device memory. What a pool has reserved is not there for the
 * heap, whether the program uses it at the moment or not, so it is charged to the device's budget (docs/design.md,
 * Budgets).
 *
 * Lock: POOL, held over what is asked of the driver (attributes, and to give back what is unused; none of it waits for
 * the GPU) so that a pool cannot be destroyed under it. A program that never allocates in stream order costs nothing here.
 */
#ifndef SPILLWAY_POOL_H
#define SPILLWAY_POOL_H

#include "shim/device/device.h"
#include "shim/accounting/ledger.h"

/*
 * The program allocated in stream order on this device: from now on its default pool is looked at, and keeps what the
 * policy says (async.release_threshold).
 */
void pool_used(struct device *device);
/*
 * The program is about to say how much this pool keeps: from then on that holds. What the policy says of a default pool
 * is said before it.
 */
void pool_threshold_asked(CUmemoryPool pool);
/* A pool the program made. driver_only: what it promises (export, a limit) is nothing the heap could keep. */
void pool_made(CUmemoryPool pool, CUdevice device, bool driver_only);
/* Before its real end it leaves the list (NULL: it was not on it); after that it is dropped, or comes back. */
struct pool;
struct pool *pool_forget(CUmemoryPool pool);
void pool_forgotten(struct pool *pool, bool gone); /* accepts NULL */
/* Allocation nodes of graphs came to be on this device: what the driver reserves for them is looked at, too. */
void pool_graphs_used(struct device *device);
/*
 * Renew what the pools and the graphs' memory of a device are charged with. Closed ones first give back what is unused,
 * as far as the driver knows that the GPU has done with it; not more often than every 10 ms.
 */
void pool_refresh(struct device *device);
/* About once a second: that of every device whose pools are closed. Any thread, under no lock. */
void pool_tick(void);
/* The same, however lately they gave back. True: the budget has more room now. */
bool pool_give_back(struct device *device);

/*
 * async.use: auto. May the driver serve these bytes of this pool (NULL: the current one of the device) within the device
 * budget? What a pool has unused is room for it, and so is what the heap keeps warm. True: *ret_id counts them until
 * pool_unclaim(); 0: nobody does, for the pool is not known. Asked from counters; the driver's are read where the limit
 * is near, to be exact there.
 *
 * A pool is charged with what it had reserved when it was last asked, or with what was claimed of it if that is more. As
 * long as claims stay below the charge, nothing changes but one number of the pool. A pool reserves more than is used of
 * it; where that has lifted the device over its budget, it gets no more than it had while it was below.
 */
enum pool_claim {
	POOL_OPEN,   /* within the budget, of a pool that is not closed */
	POOL_WITHIN, /* within the budget, closed or not: the heap has had its turn */
	POOL_OVER,   /* in any case */
};
bool pool_claim(struct device *device, CUmemoryPool pool, size_t bytes, enum pool_claim how, uint64_t *ret_id);
void pool_unclaim(uint64_t id, size_t bytes); /* accepts 0 */
/*
 * The heap has served what the pools of the device could not. Where memory moves they are closed then, for good: the heap
 * serves all that is asked for, as far as it can, and what is freed of them goes back to the driver.
 */
void pool_close(struct device *device);
/* The program is about to choose another current pool: from now on the driver is asked which it is. */
void pool_chosen(void);

/*
 * Pools as the program sees them when their memory comes from the heap (async.h). A pool's number; 0: its memory must
 * stay with the driver, or we do not know it.
 */
uint64_t pool_for_heap(CUmemoryPool pool, struct device *device);
/* The number of any pool that we know; 0: we do not. */
uint64_t pool_number(CUmemoryPool pool);
/* Has it memory in the heap that is not free yet? Of one that was forgotten; NULL: no. */
bool pool_has_memory(const struct pool *forgotten);
/* A heap row of row->pool_id: it is the program's; the program has freed it (as often as one likes); its memory is gone. */
void pool_row_new(struct ledger_row *row);
void pool_row_freed(struct ledger_row *row);
void pool_row_gone(struct ledger_row *row);
/* What heap memory adds to the driver's answer for one of the four numbers of bytes; 0 for other attributes. */
uint64_t pool_heap_bytes(CUmemoryPool pool, CUmemPool_attribute attribute);
/* The program sets a high-water mark back. */
void pool_heap_reset(CUmemoryPool pool, CUmemPool_attribute attribute);
/* The device of a pool whose memory may be in the heap; NULL: none. */
struct device *pool_heap_device(CUmemoryPool pool);

extern struct lock pool_lock;

#endif
