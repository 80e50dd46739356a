// SPDX-License-Identifier: Apache-2.0
/*
 * Makes, keeps and releases the chunks of a heap, charges them to budgets or to the peers that lend them, and maps
 * aliases.
 */
#include "shim/heap/chunk.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/stats/stats.h"

#include <stdlib.h>

/* ---- charging ---- */

/* For so long the driver is believed to have no memory; the next request after that asks it again. */
#define FULL_NS 1000000000

bool chunk_is_full(const struct chunk_store *store)
{
	uint64_t since = atomic_load_explicit(&store->full, memory_order_relaxed);

	return since && clock_now() - since < FULL_NS;
}

uint64_t chunk_left(const struct chunk_store *store, enum chunk_place place)
{
	uint64_t most = 0;

	if (place == CHUNK_DEVICE && chunk_is_full(store))
		return 0;
	if (place != CHUNK_PEER)
		return budget_left(store->budget[place]);
	for (unsigned i = 0; i < store->n_lenders; i++) {
		uint64_t left = lender_left(store->lenders[i]);

		if (left > most)
			most = left;
	}
	return most;
}

static void chunk_discharge(struct chunk_store *store, const struct chunk *chunk)
{
	uint64_t bytes = chunk_bytes(chunk->units);

	if (chunk->place == CHUNK_PEER)
		lender_give(store->lenders[chunk->lender], bytes);
	else
		budget_give(store->budget[chunk->place], bytes);
}

bool chunk_is_wanted(const struct chunk_store *store, const struct chunk *chunk)
{
	return chunk->place == CHUNK_PEER && lender_wanted(store->lenders[chunk->lender]);
}

/* For messages. */
static const char *name_of(const struct chunk *chunk)
{
	static const char *const name[] = {
	    [CHUNK_DEVICE] = "device", [CHUNK_HOST] = "host", [CHUNK_PEER] = "another device's"};

	return name[chunk->place];
}

/* ---- making ---- */

/*
 * Movable chunks are made without gpuDirectRDMACapable: registering one for RDMA must fail rather than go stale. Fixed
 * chunks are made with it, and exportable, as far as the device supports both; movable ones are exportable if the
 * policy requires it. If the driver refuses, the chunk is made without both.
 */
static CUresult create_special(struct chunk_store *store, struct chunk *chunk, CUmemLocation location)
{
	bool fixed = chunk->kind == CHUNK_FIXED;
	CUmemAllocationProp prop = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = location,
	    .requestedHandleTypes =
		store->exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
	    .allocFlags.gpuDirectRDMACapable = fixed && store->rdma && chunk->place == CHUNK_DEVICE,
	};
	CUresult result = REAL(cuMemCreate)(&chunk->handle, chunk_bytes(chunk->units), &prop, 0);

	if (result == CUDA_SUCCESS)
		chunk->exportable = store->exportable;
	else if (result != CUDA_ERROR_OUT_OF_MEMORY)
		log_once("memory that can be exported%s cannot be had in %s memory (%s): that of %s is plain there",
			 fixed ? " and registered" : "", name_of(chunk), real_error_name(result),
			 fixed ? "rules with movable: no" : "the heap");
	return result;
}

enum sw_status chunk_create(struct chunk_store *store, struct chunk *chunk)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = store->location[chunk->place]};
	bool special =
	    chunk->kind == CHUNK_FIXED ? store->rdma || store->exportable : store->share && store->exportable;
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	uint64_t begin = clock_now();

	if (chunk->place == CHUNK_PEER)
		prop.location =
		    (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = store->lenders[chunk->lender]->device};
	if (special)
		result = create_special(store, chunk, prop.location);
	if (result != CUDA_SUCCESS && (!special || result != CUDA_ERROR_OUT_OF_MEMORY))
		result = REAL(cuMemCreate)(&chunk->handle, chunk_bytes(chunk->units), &prop, 0);
	stats_time(HISTOGRAM_create_ns, clock_now() - begin);
	if (result == CUDA_SUCCESS) {
		stats_add(STAT_chunks_made, 1);
		return SW_OK;
	}
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		log_once("cuMemCreate of %llu bytes in %s memory: %s", (unsigned long long)chunk_bytes(chunk->units),
			 name_of(chunk), real_error_name(result));
	/* Outside the device the reasons differ (limits, cgroups, other processes); for the program it is no memory. */
	return chunk->place != CHUNK_DEVICE ? SW_NO_MEMORY : status_of(result);
}

