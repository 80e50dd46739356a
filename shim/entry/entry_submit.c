// SPDX-License-Identifier: Apache-2.0
/*
 * Exported bodies of the entry points that submit work, or are only counted and passed on, generated from the rows of
 * hooks.def.
 */
#include "shim/accounting/ledger.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/entry/entry.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/serve/make_room.h"
#include "shim/serve/managed.h"
#include "shim/serve/named.h"
#include "shim/serve/serve.h"
#include "shim/submit/arguments.h"
#include "shim/submit/submit_body.h"

#include <stdlib.h>
#include <string.h>

/*
 * Removes the permission to overlap from a launch, if the process must not overlap kernels. It is done here, just
 * before the driver, so that it covers launches that are tracked or not, in a capture or not.
 */
static inline CUresult launch_ex(pdl_launch_function launch, const CUlaunchConfig *config, CUfunction function,
				 void **params, void **extra)
{
	if (__builtin_expect(pdl_is_cleared(), 0))
		return pdl_launch(launch, config, function, params, extra);
	return launch(config, function, params, extra);
}

/* Of the functions that are passed on. Folded at compile time. */
static inline bool is_host_function(enum hook_id id)
{
	return id == HOOK_cuLaunchHostFunc || id == HOOK_cuLaunchHostFunc_ptsz || id == HOOK_cuLaunchHostFunc_v2 ||
	       id == HOOK_cuLaunchHostFunc_v2_ptsz || id == HOOK_cuStreamAddCallback ||
	       id == HOOK_cuStreamAddCallback_ptsz || id == HOOK_cuGraphAddHostNode;
}

/* clang-format off */
#define SUBMIT(name, params, args)    SUBMIT_BODY(REAL(name) args, name, params, args)
#define GLANCE submission_glance(f, kernelParams, extra)
#define SUBMIT_KERNEL(name, params, args) SUBMIT_BODY_UNLESS(GLANCE, REAL(name) args, name, params, args)
#define SUBMIT_EX(name, params, args)                                                                                  \
	SUBMIT_BODY_UNLESS(GLANCE, launch_ex(REAL(name), SUBMIT_UNPACK args), name, params, args)
#define HOOK_SUBMIT SUBMIT
#define HOOK_LAUNCH_KERNEL SUBMIT_KERNEL
#define HOOK_SUBMIT_SYNC SUBMIT
#define HOOK_LAUNCH_EX   SUBMIT_EX
/* admit.c generates these. */
#define HOOK_HINT(name, params, args)
#define HOOK_COPY(name, params, args)
#define HOOK_COPY_SYNC(name, params, args)
#include "shim/driver/hooks.def"

#define HOOK_SUBMIT(name, params, args)                                                                                \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		return track_##name args;                                                                              \
	}
/*
 * A submission pins the blocks that it names, so it must have ended before room is made. If it was not the driver that
 * had no memory, no room is made: what finds none in the heap has had the host's as well, and each further try would
 * count as another refusal.
 */
#define HOOK_LAUNCH(name, params, args)                                                                                \
	static __attribute__((noinline, cold)) CUresult again_##name params                                            \
	{                                                                                                              \
		CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                            \
		struct room room = {0};                                                                                \
                                                                                                                       \
		while (result == CUDA_ERROR_OUT_OF_MEMORY && !submission_was_refused() &&                              \
		       make_room_outside(&room, -1))                                                              \
			result = track_##name args;                                                                    \
		make_room_end(&room, result);                                                                          \
		return result;                                                                                         \
	}                                                                                                              \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		CUresult result = track_##name args;                                                                   \
		return __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) ? again_##name args : result;           \
	}
#define HOOK_HINT(name, params, args)                                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		if (!hint_##name(&result, SUBMIT_UNPACK args))                                                         \
			return submit_##name args;                                                                     \
		stats_call(HOOK_##name);                                                                               \
		return result;                                                                                         \
	}
