// SPDX-License-Identifier: Apache-2.0
/*
 * Peers under the library: four GPUs, wired 0-1 and 0-2, GPU 3 alone (SIM_PEERS), budgets of 32 MiB each, so that what
 * is above lies on the host. Only memory of the heap is asked for, and each test sees to it that it is.
 */
#include "test/preload/driver.h"
#include "test/test.h"

#define DEVICES     4
#define ok(call)    assert_int_equal((call), CUDA_SUCCESS)
#define is(e, call) assert_int_equal((call), (e))

static CUcontext contexts[DEVICES];

BEFORE_ALL
{
	for (int i = DEVICES; i-- > 0;)
		contexts[i] = driver_start(i);
}

static void be(int device)
{
	ok(cu.cuCtxSetCurrent(contexts[device]));
}

static CUdeviceptr alloc(int device, size_t bytes)
{
	CUdeviceptr at = 0;

	be(device);
	ok(cu.cuMemAlloc_v2(&at, bytes));
	assert_true(driver_is_heap(at));
	return at;
}

static void release(int device, CUdeviceptr at)
{
	be(device);
	ok(cu.cuMemFree_v2(at));
}

/* A kernel of the current context writes all of it; what the context says then. */
static CUresult touch(CUdeviceptr at, unsigned value, size_t bytes)
{
	CUresult result = driver_fill(NULL, at, value, bytes / 4);

	return result ? result : cu.cuCtxSynchronize();
}

static bool holds(int device, CUdeviceptr at, unsigned value, size_t bytes)
{
	be(device);
	return driver_holds(at, value, bytes / 4);
}

/* Another context of device 0, which may be lost. */
static CUcontext extra_context(void)
{
	CUcontext context;

	ok(cu.cuCtxCreate_v2(&context, 0, 0));
	return context;
}

static void end_extra(CUcontext context)
{
	ok(cu.cuCtxDestroy_v2(context));
	be(0);
}

/* ---- access ---- */

TEST(blocks_of_before_and_after_are_reached)
{
	/* On the device, on both, on the host, in a slab; before and after. */
	static const size_t sizes[] = {20 * MIB, 20 * MIB, 8 * MIB, 1000, 3 * MIB, 700, 5 * MIB};
	enum { BEFORE = 4, ALL = 7 };
	CUdeviceptr at[ALL];
	bool on_host = false;

	for (int i = 0; i < ALL; i++) {
		if (i == BEFORE) {
			be(0);
			ok(cuCtxEnablePeerAccess(contexts[1], 0));
		}
		at[i] = alloc(1, sizes[i]);
		on_host |= sim_where(at[i]) == 'H' || sim_where(at[i] + sizes[i] - 4) == 'H';
	}
	assert_true(on_host);
	be(0);
	for (unsigned i = 0; i < ALL; i++)
		ok(touch(at[i], 40 + i, sizes[i]));
	ok(cu.cuMemsetD32_v2(at[0], 99, sizes[0] / 4));
	ok(cu.cuCtxSynchronize());
	for (unsigned i = 0; i < ALL; i++) {
		assert_true(holds(1, at[i], i ? 40 + i : 99, sizes[i]));
		release(1, at[i]);
	}
	be(0);
	ok(cuCtxDisablePeerAccess(contexts[1]));
}

TEST(access_is_one_way_and_for_those_who_have_it)
{
	CUdeviceptr at = alloc(1, 4 * MIB);

	be(1);
	ok(cuCtxEnablePeerAccess(contexts[0], 0));
	CUcontext extra = extra_context();
	is(CUDA_ERROR_ILLEGAL_ADDRESS, touch(at, 3, 4 * MIB));
	end_extra(extra);
	be(1);
	ok(cuCtxDisablePeerAccess(contexts[0]));
	release(1, at);
}

TEST(what_was_disabled_is_out_of_reach)
{
	CUdeviceptr at = alloc(1, 30 * MIB), late;
	CUcontext extra = extra_context();

	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	ok(touch(at, 3, 30 * MIB));
	ok(cuCtxDisablePeerAccess(contexts[1]));
	late = alloc(1, 30 * MIB);
	assert_true(holds(1, at, 3, 30 * MIB));
	ok(cu.cuCtxSetCurrent(extra));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32_v2(at, 1, 1));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32_v2(late, 1, 1));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, touch(at, 3, 4));
	end_extra(extra);
	release(1, at);
	release(1, late);
}

TEST(access_lasts_as_long_as_one_context_has_it)
{
	CUdeviceptr at = alloc(1, 4 * MIB);
	CUcontext first = extra_context(), second = extra_context();

	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	ok(cu.cuCtxSetCurrent(first));
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	ok(cuCtxDisablePeerAccess(contexts[1]));
	ok(cu.cuCtxSetCurrent(second));
	ok(touch(at, 8, 4 * MIB));
	ok(cu.cuCtxDestroy_v2(second)); /* without saying anything */
	ok(cu.cuCtxSetCurrent(first));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, touch(at, 9, 4 * MIB));
	end_extra(first);
	assert_true(holds(1, at, 8, 4 * MIB));
	release(1, at);
}

