// SPDX-License-Identifier: Apache-2.0
/*
 * vmm.c: the program's virtual memory calls, served by the heap. A handle of ours is a number that no driver gives:
 * its highest bit is set, which no address of a process has, and handles are addresses or small numbers in every
 * driver that was examined. The ledger has a row for it, with the block, and one for each of its mappings; a mapping
 * of heap memory has the block in its row, too.
 */
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/heap/block_unmapped.h"
#include "shim/heap/arena.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/process/process.h"
#include "shim/serve/segments.h"
#include "shim/serve/serve.h"
#include "shim/serve/types.h"

#include <string.h>

#define HANDLE_OURS (UINT64_C(1) << 63)

bool vmm_is_handle(CUmemGenericAllocationHandle handle)
{
	return handle & HANDLE_OURS;
}

static bool find_handle(CUmemGenericAllocationHandle handle, struct ledger_row *ret_row)
{
	return vmm_is_handle(handle) && ledger_get(LEDGER_HANDLE, handle, ret_row);
}

/* ---- address space ---- */

bool vmm_reserve(CUdeviceptr *ret_address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
	CUdeviceptr address;

	/* Larger alignments, odd sizes and invalid arguments are left to the driver. */
	if (!policy_vmm_moves(process_policy()) || !bytes || bytes % HEAP_UNIT || alignment > HEAP_UNIT ||
	    alignment & (alignment - 1) || flags)
		return false;
	struct device *device = device_current(NULL);
	struct heap *heap = device && device->vmm ? device_heap(device) : NULL;
	/* Natively a hint is followed if the range is free, and some programs count on that. */
	if (!heap || (hint && !heap_contains(heap, hint)) || !heap_reserve(heap, bytes, hint, &address))
		return false;
	if (!va_ranges_add(address, bytes, device->ordinal)) {
		heap_unreserve(heap, address, bytes);
		return false;
	}
	*ret_address = address;
	return true;
}

bool vmm_unreserve(CUdeviceptr address, size_t bytes, CUresult *ret)
{
	struct va_range space;

	if (!va_ranges_find(address, &space))
		return false;
	*ret = CUDA_ERROR_INVALID_VALUE;
	struct heap *heap = device_heap_there(space.device);
	if (space.start != address || space.bytes != bytes)
		return true;
	lock_take(&serve_state.vmm.lock);
	if (heap_is_vacant(heap, address, bytes) && va_ranges_take(address, bytes, &space)) {
		heap_unreserve(heap, address, bytes);
		*ret = CUDA_SUCCESS;
	}
	lock_drop(&serve_state.vmm.lock);
	return true;
}

/* ---- handles ---- */

/* Called when the last reference has gone. */
static void release_handle(struct ledger_row *row)
{
	if (row->handle.block)
		heap_end_unmapped(device_heap_there(row->device), row->handle.block);
	else
		REAL(cuMemRelease)(row->handle.drivers);
	row->home = NULL;
	account_drop(row);
}

/* The home of handles of ours. Only the last reference frees them (ledger_handle_unref). */
static const struct backend handle_home = {.release = release_handle};

/* What only the driver's own memory can be is left to it. */
static bool is_plain(const CUmemAllocationProp *prop, size_t bytes, unsigned long long flags)
{
	const unsigned file = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

	return !flags && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && bytes && bytes % HEAP_UNIT == 0 &&
	       !prop->allocFlags.compressionType && !prop->allocFlags.usage && !(prop->requestedHandleTypes & ~file);
}

/* The heap is made with a context; before that (NCCL calls cuMemCreate early) the driver makes the memory. */
static struct device *device_for(CUdevice ordinal)
{
	struct device *device = device_get(ordinal);

	if (!device || !device->vmm)
		return NULL;
	return atomic_load(&device->heap) || device_current(NULL) == device ? device : NULL;
}

static void note_handle(struct ledger_row *row, size_t bytes, const CUmemAllocationProp *prop,
			const struct account_claim *claim, const struct heap_grant *grant)
{
	row->key = HANDLE_OURS | (atomic_fetch_add(&serve_state.vmm.n_handles, 1) + 1);
	row->device = prop->location.id;
	row->bytes = bytes;
	row->handle.refs = 1;
	row->home = &handle_home;
	row->handle.block = grant->block;
	row->on_host_bytes = grant->bytes_away;
	row->rule = claim->rule;
	row->cap = claim->cap;
	row->handle.asked_types = prop->requestedHandleTypes;
	memcpy(&row->handle.asked_flags, &prop->allocFlags, sizeof(row->handle.asked_flags));
}

