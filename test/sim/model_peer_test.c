// SPDX-License-Identifier: Apache-2.0
/*
 * model_peer_test.c: what the simulated GPU promises (model.h) about who may touch memory of several devices.
 */
#include "model_peer.h"

/* ---- wires and contexts ---- */

TEST(devices_reach_whom_they_are_wired_to)
{
	static const int expected[DEVICES][DEVICES] = {{0, 1, 1, 0}, {1, 0, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 0}};
	int can, value;

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

TEST(enabling_answers_as_cuda_h_says)
{
	is(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess(peer_context[1], 1));
	is(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(peer_context[0], 0));
	is(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(NULL, 0));
	is(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(peer_context[3], 0));
	is(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(peer_context[1]));
	is(CUDA_ERROR_INVALID_CONTEXT, cuCtxDisablePeerAccess(NULL));
	ok(cuCtxEnablePeerAccess(peer_context[1], 0));
	is(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(peer_context[1], 0));
	is(CUDA_ERROR_TOO_MANY_PEERS, cuCtxEnablePeerAccess(peer_context[2], 0));
	ok(cuCtxDisablePeerAccess(peer_context[1]));
	is(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(peer_context[1]));
	ok(cuCtxEnablePeerAccess(peer_context[2], 0));
	ok(cuCtxSetCurrent(NULL));
	is(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(peer_context[1], 0));
	is(CUDA_ERROR_INVALID_CONTEXT, cuCtxDisablePeerAccess(peer_context[2]));
}

TEST(peer_access_is_one_way_and_for_all_memory)
{
	CUdeviceptr before = peer_alloc(1), after, mine = peer_alloc(0);

	peer_be(0);
	ok(cuCtxEnablePeerAccess(peer_context[1], 0));
	after = peer_alloc(1);
	ok(peer_touch(0, before, 10));
	ok(peer_touch(0, after, 20));
	assert_true(peer_holds(before, 10));
	assert_true(peer_holds(after, 20));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, peer_touch(1, mine, 30));
	assert_false(peer_holds(mine, 30));
	peer_be(0);
}

TEST(what_was_disabled_is_lost)
{
	CUdeviceptr at = peer_alloc(1);

	peer_be(0);
	ok(cuCtxEnablePeerAccess(peer_context[1], 0));
	ok(cuCtxDisablePeerAccess(peer_context[1]));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, peer_touch(0, at, 10));
	assert_false(peer_holds(at, 10));
	peer_be(1);
}

/* The device sees the memory, but the context that asks has not been given it. */
TEST(access_is_a_matter_of_contexts)
{
	CUdeviceptr at = peer_alloc(1);
	CUcontext other;

	peer_be(0);
	ok(cuCtxEnablePeerAccess(peer_context[1], 0));
	ok(cuCtxCreate(&other, NULL, 0, 0));
	ok(model_launch_fill(at, 1, WORDS, 0));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	ok(cuCtxDestroy(other));
	ok(peer_touch(0, at, 3));
	assert_true(peer_holds(at, 3));
}

TEST(access_ends_with_either_context)
{
	CUdeviceptr at = peer_alloc(1);

	peer_be(0);
	ok(cuCtxEnablePeerAccess(peer_context[1], 0));
	ok(cuCtxDestroy(peer_context[1]));
	is(CUDA_ERROR_INVALID_CONTEXT, cuCtxDisablePeerAccess(peer_context[1]));
	ok(cuCtxEnablePeerAccess(peer_context[2], 0)); /* the limit of one is free again */
	is(CUDA_ERROR_ILLEGAL_ADDRESS, peer_touch(0, at, 3));
}

TEST(sets_need_access)
{
	CUdeviceptr at = peer_alloc(1);

	peer_be(0);
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(at, 7, WORDS));
	ok(cuCtxEnablePeerAccess(peer_context[1], 0));
	ok(cuMemsetD32(at, 7, WORDS));
	ok(cuCtxSynchronize());
}

