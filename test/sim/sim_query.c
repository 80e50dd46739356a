// SPDX-License-Identifier: Apache-2.0
/*
 * sim_query.c: questions about memory and addresses. The answers for a cuMemAlloc block and their differences for
 * memory of cuMemMap are those of docs/facts.md, Pointer queries; test/sim/rules_memory_test.c asks a real driver the
 * same.
 */
#include "sim_context.h"
#include "sim_memory.h"

/* What an address belongs to: a block or a mapping, or neither. */
struct thing {
	struct sim_block *block;
	struct sim_mapping *mapping;
	struct sim_range *range;
};

static bool find(struct thing *ret_thing, CUdeviceptr address)
{
	struct sim_block *block = sim_block_at(address);
	struct sim_mapping *mapping = sim_mapping_at(address);

	if (block && block->freeing)
		block = NULL;
	*ret_thing = (struct thing){block, mapping, block ? &block->range : mapping ? &mapping->range : NULL};
	return ret_thing->range;
}

static CUresult memory_info(size_t *ret_free, size_t *ret_total)
{
	const struct sim_device *device = &sim.device[sim_context()->device];
	size_t used = device->used + device->managed;

	if (ret_free)
		*ret_free = sim.set.memory > used ? sim.set.memory - used : 0;
	if (ret_total)
		*ret_total = sim.set.memory;
	return CUDA_SUCCESS;
}

/* Has the context's device, or any where there is no context, access to it? */
static bool is_seen(const struct sim_mapping *mapping)
{
	return mapping->access[sim_context() ? sim_context()->device : 0] != SIM_NONE;
}

/* A mapping to which no access was set is nothing yet, and who asks is told 0 (driver 580 on an H100). */
static CUresult address_range(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr address)
{
	struct thing thing;

	bool known = find(&thing, address) && (thing.block || is_seen(thing.mapping));

	if (ret_base)
		*ret_base = known ? thing.range->start : 0;
	if (ret_bytes)
		*ret_bytes = known ? thing.range->bytes : 0;
	return known ? CUDA_SUCCESS : sim_why(CUDA_ERROR_NOT_FOUND, "%#llx is not memory", address);
}