enum sw_status chunk_make(struct chunk_store *store, const struct chunk *like, struct chunk **ret_chunk)
{
	struct lender *peer = like->place == CHUNK_PEER ? store->lenders[like->lender] : NULL;
	struct chunk *chunk = store->usable[like->place] ? malloc(sizeof(*chunk)) : NULL;
	uint64_t bytes = chunk_bytes(like->units);
	enum sw_status status = SW_NO_MEMORY;

	if (!chunk)
		return store->usable[like->place] ? SW_NO_HOST_MEMORY : SW_NO_MEMORY;
	*chunk = *like;
	if (peer ? lender_take(peer, bytes) : budget_take(store->budget[like->place], bytes)) {
		status = chunk_create(store, chunk);
		if (like->place == CHUNK_DEVICE)
			atomic_store_explicit(&store->full, status == SW_NO_MEMORY ? clock_now() : 0,
					      memory_order_relaxed);
		if (status != SW_OK)
			chunk_discharge(store, chunk);
		/* A peer whose driver has no more memory, whatever its limit, is not asked again for a while. */
		if (status != SW_OK && peer) {
			lender_is_full(peer);
			log_once("device %d has no more memory to lend than %llu bytes, for the time being",
				 peer->device, (unsigned long long)atomic_load(&peer->lent.used));
		}
	}
	if (status == SW_OK)
		*ret_chunk = chunk;
	else
		free(chunk);
	return status;
}

enum sw_status chunk_make_lent(struct chunk_store *store, const struct chunk *like, struct chunk **ret_chunk)
{
	enum sw_status status = SW_NO_MEMORY;
	struct chunk its = *like;

	for (its.lender = 0; its.lender < store->n_lenders && status == SW_NO_MEMORY; its.lender++)
		status = chunk_make(store, &its, ret_chunk);
	return status;
}

void chunk_join(struct chunk_store *store, struct chunk *chunk)
{
	lock_assert_held(LOCK_HEAP);
	store->made_bytes[chunk->place] += chunk_bytes(chunk->units);
}

struct chunk *chunk_take_warm(struct chunk_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units)
{
	struct chunk *chunk = store->warm[kind][place][units];

	lock_assert_held(LOCK_HEAP);
	if (!chunk)
		return NULL;
	store->warm[kind][place][units] = chunk->next;
	store->warm_bytes[place] -= chunk_bytes(units);
	chunk->next = NULL;
	return chunk;
}

enum sw_status chunk_make_unbacked(struct chunk_store *store, unsigned units, struct chunk **ret_chunk)
{
	struct chunk *chunk = store->usable[CHUNK_HOST] ? malloc(sizeof(*chunk)) : NULL;

	lock_assert_held(LOCK_HEAP);
	if (!chunk)
		return SW_NO_MEMORY;
	*chunk = (struct chunk){.units = (uint8_t)units, .place = CHUNK_HOST, .kind = CHUNK_MOVABLE, .unbacked = true};
	if (!budget_take(store->budget[CHUNK_HOST], chunk_bytes(units))) {
		free(chunk);
		return SW_NO_MEMORY;
	}
	chunk_join(store, chunk);
	*ret_chunk = chunk;
	return SW_OK;
}

/* Ends a compound chunk: calls `what` for each part. */
static void each_part(struct chunk_store *store, struct chunk *chunk,
		      void (*what)(struct chunk_store *store, struct chunk *part))
{
	struct chunk *part = chunk->parts, *next;

	for (; part; part = next) {
		next = part->next;
		what(store, part);
	}
	free(chunk);
}

