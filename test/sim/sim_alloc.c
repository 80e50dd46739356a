// SPDX-License-Identifier: Apache-2.0
/*
 * sim_alloc.c: cuMemAlloc and kin, managed memory, and host memory.
 *
 * Every block the program can name is in one table. A device block above 1 MiB has addresses and physical memory of its
 * own, in units of 2 MiB; smaller ones share 2 MiB slabs in units of 512 bytes, as the driver does: after the end of a
 * small block lies another block, not a fault. Addresses are handed out lowest first, so a freed address comes back
 * soon, which is what shows a ledger that did not forget.
 *
 * Managed memory is made and modelled by sim_managed.c.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_managed.h"
#include "sim_memory.h"

#define UNIT       512u
#define SLAB_UNITS (SIM_GRANULE / UNIT)
#define SLAB_LIMIT ((size_t)1 << 20)

/* Addresses and the physical memory behind them. `views`: what each device sees, SIM_NONE ... */
struct sim_backing {
	struct sim_range *addresses;
	struct sim_physical physical;
	unsigned char views[SIM_DEVICES_MAX];
};
/* Of one context and one kind: what other devices see of it is a matter of whole slabs. */
struct sim_slab {
	struct sim_slab *next;
	struct sim_backing backing;
	CUcontext context;
	enum sim_kind kind;
	size_t used_units;
	bool used[SLAB_UNITS];
};

static struct sim_ranges blocks;
static struct sim_slab *slabs;

unsigned long long sim_next_id(void)
{
	static unsigned long long last;

	return ++last;
}

struct sim_block *sim_block_at(uintptr_t address)
{
	return (struct sim_block *)sim_range_at(&blocks, address);
}

/* ---- device memory ---- */

static CUresult map_new(struct sim_backing *ret_backing, size_t bytes, int device)
{
	CUresult result = sim_physical_take(&ret_backing->physical, bytes, device, false);

	if (result)
		return result;
	ret_backing->addresses = sim_addresses_take(bytes, SIM_GRANULE, 0);
	if (ret_backing->addresses &&
	    sim_alias_map(device, ret_backing->addresses->start, &ret_backing->physical, SIM_READWRITE)) {
		ret_backing->views[device] = SIM_READWRITE;
		return CUDA_SUCCESS;
	}
	if (ret_backing->addresses)
		sim_addresses_give(ret_backing->addresses);
	sim_physical_give(&ret_backing->physical);
	return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "no addresses or mappings left");
}

static void unmap_old(struct sim_backing *backing)
{
	sim_alias_unmap(backing->addresses->start, &backing->physical);
	sim_addresses_give(backing->addresses);
	sim_physical_give(&backing->physical);
}

/* First fit; NULL when no slab of this context and kind has the run of units. */
static struct sim_slab *slab_find(const struct sim_block *block, size_t units, size_t *ret_first)
{
	for (struct sim_slab *slab = slabs; slab; slab = slab->next) {
		size_t run = 0;

		if (slab->context != block->context || slab->kind != block->kind ||
		    slab->backing.physical.device != block->device || slab->used_units + units > SLAB_UNITS)
			continue;
		for (size_t i = 0; i < SLAB_UNITS; i++) {
			run = slab->used[i] ? 0 : run + 1;
			if (run < units)
				continue;
			*ret_first = i + 1 - units;
			return slab;
		}
	}
	return NULL;
}

static CUresult slab_take(struct sim_block *block, size_t bytes)
{
	size_t units = (bytes + UNIT - 1) / UNIT, first = 0;
	struct sim_slab *slab = slab_find(block, units, &first);
	CUresult result;

	if (!slab) {
		slab = calloc(1, sizeof(*slab));
		result = map_new(&slab->backing, SIM_GRANULE, block->device);
		if (result) {
			free(slab);
			return result;
		}
		slab->context = block->context;
		slab->kind = block->kind;
		slab->next = slabs;
		slabs = slab;
	}
	memset(&slab->used[first], true, units);
	slab->used_units += units;
	block->slab = slab;
	block->range = (struct sim_range){slab->backing.addresses->start + first * UNIT, bytes};
	return CUDA_SUCCESS;
}

