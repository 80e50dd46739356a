/*
 * Advice, prefetches and queries about them for memory that the driver does not take for managed: heap blocks, which
 * the library moves according to what launches name, and system memory on a device that cannot access pageable memory
 * directly. A program that gives such hints takes the memory for managed, so its arguments are checked as the driver
 * checks them. A valid hint is accepted and does nothing: launches say better what comes next, and a prefetch that
 * moved memory at once would have to wait for work in other streams. So a range never has advice.
 *
 * Hints about system memory that the device can access go to the driver; if it refuses advice, the advice is
 * accepted.
 */
#include "shim/process/enter.h"
#include "shim/entry/hint.h"
#include "shim/entry/hook.h"
#include "shim/serve/serve.h"

#include <string.h>

/*
 * Returns true if the library, not the driver, takes hints about this memory. *ret_result: an error if the bytes are
 * not within one live block.
 */
static bool is_for_us(CUdeviceptr address, size_t bytes, struct ledger_row *ret_row, CUresult *ret_result)
{
	bool heap = device_of(address) != NULL;

	if (!heap && !ledger_find(LEDGER_SYSTEM, address, ret_row))
		return false;
	if (heap && !serve_find(address, ret_row))
		*ret_result = CUDA_ERROR_INVALID_VALUE;
	else
		*ret_result = bytes && bytes <= ret_row->bytes - (address - ret_row->key) ? CUDA_SUCCESS
											  : CUDA_ERROR_INVALID_VALUE;
	return true;
}

/* Returns true if the driver may act on the hint, because the device can access pageable memory. */
static bool is_reached(const struct ledger_row *row)
{
	const struct device *device = row->kind == LEDGER_SYSTEM ? device_get(row->device) : NULL;

	return device && device->pageable;
}

