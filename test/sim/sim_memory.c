// SPDX-License-Identifier: Apache-2.0
/*
 * sim_memory.c: the calls of virtual memory management: handles of physical memory, reservations of addresses, and
 * mappings of the one at the other.
 *
 * Rules, from docs/facts.md, Mapping: everything is in units of 2 MiB; a handle is mapped whole; mappings lie inside
 * one reservation and never over each other; unmapping covers whole mappings without holes; a handle lives until it is
 * released and no longer mapped, and until then its number can be mapped and asked about (driver 580 on an H100). Who
 * may touch what is mapped: sim_access.c.
 */
#include "sim_managed.h"
#include "sim_memory.h"

struct reservation {
	struct sim_range range;
	bool program; /* by cuMemAddressReserve; else the addresses of a cuMemAlloc block */
	struct sim_origin origin;
};

static struct sim_ranges reservations, mappings;
static struct sim_handle *handles;
static unsigned long long handle_ids = 0x51;

/* ---- addresses ---- */

struct sim_range *sim_addresses_take(size_t bytes, size_t alignment, uintptr_t hint)
{
	uintptr_t start = 0, end = (uintptr_t)sim.window + sim.half;
	struct reservation *reservation;

	if (alignment < SIM_GRANULE)
		alignment = SIM_GRANULE;
	if (bytes > sim.half)
		return NULL;
	if (hint && !(hint & (alignment - 1)) && sim_in_window(hint) && hint + bytes <= end &&
	    sim_range_free(&reservations, hint, bytes)) {
		start = hint;
	} else {
		start = ((uintptr_t)sim.window + alignment - 1) & ~(alignment - 1);
		for (size_t i = 0; i < reservations.n; i++) {
			struct sim_range *r = reservations.at[i];

			if (r->start >= start + bytes)
				break;
			if (r->start + r->bytes > start)
				start = (r->start + r->bytes + alignment - 1) & ~(alignment - 1);
		}
		if (start + bytes > end)
			return NULL;
	}
	reservation = calloc(1, sizeof(*reservation));
	reservation->range = (struct sim_range){start, bytes};
	reservation->origin = sim_origin();
	sim_range_add(&reservations, &reservation->range);
	return &reservation->range;
}

void sim_addresses_give(struct sim_range *range)
{
	sim_range_remove(&reservations, range);
	free(range);
}

/* ---- handles ---- */

struct sim_handle *sim_handle_of(CUmemGenericAllocationHandle id)
{
	struct sim_handle *handle = handles;

	while (handle && handle->id != id)
		handle = handle->next;
	return handle;
}

static void handle_drop(struct sim_handle *handle)
{
	struct sim_handle **link = &handles;

	if (handle->references || handle->mappings)
		return;
	while (*link != handle)
		link = &(*link)->next;
	*link = handle->next;
	sim_physical_give(&handle->physical);
	free(handle);
}

/* The device number, -1 for host memory, -2 with the reason when the properties are refused. */
static int place_of(const CUmemAllocationProp *prop, CUresult *ret_error)
{
	*ret_error = CUDA_ERROR_INVALID_VALUE;
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
		sim_why(CUDA_ERROR_INVALID_VALUE, "type is not PINNED");
		return -2;
	}
	/* Stricter than is known of real drivers. */
	if ((prop->allocFlags.gpuDirectRDMACapable && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) ||
	    (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
		sim_why(CUDA_ERROR_INVALID_VALUE, "RDMA is for device memory, handles are file descriptors");
		return -2;
	}
	switch (prop->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		if (sim_is_device(prop->location.id))
			return prop->location.id;
		*ret_error = sim_why(CUDA_ERROR_INVALID_DEVICE, "no device %d", prop->location.id);
		return -2;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		if (!sim.set.host_vmm) {
			*ret_error = sim_why(CUDA_ERROR_NOT_SUPPORTED, "SIM_HOST_VMM is off");
			return -2;
		}
		if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && prop->location.id != 0) {
			sim_why(CUDA_ERROR_INVALID_VALUE, "no NUMA node %d", prop->location.id);
			return -2;
		}
		return -1;
	default:
		sim_why(CUDA_ERROR_INVALID_VALUE, "location type %d is refused", prop->location.type);
		return -2;
	}
}

struct sim_handle *sim_handle_new(const CUmemAllocationProp *prop, const struct sim_physical *physical)
{
	struct sim_handle *handle = calloc(1, sizeof(*handle));

	handle->prop = *prop;
	handle->physical = *physical;
	handle->references = 1;
	handle->id = handle_ids;
	handle_ids += 0x10;
	handle->origin = sim_origin();
	handle->next = handles;
	handles = handle;
	return handle;
}