static void slab_give(struct sim_block *block)
{
	struct sim_slab *slab = block->slab, **link = &slabs;
	size_t units = (block->range.bytes + UNIT - 1) / UNIT;

	memset(&slab->used[(block->range.start - slab->backing.addresses->start) / UNIT], false, units);
	slab->used_units -= units;
	if (slab->used_units)
		return;
	while (*link != slab)
		link = &(*link)->next;
	*link = slab->next;
	unmap_old(&slab->backing);
	free(slab);
}

static CUresult large_take(struct sim_block *block, size_t bytes)
{
	struct sim_backing *backing = calloc(1, sizeof(*backing));
	CUresult result = map_new(backing, (bytes + SIM_GRANULE - 1) & ~(SIM_GRANULE - 1), block->device);

	if (result) {
		free(backing);
		return result;
	}
	block->backing = backing;
	block->range = (struct sim_range){backing->addresses->start, bytes};
	return CUDA_SUCCESS;
}

/* ---- what other devices see of it ---- */

int sim_block_access(const struct sim_block *block, CUcontext context)
{
	switch (block->kind) {
	case SIM_BLOCK_DEVICE:
		return sim_is_peer(context, block->context) ? SIM_READWRITE : SIM_NONE;
	case SIM_BLOCK_ASYNC:
		if (context->device == block->device)
			return SIM_READWRITE;
		return block->pool ? block->pool->access[context->device] : SIM_NONE;
	default:
		return SIM_READWRITE;
	}
}

static void see(struct sim_backing *backing, int device, int access)
{
	if (device == backing->physical.device || backing->views[device] == access)
		return;
	if (backing->views[device] > access)
		sim_mapping_changes(backing->addresses->start, backing->addresses->bytes, 1u << device);
	if (sim_alias_map(device, backing->addresses->start, &backing->physical, access))
		backing->views[device] = (unsigned char)access;
}

static void see_as_peers(struct sim_backing *backing, CUcontext owner)
{
	unsigned peers = sim_peers_of(owner);

	for (int device = 0; device < sim.set.devices; device++)
		see(backing, device, peers >> device & 1 ? SIM_READWRITE : SIM_NONE);
}

/* A slab of pools' memory is seen as the most open of its pools; sim_block_access() judges each block. */
static void see_pool(struct sim_backing *backing, const struct sim_block *block)
{
	for (int device = 0; block->pool && device < sim.set.devices; device++)
		if (block->slab ? backing->views[device] < block->pool->access[device] : true)
			see(backing, device, block->pool->access[device]);
}

void sim_alloc_views(void)
{
	if (sim.set.devices == 1)
		return;
	for (struct sim_slab *slab = slabs; slab; slab = slab->next)
		if (slab->kind == SIM_BLOCK_DEVICE)
			see_as_peers(&slab->backing, slab->context);
	for (size_t i = 0; i < blocks.n; i++) {
		struct sim_block *block = (struct sim_block *)blocks.at[i];

		if (block->kind == SIM_BLOCK_DEVICE && block->backing)
			see_as_peers(block->backing, block->context);
		else if (block->kind == SIM_BLOCK_ASYNC)
			see_pool(block->backing ? block->backing : &block->slab->backing, block);
	}
}

/* ---- blocks ---- */

CUresult sim_block_make(struct sim_block **ret_block, size_t bytes, int device, enum sim_kind kind)
{
	struct sim_block *block = calloc(1, sizeof(*block));
	CUresult result;

	if (bytes > SIZE_MAX / 2) { /* rounding it up would wrap around */
		free(block);
		return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "more than the address space");
	}
	block->kind = kind;
	block->context = sim_memory_context();
	block->device = device;
	block->origin = sim_origin();
	block->id = sim_next_id();
	if (kind == SIM_BLOCK_MANAGED) {
		result = sim_managed_make(block, bytes);
	} else if (bytes <= SLAB_LIMIT) {
		result = slab_take(block, bytes);
	} else {
		result = large_take(block, bytes);
	}
	if (result) {
		free(block);
		return result;
	}
	sim_range_add(&blocks, &block->range);
	if (kind == SIM_BLOCK_DEVICE && sim.set.devices > 1)
		see_as_peers(block->backing ? block->backing : &block->slab->backing, block->context);
	*ret_block = block;
	return CUDA_SUCCESS;
}

