#include "shim/heap/chunk.h"
#include "shim/log.h"
#include "shim/real.h"
#include "shim/stats.h"

#include <stdlib.h>

static enum sw_status create(struct chunk_store *store, enum chunk_place place, unsigned order,
			     CUmemGenericAllocationHandle *ret_handle)
{
	/* Without gpuDirectRDMACapable: registering a movable chunk for RDMA is to fail, not to go stale (design). */
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = store->location[place]};
	CUresult result = REAL(cuMemCreate)(ret_handle, chunk_bytes(order), &prop, 0);

	if (result == CUDA_SUCCESS) {
		stats_add(STAT_chunks_made, 1);
		return SW_OK;
	}
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		log_once("cuMemCreate of %llu bytes in %s memory: %s", (unsigned long long)chunk_bytes(order),
			 place == CHUNK_DEVICE ? "device" : "host", real_error_name(result));
	/* Why host memory cannot be pinned (limits, cgroups) differs; for the program there is no more memory. */
	return place == CHUNK_HOST ? SW_NO_MEMORY : status_of(result);
}

enum sw_status chunk_get(struct chunk_store *store, enum chunk_place place, unsigned order, struct chunk **ret_chunk)
{
	struct chunk *chunk = store->warm[place][order];

	lock_assert_held(LOCK_HEAP);
	if (!store->usable[place])
		return SW_NO_MEMORY;
	if (chunk) {
		store->warm[place][order] = chunk->next;
		store->warm_bytes[place] -= chunk_bytes(order);
		chunk->next = NULL;
		*ret_chunk = chunk;
		return SW_OK;
	}
	if (!budget_take(store->budget[place], chunk_bytes(order)))
		return SW_NO_MEMORY;
	chunk = malloc(sizeof(*chunk));
	if (!chunk) {
		budget_give(store->budget[place], chunk_bytes(order));
		return SW_NO_HOST_MEMORY;
	}
	*chunk = (struct chunk){.order = (uint8_t)order, .place = (uint8_t)place};
	enum sw_status status = create(store, place, order, &chunk->handle);
	if (status != SW_OK) {
		budget_give(store->budget[place], chunk_bytes(order));
		free(chunk);
		return status;
	}
	store->made_bytes[place] += chunk_bytes(order);
	*ret_chunk = chunk;
	return SW_OK;
}

void chunk_put(struct chunk_store *store, struct chunk *chunk)
{
	lock_assert_held(LOCK_HEAP);
	chunk->next = store->warm[chunk->place][chunk->order];
	store->warm[chunk->place][chunk->order] = chunk;
	store->warm_bytes[chunk->place] += chunk_bytes(chunk->order);
}

/* False: the driver refused; the chunk stays in the store for another try. */
static bool release_first(struct chunk_store *store, enum chunk_place place, unsigned order)
{
	struct chunk *chunk = store->warm[place][order];
	CUresult result = REAL(cuMemRelease)(chunk->handle);

	if (result != CUDA_SUCCESS) {
		log_once("cuMemRelease: %s; the chunk is kept for reuse", real_error_name(result));
		return false;
	}
	store->warm[place][order] = chunk->next;
	store->warm_bytes[place] -= chunk_bytes(order);
	store->made_bytes[place] -= chunk_bytes(order);
	budget_give(store->budget[place], chunk_bytes(order));
	stats_add(STAT_chunks_released, 1);
	free(chunk);
	return true;
}

void chunk_trim(struct chunk_store *store, enum chunk_place place, uint64_t keep)
{
	lock_assert_held(LOCK_HEAP);
	for (int order = CHUNK_ORDERS - 1; order >= 0; order--)
		while (store->warm_bytes[place] > keep && store->warm[place][order])
			if (!release_first(store, place, (unsigned)order))
				break;
}
