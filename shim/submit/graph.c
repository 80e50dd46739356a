// SPDX-License-Identifier: Apache-2.0
/*
 * graph.c: the table of graph instances and the names of each (graph.h). Reading a graph queries the driver and
 * allocates, so it is done before GRAPH is taken. A launch takes a reference to the set of names under GRAPH and names
 * its addresses without the lock.
 *
 * The driver's answer for each type of node is converted to CUgraphNodeParams, the one form that covers all types, and
 * that is read. So a node's parameters are read in the same way whether they come from the driver or are set by the
 * program.
 *
 * Kernel nodes cannot be read on drivers that do not report kernel parameters (before 12.4).
 *
 * Measured (driver 580): cuGraphKernelNodeGetParams_v2 always returns a function, also for a node made from a CUkernel,
 * and either kernelParams or extra, as the node was made; 1D copies have no pitch; cuGraphGetNodes refuses an array if
 * the graph has no nodes.
 *
 * Reading takes no lock. It may be done while streams capture: queries about graphs do not disturb a capture.
 * Measured (driver 580): with the capture on another thread and on this one, in global mode.
 */
#include "shim/submit/graph.h"
#include "shim/base/libc.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/stats/stats.h"
#include "shim/submit/pointer_arrays.h"
#include "shim/submit/types.h"

#include <string.h>

#define MOST_DEPTH 16 /* nesting of child graphs */
#define FIRST_NEED 32 /* names; sets grow by doubling */

/* ---- sets of names ---- */

/* Each set is one allocation: an array of names, and behind it an open-addressing hash table of indexes. */

/*
 * Makes an empty set with one reference, and with room for twice as many names as are needed, as far as a set may have
 * them. Returns NULL if memory is short or a set may not have so many.
 */
static struct graph_names *graph_names_new(size_t need)
{
	size_t n_slots = 16, room = 2 * need < GRAPH_NAMES_MOST ? 2 * need : GRAPH_NAMES_MOST;
	struct graph_names *names;

	if (need > GRAPH_NAMES_MOST)
		return NULL;
	while (n_slots < 2 * room)
		n_slots *= 2;
	names = calloc(1, sizeof(*names) + room * sizeof(names->at[0]) + n_slots * sizeof(names->slots[0]));
	if (!names)
		return NULL;
	atomic_init(&names->references, 1);
	names->room = room;
	names->slots = (uint32_t *)&names->at[room];
	names->n_slots = n_slots;
	return names;
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
 * Adds all names of another set. A name that is in both gets the greater number of uses, not the sum: the nodes of the
 * other set may be the same ones, with parameters that were set again. Returns false if some did not fit; those that
 * fitted stay. All fit if room - n is at least the other set's n.
 */
static bool graph_names_merge(struct graph_names *names, const struct graph_names *more)
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
	struct graph_names *copy = graph_names_new(names->room + 1);

	if (!copy)
		return NULL;
	graph_names_merge(copy, names);
	copy->node = names->node;
	for (size_t i = 0; i < names->n; i++)
		copy->at[i].node = names->at[i].node;
	return copy;
}

/*
 * Adds a name, or extends the reach of one that is in the set, and counts the present node as one that uses it: once,
 * however often it names it. Moves the names to a larger set if this one is full; the caller must hold the only
 * reference. Returns false if that fails.
 */
static bool graph_names_add(struct graph_names **names, CUdeviceptr address, size_t bytes, CUdeviceptr from)
{
	struct graph_name *name = find_or_add(*names, address, bytes, from);

	if (!name) {
		struct graph_names *more = graph_names_larger(*names);

		if (!more)
			return false;
		graph_names_drop(*names);
		*names = more;
		name = find_or_add(more, address, bytes, from);
	}
	if (!atomic_load_explicit(&name->uses, memory_order_relaxed) || name->node != (*names)->node)
		atomic_fetch_add_explicit(&name->uses, 1, memory_order_relaxed);
	name->node = (*names)->node;
	return true;
}