static CUresult create(CUmemGenericAllocationHandle *ret_handle, size_t bytes, const CUmemAllocationProp *prop,
		       unsigned long long flags)
{
	struct sim_physical physical;
	CUresult result;

	if (!sim.set.vmm)
		return sim_why(CUDA_ERROR_NOT_SUPPORTED, "SIM_VMM is off");
	if (!ret_handle || flags || !bytes || bytes % SIM_GRANULE)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "size %zu is not a multiple of 2 MiB, or flags", bytes);
	int device = place_of(prop, &result);
	if (device == -2)
		return result;
	if (device < 0 && sim.set.pin_us) {
		sim_unlock();
		usleep((useconds_t)(bytes / SIM_GRANULE * sim.set.pin_us));
		sim_lock();
	}
	result = sim_physical_take(&physical, bytes, device, prop->requestedHandleTypes);
	if (result)
		return result;
	struct sim_handle *handle = sim_handle_new(prop, &physical);
	*ret_handle = handle->id;
	return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle id)
{
	struct sim_handle *handle = sim_handle_of(id);

	if (!handle || !handle->references)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "no handle %#llx, or released already", id);
	handle->references--;
	handle_drop(handle);
	return CUDA_SUCCESS;
}

static CUresult retain(CUmemGenericAllocationHandle *ret_handle, void *address)
{
	struct sim_mapping *mapping = sim_mapping_at((uintptr_t)address);

	if (!ret_handle || !mapping)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%p is not mapped by cuMemMap", address);
	mapping->handle->references++;
	*ret_handle = mapping->handle->id;
	return CUDA_SUCCESS;
}

static CUresult properties(CUmemAllocationProp *ret_prop, CUmemGenericAllocationHandle id)
{
	struct sim_handle *handle = sim_handle_of(id);

	return handle ? SIM_ANSWER(ret_prop, handle->prop) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult granularity(size_t *ret_bytes, const CUmemAllocationProp *prop, unsigned option)
{
	CUresult result;

	if (!sim.set.vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	return place_of(prop, &result) == -2 ? result : SIM_ANSWER(ret_bytes, SIM_GRANULE);
}

/* ---- reservations ---- */

static CUresult reserve(CUdeviceptr *ret_address, size_t bytes, size_t alignment, CUdeviceptr hint,
			unsigned long long flags)
{
	if (!sim.set.vmm)
		return sim_why(CUDA_ERROR_NOT_SUPPORTED, "SIM_VMM is off");
	if (!ret_address || flags || !bytes || bytes % SIM_GRANULE || (alignment & (alignment - 1)))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "size %zu, alignment %zu", bytes, alignment);
	if (hint & ((alignment > SIM_GRANULE ? alignment : SIM_GRANULE) - 1))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "hint %#llx is not aligned as was asked for", hint);
	struct sim_range *range = sim_addresses_take(bytes, alignment, hint);
	/*
	 * The last 8th is for memory that the driver makes itself: no program reserves so much that a real one has
	 * none.
	 */
	if (range && range->start + range->bytes > (uintptr_t)sim.window + sim.half - sim.half / 8) {
		sim_addresses_give(range);
		range = NULL;
	}
	if (!range)
		return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "no %zu bytes of addresses left", bytes);
	((struct reservation *)range)->program = true;
	*ret_address = range->start;
	return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr address, size_t bytes)
{
	struct reservation *reservation = (struct reservation *)sim_range_at(&reservations, address);

	if (!reservation || !reservation->program || reservation->range.start != address ||
	    reservation->range.bytes != bytes)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx + %zu is not one reservation", address, bytes);
	if (!sim_range_free(&mappings, address, bytes))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "the reservation is still mapped");
	sim_addresses_give(&reservation->range);
	return CUDA_SUCCESS;
}

/* ---- mappings ---- */

struct sim_mapping *sim_mapping_at(uintptr_t address)
{
	return (struct sim_mapping *)sim_range_at(&mappings, address);
}

const struct sim_range *sim_reservation_of(const struct sim_mapping *mapping)
{
	return sim_range_at(&reservations, mapping->range.start);
}

struct sim_mapping *sim_mapping_nth(size_t index)
{
	return (struct sim_mapping *)mappings.at[index];
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle id,
		    unsigned long long flags)
{
	struct sim_handle *handle = sim_handle_of(id);
	struct reservation *reservation = (struct reservation *)sim_range_at(&reservations, address);
	struct sim_mapping *mapping;

	if (!handle || flags)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "no handle %#llx, or flags", id);
	if (!bytes || address % SIM_GRANULE)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx + %zu is not aligned to 2 MiB", address, bytes);
	if (offset || bytes != handle->physical.bytes)
		return sim_why(CUDA_ERROR_NOT_SUPPORTED, "only a whole handle can be mapped, and no more than that");
	if (!reservation || !reservation->program ||
	    address + bytes > reservation->range.start + reservation->range.bytes)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx + %zu is not inside a reservation", address, bytes);
	if (!sim_range_free(&mappings, address, bytes))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "something is mapped there already");
	mapping = calloc(1, sizeof(*mapping));
	mapping->range = (struct sim_range){address, bytes};
	mapping->handle = handle;
	mapping->origin = sim_origin();
	mapping->id = sim_next_id();
	handle->mappings++;
	sim_range_add(&mappings, &mapping->range);
	return CUDA_SUCCESS;
}

