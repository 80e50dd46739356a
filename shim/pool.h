/*
 * pool.h: the driver's memory pools, as far as they take device memory. What a pool has reserved is not there for the
 * heap, whether the program uses it at the moment or not, so it is charged to the device's budget (design: Budgets).
 *
 * Lock: POOL, held over the driver's answers (attribute queries, no waits) so that a pool cannot be destroyed under
 * them. A program that never allocates in stream order costs nothing here.
 */
#ifndef SPILLWAY_POOL_H
#define SPILLWAY_POOL_H

#include "shim/device.h"

/* The program allocated in stream order on this device: from now on its default pool is looked at. */
void pool_used(struct device *device);
/* A pool the program made. */
void pool_made(CUmemoryPool pool, CUdevice device);
/* Before its real end it leaves the list (NULL: it was not on it); after that it is dropped, or comes back. */
struct pool;
struct pool *pool_forget(CUmemoryPool pool);
void pool_forgotten(struct pool *pool, bool gone); /* accepts NULL */
/* Renew what the pools of a device are charged with. */
void pool_refresh(struct device *device);

extern struct lock pool_lock;

#endif