void sim_block_drop(struct sim_block *block)
{
	sim_range_remove(&blocks, &block->range);
	if (block->graph)
		block->graph->block = NULL;
	switch (block->kind) {
	case SIM_BLOCK_DEVICE:
	case SIM_BLOCK_ASYNC:
		if (block->slab)
			slab_give(block);
		else
			unmap_old(block->backing);
		free(block->backing);
		break;
	case SIM_BLOCK_MANAGED:
		sim_managed_drop(block);
		break;
	case SIM_BLOCK_HOST:
		sim.host_used -= block->range.bytes;
		free((void *)block->range.start);
		break;
	case SIM_BLOCK_REGISTERED:
		break;
	}
	if (block->pool)
		sim_pool_block_gone(block);
	free(block);
}

static CUresult alloc(CUdeviceptr *ret_address, size_t bytes)
{
	struct sim_block *block;
	CUresult result = sim_unsafe();

	if (result)
		return result;
	if (!ret_address || !bytes)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "0 bytes, or nowhere to put the address");
	result = sim_block_make(&block, bytes, sim_context()->device, SIM_BLOCK_DEVICE);
	if (!result)
		*ret_address = block->range.start;
	return result;
}

static CUresult alloc_pitch(CUdeviceptr *ret_address, size_t *ret_pitch, size_t width, size_t height,
			    unsigned element_bytes)
{
	size_t pitch = (width + 511) & ~(size_t)511;

	if (!ret_pitch || !width || !height || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = alloc(ret_address, pitch * height);
	if (!result)
		*ret_pitch = pitch;
	return result;
}

static CUresult alloc_managed(CUdeviceptr *ret_address, size_t bytes, unsigned flags)
{
	struct sim_block *block;
	CUresult result = sim_unsafe();

	if (result)
		return result;
	if (!ret_address || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_block_make(&block, bytes, sim_context()->device, SIM_BLOCK_MANAGED);
	if (!result)
		*ret_address = block->range.start;
	return result;
}

/*
 * Returns when everything submitted to the block's context before is done, as cuMemFree does (docs/facts.md, What waits
 * for the GPU).
 */
static CUresult free_block(CUdeviceptr address)
{
	if (!address)
		return CUDA_SUCCESS;
	CUresult result = sim_unsafe();
	if (result)
		return result;
	struct sim_block *block = sim_block_at(address);
	if (!block || block->freeing || block->range.start != address || block->kind == SIM_BLOCK_HOST ||
	    block->kind == SIM_BLOCK_REGISTERED)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx is not the start of a live block", address);
	if (block->graph) {
		result = sim_wait_context(block->context);
		if (!result)
			sim_graph_memory_free(block->graph);
		return result;
	}
	block->freeing = true;
	result = sim_wait_context(block->context);
	if (result) {
		block->freeing = false;
		return result;
	}
	sim_block_drop(block);
	return CUDA_SUCCESS;
}

/*
 * The 32-bit spellings of CUDA 3.1 cannot hold the model's addresses: they refuse, as the driver does for large ones.
 */
static CUresult too_old(void)
{
	return sim_why(CUDA_ERROR_INVALID_VALUE, "a 32-bit spelling cannot name memory of the model");
}

SPELL(cuMemAlloc, (CUdeviceptr_v1 * address, unsigned bytes), ((void)address, (void)bytes, too_old()))
SPELL(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), alloc(address, bytes))
SPELL(cuMemAllocPitch_v2, (CUdeviceptr * address, size_t *pitch, size_t width, size_t height, unsigned element_bytes),
      alloc_pitch(address, pitch, width, height, element_bytes))
SPELL(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned flags), alloc_managed(address, bytes, flags))
SPELL(cuMemFree, (CUdeviceptr_v1 address), ((void)address, too_old()))
SPELL(cuMemFree_v2, (CUdeviceptr address), free_block(address))

/* ---- host memory ---- */

static struct sim_block *host_block(void *address)
{
	struct sim_block *block = sim_block_at((uintptr_t)address);

	return block && (block->kind == SIM_BLOCK_HOST || block->kind == SIM_BLOCK_REGISTERED) ? block : NULL;
}

static struct sim_block *host_block_new(void *address, size_t bytes, unsigned flags, enum sim_kind kind)
{
	struct sim_block *block = calloc(1, sizeof(*block));

