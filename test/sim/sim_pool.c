// SPDX-License-Identifier: Apache-2.0
/*
 * sim_pool.c: stream-ordered allocation. An address is good from the call on in the order of its stream; the memory of
 * a cuMemFreeAsync goes when that free's turn comes on its stream. What a pool keeps for reuse is modelled as a number:
 * cached bytes stay counted against the device until a synchronisation point finds them over the release threshold.
 *
 * A block whose free is still to come is given out again, if it has the size: in the same stream, in one that waits for
 * the free, and, when there is no other memory, in any, which is then made to wait. Work that names a block and runs
 * before what its stream was given before the allocation breaks a rule (sim_pool_touched()): nothing orders it behind
 * the earlier owner. Work from before the allocation is that owner's. A block is its pool's, not its context's: it
 * outlives that, also a primary one that is reset (docs/facts.md).
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"

static CUmemoryPool pools;
static struct sim_block *unready; /* whose allocation has not happened yet in the order of its stream */

static size_t rounded(size_t bytes)
{
	return (bytes + 511) & ~(size_t)511;
}

static void set_cached(CUmemoryPool pool, size_t bytes)
{
	sim.device[pool->device].used -= pool->reserved - pool->used;
	sim.device[pool->device].used += bytes;
	pool->reserved = pool->used + bytes;
	if (pool->reserved > pool->reserved_high)
		pool->reserved_high = pool->reserved;
}

static void trim(CUmemoryPool pool, size_t keep)
{
	size_t may_stay = keep > pool->used ? keep - pool->used : 0;

	if (pool->reserved - pool->used > may_stay)
		set_cached(pool, may_stay);
}

void sim_pool_trim(void)
{
	for (CUmemoryPool pool = pools; pool; pool = pool->next)
		trim(pool, pool->threshold);
}

static CUmemoryPool pool_new(int device)
{
	CUmemoryPool pool = calloc(1, sizeof(*pool));

	pool->device = device;
	pool->alive = true;
	pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
	pool->next = pools;
	pools = pool;
	return pool;
}

static CUmemoryPool default_pool(int device)
{
	struct sim_device *d = &sim.device[device];

	if (!d->default_pool) {
		d->default_pool = pool_new(device);
		d->default_pool->is_default = true;
		d->pool = d->default_pool;
	}
	return d->default_pool;
}

static CUmemoryPool pool_of(CUmemoryPool handle)
{
	CUmemoryPool pool = pools;

	while (pool && pool != handle)
		pool = pool->next;
	return pool && pool->alive ? pool : NULL;
}

static void forget_unready(struct sim_block *block)
{
	struct sim_block **link = &unready;

	while (*link && *link != block)
		link = &(*link)->next_unready;
	if (*link)
		*link = block->next_unready;
}

/* One of its blocks was freed: the bytes stay with the pool for now. */
void sim_pool_block_gone(struct sim_block *block)
{
	CUmemoryPool pool = block->pool;
	size_t cached = pool->reserved - pool->used;

	forget_unready(block);
	pool->used -= rounded(block->range.bytes);
	pool->reserved = pool->used + cached;
	if (pool->alive && !block->freeing)
		return;
	set_cached(pool, pool->alive ? cached + rounded(block->range.bytes) : 0);
}

/* Without a block: somebody has it again. */
static void run_free(struct sim_work *work)
{
	sim_lock();
	if (work->block)
		sim_block_drop(work->block);
	work->block = NULL; /* the work stays in its stream for a moment */
	pthread_cond_broadcast(&sim.progress);
	sim_unlock();
}

static bool any_freeing(CUcontext context)
{
	for (CUstream stream = context->streams; stream; stream = stream->next)
		for (struct sim_work *work = stream->head; work; work = work->next)
			if (work->run == run_free)
				return true;
	return false;
}

/* ---- blocks whose free is still to come ---- */

enum reuse { SAME_STREAM, WAITS_FOR_IT, WITH_DEPENDENCY };

static bool waits_for(CUstream stream, CUstream other, const struct sim_work *work)
{
	for (const struct sim_work *own = stream->head; own; own = own->next)
		for (size_t i = 0; i < own->n_after; i++)
			if (own->after[i].stream == other && own->after[i].seq >= work->seq)
				return true;
	return false;
}

static bool may_reuse(CUmemoryPool pool, CUstream stream, CUstream other, const struct sim_work *work, enum reuse how)
{
	switch (how) {
	case SAME_STREAM:
		return other == stream;
	case WAITS_FOR_IT:
		return pool->reuse[0] && waits_for(stream, other, work);
	default:
		return pool->reuse[2];
	}
}

