// SPDX-License-Identifier: Apache-2.0
/*
 * fake_torch.c: the allocator of fake_torch.h. Blocks of a segment are in a list by address; whoever looks for a free
 * one looks at all of them, which is enough for tests.
 */
#include "test/libc.h"
#include "test/preload/fake_torch_internal.h"

#define SMALL_MOST   MIB       /* larger requests do not share segments with these */
#define SMALL        (2 * MIB) /* segment of small requests */
#define LARGE_SHARED (4 * MIB) /* larger requests have a segment each */
#define LARGE        (8 * MIB) /* segment that larger requests share */
#define ROUND        (2 * MIB)
#define SPACE_SMALL  (16 * MIB) /* address space of an expandable segment */
#define SPACE_LARGE  (64 * MIB)
#define DEVICES      8

unsigned long long runtime_alloc(size_t bytes); /* site_runtime.c */
void FAKE_TORCH_REPORT(void *address, int64_t bytes, size_t allocated, size_t reserved, struct fake_device device);
extern const struct fake_torch_functions fake_torch_functions;

static __thread unsigned pool_of_thread;
static __thread bool is_capturing;

/* What is done in a capture that has nothing to do with it. */
static CUstreamCaptureMode relax(CUstreamCaptureMode mode)
{
	must(cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
	return mode;
}

static void report(struct fake_torch *torch, CUdeviceptr at, size_t bytes, bool born)
{
	torch->allocated += born ? bytes : -bytes;
	FAKE_TORCH_REPORT((void *)(uintptr_t)at, born ? (int64_t)bytes : -(int64_t)bytes, torch->allocated,
			  torch->reserved, (struct fake_device){FAKE_TORCH_CUDA, (int8_t)torch->device});
}

/* ---- what fills ---- */

/* Returns whether it is filled. */
static bool memory_fill(const struct fake_torch *torch, CUdeviceptr at, size_t bytes)
{
	if (!torch->word || torch->n_captures)
		return false;
	must(cuMemsetD32_v2(at, torch->word, bytes / 4), "cuMemsetD32");
	must(cuStreamSynchronize(NULL), "cuStreamSynchronize");
	return true;
}

/* ---- expandable segments ---- */

/* Maps one handle. Returns false if there is no memory. */
static bool handle_map(const struct fake_torch *torch, CUdeviceptr at, size_t bytes)
{
	const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = torch->device};
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
	const CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;

	if (cuMemCreate(&handle, bytes, &prop, 0) != CUDA_SUCCESS)
		return false;
	must(cuMemMap(at, bytes, 0, handle, 0), "cuMemMap");
	must(cuMemRelease(handle), "cuMemRelease");
	must(cuMemSetAccess(at, bytes, &access, 1), "cuMemSetAccess");
	return true;
}

/*
 * Maps the beginning of an unmapped block, `bytes` of it, rounded up to handles. Returns the free block it belongs to.
 */
static struct block *block_map(struct fake_torch *torch, struct block *block, size_t bytes)
{
	size_t handle = block->segment->handle, mapped = 0;
	bool joins = block->before && block->before->state == BLOCK_FREE;
	struct block *before = block->before;

	while (mapped < bytes && handle_map(torch, block->at + mapped, handle))
		mapped += handle;
	if (!mapped)
		return NULL;
	block_cut(block, mapped);
	block->filled = memory_fill(torch, block->at, mapped);
	torch->reserved += mapped;
	block_free(block);
	return joins ? before : block;
}

/* Returns the block where a run of free and unmapped blocks begins that is long enough. */
static struct block *run_of(const struct fake_torch *torch, size_t bytes, CUstream stream)
{
	for (struct segment *segment = torch->segments; segment; segment = segment->next) {
		size_t found = 0;

		if (!segment->handle || segment->pool != pool_of_thread || segment->stream != stream ||
		    segment->small != (bytes <= SMALL_MOST))
			continue;
		for (struct block *block = segment->first, *first = block; block; block = block->after) {
			bool counts = block->state == BLOCK_FREE || block->state == BLOCK_UNMAPPED;

			found = counts ? found + block->bytes : 0;
			if (!counts)
				first = block->after;
			if (found >= bytes)
				return first;
		}
	}
	return NULL;
}

static struct segment *segment_new(struct fake_torch *torch, CUdeviceptr at, size_t bytes, CUstream stream, bool small);

