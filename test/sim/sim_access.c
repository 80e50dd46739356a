// SPDX-License-Identifier: Apache-2.0
/*
 * sim_access.c: who may touch what is mapped (sim_memory.c), and what setting that waits for.
 *
 * Access is set for whole mappings without holes. A mapping without access faults like no mapping.
 */
#include "sim_context.h"
#include "sim_memory.h"

/*
 * A device that cannot reach the memory's own is refused as the programming guide says of pools, which follow the same
 * rules ("may fail with cudaErrorInvalidDevice" without peer capability); cuda.h names INVALID_DEVICE among the answers
 * of cuMemSetAccess and says no more. Host memory is reached by every device.
 */
static CUresult judge_access(const CUmemAccessDesc *desc, const struct sim_mapping *mapping)
{
	int owner = mapping->handle->physical.device;

	if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
	    desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "no such access: %d", (int)desc->flags);
	switch (desc->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		if (!sim_is_device(desc->location.id))
			return sim_why(CUDA_ERROR_INVALID_VALUE, "no device %d", desc->location.id);
		if (owner >= 0 && !sim_can_reach(desc->location.id, owner))
			return sim_why(CUDA_ERROR_INVALID_DEVICE, "device %d cannot reach memory of device %d",
				       desc->location.id, owner);
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return sim_why(CUDA_ERROR_INVALID_VALUE, "no such kind of location: %d", (int)desc->location.type);
	}
}

/* Only a device whose own access changes feels it: frameworks add peers while others use the memory. */
static bool give_access(struct sim_mapping *mapping, int device, int access)
{
	int before = mapping->access[device];

	if (before == access)
		return true;
	if (before != SIM_NONE)
		sim_mapping_changes(mapping->range.start, mapping->range.bytes, 1u << device);
	if (!sim_alias_map(device, mapping->range.start, &mapping->handle->physical, access))
		return false;
	mapping->access[device] = (unsigned char)access;
	return true;
}

static bool is_on_host(uintptr_t address)
{
	const struct sim_mapping *mapping = sim_mapping_at(address);

	return mapping ? mapping->handle->physical.device < 0 : !sim_in_window(address);
}

/* Of the copies for which a change of a mapping waits, one that is under way; NULL: none is. */
static const struct sim_work *copy_waited_for(void)
{
	for (CUcontext context = sim.contexts; context; context = context->next) {
		for (CUstream stream = context->streams; stream; stream = stream->next) {
			const struct sim_work *work = stream->busy ? stream->head : NULL;
			bool from_host, to_host;

			if (!work || work->type != CU_GRAPH_NODE_TYPE_MEMCPY)
				continue;
			from_host = is_on_host(work->copy.srcDevice), to_host = is_on_host(work->copy.dstDevice);
			if ((sim.set.map_waits & 1 && from_host && !to_host) ||
			    (sim.set.map_waits & 2 && to_host && !from_host))
				return work;
		}
	}
	return NULL;
}

/*
 * NVIDIA's driver changes page tables with one of the copy engines. Which one, and so the copies for which that waits,
 * differs from machine to machine: H200, driver 580.159.04, alone: those to the host; two of them: those to the device;
 * for as long as the engine's time slice lasts, 1 ms (docs/facts.md, Page tables and copy engines). Here it is as long
 * as the copy does.
 */
static void wait_for_copy(void)
{
	const struct sim_work *work = sim.set.map_waits ? copy_waited_for() : NULL;

	while (work && copy_waited_for() == work)
		sim_wait();
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
	wait_for_copy();
	size_t first, n = sim_whole_mappings(address, bytes, &first);
	CUresult result = CUDA_SUCCESS;

	if (!n)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx + %zu is not a run of whole mappings", address, bytes);
	if (!desc || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n * count && !result; i++)
		result = judge_access(&desc[i % count], sim_mapping_nth(first + i / count));
	if (result)
		return result;
	for (size_t i = 0; i < n * count; i++) {
		struct sim_mapping *mapping = sim_mapping_nth(first + i / count);
		const CUmemAccessDesc *one = &desc[i % count];

		if (one->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
			mapping->host_access = one->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
			if (mapping->host_access)
				sim_break_rule("host access granted at %#lx", (unsigned long)mapping->range.start);
		} else if (!give_access(mapping, one->location.id, (int)one->flags)) {
			return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "mmap refused (vm.max_map_count?)");
		}
	}
	return CUDA_SUCCESS;
}

static CUresult get_access(unsigned long long *ret_flags, const CUmemLocation *location, CUdeviceptr address)
{
	struct sim_mapping *mapping = sim_mapping_at(address);

	if (!ret_flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	if (!mapping) {
		*ret_flags = 0;
		return sim_why(CUDA_ERROR_INVALID_VALUE, "nothing is mapped at %#llx", address);
	}
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
		if (!sim_is_device(location->id))
			return CUDA_ERROR_INVALID_DEVICE;
		*ret_flags = mapping->access[location->id];
	} else {
		*ret_flags = mapping->host_access ? SIM_READWRITE : SIM_NONE;
	}
	return CUDA_SUCCESS;
}

bool sim_accessible(uintptr_t address, size_t bytes, CUcontext context, bool write)
{
	uintptr_t end = address + bytes;
	int wanted = write ? SIM_READWRITE : SIM_READ;

	while (address < end) {
		struct sim_mapping *mapping = sim_mapping_at(address);

		if (!mapping)
			break;
		if (mapping->access[context->device] < wanted)
			return false;
		address = mapping->range.start + mapping->range.bytes;
	}
	if (address >= end)
		return true;
	struct sim_block *block = sim_block_at(address);
	/* The driver knows a small block only by the 2 MiB it lies in, but a strict model wants the block itself. */
	return block && end <= block->range.start + block->range.bytes && sim_block_access(block, context) >= wanted;
}

SPELL_FREE(cuMemSetAccess, (CUdeviceptr address, size_t size, const CUmemAccessDesc *desc, size_t count),
	   set_access(address, size, desc, count))
SPELL_FREE(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address),
	   get_access(flags, location, address))