/* ---- reading ---- */

/*
 * Returns true if kernels of the graph may overlap, because it has programmatic edges. Child graphs are not examined.
 * Queries the driver.
 */
static bool graph_overlaps(CUgraph graph)
{
	bool found = false;
	size_t n = 0;

	/* A driver without edge data (before CUDA 12.3) has no programmatic edges. */
	if (!real_has(HOOK_cuGraphGetEdges_v2) ||
	    REAL(cuGraphGetEdges_v2)(graph, NULL, NULL, NULL, &n) != CUDA_SUCCESS || !n)
		return false;
	CUgraphNode *nodes = calloc(2 * n, sizeof(*nodes)); /* n nodes where edges begin, then n where they end */
	CUgraphEdgeData *edges = calloc(n, sizeof(*edges));
	if (nodes && edges && REAL(cuGraphGetEdges_v2)(graph, nodes, nodes + n, edges, &n) == CUDA_SUCCESS)
		for (size_t i = 0; i < n && !found; i++)
			found = edges[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
	free(nodes);
	free(edges);
	return found;
}

struct reading {
	struct graph_names *names;
	uint64_t number; /* equal for graphs that run the same functions in the same order of nodes */
	bool failed;
	bool overlaps; /* kernels of the nodes that were read may overlap (arguments.h) */
};

static bool read_graph(struct reading *reading, CUgraph graph, unsigned depth);

static void mix(struct reading *reading, uint64_t value)
{
	reading->number = (reading->number ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	reading->number ^= reading->number >> 29;
}

/*
 * What a graph uses at its launches is alive until it is freed, the block or the address space that it was placed in as
 * a whole: no births and deaths say when.
 */
static void distrust(CUdeviceptr address)
{
	struct device *device = device_of(address);
	const struct arena *arena = device ? heap_arena(atomic_load(&device->heap)) : NULL;
	CUdeviceptr block;
	uint64_t bytes;

	if (arena && arena_bounds(arena, address, &block, &bytes))
		lifetimes_distrust(arena->lifetimes, address, block, bytes);
}

/* Adds a name; values that cannot be a device address are left out. from: struct graph_name. */
static void add_name(struct reading *reading, CUdeviceptr value, size_t bytes, CUdeviceptr from)
{
	CUdeviceptr address = submission_pointer(value);

	if (address && !graph_names_add(&reading->names, address, bytes, from))
		reading->failed = true;
	distrust(address);
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
	add_name(reading, word, 0, 0);
}

static bool read_kernel(struct reading *reading, const CUDA_KERNEL_NODE_PARAMS_v3 *p)
{
	CUfunction function = p->func ? p->func : (CUfunction)p->kern;
	const char *buffer;
	size_t bytes;

	mix(reading, (uintptr_t)function);
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
 * Finds the range of one side of a copy; 0 bytes: its reach is unknown. Returns false for an array: the driver holds
 * the memory of arrays, never a heap. Host addresses are named too: that is harmless, and memory that the program
 * declares as host memory may be in a heap.
 */
static bool range_of(CUmemorytype type, const void *host, CUdeviceptr device, struct copy_extent_place place,
		     const struct copy_extent *extent, CUdeviceptr *ret_first, size_t *ret_bytes)
{
	*ret_first = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device;
	if (!copy_extent_range(*ret_first, &place, extent, ret_first, ret_bytes))
		*ret_bytes = 0;
	return type != CU_MEMORYTYPE_ARRAY;
}

/* A launch copies what the host has written by then. If the copy has no gaps, its source is searched for pointers. */
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
		add_name(reading, from, bytes, 0);
	else
		bytes = 0;
	if (!range_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice, dst, &extent, &to, &to_bytes))
		return;
	bool run = bytes == extent.width * extent.height * extent.depth && to_bytes == bytes;
	add_name(reading, to, to_bytes, run ? from : 0);
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
	add_name(reading, first, bytes, 0);
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
			add_name(reading, address, bytes, 0);
		/* If it is an address, what reads it there names nothing. */
		add_name(reading, word, 0, 0);
	}
	return true;
}

