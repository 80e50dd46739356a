/*
 * rules_peer_test.c: the rules about several devices (rules.h) that the library relies on. Of a driver with one device
 * there is nothing to ask. What depends on peer access between devices 0 and 1 is asked where they have it, or have not.
 */
#include "rules.h"
#include <stdio.h>
#include <string.h>

static CUcontext other; /* the primary one of device 1 */
static int reachable;   /* may device 0 reach memory of device 1? */

static void be(CUcontext context)
{
	ok(cu.cuCtxSetCurrent(context));
}

/* VMM memory of device 1, for it alone. */
static CUdeviceptr map_there(void)
{
	CUmemAllocationProp prop = rules_at_location(CU_MEM_LOCATION_TYPE_DEVICE);
	CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
				.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at = rules_reserve(CHUNK);

	prop.location.id = 1;
	ok(cu.cuMemCreate(&handle, CHUNK, &prop, 0));
	ok(cu.cuMemMap(at, CHUNK, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	ok(cu.cuMemSetAccess(at, CHUNK, &desc, 1));
	return at;
}

static CUresult give_access(CUdeviceptr at, int device)
{
	CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
				.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	return cu.cuMemSetAccess(at, CHUNK, &desc, 1);
}

/* By its own device: is there nothing but this byte? */
static bool holds(CUdeviceptr at, unsigned char byte)
{
	static unsigned char got[CHUNK];

	be(other);
	ok(cu.cuMemcpyDtoH(got, at, CHUNK));
	be(rules_context);
	return got[0] == byte && !memcmp(got, got + 1, CHUNK - 1);
}

static void fill(CUcontext context, CUdeviceptr at, unsigned char byte)
{
	be(context);
	ok(cu.cuMemsetD8(at, byte, CHUNK));
	ok(cu.cuCtxSynchronize());
	be(rules_context);
}

static void enabling_answers_as_cuda_h_says(void **state)
{
	int can;

	(void)state;
	ok(cu.cuDeviceCanAccessPeer(&can, 0, 0));
	assert_int_equal(can, 0);
	/* A context's own memory is none of a peer's (H200, driver 580). */
	is(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cu.cuCtxEnablePeerAccess(rules_context, 0));
	if (!reachable) {
		is(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cu.cuCtxEnablePeerAccess(other, 0));
		return;
	}
	is(CUDA_ERROR_INVALID_VALUE, cu.cuCtxEnablePeerAccess(other, 1));
	is(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cu.cuCtxDisablePeerAccess(other));
	ok(cu.cuCtxEnablePeerAccess(other, 0));
	is(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cu.cuCtxEnablePeerAccess(other, 0));
	ok(cu.cuCtxDisablePeerAccess(other));
}

static void allocated_memory_is_copied_without_access(void **state)
{
	CUdeviceptr here, there;

	(void)state;
	ok(cu.cuMemAlloc(&here, CHUNK));
	be(other);
	ok(cu.cuMemAlloc(&there, CHUNK));
	fill(rules_context, here, 5);
	ok(cu.cuMemcpyDtoD(there, here, CHUNK));
	ok(cu.cuCtxSynchronize());
	assert_true(holds(there, 5));
	ok(cu.cuMemFree(here));
	be(other);
	ok(cu.cuMemFree(there));
	be(rules_context);
}

/* What NVIDIA's forum says of peers (docs/facts.md, Failures of other projects), and the host. */
static void mapped_memory_is_not_copied_by_a_device_without_access(void **state)
{
	CUdeviceptr there = map_there(), here;
	unsigned char byte = 1;

	(void)state;
	ok(cu.cuMemAlloc(&here, CHUNK));
	fill(other, there, 9);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoD(there, here, CHUNK));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD(there, &byte, 1));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8(there, 1, CHUNK));
	assert_true(holds(there, 9));
	ok(cu.cuMemFree(here));
	rules_unmap_and_free(there, CHUNK);
}