	block->range = (struct sim_range){(uintptr_t)address, bytes};
	block->kind = kind;
	block->context = sim_memory_context();
	block->device = block->context->device;
	block->flags = flags;
	block->origin = sim_origin();
	block->id = sim_next_id();
	sim_range_add(&blocks, &block->range);
	return block;
}

static CUresult host_alloc(void **ret_address, size_t bytes, unsigned flags)
{
	CUresult result = sim_unsafe();
	void *at;

	if (result)
		return result;
	if (!ret_address || !bytes || (flags & ~7u))
		return CUDA_ERROR_INVALID_VALUE;
	if (sim.host_used > sim.set.host_memory || bytes > sim.set.host_memory - sim.host_used)
		return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "SIM_HOST_MEMORY is used up");
	if (posix_memalign(&at, 4096, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim.host_used += bytes;
	host_block_new(at, bytes, flags, SIM_BLOCK_HOST);
	*ret_address = at;
	return CUDA_SUCCESS;
}

static CUresult host_free(void *address)
{
	struct sim_block *block = host_block(address);
	CUresult result = sim_unsafe();

	if (result)
		return result;
	if (!block || block->kind != SIM_BLOCK_HOST || block->freeing || (void *)block->range.start != address)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%p is not pinned memory of ours", address);
	block->freeing = true;
	result = sim_wait_context(block->context);
	sim_block_drop(block);
	return result;
}

static CUresult host_register(void *address, size_t bytes, unsigned flags)
{
	CUresult result = sim_unsafe();

	if (result)
		return result;
	if (!address || !bytes || (flags & ~15u))
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_in_window((uintptr_t)address))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%p is device memory", address);
	if (!sim_range_free(&blocks, (uintptr_t)address, bytes))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	host_block_new(address, bytes, flags, SIM_BLOCK_REGISTERED);
	return CUDA_SUCCESS;
}

static CUresult host_unregister(void *address)
{
	struct sim_block *block = host_block(address);
	CUresult result = sim_unsafe();

	if (result)
		return result;
	if (!block || block->kind != SIM_BLOCK_REGISTERED || (void *)block->range.start != address)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	result = sim_wait_context(block->context);
	sim_block_drop(block);
	return result;
}

static CUresult host_device_pointer(CUdeviceptr *ret_address, void *address)
{
	struct sim_block *block = host_block(address);

	if (!ret_address || !block)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_address = (uintptr_t)address;
	if (block->kind == SIM_BLOCK_REGISTERED && !sim.set.same_pointer)
		*ret_address ^= (CUdeviceptr)1 << 46;
	return CUDA_SUCCESS;
}

static CUresult host_flags(unsigned *ret_flags, void *address)
{
	struct sim_block *block = host_block(address);

	if (!ret_flags || !block)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_flags = block->flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return CUDA_SUCCESS;
}

SPELL(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags), host_alloc(address, bytes, flags))
SPELL(cuMemAllocHost, (void **address, unsigned bytes), host_alloc(address, bytes, 0))
SPELL(cuMemAllocHost_v2, (void **address, size_t bytes), host_alloc(address, bytes, 0))
SPELL(cuMemFreeHost, (void *address), host_free(address))
SPELL_2(cuMemHostRegister, (void *address, size_t bytes, unsigned flags), host_register(address, bytes, flags))
SPELL(cuMemHostUnregister, (void *address), host_unregister(address))
SPELL(cuMemHostGetDevicePointer_v2, (CUdeviceptr * device_address, void *address, unsigned flags),
      ((void)flags, host_device_pointer(device_address, address)))
SPELL(cuMemHostGetFlags, (unsigned *flags, void *address), host_flags(flags, address))

/* ---- the end of a context, and controls ---- */

void sim_alloc_forget_context(CUcontext context)
{
	for (size_t i = blocks.n; i-- > 0;) {
		struct sim_block *block = (struct sim_block *)blocks.at[i];

		if (block->context == context && !block->pool)
			sim_block_drop(block);
	}
}

size_t sim_alloc_live(struct sim_live *live, FILE *out)
{
	for (size_t i = 0; i < blocks.n; i++) {
		struct sim_block *block = (struct sim_block *)blocks.at[i];

		live->allocations++;
		if (out)
			fprintf(out, "leak block %#lx %zu bytes, from call %lu %s\n", (unsigned long)block->range.start,
				block->range.bytes, block->origin.call, block->origin.name);
	}
	return blocks.n;
}
