/*
 * graph_read.c: reads the names of graph nodes (graph_read.h). The driver's answer for each type of node is converted
 * to CUgraphNodeParams, the one form that covers all types, and that is read. So a node's parameters are read in the
 * same way whether they come from the driver or are set by the program.
 *
 * Kernel nodes cannot be read on drivers that do not report kernel parameters (before 12.4, arguments.h).
 *
 * Measured (driver 580): cuGraphKernelNodeGetParams_v2 always returns a function, also for a node made from a CUkernel,
 * and either kernelParams or extra, as the node was made; 1D copies have no pitch; cuGraphGetNodes refuses an array if
 * the graph has no nodes.
 */
#include "shim/submit/graph_read.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/heap/arena.h"
#include "shim/heap/migration.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/submit/arguments.h"
#include "shim/submit/submission.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 16 /* nesting of child graphs */
#define FIRST_ROOM 64 /* names; sets grow by doubling */

/* ---- sets of names ---- */

/* Each set is one allocation: an array of names, and behind it an open-addressing hash table of indexes. */

struct graph_names *graph_names_new(size_t room)
{
	struct graph_names *names;
	size_t n_slots = 16;

	if (room > GRAPH_NAMES_MOST)
		return NULL;
	while (n_slots < 2 * room)
		n_slots *= 2;
	/* One allocation: the slots lie behind the names. */
	names = calloc(1, sizeof(*names) + room * sizeof(names->at[0]) + n_slots * sizeof(names->slots[0]));
	if (!names)
		return NULL;
	atomic_init(&names->references, 1);
	names->room = room;
	names->slots = (uint32_t *)&names->at[room];
	names->n_slots = n_slots;
	return names;
}

void graph_names_hold(struct graph_names *names)
{
	atomic_fetch_add_explicit(&names->references, 1, memory_order_relaxed);
}

void graph_names_drop(struct graph_names *names)
{
	if (names && atomic_fetch_sub_explicit(&names->references, 1, memory_order_acq_rel) == 1)
		free(names);
}

/* Returns the slot of this name, or the free slot where it would go. The table always has a free slot. */
static uint32_t *slot_of(const struct graph_names *names, CUdeviceptr address, CUdeviceptr from, bool reach_known)
{
	size_t at = (size_t)(((address ^ from) * 2 + reach_known) * UINT64_C(0x9e3779b97f4a7c15) >> 32);

	for (;; at++) {
		uint32_t *slot = &names->slots[at & (names->n_slots - 1)];
		const struct graph_name *name = *slot ? &names->at[*slot - 1] : NULL;

		if (!name ||
		    (name->address == address && name->from == from && (atomic_load(&name->bytes) != 0) == reach_known))
			return slot;
	}
}

/* Returns the name, which is added without uses if the set has none; NULL if the set is full. */
static struct graph_name *find_or_add(struct graph_names *names, CUdeviceptr address, size_t bytes, CUdeviceptr from)
{
	size_t n = atomic_load_explicit(&names->n, memory_order_relaxed);
	uint32_t *slot = slot_of(names, address, from, bytes != 0);

	if (*slot) {
		struct graph_name *name = &names->at[*slot - 1];

		if (bytes > atomic_load_explicit(&name->bytes, memory_order_relaxed))
			atomic_store_explicit(&name->bytes, bytes, memory_order_relaxed);
		return name;
	}
	if (n == names->room)
		return NULL;
	names->at[n].address = address;
	names->at[n].from = from;
	atomic_store_explicit(&names->at[n].bytes, bytes, memory_order_relaxed);
	*slot = (uint32_t)n + 1;
	/* From here on readers see the new name. */
	atomic_store_explicit(&names->n, n + 1, memory_order_release);
	return &names->at[n];
}

/*
 * Adds a name, or extends the reach of one that is in the set, and counts the present node as one that uses it: once,
 * however often it names it. Returns false if the set is full.
 */
static bool graph_names_add(struct graph_names *names, CUdeviceptr address, size_t bytes, CUdeviceptr from)
{
	struct graph_name *name = find_or_add(names, address, bytes, from);

	if (!name)
		return false;
	if (!atomic_load_explicit(&name->uses, memory_order_relaxed) || name->node != names->node)
		atomic_fetch_add_explicit(&name->uses, 1, memory_order_relaxed);
	name->node = names->node;
	return true;
}

