// SPDX-License-Identifier: Apache-2.0
/*
 * sim_graph_memory.c: memory of graphs. An allocation node has its address, and in this model its memory too, from the
 * moment it is made until the last graph and the last instance that has it ends; between launches it is nobody's. What
 * ended graphs had stays reserved for others, counted against the device, until cuDeviceGraphMemTrim.
 *
 * An allocation that runs while it is live, and a free of what is not, break a rule: the driver refuses such launches.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"

static struct sim_graph_memory *all; /* ever made */

static size_t rounded(const struct sim_graph_memory *memory)
{
	return (memory->bytes + 511) & ~(size_t)511;
}

static void note_high(struct sim_graph_use *use)
{
	size_t reserved = use->made + use->cached;

	if (use->used > use->used_high)
		use->used_high = use->used;
	if (reserved > use->reserved_high)
		use->reserved_high = reserved;
}

static void set_cached(int device, size_t bytes)
{
	sim.device[device].used += bytes - sim.device[device].graphs.cached;
	sim.device[device].graphs.cached = bytes;
}

static void run_alloc(struct sim_work *work)
{
	struct sim_graph_memory *memory = work->memory;
	struct sim_graph_use *use = &sim.device[memory->device].graphs;

	sim_lock();
	if (memory->live)
		sim_break_rule("an allocation node ran again before its memory was freed");
	else
		use->used += rounded(memory);
	memory->live = true;
	note_high(use);
	sim_unlock();
}

void sim_graph_memory_free(struct sim_graph_memory *memory)
{
	if (!memory->live)
		sim_break_rule("memory of a graph was freed that is not allocated");
	else
		sim.device[memory->device].graphs.used -= rounded(memory);
	memory->live = false;
}

static void run_free(struct sim_work *work)
{
	sim_lock();
	sim_graph_memory_free(work->memory);
	sim_unlock();
}

CUresult sim_graph_alloc_work(struct sim_work **ret_work, size_t bytes)
{
	struct sim_graph_memory *memory;
	struct sim_block *block;
	int device = sim_context()->device;
	struct sim_graph_use *use = &sim.device[device].graphs;
	size_t wanted = (bytes + 511) & ~(size_t)511;

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	set_cached(device, use->cached > wanted ? use->cached - wanted : 0);
	CUresult result = sim_block_make(&block, bytes, device, SIM_BLOCK_ASYNC);
	if (result)
		return result;
	memory = calloc(1, sizeof(*memory));
	*memory = (struct sim_graph_memory){.block = block, .bytes = bytes, .device = device, .next = all};
	all = memory;
	block->graph = memory;
	use->made += rounded(memory);
	note_high(use);
	*ret_work = sim_work_new("an allocation node", CU_GRAPH_NODE_TYPE_MEM_ALLOC, run_alloc);
	(*ret_work)->memory = memory;
	return CUDA_SUCCESS;
}

CUresult sim_graph_free_work(struct sim_work **ret_work, CUdeviceptr address)
{
	struct sim_block *block = sim_block_at(address);

	if (!block || !block->graph || block->range.start != address)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx is not memory of a graph", address);
	*ret_work = sim_work_new("a free node", CU_GRAPH_NODE_TYPE_MEM_FREE, run_free);
	(*ret_work)->memory = block->graph;
	return CUDA_SUCCESS;
}

static struct sim_graph_memory *memory_of(const struct sim_work *work)
{
	bool has = work && (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || work->type == CU_GRAPH_NODE_TYPE_MEM_FREE);

	return has ? work->memory : NULL;
}

bool sim_graph_memory_ref(const struct sim_work *work)
{
	struct sim_graph_memory *memory = memory_of(work);

	if (memory)
		memory->references++;
	return memory;
}

/* Structs stay, as all handles of this model do: work that was launched may still point to them. */
void sim_graph_memory_unref(const struct sim_work *work)
{
	struct sim_graph_memory *memory = memory_of(work);

	if (!memory || --memory->references)
		return;
	sim.device[memory->device].graphs.made -= rounded(memory);
	if (memory->live)
		sim.device[memory->device].graphs.used -= rounded(memory);
	memory->live = false;
	if (!memory->block)
		return;
	memory->block->graph = NULL;
	sim_block_drop(memory->block);
	memory->block = NULL;
	set_cached(memory->device, sim.device[memory->device].graphs.cached + rounded(memory));
}

/* ---- questions ---- */

static CUresult trim(CUdevice device)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	set_cached(device, 0);
	return CUDA_SUCCESS;
}

static CUresult get_attribute(CUdevice device, CUgraphMem_attribute which, void *ret_value)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!ret_value || which > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	const struct sim_graph_use *use = &sim.device[device].graphs;
	const size_t values[] = {use->used, use->used_high, use->made + use->cached, use->reserved_high};
	*(cuuint64_t *)ret_value = values[which];
	return CUDA_SUCCESS;
}

static CUresult set_attribute(CUdevice device, CUgraphMem_attribute which, const void *value)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value || *(const cuuint64_t *)value)
		return CUDA_ERROR_INVALID_VALUE;
	struct sim_graph_use *use = &sim.device[device].graphs;
	if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
		use->used_high = use->used;
	else if (which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		use->reserved_high = use->made + use->cached;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

SPELL_FREE(cuDeviceGraphMemTrim, (CUdevice device), trim(device))
SPELL_FREE(cuDeviceGetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute which, void *value),
	   get_attribute(device, which, value))
SPELL_FREE(cuDeviceSetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute which, void *value),
	   set_attribute(device, which, value))
