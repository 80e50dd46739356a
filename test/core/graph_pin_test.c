// SPDX-License-Identifier: Apache-2.0
/*
 * graph_pin_test.c: what is held for a change of a graph, and how long that may take, by a heap_pin() of the test's own
 * (CMakeLists.txt).
 */
#include "test/core/core.h"

#include "shim/serve/named.h"

enum { N = 20 };

static unsigned n_pins, n_ends, lasting; /* the pin that waits in vain, from 1; 0: none */
static CUdeviceptr pinned;               /* the latest, and how much */
static size_t pinned_bytes;

bool __wrap_heap_pin(struct heap *heap, CUdeviceptr address, size_t bytes);
void __wrap_heap_pin_end(struct heap *heap, CUdeviceptr address, size_t bytes, enum pin_end end);

bool __wrap_heap_pin(struct heap *heap, CUdeviceptr address, size_t bytes)
{
	pinned = address;
	pinned_bytes = bytes;
	return ++n_pins != lasting;
}

void __wrap_heap_pin_end(struct heap *heap, CUdeviceptr address, size_t bytes, enum pin_end end)
{
	(void)heap, (void)address, (void)bytes, (void)end;
	n_ends++;
}

/* Sets of as many blocks; returns how many were held when the call would be made again. */
static unsigned held_of_sets(unsigned in_vain)
{
	CUDA_MEMSET_NODE_PARAMS set = {.elementSize = 1, .width = 16, .height = 1};
	CUdeviceptr block[N];
	struct graph_pin hold;
	CUgraphNode node;
	CUgraph graph;
	unsigned held = 0;

	n_pins = n_ends = 0;
	CUcontext context = core_current();
	assert_ok(cuGraphCreate(&graph, 0));
	for (unsigned i = 0; i < N; i++) {
		assert_ok(cuMemAlloc_v2(&block[i], 2 * MIB));
		set.dst = block[i] + 512;
		assert_ok(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context));
	}
	lasting = in_vain;
	if (graph_pin_sets(&hold, CUDA_ERROR_INVALID_VALUE, graph)) {
		held = (unsigned)hold.n;
		graph_pin_end(&hold);
	}
	assert_int_equal(n_ends, held);
	assert_ok(cuGraphDestroy(graph));
	for (unsigned i = 0; i < N; i++)
		assert_ok(cuMemFree_v2(block[i]));
	return held;
}

TEST(all_that_sets_name_is_held)
{
	assert_int_equal(held_of_sets(0), N);
	assert_int_equal(n_pins, N);
}

/* Each would take a second: a GPU that is stuck would keep the program for as many as its graph has sets. */
TEST(it_waits_in_vain_once)
{
	assert_int_equal(held_of_sets(3), 2);
	assert_int_equal(n_pins, 3);
	assert_int_equal(held_of_sets(1), 0);
	assert_int_equal(n_pins, 1);
}

/* Handles that the program has mapped there are blocks of their own. */
TEST(of_a_copy_that_begins_further_on_all_is_held)
{
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstMemoryType = CU_MEMORYTYPE_HOST,
			      .srcXInBytes = 7,
			      .srcY = 3,
			      .srcZ = 5,
			      .srcPitch = 1024,
			      .srcHeight = 100,
			      .WidthInBytes = 16,
			      .Height = 2,
			      .Depth = 2};
	struct graph_pin hold;

	lasting = 0;
	CUdeviceptr block = core_alloc(2 * MIB);
	copy.srcDevice = block;
	assert_true(graph_pin_copy(&hold, CUDA_ERROR_INVALID_VALUE, &copy));
	graph_pin_end(&hold);
	assert_in_range(pinned, block, block + (5 * 100 + 3) * 1024 + 7);
	assert_in_range(pinned + pinned_bytes, block + (6 * 100 + 4) * 1024 + 7 + 16, block + 2 * MIB);
	assert_ok(cuMemFree_v2(block));
}

CORE_START("SIM_MEMORY=256MiB")