bool graph_names_merge(struct graph_names *names, const struct graph_names *more)
{
	size_t n = atomic_load_explicit(&more->n, memory_order_acquire);
	bool fitted = true;

	for (size_t i = 0; i < n; i++) {
		uint32_t uses = atomic_load_explicit(&more->at[i].uses, memory_order_relaxed);
		struct graph_name *name =
		    find_or_add(names, more->at[i].address, atomic_load(&more->at[i].bytes), more->at[i].from);

		if (name && uses > atomic_load_explicit(&name->uses, memory_order_relaxed))
			atomic_store_explicit(&name->uses, uses, memory_order_relaxed);
		fitted &= name != NULL;
	}
	return fitted;
}

static struct graph_names *graph_names_larger(const struct graph_names *names)
{
	size_t room = 2 * names->room;
	struct graph_names *copy;

	if (room > GRAPH_NAMES_MOST && names->room < GRAPH_NAMES_MOST)
		room = GRAPH_NAMES_MOST;
	copy = graph_names_new(room);
	if (!copy)
		return NULL;
	graph_names_merge(copy, names);
	copy->node = names->node;
	for (size_t i = 0; i < names->n; i++)
		copy->at[i].node = names->at[i].node;
	return copy;
}

/*
 * As graph_names_add(), but moves the names to a larger set if this one is full. The caller must hold the only
 * reference. Returns false if that fails.
 */
static bool graph_names_grow(struct graph_names **names, CUdeviceptr address, size_t bytes, CUdeviceptr from)
{
	struct graph_names *more;

	if (graph_names_add(*names, address, bytes, from))
		return true;
	more = graph_names_larger(*names);
	if (!more)
		return false;
	graph_names_drop(*names);
	*names = more;
	return graph_names_add(more, address, bytes, from);
}

/* ---- reading ---- */

struct reading {
	struct graph_names *names;
	uint64_t number;
	bool failed, overlaps;
};

static bool read_graph(struct reading *reading, CUgraph graph, unsigned depth);

