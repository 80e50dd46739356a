/* Allocations with place: on-use (on_use.h): from a name to memory of the heap. */
#include "shim/serve/on_use.h"
#include "shim/base/log.h"
#include "shim/heap/arena.h"
#include "shim/heap/heap.h"
#include "shim/heap/migration.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/serve/account.h"
#include "shim/serve/serve.h"
#include "shim/submit/submission.h"

static void refuse(const struct device *device, CUdeviceptr address, uint64_t bytes)
{
	struct ledger_row row;
	char text[32];

	log_once("place: on-use: no memory for %s of an allocation at its use; the call that uses it is refused",
		 log_bytes(text, sizeof(text), bytes));
	stats_add(STAT_on_use_refused, 1);
	account_refused(device, bytes, serve_find(address, &row) ? row.rule : -1, NULL);
}

static enum sw_status try(struct device *device, CUdeviceptr address, uint64_t bytes, uint64_t *taken)
{
	struct heap_grant grant = {.address = address};
	enum sw_status status =
	    backend_heap_take(device, bytes, CHUNK_MOVABLE, backend_heap_from(NULL), heap_on_use_take, &grant);

	*taken += grant.bytes_on_device + grant.bytes_away;
	return status;
}

/* Takes memory for a range of one allocation. */
static enum sw_status take_range(struct device *device, CUdeviceptr address, uint64_t bytes, bool whole)
{
	struct heap *heap = atomic_load(&device->heap);
	CUdeviceptr at = address;
	uint64_t length = bytes, taken = 0;

	if (!heap_on_use_missing(heap, true, &at, &length))
		return SW_OK;
	enum sw_status status = try(device, at, length, &taken);
	/* Without memory for more than is named. */
	if (status == SW_NO_MEMORY) {
		at = address;
		length = bytes;
		status = heap_on_use_missing(heap, false, &at, &length) ? try(device, at, length, &taken) : SW_OK;
	}
	/* Another thread has freed the allocation meanwhile: the submission does not use it. */
	if (status == SW_INVALID && !heap_on_use_missing(heap, false, &at, &length))
		status = SW_OK;
	stats_add(STAT_on_use_bytes, taken);
	if (whole && taken) {
		stats_add(STAT_on_use_whole, 1);
		stats_add(STAT_on_use_whole_bytes, taken);
	}
	if (status == SW_NO_MEMORY || status == SW_NO_HOST_MEMORY)
		refuse(device, address, length);
	return status;
}

static enum sw_status take_named(struct device *device, CUdeviceptr address, uint64_t bytes, bool whole)
{
	const struct arena *arena = heap_arena(atomic_load(&device->heap));
	CUdeviceptr begin, first;
	uint64_t length, all;
	uint32_t unit;

	if (!arena_is_on_use(arena, address, &unit))
		return SW_OK;
	if (bytes && !whole)
		return take_range(device, address, bytes, false);
	if (!arena_bounds(arena, address, &first, &all))
		return SW_OK;
	if (whole || !arena_on_use_extent(arena, unit, address, &begin, &length))
		return take_range(device, first, all, true);
	/* Near its ends, too, within the allocation. */
	CUdeviceptr end = begin + length + ON_USE_NEAR < first + all ? begin + length + ON_USE_NEAR : first + all;
	begin = begin - first > ON_USE_NEAR ? begin - ON_USE_NEAR : first;
	return take_range(device, begin, end - begin, false);
}

struct take_all {
	uint64_t devices; /* bits */
	enum sw_status status;
};

static void take_all_of(struct device *device, void *argument)
{
	struct take_all *all = argument;
	struct heap *heap = all->devices >> device->ordinal & 1 ? atomic_load(&device->heap) : NULL;
	CUdeviceptr from = 0, base;
	uint64_t bytes;

	while (heap && all->status == SW_OK && heap_on_use_next(heap, from, &base, &bytes)) {
		all->status = take_range(device, base, bytes, true);
		from = base + bytes;
	}
}

/*
 * When the process ends, nothing takes memory any more. A call that uses what has none is refused: in the driver it
 * would be an illegal access, and what other late calls want to save would be lost with the context.
 */
static CUresult take_none(CUdeviceptr address, uint64_t bytes)
{
	const struct device *device = process_stage() == STAGE_ENDING ? device_of(address) : NULL;

	bytes = bytes ? bytes : 1;
	return device && heap_on_use_missing(atomic_load(&device->heap), false, &address, &bytes)
		   ? CUDA_ERROR_DEINITIALIZED
		   : CUDA_SUCCESS;
}

CUresult on_use_take(CUdeviceptr address, uint64_t bytes, bool whole)
{
	struct device *device = device_of(address);
	enum sw_status status = SW_OK;
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return take_none(address, bytes);
	if (device)
		status = take_named(device, address, bytes, whole);
	return enter_leave(&scope, status_result(status));
}

static CUresult on_use_take_all(uint64_t devices)
{
	struct take_all all = {.devices = devices, .status = SW_OK};
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return CUDA_SUCCESS;
	device_each(take_all_of, &all);
	return enter_leave(&scope, status_result(all.status));
}

const struct submission_takes on_use_takes = {on_use_take, on_use_take_all};

CUresult on_use_take_whole(CUdeviceptr address)
{
	struct device *device = device_of(address);

	return device ? status_result(take_named(device, address, 0, true)) : CUDA_SUCCESS;
}

CUresult on_use_take_range(CUdeviceptr address, uint64_t bytes)
{
	struct device *device = device_of(address);

	return device && bytes ? status_result(take_named(device, address, bytes, false)) : CUDA_SUCCESS;
}
