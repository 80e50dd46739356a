// SPDX-License-Identifier: Apache-2.0
/*
 * rules_peer_test.c: the rules about several devices (rules.h) that the library relies on. Of a driver with one device
 * there is nothing to ask. What depends on peer access between devices 0 and 1 is asked where they have it, or have
 * not.
 */
#include "rules_kernel.h"

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
	CUmemAccessDesc desc = form_access(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
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
	CUmemAccessDesc desc = form_access(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

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

TEST(enabling_answers_as_cuda_h_says)
{
	int can;

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

TEST(allocated_memory_is_copied_without_access)
{
	CUdeviceptr here = rules_alloc(CHUNK);

	be(other);
	CUdeviceptr there = rules_alloc(CHUNK);
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
TEST(mapped_memory_is_not_copied_by_a_device_without_access)
{
	CUdeviceptr there = map_there();
	unsigned char byte = 1;
	CUdeviceptr here = rules_alloc(CHUNK);

	fill(other, there, 9);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoD(there, here, CHUNK));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD(there, &byte, 1));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8(there, 1, CHUNK));
	assert_true(holds(there, 9));
	ok(cu.cuMemFree(here));
	rules_unmap_and_free(there, CHUNK);
}

/* What the library does instead. */
TEST(peer_copies_touch_each_side_in_its_own_context)
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

TEST(peer_access_is_nothing_to_mapped_memory_and_access_is_all)
{
	CUdeviceptr there = map_there();

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

TEST(host_memory_is_opened_to_every_device)
{
	CUdeviceptr at = rules_reserve(CHUNK);

	if (!rules_host_vmm)
		skip();
	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	ok(give_access(at, 1));
	fill(rules_context, at, 6);
	assert_true(holds(at, 6));
	rules_unmap_and_free(at, CHUNK);
}

/* Of what cuMemAlloc made they say so to every context, also to one without access (2 H200, driver 580). */
TEST(pointers_say_that_allocated_memory_may_be_touched)
{
	unsigned flags;

	be(other);
	CUdeviceptr there = rules_alloc(CHUNK);
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

/* ---- kernels that run ---- */

struct two {
	struct rules_kernels kernels[2]; /* of device 0 and 1 */
	struct rules_hold *hold;
};
static struct two two;

static CUcontext context_at(int device)
{
	return device ? other : rules_context;
}

static void load_on_both(void)
{
	if (two.hold)
		return;
	two.hold = rules_hold_new();
	for (int device = 0; device < 2; device++) {
		be(context_at(device));
		rules_kernels_load(&two.kernels[device]);
	}
	be(rules_context);
}

static CUresult open_to_peer(void *at)
{
	return give_access(*(CUdeviceptr *)at, 0);
}

static CUresult close_to_peer(void *at)
{
	CUmemAccessDesc desc = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);

	return cu.cuMemSetAccess(*(CUdeviceptr *)at, CHUNK, &desc, 1);
}

/* What peers.c builds on. The kernel of the owner reads the memory all the time, and writes to it at last. */
TEST(access_of_a_peer_changes_under_kernels_of_the_owner)
{
	static const struct {
		const char *name;
		CUresult (*call)(void *at);
	} calls[] = {{"opening memory to a peer under a kernel of its owner", open_to_peer},
		     {"closing it to the peer", close_to_peer}};

	if (!reachable)
		skip();
	load_on_both();
	CUdeviceptr there = map_there();
	be(other);
	CUstream stream = rules_stream();
	for (size_t i = 0; i < 2; i++) {
		rules_hold_start(&two.kernels[1], two.hold, there, 11 + (uint32_t)i, stream);
		rules_found(calls[i].name, rules_how(other, calls[i].call, &there, two.hold), RULES_RETURNS);
		rules_let_go(two.hold);
		rules_found("that kernel", cu.cuStreamSynchronize(stream) ? "FAILS" : "goes on", "goes on");
		assert_int_equal(rules_count(there, 11 + (uint32_t)i), RULES_WORDS);
		if (i)
			continue;
		be(rules_context);
		rules_found("the peer's copy of what it has written",
			    rules_count(there, 11) == RULES_WORDS ? "is right" : "IS WRONG", "is right");
		be(other);
	}
	ok(cu.cuStreamDestroy(stream));
	be(rules_context);
	rules_unmap_and_free(there, CHUNK);
}

struct peer_copy {
	CUdeviceptr from, to;
};

static CUresult copy_between(void *argument)
{
	struct peer_copy *copy = argument;

	return cu.cuMemcpyPeer(copy->to, other, copy->from, rules_context, 4 * RULES_WORDS);
}

/*
 * A kernel that is held writes 22 to one side; the copy brings 21: does it come before or behind the kernel? It comes
 * behind both default streams, and so behind blocking streams: copy_staged.c builds on that. (The runtime's
 * documentation has it behind all work of both devices.)
 */
static void copy_beside(struct peer_copy *copy, int side, int current, unsigned flags)
{
	char rule[160];
	CUstream stream;

	be(rules_context);
	rules_fill(&two.kernels[0], copy->from, 21, RULES_WORDS, NULL);
	ok(cu.cuCtxSynchronize());
	be(other);
	rules_fill(&two.kernels[1], copy->to, 20, RULES_WORDS, NULL);
	ok(cu.cuCtxSynchronize());
	be(context_at(side));
	ok(cu.cuStreamCreate(&stream, flags));
	rules_hold_start(&two.kernels[side], two.hold, side ? copy->to : copy->from, 22, stream);
	const char *how = rules_how(context_at(current), copy_between, copy, two.hold);
	usleep(100000);
	rules_let_go(two.hold);
	for (int device = 0; device < 2; device++) {
		be(context_at(device));
		ok(cu.cuCtxSynchronize());
	}
	uint32_t found = rules_count(copy->to, 22) == RULES_WORDS ? 22 : 21;
	bool waits = (found == 22) == (side == 0);
	snprintf(rule, sizeof(rule), "cuMemcpyPeer made in the %s's context, and a %s stream of the %s",
		 current ? "destination" : "source", flags ? "non-blocking" : "blocking",
		 side ? "destination" : "source");
	rules_found(rule, waits ? "comes behind it" : "does not wait for it",
		    flags ? "does not wait for it" : "comes behind it");
	print_message("rule: that call: %s\n", how);
	be(context_at(side));
	ok(cu.cuStreamDestroy(stream));
	be(rules_context);
}

TEST(copies_between_devices_and_their_streams)
{
	struct peer_copy copy;

	load_on_both();
	ok(cu.cuMemAlloc(&copy.from, CHUNK));
	be(other);
	ok(cu.cuMemAlloc(&copy.to, CHUNK));
	for (int side = 0; side < 2; side++)
		for (int current = 0; current < 2; current++)
			for (unsigned flags = 0; flags <= CU_STREAM_NON_BLOCKING; flags++)
				copy_beside(&copy, side, current, flags);
	be(other);
	ok(cu.cuMemFree(copy.to));
	be(rules_context);
	ok(cu.cuMemFree(copy.from));
}

int main(void)
{
	int status = rules_init(), devices = 0;

	if (status)
		return status;
	if (cu.cuDeviceGetCount(&devices) || devices < 2 || cu.cuDevicePrimaryCtxRetain(&other, 1) ||
	    cu.cuDeviceCanAccessPeer(&reachable, 0, 1)) {
		fprintf(stderr, "one device: skipped\n");
		return 77;
	}
	fprintf(stderr, "device 0 %s memory of device 1\n", reachable ? "reaches" : "does not reach");
	status = test_run();
	cu.cuDevicePrimaryCtxRelease(1);
	rules_fini();
	return status;
}