void chunk_put(struct chunk_store *store, struct chunk *chunk)
{
	lock_assert_held(LOCK_HEAP);
	if (chunk->unbacked) {
		store->made_bytes[chunk->place] -= chunk_bytes(chunk->units);
		chunk_discharge(store, chunk);
		free(chunk);
		return;
	}
	if (chunk->parts) {
		each_part(store, chunk, chunk_put);
		return;
	}
	chunk->next = store->warm[chunk->kind][chunk->place][chunk->units];
	store->warm[chunk->kind][chunk->place][chunk->units] = chunk;
	store->warm_bytes[chunk->place] += chunk_bytes(chunk->units);
}

/* ---- mapping ---- */

CUresult chunk_map_all(const struct chunk *first, CUdeviceptr at)
{
	CUdeviceptr begin = at;

	for (const struct chunk *chunk = first; chunk; chunk = chunk->next) {
		CUresult result = chunk_map(chunk, at);

		if (result != CUDA_SUCCESS) {
			if (at != begin && map_remove(begin, at - begin) != CUDA_SUCCESS)
				log_once("cuMemUnmap of a part of what could not be mapped: refused");
			return result;
		}
		at += chunk_bytes(chunk->units);
	}
	return CUDA_SUCCESS;
}

CUresult chunk_map(const struct chunk *chunk, CUdeviceptr at)
{
	return chunk->parts ? chunk_map_all(chunk->parts, at) : map_chunk(at, chunk_bytes(chunk->units), chunk->handle);
}

/* ---- aliases ---- */

/*
 * Address space for aliases: as much as all chunks could take, because it costs nothing (docs/facts.md, Mapping).
 * Halved until the driver agrees.
 */
#define ALIAS_MOST  ((uint64_t)4 << 40)
#define ALIAS_LEAST ((uint64_t)1 << 30)

static bool alias_space(struct chunk_store *store)
{
	for (uint64_t bytes = ALIAS_MOST; !store->alias_base && bytes >= ALIAS_LEAST; bytes /= 2) {
		CUdeviceptr base;

		if (REAL(cuMemAddressReserve)(&base, bytes, HEAP_UNIT, 0, 0) != CUDA_SUCCESS)
			continue;
		if (!range_init(&store->alias_units, bytes / HEAP_UNIT)) {
			REAL(cuMemAddressFree)(base, bytes);
			return false;
		}
		store->alias_base = base;
	}
	return store->alias_base != 0;
}

static void forget_alias(struct chunk_store *store, struct chunk *chunk)
{
	range_give(&store->alias_units, (chunk->alias - store->alias_base) / HEAP_UNIT, chunk->units);
	chunk->alias = 0;
	chunk->shut = false;
}

static enum sw_status alias_one(struct chunk_store *store, struct chunk *chunk)
{
	uint64_t bytes = chunk_bytes(chunk->units);
	CUresult result;

	if (chunk->alias && !chunk->shut)
		return SW_OK;
	if (!chunk->alias) {
		uint64_t unit;

		if (!alias_space(store) || !range_take(&store->alias_units, chunk->units, &unit))
			return SW_NO_MEMORY;
		chunk->alias = store->alias_base + unit * HEAP_UNIT;
		result = map_chunk(chunk->alias, bytes, chunk->handle);
		if (result != CUDA_SUCCESS) {
			forget_alias(store, chunk);
			return status_of(result);
		}
	}
	result = map_allow(chunk->alias, bytes, store->own, true);
	chunk->shut = result != CUDA_SUCCESS;
	/*
	 * If it cannot be unmapped, it keeps its memory allocated even after a release; keep the alias for the next
	 * try.
	 */
	if (chunk->shut && map_remove(chunk->alias, bytes) == CUDA_SUCCESS)
		forget_alias(store, chunk);
	return status_of(result);
}

enum sw_status chunk_give_alias(struct chunk_store *store, struct chunk *chunk)
{
	enum sw_status status = SW_OK;