/* What the library does instead. */
static void peer_copies_touch_each_side_in_its_own_context(void **state)
{
	CUdeviceptr there = map_there(), here = rules_reserve(CHUNK);
	CUDA_MEMCPY3D_PEER box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				  .srcDevice = here,
				  .srcContext = rules_context,
				  .srcPitch = CHUNK / 64,
				  .srcHeight = 16,
				  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				  .dstDevice = there,
				  .dstContext = other,
				  .dstPitch = CHUNK / 64,
				  .dstHeight = 16,
				  .WidthInBytes = CHUNK / 64,
				  .Height = 16,
				  .Depth = 4};

	(void)state;
	rules_map_new(here, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	fill(rules_context, here, 3);
	ok(cu.cuMemcpyPeer(there, other, here, rules_context, CHUNK));
	ok(cu.cuCtxSynchronize());
	assert_true(holds(there, 3));
	fill(rules_context, here, 4);
	ok(cu.cuMemcpy3DPeer(&box));
	ok(cu.cuCtxSynchronize());
	assert_true(holds(there, 4));
	rules_unmap_and_free(here, CHUNK);
	rules_unmap_and_free(there, CHUNK);
}

static void peer_access_is_nothing_to_mapped_memory_and_access_is_all(void **state)
{
	CUdeviceptr there = map_there();

	(void)state;
	if (!reachable) {
		is(CUDA_ERROR_INVALID_DEVICE, give_access(there, 0));
		rules_unmap_and_free(there, CHUNK);
		return;
	}
	ok(cu.cuCtxEnablePeerAccess(other, 0));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8(there, 1, CHUNK));
	ok(cu.cuCtxDisablePeerAccess(other));
	ok(give_access(there, 0));
	fill(rules_context, there, 8);
	assert_true(holds(there, 8));
	rules_unmap_and_free(there, CHUNK);
}

static void host_memory_is_opened_to_every_device(void **state)
{
	CUdeviceptr at = rules_reserve(CHUNK);

	(void)state;
	if (!rules_host_vmm)
		skip();
	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	ok(give_access(at, 1));
	fill(rules_context, at, 6);
	assert_true(holds(at, 6));
	rules_unmap_and_free(at, CHUNK);
}

/* Of what cuMemAlloc made they say so to every context, also to one without access (2 H200, driver 580). */
static void pointers_say_that_allocated_memory_may_be_touched(void **state)
{
	CUdeviceptr there;
	unsigned flags;

	(void)state;
	be(other);
	ok(cu.cuMemAlloc(&there, CHUNK));
	for (int device = 1; device >= 0; device--) {
		flags = 99;
		be(device ? other : rules_context);
		ok(cu.cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, there));
		assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	}
	be(other);
	ok(cu.cuMemFree(there));
	be(rules_context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(enabling_answers_as_cuda_h_says),
	    cmocka_unit_test(allocated_memory_is_copied_without_access),
	    cmocka_unit_test(mapped_memory_is_not_copied_by_a_device_without_access),
	    cmocka_unit_test(peer_copies_touch_each_side_in_its_own_context),
	    cmocka_unit_test(peer_access_is_nothing_to_mapped_memory_and_access_is_all),
	    cmocka_unit_test(host_memory_is_opened_to_every_device),
	    cmocka_unit_test(pointers_say_that_allocated_memory_may_be_touched),
	};
	int status = rules_init(), devices = 0;

	if (status)
		return status;
	if (cu.cuDeviceGetCount(&devices) || devices < 2 || cu.cuDevicePrimaryCtxRetain(&other, 1) ||
	    cu.cuDeviceCanAccessPeer(&reachable, 0, 1)) {
		fprintf(stderr, "one device: skipped\n");
		return 77;
	}
	fprintf(stderr, "device 0 %s memory of device 1\n", reachable ? "reaches" : "does not reach");
	status = cmocka_run_group_tests(tests, NULL, NULL);
	cu.cuDevicePrimaryCtxRelease(1);
	rules_fini();
	return status;
}