/* The free of a block of this size that is not running, and the stream it is in. */
static struct sim_work *pending_free(CUmemoryPool pool, size_t bytes, CUstream stream, enum reuse how,
				     CUstream *ret_stream)
{
	for (CUcontext context = sim.contexts; context; context = context->next)
		for (CUstream other = context->streams; other; other = other->next)
			for (struct sim_work *work = other->head; work; work = work->next) {
				if (work->run != run_free || !work->block || work->block->pool != pool ||
				    rounded(work->block->range.bytes) != rounded(bytes) ||
				    (work == other->head && other->busy) || !may_reuse(pool, stream, other, work, how))
					continue;
				*ret_stream = other;
				return work;
			}
	return NULL;
}

/* NULL: there is none. The block is new, in everything but its memory. */
static struct sim_block *reuse(CUmemoryPool pool, size_t bytes, CUstream stream, enum reuse how)
{
	CUstream other;
	struct sim_work *work = pending_free(pool, bytes, stream, how, &other), *marker;

	if (!work)
		return NULL;
	if (how == WITH_DEPENDENCY) {
		marker = sim_work_new("cuMemAllocAsync", CU_GRAPH_NODE_TYPE_EMPTY, sim_nothing);
		marker->always = true;
		sim_work_after(marker, other, work->seq);
		if (sim_work_queue(stream, marker))
			return NULL;
	}
	struct sim_block *block = work->block;
	work->block = NULL;
	block->freeing = false;
	block->range.bytes = bytes;
	block->origin = sim_origin();
	block->id = sim_next_id();
	return block;
}

/* It is good behind all that the stream has been given before. */
static void hand_out(struct sim_block *block, CUstream stream)
{
	forget_unready(block); /* it may be its next allocation already */
	block->context = stream->context;
	block->ready = (struct sim_after){stream, stream->last};
	if (stream->done >= stream->last)
		return;
	block->next_unready = unready;
	unready = block;
}

void sim_pool_touched(CUstream stream, const struct sim_work *work)
{
	for (struct sim_block *block = unready, *next; block; block = next) {
		next = block->next_unready;
		if (block->ready.stream->done >= block->ready.seq)
			forget_unready(block);
		else if (stream != block->ready.stream && work->id > block->id &&
			 sim_work_names(work, block->range.start, block->range.bytes))
			sim_break_rule("%s touches %#lx, whose allocation has not happened in stream order", work->name,
				       (unsigned long)block->range.start);
	}
}

/* ---- allocating ---- */

static CUresult new_memory(struct sim_block **ret_block, CUmemoryPool pool, size_t bytes)
{
	/*
	 * Reserved memory is more than is used of it at any time (an H200: 15.8 GiB, of a job that had 13.7 at most).
	 */
	size_t cached = pool->reserved - pool->used, fit = cached - cached / 100 * sim.set.pool_waste;
	size_t kept = fit < rounded(bytes) ? fit : rounded(bytes);

	if (pool->most && pool->used + rounded(bytes) > pool->most)
		return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "the pool has its maxSize");
	set_cached(pool, cached - kept);
	CUresult result = sim_block_make(ret_block, bytes, pool->device, SIM_BLOCK_ASYNC);
	if (result)
		return result;
	(*ret_block)->pool = pool;
	pool->used += rounded(bytes);
	pool->reserved += rounded(bytes);
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	if (pool->reserved > pool->reserved_high)
		pool->reserved_high = pool->reserved;
	return CUDA_SUCCESS;
}

/*
 * Takes what is to be freed and ordered before, then what the pool keeps, new memory, what is to be freed and is not
 * ordered, and at last waits for frees.
 */
static CUresult make(struct sim_block **ret_block, CUmemoryPool pool, size_t bytes, CUstream stream)
{
	CUresult result = CUDA_SUCCESS;

	*ret_block = reuse(pool, bytes, stream, SAME_STREAM) ?: reuse(pool, bytes, stream, WAITS_FOR_IT);
	if (*ret_block)
		return CUDA_SUCCESS;
	result = new_memory(ret_block, pool, bytes);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		trim(pool, 0);
		result = new_memory(ret_block, pool, bytes);
	}
	if (result == CUDA_ERROR_OUT_OF_MEMORY && (*ret_block = reuse(pool, bytes, stream, WITH_DEPENDENCY)))
		result = CUDA_SUCCESS;
	if (result == CUDA_ERROR_OUT_OF_MEMORY && any_freeing(stream->context)) {
		result = sim_wait_context(stream->context);
		trim(pool, 0);
		result = result ?: new_memory(ret_block, pool, bytes);
	}
	if (!result)
		sim_thread()->why[0] = '\0';
	return result;
}