bool vmm_create(CUmemGenericAllocationHandle *ret_handle, size_t bytes, const CUmemAllocationProp *prop,
		unsigned long long flags, const struct account_claim *claim, CUresult *ret)
{
	struct heap_grant grant = {0};

	if (claim->spill != POLICY_VMM_MOVES || !is_plain(prop, bytes, flags))
		return false;
	struct device *device = device_for(prop->location.id);
	struct ledger_row *row = device ? ledger_row_new(LEDGER_HANDLE) : NULL;
	if (!row)
		return false;
	enum sw_status status = backend_heap_take(
	    device, bytes, CHUNK_MOVABLE, backend_heap_from(NULL), claim->limit,
	    prop->requestedHandleTypes && bytes <= HEAP_WHOLE_MOST ? heap_make_whole : heap_make_unmapped, &grant);
	if (status == SW_NOT_SUPPORTED) {
		ledger_row_free(row);
		return false;
	}
	*ret = status_result(status);
	if (status != SW_OK) {
		account_refused(status, device, bytes, claim->rule, claim->site);
		ledger_row_free(row);
		return true;
	}
	if (grant.bytes_away && process_spill_mode() == POLICY_SPILL_FAST)
		log_once(
		    "vmm.spill: move: in mode fast memory of the program's own cuMemCreate moves only where "
		    "PyTorch's allocator reports its tensors; what else there is stays where it was placed, on the "
		    "host where the device was full; spill.mode: exact moves all of it");
	note_handle(row, bytes, prop, claim, &grant);
	*ret_handle = row->key;
	account_commit(row, POLICY_API_VMM, claim->site);
	return true;
}

static CUmemAllocationProp asked_prop(const struct ledger_row *row)
{
	CUmemAllocationProp prop = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = (CUmemAllocationHandleType)row->handle.asked_types,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = row->device},
	};

	memcpy(&prop.allocFlags, &row->handle.asked_flags, sizeof(row->handle.asked_flags));
	return prop;
}

bool vmm_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *ret_prop, CUresult *ret)
{
	struct ledger_row row;

	if (!vmm_is_handle(handle))
		return false;
	*ret = ret_prop && find_handle(handle, &row) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (*ret == CUDA_SUCCESS)
		*ret_prop = asked_prop(&row);
	return true;
}

/*
 * Memory that is made known to others before it was ever mapped holds nothing yet: the driver makes it instead, as it
 * was asked for, in one piece, open to RDMA. Returns NOT_SUPPORTED if the memory has been mapped, else the driver's
 * error.
 */