TEST(access_ends_with_the_owner_and_begins_anew)
{
	CUcontext owner;
	CUdeviceptr at;

	ok(cu.cuCtxCreate_v2(&owner, 0, 1));
	ok(cu.cuMemAlloc_v2(&at, 4 * MIB));
	be(0);
	ok(cuCtxEnablePeerAccess(owner, 0));
	ok(touch(at, 8, 4 * MIB));
	ok(cu.cuCtxDestroy_v2(owner));
	at = alloc(1, 4 * MIB);
	be(0);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32_v2(at, 1, 1));
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	ok(touch(at, 9, 4 * MIB));
	ok(cu.cuDevicePrimaryCtxReset_v2(1)); /* takes the memory with it */
	contexts[1] = driver_start(1);
	at = alloc(1, 4 * MIB);
	be(0);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32_v2(at, 1, 1));
	release(1, at);
}

TEST(the_driver_refuses_as_ever)
{
	CUdeviceptr at = alloc(2, 4 * MIB);

	be(1);
	is(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(contexts[2], 0));
	is(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(contexts[2]));
	be(0);
	is(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess(contexts[2], 7));
	ok(cuCtxEnablePeerAccess(contexts[2], 0));
	is(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(contexts[2], 0));
	is(CUDA_ERROR_TOO_MANY_PEERS, cuCtxEnablePeerAccess(contexts[1], 0));
	ok(touch(at, 1, 4 * MIB));
	ok(cuCtxDisablePeerAccess(contexts[2]));
	release(2, at);
}

/* The driver fails in the midst of it: refused, and nothing is left of it. */
TEST(half_an_opening_is_none)
{
	CUdeviceptr at[3];

	for (int i = 0; i < 3; i++)
		at[i] = alloc(1, 6 * MIB);
	for (unsigned n = 1; n <= 3; n++) {
		be(0);
		sim_fail("cuMemSetAccess", n, CUDA_ERROR_UNKNOWN);
		is(CUDA_ERROR_UNKNOWN, cuCtxEnablePeerAccess(contexts[1], 0));
		sim_fail("cuMemSetAccess", 0, 0);
		is(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(contexts[1]));
		for (int i = 0; i < 3; i++)
			is(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32_v2(at[i], 1, 1));
	}
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	for (int i = 0; i < 3; i++)
		ok(touch(at[i], 1, 6 * MIB));
	ok(cuCtxDisablePeerAccess(contexts[1]));
	for (int i = 0; i < 3; i++)
		release(1, at[i]);
}

/* Access of device 0 is taken away while it writes there for 0.6 s. */
static CUdeviceptr lose_while_busy(void)
{
	CUdeviceptr at = alloc(1, 20 * MIB);

	be(0);
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	sim_switch("PIECE_US", 2000);
	ok(cu.cuMemsetD8Async(at, 1, 20 * MIB, NULL)); /* 320 pieces */
	ok(cuCtxDisablePeerAccess(contexts[1]));
	return at;
}

/* What the driver knows of it, past the library. */
static bool is_open(CUdeviceptr at)
{
	CUmemLocation location = form_location(0);
	__typeof__(&cuMemGetAccess) ask = (__typeof__(ask))driver_native("cuMemGetAccess");
	unsigned long long access = 0;

	ok(ask(&access, &location, at));
	return access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

/* Who is busy keeps what it had, rather than being lost. */
TEST(taking_away_never_hurts_what_runs)
{
	CUdeviceptr at = lose_while_busy();

	sim_switch("PIECE_US", 0);
	ok(cu.cuCtxSynchronize());
	assert_true(holds(1, at, 0x01010101, 20 * MIB));
	/* It is taken away when something is asked again. */
	be(0);
	ok(cuCtxEnablePeerAccess(contexts[2], 0));
	ok(cuCtxDisablePeerAccess(contexts[2]));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32_v2(at, 1, 1));
	release(1, at);
}

/*
 * Without another word of the program's about peers; nor need the device be idle, what it had been given must be done.
 */
TEST(what_was_left_to_a_busy_device_is_taken_from_it)
{
	CUdeviceptr at = lose_while_busy(), own = alloc(0, 4 * MIB);
	CUstream streams[2];
	unsigned n = 0;

	for (int i = 0; i < 2; i++)
		ok(cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	assert_true(is_open(at));
	for (; is_open(at) && n < 500; n++) {
		ok(cu.cuMemsetD8Async(own, 1, MIB, streams[n % 2])); /* 16 pieces */
		ok(cu.cuStreamSynchronize(streams[(n + 1) % 2]));
	}
	assert_in_range(n, 2, 499);
	sim_switch("PIECE_US", 0);
	for (int i = 0; i < 2; i++)
		ok(cu.cuStreamDestroy_v2(streams[i]));
	ok(cu.cuCtxSynchronize());
	assert_true(holds(1, at, 0x01010101, 20 * MIB));
	release(0, own);
	release(1, at);
}

TEST(pointers_answer_as_natively)
{
	CUdeviceptr at = alloc(1, 4 * MIB), got;
	unsigned word;
	int ordinal;

	be(0);
	ok(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
	assert_int_equal(word, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
	ok(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MAPPED, at));
	assert_int_equal(word, 1);
	ok(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
	assert_int_equal(ordinal, 1);
	ok(cuCtxEnablePeerAccess(contexts[1], 0));
	ok(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
	assert_int_equal(word, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(cu.cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
	assert_int_equal(got, at);
	/* It is memory of cuMemAlloc, of which this is not asked. */
	CUmemLocation location = form_location(1);
	unsigned long long access;
	is(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&access, &location, at));
	ok(cuCtxDisablePeerAccess(contexts[1]));
	be(1);
	ok(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
	assert_int_equal(word, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	release(1, at);
}
