// SPDX-License-Identifier: Apache-2.0
/*
 * named.c: pins the heap memory that nodes of graphs name, for the time of one call; that of copies on the device.
 * Takes memory for what a name means of allocations with place: on-use. See named.h.
 */
#include "shim/serve/named.h"
#include "shim/base/array.h"
#include "shim/base/log.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/heap/arena.h"
#include "shim/mover/spill.h"
#include "shim/serve/account.h"
#include "shim/serve/managed.h"
#include "shim/serve/serve.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/submit/arguments.h"
#include "shim/submit/channel.h"
#include "shim/submit/submission.h"

#include <stdlib.h>

/* ---- place: on-use ---- */

static void refuse(const struct device *device, CUdeviceptr address, uint64_t bytes)
{
	struct ledger_row row;
	char text[32];

	log_once("place: on-use: no memory for %s of an allocation at its use; the call that uses it is refused",
		 log_bytes(text, sizeof(text), bytes));
	stats_add(STAT_on_use_refused, 1);
	account_refused(SW_NO_MEMORY, device, bytes, serve_find(address, &row) ? row.rule : -1, NULL);
}

static enum sw_status try(struct device *device, CUdeviceptr address, uint64_t bytes, uint64_t *taken)
{
	struct heap_grant grant = {.address = address};
	enum sw_status status = backend_heap_take(device, bytes, CHUNK_MOVABLE, backend_heap_from(NULL),
						  BACKEND_NO_LIMIT, heap_on_use_take, &grant);

	*taken += grant.bytes_on_device + grant.bytes_away;
	return status;
}

static enum sw_status take_missing(struct device *device, CUdeviceptr address, uint64_t bytes, bool whole)
{
	struct heap *heap = atomic_load(&device->heap);
	CUdeviceptr at = address;
	uint64_t length = bytes, taken = 0;

	if (!heap_on_use_missing(heap, true, &at, &length))
		return SW_OK;
	enum sw_status status = try(device, at, length, &taken);
	/* Without memory for more than is named. */
	if (status == SW_NO_MEMORY) {
		at = address;
		length = bytes;
		status = heap_on_use_missing(heap, false, &at, &length) ? try(device, at, length, &taken) : SW_OK;
	}
	/* Another thread has freed the allocation meanwhile: the submission does not use it. */
	if (status == SW_INVALID && !heap_on_use_missing(heap, false, &at, &length))
		status = SW_OK;
	stats_add(STAT_on_use_bytes, taken);
	if (whole && taken) {
		stats_add(STAT_on_use_whole, 1);
		stats_add(STAT_on_use_whole_bytes, taken);
	}
	if (status == SW_NO_MEMORY || status == SW_NO_HOST_MEMORY)
		refuse(device, address, length);
	return status;
}

static enum sw_status take_named(struct device *device, CUdeviceptr address, uint64_t bytes, bool whole)
{
	const struct arena *arena = heap_arena(atomic_load(&device->heap));
	CUdeviceptr begin, first;
	uint64_t length, all;
	uint32_t unit;

	if (!arena_is_on_use(arena, address, &unit))
		return SW_OK;
	if (bytes && !whole)
		return take_missing(device, address, bytes, false);
	if (!arena_bounds(arena, address, &first, &all))
		return SW_OK;
	if (whole || !arena_on_use_extent(arena, unit, address, &begin, &length))
		return take_missing(device, first, all, true);
	/* Near its ends, too, within the allocation. */
	CUdeviceptr end = begin + length + ON_USE_NEAR < first + all ? begin + length + ON_USE_NEAR : first + all;
	begin = begin - first > ON_USE_NEAR ? begin - ON_USE_NEAR : first;
	return take_missing(device, begin, end - begin, false);
}

/* The same, and brings what the CPU has there. */
static enum sw_status use_named(struct device *device, CUdeviceptr address, uint64_t bytes, bool whole)
{
	const struct named name = {address, bytes};
	enum sw_status status = take_named(device, address, bytes, whole);

	if (status == SW_OK && managed_is_cpus(device, address))
		status = managed_bring(&name, 1, 0, take_missing);
	on_use_settle();
	return status;
}

static enum sw_status take_all_of(struct device *device)
{
	struct heap *heap = atomic_load(&device->heap);
	enum sw_status status = SW_OK;
	CUdeviceptr from = 0, base;
	uint64_t bytes;

