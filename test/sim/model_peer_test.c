/*
 * model_peer_test.c: what the simulated GPU promises (model.h) about several devices. Its settings: four of them, wired
 * 0-1 and 0-2, the third alone, and one enabled peer at most.
 */
#include "model.h"
#include <string.h>

#define DEVICES 4
#define BLOCK   (4 * MIB)
#define WORDS   (BLOCK / 4)

static CUcontext contexts[DEVICES];

/* contexts[0] is the one that model_set_up() made, and current. */
static int set_up(void **state)
{
	model_set_up(state);
	contexts[0] = model_context;
	for (int i = 1; i < DEVICES; i++) {
		ok(cuCtxCreate(&contexts[i], NULL, 0, i));
		ok(cuCtxPopCurrent(NULL));
	}
	return 0;
}

static int tear_down(void **state)
{
	atomic_store(&model_gate, true);
	for (int i = 1; i < DEVICES; i++)
		cuCtxDestroy(contexts[i]); /* a test may have lost it */
	ok(cuCtxSetCurrent(contexts[0]));
	return model_tear_down(state);
}

static void be(int device)
{
	ok(cuCtxSetCurrent(contexts[device]));
}

static CUdeviceptr alloc(int device)
{
	CUdeviceptr at;

	be(device);
	ok(cuMemAlloc(&at, BLOCK));
	return at;
}

/* A kernel of that device writes there; what its context says afterwards. */
static CUresult touch(int device, CUdeviceptr at, uint32_t value)
{
	be(device);
	CUresult result = model_launch_fill(at, value, WORDS, 0);
	return result ? result : cuCtxSynchronize();
}

static bool holds(CUdeviceptr at, uint32_t value)
{
	uint32_t got[2];

	return sim_peek(at, &got[0], 4) && sim_peek(at + BLOCK - 4, &got[1], 4) && got[0] == value &&
	       got[1] == value + (uint32_t)WORDS - 1;
}

struct mapped {
	CUdeviceptr at;
	CUmemGenericAllocationHandle handle;
};

static CUresult set_access(CUdeviceptr at, int device, CUmemAccess_flags flags)
{
	CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags};

	return cuMemSetAccess(at, BLOCK, &desc, 1);
}

/* owner -1: of the host; by itself no device may touch it. */
static struct mapped map(int owner)
{
	CUmemAllocationProp prop = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = owner < 0 ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE,
			 .id = owner < 0 ? 0 : owner}};
	struct mapped m;

	ok(cuMemCreate(&m.handle, BLOCK, &prop, 0));
	ok(cuMemAddressReserve(&m.at, BLOCK, 0, 0, 0));
	ok(cuMemMap(m.at, BLOCK, 0, m.handle, 0));
	return m;
}

static struct mapped map_for(int owner)
{
	struct mapped m = map(owner);

	ok(set_access(m.at, owner, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	return m;
}

static void unmap(struct mapped m)
{
	ok(cuMemUnmap(m.at, BLOCK));
	ok(cuMemAddressFree(m.at, BLOCK));
	ok(cuMemRelease(m.handle));
}

/* ---- wires and contexts ---- */

static void devices_reach_whom_they_are_wired_to(void **state)
{
	static const int expected[DEVICES][DEVICES] = {{0, 1, 1, 0}, {1, 0, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 0}};
	int can, value;

	(void)state;
	for (int a = 0; a < DEVICES; a++)
		for (int b = 0; b < DEVICES; b++) {
			ok(cuDeviceCanAccessPeer(&can, a, b));
			assert_int_equal(can, expected[a][b]);
			if (a == b)
				continue;
			ok(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, a, b));
			assert_int_equal(value, expected[a][b]);
			ok(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, a, b));
			assert_int_equal(value, expected[a][b] && a + b == 1); /* between 0 and 2 is PCIe */
			ok(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, a, b));
			assert_int_equal(value, a + b == 1 ? 0 : 1);
		}
	is(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&can, 0, DEVICES));
	is(CUDA_ERROR_INVALID_VALUE, cuDeviceCanAccessPeer(NULL, 0, 1));
	is(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1, 1));
	is(CUDA_ERROR_INVALID_VALUE, cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)99, 0, 1));
	is(CUDA_ERROR_INVALID_VALUE, cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 1));
}