static CUresult become_drivers(struct ledger_row *row)
{
	struct heap *heap = device_heap_there(row->device);
	CUmemAllocationProp prop = asked_prop(row);
	CUmemGenericAllocationHandle drivers;

	if (heap_was_placed(heap, row->handle.block))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult result = REAL(cuMemCreate)(&drivers, row->bytes, &prop, 0);
	if (result != CUDA_SUCCESS)
		return result;
	if (!ledger_handle_become(row->key, drivers)) {
		REAL(cuMemRelease)(drivers);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	heap_end_unmapped(heap, row->handle.block);
	row->handle.block = NULL;
	row->handle.drivers = drivers;
	account_drivers(row);
	return CUDA_SUCCESS;
}

/* Returns OUT_OF_MEMORY if the driver may have some when there is room. */
static CUresult expose_locked(CUmemGenericAllocationHandle *handle, unsigned type, bool may_have_room)
{
	struct ledger_row row;

	lock_assert_held(LOCK_VMM);
	if (!find_handle(*handle, &row) || type & ~row.handle.asked_types)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = row.handle.drivers ? CUDA_SUCCESS : become_drivers(&row);
	if (result == CUDA_SUCCESS)
		*handle = row.handle.drivers;
	if (result == CUDA_SUCCESS || (result == CUDA_ERROR_OUT_OF_MEMORY && may_have_room))
		return result;
	switch (heap_fix_unmapped(device_heap_there(row.device), row.handle.block, handle)) {
	case SW_OK:
		return CUDA_SUCCESS;
	case SW_BUSY:
		return CUDA_ERROR_NOT_READY;
	default:
		log_once(
		    "vmm.spill: move: memory of cuMemCreate is in several pieces, for it is longer than 128 MiB or was "
		    "not made to be exported; once it has been mapped it has no handle that others could be given");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult vmm_expose(CUmemGenericAllocationHandle *handle, unsigned type)
{
	CUmemGenericAllocationHandle ours = *handle;
	struct ledger_row row, *gone;

	if (!vmm_is_handle(ours))
		return CUDA_SUCCESS; /* the driver answers */
	if (!ledger_handle_ref(ours, true))
		return CUDA_ERROR_INVALID_VALUE;
	lock_take(&serve_state.vmm.lock);
	CUresult result = expose_locked(handle, type, true);
	lock_drop(&serve_state.vmm.lock);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && find_handle(ours, &row)) {
		/* Takes locks that come before VMM, and may wait. */
		segments_give_up(device_get(row.device));
		device_make_room(device_get(row.device));
		lock_take(&serve_state.vmm.lock);
		result = expose_locked(handle, type, false);
		lock_drop(&serve_state.vmm.lock);
	}
	ledger_handle_unref(ours, true, &gone);
	account_drop(gone);
	return result;
}

/* ---- mappings ---- */

bool vmm_find(CUdeviceptr address, struct ledger_row *ret_row)
{
	struct ledger_row row;
	CUdeviceptr base;

	if (!atomic_load_explicit(&va_ranges_any, memory_order_relaxed))
		return false;
	const struct device *device = device_of(address);
	if (!device || !heap_base_of(atomic_load(&device->heap), address, &base) ||
	    !ledger_get(LEDGER_MAPPING, base, &row) || !row.mapping.block || address - base >= row.bytes)
		return false;
	*ret_row = row;
	return true;
}

bool vmm_find_further(CUdeviceptr address, struct ledger_row *ret_row)
{
	return ledger_find(LEDGER_MAPPING, address, ret_row);
}

/* Returns the driver's errors (rules_memory_test): a part of a handle is not supported, whatever else it is. */
static CUresult vmm_judge(const struct ledger_row *handle, CUdeviceptr address, size_t bytes, size_t offset,
			  unsigned long long flags)
{
	if (flags || !bytes || address % HEAP_UNIT)
		return CUDA_ERROR_INVALID_VALUE;
	return bytes == handle->bytes && !offset ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* Mapped in a range of its own device's arena it may migrate, unless it is placed somewhere already. */
static CUresult map_ours(const struct ledger_row *handle, const struct va_range *space, CUdeviceptr address,
			 struct ledger_row *row, const void *asker)
{
	struct heap *heap = device_heap_there(handle->device);
	CUresult result = CUDA_ERROR_NOT_READY;

	if (handle->handle.drivers)
		return REAL(cuMemMap)(address, handle->bytes, 0, handle->handle.drivers, 0);
	if (space && space->device == handle->device)
		result = heap_place(heap, handle->handle.block, address, space->start, space->bytes);
	if (result == CUDA_SUCCESS) {
		row->mapping.block = handle->handle.block;
		lifetimes_allocated(heap_arena(heap)->lifetimes, address, handle->bytes, space->start, asker);
		heap_set_site(heap, address, handle->site);
	} else if (result == CUDA_ERROR_NOT_READY) {
		result = heap_map_again(heap, handle->handle.block, address);
	}
	return result;
}

/* Enters the mapping into the ledger. ours: the heap handle, NULL for the driver's. */
static void note_mapping(struct ledger_row *row, const struct ledger_row *ours, const struct va_range *space)
{
	if (ours) {
		row->device = ours->device;
		row->mapping.asked_types = ours->handle.asked_types;
		row->rule = ours->rule;
		/* If out of memory, only the driver's answers are wrong. */
		if (!row->mapping.block)
			ledger_span(row);
	}
	if (space && !row->mapping.block)
		va_ranges_count(row->key, 1);
	if (row->mapping.block)
		trace_made(row, POLICY_API_VMM, NULL);
	ledger_commit(row);
}

/* Asked of the heap and not of the driver, for which the address of a piece that is moving may be free. */
static bool is_free(const struct va_range *space, CUdeviceptr address, size_t bytes)
{
	return va_ranges_has(space, address, bytes) && heap_is_vacant(device_heap_there(space->device), address, bytes);
}

/* The caller must have taken a reference to the handle, for the mapping. Locking: the caller holds VMM. */
static CUresult map_handle(struct ledger_row *row, size_t offset, unsigned long long flags, const void *asker)
{
	struct va_range found, *space = va_ranges_find(row->key, &found) ? &found : NULL;
	CUmemGenericAllocationHandle handle = row->mapping.handle;
	struct ledger_row copy, *ours = vmm_is_handle(handle) ? &copy : NULL;
	CUresult result = CUDA_SUCCESS;

	if (ours)
		result = find_handle(handle, ours) ? vmm_judge(ours, row->key, row->bytes, offset, flags)
						   : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && (space ? !is_free(space, row->key, row->bytes) : device_of(row->key) != NULL))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = ours ? map_ours(ours, space, row->key, row, asker)
			      : REAL(cuMemMap)(row->key, row->bytes, offset, handle, flags);
	if (result == CUDA_SUCCESS)
		note_mapping(row, ours, space);
	return result;
}

/* Of the driver's own handles, only those that are mapped into a range of ours are handled here. */
bool vmm_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
	     unsigned long long flags, const void *asker, CUresult *ret)
{
	bool is_ours = vmm_is_handle(handle);
	struct ledger_row *gone;
	struct va_range space;

	if (!is_ours && !va_ranges_find(address, &space))
		return false;
	*ret = CUDA_ERROR_INVALID_VALUE;
	bool known = ledger_handle_ref(handle, true);
	if (is_ours && !known)
		return true;
	struct ledger_row *row = ledger_row_new(LEDGER_MAPPING);
	*ret = CUDA_ERROR_OUT_OF_MEMORY;
	if (row) {
		row->key = address;
		row->bytes = bytes;
		row->mapping.handle = handle;
		lock_take(&serve_state.vmm.lock);
		*ret = map_handle(row, offset, flags, asker);
		lock_drop(&serve_state.vmm.lock);
	}
	if (*ret == CUDA_SUCCESS)
		return true;
	ledger_row_free(row);
	if (known && ledger_handle_unref(handle, true, &gone))
		account_drop(gone);
	return true;
}

/* A thread may be unmapping what no row names any more: the driver's handle of that is the heap's alone. */
static CUresult retain_drivers(const struct va_range *space, CUdeviceptr address,
			       CUmemGenericAllocationHandle *ret_handle)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	lock_take(&serve_state.vmm.lock);
	if (is_free(space, address - address % HEAP_UNIT, HEAP_UNIT))
		result = REAL(cuMemRetainAllocationHandle)(ret_handle, (void *)(uintptr_t)address);
	lock_drop(&serve_state.vmm.lock);
	if (result == CUDA_SUCCESS)
		ledger_handle_ref(*ret_handle, false);
	return result;
}