	while (heap && status == SW_OK && heap_on_use_next(heap, from, &base, &bytes)) {
		status = take_missing(device, base, bytes, true);
		from = base + bytes;
	}
	return status;
}

/*
 * When the process ends, nothing takes memory any more. A call that uses what has none is refused: in the driver it
 * would be an illegal access, and what other late calls want to save would be lost with the context.
 */
static CUresult take_none(CUdeviceptr address, uint64_t bytes)
{
	const struct device *device = process_stage() == STAGE_ENDING ? device_of(address) : NULL;

	bytes = bytes ? bytes : 1;
	return device && (managed_is_cpus(device, address) ||
			  heap_on_use_missing(atomic_load(&device->heap), false, &address, &bytes))
		   ? CUDA_ERROR_DEINITIALIZED
		   : CUDA_SUCCESS;
}

static CUresult served(enum sw_status (*take)(struct device *device, CUdeviceptr address, uint64_t bytes, bool whole),
		       CUdeviceptr address, uint64_t bytes, bool whole)
{
	struct device *device = device_of(address);
	enum sw_status status = SW_OK;
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return take_none(address, bytes);
	if (device)
		status = take(device, address, bytes, whole);
	return enter_leave(&scope, status_result(status));
}

static CUresult on_use_take_named(CUdeviceptr address, uint64_t bytes, bool whole)
{
	return served(take_named, address, bytes, whole);
}

CUresult on_use_take(CUdeviceptr address, uint64_t bytes, bool whole)
{
	return served(use_named, address, bytes, whole);
}

static CUresult on_use_take_all(uint64_t devices)
{
	enum sw_status status = SW_OK;
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return CUDA_SUCCESS;
	for (struct device *device = device_next(NULL); device && status == SW_OK; device = device_next(device))
		if (devices >> device->ordinal & 1)
			status = take_all_of(device);
	return enter_leave(&scope, status_result(status));
}

static CUresult on_use_bring(const struct named *names, uint32_t n, uint64_t devices)
{
	struct enter_scope scope;

	/* As take_none(): what the CPU has touched cannot go back any more. */
	if (!enter_serve(&scope))
		return process_stage() == STAGE_ENDING && atomic_load(&serve_state.managed.n_touched)
			   ? CUDA_ERROR_DEINITIALIZED
			   : CUDA_SUCCESS;
	enum sw_status status = managed_bring(names, n, devices, take_missing);
	on_use_settle();
	return enter_leave(&scope, status_result(status));
}

const struct submission_takes on_use_takes = {on_use_take_named, on_use_take_all, on_use_bring};

CUresult on_use_take_range(CUdeviceptr address, uint64_t bytes)
{
	struct device *device = device_of(address);

	return device && bytes ? status_result(use_named(device, address, bytes, false)) : CUDA_SUCCESS;
}

/* ---- pins for graphs ---- */

#define DEPTH 16 /* of child graphs */

static bool graph_pin_begin(struct graph_pin *hold, CUresult result)
{
	*hold = (struct graph_pin){0};
	return __builtin_expect(result == CUDA_ERROR_INVALID_VALUE, 0) && enter_serve(&hold->scope);
}

/* Pins the heap blocks that these bytes touch: several if the program has mapped them (serve.h). */
static void graph_pin_add(struct graph_pin *hold, CUdeviceptr start, size_t bytes)
{
	struct device *device = start && !hold->late ? device_of(start) : NULL;

	if (!device || !ARRAY_ROOM(hold->at, hold->n, hold->room, ARRAY_MOST))
		return;
	/* A graph uses it at each launch. */
	if (use_named(device, start, 0, true) != SW_OK)
		hold->late = true;
	else if (heap_pin(atomic_load(&device->heap), start, bytes))
		hold->at[hold->n++] = (struct graph_pinned){start, bytes};
	else
		hold->late = true;
}

static void unpin_last(struct graph_pin *hold)
{
	const struct graph_pinned *last = &hold->at[--hold->n];

	heap_pin_end(atomic_load(&device_of(last->start)->heap), last->start, last->bytes, PIN_OFF);
}

static void unpin_all(struct graph_pin *hold)
{
	while (hold->n)
		unpin_last(hold);
	free(hold->at);
	hold->at = NULL;
	hold->room = 0;
}

static bool graph_pin_held(struct graph_pin *hold)
{
	bool held = hold->n;

	if (!held)
		graph_pin_end(hold);
	return held;
}

