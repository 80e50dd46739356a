/* pool_internal.h: shared by pool.c and pool_claim.c. Locking: the caller holds POOL for everything here. */
#ifndef SPILLWAY_POOL_INTERNAL_H
#define SPILLWAY_POOL_INTERNAL_H

#include "shim/device/pool.h"

struct pool {
	CUmemoryPool handle;
	CUdevice device;
	uint64_t id; /* handles are reused, numbers are not */
	bool is_default, driver_only;
	/* In the driver: bytes claimed and not freed, and bytes charged to the budget. claimed <= charged */
	uint64_t claimed, charged;
	/*
	 * Near the limit: the most that was claimed when the driver was last asked; the most that was claimed while the
	 * device was within its budget, and what others had of the budget then.
	 */
	uint64_t asked, safe, others;
	unsigned unasked; /* claims since the driver was last asked */
	/* In the heap: bytes that the program has; those plus bytes that wait for streams; and the maximum of each. */
	uint64_t used, used_high, held, held_high;
	struct pool *next;
};

/* Return NULL if no such pool is known. */
struct pool *pool_find_locked(CUmemoryPool handle);
struct pool *pool_find_id_locked(uint64_t id);
struct pool *pool_find_default_locked(CUdevice ordinal);
/* As pool_refresh(), for a caller that holds POOL; gives nothing back. */
void pool_refresh_locked(struct device *device);

#endif
