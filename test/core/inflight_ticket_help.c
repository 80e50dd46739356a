// SPDX-License-Identifier: Apache-2.0
#include "test/core/inflight_ticket_help.h"

CUcontext ticket_context;
struct engine *ticket_engine;
static struct device device;
struct arena *ticket_arena;
CUdeviceptr ticket_block, ticket_other;

struct block_state *ticket_mark(CUdeviceptr address)
{
	return &ticket_arena->block_states[(arena_look(ticket_arena, address) & ~ARENA_SLAB) - 1];
}

uint32_t ticket_unit(CUdeviceptr address)
{
	return (uint32_t)(ticket_mark(address) - ticket_arena->block_states);
}

bool ticket_is_out_for(CUdeviceptr address, uint64_t done)
{
	CHECK(engine_hears_all(ticket_engine));
	return inflight_has(ticket_engine->inflight, ticket_unit(address), done);
}

void ticket_empty_log(void)
{
	struct named named;
	uint64_t function;
	unsigned n;

	while (engine_read_log(ticket_engine, &function, &named, 1, &n))
		;
}

struct submission *ticket_open(CUdeviceptr address)
{
	struct submission *use = submission_open(HOOK_cuMemsetD8Async);

	CHECK(use);
	submission_name(use, address, 0);
	submission_name(use, address + 4096, 4096);
	return use;
}

uint64_t ticket_submit(CUdeviceptr address)
{
	struct submission *use = ticket_open(address);

	submission_close(use, admit(use));
	return completion_newest();
}

static struct core_heap own_heap;
static struct heap_grant grants[2];

static CUdeviceptr allocate(struct heap_grant *grant)
{
	CHECK(heap_alloc(own_heap.heap, HEAP_UNIT, CHUNK_MOVABLE, HEAP_DEVICE, grant) == SW_OK);
	return grant->address;
}

int ticket_set_up(void **state)
{
	core_driver();
	ticket_context = core_context();
	core_heap_open(&own_heap, 64 * MIB, 64 * MIB, 0);
	ticket_engine = core_engine(&own_heap, &device, false);
	ticket_arena = heap_arena(own_heap.heap);
	assert_true(submission_add_arena(ticket_arena, &ticket_engine->channel));
	ticket_block = allocate(&grants[0]);
	ticket_other = allocate(&grants[1]);
	submission_set_tracking(true, true);
	return 0;
}

int ticket_tear_down(void **state)
{
	submission_set_tracking(false, false);
	for (unsigned i = 0; i < 2; i++)
		heap_free(own_heap.heap, grants[i].block, grants[i].address);
	return 0;
}