/* In a capture an allocation is a node, and so is the free of what a node allocated; of anything else it is refused. */
static CUresult capture_alloc(CUdeviceptr *ret_address, size_t bytes, CUstream stream)
{
	struct sim_work *work;
	CUresult result = stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;

	result = result ?: sim_graph_alloc_work(&work, bytes);
	if (result)
		return result;
	*ret_address = work->memory->block->range.start;
	return sim_capture_work(stream, work);
}

static CUresult capture_free(CUdeviceptr address, CUstream stream)
{
	struct sim_work *work;
	CUresult result = sim_graph_free_work(&work, address);

	return result ? result : sim_capture_work(stream, work);
}

static void run_free_of_graph(struct sim_work *work)
{
	sim_lock();
	sim_graph_memory_free(work->memory);
	sim_unlock();
}

static CUresult alloc(CUdeviceptr *ret_address, size_t bytes, CUmemoryPool handle, bool from_pool, CUstream handle_s)
{
	struct sim_block *block;
	CUstream stream;
	CUresult result = sim_stream(handle_s, &stream);

	if (result)
		return result;
	if (!ret_address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	default_pool(stream->context->device);
	CUmemoryPool pool = from_pool ? pool_of(handle) : sim.device[stream->context->device].pool;
	if (!pool)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "no such pool");
	if (stream->capture)
		return capture_alloc(ret_address, bytes, stream);
	result = sim_unsafe();
	if (result)
		return result;
	result = make(&block, pool, bytes, stream);
	if (result)
		return result;
	hand_out(block, stream);
	*ret_address = block->range.start;
	sim_alloc_views();
	return CUDA_SUCCESS;
}

static CUresult free_async(CUdeviceptr address, CUstream handle)
{
	struct sim_block *block = sim_block_at(address);
	struct sim_work *work;
	CUstream stream;
	CUresult result = sim_stream(handle, &stream);

	if (result)
		return result;
	if (!address)
		return CUDA_SUCCESS;
	if (!block || block->freeing || block->range.start != address || block->kind == SIM_BLOCK_HOST ||
	    block->kind == SIM_BLOCK_REGISTERED)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx is not the start of a live block", address);
	if (stream->capture)
		return capture_free(address, stream);
	result = sim_unsafe();
	if (result)
		return result;
	if (block->graph) {
		work = sim_work_new("cuMemFreeAsync", CU_GRAPH_NODE_TYPE_MEM_FREE, run_free_of_graph);
		work->memory = block->graph;
		return sim_submit(handle, work);
	}
	work = sim_work_new("cuMemFreeAsync", CU_GRAPH_NODE_TYPE_MEM_FREE, run_free);
	work->block = block;
	work->always = true;
	result = sim_submit(handle, work);
	if (!result)
		block->freeing = true;
	return result;
}

