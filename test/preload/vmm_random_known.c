// SPDX-License-Identifier: Apache-2.0
/*
 * vmm_random_known.c: memory of cuMemAlloc that others know: its first owner frees it while another mapping of it
 * stays, as in another process, and that one goes on writing. Whoever allocates next must not see it, also where the
 * driver refuses to take the memory back. Without the library nobody can know such memory: then there are only its
 * owners.
 */
#include "test/preload/vmm_random.h"
#include "test/preload/driver.h"

#define SLAB  GRANULE /* small allocations share one */
#define SMALL ((size_t)64 << 10)

static void fill(struct worker *worker, CUdeviceptr at, size_t bytes, uint32_t value)
{
	GO(cuMemsetD32Async(at, value, bytes / 4, worker->stream[0]));
}

static void check(struct worker *worker, CUdeviceptr at, size_t bytes, uint32_t value, const char *whose)
{
	GO(cuMemcpyDtoHAsync_v2(worker->other, at, bytes, worker->stream[0]));
	GO(cuStreamSynchronize(worker->stream[0]));
	for (size_t i = 0; i < bytes / 4; i++)
		if (worker->other[i] != value)
			made_up_fail("worker %u: word %zu of %zu bytes %s is %#x, not %#x", worker->id, i, bytes, whose,
				     worker->other[i], value);
}

/* The stranger's mapping: by the calls that a program makes, or by those of a driver that nobody stands before. */
struct door {
	__typeof__(&cuMemRetainAllocationHandle) retain;
	__typeof__(&cuMemAddressReserve) reserve;
	__typeof__(&cuMemMap) map;
	__typeof__(&cuMemSetAccess) access;
	__typeof__(&cuMemUnmap) unmap;
	__typeof__(&cuMemAddressFree) free;
};

static struct door door_of(bool past)
{
	struct door door = {
	    cuMemRetainAllocationHandle, cuMemAddressReserve, cuMemMap, cuMemSetAccess, cuMemUnmap, cuMemAddressFree};

	if (past) {
		door.retain = (__typeof__(door.retain))driver_native("cuMemRetainAllocationHandle");
		door.reserve = (__typeof__(door.reserve))driver_native("cuMemAddressReserve");
		door.map = (__typeof__(door.map))driver_native("cuMemMap");
		door.access = (__typeof__(door.access))driver_native("cuMemSetAccess");
		door.unmap = (__typeof__(door.unmap))driver_native("cuMemUnmap");
		door.free = (__typeof__(door.free))driver_native("cuMemAddressFree");
	}
	return door;
}

/* The physical memory at that address, at another one. 0: it has no handle of that length. */
static CUdeviceptr window_open(const struct door *door, CUdeviceptr at, size_t bytes)
{
	const CUmemAccessDesc desc = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr window;

	if (door->retain(&handle, (void *)at) != CUDA_SUCCESS)
		return 0;
	GO(door->reserve(&window, bytes, 0, 0, 0));
	CUresult result = door->map(window, bytes, 0, handle, 0);
	handle_release(handle);
	if (result != CUDA_SUCCESS) {
		GO(door->free(window, bytes));
		return 0;
	}
	GO(door->access(window, bytes, &desc, 1));
	return window;
}

static void window_close(const struct door *door, CUdeviceptr window, size_t bytes)
{
	GO(door->unmap(window, bytes));
	GO(door->free(window, bytes));
}

/* The first owner frees it; those who come next, and the stranger, each write what the others must not read. */
static void owners_follow(struct worker *worker, CUdeviceptr at, size_t bytes, CUdeviceptr window)
{
	enum { NEXT = 3 };
	CUdeviceptr next[NEXT];
	uint32_t value = worker_below(worker, 1u << 30);

	fill(worker, at, bytes, value);
	if (window)
		check(worker, window, bytes, value, "in another mapping");
	if (worker_below(worker, 2)) /* so that a program beside it is hit now and then, too */
		sim_fail("cuMemRelease", 1, CUDA_ERROR_UNKNOWN);
	GO(cuMemFree_v2(at));
	for (unsigned i = 0; i < NEXT; i++) {
		GO(cuMemAlloc_v2(&next[i], bytes));
		fill(worker, next[i], bytes, value + 1 + i);
		if (window)
			fill(worker, window, bytes, ~value);
	}
	for (unsigned i = 0; i < NEXT; i++) {
		check(worker, next[i], bytes, value + 1 + i, "of a next owner");
		GO(cuMemFree_v2(next[i]));
	}
	sim_fail("cuMemRelease", 0, CUDA_SUCCESS);
}

static void large(struct worker *worker)
{
	const struct door door = door_of(false);
	CUdeviceptr at, window;

	GO(cuMemAlloc_v2(&at, ONE_HANDLE));
	window = window_open(&door, at, ONE_HANDLE);
	owners_follow(worker, at, ONE_HANDLE, window);
	if (!window)
		return;
	GO(cuStreamSynchronize(worker->stream[0]));
	window_close(&door, window, ONE_HANDLE);
}

/* Of some that lie side by side one leaves the process; the others stay as they are. */
static void small(struct worker *worker)
{
	enum { ALL = 4 };
	const struct door door = door_of(true);
	uint32_t value = worker_below(worker, 1u << 30);
	unsigned which = worker_below(worker, ALL);
	CUdeviceptr at[ALL], window = 0;
	int file;

	for (unsigned i = 0; i < ALL; i++) {
		GO(cuMemAlloc_v2(&at[i], SMALL));
		fill(worker, at[i], SMALL, value + i);
	}
	CUdeviceptr slab = at[which] / SLAB * SLAB;
	if (cuMemGetHandleForAddressRange(&file, at[which], SMALL, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) ==
	    CUDA_SUCCESS) {
		GO(close(file) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS);
		window = window_open(&door, slab, SLAB);
	}
	owners_follow(worker, at[which], SMALL, window ? window + (at[which] - slab) : 0);
	for (unsigned i = 0; i < ALL; i++)
		if (i != which) {
			check(worker, at[i], SMALL, value + i, "beside it");
			GO(cuMemFree_v2(at[i]));
		}
	if (window)
		window_close(&door, window, SLAB);
}

void known_play(struct worker *worker)
{
	if (worker_below(worker, 2))
		large(worker);
	else
		small(worker);
}
