// SPDX-License-Identifier: Apache-2.0
/*
 * sim_advise.c: advice, prefetch, and questions about the pages of a range, with the errors that cuda.h 13.0 promises:
 * INVALID_VALUE for what is not managed memory (with SIM_PAGEABLE, or memory of the process), INVALID_DEVICE for a
 * device that is none or has no concurrent access. There is no node for a prefetch in a graph, so a capture refuses it;
 * that it does is assumed.
 */
#include "sim_graph.h"
#include "sim_managed.h"
#include "sim_memory.h"
#include <sys/mman.h>

#define CPU_PAGE 4096

/* Memory that the process has, and no device gave: mincore() refuses what is not mapped. */
static bool is_pageable(uintptr_t address, size_t bytes)
{
	uintptr_t first = address & ~(uintptr_t)(CPU_PAGE - 1);
	bool known = bytes && !sim_in_window(address) && !sim_in_managed(address) && !sim_block_at(address);
	unsigned char in_core;

	for (uintptr_t at = first; known && at < address + bytes; at += CPU_PAGE)
		known = !mincore((void *)at, CPU_PAGE, &in_core);
	return sim.set.pageable && known;
}

/* The pages of a managed block, whole; or none, which is right for other memory of the process alone. */
static CUresult pages_of(uintptr_t address, size_t bytes, struct sim_page **ret_pages, size_t *ret_n)
{
	struct sim_block *block = sim_block_at(address);

	*ret_n = 0;
	*ret_pages = NULL;
	if (block && block->pages && bytes && bytes <= block->range.bytes - (address - block->range.start)) {
		*ret_pages = sim_managed_pages(address, bytes, ret_n);
		return CUDA_SUCCESS;
	}
	if (is_pageable(address, bytes))
		return CUDA_SUCCESS;
	return sim_why(CUDA_ERROR_INVALID_VALUE, "%#lx + %zu is not managed memory", (unsigned long)address, bytes);
}

/* cuda.h before 12.2 had a device, or CU_DEVICE_CPU. */
static CUmemLocation location_of(CUdevice device)
{
	if (device == CU_DEVICE_CPU)
		return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

static CUresult check_location(CUmemLocation *location)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		if (!sim_is_device(location->id))
			return sim_why(CUDA_ERROR_INVALID_DEVICE, "no device %d", location->id);
		if (!sim.set.concurrent_managed)
			return sim_why(CUDA_ERROR_INVALID_DEVICE, "the device has no concurrent managed access");
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		if (location->id)
			return sim_why(CUDA_ERROR_INVALID_VALUE, "no NUMA node %d", location->id);
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		*location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST:
		location->id = 0;
		return CUDA_SUCCESS;
	default:
		return sim_why(CUDA_ERROR_INVALID_VALUE, "location type %d is none", location->type);
	}
}

/* ---- advice ---- */

static void advise_page(struct sim_page *page, CUmem_advise advice, const CUmemLocation *location)
{
	bool device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
	unsigned bit = device ? SIM_ON_DEVICE(location->id) : SIM_ON_CPU;

	switch (advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
		page->read_mostly = true;
		for (int d = 0; d < sim.set.devices; d++)
			sim_managed_unmap(page, d);
		break;
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		page->read_mostly = false;
		sim_managed_collapse(page);
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		page->preferred = *location;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		page->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
		page->accessed_by |= bit;
		break;
	default: /* UNSET_ACCESSED_BY */
		page->accessed_by &= ~bit;
		if (device)
			sim_managed_unmap(page, location->id);
	}
}

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	bool names_one = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
			 advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
	struct sim_page *pages;
	size_t n;
	CUresult result = pages_of(address, bytes, &pages, &n);

	if (!result && (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY))
		result = sim_why(CUDA_ERROR_INVALID_VALUE, "%d is no advice", advice);
	if (!result && names_one)
		result = check_location(&location);
	if (!result && names_one && advice != CU_MEM_ADVISE_SET_PREFERRED_LOCATION &&
	    location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		result = sim_why(CUDA_ERROR_INVALID_VALUE, "accessed-by is for devices and the host");
	for (size_t i = 0; !result && i < n; i++)
		advise_page(&pages[i], advice, &location);
	return result;
}

/* ---- prefetch ---- */

struct order {
	CUdeviceptr address;
	size_t bytes;
	CUmemLocation to;
};