static CUresult create(CUmemoryPool *ret_pool, const CUmemPoolProps *props)
{
	/* A pool of managed memory gets device memory here, to which the CPU has no access. */
	bool managed = props && props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;

	if (!ret_pool || !props || (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED && !managed))
		return CUDA_ERROR_INVALID_VALUE;
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return sim_why(CUDA_ERROR_NOT_SUPPORTED, "the model has device pools only");
	if (!sim_is_device(props->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	*ret_pool = pool_new(props->location.id);
	(*ret_pool)->most = props->maxSize;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUmemoryPool handle)
{
	CUmemoryPool pool = pool_of(handle);

	if (!pool || pool->is_default)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim.device[pool->device].pool == pool)
		sim.device[pool->device].pool = sim.device[pool->device].default_pool;
	pool->alive = false;
	trim(pool, 0);
	return CUDA_SUCCESS;
}

static bool is_reuse(CUmemPool_attribute which)
{
	return which >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
	       which <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

static CUresult get_attribute(CUmemoryPool handle, CUmemPool_attribute which, void *ret_value)
{
	CUmemoryPool pool = pool_of(handle);

	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_reuse(which))
		return SIM_ANSWER((int *)ret_value,
				  pool->reuse[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES]);
	const cuuint64_t figures[] = {[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD] = pool->threshold,
				      [CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT] = pool->reserved,
				      [CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH] = pool->reserved_high,
				      [CU_MEMPOOL_ATTR_USED_MEM_CURRENT] = pool->used,
				      [CU_MEMPOOL_ATTR_USED_MEM_HIGH] = pool->used_high};
	if (which < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD || which > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	return SIM_ANSWER((cuuint64_t *)ret_value, figures[which]);
}

static CUresult set_attribute(CUmemoryPool handle, CUmemPool_attribute which, const void *value)
{
	CUmemoryPool pool = pool_of(handle);

	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_reuse(which))
		pool->reuse[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(const int *)value;
	else if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		pool->threshold = *(const cuuint64_t *)value;
	else if (which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		pool->reserved_high = pool->reserved;
	else if (which == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		pool->used_high = pool->used;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult device_pool(CUmemoryPool *ret_pool, CUdevice device, bool the_default)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!ret_pool)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_pool = default_pool(device);
	if (!the_default)
		*ret_pool = sim.device[device].pool;
	return CUDA_SUCCESS;
}

static CUresult set_device_pool(CUdevice device, CUmemoryPool handle)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	default_pool(device);
	if (!pool_of(handle) || handle->device != device)
		return CUDA_ERROR_INVALID_VALUE;
	sim.device[device].pool = handle;
	return CUDA_SUCCESS;
}

static CUresult location_pool(CUmemoryPool *ret_pool, CUmemLocation *location, bool the_default)
{
	if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	return device_pool(ret_pool, location->id, the_default);
}

static CUresult trim_to(CUmemoryPool handle, size_t keep)
{
	if (!pool_of(handle))
		return CUDA_ERROR_INVALID_VALUE;
	trim(handle, keep);
	return CUDA_SUCCESS;
}

static CUresult pool_access(CUmemAccess_flags *ret_flags, CUmemoryPool handle, CUmemLocation *location)
{
	CUmemoryPool pool = pool_of(handle);

	if (!ret_flags || !location || !pool)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == pool->device)
		*ret_flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	else if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_is_device(location->id))
		*ret_flags = (CUmemAccess_flags)pool->access[location->id];
	return CUDA_SUCCESS;
}

/* The programming guide: a device without peer capability is INVALID_DEVICE, the pool's own device keeps its access. */
static CUresult judge_pool_access(CUmemoryPool pool, const CUmemAccessDesc *desc)
{
	int device = desc->location.id;

	if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_is_device(device) ||
	    (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
	     desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "no such device, or no such access");
	if (device == pool->device && desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "a pool's own device keeps its access");
	if (!sim_can_reach(device, pool->device))
		return sim_why(CUDA_ERROR_INVALID_DEVICE, "device %d cannot reach memory of device %d", device,
			       pool->device);
	return CUDA_SUCCESS;
}

/* Of all its memory, what is allocated now and what will be. */
static CUresult set_pool_access(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
	CUmemoryPool pool = pool_of(handle);
	CUresult result = pool && map && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (size_t i = 0; i < count && !result; i++)
		result = judge_pool_access(pool, &map[i]);
	for (size_t i = 0; i < count && !result; i++)
		if (map[i].location.id != pool->device)
			pool->access[map[i].location.id] = (unsigned char)map[i].flags;
	if (!result)
		sim_alloc_views();
	return result;
}

SPELL_STREAM(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream), stream,
	     alloc(address, bytes, NULL, false, stream))
SPELL_STREAM(cuMemAllocFromPoolAsync, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream), stream,
	     alloc(address, bytes, pool, true, stream))
SPELL_STREAM(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), stream, free_async(address, stream))
SPELL_FREE(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *props), create(pool, props))
SPELL_FREE(cuMemPoolDestroy, (CUmemoryPool pool), destroy(pool))
SPELL_FREE(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute which, void *value),
	   get_attribute(pool, which, value))
SPELL_FREE(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute which, void *value),
	   set_attribute(pool, which, value))
SPELL_FREE(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep), trim_to(pool, keep))
SPELL_FREE(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count),
	   set_pool_access(pool, map, count))
SPELL_FREE(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location),
	   pool_access(flags, pool, location))
SPELL_FREE(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice device), device_pool(pool, device, true))
SPELL_FREE(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device), device_pool(pool, device, false))
SPELL_FREE(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), set_device_pool(device, pool))
SPELL_FREE(cuMemGetDefaultMemPool, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type),
	   ((void)type, location_pool(pool, location, true)))
SPELL_FREE(cuMemGetMemPool, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type),
	   ((void)type, location_pool(pool, location, false)))