size_t sim_whole_mappings(uintptr_t address, size_t bytes, size_t *ret_first)
{
	size_t first = sim_range_index(&mappings, address), n = 0;
	uintptr_t at = address;

	while (first + n < mappings.n && mappings.at[first + n]->start == at && at < address + bytes)
		at += mappings.at[first + n++]->bytes;
	*ret_first = first;
	return bytes && at == address + bytes ? n : 0;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
	size_t first, n = sim_whole_mappings(address, bytes, &first);

	if (!n)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx + %zu is not a run of whole mappings", address, bytes);
	sim_mapping_changes(address, bytes, ~0u);
	while (n--) {
		struct sim_mapping *mapping = (struct sim_mapping *)mappings.at[first];
		struct sim_handle *handle = mapping->handle;

		sim_alias_unmap(mapping->range.start, &handle->physical);
		sim_range_remove(&mappings, &mapping->range);
		free(mapping);
		handle->mappings--;
		handle_drop(handle);
	}
	return CUDA_SUCCESS;
}

SPELL_FREE(cuMemCreate,
	   (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop,
	    unsigned long long flags),
	   create(handle, size, prop, flags))
SPELL_FREE(cuMemRelease, (CUmemGenericAllocationHandle handle), release(handle))
SPELL_FREE(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *address), retain(handle, address))
SPELL_FREE(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle),
	   properties(prop, handle))
SPELL_FREE(cuMemGetAllocationGranularity,
	   (size_t * bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
	   granularity(bytes, prop, option))
SPELL_FREE(cuMemAddressReserve,
	   (CUdeviceptr * address, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags),
	   reserve(address, size, alignment, hint, flags))
SPELL_FREE(cuMemAddressFree, (CUdeviceptr address, size_t size), address_free(address, size))
SPELL_FREE(cuMemMap,
	   (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
	    unsigned long long flags),
	   map(address, size, offset, handle, flags))
SPELL_FREE(cuMemUnmap, (CUdeviceptr address, size_t size), unmap(address, size))
/* ---- controls ---- */

size_t sim_memory_live(struct sim_live *live, FILE *out)
{
	size_t n = 0;

	for (struct sim_handle *handle = handles; handle; handle = handle->next, n++) {
		live->handles++;
		if (out)
			fprintf(out, "leak handle %zu bytes%s, from call %lu %s\n", handle->physical.bytes,
				handle->physical.device < 0 ? " host" : "", handle->origin.call, handle->origin.name);
	}
	for (size_t i = 0; i < mappings.n; i++, n++) {
		struct sim_mapping *mapping = (struct sim_mapping *)mappings.at[i];

		live->mappings++;
		if (out)
			fprintf(out, "leak mapping %#lx %zu bytes, from call %lu %s\n",
				(unsigned long)mapping->range.start, mapping->range.bytes, mapping->origin.call,
				mapping->origin.name);
	}
	for (size_t i = 0; i < reservations.n; i++) {
		struct reservation *reservation = (struct reservation *)reservations.at[i];

		if (!reservation->program)
			continue;
		n++;
		live->reservations++;
		if (out)
			fprintf(out, "leak reservation %#lx %zu bytes, from call %lu %s\n",
				(unsigned long)reservation->range.start, reservation->range.bytes,
				reservation->origin.call, reservation->origin.name);
	}
	return n;
}

/*
 * Through /proc would be slow and through the alias would fault: a second view of the memfd is mapped for the pages
 * that the model says are there, whatever access was set.
 */
SIM_EXPORT bool sim_peek(CUdeviceptr address, void *ret_bytes, size_t bytes)
{
	bool all = true;

	sim_lock();
	while (bytes && all) {
		struct sim_mapping *mapping = sim_mapping_at(address);
		struct sim_block *block = mapping ? NULL : sim_block_at(address);
		size_t part;

		if (mapping) {
			size_t offset = address - mapping->range.start;

			part = mapping->range.bytes - offset < bytes ? mapping->range.bytes - offset : bytes;
			all = sim_physical_read(&mapping->handle->physical, offset, ret_bytes, part);
		} else if (block) {
			part = block->range.start + block->range.bytes - address;
			part = part < bytes ? part : bytes;
			memcpy(ret_bytes, sim_in_window(address) ? sim_view(address, block->device) : (void *)address,
			       part);
		} else {
			all = false;
			break;
		}
		address += part;
		ret_bytes = (char *)ret_bytes + part;
		bytes -= part;
	}
	sim_unlock();
	return all;
}

SIM_EXPORT char sim_where(CUdeviceptr address)
{
	char where = 0;

	sim_lock();
	struct sim_mapping *mapping = sim_mapping_at(address);
	struct sim_block *block = mapping ? NULL : sim_block_at(address);
	if (mapping)
		where = mapping->handle->physical.device < 0 ? 'H' : 'D';
	else if (block)
		where = sim_in_window(address) ? 'D' : 'H';
	if (block && block->pages && block->pages[(address - block->range.start) / SIM_PAGE].on & ~SIM_ON_CPU)
		where = 'D';
	sim_unlock();
	return where;
}