static void graph_read_mix(struct reading *reading, uint64_t value)
{
	reading->number = (reading->number ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	reading->number ^= reading->number >> 29;
}

/* The block, or the address space that it was placed in, is alive as a whole. */
void graph_read_distrust(CUdeviceptr address)
{
	struct device *device = device_of(address);
	const struct arena *arena = device ? heap_arena(atomic_load(&device->heap)) : NULL;
	CUdeviceptr block;
	uint64_t bytes;

	if (arena && arena_bounds(arena, address, &block, &bytes))
		lifetimes_distrust(arena->lifetimes, address, block, bytes);
}

/* Adds a name; values that cannot be a device address are left out. from: struct graph_name. */
static void name_copied(struct reading *reading, CUdeviceptr value, size_t bytes, CUdeviceptr from)
{
	CUdeviceptr address = submission_pointer(value);

	if (address && !graph_names_grow(&reading->names, address, bytes, from))
		reading->failed = true;
	graph_read_distrust(address);
}

static void graph_read_name(struct reading *reading, CUdeviceptr value, size_t bytes)
{
	name_copied(reading, value, bytes, 0);
}

/* ---- kernels ---- */

/* A parameter that is missing: such a node does not come from the driver. */
static inline void name_word(void *argument, const char *at)
{
	struct reading *reading = argument;
	uint64_t word;

	reading->failed |= !at;
	if (!at)
		return;
	memcpy(&word, at, sizeof(word));
	graph_read_name(reading, word, 0);
}

static bool read_kernel(struct reading *reading, const CUDA_KERNEL_NODE_PARAMS_v3 *p)
{
	CUfunction function = p->func ? p->func : (CUfunction)p->kern;
	const char *buffer;
	size_t bytes;

	graph_read_mix(reading, (uintptr_t)function);
	if (!p->extra)
		return kernel_params_each(function, p->kernelParams, name_word, reading);
	if (!kernel_params_buffer(p->extra, &buffer, &bytes) || !buffer)
		return false;
	for (size_t at = 0; at + 8 <= bytes; at += 8)
		name_word(reading, buffer + at);
	return true;
}

/* ---- copies, sets, values ---- */

/*
 * Finds the range of one side of a copy; 0 bytes: its reach is unknown. Returns false for an array: the driver holds the
 * memory of arrays, never a heap. Host addresses are named too: that is harmless, and memory that the program declares
 * as host memory may be in a heap.
 */
static bool range_of(CUmemorytype type, const void *host, CUdeviceptr device, struct copy_extent_place place,
		     const struct copy_extent *extent, CUdeviceptr *ret_first, size_t *ret_bytes)
{
	*ret_first = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device;
	if (!copy_extent_range(*ret_first, &place, extent, ret_first, ret_bytes))
		*ret_bytes = 0;
	return type != CU_MEMORYTYPE_ARRAY;
}

/* What the host has written by the time of a launch, that copies: if it has no gaps, it is searched for pointers. */
static void read_copy(struct reading *reading, const CUDA_MEMCPY3D *copy)
{
	struct copy_extent extent = {copy->WidthInBytes, copy->Height, copy->Depth};
	struct copy_extent_place src = {copy->srcXInBytes, copy->srcY, copy->srcZ, copy->srcPitch, copy->srcHeight};
	struct copy_extent_place dst = {copy->dstXInBytes, copy->dstY, copy->dstZ, copy->dstPitch, copy->dstHeight};
	CUdeviceptr from = 0, to;
	size_t bytes = 0, to_bytes;

	if (!extent.width || !extent.height || !extent.depth)
		return;
	if (range_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice, src, &extent, &from, &bytes))
		graph_read_name(reading, from, bytes);
	else
		bytes = 0;
	if (!range_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice, dst, &extent, &to, &to_bytes))
		return;
	bool run = bytes == extent.width * extent.height * extent.depth && to_bytes == bytes;
	name_copied(reading, to, to_bytes, run ? from : 0);
}

static void read_set(struct reading *reading, const CUDA_MEMSET_NODE_PARAMS_v2 *set)
{
	struct copy_extent_place place = {.pitch = set->pitch};
	struct copy_extent extent = {.height = set->height, .depth = 1};
	CUdeviceptr first = set->dst;
	size_t bytes;

	if (!set->width || !set->height)
		return;
	if (__builtin_mul_overflow(set->width, (size_t)set->elementSize, &extent.width) ||
	    !copy_extent_range(set->dst, &place, &extent, &first, &bytes))
		bytes = 0;
	graph_read_name(reading, first, bytes);
}

static bool read_values(struct reading *reading, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *batch)
{
	for (unsigned i = 0; i < batch->count; i++) {
		CUdeviceptr address;
		size_t bytes;
		uint64_t word;

		if (!memory_operation(&batch->paramArray[i], &address, &bytes, &word))
			return false;
		if (bytes)
			graph_read_name(reading, address, bytes);
		/* If it is an address, what reads it there names nothing. */
		graph_read_name(reading, word, 0);
	}
	return true;
}

/* ---- nodes ---- */

static bool read_params(struct reading *reading, const CUgraphNodeParams *params, unsigned depth)
{
	graph_read_mix(reading, (uint64_t)params->type);
	graph_names_next_node(reading->names);
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return read_kernel(reading, &params->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		read_copy(reading, &params->memcpy.copyParams);
		return true;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		read_set(reading, &params->memset);
		return true;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return read_values(reading, &params->memOp);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return read_graph(reading, params->graph.graph, depth + 1);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC: /* memory of graph allocations belongs to the driver */
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
	case CU_GRAPH_NODE_TYPE_HOST:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return true;
	default: /* CONDITIONAL, whose bodies drivers of CUDA 13.0 do not report; types unknown to this code */
		return false;
	}
}

/* Other kernels may change the parameters of such a node, so what is read from it is not reliable. */
static bool is_device_updatable(CUgraphNode node)
{
	CUkernelNodeAttrValue value = {0};

	return REAL(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) !=
		   CUDA_SUCCESS ||
	       value.deviceUpdatableKernelNode.deviceUpdatable;
}