/* A copy that is made in another way is counted, too, in addition to the call that replaces it. */
#define COPY(name, params, args)                                                                                       \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		if (!peer_is_any() || !copy_##name(&result, SUBMIT_UNPACK args))                                       \
			return submit_##name args;                                                                     \
		stats_call(HOOK_##name);                                                                               \
		if (__builtin_expect(result == CUDA_ERROR_ILLEGAL_ADDRESS, 0))                                         \
			submission_faulted();                                                                          \
		return result;                                                                                         \
	}
#define HOOK_COPY COPY
#define HOOK_COPY_SYNC COPY
#define HOOK_WAIT(name, params, args)                                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		CUresult result = REAL(name) args;                                                                     \
		if (__builtin_expect(result == CUDA_ERROR_ILLEGAL_ADDRESS, 0))                                         \
			submission_faulted();                                                                          \
		return result;                                                                                         \
	}
/* Calls that take some of the driver's device memory as a side effect: for code, streams, graphs, limits. */
#define HOOK_OOM_RETRY(name, params, args)                                                                             \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		RESULT_CALL(FIRST args, result, OOM_RETRY_CALL(result, -1, REAL(name) args));                          \
		return result;                                                                                         \
	}
#define HOOK_FORWARD(name, params, args)                                                                               \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		if (is_host_function(HOOK_##name))                                                                     \
			managed_host_function();                                                                       \
		CUresult result;                                                                                       \
		RESULT_CALL(FIRST args, result, result = REAL(name) args);                                             \
		return result;                                                                                         \
	}
#include "shim/driver/hooks.def"
/* clang-format on */