bool vmm_retain(CUdeviceptr address, CUmemGenericAllocationHandle *ret_handle, CUresult *ret)
{
	struct va_range space;
	struct ledger_row row;

	if ((vmm_find(address, &row) || vmm_find_further(address, &row)) &&
	    ledger_handle_ref(row.mapping.handle, false)) {
		*ret_handle = row.mapping.handle;
		*ret = CUDA_SUCCESS;
		return true;
	}
	if (!va_ranges_find(address, &space))
		return false;
	*ret = retain_drivers(&space, address, ret_handle);
	return true;
}

/* Returns true if mappings cover exactly these bytes. The driver only changes whole mappings. */
static bool is_covered(CUdeviceptr address, size_t bytes)
{
	struct ledger_row row;
	size_t found = 0;

	while (found < bytes && ledger_get(LEDGER_MAPPING, address + found, &row))
		found += row.bytes;
	return found == bytes && bytes;
}

/* Takes the rows of the mappings that lie there one right behind the other. *ret_bytes: how long they are. */
static struct ledger_row *take_mappings(CUdeviceptr address, size_t bytes, size_t *ret_bytes)
{
	struct ledger_row *taken = NULL, *row;

	for (*ret_bytes = 0; *ret_bytes < bytes; *ret_bytes += row->bytes) {
		row = ledger_take(LEDGER_MAPPING, address + *ret_bytes);
		if (!row)
			break;
		row->next = taken;
		taken = row;
	}
	return taken;
}