void graph_pin_end(struct graph_pin *hold)
{
	unpin_all(hold);
	enter_leave(&hold->scope, CUDA_SUCCESS);
}

static bool is_device(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

static void add_box(struct graph_pin *hold, CUdeviceptr base, const struct copy_extent_place *place,
		    const struct copy_extent *extent)
{
	CUdeviceptr first;
	size_t bytes;

	if (base && copy_extent_range(base, place, extent, &first, &bytes) && bytes)
		graph_pin_add(hold, first, bytes);
}

/* Managed memory may be given as memory of the host. Of other memory of the host nothing is pinned. */
static CUdeviceptr side_of(CUmemorytype type, CUdeviceptr device, const void *host)
{
	return type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)host : is_device(type) ? device : 0;
}

static void add_copy(struct graph_pin *hold, const CUDA_MEMCPY3D *copy)
{
	const struct copy_extent extent = {copy->WidthInBytes, copy->Height, copy->Depth};
	const struct copy_extent_place src = {copy->srcXInBytes, copy->srcY, copy->srcZ, copy->srcPitch,
					      copy->srcHeight};
	const struct copy_extent_place dst = {copy->dstXInBytes, copy->dstY, copy->dstZ, copy->dstPitch,
					      copy->dstHeight};

	add_box(hold, side_of(copy->srcMemoryType, copy->srcDevice, copy->srcHost), &src, &extent);
	add_box(hold, side_of(copy->dstMemoryType, copy->dstDevice, copy->dstHost), &dst, &extent);
}

static void add_set(struct graph_pin *hold, const CUDA_MEMSET_NODE_PARAMS *set)
{
	const struct copy_extent extent = {set->width * set->elementSize, set->height, 1};

	add_box(hold, set->dst, &(struct copy_extent_place){.pitch = set->pitch}, &extent);
}

bool graph_pin_copy(struct graph_pin *hold, CUresult result, const CUDA_MEMCPY3D *copy)
{
	if (!copy || !graph_pin_begin(hold, result))
		return false;
	add_copy(hold, copy);
	return graph_pin_held(hold);
}

bool graph_pin_set(struct graph_pin *hold, CUresult result, const CUDA_MEMSET_NODE_PARAMS *set)
{
	if (!set || !graph_pin_begin(hold, result))
		return false;
	add_set(hold, set);
	return graph_pin_held(hold);
}

bool graph_pin_params(struct graph_pin *hold, CUresult result, const CUgraphNodeParams *params)
{
	if (!params || !graph_pin_begin(hold, result))
		return false;
	if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		add_copy(hold, &params->memcpy.copyParams);
	else if (params->type == CU_GRAPH_NODE_TYPE_MEMSET)
		add_box(
		    hold, params->memset.dst, &(struct copy_extent_place){.pitch = params->memset.pitch},
		    &(struct copy_extent){params->memset.width * params->memset.elementSize, params->memset.height, 1});
	return graph_pin_held(hold);
}

/* ---- on the device ---- */

static bool is_on_host(const struct device *device, CUdeviceptr start, size_t bytes)
{
	uint64_t at[CHUNK_PLACES];

	return heap_spread(atomic_load(&device->heap), start, bytes, at) && at[CHUNK_HOST];
}

/* How often one side of a copy is brought, and how many sides may find no room before nothing else is brought. */
#define TRIES        3
#define REFUSED_MOST 3

/* Pins one side of a copy. Returns whether it is heap memory. */
static bool pin_here(struct graph_pin *hold, CUmemorytype type, CUdeviceptr start, size_t bytes)
{
	struct device *device = is_device(type) ? device_of(start) : NULL;

	if (!device)
		return false;
	size_t before = hold->n;
	graph_pin_add(hold, start, bytes);
	/*
	 * What is pinned cannot come. It is pinned again before anything can move: afterwards it might leave at once.
	 * What another thread pins meanwhile stays where it is, so that is looked at again.
	 */
	for (unsigned i = 0; i < TRIES && hold->n > before && !hold->stays && is_on_host(device, start, bytes); i++) {
		unpin_last(hold);
		enum sw_status status = spill_bring(device, start, bytes);
		stats_add(STAT_graph_fetches, status == SW_OK);
		if (status == SW_OK) {
			hold->at[hold->n++] = (struct graph_pinned){start, bytes};
			continue;
		}
		hold->stays = status == SW_BUSY || ++hold->n_refused == REFUSED_MOST;
		graph_pin_add(hold, start, bytes);
		break;
	}
	return true;
}