/* ---- nodes ---- */

static bool read_params(struct reading *reading, const CUgraphNodeParams *params, unsigned depth)
{
	mix(reading, (uint64_t)params->type);
	reading->names->node++; /* the names that are added from now on are those of this node */
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

static bool ask_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v3 *ret)
{
	CUkernelNodeAttrValue value = {0};
	CUDA_KERNEL_NODE_PARAMS p = {0};

	/* What is read of a node that other kernels may update is not reliable. */
	if (REAL(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) !=
		CUDA_SUCCESS ||
	    value.deviceUpdatableKernelNode.deviceUpdatable ||
	    REAL(cuGraphKernelNodeGetParams_v2)(node, &p) != CUDA_SUCCESS)
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

static bool ask(CUgraphNode node, CUgraphNodeParams *ret)
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

static bool read_graph(struct reading *reading, CUgraph graph, unsigned depth)
{
	size_t n = 0;

	if (depth > MOST_DEPTH || REAL(cuGraphGetNodes)(graph, NULL, &n) != CUDA_SUCCESS)
		return false;
	mix(reading, n);
	if (!n)
		return true;
	reading->overlaps |= graph_overlaps(graph);
	CUgraphNode *nodes = calloc(n, sizeof(*nodes));
	if (!nodes)
		return false;
	bool good = REAL(cuGraphGetNodes)(graph, nodes, &n) == CUDA_SUCCESS;
	for (size_t i = 0; good && i < n; i++) {
		CUgraphNodeParams params;

		memset(&params, 0, sizeof(params));
		good = ask(nodes[i], &params) && read_params(reading, &params, depth) && !reading->failed;
	}
	free(nodes);
	return good;
}

/* ---- whole graphs ---- */

/*
 * Reads all nodes, including those of child graphs; or, without a graph, one node by parameters in the form in which
 * the program sets them. The caller must drop the names. They are NULL if a node cannot be read (a kernel node that can
 * be updated from the device, a conditional node, a type unknown to this code), if the driver fails, or if memory is
 * short.
 */
static struct reading graph_read(CUgraph graph, const CUgraphNodeParams *params)
{
	struct reading reading = {.names = graph_names_new(FIRST_NEED)};

	if (reading.names && (params ? read_params(&reading, params, 0) : read_graph(&reading, graph, 0)) &&
	    !reading.failed)
		return reading;
	lifetimes_distrust_all(); /* what it names is not known */
	graph_names_drop(reading.names);
	reading.names = NULL;
	return reading;
}

/* ---- instances ---- */

struct graph_exec {
	struct graph_exec *next; /* in the same bucket */
	CUgraphExec exec;
	CUcontext context;
	uint64_t number;
	bool sealed;               /* the device may launch it: always unknown, whatever it is updated to */
	struct graph_names *names; /* NULL if unknown */
};

unsigned graph_n_unknown(void)
{
	return atomic_load(&submit_tables.graph.n_unknown);
}

/* ---- fork: graphs may be counted before the first allocation, and the child of such a process starts again ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&submit_state.graph_lock.mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&submit_state.graph_lock.mutex);
}

/*
 * Registered here and not in lifecycle.c: the holder of GRAPH takes no further lock and waits for nothing, so the order
 * of the fork handlers does not matter.
 */
__attribute__((constructor)) static void graph_begin(void)
{
	libc_atfork(before_fork, after_fork, after_fork);
}

/* ---- the table, under GRAPH ---- */

static struct graph_exec **place_of(CUgraphExec exec)
{
	lock_assert_held(LOCK_GRAPH);
	struct graph_exec **at = &submit_tables.graph.buckets[(uintptr_t)exec * UINT64_C(0x9e3779b97f4a7c15) >> 54];

	while (*at && (*at)->exec != exec)
		at = &(*at)->next;
	return at;
}

static void count_locked(const struct graph_exec *entry, int by)
{
	atomic_fetch_add(&submit_tables.graph.n_unknown, entry->names ? 0 : by);
	atomic_fetch_add(&submit_tables.graph.n_sealed, entry->sealed ? by : 0);
}

static struct graph_exec *take_locked(struct graph_exec **at)
{
	struct graph_exec *entry = *at;

	if (!entry)
		return NULL;
	*at = entry->next;
	entry->next = NULL;
	count_locked(entry, -1);
	return entry;
}

/* Returns the previous names; the caller must drop them after it has dropped GRAPH. */
static struct graph_names *exchange_locked(struct graph_exec *entry, struct graph_names *names)
{
	struct graph_names *before = entry->names;

	atomic_fetch_add(&submit_tables.graph.n_unknown, !names - !before);
	entry->names = names;
	return before;
}

static void drop_entry(struct graph_exec *entry)
{
	if (entry)
		graph_names_drop(entry->names);
	free(entry);
}

/* ---- launches ---- */

static void name_pointer(struct submission *submission, CUdeviceptr address)
{
	submission_name(submission, address, 0);
	distrust(address);
}

/* First the copies, then what kernels find in the memory that they have filled. */
static void name_all(struct submission *submission, const struct graph_names *names)
{
	size_t n = atomic_load_explicit(&names->n, memory_order_acquire);

	for (size_t i = 0; i < n; i++) {
		const struct graph_name *name = &names->at[i];
		size_t bytes = atomic_load_explicit(&name->bytes, memory_order_relaxed);

		submission_name(submission, name->address, bytes);
		if (name->from)
			pointer_arrays_copied(submission, name->address, name->from, bytes);
	}
	for (size_t i = 0; i < n && atomic_load_explicit(&pointer_arrays_any, memory_order_relaxed); i++)
		if (!atomic_load_explicit(&names->at[i].bytes, memory_order_relaxed))
			pointer_arrays_look(submission, names->at[i].address, name_pointer);
}

void graph_operands(struct submission *submission, CUgraphExec exec)
{
	struct graph_names *names = NULL;
	uint64_t number = (uintptr_t)exec;

	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = *place_of(exec);
	if (entry) {
		number = entry->number;
		names = entry->names;
	}
	if (names)
		atomic_fetch_add_explicit(&names->references, 1, memory_order_relaxed);
	lock_drop(&submit_state.graph_lock);

	submission_function(submission, number);
	/* Only kernels of graphs may launch graphs that can be launched from the device. */
	if (!names || atomic_load_explicit(&submit_tables.graph.n_sealed, memory_order_relaxed))
		submission_unknown(submission);
	if (!names)
		return;
	name_all(submission, names);
	submission_graph(submission, names);
}

/* ---- instantiation and update ---- */

/* Replaces a stale entry: an instance whose end was not seen had the same handle, or this entry replaces it. */
static void graph_put(struct graph_exec *entry)
{
	lock_take(&submit_state.graph_lock);
	struct graph_exec **at = place_of(entry->exec), *stale = take_locked(at);
	entry->next = *at;
	*at = entry;
	count_locked(entry, 1);
	lock_drop(&submit_state.graph_lock);
	drop_entry(stale);
}

void graph_instantiated(CUgraphExec exec, CUgraph graph, cuuint64_t flags)
{
	struct graph_exec *entry = malloc(sizeof(*entry));
	bool sealed = flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
	CUcontext context = NULL;

	if (!entry) {
		/*
		 * Without an entry, launches treat the instance as unknown. Its end will not be noticed, so it counts
		 * as alive for good.
		 */
		drop_entry(graph_ending(exec));
		atomic_fetch_add(&submit_tables.graph.n_unknown, 1);
		atomic_fetch_add(&submit_tables.graph.n_sealed, sealed);
		return;
	}
	struct reading reading = graph_read(graph, NULL);
	if (reading.overlaps)
		stats_add(STAT_pdl_graphs, 1);
	/* Launches from the device are not seen, so its names are never used, although it can be read. */
	if (sealed) {
		graph_names_drop(reading.names);
		reading.names = NULL;
	}
	if (REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS)
		context = NULL;
	*entry = (struct graph_exec){
	    .exec = exec, .context = context, .number = reading.number, .sealed = sealed, .names = reading.names};
	graph_put(entry);
}

/* NULL: unknown. */
static void set_names(CUgraphExec exec, struct graph_names *names)
{
	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = *place_of(exec);
	if (entry && !entry->sealed)
		names = exchange_locked(entry, names);
	lock_drop(&submit_state.graph_lock);
	graph_names_drop(names);
}

/* It keeps the number of its first graph, and an update cannot change edges. */
void graph_updated(CUgraphExec exec, CUgraph graph)
{
	set_names(exec, graph_read(graph, NULL).names);
}

static bool is_known(CUgraphExec exec)
{
	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = *place_of(exec);
	bool known = entry && entry->names;
	lock_drop(&submit_state.graph_lock);
	return known;
}

/*
 * Adds names to an instance. Returns true if done. Returns false and sets *need if there is not enough room; the caller
 * must then try again with *larger, a set for *need names.
 */
static bool graph_add(CUgraphExec exec, const struct graph_names *more, struct graph_names **larger, size_t *need)
{
	struct graph_names *before = NULL;
	bool done = true;

	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = *place_of(exec);
	if (!entry || !entry->names || graph_names_merge(entry->names, more)) {
		/* gone, unknown by now, or all names fitted */
	} else if (*larger && graph_names_merge(*larger, entry->names) && graph_names_merge(*larger, more)) {
		before = exchange_locked(entry, *larger);
		*larger = NULL;
	} else {
		*need = entry->names->n + more->n;
		done = false;
	}
	lock_drop(&submit_state.graph_lock);
	graph_names_drop(before);
	return done;
}

void graph_set(CUgraphExec exec, const CUgraphNodeParams *params)
{
	struct graph_names *larger = NULL;
	size_t need = 0;

	if (!is_known(exec))
		return;
	struct graph_names *more = graph_read(NULL, params).names;
	if (!more) {
		set_names(exec, NULL);
		return;
	}
	while (!graph_add(exec, more, &larger, &need)) {
		graph_names_drop(larger);
		larger = graph_names_new(need);
		if (!larger) {
			set_names(exec, NULL);
			break;
		}
	}
	graph_names_drop(larger);
	graph_names_drop(more);
}

/* ---- ends ---- */

struct graph_exec *graph_ending(CUgraphExec exec)
{
	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = take_locked(place_of(exec));
	lock_drop(&submit_state.graph_lock);
	return entry;
}

void graph_ended(struct graph_exec *ending, bool gone)
{
	if (gone || !ending)
		drop_entry(ending);
	else
		graph_put(ending);
}

void graph_context_ended(CUcontext context)
{
	struct graph_exec *gone = NULL;

	if (!context)
		return;
	lock_take(&submit_state.graph_lock);
	for (size_t i = 0; i < GRAPH_BUCKETS; i++) {
		for (struct graph_exec **at = &submit_tables.graph.buckets[i]; *at;) {
			if ((*at)->context != context) {
				at = &(*at)->next;
				continue;
			}
			struct graph_exec *entry = take_locked(at);
			entry->next = gone;
			gone = entry;
		}
	}
	lock_drop(&submit_state.graph_lock);
	while (gone) {
		struct graph_exec *next = gone->next;

		drop_entry(gone);
		gone = next;
	}
}