TEST(pointers_say_who_may_touch_them)
{
	CUdeviceptr at = peer_alloc(1), got;
	unsigned flags;

	peer_be(0);
	ok(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	is(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
	ok(cuCtxEnablePeerAccess(peer_context[1], 0));
	ok(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
	assert_int_equal(got, at);
}

/* ---- memory of cuMemMap and of pools ---- */

TEST(mapped_memory_asks_not_for_peers_but_for_devices)
{
	struct mapped m = peer_map_for(1);

	peer_be(0);
	ok(cuCtxEnablePeerAccess(peer_context[1], 0));
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(m.at, 1, BLOCK));
	ok(peer_set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ok(cuCtxDisablePeerAccess(peer_context[1]));
	ok(peer_touch(0, m.at, 5));
	assert_true(peer_holds(m.at, 5));
	ok(peer_touch(1, m.at, 6));
	ok(peer_set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, peer_touch(0, m.at, 7));
	assert_true(peer_holds(m.at, 6));
	peer_unmap(m);
}

TEST(mapped_memory_is_not_for_devices_without_wires)
{
	struct mapped m = peer_map_for(1), host = peer_map(-1);

	is(CUDA_ERROR_INVALID_DEVICE, peer_set_access(m.at, 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	is(CUDA_ERROR_INVALID_VALUE, peer_set_access(m.at, DEVICES, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	for (int i = 0; i < DEVICES; i++) {
		ok(peer_set_access(host.at, i, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
		ok(peer_touch(i, host.at, (uint32_t)i));
		assert_true(peer_holds(host.at, (uint32_t)i));
	}
	peer_unmap(m);
	peer_unmap(host);
}

/* Part of a block open, part not: a kernel that runs over the border is lost. */
TEST(each_mapping_is_judged)
{
	CUmemAllocationProp prop = form_memory(1);
	CUmemAccessDesc both[] = {form_access(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
				  form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
	CUmemGenericAllocationHandle handles[2];
	CUdeviceptr at;

	ok(cuMemAddressReserve(&at, BLOCK, 0, 0, 0));
	for (int i = 0; i < 2; i++) {
		ok(cuMemCreate(&handles[i], BLOCK / 2, &prop, 0));
		ok(cuMemMap(at + (size_t)i * BLOCK / 2, BLOCK / 2, 0, handles[i], 0));
	}
	ok(cuMemSetAccess(at, BLOCK / 2, both, 2));
	ok(cuMemSetAccess(at + BLOCK / 2, BLOCK / 2, both, 1));
	ok(peer_touch(1, at, 5));
	peer_be(0);
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(at, 1, BLOCK));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, peer_touch(0, at, 9));
	ok(cuMemUnmap(at, BLOCK));
	ok(cuMemAddressFree(at, BLOCK));
	for (int i = 0; i < 2; i++)
		ok(cuMemRelease(handles[i]));
}

/* Frameworks add peers to memory that kernels use; who loses it while it uses it is lost. */
TEST(access_is_added_beside_kernels_and_taken_under_them)
{
	struct mapped m = peer_map_for(1);
	CUstream streams[2];

	ok(peer_set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	for (int i = 0; i < 2; i++) {
		peer_be(i);
		ok(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	}
	ok(peer_set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	peer_be(1);
	sim_switch("PIECE_US", 2000); /* 64 pieces */
	ok(cuMemsetD8Async(m.at, 1, BLOCK, streams[1]));
	ok(peer_set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ok(cuStreamSynchronize(streams[1]));
	peer_be(0);
	ok(cuMemsetD8Async(m.at, 2, BLOCK, streams[0]));
	unsigned char first = 0;
	while (first != 2) /* it runs */
		assert_true(sim_peek(m.at, &first, 1));
	ok(peer_set_access(m.at, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	sim_switch("PIECE_US", 0);
	/* Which waits for the set itself: it faults with the handler that this test runs under. */
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize_v2(peer_context[0]));
	peer_unmap(m);
}

TEST(pools_open_their_memory_by_device)
{
	CUmemPoolProps props = form_pool(1, 0);
	CUmemLocation location = form_location(0);
	CUmemAccessDesc desc = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemAccess_flags flags;
	CUmemoryPool pool;
	CUdeviceptr before, after;

	peer_be(0);
	ok(cuCtxEnablePeerAccess(peer_context[1], 0)); /* does nothing for it */
	peer_be(1);
	ok(cuMemPoolCreate(&pool, &props));
	ok(cuMemAllocFromPoolAsync(&before, BLOCK, pool, 0));
	ok(cuMemPoolGetAccess(&flags, pool, &location));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	peer_be(0);
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(before, 1, BLOCK));
	ok(cuMemPoolSetAccess(pool, &desc, 1));
	ok(cuMemPoolGetAccess(&flags, pool, &location));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	peer_be(1);
	ok(cuMemAllocFromPoolAsync(&after, BLOCK, pool, 0));
	ok(peer_touch(0, before, 5));
	ok(peer_touch(0, after, 6));
	assert_true(peer_holds(before, 5) && peer_holds(after, 6));
	desc.location.id = 2;
	is(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess(pool, &desc, 1));
	desc.location.id = 1;
	desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	is(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAccess(pool, &desc, 1));
	desc.location.id = 0;
	ok(cuMemPoolSetAccess(pool, &desc, 1));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, peer_touch(0, after, 7));
	peer_be(1);
	ok(cuMemFree(before));
	ok(cuMemFree(after));
	ok(cuMemPoolDestroy(pool));
	ok(cuCtxSynchronize());
}

EACH_TEST(peer_set_up, peer_tear_down)