static void run_prefetch(struct sim_work *work)
{
	const struct order *order = work->owned;
	size_t n = 0;

	sim_lock();
	struct sim_page *pages = sim_managed_pages(order->address, order->bytes, &n);
	for (size_t i = 0; pages && i < n; i++)
		sim_managed_prefetch(&pages[i], &order->to);
	sim_unlock();
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned flags, CUstream handle)
{
	struct sim_page *pages;
	struct order *order;
	CUstream stream;
	size_t n;
	CUresult result = sim_stream(handle, &stream) ?: pages_of(address, bytes, &pages, &n);

	if (!result && flags)
		result = sim_why(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
	result = result ?: check_location(&to);
	if (!result && !sim.set.concurrent_managed)
		result = sim_why(CUDA_ERROR_INVALID_DEVICE, "the stream's device has no concurrent managed access");
	if (!result && stream->capture) {
		sim_capture_invalidate(stream->capture, "a prefetch on a capturing stream");
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (result)
		return result;
	for (size_t i = 0; i < n; i++)
		pages[i].prefetch = to;
	struct sim_work *work = sim_work_new("cuMemPrefetchAsync", CU_GRAPH_NODE_TYPE_EMPTY, run_prefetch);
	work->owned_bytes = sizeof(*order);
	order = work->owned = malloc(sizeof(*order));
	*order = (struct order){address, bytes, to};
	return sim_submit(handle, work);
}

/*
 * In batches (cuda.h 13.0). Assumed: the legacy stream is refused with INVALID_VALUE, and so is all of a batch for one
 * wrong range. What was discarded keeps its contents: that is one of the values that it may have.
 */
struct batch {
	CUdeviceptr *addresses;
	size_t *sizes, n;
	CUmemLocation *locations;
	size_t *first, n_locations;
	bool prefetches;
};

static CUresult check_batch(const struct batch *b, unsigned long long flags, CUstream handle)
{
	CUresult result = CUDA_SUCCESS;
	struct sim_page *pages;
	size_t n;

	if (!b->addresses || !b->sizes || !b->n || flags || !handle || handle == CU_STREAM_LEGACY)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "no ranges, flags, or the legacy stream");
	if (b->prefetches && (!b->locations || !b->first || !b->n_locations || b->n_locations > b->n || b->first[0]))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "the locations do not fit the ranges");
	for (size_t i = 1; b->prefetches && i < b->n_locations; i++)
		if (b->first[i] <= b->first[i - 1] || b->first[i] >= b->n)
			return sim_why(CUDA_ERROR_INVALID_VALUE, "location %zu is out of order", i);
	for (size_t i = 0; !result && i < b->n; i++)
		result = pages_of(b->addresses[i], b->sizes[i], &pages, &n);
	for (size_t i = 0; b->prefetches && !result && i < b->n_locations; i++)
		result = check_location(&b->locations[i]);
	return result;
}