	lock_assert_held(LOCK_HEAP);
	if (!chunk->parts)
		return alias_one(store, chunk);
	for (struct chunk *part = chunk->parts; part && status == SW_OK; part = part->next)
		status = alias_one(store, part);
	return status;
}

/* Returns false if the driver refused. */
static bool drop_alias(struct chunk_store *store, struct chunk *chunk)
{
	if (!chunk->alias)
		return true;
	CUresult result = map_remove(chunk->alias, chunk_bytes(chunk->units));
	if (result != CUDA_SUCCESS) {
		log_once("cuMemUnmap of an alias: %s; the chunk is kept", real_error_name(result));
		return false;
	}
	forget_alias(store, chunk);
	return true;
}

/* Releases a chunk that is on no list. Returns false if the driver refused; then the chunk is as it was. */
static bool release(struct chunk_store *store, struct chunk *chunk)
{
	if (!drop_alias(store, chunk))
		return false;
	CUresult result = REAL(cuMemRelease)(chunk->handle);
	if (result != CUDA_SUCCESS) {
		log_once("cuMemRelease: %s; the chunk is kept", real_error_name(result));
		return false;
	}
	store->made_bytes[chunk->place] -= chunk_bytes(chunk->units);
	chunk_discharge(store, chunk);
	stats_add(STAT_chunks_released, 1);
	free(chunk);
	return true;
}

bool chunk_release_warm(struct chunk_store *store, enum chunk_kind kind, enum chunk_place place, unsigned units)
{
	struct chunk *chunk = store->warm[kind][place][units], *next = chunk ? chunk->next : NULL;

	lock_assert_held(LOCK_HEAP);
	if (!chunk || !release(store, chunk))
		return false;
	store->warm[kind][place][units] = next;
	store->warm_bytes[place] -= chunk_bytes(units);
	return true;
}

void chunk_drop(struct chunk_store *store, struct chunk *chunk)
{
	lock_assert_held(LOCK_HEAP);
	if (chunk->parts) {
		each_part(store, chunk, chunk_drop);
		return;
	}
	if (release(store, chunk))
		return;
	chunk->next = store->refused;
	store->refused = chunk;
}

void chunk_retry_refused(struct chunk_store *store)
{
	struct chunk *list = store->refused;

	lock_assert_held(LOCK_HEAP);
	store->refused = NULL;
	while (list) {
		struct chunk *next = list->next;

		chunk_drop(store, list);
		list = next;
	}
}

static bool release_any(struct chunk_store *store, enum chunk_place place, unsigned units)
{
	for (enum chunk_kind kind = 0; kind < CHUNK_KINDS; kind++)
		if (chunk_release_warm(store, kind, place, units))
			return true;
	return false;
}

bool chunk_release_one(struct chunk_store *store, enum chunk_place place, unsigned units)
{
	lock_assert_held(LOCK_HEAP);
	for (unsigned longer = units; longer <= CHUNK_MOST; longer++)
		if (release_any(store, place, longer))
			return true;
	for (unsigned shorter = units - 1; shorter; shorter--)
		if (release_any(store, place, shorter))
			return true;
	return false;
}

void chunk_trim(struct chunk_store *store, enum chunk_place place, uint64_t keep)
{
	lock_assert_held(LOCK_HEAP);
	for (unsigned units = CHUNK_MOST; units; units--)
		for (enum chunk_kind kind = 0; kind < CHUNK_KINDS; kind++)
			while (store->warm_bytes[place] > keep && chunk_release_warm(store, kind, place, units))
				;
}

/* ---- compound chunks ---- */

/* Returns whether the store has this many warm chunks of that length. */
static bool has_warm(const struct chunk_store *store, unsigned units, unsigned n)
{
	const struct chunk *chunk = store->warm[CHUNK_MOVABLE][CHUNK_HOST][units];

	while (chunk && n) {
		chunk = chunk->next;
		n--;
	}
	return n == 0;
}

