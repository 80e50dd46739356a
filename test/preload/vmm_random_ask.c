// SPDX-License-Identifier: Apache-2.0
/*
 * vmm_random_ask.c: what is asked of memory that is mapped once or twice, and what is mapped where it cannot be: the
 * answers are those of a driver that knows no more than what the program has done.
 */
#include "test/preload/vmm_random.h"

/* A slot that is mapped, of a segment of handles; NULL: none was found. */
static struct segment *any_slot(struct worker *worker, unsigned *ret_slot)
{
	struct segment *segment = &worker->segment[worker_below(worker, SEGMENTS - 1)];

	for (unsigned tries = 0; tries < SLOTS; tries++) {
		*ret_slot = worker_below(worker, SLOTS);
		if (segment->slot[*ret_slot])
			return segment;
	}
	return NULL;
}

/* Its handle by an address in it, with a reference that must be released. */
static CUmemGenericAllocationHandle handle_at(CUdeviceptr at)
{
	CUmemGenericAllocationHandle handle;

	GO(cuMemRetainAllocationHandle(&handle, (void *)at));
	return handle;
}

static bool is_for_others(CUmemGenericAllocationHandle handle)
{
	CUmemAllocationProp prop;

	GO(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
	if (prop.type != CU_MEM_ALLOCATION_TYPE_PINNED || prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    prop.location.id != 0)
		made_up_fail("a handle is of type %d, of location %d of type %d", prop.type, prop.location.id,
			     prop.location.type);
	return prop.requestedHandleTypes != 0;
}

static void ask(struct worker *worker, struct segment *segment, unsigned slot)
{
	CUdeviceptr start = segment->at + slot * segment->piece, at = start + worker_below(worker, segment->piece),
		    base;
	const struct memory *memory = segment->slot[slot];
	unsigned type = 0, ordinal = 77;
	size_t bytes;

	GO(cuMemGetAddressRange_v2(&base, &bytes, at));
	if (base != start || bytes != segment->piece)
		made_up_fail("worker %u: slot %u is at %#llx, %zu bytes, not %#llx, %zu", worker->id, slot, base, bytes,
			     start, segment->piece);
	GO(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
	GO(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
	if (type != CU_MEMORYTYPE_DEVICE || ordinal != 0)
		made_up_fail("worker %u: slot %u is of memory type %u, device %u", worker->id, slot, type, ordinal);
	CUmemGenericAllocationHandle handle = handle_at(at);
	if (is_for_others(handle) != memory->shown)
		made_up_fail("worker %u: slot %u has a handle of others", worker->id, slot);
	if (!memory->released && handle != memory->handle)
		made_up_fail("worker %u: slot %u has handle %#llx, not %#llx", worker->id, slot, handle,
			     memory->handle);
	handle_release(handle);
}

/* Its memory comes to a free slot of its segment, too, by the handle of whichever mapping was asked. */
static void map_once_more(struct worker *worker, struct segment *segment, unsigned slot)
{
	struct memory *memory = segment->slot[slot];
	unsigned to = worker_below(worker, SLOTS);

	if (segment->slot[to])
		return;
	if (memory->released) {
		memory->handle = handle_at(segment->at + slot * segment->piece);
		memory->released = false;
	}
	slot_map(segment, to, memory);
}

void ask_play(struct worker *worker)
{
	unsigned slot;
	struct segment *segment = any_slot(worker, &slot);

	if (!segment)
		return;
	if (worker_below(worker, 3))
		ask(worker, segment, slot);
	else
		map_once_more(worker, segment, slot);
}

/* ---- handles of the driver ---- */

/* No place for it: something lies there, or it is not the program's to map. Nothing there may change. */
static void must_refuse(struct worker *worker, CUdeviceptr at, const struct memory *memory, const char *where)
{
	CUresult result = cuMemMap(at, memory->bytes, 0, memory->handle, 0);

	if (result == CUDA_SUCCESS)
		made_up_fail("worker %u: %zu bytes could be mapped %s", worker->id, memory->bytes, where);
	if (result != CUDA_ERROR_INVALID_VALUE)
		made_up_fail("worker %u: mapping %s is error %d", worker->id, where, result);
}

/* Over handles and over the block, wherever they are just moving, and where a block was that others got to know. */
static void refused_everywhere(struct worker *worker, const struct memory *memory, const struct segment *segment)
{
	const struct segment *block = &worker->segment[SEGMENTS - 1];
	CUmemGenericAllocationHandle handle;
	CUdeviceptr freed;

	for (unsigned i = 0; i < SLOTS; i++)
		if (segment->slot[i])
			must_refuse(worker, segment->at + i * segment->piece, memory, "over another handle");
	for (CUdeviceptr at = block->at; block->slot[0] && at < block->at + block->piece; at += GRANULE)
		must_refuse(worker, at / GRANULE * GRANULE, memory, "over a block");
	GO(cuMemAlloc_v2(&freed, ONE_HANDLE));
	if (cuMemRetainAllocationHandle(&handle, (void *)freed) == CUDA_SUCCESS)
		handle_release(handle);
	GO(cuMemFree_v2(freed));
	must_refuse(worker, freed / GRANULE * GRANULE, memory, "where a block was");
}

/* Such memory does not move: there is little of it. */
static bool has_enough(const struct worker *worker)
{
	unsigned n = 0;

	for (unsigned i = 0; i < (SEGMENTS - 1) * SLOTS; i++) {
		const struct memory *memory = worker->segment[i / SLOTS].slot[i % SLOTS];

		n += memory && memory->shown;
	}
	return n >= 3;
}

/* One that has left the process before it was ever mapped: the driver makes it, and maps it. */
void stray_play(struct worker *worker)
{
	struct segment *segment = &worker->segment[worker_below(worker, SEGMENTS - 1)];
	unsigned slot = worker_below(worker, SLOTS);
	struct memory *memory = memory_make(worker, segment->piece, true);
	int file;

	GO(cuMemExportToShareableHandle(&file, memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	GO(close(file) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS);
	refused_everywhere(worker, memory, segment);
	if (has_enough(worker)) {
		memory_release(worker, memory);
		return;
	}
	if (segment->slot[slot]) { /* where another one was just before */
		worker_settle(worker);
		segment_unmap(worker, segment, slot, 1);
	}
	slot_map(segment, slot, memory);
	slot_fill(worker, segment, slot);
}