static CUresult batch(struct batch b, unsigned long long flags, CUstream handle)
{
	CUstream stream;
	CUresult result = check_batch(&b, flags, handle) ?: sim_stream(handle, &stream);

	if (result)
		return result;
	if (!b.prefetches) {
		if (!stream->capture)
			return sim_submit(handle, sim_work_new("discard", CU_GRAPH_NODE_TYPE_EMPTY, sim_nothing));
		sim_capture_invalidate(stream->capture, "a discard on a capturing stream");
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	for (size_t i = 0, at = 0; !result && i < b.n; i++) {
		at += at + 1 < b.n_locations && b.first[at + 1] <= i;
		result = prefetch(b.addresses[i], b.sizes[i], b.locations[at], 0, handle);
	}
	return result;
}

/* Who may touch it when does not matter to a device with concurrent access. */
static CUresult attach(CUstream stream, CUdeviceptr address, size_t bytes)
{
	struct sim_page *pages;
	size_t n;
	CUresult result = pages_of(address, bytes ? bytes : 1, &pages, &n);

	return result ? result : sim_submit(stream, sim_work_new("attach", CU_GRAPH_NODE_TYPE_EMPTY, sim_nothing));
}

/* ---- questions ---- */

static bool is_same(const CUmemLocation *a, const CUmemLocation *b)
{
	return a->type == b->type && a->id == b->id;
}

/* What all pages have in common; type INVALID when that is nothing. */
static CUmemLocation common(const struct sim_page *pages, size_t n, bool prefetched)
{
	CUmemLocation first = prefetched ? pages[0].prefetch : pages[0].preferred;

	for (size_t i = 1; i < n; i++)
		if (!is_same(&first, prefetched ? &pages[i].prefetch : &pages[i].preferred))
			return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
	return first;
}

static void list_accessors(int *ret, size_t room, const struct sim_page *pages, size_t n)
{
	unsigned by = ~0u;
	size_t at = 0;

	for (size_t i = 0; i < n; i++)
		by &= pages[i].accessed_by;
	for (int d = -1; d < sim.set.devices && at < room; d++)
		if (by & (d < 0 ? SIM_ON_CPU : SIM_ON_DEVICE(d)))
			ret[at++] = d < 0 ? CU_DEVICE_CPU : d;
	while (at < room)
		ret[at++] = CU_DEVICE_INVALID;
}

static CUresult ask(void *ret, size_t room, CUmem_range_attribute which, const struct sim_page *pages, size_t n)
{
	bool prefetched = which == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION ||
			  which == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE ||
			  which == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID;
	CUmemLocation location = common(pages, n, prefetched);
	int *value = ret;

	if (which == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
		if (!room || room % sizeof(int))
			return sim_why(CUDA_ERROR_INVALID_VALUE, "%zu bytes for a list of integers", room);
		list_accessors(ret, room / sizeof(int), pages, n);
		return CUDA_SUCCESS;
	}
	if (room != sizeof(int) || which < CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
	    which > CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "attribute %d in %zu bytes", which, room);
	switch (which) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		*value = 1;
		for (size_t i = 0; i < n; i++)
			*value = *value && pages[i].read_mostly;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		*value = location.type == CU_MEM_LOCATION_TYPE_INVALID  ? CU_DEVICE_INVALID
			 : location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id
									: CU_DEVICE_CPU;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		*value = (int)location.type;
		break;
	default: /* the two ids */
		*value = location.id;
	}
	return CUDA_SUCCESS;
}

/* Unlike the others, no question is answered for memory that is not managed. */
static CUresult get(void **data, const size_t *sizes, const CUmem_range_attribute *which, size_t n_questions,
		    CUdeviceptr address, size_t bytes)
{
	struct sim_page *pages = NULL;
	size_t n = 0;
	CUresult result = pages_of(address, bytes, &pages, &n);

	if (result || !pages || !data || !sizes || !which || !n_questions)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n_questions && !result; i++)
		result = data[i] ? ask(data[i], sizes[i], which[i], pages, n) : CUDA_ERROR_INVALID_VALUE;
	return result;
}

SPELL(cuMemAdvise, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
      advise(address, bytes, advice, location_of(device)))
SPELL(cuMemAdvise_v2, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location),
      advise(address, bytes, advice, location))
SPELL_STREAM(cuMemPrefetchAsync, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream), stream,
	     prefetch(address, bytes, location_of(device), 0, stream))
SPELL_STREAM(cuMemPrefetchAsync_v2,
	     (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream), stream,
	     prefetch(address, bytes, location, flags, stream))
#define DISCARD(stream)  batch((struct batch){.addresses = at, .sizes = sizes, .n = n}, flags, stream)
#define PREFETCH(stream) batch((struct batch){at, sizes, n, to, first, n_to, true}, flags, stream)
SPELL_STREAM(cuMemDiscardBatchAsync,
	     (CUdeviceptr * at, size_t *sizes, size_t n, unsigned long long flags, CUstream stream), stream,
	     DISCARD(stream))
SPELL_STREAM(cuMemPrefetchBatchAsync,
	     (CUdeviceptr * at, size_t *sizes, size_t n, CUmemLocation *to, size_t *first, size_t n_to,
	      unsigned long long flags, CUstream stream),
	     stream, PREFETCH(stream))
SPELL_STREAM(cuMemDiscardAndPrefetchBatchAsync,
	     (CUdeviceptr * at, size_t *sizes, size_t n, CUmemLocation *to, size_t *first, size_t n_to,
	      unsigned long long flags, CUstream stream),
	     stream, PREFETCH(stream))
SPELL_STREAM(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr address, size_t bytes, unsigned flags), stream,
	     ((void)flags, attach(stream, address, bytes)))
SPELL(cuMemRangeGetAttribute, (void *data, size_t size, CUmem_range_attribute which, CUdeviceptr address, size_t bytes),
      get(&data, &size, &which, 1, address, bytes))
SPELL(cuMemRangeGetAttributes,
      (void **data, size_t *sizes, CUmem_range_attribute *which, size_t n, CUdeviceptr address, size_t bytes),
      get(data, sizes, which, n, address, bytes))