unsigned compound_missing(const struct chunk_store *store, unsigned units)
{
	lock_assert_held(LOCK_HEAP);
	if (units >= COMPOUND_PART_MOST && !has_warm(store, COMPOUND_PART_MOST, units / COMPOUND_PART_MOST))
		return COMPOUND_PART_MOST;
	for (unsigned part = COMPOUND_PART_MOST / 2; part; part /= 2)
		if (units & part && !has_warm(store, part, 1))
			return part;
	return 0;
}

enum sw_status compound_build(struct chunk_store *store, unsigned units, compound_get_function *get, void *from,
			      struct chunk **ret_chunk)
{
	struct chunk *compound = malloc(sizeof(*compound)), **tail;
	enum sw_status status = SW_OK;

	if (!compound)
		return SW_NO_HOST_MEMORY;
	*compound = (struct chunk){.units = (uint8_t)units, .place = CHUNK_HOST, .kind = CHUNK_MOVABLE};
	tail = &compound->parts;
	for (unsigned left = units; left; left -= (*tail)->units, tail = &(*tail)->next) {
		status = get(from, compound_part(left), tail);
		if (status != SW_OK)
			break;
	}
	if (status == SW_OK)
		*ret_chunk = compound;
	else if (compound->parts)
		chunk_put(store, compound);
	else
		free(compound);
	return status;
}

static enum sw_status get_with_alias(void *from, unsigned units, struct chunk **ret_chunk)
{
	struct chunk_store *store = from;
	struct chunk *chunk = chunk_take_warm(store, CHUNK_MOVABLE, CHUNK_HOST, units);

	if (!chunk)
		return SW_NO_MEMORY;
	enum sw_status status = chunk_give_alias(store, chunk);
	if (status == SW_OK)
		*ret_chunk = chunk;
	else
		chunk_put(store, chunk);
	return status;
}

struct chunk *compound_take(struct chunk_store *store, unsigned units)
{
	struct chunk *chunk;

	if (compound_part(units) == units || compound_missing(store, units))
		return NULL;
	return compound_build(store, units, get_with_alias, store, &chunk) == SW_OK ? chunk : NULL;
}

bool compound_has(const struct chunk *chunk, unsigned units)
{
	bool found = !chunk->parts && chunk->units == units;

	for (const struct chunk *part = chunk->parts; part && !found; part = part->next)
		found = part->units == units;
	return found;
}

CUdeviceptr compound_at(const struct chunk *chunk, uint64_t at, uint64_t *ret_bytes)
{
	const struct chunk *part = chunk->parts;

	while (part->next && at >= chunk_bytes(part->units)) {
		at -= chunk_bytes(part->units);
		part = part->next;
	}
	*ret_bytes = chunk_bytes(part->units) - at;
	return part->alias + at;
}

/* ---- the driver's mapping calls, counted and timed ---- */

CUresult map_chunk(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
	uint64_t begin = clock_now();

	stats_add(STAT_maps, 1);
	CUresult result = REAL(cuMemMap)(at, bytes, 0, handle, 0);
	stats_time(HISTOGRAM_map_ns, clock_now() - begin);
	return result;
}

CUresult map_allow(CUdeviceptr at, uint64_t bytes, uint64_t devices, bool allow)
{
	CUmemAccessDesc access[64];
	uint64_t begin = clock_now();
	unsigned n = 0;

	for (; devices; devices &= devices - 1)
		access[n++] = (CUmemAccessDesc){
		    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = __builtin_ctzll(devices)},
		    .flags = allow ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE,
		};
	stats_add(STAT_maps, 1);
	CUresult result = REAL(cuMemSetAccess)(at, bytes, access, n);
	stats_time(HISTOGRAM_map_ns, clock_now() - begin);
	return result;
}

CUresult map_remove(CUdeviceptr at, uint64_t bytes)
{
	uint64_t begin = clock_now();

	stats_add(STAT_maps, 1);
	CUresult result = REAL(cuMemUnmap)(at, bytes);
	stats_time(HISTOGRAM_unmap_ns, clock_now() - begin);
	return result;
}