static CUmemLocation location_of(CUdevice device)
{
	if (device == CU_DEVICE_CPU)
		return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

static CUresult check_location(const CUmemLocation *location)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return device_get(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

bool hint_is_ours(CUdeviceptr address, size_t bytes, const CUmemLocation *location, CUresult *ret_result)
{
	struct ledger_row row;

	if (!is_for_us(address, bytes, &row, ret_result))
		return false;
	if (*ret_result == CUDA_SUCCESS && location)
		*ret_result = check_location(location);
	/* The driver may know this memory: the call is submitted to it like any other. */
	return *ret_result != CUDA_SUCCESS || !is_reached(&row);
}

/* ---- prefetch ---- */

static bool entry_hint_prefetch(CUresult *ret_result, CUdeviceptr address, size_t bytes, CUmemLocation location,
				unsigned flags)
{
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return false;
	bool taken = hint_is_ours(address, bytes, &location, ret_result);
	if (taken && flags)
		*ret_result = CUDA_ERROR_INVALID_VALUE;
	enter_leave(&scope, CUDA_SUCCESS);
	return taken;
}

#define PREFETCH_OLD(name)                                                                                             \
	bool hint_##name(CUresult *ret_result, CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) \
	{                                                                                                              \
		(void)hStream;                                                                                         \
		return entry_hint_prefetch(ret_result, devPtr, count, location_of(dstDevice), 0);                      \
	}
#define PREFETCH_NEW(name)                                                                                             \
	bool hint_##name(CUresult *ret_result, CUdeviceptr devPtr, size_t count, CUmemLocation location,               \
			 unsigned int flags, CUstream hStream)                                                         \
	{                                                                                                              \
		(void)hStream;                                                                                         \
		return entry_hint_prefetch(ret_result, devPtr, count, location, flags);                                \
	}
PREFETCH_OLD(cuMemPrefetchAsync)
PREFETCH_OLD(cuMemPrefetchAsync_ptsz)
PREFETCH_NEW(cuMemPrefetchAsync_v2)
PREFETCH_NEW(cuMemPrefetchAsync_v2_ptsz)

/* ---- advice ---- */

static CUresult advise(const CUmemLocation *location, CUmem_advise advice)
{
	switch (advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		return CUDA_SUCCESS; /* the location is ignored */
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		return check_location(location);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

#define ADVISE(name, type, argument, place)                                                                            \
	HOOK_EXPORT CUresult CUDAAPI name(CUdeviceptr devPtr, size_t count, CUmem_advise advice, type argument)        \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
		struct ledger_row row;                                                                                 \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!enter_serve(&scope))                                                                       \
			return REAL(name)(devPtr, count, advice, argument);                                            \
		if (!is_for_us(devPtr, count, &row, &result))                                                          \
			return enter_leave(&scope, REAL(name)(devPtr, count, advice, argument));                       \
		CUmemLocation where = place;                                                                           \
		if (result == CUDA_SUCCESS)                                                                            \
			result = advise(&where, advice);                                                               \
		if (result == CUDA_SUCCESS && is_reached(&row))                                                        \
			REAL(name)(devPtr, count, advice, argument);                                                   \
		return enter_leave(&scope, result);                                                                    \
	}
ADVISE(cuMemAdvise, CUdevice, device, location_of(device))
ADVISE(cuMemAdvise_v2, CUmemLocation, location, location)

/* ---- attaching memory to a stream ---- */

/*
 * For system memory that stands in for managed memory, attaching has no effect: every stream may access it at any
 * time. As with managed memory, it must be for a whole block.
 */
static bool attach(CUresult *ret_result, CUdeviceptr address, size_t bytes, unsigned flags)
{
	struct enter_scope scope;
	struct ledger_row row;
	bool taken;

	if (!enter_serve(&scope))
		return false;
	taken = ledger_find(LEDGER_SYSTEM, address, &row) && row.system.asked_managed;
	enter_leave(&scope, CUDA_SUCCESS);
	if (taken)
		*ret_result = row.key == address && (!bytes || bytes == row.bytes) &&
				      (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
				       flags == CU_MEM_ATTACH_SINGLE)
				  ? CUDA_SUCCESS
				  : CUDA_ERROR_INVALID_VALUE;
	return taken;
}

#define ATTACH(name)                                                                                                   \
	HOOK_EXPORT CUresult CUDAAPI name(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		return attach(&result, dptr, length, flags) ? result : REAL(name)(hStream, dptr, length, flags);       \
	}
ATTACH(cuStreamAttachMemAsync)
ATTACH(cuStreamAttachMemAsync_ptsz)

/* ---- questions ---- */

/* Answers as the driver does for managed memory that never had advice or a prefetch. */
static CUresult answer(void *data, size_t bytes, CUmem_range_attribute attribute)
{
	const int invalid = CU_DEVICE_INVALID, none = CU_MEM_LOCATION_TYPE_INVALID, zero = 0;
	const int *value = &invalid;

	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		if (!bytes || bytes % sizeof(int))
			return CUDA_ERROR_INVALID_VALUE;
		for (size_t at = 0; at < bytes; at += sizeof(int))
			memcpy((char *)data + at, &invalid, sizeof(int));
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		value = &zero;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		value = &none;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (bytes != sizeof(int))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(data, value, sizeof(int));
	return CUDA_SUCCESS;
}

HOOK_EXPORT CUresult CUDAAPI cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
						    CUdeviceptr devPtr, size_t count)
{
	struct enter_scope scope;
	struct ledger_row row;
	CUresult result;

	stats_call(HOOK_cuMemRangeGetAttribute);
	if (!enter_serve(&scope))
		return REAL(cuMemRangeGetAttribute)(data, dataSize, attribute, devPtr, count);
	if (!is_for_us(devPtr, count, &row, &result))
		return enter_leave(&scope, REAL(cuMemRangeGetAttribute)(data, dataSize, attribute, devPtr, count));
	return enter_leave(&scope, result == CUDA_SUCCESS ? answer(data, dataSize, attribute) : result);
}

HOOK_EXPORT CUresult CUDAAPI cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
						     size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
	struct enter_scope scope;
	struct ledger_row row;
	CUresult result;

	stats_call(HOOK_cuMemRangeGetAttributes);
	if (!enter_serve(&scope))
		return REAL(cuMemRangeGetAttributes)(data, dataSizes, attributes, numAttributes, devPtr, count);
	if (!is_for_us(devPtr, count, &row, &result))
		return enter_leave(
		    &scope, REAL(cuMemRangeGetAttributes)(data, dataSizes, attributes, numAttributes, devPtr, count));
	if (!data || !dataSizes || !attributes || !numAttributes)
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numAttributes && result == CUDA_SUCCESS; i++)
		result = answer(data[i], dataSizes[i], attributes[i]);
	return enter_leave(&scope, result);
}
