// SPDX-License-Identifier: Apache-2.0
/*
 * counted_test.c: memory that stays with the driver but is room the heap does not have: arrays, allocation nodes of
 * graphs, the program's own cuMemCreate.
 */
#include "test/core/core.h"
#include "test/ledger_check.h"

#include "shim/serve/account.h"
#include "shim/stats/stats.h"

static uint64_t live(enum place place)
{
	return atomic_load(&stats.live[place]);
}

static uint64_t charged(void)
{
	return atomic_load(&device_get(0)->budget.used);
}

AFTER_EACH
{
	struct heap *heap = atomic_load(&device_get(0)->heap);

	core_drain();
	assert_int_equal(ledger_n_rows(), 0);
	if (heap)
		heap_trim(heap, 0, 0);
	assert_int_equal(charged() + host_budget.used, 0);
	assert_int_equal(live(PLACE_DRIVER) + live(PLACE_HOST) + live(PLACE_PINNED), 0);
	assert_int_equal(sim_live().handles + sim_live().allocations + sim_live().arrays, 0);
	assert_int_equal(sim_broken_rules(), 0);
}

/* ---- arrays ---- */

TEST(an_arrays_bytes_are_read_from_its_descriptor)
{
	static const struct {
		CUDA_ARRAY3D_DESCRIPTOR about;
		unsigned levels;
		size_t bytes;
	} rows[] = {
	    {{1024, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 1, 4096},
	    {{1024, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0}, 1, 1024 * 64 * 4},
	    {{64, 64, 64, CU_AD_FORMAT_HALF, 2, 0}, 1, 64 * 64 * 64 * 4},
	    {{64, 64, 6, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_CUBEMAP}, 1, 64 * 64 * 6 * 16},
	    {{64, 64, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED}, 2, (64 * 64 + 32 * 32) * 5 * 4},
	    {{64, 64, 64, CU_AD_FORMAT_FLOAT, 1, 0}, 2, (64 * 64 * 64 + 32 * 32 * 32) * 4},
	    {{1024, 1024, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}, 1, 1024 * 1024 / 2},
	    {{1024, 1024, 0, CU_AD_FORMAT_BC7_UNORM, 4, 0}, 1, 1024 * 1024},
	    {{1024, 1024, 0, CU_AD_FORMAT_NV12, 3, 0}, 1, 1024 * 1024 * 3 / 2},
	    {{1024, 1024, 0, CU_AD_FORMAT_UNORM_INT16X4, 4, 0}, 1, 1024 * 1024 * 8},
	    {{1024, 1024, 0, (CUarray_format)0x7777, 2, 0}, 1, 1024 * 1024 * 8},
	    {{1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 1, 512},
	    {{1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE}, 1, 0},
	    {{1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_DEFERRED_MAPPING}, 1, 0},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(array_bytes(&rows[i].about, rows[i].levels), rows[i].bytes);
}

TEST(arrays_are_counted_with_the_drivers_memory_and_charged)
{
	CUDA_ARRAY_DESCRIPTOR plane = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
	CUDA_ARRAY3D_DESCRIPTOR solid = {128, 128, 64, CU_AD_FORMAT_FLOAT, 1, 0};
	CUmipmappedArray levels;
	CUarray one, two;

	assert_ok(cuArrayCreate_v2(&one, &plane));
	assert_int_equal(live(PLACE_DRIVER), 4 * MIB);
	assert_int_equal(charged(), 4 * MIB);
	assert_ok(cuArray3DCreate_v2(&two, &solid));
	assert_int_equal(charged(), 8 * MIB);
	solid = (CUDA_ARRAY3D_DESCRIPTOR){1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0};
	assert_ok(cuMipmappedArrayCreate(&levels, &solid, 99)); /* down to 1 x 1: a third more */
	assert_in_range(charged(), 8 * MIB + 16 * MIB / 3, 8 * MIB + 16 * MIB / 3 + 512);
	assert_int_equal(live(PLACE_DRIVER), charged());
	assert_ok(cuMipmappedArrayDestroy(levels));
	assert_ok(cuArrayDestroy(two));
	/* A destroy that fails leaves it counted. */
	sim_fail("cuArrayDestroy", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuArrayDestroy(one), CUDA_ERROR_UNKNOWN);
	assert_int_equal(charged(), 4 * MIB);
	assert_ok(cuArrayDestroy(one));
	assert_int_equal(charged(), 0);
}

TEST(an_array_takes_room_from_the_heap_and_the_heap_gives_it_room)
{
	CUDA_ARRAY_DESCRIPTOR plane = {4096, 4096, CU_AD_FORMAT_FLOAT, 1}; /* 64 MiB */
	CUarray array;

	CUdeviceptr address = core_alloc(60 * MIB);
	assert_ok(cuMemFree_v2(address)); /* warm now */
	sim_switch("MEMORY", 64 * MIB);
	assert_ok(cuArrayCreate_v2(&array, &plane));
	sim_switch("MEMORY", 256 * MIB);
	assert_ok(cuMemAlloc_v2(&address, 8 * MIB));
	assert_int_equal(core_pages_at(address, 8 * MIB, 'H'), 4);
	assert_ok(cuMemFree_v2(address));
	assert_ok(cuArrayDestroy(array));
}

TEST(an_array_ends_with_its_context)
{
	CUDA_ARRAY_DESCRIPTOR plane = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
	CUarray array;
	CUcontext context = core_new_context();

	assert_ok(cuArrayCreate_v2(&array, &plane));
	assert_int_equal(charged(), 4 * MIB);
	assert_ok(cuCtxDestroy_v2(context));
	assert_int_equal(charged(), 0);
}

/* ---- allocation nodes ---- */

TEST(allocation_nodes_are_counted_and_their_memory_charged)
{
	uint64_t before = stats_get(STAT_graph_allocations);
	CUDA_MEM_ALLOC_NODE_PARAMS one = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
					  .bytesize = 8 * MIB};
	CUgraphNodeParams two = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
	CUgraphNode node, first;
	CUdeviceptr told = 0;
	cuuint64_t bytes, zero = 0;
	CUgraph graph;

	assert_ok(cuGraphCreate(&graph, 0));
	assert_ok(cuGraphAddMemAllocNode(&first, graph, NULL, 0, &one));
	memcpy(&two.alloc, &one, sizeof(one));
	assert_ok(cuGraphAddNode(&node, graph, &first, 1, &two));
	assert_ok(cuGraphAddNode(&node, graph, &first, 1, &empty));
	assert_ok(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &two));
	assert_ok(cuGraphAddNode_v3(&node, graph, NULL, NULL, 0, &two));
	assert_int_equal(stats_get(STAT_graph_allocations), before + 4);
	assert_ok(cuGraphAddMemFreeNode(&node, graph, &first, 1, one.dptr));
	assert_ok(cuGraphMemFreeNodeGetParams(node, &told));
	assert_int_equal(told, one.dptr);
	assert_int_equal(cuGraphAddMemFreeNode(&node, graph, NULL, 0, one.dptr + 512), CUDA_ERROR_INVALID_VALUE);
	CUdeviceptr other = core_alloc(4 * MIB);
	assert_int_equal(device_get(0)->pools_charged, 32 * MIB);
	assert_ok(cuMemFree_v2(other));
	assert_ok(cuGraphDestroy(graph));
	assert_ok(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
	assert_int_equal(bytes, 32 * MIB);
	assert_ok(cuDeviceGraphMemTrim(0));
	assert_ok(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
	assert_ok(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &bytes));
	assert_int_equal(bytes, 0);
	assert_ok(cuMemAlloc_v2(&other, 4 * MIB));
	assert_int_equal(device_get(0)->pools_charged, 0);
	assert_ok(cuMemFree_v2(other));
}

/* ---- the program's own cuMemCreate ---- */

static CUmemAllocationProp on_device(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

	prop.allocFlags.gpuDirectRDMACapable = 1;
	return prop;
}

static CUmemGenericAllocationHandle create(size_t bytes)
{
	CUmemAllocationProp prop = on_device();
	CUmemGenericAllocationHandle handle;

	CHECK(cuMemCreate(&handle, bytes, &prop, 0) == CUDA_SUCCESS);
	return handle;
}

TEST(handles_over_the_budget_stay_on_the_device)
{
	uint64_t made = stats_get(STAT_vmm_bytes);
	CUmemGenericAllocationHandle handle[2];

	handle[0] = create(60 * MIB);
	handle[1] = create(60 * MIB);
	assert_int_equal(charged(), 120 * MIB);
	assert_int_equal(stats_get(STAT_vmm_bytes), made + 120 * MIB);
	assert_int_equal(host_budget.used, 0);
	assert_ok(cuMemRelease(handle[0]));
	assert_ok(cuMemRelease(handle[1]));
}

TEST(what_the_driver_has_no_memory_for_counts_as_refused)
{
	uint64_t refused = stats_get(STAT_refused), made = stats_get(STAT_vmm_bytes);
	CUmemAllocationProp prop = on_device();
	CUmemGenericAllocationHandle handle;

	sim_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemCreate(&handle, 20 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(stats_get(STAT_refused), refused + 1);
	assert_int_equal(stats_get(STAT_vmm_bytes), made);
}

CORE_START("SIM_MEMORY=256MiB", "SPILLWAY_POLICY=" OWN_POLICY)