static void end_mapping(struct ledger_row *row)
{
	struct ledger_row *handle;

	if (row->mapping.block)
		trace_freed(trace_freeing(row));
	else
		va_ranges_count(row->key, -1);
	ledger_handle_unref(row->mapping.handle, true, &handle);
	account_drop(handle);
	ledger_row_free(row);
}

static void end_mappings(struct ledger_row *rows, bool unmapped)
{
	for (struct ledger_row *next; rows; rows = next) {
		next = rows->next;
		if (unmapped)
			end_mapping(rows);
		else
			ledger_commit(rows);
	}
}

CUresult vmm_unmap(CUdeviceptr address, size_t bytes)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct va_range space;
	size_t taken;

	bool ours = va_ranges_find(address, &space);
	struct heap *heap = ours ? device_heap_there(space.device) : NULL;
	if (ours ? !is_covered(address, bytes) || !heap_contains(heap, address + bytes - 1)
		 : device_of(address) != NULL)
		return result;
	struct ledger_row *rows = take_mappings(address, bytes, &taken);
	if (!ours)
		result = REAL(cuMemUnmap)(address, bytes);
	else if (taken == bytes) /* else another thread was faster */
		result = heap_unplace(heap, address, bytes);
	end_mappings(rows, result == CUDA_SUCCESS);
	return result;
}

/* ---- access ---- */

/* The access granted: to the device itself, where the last entry counts, and whether any other has access. */
struct granted {
	bool own, own_all, others;
};

static struct granted granted_by(const struct va_range *space, const CUmemAccessDesc *desc, size_t n)
{
	struct granted granted = {0};

	for (size_t i = 0; i < n; i++) {
		if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && desc[i].location.id == space->device) {
			granted.own = true;
			granted.own_all = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		} else {
			granted.others |= desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
		}
	}
	return granted;
}

static void open_all(struct heap *heap, CUdeviceptr address, size_t bytes, bool open)
{
	struct ledger_row row;

	for (CUdeviceptr at = address; at - address < bytes; at += row.bytes) {
		if (!ledger_get(LEDGER_MAPPING, at, &row))
			return;
		if (row.mapping.block)
			heap_open(heap, at, open);
	}
}

bool vmm_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t n, CUresult *ret)
{
	struct va_range space;

	if (!va_ranges_find(address, &space))
		return false;
	struct heap *heap = device_heap_there(space.device);
	*ret = CUDA_ERROR_INVALID_VALUE;
	if (!desc || !n || !is_covered(address, bytes))
		return true;
	*ret = CUDA_ERROR_NOT_READY;
	if (!heap_pin_placed(heap, address, bytes))
		return true;
	*ret = REAL(cuMemSetAccess)(address, bytes, desc, n);
	struct granted granted = granted_by(&space, desc, n);
	if (*ret == CUDA_SUCCESS && granted.own)
		open_all(heap, address, bytes, granted.own_all);
	heap_pin_end(heap, address, bytes, *ret == CUDA_SUCCESS && granted.others ? PIN_STAYS : PIN_OFF);
	return true;
}

bool vmm_get_access(unsigned long long *ret_flags, const CUmemLocation *location, CUdeviceptr address, CUresult *ret)
{
	struct va_range space;

	if (!va_ranges_find(address, &space))
		return false;
	struct heap *heap = device_heap_there(space.device);
	*ret = CUDA_ERROR_NOT_READY;
	if (!heap_pin_placed(heap, address, 1))
		return true;
	*ret = REAL(cuMemGetAccess)(ret_flags, location, address);
	heap_pin_end(heap, address, 1, PIN_OFF);
	return true;
}

/* If access is closed, or another device asks, the memory is pinned while the driver is asked. */
CUresult vmm_access_of(const struct ledger_row *row, CUdeviceptr address, unsigned *ret_flags)
{
	struct heap *heap = device_heap_there(row->device);
	CUdevice device;

	if (!row->mapping.block)
		return REAL(cuPointerGetAttribute)(ret_flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address);
	*ret_flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	if (context_device(context_current(), &device) && device == row->device && heap_is_open(heap, address))
		return CUDA_SUCCESS;
	if (!heap_pin_placed(heap, address, 1))
		return CUDA_ERROR_NOT_READY;
	CUresult result = REAL(cuPointerGetAttribute)(ret_flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address);
	heap_pin_end(heap, address, 1, PIN_OFF);
	return result;
}