static void enabling_answers_as_cuda_h_says(void **state)
{
	(void)state;
	is(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess(contexts[1], 1));
	is(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(contexts[0], 0));
	is(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(NULL, 0));
	is(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(contexts[3], 0));
	is(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(contexts[1]));
	is(CUDA_ERROR_INVALID_CONTEXT, cuCtxDisablePeerAccess(NULL));
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	is(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(contexts[1], 0));
	is(CUDA_ERROR_TOO_MANY_PEERS, cuCtxEnablePeerAccess(contexts[2], 0));
	ok(cuCtxDisablePeerAccess(contexts[1]));
	is(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(contexts[1]));
	ok(cuCtxEnablePeerAccess(contexts[2], 0));
	ok(cuCtxSetCurrent(NULL));
	is(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(contexts[1], 0));
	is(CUDA_ERROR_INVALID_CONTEXT, cuCtxDisablePeerAccess(contexts[2]));
}

static void peer_access_is_one_way_and_for_all_memory(void **state)
{
	CUdeviceptr before = alloc(1), after, mine = alloc(0);

	(void)state;
	be(0);
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	after = alloc(1);
	ok(touch(0, before, 10));
	ok(touch(0, after, 20));
	assert_true(holds(before, 10));
	assert_true(holds(after, 20));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, touch(1, mine, 30));
	assert_false(holds(mine, 30));
	be(0);
	ok(cuMemFree(mine));
}

static void what_was_disabled_is_lost(void **state)
{
	CUdeviceptr at = alloc(1);

	(void)state;
	be(0);
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	ok(cuCtxDisablePeerAccess(contexts[1]));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, touch(0, at, 10));
	assert_false(holds(at, 10));
	be(1);
	ok(cuMemFree(at));
}

/* The device sees the memory, but the context that asks has not been given it. */
static void access_is_a_matter_of_contexts(void **state)
{
	CUdeviceptr at = alloc(1);
	CUcontext other;

	(void)state;
	be(0);
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	ok(cuCtxCreate(&other, NULL, 0, 0));
	ok(model_launch_fill(at, 1, WORDS, 0));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	ok(cuCtxDestroy(other));
	ok(touch(0, at, 3));
	assert_true(holds(at, 3));
}

static void access_ends_with_either_context(void **state)
{
	CUdeviceptr at = alloc(1);

	(void)state;
	be(0);
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	ok(cuCtxDestroy(contexts[1]));
	is(CUDA_ERROR_INVALID_CONTEXT, cuCtxDisablePeerAccess(contexts[1]));
	ok(cuCtxEnablePeerAccess(contexts[2], 0)); /* the limit of one is free again */
	is(CUDA_ERROR_ILLEGAL_ADDRESS, touch(0, at, 3));
}

static void sets_need_access(void **state)
{
	CUdeviceptr at = alloc(1);

	(void)state;
	be(0);
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(at, 7, WORDS));
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	ok(cuMemsetD32(at, 7, WORDS));
	ok(cuCtxSynchronize());
}