static bool ask_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v3 *ret)
{
	CUDA_KERNEL_NODE_PARAMS p = {0};

	if (is_device_updatable(node) || REAL(cuGraphKernelNodeGetParams_v2)(node, &p) != CUDA_SUCCESS)
		return false;
	*ret = (CUDA_KERNEL_NODE_PARAMS_v3){
	    .func = p.func, .kern = p.kern, .kernelParams = p.kernelParams, .extra = p.extra};
	return true;
}

static bool ask_set(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS_v2 *ret)
{
	CUDA_MEMSET_NODE_PARAMS p = {0};

	if (REAL(cuGraphMemsetNodeGetParams)(node, &p) != CUDA_SUCCESS)
		return false;
	*ret = (CUDA_MEMSET_NODE_PARAMS_v2){
	    .dst = p.dst, .pitch = p.pitch, .elementSize = p.elementSize, .width = p.width, .height = p.height};
	return true;
}

static bool ask_values(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *ret)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = {0};

	if (REAL(cuGraphBatchMemOpNodeGetParams)(node, &p) != CUDA_SUCCESS || (p.count && !p.paramArray))
		return false;
	*ret = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){.count = p.count, .paramArray = p.paramArray};
	return true;
}

static bool graph_read_ask(CUgraphNode node, CUgraphNodeParams *ret)
{
	if (REAL(cuGraphNodeGetType)(node, &ret->type) != CUDA_SUCCESS)
		return false;
	switch (ret->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return ask_kernel(node, &ret->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return REAL(cuGraphMemcpyNodeGetParams)(node, &ret->memcpy.copyParams) == CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return ask_set(node, &ret->memset);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return ask_values(node, &ret->memOp);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return REAL(cuGraphChildGraphNodeGetGraph)(node, &ret->graph.graph) == CUDA_SUCCESS;
	default: /* there is nothing more to query, or the node cannot be read */
		return true;
	}
}

static bool read_nodes(struct reading *reading, const CUgraphNode *nodes, size_t n, unsigned depth)
{
	for (size_t i = 0; i < n; i++) {
		CUgraphNodeParams params;

		memset(&params, 0, sizeof(params));
		if (!graph_read_ask(nodes[i], &params) || !read_params(reading, &params, depth) || reading->failed)
			return false;
	}
	return true;
}

static bool read_graph(struct reading *reading, CUgraph graph, unsigned depth)
{
	CUgraphNode *nodes;
	size_t n = 0;
	bool good;

	if (depth > MOST_DEPTH || REAL(cuGraphGetNodes)(graph, NULL, &n) != CUDA_SUCCESS)
		return false;
	graph_read_mix(reading, n);
	if (!n)
		return true;
	reading->overlaps |= pdl_graph_overlaps(graph);
	nodes = calloc(n, sizeof(*nodes));
	if (!nodes)
		return false;
	good = REAL(cuGraphGetNodes)(graph, nodes, &n) == CUDA_SUCCESS && read_nodes(reading, nodes, n, depth);
	free(nodes);
	return good;
}

/* ---- whole graphs ---- */

static bool graph_read_begin(struct reading *reading)
{
	*reading = (struct reading){.names = graph_names_new(FIRST_ROOM)};
	return reading->names;
}

static struct graph_names *graph_read_end(struct reading *reading, bool good)
{
	if (good && !reading->failed)
		return reading->names;
	lifetimes_distrust_all(); /* what it names is not known */
	graph_names_drop(reading->names);
	return NULL;
}

struct graph_names *graph_read(CUgraph graph, uint64_t *ret_number, bool *ret_overlaps)
{
	struct reading reading;
	struct graph_names *names =
	    graph_read_begin(&reading) ? graph_read_end(&reading, read_graph(&reading, graph, 0)) : NULL;

	*ret_number = reading.number;
	*ret_overlaps = reading.overlaps;
	return names;
}

struct graph_names *graph_read_params(const CUgraphNodeParams *params)
{
	struct reading reading;

	return graph_read_begin(&reading) ? graph_read_end(&reading, read_params(&reading, params, 0)) : NULL;
}
