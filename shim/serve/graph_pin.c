/*
 * graph_pin.c: pins the heap memory that nodes of graphs name, for the time of one call. See graph_pin.h.
 */
#include "shim/serve/graph_pin.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/serve/on_use.h"
#include "shim/submit/copy_extent.h"

#include <stdlib.h>

#define DEPTH 16 /* of child graphs */

static bool graph_pin_begin(struct graph_pin *hold, CUresult result)
{
	hold->at = NULL;
	hold->n = hold->room = 0;
	hold->late = false;
	return __builtin_expect(result == CUDA_ERROR_INVALID_VALUE, 0) && enter_serve(&hold->scope);
}

static bool has_room(struct graph_pin *hold)
{
	if (hold->n < hold->room)
		return true;
	size_t room = hold->room ? 2 * hold->room : 4;
	struct graph_pinned *more = realloc(hold->at, room * sizeof(*more));
	if (!more)
		return false;
	hold->at = more;
	hold->room = room;
	return true;
}

/* Pins the heap blocks that these bytes touch: several if the program has mapped them (vmm.h). */
static void graph_pin_add(struct graph_pin *hold, CUdeviceptr start, size_t bytes)
{
	const struct device *device = start && !hold->late ? device_of(start) : NULL;

	if (!device || !has_room(hold))
		return;
	/* A graph uses it at each launch. */
	if (on_use_take_whole(start) != CUDA_SUCCESS)
		hold->late = true;
	else if (heap_pin(atomic_load(&device->heap), start, bytes))
		hold->at[hold->n++] = (struct graph_pinned){start, bytes};
	else
		hold->late = true;
}

static bool graph_pin_held(struct graph_pin *hold)
{
	if (!hold->n)
		graph_pin_end(hold);
	return hold->n;
}

void graph_pin_end(struct graph_pin *hold)
{
	for (size_t i = 0; i < hold->n; i++)
		heap_pin_end(atomic_load(&device_of(hold->at[i].start)->heap), hold->at[i].start, hold->at[i].bytes,
			     PIN_OFF);
	free(hold->at);
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

	if (copy_extent_range(base, place, extent, &first, &bytes) && bytes)
		graph_pin_add(hold, first, bytes);
}

static void add_copy(struct graph_pin *hold, const CUDA_MEMCPY3D *copy)
{
	const struct copy_extent extent = {copy->WidthInBytes, copy->Height, copy->Depth};
	const struct copy_extent_place src = {copy->srcXInBytes, copy->srcY, copy->srcZ, copy->srcPitch,
					      copy->srcHeight};
	const struct copy_extent_place dst = {copy->dstXInBytes, copy->dstY, copy->dstZ, copy->dstPitch,
					      copy->dstHeight};

	if (is_device(copy->srcMemoryType))
		add_box(hold, copy->srcDevice, &src, &extent);
	if (is_device(copy->dstMemoryType))
		add_box(hold, copy->dstDevice, &dst, &extent);
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

static void add_graph(struct graph_pin *hold, CUgraph graph, unsigned depth);

static void add_node(struct graph_pin *hold, CUgraphNode node, unsigned depth)
{
	CUDA_MEMSET_NODE_PARAMS set;
	CUgraphNodeType type;
	CUgraph child;

	if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS)
		return;
	if (type == CU_GRAPH_NODE_TYPE_MEMSET && REAL(cuGraphMemsetNodeGetParams)(node, &set) == CUDA_SUCCESS)
		add_set(hold, &set);
	else if (type == CU_GRAPH_NODE_TYPE_GRAPH && REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS)
		add_graph(hold, child, depth + 1);
}

static void add_graph(struct graph_pin *hold, CUgraph graph, unsigned depth)
{
	size_t n = 0;

	if (depth == DEPTH || REAL(cuGraphGetNodes)(graph, NULL, &n) != CUDA_SUCCESS || !n)
		return;
	CUgraphNode *nodes = calloc(n, sizeof(CUgraphNode));
	if (nodes && REAL(cuGraphGetNodes)(graph, nodes, &n) == CUDA_SUCCESS)
		for (size_t i = 0; i < n; i++)
			add_node(hold, nodes[i], depth);
	free(nodes);
}

bool graph_pin_sets(struct graph_pin *hold, CUresult result, CUgraph graph)
{
	if (!graph || !graph_pin_begin(hold, result))
		return false;
	add_graph(hold, graph, 0);
	return graph_pin_held(hold);
}