static void pointers_say_who_may_touch_them(void **state)
{
	CUdeviceptr at = alloc(1), got;
	unsigned flags;

	(void)state;
	be(0);
	ok(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	is(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	ok(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
	assert_int_equal(got, at);
}

/* ---- memory of cuMemMap and of pools ---- */

static void mapped_memory_asks_not_for_peers_but_for_devices(void **state)
{
	struct mapped m = map_for(1);

	(void)state;
	be(0);
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(m.at, 1, BLOCK));
	ok(set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ok(cuCtxDisablePeerAccess(contexts[1]));
	ok(touch(0, m.at, 5));
	assert_true(holds(m.at, 5));
	ok(touch(1, m.at, 6));
	ok(set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, touch(0, m.at, 7));
	assert_true(holds(m.at, 6));
	unmap(m);
}

static void mapped_memory_is_not_for_devices_without_wires(void **state)
{
	struct mapped m = map_for(1), host = map(-1);

	(void)state;
	is(CUDA_ERROR_INVALID_DEVICE, set_access(m.at, 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	is(CUDA_ERROR_INVALID_VALUE, set_access(m.at, DEVICES, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	for (int i = 0; i < DEVICES; i++) {
		ok(set_access(host.at, i, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
		ok(touch(i, host.at, (uint32_t)i));
		assert_true(holds(host.at, (uint32_t)i));
	}
	unmap(m);
	unmap(host);
}

/* Part of a block open, part not: a kernel that runs over the border is lost. */
static void each_mapping_is_judged(void **state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
	CUmemAccessDesc both[] = {
	    {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
	    {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
	CUmemGenericAllocationHandle handles[2];
	CUdeviceptr at;

	(void)state;
	ok(cuMemAddressReserve(&at, BLOCK, 0, 0, 0));
	for (int i = 0; i < 2; i++) {
		ok(cuMemCreate(&handles[i], BLOCK / 2, &prop, 0));
		ok(cuMemMap(at + (size_t)i * BLOCK / 2, BLOCK / 2, 0, handles[i], 0));
	}
	ok(cuMemSetAccess(at, BLOCK / 2, both, 2));
	ok(cuMemSetAccess(at + BLOCK / 2, BLOCK / 2, both, 1));
	ok(touch(1, at, 5));
	be(0);
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(at, 1, BLOCK));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, touch(0, at, 9));
	ok(cuMemUnmap(at, BLOCK));
	ok(cuMemAddressFree(at, BLOCK));
	for (int i = 0; i < 2; i++)
		ok(cuMemRelease(handles[i]));
}

/* Frameworks add peers to memory that kernels use; who loses it while it uses it is lost. */
static void access_is_added_beside_kernels_and_taken_under_them(void **state)
{
	struct mapped m = map_for(1);
	CUstream streams[2];

	(void)state;
	ok(set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	for (int i = 0; i < 2; i++) {
		be(i);
		ok(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	}
	ok(set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	be(1);
	sim_switch("PIECE_US", 2000); /* 64 pieces */
	ok(cuMemsetD8Async(m.at, 1, BLOCK, streams[1]));
	ok(set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ok(cuStreamSynchronize(streams[1]));
	be(0);
	ok(cuMemsetD8Async(m.at, 2, BLOCK, streams[0]));
	unsigned char first = 0;
	while (first != 2) /* it runs */
		assert_true(sim_peek(m.at, &first, 1));
	ok(set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	sim_switch("PIECE_US", 0);
	/* Which waits for the set itself: it faults with the handler that this test runs under. */
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize_v2(contexts[0]));
	unmap(m);
}

static void pools_open_their_memory_by_device(void **state)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
	CUmemAccessDesc desc = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemAccess_flags flags;
	CUmemoryPool pool;
	CUdeviceptr before, after;

	(void)state;
	be(0);
	ok(cuCtxEnablePeerAccess(contexts[1], 0)); /* does nothing for it */
	be(1);
	ok(cuMemPoolCreate(&pool, &props));
	ok(cuMemAllocFromPoolAsync(&before, BLOCK, pool, 0));
	ok(cuMemPoolGetAccess(&flags, pool, &location));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	be(0);
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(before, 1, BLOCK));
	ok(cuMemPoolSetAccess(pool, &desc, 1));
	ok(cuMemPoolGetAccess(&flags, pool, &location));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	be(1);
	ok(cuMemAllocFromPoolAsync(&after, BLOCK, pool, 0));
	ok(touch(0, before, 5));
	ok(touch(0, after, 6));
	assert_true(holds(before, 5) && holds(after, 6));
	desc.location.id = 2;
	is(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess(pool, &desc, 1));
	desc.location.id = 1;
	desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	is(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAccess(pool, &desc, 1));
	desc.location.id = 0;
	ok(cuMemPoolSetAccess(pool, &desc, 1));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, touch(0, after, 7));
	be(1);
	ok(cuMemFree(before));
	ok(cuMemFree(after));
	ok(cuMemPoolDestroy(pool));
	ok(cuCtxSynchronize());
}

/* ---- copies ---- */

/* A copy from `from` to `to` by every form that has no contexts in it; each must say `expected`. */
static void copy_by_all(CUdeviceptr to, CUdeviceptr from, CUresult expected)
{
	CUDA_MEMCPY2D two = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			     .srcDevice = from,
			     .dstDevice = to,
			     .srcPitch = 4096,
			     .dstPitch = 4096,
			     .WidthInBytes = 4096,
			     .Height = BLOCK / 4096};
	CUDA_MEMCPY3D three = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = from,
			       .dstDevice = to,
			       .WidthInBytes = 4096,
			       .Height = 64,
			       .Depth = BLOCK / 4096 / 64};
	CUmemcpyAttributes in_order = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t bytes = BLOCK, first = 0;

	is(expected, cuMemcpyDtoD(to, from, BLOCK));
	is(expected, cuMemcpyDtoDAsync(to, from, BLOCK, 0));
	is(expected, cuMemcpy(to, from, BLOCK));
	is(expected, cuMemcpyAsync(to, from, BLOCK, 0));
	is(expected, cuMemcpy2D(&two));
	is(expected, cuMemcpy2DAsync(&two, 0));
	is(expected, cuMemcpy3D(&three));
	is(expected, cuMemcpy3DAsync(&three, 0));
	is(expected, cuMemcpyBatchAsync(&to, &from, &bytes, 1, &in_order, &first, 1, CU_STREAM_PER_THREAD));
	ok(cuCtxSynchronize());
}

static void allocated_memory_is_copied_from_anywhere_to_anywhere(void **state)
{
	CUdeviceptr one = alloc(1), two = alloc(2);

	(void)state;
	ok(touch(1, one, 10));
	ok(touch(2, two, 90));
	for (int device = 0; device < DEVICES; device++) {
		be(device);
		copy_by_all(two, one, CUDA_SUCCESS);
		assert_true(holds(two, 10));
	}
	ok(touch(2, two, 50));
	ok(cuMemcpyPeer(one, contexts[1], two, contexts[2], BLOCK));
	ok(cuCtxSynchronize());
	assert_true(holds(one, 50));
	is(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeer(one, NULL, two, contexts[2], BLOCK));
}

static void mapped_memory_is_copied_by_who_may_touch_it(void **state)
{
	struct mapped one = map_for(1), two = map_for(2);
	CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				   .srcDevice = two.at,
				   .dstDevice = one.at,
				   .srcContext = contexts[2],
				   .dstContext = contexts[1],
				   .WidthInBytes = BLOCK,
				   .Height = 1,
				   .Depth = 1};
	uint32_t word = 0;

	(void)state;
	ok(touch(1, one.at, 10));
	for (int device = 0; device < DEVICES; device++) {
		be(device);
		copy_by_all(two.at, one.at, CUDA_ERROR_INVALID_VALUE);
		is(device == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&word, one.at, 4));
		is(device == 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(two.at, &word, 4));
	}
	be(3);
	ok(cuMemcpyPeerAsync(two.at, contexts[2], one.at, contexts[1], BLOCK, 0));
	ok(cuCtxSynchronize());
	assert_true(holds(two.at, 10));
	is(CUDA_ERROR_INVALID_VALUE, cuMemcpyPeer(two.at, contexts[1], one.at, contexts[1], BLOCK));
	ok(touch(2, two.at, 70));
	ok(cuMemcpy3DPeer(&peer));
	ok(cuCtxSynchronize());
	assert_true(holds(one.at, 70));
	ok(set_access(two.at, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ok(set_access(one.at, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
	ok(touch(1, one.at, 30));
	be(0);
	copy_by_all(two.at, one.at, CUDA_SUCCESS);
	assert_true(holds(two.at, 30));
	is(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(one.at, two.at, BLOCK));
	unmap(one);
	unmap(two);
}

/* What was captured from the stream of another device runs for that device. */
static void nodes_belong_to_the_device_of_their_stream(void **state)
{
	CUstream here, there;
	CUevent fork_event, join;
	CUdeviceptr at = alloc(1);
	CUgraphExec instance;
	CUgraph graph;

	(void)state;
	ok(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	ok(cuEventCreate(&join, 0));
	be(0);
	ok(cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
	ok(cuEventCreate(&fork_event, 0));
	ok(cuStreamBeginCapture(here, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cuEventRecord(fork_event, here));
	ok(cuStreamWaitEvent(there, fork_event, 0));
	ok(model_launch_fill(at, 12, WORDS, there));
	be(1);
	ok(cuEventRecord(join, there));
	be(0);
	ok(cuStreamWaitEvent(here, join, 0));
	ok(cuStreamEndCapture(here, &graph));
	ok(cuGraphInstantiate(&instance, graph, 0));
	ok(cuGraphLaunch(instance, here));
	ok(cuStreamSynchronize(here));
	assert_true(holds(at, 12));
	ok(cuGraphExecDestroy(instance));
	ok(cuGraphDestroy(graph));
}

/* Added by hand, they reach what that context does, whatever stream the graph is launched in. */
static void kernel_nodes_run_in_the_context_of_their_function(void **state)
{
	CUdeviceptr at = alloc(0);
	unsigned char add = 13;
	struct model_pair pair = {(uint32_t *)at, (uint32_t *)(at + MIB), 1};
	void *params[] = {&add, &pair};
	CUDA_KERNEL_NODE_PARAMS node = {.func = model_pair,
					.gridDimX = 1,
					.gridDimY = 1,
					.gridDimZ = 1,
					.blockDimX = 1,
					.blockDimY = 1,
					.blockDimZ = 1,
					.kernelParams = params};
	CUgraphExec instance;
	CUgraphNode added;
	CUstream there;
	CUgraph graph;
	uint32_t got;

	(void)state;
	ok(touch(0, at, 40));
	ok(cuGraphCreate(&graph, 0));
	ok(cuGraphAddKernelNode(&added, graph, NULL, 0, &node));
	ok(cuGraphInstantiate(&instance, graph, 0));
	for (int change = 0; change < 2; change++) {
		be(1);
		ok(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
		ok(cuGraphLaunch(instance, there));
		ok(cuStreamSynchronize(there));
		ok(cuStreamDestroy(there));
		assert_true(sim_peek(at + MIB, &got, 4));
		assert_int_equal(got, 40 + add);
		add = 14;
		be(0);
		ok(cuGraphExecKernelNodeSetParams(instance, added, &node));
	}
	ok(cuGraphExecDestroy(instance));
	ok(cuGraphDestroy(graph));
}

#define PEER_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    PEER_TEST(devices_reach_whom_they_are_wired_to),
	    PEER_TEST(enabling_answers_as_cuda_h_says),
	    PEER_TEST(peer_access_is_one_way_and_for_all_memory),
	    PEER_TEST(what_was_disabled_is_lost),
	    PEER_TEST(access_is_a_matter_of_contexts),
	    PEER_TEST(access_ends_with_either_context),
	    PEER_TEST(sets_need_access),
	    PEER_TEST(pointers_say_who_may_touch_them),
	    PEER_TEST(mapped_memory_asks_not_for_peers_but_for_devices),
	    PEER_TEST(mapped_memory_is_not_for_devices_without_wires),
	    PEER_TEST(each_mapping_is_judged),
	    PEER_TEST(access_is_added_beside_kernels_and_taken_under_them),
	    PEER_TEST(pools_open_their_memory_by_device),
	    PEER_TEST(allocated_memory_is_copied_from_anywhere_to_anywhere),
	    PEER_TEST(mapped_memory_is_copied_by_who_may_touch_it),
	    PEER_TEST(nodes_belong_to_the_device_of_their_stream),
	    PEER_TEST(kernel_nodes_run_in_the_context_of_their_function),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