static bool pin_sides_here(struct graph_pin *hold, const CUDA_MEMCPY3D *copy)
{
	if (!copy->WidthInBytes || copy->Height != 1 || copy->Depth != 1 || copy->srcY || copy->srcZ || copy->dstY ||
	    copy->dstZ)
		return false;
	bool dst = pin_here(hold, copy->dstMemoryType, copy->dstDevice + copy->dstXInBytes, copy->WidthInBytes);
	return pin_here(hold, copy->srcMemoryType, copy->srcDevice + copy->srcXInBytes, copy->WidthInBytes) || dst;
}

/* Returns whether anything may be on the host, or moves. */
static bool any_away(void)
{
	return submission_is_tracking() || atomic_load(&host_budget.used);
}

bool graph_pin_here(struct graph_pin *hold, const CUDA_MEMCPY3D *copy)
{
	if (!copy || !any_away() || !graph_pin_begin(hold, CUDA_ERROR_INVALID_VALUE))
		return false;
	pin_sides_here(hold, copy);
	return graph_pin_held(hold);
}

void graph_refused(void)
{
	stats_add(STAT_graph_refusals, 1);
	log_once("the driver refuses to give a copy of an instantiated graph other memory, because that is not where "
		 "the former was (on the device, on the host); a program that makes the graph anew then goes on");
}

/* ---- the nodes of a graph ---- */

static void each_node(struct graph_pin *hold, CUgraph graph, unsigned depth,
		      void (*visit)(struct graph_pin *hold, CUgraphNode node, CUgraphNodeType type))
{
	CUgraphNodeType type;
	CUgraph child;
	size_t n = 0;

	if (depth == DEPTH || REAL(cuGraphGetNodes)(graph, NULL, &n) != CUDA_SUCCESS || !n)
		return;
	CUgraphNode *nodes = calloc(n, sizeof(CUgraphNode));
	if (!nodes || REAL(cuGraphGetNodes)(graph, nodes, &n) != CUDA_SUCCESS)
		n = 0;
	for (size_t i = 0; i < n; i++) {
		if (REAL(cuGraphNodeGetType)(nodes[i], &type) != CUDA_SUCCESS)
			continue;
		if (type != CU_GRAPH_NODE_TYPE_GRAPH)
			visit(hold, nodes[i], type);
		else if (REAL(cuGraphChildGraphNodeGetGraph)(nodes[i], &child) == CUDA_SUCCESS)
			each_node(hold, child, depth + 1, visit);
	}
	free(nodes);
}

static void visit_set(struct graph_pin *hold, CUgraphNode node, CUgraphNodeType type)
{
	CUDA_MEMSET_NODE_PARAMS set;

	if (type == CU_GRAPH_NODE_TYPE_MEMSET && REAL(cuGraphMemsetNodeGetParams)(node, &set) == CUDA_SUCCESS)
		add_set(hold, &set);
}

bool graph_pin_sets(struct graph_pin *hold, CUresult result, CUgraph graph)
{
	if (!graph || !graph_pin_begin(hold, result))
		return false;
	each_node(hold, graph, 0, visit_set);
	return graph_pin_held(hold);
}

/*
 * One copy at a time, so that only its own operands need room. If the driver refuses, the copy stays noted as it was.
 */
static void visit_copy(struct graph_pin *hold, CUgraphNode node, CUgraphNodeType type)
{
	CUDA_MEMCPY3D copy;

	if (type != CU_GRAPH_NODE_TYPE_MEMCPY || REAL(cuGraphMemcpyNodeGetParams)(node, &copy) != CUDA_SUCCESS ||
	    !pin_sides_here(hold, &copy))
		return;
	hold->names_heap = true;
	REAL(cuGraphMemcpyNodeSetParams)(node, &copy);
	unpin_all(hold);
}

bool graph_give_again(CUgraph graph)
{
	struct graph_pin hold;

	/* With several GPUs a copy that is given again may lose the context by which it reaches the other's memory. */
	if (!graph || peer_is_any() || !any_away() || !graph_pin_begin(&hold, CUDA_ERROR_INVALID_VALUE))
		return false;
	each_node(&hold, graph, 0, visit_copy);
	graph_pin_end(&hold);
	return hold.names_heap;
}
