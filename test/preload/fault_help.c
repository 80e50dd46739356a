// SPDX-License-Identifier: Apache-2.0
#include "test/preload/fault_help.h"

struct scene scene;

CUstream own_stream(void)
{
	CUstream stream;

	MUST(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	return stream;
}

void begin_job(CUstream *ret_one, CUstream *ret_two)
{
	scene_load(&scene, 0);
	*ret_one = own_stream();
	*ret_two = own_stream();
	scene_allocate(&scene);
}

void run_rounds(CUstream one, CUstream two, int n)
{
	for (; n; n--) {
		MUST(scene_round(&scene, one, 1));
		MUST(scene_round(&scene, two, 2));
		if (n % 3 == 0)
			MUST(cu.cuStreamSynchronize(one));
	}
}

void finish_job(CUstream one, CUstream two)
{
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	scene_close(&scene);
	CHECK(sim_live().device_bytes <= SCENE_BUDGET && sim_live().host_bytes <= SCENE_HOST + OWN);
	scene_allocate(&scene);
	run_rounds(one, two, 3);
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	scene_close(&scene);
	sim_switch("LARGE", 0); /* nobody touches these */
	CUdeviceptr device = child_alloc(SCENE_BUDGET - 4 * MIB), host = child_alloc(SCENE_HOST - 8 * MIB);
	CHECK(sim_live().device_bytes <= SCENE_BUDGET && sim_live().host_bytes <= SCENE_HOST + OWN);
	MUST(cu.cuMemFree_v2(device));
	MUST(cu.cuMemFree_v2(host));
	MUST(cu.cuDevicePrimaryCtxReset_v2(0));
	CHECK(sim_broken_rules() == 0);
	CHECK(sim_live().allocations == 0);
}
