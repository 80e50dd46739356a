// SPDX-License-Identifier: Apache-2.0
/*
 * model_managed_peer_test.c: what the simulated GPU promises about managed memory that several devices use: 0 and 1
 * reach each other's memory, 2 nobody's.
 */
#include "model.h"

#define PAGE  ((size_t)64 << 10)
#define WORDS (PAGE / 4)
#define BYTES (8 * PAGE)
#define CPU   1u
#define ON(d) (2u << (d))
enum { DEVICES = 3 };

static CUcontext contexts[DEVICES];
static CUfunction fill[DEVICES];

static void fill_body(const struct sim_launch *launch, void **args)
{
	uint32_t *at = *(uint32_t **)args[0], value = *(uint32_t *)args[1];
	bool reads = *(bool *)args[2];

	for (size_t i = 0; i < BYTES / 4; i++)
		if (reads)
			((volatile uint32_t *)at)[i];
		else
			at[i] = value;
}

SIM_MODULE(image, SIM_KERNEL("touch", fill_body, 8, 4, 1));

static int set_up(void **state)
{
	int failed = model_set_up(state);

	for (int d = 0; d < DEVICES; d++) {
		CUmodule module;

		ok(cuDevicePrimaryCtxRetain(&contexts[d], d));
		ok(cuCtxSetCurrent(contexts[d]));
		ok(cuModuleLoadData(&module, &image));
		ok(cuModuleGetFunction(&fill[d], module, "touch"));
	}
	ok(cuCtxSetCurrent(contexts[0]));
	return failed;
}

static int tear_down(void **state)
{
	for (int d = 0; d < DEVICES; d++)
		ok(cuDevicePrimaryCtxRelease(d));
	ok(cuCtxSetCurrent(model_context));
	return model_tear_down(state);
}

EACH_TEST(set_up, tear_down)

static CUdeviceptr managed(void)
{
	CUdeviceptr at;

	ok(cuMemAllocManaged(&at, BYTES, CU_MEM_ATTACH_GLOBAL));
	return at;
}

static void touch(int device, CUdeviceptr at, uint32_t value, bool reads)
{
	void *args[] = {&at, &value, &reads};

	ok(cuCtxSetCurrent(contexts[device]));
	ok(cuLaunchKernel(fill[device], 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	ok(cuCtxSynchronize());
}

static void writes(int device, CUdeviceptr at, uint32_t value)
{
	touch(device, at, value, false);
}

static void reads(int device, CUdeviceptr at)
{
	touch(device, at, 0, true);
}

static void is_on(CUdeviceptr at, unsigned where)
{
	for (size_t i = 0; i < BYTES; i += PAGE)
		assert_int_equal(sim_managed_where(at + i), where);
}

static void advise(CUdeviceptr at, CUmem_advise advice, CUdevice device)
{
	ok(cuMemAdvise_v2(
	    at, BYTES, advice,
	    (CUmemLocation){.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
			    .id = device == CU_DEVICE_CPU ? 0 : device}));
}

TEST(pages_follow_from_device_to_device)
{
	CUdeviceptr at = managed();

	for (int d = 0; d < DEVICES; d++) {
		unsigned long faults = sim_managed_of(d).gpu_faults;
		size_t in = sim_managed_of(d).bytes_in;

		writes(d, at, (uint32_t)d);
		is_on(at, ON(d));
		assert_int_equal(sim_managed_of(d).gpu_faults - faults, BYTES / PAGE);
		assert_int_equal(sim_managed_of(d).bytes_in, in);
		assert_int_equal(sim_managed_of(d).resident, BYTES);
	}
	assert_int_equal(sim_managed_of(0).resident + sim_managed_of(1).resident, 0);
	assert_int_equal(*(uint32_t *)at, 2);
	ok(cuCtxSetCurrent(contexts[0]));
	ok(cuMemFree(at));
	assert_int_equal(sim_managed().resident, 0);
}

TEST(what_prefers_a_device_is_mapped_by_those_that_reach_it)
{
	CUdeviceptr at = managed();

	advise(at, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0);
	writes(1, at, 1); /* the first touch makes it where it is preferred */
	is_on(at, ON(0));
	assert_int_equal(sim_managed_of(0).resident, BYTES);
	writes(2, at, 2); /* cannot map it there */
	is_on(at, ON(2));
	writes(1, at, 3); /* preferred elsewhere, but that is not where it is */
	is_on(at, ON(1));
	writes(0, at, 4);
	is_on(at, ON(0));
	reads(1, at);
	is_on(at, ON(0));
	assert_int_equal(*(uint32_t *)at, 4);
}

TEST(who_is_said_to_access_maps_what_it_reaches)
{
	CUdeviceptr at = managed();

	writes(0, at, 1);
	advise(at, CU_MEM_ADVISE_SET_ACCESSED_BY, 1);
	advise(at, CU_MEM_ADVISE_SET_ACCESSED_BY, 2);
	unsigned long faults[2] = {sim_managed_of(1).gpu_faults, sim_managed_of(2).gpu_faults};
	writes(1, at, 2);
	is_on(at, ON(0));
	assert_int_equal(sim_managed_of(1).gpu_faults, faults[0]);
	writes(2, at, 3);
	is_on(at, ON(2));
	assert_int_equal(sim_managed_of(2).gpu_faults, faults[1] + BYTES / PAGE);
	assert_int_equal(*(uint32_t *)at, 3);
}

TEST(every_reader_has_a_copy_until_one_writes)
{
	CUdeviceptr at = managed();

	writes(0, at, 1);
	advise(at, CU_MEM_ADVISE_SET_ACCESSED_BY, 1);
	reads(1, at);
	is_on(at, ON(0));
	advise(at, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
	reads(1, at);
	reads(2, at);
	is_on(at, ON(0) | ON(1) | ON(2));
	assert_int_equal(sim_managed_of(2).resident, BYTES);
	writes(1, at, 2);
	is_on(at, ON(1));
	reads(0, at);
	is_on(at, ON(0) | ON(1));
	assert_int_equal(*(uint32_t *)at, 2);
}

/* Device 2 is full of what does not give way: what it touches it maps, on the host where it cannot reach it. */
TEST(where_there_is_no_room_it_is_mapped_where_it_can_be)
{
	CUdeviceptr at = managed();

	ok(cuCtxSetCurrent(contexts[2]));
	model_alloc(16 * MIB);
	writes(0, at, 1);
	writes(2, at, 2);
	is_on(at, CPU);
	assert_int_equal(*(uint32_t *)at, 2);
}

TEST(a_prefetch_names_any_device_whoever_owns_the_stream)
{
	CUdeviceptr at = managed();

	ok(cuCtxSetCurrent(contexts[1]));
	CUstream stream = model_stream();
	for (int d = DEVICES; d--;) {
		ok(cuMemPrefetchAsync_v2(at, BYTES, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d}, 0,
					 stream));
		ok(cuStreamSynchronize(stream));
		is_on(at, ON(d));
	}
	ok(cuMemPrefetchAsync_v2(at, BYTES, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}, 0, stream));
	ok(cuStreamSynchronize(stream));
	is_on(at, CPU);
	is(CUDA_ERROR_INVALID_DEVICE,
	   cuMemPrefetchAsync_v2(at, BYTES, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = DEVICES}, 0,
				 stream));
}
