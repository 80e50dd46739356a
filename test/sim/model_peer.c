// SPDX-License-Identifier: Apache-2.0
#include "model_peer.h"

CUcontext peer_context[DEVICES];

int peer_set_up(void **state)
{
	model_set_up(state);
	peer_context[0] = model_context;
	for (int i = 1; i < DEVICES; i++) {
		ok(cuCtxCreate(&peer_context[i], NULL, 0, i));
		ok(cuCtxPopCurrent(NULL));
	}
	return 0;
}

int peer_tear_down(void **state)
{
	atomic_store(&model_gate, true);
	for (int i = 1; i < DEVICES; i++)
		cuCtxDestroy(peer_context[i]); /* a test may have lost it */
	ok(cuCtxSetCurrent(peer_context[0]));
	return model_tear_down(state);
}

void peer_be(int device)
{
	ok(cuCtxSetCurrent(peer_context[device]));
}

CUdeviceptr peer_alloc(int device)
{
	CUdeviceptr at;

	peer_be(device);
	ok(cuMemAlloc(&at, BLOCK));
	return at;
}

CUresult peer_touch(int device, CUdeviceptr at, uint32_t value)
{
	peer_be(device);
	CUresult result = model_launch_fill(at, value, WORDS, 0);
	return result ? result : cuCtxSynchronize();
}

bool peer_holds(CUdeviceptr at, uint32_t value)
{
	uint32_t got[2];

	return sim_peek(at, &got[0], 4) && sim_peek(at + BLOCK - 4, &got[1], 4) && got[0] == value &&
	       got[1] == value + (uint32_t)WORDS - 1;
}

CUresult peer_set_access(CUdeviceptr at, int device, CUmemAccess_flags flags)
{
	CUmemAccessDesc desc = form_access(device, flags);

	return cuMemSetAccess(at, BLOCK, &desc, 1);
}

struct mapped peer_map(int owner)
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

struct mapped peer_map_for(int owner)
{
	struct mapped m = peer_map(owner);

	ok(peer_set_access(m.at, owner, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	return m;
}

void peer_unmap(struct mapped m)
{
	ok(cuMemUnmap(m.at, BLOCK));
	ok(cuMemAddressFree(m.at, BLOCK));
	ok(cuMemRelease(m.handle));
}