/* clang-format off */
#define HOOK_SUBMIT_SYNC(name, params, args)                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		CUresult result = track_##name args;                                                                   \
		if (__builtin_expect(ledger_n_sync_memops() != 0, 0))                                                  \
			return submit_finish_memop(result, submit_is_per_thread(#name));                               \
		return result;                                                                                         \
	}
#define HOOK_COPY_SYNC(name, params, args)
#include "shim/driver/hooks.def"
/* clang-format on */

/* ---- hints: prefetches and discards of memory that the driver does not take for managed ---- */

/*
 * Advice, prefetches and queries about them for memory that the driver does not take for managed: heap blocks, which
 * the library moves according to what launches name, and system memory on a device that cannot access pageable memory
 * directly. A program that gives such hints takes the memory for managed, so its arguments are checked as the driver
 * checks them. A valid hint is accepted and does nothing: launches say better what comes next, and moving at once would
 * wait for work in other streams. But managed memory on the heap keeps hints, and a prefetch to a GPU brings it.
 *
 * Hints about system memory that the device can access go to the driver; if it refuses advice, the advice is
 * accepted.
 *
 * Prefetches and discards in batches (CUDA 13), where the library takes hints about a part of the batch (entry.h). The
 * driver would refuse the whole batch for one heap block among managed ones, so it gets its part in a separate call,
 * by the function that the program called. A batch without heap memory is passed on unchanged. The whole batch is
 * checked before any of it is done. A batch has no order, so the order in which its parts are done does not matter.
 *
 * A prefetch of heap memory does what a single one does. A discard takes effect in stream order, as CUDA defines it: it
 * is a submission like any other, which gives the driver nothing; mover/spill.c describes the rest. An
 * earlier discard of the same block is then void. While a capture is open nothing is discarded: the graph would need
 * the contents until it is launched.
 *
 * Assumed, not measured: the driver refuses the legacy default stream, which cuda.h forbids, with INVALID_VALUE.
 */

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

/*
 * Returns false if a hint about these bytes is for the driver. Otherwise sets *ret_result: an error if the bytes are
 * not within one live block, or if memory cannot be at the location (NULL: none is given). The caller must be inside
 * enter_serve().
 */
static bool hint_is_ours(CUdeviceptr address, size_t bytes, const CUmemLocation *location, CUresult *ret_result)
{
	struct ledger_row row;

	if (!is_for_us(address, bytes, &row, ret_result))
		return false;
	if (*ret_result == CUDA_SUCCESS && location)
		*ret_result = check_location(location);
	/* The driver may know this memory: the call is submitted to it like any other. */
	return *ret_result != CUDA_SUCCESS || !is_reached(&row);
}

/* ---- managed memory on the heap: what the program says is kept, and answered ---- */

struct hint {
	CUmem_advise advice; /* 0: a prefetch */
	CUmemLocation location;
};

static void keep_hint(struct ledger_hints *hints, const void *argument)
{
	const struct hint *hint = argument;
	bool is_device = hint->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	uint64_t device = is_device ? UINT64_C(1) << hint->location.id : 0;

	switch ((int)hint->advice) {
	case 0:
		hints->prefetched = hint->location;
		break;
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		hints->read_mostly = hint->advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		hints->preferred = hint->location;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		hints->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
		hints->accessed_by |= device;
		hints->accessed_by_cpu |= !is_device;
		break;
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		hints->accessed_by &= ~device;
		hints->accessed_by_cpu &= is_device;
		break;
	}
}

/* A prefetch to a device is a first use. One to the CPU is kept and has no effect, as for all memory of the heap. */
static CUresult prefetch_managed(const struct ledger_row *row, CUdeviceptr address, size_t bytes,
				 const CUmemLocation *location, CUstream stream, bool per_thread)
{
	const struct hint hint = {.location = *location};

	if (row->kind != LEDGER_HEAP || !row->heap.managed)
		return CUDA_SUCCESS;
	ledger_hint(row->key, keep_hint, &hint);
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_SUCCESS;
	if (managed_is_cpus(device_get(row->device), address))
		managed_wait(stream, per_thread);
	return on_use_take_range(address, bytes);
}

/* ---- prefetch ---- */

static bool entry_hint_prefetch(CUresult *ret_result, CUdeviceptr address, size_t bytes, CUmemLocation location,
				unsigned flags, CUstream stream, bool per_thread)
{
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return false;
	struct ledger_row row;
	bool taken = hint_is_ours(address, bytes, &location, ret_result);
	if (taken && flags)
		*ret_result = CUDA_ERROR_INVALID_VALUE;
	if (taken && *ret_result == CUDA_SUCCESS && serve_find(address, &row))
		*ret_result = prefetch_managed(&row, address, bytes, &location, stream, per_thread);
	enter_leave(&scope, CUDA_SUCCESS);
	return taken;
}

#define PREFETCH_OLD(name)                                                                                             \
	bool hint_##name(CUresult *ret_result, CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) \
	{                                                                                                              \
		return entry_hint_prefetch(ret_result, devPtr, count, location_of(dstDevice), 0, hStream,              \
					   submit_is_per_thread(#name));                                               \
	}
#define PREFETCH_NEW(name)                                                                                             \
	bool hint_##name(CUresult *ret_result, CUdeviceptr devPtr, size_t count, CUmemLocation location,               \
			 unsigned int flags, CUstream hStream)                                                         \
	{                                                                                                              \
		return entry_hint_prefetch(ret_result, devPtr, count, location, flags, hStream,                        \
					   submit_is_per_thread(#name));                                               \
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
	static CUresult serve_##name(CUdeviceptr devPtr, size_t count, CUmem_advise advice, type argument)             \
	{                                                                                                              \
		struct ledger_row row;                                                                                 \
		CUresult result;                                                                                       \
                                                                                                                       \
		if (!is_for_us(devPtr, count, &row, &result))                                                          \
			return REAL(name)(devPtr, count, advice, argument);                                            \
		CUmemLocation where = place;                                                                           \
		if (result == CUDA_SUCCESS)                                                                            \
			result = advise(&where, advice);                                                               \
		if (result == CUDA_SUCCESS && is_reached(&row))                                                        \
			REAL(name)(devPtr, count, advice, argument);                                                   \
		if (result == CUDA_SUCCESS && row.kind == LEDGER_HEAP && row.heap.managed)                             \
			ledger_hint(row.key, keep_hint, &(struct hint){advice, where});                                \
		return result;                                                                                         \
	}
ADVISE(cuMemAdvise, CUdevice, device, location_of(device))
ADVISE(cuMemAdvise_v2, CUmemLocation, location, location)

/* ---- attaching memory to a stream ---- */

/*
 * For managed memory that is system memory, or on the heap, attaching has no effect: every stream may access it at any
 * time. As with managed memory, it must be for a whole block.
 */
static bool attach(CUresult *ret_result, CUdeviceptr address, size_t bytes, unsigned flags)
{
	struct enter_scope scope;
	struct ledger_row row;

	if (!enter_serve(&scope))
		return false;
	bool taken = (ledger_find(LEDGER_SYSTEM, address, &row) && row.system.asked_managed) ||
		     (serve_find(address, &row) && row.heap.managed);
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
	static CUresult serve_##name(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)            \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		return attach(&result, dptr, length, flags) ? result : REAL(name)(hStream, dptr, length, flags);       \
	}
ATTACH(cuStreamAttachMemAsync)
ATTACH(cuStreamAttachMemAsync_ptsz)

/* ---- questions ---- */

static int device_or_cpu(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_INVALID  ? CU_DEVICE_INVALID
	       : location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id
							       : CU_DEVICE_CPU;
}

/* Answers as the driver does for managed memory that had these hints, as a whole. */
static CUresult answer_of(const struct ledger_hints *hints, void *data, size_t bytes, CUmem_range_attribute attribute)
{
	int value;

	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		if (!bytes || bytes % sizeof(int))
			return CUDA_ERROR_INVALID_VALUE;
		for (int device = CU_DEVICE_CPU; device < DEVICE_MOST && bytes; device++) {
			if (device == CU_DEVICE_CPU ? !hints->accessed_by_cpu : !(hints->accessed_by >> device & 1))
				continue;
			memcpy(data, &device, sizeof(device));
			data = (char *)data + sizeof(device);
			bytes -= sizeof(device);
		}
		for (value = CU_DEVICE_INVALID; bytes; bytes -= sizeof(value)) {
			memcpy(data, &value, sizeof(value));
			data = (char *)data + sizeof(value);
		}
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		value = hints->read_mostly;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		value = (int)hints->preferred.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		value = (int)hints->prefetched.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		value = device_or_cpu(&hints->preferred);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		value = device_or_cpu(&hints->prefetched);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		value = hints->preferred.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : hints->preferred.id;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		value =
		    hints->prefetched.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : hints->prefetched.id;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (bytes != sizeof(int))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(data, &value, sizeof(value));
	return CUDA_SUCCESS;
}

static CUresult answer(const struct ledger_row *row, void *data, size_t bytes, CUmem_range_attribute attribute)
{
	static const struct ledger_hints none;

	return answer_of(row->kind == LEDGER_HEAP && row->heap.managed ? &row->heap.hints : &none, data, bytes,
			 attribute);
}

static CUresult serve_cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
					     CUdeviceptr devPtr, size_t count)
{
	struct ledger_row row;
	CUresult result;

	if (!is_for_us(devPtr, count, &row, &result))
		return REAL(cuMemRangeGetAttribute)(data, dataSize, attribute, devPtr, count);
	return result ?: answer(&row, data, dataSize, attribute);
}

static CUresult serve_cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
					      size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
	struct ledger_row row;
	CUresult result;

	if (!is_for_us(devPtr, count, &row, &result))
		return REAL(cuMemRangeGetAttributes)(data, dataSizes, attributes, numAttributes, devPtr, count);
	if (!data || !dataSizes || !attributes || !numAttributes)
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numAttributes && result == CUDA_SUCCESS; i++)
		result = answer(&row, data[i], dataSizes[i], attributes[i]);
	return result;
}

/* ---- prefetches and discards in batches ---- */

/* The arguments of a batch; the arrays are the program's. */
struct batch {
	CUdeviceptr *addresses;
	size_t *sizes, n;
	CUmemLocation *locations; /* with first and n_locations: only for a batch that prefetches */
	size_t *first, n_locations;
	unsigned long long flags;
	CUstream stream;
	bool prefetches, discards, per_thread;
};

/* The driver's part of a batch, in one allocation, which starts at locations. */
struct part {
	CUmemLocation *locations;
	CUdeviceptr *addresses;
	size_t *sizes, *first, n;
};

static bool locations_are_right(const struct batch *batch)
{
	if (!batch->locations || !batch->first || !batch->n_locations || batch->n_locations > batch->n ||
	    batch->first[0] != 0)
		return false;
	for (size_t i = 1; i < batch->n_locations; i++)
		if (batch->first[i] <= batch->first[i - 1] || batch->first[i] >= batch->n)
			return false;
	return true;
}

/* Returns the location of operation i. *at: index of the location of the operation before; 0 at first. */
static const CUmemLocation *batch_location(const struct batch *batch, size_t i, size_t *at)
{
	if (!batch->prefetches)
		return NULL;
	while (*at + 1 < batch->n_locations && batch->first[*at + 1] <= i)
		++*at;
	return &batch->locations[*at];
}

static size_t count_ours(const struct batch *batch)
{
	size_t n = 0;

	for (size_t i = 0; batch->addresses && batch->sizes && i < batch->n; i++) {
		CUresult result;

		n += hint_is_ours(batch->addresses[i], batch->sizes[i], NULL, &result);
	}
	return n;
}

/* Returns an error if an argument of the batch, or an operation on our memory, is wrong. */
static CUresult entry_batch_check(const struct batch *batch)
{
	size_t at = 0;

	if (batch->flags || batch->stream == CU_STREAM_LEGACY || (!batch->stream && !batch->per_thread) ||
	    (batch->prefetches && !locations_are_right(batch)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < batch->n; i++) {
		CUresult result;

		if (hint_is_ours(batch->addresses[i], batch->sizes[i], batch_location(batch, i, &at), &result) &&
		    result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

/*
 * Collects the operations that are the driver's, each with a separate location. Returns false if there is no memory.
 * The caller frees part->locations.
 */
static bool entry_batch_split(const struct batch *batch, size_t n, struct part *part)
{
	size_t at = 0;

	part->locations = malloc(n * (sizeof(*part->locations) + sizeof(*part->addresses) + 2 * sizeof(*part->sizes)));
	if (!part->locations)
		return false;
	part->addresses = (CUdeviceptr *)(part->locations + n);
	part->sizes = (size_t *)(part->addresses + n);
	part->first = part->sizes + n;
	part->n = 0;
	for (size_t i = 0; i < batch->n && part->n < n; i++) {
		const CUmemLocation *location = batch_location(batch, i, &at);
		CUresult result;

		if (hint_is_ours(batch->addresses[i], batch->sizes[i], NULL, &result))
			continue;
		part->addresses[part->n] = batch->addresses[i];
		part->sizes[part->n] = batch->sizes[i];
		part->first[part->n] = part->n;
		if (location)
			part->locations[part->n] = *location;
		part->n++;
	}
	return true;
}

/*
 * Must be called inside a submission that names all addresses. A discard up to the end of a block includes the rest
 * of its last piece, which belongs to no block.
 */
static void entry_batch_discard(const struct batch *batch, bool held)
{
	for (size_t i = 0; i < batch->n; i++) {
		CUdeviceptr address = batch->addresses[i];
		struct ledger_row row;

		if (!serve_find(address, &row) || batch->sizes[i] > row.bytes - (address - row.key) ||
		    managed_is_cpus(device_get(row.device), row.key))
			continue;
		bool to_end = batch->sizes[i] == row.bytes - (address - row.key);
		spill_discard_behind(device_get(row.device), address, to_end ? UINT64_MAX : batch->sizes[i],
				     batch->stream, batch->per_thread, held);
	}
}

static void submit_discards(enum hook_id id, const struct batch *batch)
{
	struct submission_stripe *inside = submission_enter();
	bool tracked = submission_is_tracking();

	submission_leave(inside);
	if (!tracked)
		return;
	struct submission *submission = submission_open(id);
	/* Without a submission the blocks would not be pinned. */
	if (!submission)
		return;
	if (batch->per_thread)
		operands_cuMemDiscardBatchAsync_ptsz(submission, batch->addresses, batch->sizes, batch->n, 0,
						     batch->stream);
	else
		operands_cuMemDiscardBatchAsync(submission, batch->addresses, batch->sizes, batch->n, 0, batch->stream);
	while (!(inside = admit(submission)))
		if (submission_back(submission) != CUDA_SUCCESS)
			return;
	if (!capture_is_open())
		entry_batch_discard(batch, submission_pins(submission));
	submission_close(submission, inside);
}

/* The prefetches of managed memory on the heap. Returns the first error. */
static CUresult entry_batch_prefetch(const struct batch *batch)
{
	CUresult result = CUDA_SUCCESS;
	struct ledger_row row;
	size_t at = 0;

	for (size_t i = 0; batch->prefetches && i < batch->n && result == CUDA_SUCCESS; i++) {
		const CUmemLocation *location = batch_location(batch, i, &at);

		if (serve_find(batch->addresses[i], &row))
			result = prefetch_managed(&row, batch->addresses[i], batch->sizes[i], location, batch->stream,
						  batch->per_thread);
	}
	return result;
}

/*
 * Returns true if *ret_result is the answer to the program, apart from the driver's part. If there is such a part
 * (part->locations is not NULL), the caller must submit it, and free part->locations.
 */
static bool entry_batch_take(const struct batch *batch, struct part *part, CUresult *ret_result)
{
	struct enter_scope scope;

	part->locations = NULL;
	if (!enter_serve(&scope))
		return false;
	size_t n = count_ours(batch);
	if (n) {
		*ret_result = entry_batch_check(batch);
		if (*ret_result == CUDA_SUCCESS && n < batch->n && !entry_batch_split(batch, batch->n - n, part))
			*ret_result = CUDA_ERROR_OUT_OF_MEMORY;
		if (*ret_result == CUDA_SUCCESS)
			*ret_result = entry_batch_prefetch(batch);
	}
	enter_leave(&scope, CUDA_SUCCESS);
	return n != 0;
}

/* The driver's part is submitted, and counted, as a separate call. */
#define BATCH(name, params, part_args, ...)                                                                            \
	bool hint_##name(CUresult *ret_result, ENTRY_UNPACK params)                                                    \
	{                                                                                                              \
		struct batch batch = {.addresses = dptrs,                                                              \
				      .sizes = sizes,                                                                  \
				      .n = count,                                                                      \
				      .flags = flags,                                                                  \
				      .stream = hStream,                                                               \
				      .per_thread = submit_is_per_thread(#name),                                       \
				      __VA_ARGS__};                                                                    \
		struct part part;                                                                                      \
                                                                                                                       \
		if (!entry_batch_take(&batch, &part, ret_result))                                                      \
			return false;                                                                                  \
		if (part.locations)                                                                                    \
			*ret_result = submit_##name part_args;                                                         \
		if (*ret_result == CUDA_SUCCESS && batch.discards)                                                     \
			submit_discards(HOOK_##name, &batch);                                                          \
		free(part.locations);                                                                                  \
		return true;                                                                                           \
	}
#define DISCARD(name)                                                                                                  \
	BATCH(name, (CUdeviceptr * dptrs, size_t * sizes, size_t count, unsigned long long flags, CUstream hStream),   \
	      (part.addresses, part.sizes, part.n, flags, hStream), .discards = true)
#define PREFETCH(name, discards_too)                                                                                   \
	BATCH(name,                                                                                                    \
	      (CUdeviceptr * dptrs, size_t * sizes, size_t count, CUmemLocation * prefetchLocs,                        \
	       size_t * prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream),          \
	      (part.addresses, part.sizes, part.n, part.locations, part.first, part.n, flags, hStream),                \
	      .locations = prefetchLocs, .first = prefetchLocIdxs, .n_locations = numPrefetchLocs, .prefetches = true, \
	      .discards = discards_too)
DISCARD(cuMemDiscardBatchAsync)
DISCARD(cuMemDiscardBatchAsync_ptsz)
PREFETCH(cuMemPrefetchBatchAsync, false)
PREFETCH(cuMemPrefetchBatchAsync_ptsz, false)
PREFETCH(cuMemDiscardAndPrefetchBatchAsync, true)
PREFETCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, true)

#define HOOK_BODY HOOK_SHELL
#define HOOKS_OF  HOOKS_HINT
#include "shim/driver/hooks.def"