static void space_new(struct fake_torch *torch, CUstream stream, bool small)
{
	size_t bytes = small ? SPACE_SMALL : SPACE_LARGE;
	CUdeviceptr at;

	must(cuMemAddressReserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
	struct segment *segment = segment_new(torch, at, bytes, stream, small);
	segment->handle = small ? SMALL : torch->handle;
	segment->first->state = BLOCK_UNMAPPED;
	torch->reserved -= bytes; /* none of it has memory */
}

/* Returns a free block that is long enough, and maps what it lacks; NULL if there is no memory. */
static struct block *expand(struct fake_torch *torch, size_t bytes, CUstream stream)
{
	CUstreamCaptureMode mode = relax(CU_STREAM_CAPTURE_MODE_RELAXED);
	struct block *block = run_of(torch, bytes, stream);

	if (!block) {
		space_new(torch, stream, bytes <= SMALL_MOST);
		block = run_of(torch, bytes, stream);
	}
	while (block && (block->state == BLOCK_UNMAPPED || block->bytes < bytes)) {
		struct block *next = block->state == BLOCK_UNMAPPED ? block : block->after;
		size_t had = next == block ? 0 : block->bytes, lacks = bytes - had;

		block = block_map(torch, next, lacks < next->bytes ? lacks : next->bytes);
	}
	relax(mode);
	return block;
}

/* Unmaps the whole handles of a free block. */
static void block_unmap(struct fake_torch *torch, struct block *block)
{
	size_t handle = block->segment->handle, from = block->at - block->segment->at, end = from + block->bytes;
	size_t first = (from + handle - 1) / handle * handle, last = end / handle * handle;

	if (first >= last)
		return;
	must(cuCtxSynchronize(), "cuCtxSynchronize");
	must(cuMemUnmap(block->segment->at + first, last - first), "cuMemUnmap");
	torch->reserved -= last - first;
	block_cut(block, last - from);
	if (first > from) {
		block_cut(block, first - from);
		block = block->after;
	}
	block->state = BLOCK_UNMAPPED;
	block->filled = false;
	if (block->after && block->after->state == BLOCK_UNMAPPED)
		block_join(block);
	if (block->before && block->before->state == BLOCK_UNMAPPED)
		block_join(block->before);
}

/* Returns true if nothing of the segment is left. */
static bool segment_shrink(struct fake_torch *torch, struct segment *segment)
{
	for (CUdeviceptr at = segment->at, end; at < segment->at + segment->bytes; at = end) {
		struct block *block = segment->first;

		while (block->at + block->bytes <= at)
			block = block->after;
		end = block->at + block->bytes;
		if (block->state == BLOCK_FREE)
			block_unmap(torch, block); /* joins and cuts what was before `end` */
	}
	if (segment->first->state != BLOCK_UNMAPPED || segment->first->after)
		return false;
	must(cuMemAddressFree(segment->at, segment->bytes), "cuMemAddressFree");
	return true;
}

/* ---- segments ---- */

static struct segment *segment_new(struct fake_torch *torch, CUdeviceptr at, size_t bytes, CUstream stream, bool small)
{
	struct segment *segment = calloc(1, sizeof(*segment));

	*segment = (struct segment){.next = torch->segments,
				    .at = at,
				    .bytes = bytes,
				    .pool = pool_of_thread,
				    .stream = stream,
				    .small = small,
				    .is_slab = torch->pools[pool_of_thread].slab != 0};
	torch->segments = segment;
	torch->reserved += bytes;
	block_new(segment, NULL, at, bytes);
	return segment;
}

static void free_segments(struct fake_torch *torch)
{
	CUstreamCaptureMode mode = relax(CU_STREAM_CAPTURE_MODE_RELAXED);

	process_events(torch, true);
	for (struct segment **link = &torch->segments; *link;) {
		struct segment *segment = *link;
		bool goes = !torch->pools[segment->pool].is_kept;

		if (goes && segment->handle)
			goes = segment_shrink(torch, segment);
		else
			goes = goes && segment->first->state == BLOCK_FREE && !segment->first->after;
		if (!goes) {
			link = &segment->next;
			continue;
		}
		*link = segment->next;
		if (!segment->handle) {
			torch->reserved -= segment->bytes;
			if (torch->pools[segment->pool].plug.release)
				torch->pools[segment->pool].plug.release(segment->at);
			else
				must(cuMemFree_v2(segment->at), "cuMemFree");
		}
		free(segment->first);
		free(segment);
	}
	relax(mode);
}

static size_t segment_bytes(size_t bytes)
{
	if (bytes <= SMALL_MOST)
		return SMALL;
	return bytes < LARGE_SHARED ? LARGE : (bytes + ROUND - 1) / ROUND * ROUND;
}

/* Returns 0 if there is no memory. */
static CUdeviceptr segment_memory(struct fake_torch *torch, size_t bytes)
{
	struct pool *pool = &torch->pools[pool_of_thread];
	CUdeviceptr at = 0;

	if (pool->slab) {
		if (pool->slab_used + bytes > pool->slab_bytes)
			return 0;
		at = pool->slab + pool->slab_used;
		pool->slab_used += bytes;
		return at;
	}
	CUstreamCaptureMode mode = relax(CU_STREAM_CAPTURE_MODE_RELAXED);
	at = pool->plug.allocate ? pool->plug.allocate(bytes) : runtime_alloc(bytes);
	relax(mode);
	if (!at && !pool->plug.allocate && !torch->n_captures) {
		free_segments(torch);
		at = runtime_alloc(bytes);
	}
	return at;
}

static struct block *best_fit(const struct fake_torch *torch, size_t bytes, CUstream stream)
{
	bool small = bytes <= SMALL_MOST;
	struct block *best = NULL;

	for (struct segment *segment = torch->segments; segment; segment = segment->next) {
		if (segment->pool != pool_of_thread || segment->stream != stream || segment->small != small)
			continue;
		for (struct block *block = segment->first; block; block = block->after)
			if (block->state == BLOCK_FREE && block->bytes >= bytes &&
			    (!best || block->bytes < best->bytes ||
			     (block->bytes == best->bytes && block->at < best->at)))
				best = block;
	}
	return best;
}

/* ---- what programs call ---- */

static struct fake_torch *torch_open(int device)
{
	static struct fake_torch all[DEVICES];
	struct fake_torch *torch = &all[device];

	if (!torch->n_pools) {
		pthread_mutex_init(&torch->lock, NULL);
		torch->device = device;
		torch->n_pools = 1;
	}
	return torch;
}

static CUdeviceptr torch_allocate(struct fake_torch *torch, size_t bytes, CUstream stream, size_t *ret_bytes)
{
	size_t rounded = (bytes + FAKE_TORCH_UNIT - 1) / FAKE_TORCH_UNIT * FAKE_TORCH_UNIT;
	size_t least = rounded <= SMALL_MOST ? FAKE_TORCH_UNIT : SMALL_MOST + 1; /* what is left is worth a block */
	CUdeviceptr at = 0;

	pthread_mutex_lock(&torch->lock);
	process_events(torch, false);
	struct block *block = best_fit(torch, rounded, stream);
	if (!block && torch->handle && !torch->pools[pool_of_thread].slab) {
		block = expand(torch, rounded, stream);
		if (!block && !torch->n_captures) {
			free_segments(torch);
			block = expand(torch, rounded, stream);
		}
	} else if (!block) {
		size_t all = segment_bytes(rounded);

		at = segment_memory(torch, all);
		block = at ? segment_new(torch, at, all, stream, rounded <= SMALL_MOST)->first : NULL;
		if (block && !block->segment->is_slab)
			block->filled = memory_fill(torch, at, all);
	}
	if (block) {
		if (block->bytes - rounded >= least)
			block_cut(block, rounded);
		block->state = BLOCK_USED;
		at = block->at;
		if (ret_bytes)
			*ret_bytes = block->bytes;
		report(torch, at, block->bytes, true);
	}
	pthread_mutex_unlock(&torch->lock);
	return at;
}

static void torch_release(struct fake_torch *torch, CUdeviceptr address)
{
	pthread_mutex_lock(&torch->lock);
	struct block *block = block_at(torch, address);
	report(torch, block->at, block->bytes, false);
	block->filled = false;
	if (!block->n_recorded) {
		block_free(block);
	} else {
		block->state = BLOCK_PENDING;
		for (unsigned i = 0; i < block->n_recorded; i++) {
			must(cuEventCreate(&block->event[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
			must(cuEventRecord(block->event[i], block->recorded[i]), "cuEventRecord");
		}
	}
	pthread_mutex_unlock(&torch->lock);
}

static void torch_record_stream(struct fake_torch *torch, CUdeviceptr address, CUstream stream)
{
	pthread_mutex_lock(&torch->lock);
	struct block *block = block_at(torch, address);
	bool known = stream == block->segment->stream;
	for (unsigned i = 0; i < block->n_recorded; i++)
		known |= block->recorded[i] == stream;
	if (!known && block->n_recorded == FAKE_TORCH_RECORDED)
		must(CUDA_ERROR_INVALID_VALUE, "too many streams for a block");
	if (!known)
		block->recorded[block->n_recorded++] = stream;
	pthread_mutex_unlock(&torch->lock);
}

static void torch_empty_cache(struct fake_torch *torch)
{
	pthread_mutex_lock(&torch->lock);
	if (!torch->n_captures)
		free_segments(torch);
	pthread_mutex_unlock(&torch->lock);
}

static unsigned torch_new_pool(struct fake_torch *torch, CUdeviceptr slab, size_t bytes)
{
	pthread_mutex_lock(&torch->lock);
	if (torch->n_pools == FAKE_TORCH_POOLS)
		must(CUDA_ERROR_OUT_OF_MEMORY, "too many pools");
	unsigned pool = torch->n_pools++;
	torch->pools[pool] = (struct pool){.slab = slab, .slab_bytes = bytes, .is_kept = true};
	pthread_mutex_unlock(&torch->lock);
	return pool;
}

static void torch_plug_pool(struct fake_torch *torch, unsigned pool, struct fake_plug plug)
{
	torch->pools[pool].plug = plug;
}

/* What was submitted is done: no event needs to be waited for. */
static void segment_forget(struct segment *segment)
{
	for (struct block *block = segment->first, *after; block; block = after) {
		after = block->after;
		for (unsigned i = 0; block->state == BLOCK_PENDING && i < block->n_recorded; i++)
			must(cuEventDestroy_v2(block->event[i]), "cuEventDestroy");
		free(block);
	}
	free(segment);
}

static void torch_drop_pool(struct fake_torch *torch, unsigned pool)
{
	pthread_mutex_lock(&torch->lock);
	torch->pools[pool].is_kept = false;
	for (struct segment **link = &torch->segments; *link;) {
		struct segment *segment = *link;

		if (segment->pool != pool || !segment->is_slab) {
			link = &segment->next;
			continue;
		}
		*link = segment->next;
		torch->reserved -= segment->bytes;
		segment_forget(segment);
	}
	pthread_mutex_unlock(&torch->lock);
}

static void torch_use_pool(struct fake_torch *torch, unsigned pool, bool capture)
{
	pthread_mutex_lock(&torch->lock);
	torch->n_captures += (unsigned)capture - (unsigned)is_capturing;
	is_capturing = capture;
	pool_of_thread = pool;
	pthread_mutex_unlock(&torch->lock);
}

static void torch_checkpoint(struct fake_torch *torch, unsigned pool, void (*between)(void))
{
	pthread_mutex_lock(&torch->lock);
	for (int born = 0; born <= 1; born++) {
		for (struct segment *segment = torch->segments; segment; segment = segment->next)
			for (struct block *block = segment->first; block; block = block->after)
				if (segment->pool == pool && block->state == BLOCK_USED)
					report(torch, block->at, block->bytes, born);
		if (!born && between)
			between();
	}
	pthread_mutex_unlock(&torch->lock);
}

static size_t torch_reserved(struct fake_torch *torch)
{
	pthread_mutex_lock(&torch->lock);
	size_t reserved = torch->reserved;
	pthread_mutex_unlock(&torch->lock);
	return reserved;
}

static void torch_expand(struct fake_torch *torch, size_t handle)
{
	pthread_mutex_lock(&torch->lock);
	torch->handle = handle;
	pthread_mutex_unlock(&torch->lock);
}

static void torch_fill(struct fake_torch *torch, unsigned word)
{
	pthread_mutex_lock(&torch->lock);
	torch->word = word;
	pthread_mutex_unlock(&torch->lock);
}

static bool torch_is_filled(struct fake_torch *torch, CUdeviceptr address)
{
	pthread_mutex_lock(&torch->lock);
	bool filled = block_at(torch, address)->filled;
	pthread_mutex_unlock(&torch->lock);
	return filled;
}

static bool torch_is_free(struct fake_torch *torch, CUdeviceptr address)
{
	pthread_mutex_lock(&torch->lock);
	process_events(torch, false);
	struct block *block = block_at(torch, address);
	bool is_free = !block || block->state == BLOCK_FREE || block->state == BLOCK_UNMAPPED;
	pthread_mutex_unlock(&torch->lock);
	return is_free;
}

const struct fake_torch_functions fake_torch_functions = {
    torch_open,     torch_allocate,  torch_release,   torch_record_stream, torch_empty_cache,
    torch_new_pool, torch_drop_pool, torch_use_pool,  torch_checkpoint,    torch_reserved,
    torch_expand,   torch_fill,      torch_is_filled, torch_is_free,       torch_plug_pool,
};