/* The bytes of each answer. Flags are 32 bits wide (driver 580). */
static const unsigned char bytes_of[] = {
    [CU_POINTER_ATTRIBUTE_CONTEXT] = sizeof(CUcontext),
    [CU_POINTER_ATTRIBUTE_MEMORY_TYPE] = sizeof(int),
    [CU_POINTER_ATTRIBUTE_DEVICE_POINTER] = sizeof(CUdeviceptr),
    [CU_POINTER_ATTRIBUTE_HOST_POINTER] = sizeof(void *),
    [CU_POINTER_ATTRIBUTE_P2P_TOKENS] = sizeof(unsigned long long) + sizeof(unsigned),
    [CU_POINTER_ATTRIBUTE_SYNC_MEMOPS] = sizeof(unsigned),
    [CU_POINTER_ATTRIBUTE_BUFFER_ID] = sizeof(unsigned long long),
    [CU_POINTER_ATTRIBUTE_IS_MANAGED] = sizeof(unsigned),
    [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = sizeof(int),
    [CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE] = sizeof(unsigned),
    [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR] = sizeof(CUdeviceptr),
    [CU_POINTER_ATTRIBUTE_RANGE_SIZE] = sizeof(size_t),
    [CU_POINTER_ATTRIBUTE_MAPPED] = sizeof(unsigned),
    [CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES] = sizeof(unsigned long long),
    [CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] = sizeof(unsigned),
    [CU_POINTER_ATTRIBUTE_ACCESS_FLAGS] = sizeof(int),
    [CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE] = sizeof(CUmemoryPool),
    [CU_POINTER_ATTRIBUTE_MAPPING_SIZE] = sizeof(size_t),
    [CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR] = sizeof(CUdeviceptr),
    [CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID] = sizeof(unsigned long long),
    [CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE] = sizeof(unsigned),
};

static size_t attribute_bytes(CUpointer_attribute which)
{
	return (size_t)which < sizeof(bytes_of) ? bytes_of[which] : 0;
}

static bool is_host(const struct thing *thing)
{
	return thing->block && (thing->block->kind == SIM_BLOCK_HOST || thing->block->kind == SIM_BLOCK_REGISTERED);
}

/* What the context's device may do with it. */
static int access_of(const struct thing *thing, CUcontext context)
{
	return thing->mapping ? thing->mapping->access[context->device] : sim_block_access(thing->block, context);
}

/* Mappings of the driver are whole granules. */
static CUdeviceptr granule(CUdeviceptr address)
{
	return address & ~(CUdeviceptr)(SIM_GRANULE - 1);
}

/*
 * The value of an attribute of memory we know, in the low bytes of *ret_value; false: this memory has no such. What was
 * measured is driver 580 on an H200: asking for P2P tokens turns SYNC_MEMOPS on, a host chunk without host access has
 * no host pointer. On an H100: the range of a mapping is its reservation, its buffer is the mapping's own and the
 * memory block the handle's, so that aliases share it.
 */
static bool attribute_of(const struct thing *thing, CUpointer_attribute which, CUdeviceptr address, uint64_t *ret_value)
{
	struct sim_block *block = thing->block;
	const struct sim_mapping *mapping = thing->mapping;
	const struct sim_range *range = block ? thing->range : sim_reservation_of(mapping);
	bool device = block && (block->kind == SIM_BLOCK_DEVICE || block->kind == SIM_BLOCK_ASYNC);
	bool managed = block && block->kind == SIM_BLOCK_MANAGED;
	CUcontext context = sim_context();
	int place = block ? block->device : mapping->handle->physical.device;
	/* What cuMemAlloc made says so to all, whoever has access (rules_peer_test). */
	bool by_context = (mapping || (block && block->pool)) && context;
	uint64_t first = granule(thing->range->start);
	const uint64_t values[] = {
	    [CU_POINTER_ATTRIBUTE_CONTEXT] = block ? (uintptr_t)block->context : 0,
	    [CU_POINTER_ATTRIBUTE_MEMORY_TYPE] = is_host(thing) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
	    [CU_POINTER_ATTRIBUTE_DEVICE_POINTER] = address,
	    [CU_POINTER_ATTRIBUTE_HOST_POINTER] = address,
	    [CU_POINTER_ATTRIBUTE_SYNC_MEMOPS] = block && block->sync_memops,
	    [CU_POINTER_ATTRIBUTE_BUFFER_ID] = block ? block->id : mapping->id,
	    [CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID] = block ? block->id : mapping->handle->id,
	    [CU_POINTER_ATTRIBUTE_IS_MANAGED] = managed,
	    [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = (uint64_t)(block || place > 0 ? place : 0),
	    [CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE] = block && block->kind == SIM_BLOCK_DEVICE,
	    [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR] = range->start,
	    [CU_POINTER_ATTRIBUTE_RANGE_SIZE] = range->bytes,
	    [CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR] = first,
	    [CU_POINTER_ATTRIBUTE_MAPPING_SIZE] =
		granule(thing->range->start + thing->range->bytes + SIM_GRANULE - 1) - first,
	    [CU_POINTER_ATTRIBUTE_MAPPED] = 1,
	    [CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES] = mapping ? mapping->handle->prop.requestedHandleTypes : 0,
	    [CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] =
		mapping ? mapping->handle->prop.allocFlags.gpuDirectRDMACapable : device,
	    [CU_POINTER_ATTRIBUTE_ACCESS_FLAGS] = by_context ? (uint64_t)access_of(thing, context)
						  : mapping  ? mapping->access[0]
							     : SIM_READWRITE,
	    [CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE] = block ? (uintptr_t)block->pool : 0,
	    [CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE] = device,
	};

	if (which == CU_POINTER_ATTRIBUTE_P2P_TOKENS && block)
		block->sync_memops = 1;
	/* cuda.h: none "through which kernels running in the current context may access" it is an error. */
	bool has = which == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ? !context || access_of(thing, context) != SIM_NONE
		   : which == CU_POINTER_ATTRIBUTE_HOST_POINTER ? is_host(thing) || managed
								: true;
	*ret_value = has ? values[which] : 0;
	return has;
}

/* Up to 12 bytes, the rest of a wide answer (the tokens) reads 0. */
static void store(void *ret_data, CUpointer_attribute which, uint64_t value)
{
	uint64_t wide[2] = {value, 0};

	memcpy(ret_data, wide, attribute_bytes(which));
}

static CUresult get_attribute(void *ret_data, CUpointer_attribute which, CUdeviceptr address)
{
	struct thing thing;
	uint64_t value;

	if (!ret_data || !attribute_bytes(which))
		return CUDA_ERROR_INVALID_VALUE;
	if (!find(&thing, address))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx is not memory", address);
	bool has = attribute_of(&thing, which, address, &value);
	store(ret_data, which, value);
	return has ? CUDA_SUCCESS
		   : sim_why(CUDA_ERROR_INVALID_VALUE, "attribute %d does not exist for this memory", which);
}

/* No error for an address it does not know; what a real driver writes then (driver 580, measured). */
static void store_stranger(void *ret_data, CUpointer_attribute which, CUdeviceptr address)
{
	if (which == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || which == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
		return;
	store(ret_data, which,
	      which == CU_POINTER_ATTRIBUTE_HOST_POINTER     ? address
	      : which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)CU_DEVICE_INVALID
							     : 0);
}

static CUresult get_attributes(unsigned n, CUpointer_attribute *which, void **data, CUdeviceptr address)
{
	struct thing thing;
	bool known = find(&thing, address);
	uint64_t value;

	if (!n || !which || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n; i++)
		if (!attribute_bytes(which[i]) || !data[i])
			return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n; i++) {
		if (!known) {
			store_stranger(data[i], which[i], address);
			continue;
		}
		attribute_of(&thing, which[i], address, &value);
		store(data[i], which[i], value);
	}
	return CUDA_SUCCESS;
}

static CUresult set_attribute(const void *value, CUpointer_attribute which, CUdeviceptr address)
{
	struct thing thing;

	if (!value || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !find(&thing, address))
		return CUDA_ERROR_INVALID_VALUE;
	if (!thing.block || thing.block->kind == SIM_BLOCK_MANAGED)
		return sim_why(CUDA_ERROR_NOT_SUPPORTED, "SYNC_MEMOPS cannot be set on this memory");
	thing.block->sync_memops = *(const unsigned *)value;
	return CUDA_SUCCESS;
}

static CUresult ipc_handle(CUipcMemHandle *ret_handle, CUdeviceptr address)
{
	struct sim_block *block = sim_block_at(address);

	if (!ret_handle || !block || block->kind != SIM_BLOCK_DEVICE)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx is not cuMemAlloc memory", address);
	memset(ret_handle, 0, sizeof(*ret_handle));
	memcpy(ret_handle->reserved, &block->id, sizeof(block->id));
	return CUDA_SUCCESS;
}

SPELL(cuMemGetInfo_v2, (size_t * ret_free, size_t *ret_total), memory_info(ret_free, ret_total))
SPELL(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *bytes, CUdeviceptr address),
      address_range(base, bytes, address))
SPELL_FREE(cuPointerGetAttribute, (void *data, CUpointer_attribute which, CUdeviceptr address),
	   get_attribute(data, which, address))
SPELL_FREE(cuPointerGetAttributes, (unsigned n, CUpointer_attribute *which, void **data, CUdeviceptr address),
	   get_attributes(n, which, data, address))
SPELL_FREE(cuPointerSetAttribute, (const void *value, CUpointer_attribute which, CUdeviceptr address),
	   set_attribute(value, which, address))
SPELL(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address), ipc_handle(handle, address))
