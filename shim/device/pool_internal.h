/*
 * pool_internal.h: what pool.c and pool_claim.c share. All of it is under POOL.
 */
#ifndef SPILLWAY_POOL_INTERNAL_H
#define SPILLWAY_POOL_INTERNAL_H

#include "shim/device/pool.h"

struct pool {
	CUmemoryPool handle;
	CUdevice device;
	uint64_t id; /* handles come again, numbers do not */
	bool is_default, driver_only;
	/* At the driver: what was claimed and is not freed, and what the budget is charged with. claimed <= charged */
	uint64_t claimed, charged;
	/*
	 * Near the limit: the most that was claimed when the driver was last asked; the most that was claimed within it,
	 * and what others had of the budget then.
	 */
	uint64_t asked, safe, others;
	unsigned unasked; /* claims since then */
	/* In the heap: what the program has, and that plus what waits for its streams. The most of each. */
	uint64_t used, used_high, held, held_high;
	struct pool *next;
};

extern struct pool *pool_list;

/* NULL: there is none. */
struct pool *pool_find_locked(CUmemoryPool handle);
struct pool *pool_find_id_locked(uint64_t id);
struct pool *pool_find_default_locked(CUdevice ordinal);
/* pool_refresh(), by who holds the lock. */
void pool_refresh_locked(struct device *device);

#endif
