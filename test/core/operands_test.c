// SPDX-License-Identifier: Apache-2.0
/*
 * operands_test.c: what each entry point that submits work names: every row is called, on its own, with a struct
 * submission that writes down what it is told. No driver is asked here; kernels and their parameters are
 * kernel_params_test.c's.
 */
#include "operands_fake.h"

#include "shim/submit/completion.h"
#include "shim/submit/arguments.h"
#include "shim/submit/submit_body.h"

#include "test/unit/seed.h"

static bool called[HOOK_COUNT], named_only[HOOK_COUNT];

static bool ends_in(const char *name, const char *end)
{
	size_t n = strlen(name), n_end = strlen(end);

	return n > n_end && !strcmp(name + n - n_end, end);
}

/* After each call: the right stream was told once, as was whose stream 0 it is, and what is run. */
static void finish(enum hook_id id, CUstream stream)
{
	const char *name = real_name(id);

	called[id] = true;
	named_only[id] |= seen.n_named_only != 0;
	assert_int_equal(seen.n_stream, 1);
	if (seen.stream != stream)
		fail_msg("%s told the wrong stream", name);
	if (seen.per_thread != (ends_in(name, "_ptsz") || ends_in(name, "_ptds")))
		fail_msg("%s told the wrong kind of stream", name);
	if (!seen.n_function)
		fail_msg("%s did not tell what it runs", name);
}

#define S ((CUstream)0x5000)
/* Addresses as they might be: two on the device, a 32-bit one, one of the host. */
#define A     ((CUdeviceptr)0x7f0000000000)
#define B     ((CUdeviceptr)0x7f4000000000)
#define V1    0x12345678u
#define H     ((void *)0x5555deadb000)
#define HA    ((CUdeviceptr)0x5555deadb000)
#define ARRAY ((CUarray)0x600d)

#define UNPACK(...) __VA_ARGS__
#define ROW(name, of, args, ...)                                                                                       \
	do {                                                                                                           \
		const struct fake_name want[] = {{0, 0}, ##__VA_ARGS__};                                               \
		fake_forget();                                                                                         \
		operands_##name(NULL, UNPACK args);                                                                    \
		finish(HOOK_##name, of);                                                                               \
		fake_expect(#name, want + 1, sizeof(want) / sizeof(want[0]) - 1);                                      \
	} while (0)
#define SYNC(name, args, ...)  ROW(name, NULL, args, __VA_ARGS__)
#define ASYNC(name, args, ...) ROW(name, S, args, __VA_ARGS__)
#define SYNC_OWN(name, args, ...)                                                                                      \
	SYNC(name, args, __VA_ARGS__);                                                                                 \
	SYNC(name##_ptds, args, __VA_ARGS__)
#define ASYNC_OWN(name, args, ...)                                                                                     \
	ASYNC(name, args, __VA_ARGS__);                                                                                \
	ASYNC(name##_ptsz, args, __VA_ARGS__)

TEST(copies_name_both_sides_with_their_length)
{
	SYNC_OWN(cuMemcpy, (A, B, 100), {A, 100}, {B, 100});
	SYNC_OWN(cuMemcpyHtoD_v2, (A, H, 100), {A, 100}, {HA, 100});
	SYNC_OWN(cuMemcpyDtoH_v2, (H, B, 100), {HA, 100}, {B, 100});
	SYNC_OWN(cuMemcpyDtoD_v2, (A, B, 100), {A, 100}, {B, 100});
	SYNC_OWN(cuMemcpyPeer, (A, NULL, B, NULL, 100), {A, 100}, {B, 100});
	ASYNC_OWN(cuMemcpyAsync, (A, B, 100, S), {A, 100}, {B, 100});
	ASYNC_OWN(cuMemcpyHtoDAsync_v2, (A, H, 100, S), {A, 100}, {HA, 100});
	ASYNC_OWN(cuMemcpyDtoHAsync_v2, (H, B, 100, S), {HA, 100}, {B, 100});
	ASYNC_OWN(cuMemcpyDtoDAsync_v2, (A, B, 100, S), {A, 100}, {B, 100});
	ASYNC_OWN(cuMemcpyPeerAsync, (A, NULL, B, NULL, 100, S), {A, 100}, {B, 100});
}

TEST(copies_of_nothing_name_nothing)
{
	SYNC(cuMemcpy, (A, B, 0));
	SYNC(cuMemsetD8_v2, (A, 1, 0));
	SYNC(cuMemsetD2D32_v2, (A, 64, 1, 0, 5));
	SYNC(cuMemsetD2D32_v2, (A, 64, 1, 5, 0));
	SYNC(cuMemcpyAtoD_v2, (A, ARRAY, 0, 0));
	ASYNC(cuMemPrefetchAsync, (A, 0, 0, S));
}

TEST(arrays_are_not_named)
{
	SYNC_OWN(cuMemcpyAtoA_v2, (ARRAY, 1, ARRAY, 2, 100));
	SYNC_OWN(cuMemcpyAtoD_v2, (A, ARRAY, 5, 100), {A, 100});
	SYNC_OWN(cuMemcpyDtoA_v2, (ARRAY, 5, B, 100), {B, 100});
	SYNC_OWN(cuMemcpyAtoH_v2, (H, ARRAY, 5, 100), {HA, 100});
	SYNC_OWN(cuMemcpyHtoA_v2, (ARRAY, 5, H, 100), {HA, 100});
	ASYNC_OWN(cuMemcpyAtoHAsync_v2, (H, ARRAY, 5, 100, S), {HA, 100});
	ASYNC_OWN(cuMemcpyHtoAAsync_v2, (ARRAY, 5, H, 100, S), {HA, 100});
}

TEST(first_versions_name_only_their_host_side)
{
	SYNC(cuMemcpyHtoD, (V1, H, 100), {HA, 100});
	SYNC(cuMemcpyDtoH, (H, V1, 100), {HA, 100});
	SYNC(cuMemcpyDtoD, (V1, V1, 100));
	SYNC(cuMemcpyAtoA, (ARRAY, 1, ARRAY, 2, 100));
	SYNC(cuMemcpyAtoD, (V1, ARRAY, 2, 100));
	SYNC(cuMemcpyDtoA, (ARRAY, 2, V1, 100));
	SYNC(cuMemcpyAtoH, (H, ARRAY, 2, 100), {HA, 100});
	SYNC(cuMemcpyHtoA, (ARRAY, 2, H, 100), {HA, 100});
	ASYNC(cuMemcpyHtoDAsync, (V1, H, 100, S), {HA, 100});
	ASYNC(cuMemcpyDtoHAsync, (H, V1, 100, S), {HA, 100});
	ASYNC(cuMemcpyDtoDAsync, (V1, V1, 100, S));
	ASYNC(cuMemcpyAtoHAsync, (H, ARRAY, 2, 100, S), {HA, 100});
	ASYNC(cuMemcpyHtoAAsync, (ARRAY, 2, H, 100, S), {HA, 100});
	SYNC(cuMemsetD8, (V1, 1, 100));
	SYNC(cuMemsetD16, (V1, 1, 100));
	SYNC(cuMemsetD32, (V1, 1, 100));
	SYNC(cuMemsetD2D8, (V1, 64, 1, 10, 10));
	SYNC(cuMemsetD2D16, (V1, 64, 1, 10, 10));
	SYNC(cuMemsetD2D32, (V1, 64, 1, 10, 10));

	CUDA_MEMCPY2D_v1 two = {.srcMemoryType = CU_MEMORYTYPE_HOST,
				.srcHost = H,
				.srcXInBytes = 4,
				.srcY = 2,
				.srcPitch = 100,
				.dstMemoryType = CU_MEMORYTYPE_ARRAY,
				.dstArray = ARRAY,
				.WidthInBytes = 10,
				.Height = 3};
	SYNC(cuMemcpy2D, (&two), {HA + 204, 210});
	SYNC(cuMemcpy2DUnaligned, (&two), {HA + 204, 210});
	ASYNC(cuMemcpy2DAsync, (&two, S), {HA + 204, 210});
	CUDA_MEMCPY3D_v1 three = {.srcMemoryType = CU_MEMORYTYPE_HOST,
				  .srcHost = H,
				  .srcZ = 1,
				  .srcPitch = 100,
				  .srcHeight = 10,
				  .dstMemoryType = CU_MEMORYTYPE_ARRAY,
				  .WidthInBytes = 10,
				  .Height = 3,
				  .Depth = 2};
	SYNC(cuMemcpy3D, (&three), {HA + 1000, 1210});
	ASYNC(cuMemcpy3DAsync, (&three, S), {HA + 1000, 1210});
}

TEST(boxes_are_named_from_first_byte_to_last)
{
	CUDA_MEMCPY2D two = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			     .srcDevice = A,
			     .srcHost = H, /* not looked at */
			     .srcXInBytes = 8,
			     .srcY = 3,
			     .srcPitch = 256,
			     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstDevice = B,
			     .dstPitch = 512,
			     .WidthInBytes = 100,
			     .Height = 5};
	const struct fake_name dst = {B, 4 * 512 + 100}, src = {A + 3 * 256 + 8, 4 * 256 + 100};

	SYNC_OWN(cuMemcpy2D_v2, (&two), dst, src);
	SYNC_OWN(cuMemcpy2DUnaligned_v2, (&two), dst, src);
	ASYNC_OWN(cuMemcpy2DAsync_v2, (&two, S), dst, src);

	CUDA_MEMCPY3D three = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = A,
			       .srcXInBytes = 8,
			       .srcY = 3,
			       .srcZ = 2,
			       .srcPitch = 256,
			       .srcHeight = 10,
			       .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .dstHost = H,
			       .dstDevice = B, /* not looked at */
			       .dstPitch = 512,
			       .dstHeight = 5,
			       .WidthInBytes = 100,
			       .Height = 5,
			       .Depth = 4};
	const struct fake_name dst3 = {HA, 3 * 2560 + 4 * 512 + 100};
	const struct fake_name src3 = {A + 2 * 2560 + 3 * 256 + 8, 3 * 2560 + 4 * 256 + 100};
	SYNC_OWN(cuMemcpy3D_v2, (&three), dst3, src3);
	ASYNC_OWN(cuMemcpy3DAsync_v2, (&three, S), dst3, src3);

	CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				   .srcDevice = A,
				   .srcPitch = 256,
				   .srcHeight = 10,
				   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				   .dstDevice = B,
				   .dstPitch = 512,
				   .dstHeight = 5,
				   .WidthInBytes = 100,
				   .Height = 5,
				   .Depth = 4};
	const struct fake_name dstp = {B, 3 * 2560 + 4 * 512 + 100}, srcp = {A, 3 * 2560 + 4 * 256 + 100};
	SYNC_OWN(cuMemcpy3DPeer, (&peer), dstp, srcp);
	ASYNC_OWN(cuMemcpy3DPeerAsync, (&peer, S), dstp, srcp);
}

TEST(boxes_that_do_not_fit_an_address_space_name_their_base)
{
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = A,
			      .srcPitch = SIZE_MAX,
			      .srcHeight = SIZE_MAX,
			      .dstMemoryType = 77, /* no such type */
			      .dstDevice = B,
			      .WidthInBytes = 100,
			      .Height = 1,
			      .Depth = 1};

	SYNC(cuMemcpy3D_v2, (&copy), {A, 100}); /* one row: the pitch does not matter */
	copy.Height = 2;
	SYNC(cuMemcpy3D_v2, (&copy), {A, 1});
	copy.Height = 1;
	copy.Depth = 2;
	SYNC(cuMemcpy3D_v2, (&copy), {A, 1});
	copy.Depth = 1;
	copy.WidthInBytes = SIZE_MAX - 5;
	SYNC(cuMemcpy3D_v2, (&copy), {A, 1});
	SYNC(cuMemsetD32_v2, (A, 1, SIZE_MAX), {A, 1});
	SYNC(cuMemsetD2D8_v2, (A, SIZE_MAX, 1, 10, 3), {A, 1});
}

/* Pitch and height that are left out: whatever the driver makes of it lies in what is named. */
TEST(left_out_pitches_are_packed)
{
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = A,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstDevice = B,
			      .dstXInBytes = 10,
			      .dstY = 1,
			      .dstZ = 1,
			      .WidthInBytes = 100,
			      .Height = 5,
			      .Depth = 4};

	SYNC(cuMemcpy3D_v2, (&copy), {B + 10, 4 * 6 * 110 + 5 * 110 + 100}, {A, 2000});
}

TEST(box_range_is_exact)
{
	struct seed seed = seed_start("box_range_is_exact");

	for (int i = 0; i < 20000; i++) {
		struct copy_extent e = {seed_below(&seed, 9), seed_below(&seed, 5), seed_below(&seed, 5)};
		struct copy_extent_place p = {
		    .x = seed_below(&seed, 5), .y = seed_below(&seed, 5), .z = seed_below(&seed, 5)};
		CUdeviceptr least = UINT64_MAX, most = 0, first = 0;
		size_t bytes;

		p.pitch = p.x + e.width + seed_below(&seed, 5) + 1;
		p.height = p.y + e.height + seed_below(&seed, 5) + 1;
		for (size_t z = 0; z < e.depth; z++)
			for (size_t y = 0; y < e.height; y++)
				for (size_t x = 0; x < e.width; x++) {
					CUdeviceptr at = A + ((p.z + z) * p.height + p.y + y) * p.pitch + p.x + x;
					least = at < least ? at : least;
					most = at > most ? at : most;
				}
		assert_true(copy_extent_range(A, &p, &e, &first, &bytes));
		assert_int_equal(bytes, most ? most - least + 1 : 0);
		if (bytes)
			assert_int_equal(first, least);
	}
}

TEST(sets_name_what_they_fill)
{
	SYNC_OWN(cuMemsetD8_v2, (A, 0, 100), {A, 100});
	SYNC_OWN(cuMemsetD16_v2, (A, 0, 100), {A, 200});
	SYNC_OWN(cuMemsetD32_v2, (A, 0, 100), {A, 400});
	ASYNC_OWN(cuMemsetD8Async, (A, 0, 100, S), {A, 100});
	ASYNC_OWN(cuMemsetD16Async, (A, 0, 100, S), {A, 200});
	ASYNC_OWN(cuMemsetD32Async, (A, 0, 100, S), {A, 400});
	SYNC_OWN(cuMemsetD2D8_v2, (A, 512, 0, 12, 3), {A, 1036});
	SYNC_OWN(cuMemsetD2D16_v2, (A, 512, 0, 10, 3), {A, 1044});
	SYNC_OWN(cuMemsetD2D32_v2, (A, 512, 0, 10, 3), {A, 1064});
	ASYNC_OWN(cuMemsetD2D8Async, (A, 512, 0, 12, 3, S), {A, 1036});
	ASYNC_OWN(cuMemsetD2D16Async, (A, 512, 0, 10, 3, S), {A, 1044});
	ASYNC_OWN(cuMemsetD2D32Async, (A, 512, 0, 10, 3, S), {A, 1064});
	SYNC(cuMemsetD2D32_v2, (A, 0, 1, 10, 1), {A, 40});
}

TEST(lists_name_every_entry)
{
	CUdeviceptr dsts[] = {A, A + 4096, A + 8192}, srcs[] = {B, HA, B + 8192};
	size_t sizes[] = {10, 20, 0};
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

	ASYNC_OWN(cuMemcpyBatchAsync, (dsts, srcs, sizes, 3, NULL, NULL, 0, NULL, S), {A, 10}, {B, 10}, {A + 4096, 20},
		  {HA, 20});
	ASYNC_OWN(cuMemcpyBatchAsync_v2, (dsts, srcs, sizes, 2, NULL, NULL, 0, S), {A, 10}, {B, 10}, {A + 4096, 20},
		  {HA, 20});
	ASYNC_OWN(cuMemcpyWithAttributesAsync, (A, B, 10, NULL, S), {A, 10}, {B, 10});
	ASYNC_OWN(cuMemPrefetchBatchAsync, (dsts, sizes, 3, &location, NULL, 1, 0, S), {A, 10}, {A + 4096, 20});
	ASYNC_OWN(cuMemDiscardBatchAsync, (dsts, sizes, 3, 0, S), {A, 10}, {A + 4096, 20});
	ASYNC_OWN(cuMemDiscardAndPrefetchBatchAsync, (dsts, sizes, 3, &location, NULL, 1, 0, S), {A, 10},
		  {A + 4096, 20});
	ASYNC_OWN(cuMemPrefetchAsync, (A, 100, 0, S), {A, 100});
	ASYNC_OWN(cuMemPrefetchAsync_v2, (A, 100, location, 0, S), {A, 100});

	CUmemDecompressParams unpack[] = {
	    {.srcNumBytes = 50, .dstNumBytes = 99, .src = (void *)B, .dst = (void *)A, .dstActBytes = (void *)(A + 64)},
	    {.srcNumBytes = 60, .src = H, .dst = (void *)(A + 4096), .dstActBytes = H}};
	ASYNC_OWN(cuMemBatchDecompressAsync, (unpack, 2, 0, NULL, S), {B, 50}, {A, 0}, {A + 64, 4}, {HA, 60},
		  {A + 4096, 0}, {HA, 4});
}

TEST(lists_of_boxes_name_pointers_in_elements_of_arrays)
{
	CUDA_MEMCPY3D_BATCH_OP ops[2] = {
	    {.dst = {CU_MEMCPY_OPERAND_TYPE_POINTER, {.ptr = {.ptr = A, .rowLength = 64, .layerHeight = 8}}},
	     .src = {CU_MEMCPY_OPERAND_TYPE_POINTER, {.ptr = {.ptr = B, .rowLength = 0, .layerHeight = 0}}},
	     .extent = {10, 4, 3}},
	    {.dst = {CU_MEMCPY_OPERAND_TYPE_ARRAY, {.array = {ARRAY, {1, 2, 3}}}},
	     .src = {CU_MEMCPY_OPERAND_TYPE_POINTER, {.ptr = {.ptr = B + 4096, .rowLength = 0, .layerHeight = 0}}},
	     .extent = {10, 4, 3}}};
	const struct fake_name a = {A, 2 * 512 + 3 * 64 + 10}, b = {B, 120}, c = {B + 4096, 120 * 16};

	ASYNC_OWN(cuMemcpy3DBatchAsync, (2, ops, NULL, 0, S), a, b, c);
	ASYNC_OWN(cuMemcpy3DBatchAsync_v2, (2, ops, 0, S), a, b, c);
	ASYNC_OWN(cuMemcpy3DWithAttributesAsync, (ops, 0, S), a, b);
	ops[0].extent.width = SIZE_MAX;
	ASYNC(cuMemcpy3DBatchAsync_v2, (1, ops, 0, S), {A, 1}, {B, 1});
}

TEST(memory_operations_name_their_word)
{
	CUstreamBatchMemOpParams ops[6] = {
	    {.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, A, {1}, 0, B}},
	    {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, A + 8, {1}, 0, B}},
	    {.flushRemoteWrites = {CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, 0}},
	    {.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, A + 16, {1}, 0, B}},
	    {.memoryBarrier = {CU_STREAM_MEM_OP_BARRIER, 0}},
	    {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, A + 24, {1}, 0, B}},
	};

	ASYNC_OWN(cuStreamWaitValue32, (S, A, 1, 0), {A, 4});
	ASYNC_OWN(cuStreamWaitValue32_v2, (S, A, 1, 0), {A, 4});
	ASYNC_OWN(cuStreamWaitValue64, (S, A, 1, 0), {A, 8});
	ASYNC_OWN(cuStreamWaitValue64_v2, (S, A, 1, 0), {A, 8});
	ASYNC_OWN(cuStreamWriteValue32, (S, A, 1, 0), {A, 4});
	ASYNC_OWN(cuStreamWriteValue32_v2, (S, A, 1, 0), {A, 4});
	ASYNC_OWN(cuStreamWriteValue64, (S, A, 1, 0), {A, 8});
	ASYNC_OWN(cuStreamWriteValue64_v2, (S, A, 1, 0), {A, 8});
	ASYNC_OWN(cuStreamBatchMemOp, (S, 6, ops, 0), {A, 4}, {A + 8, 4}, {A + 16, 8}, {A + 24, 8});
	assert_int_equal(seen.n_unknown, 0);
	ASYNC_OWN(cuStreamBatchMemOp_v2, (S, 6, ops, 0), {A, 4}, {A + 8, 4}, {A + 16, 8}, {A + 24, 8});
	ops[2].operation = 99;
	ASYNC(cuStreamBatchMemOp, (S, 3, ops, 0), {A, 4}, {A + 8, 4});
	assert_int_equal(seen.n_unknown, 1);
}

TEST(old_launches_are_unknown_and_graphs_somebody_elses)
{
	CUfunction f = (CUfunction)0xf00d;

	SYNC(cuLaunch, (f));
	assert_int_equal(seen.n_unknown, 1);
	assert_int_equal(seen.function, 0xf00d);
	SYNC(cuLaunchGrid, (f, 1, 1));
	assert_int_equal(seen.n_unknown, 1);
	ASYNC(cuLaunchGridAsync, (f, 1, 1, S));
	assert_int_equal(seen.n_unknown, 1);
	ASYNC_OWN(cuGraphLaunch, ((CUgraphExec)0x9ea4, S));
	assert_int_equal(seen.function, 0x9ea4);
}

/* A kernel that takes one pointer, whatever its handle. */
static CUresult CUDAAPI one_pointer(CUfunction function, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	*ret_offset = 0;
	*ret_bytes = 8;
	return index ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

TEST(launches_name_what_the_kernel_takes)
{
	CUfunction f = (CUfunction)0xf00d;
	CUdeviceptr word = A;
	void *params[] = {&word};
	CUlaunchConfig config = {.hStream = S};

	real.cuFuncGetParamInfo = one_pointer;
	ASYNC_OWN(cuLaunchKernel, (f, 1, 1, 1, 1, 1, 1, 0, S, params, NULL), {A, 0});
	assert_int_equal(seen.function, 0xf00d);
	ASYNC_OWN(cuLaunchCooperativeKernel, (f, 1, 1, 1, 1, 1, 1, 0, S, params), {A, 0});
	ASYNC_OWN(cuLaunchKernelEx, (&config, f, params, NULL), {A, 0});
	assert_int_equal(seen.n_unknown, 0);
	ROW(cuLaunchKernelEx, NULL, (NULL, f, params, NULL), {A, 0});

	CUDA_LAUNCH_PARAMS list[2] = {{.function = f, .hStream = S, .kernelParams = params},
				      {.function = f, .hStream = (CUstream)0x6000, .kernelParams = params}};
	ASYNC(cuLaunchCooperativeKernelMultiDevice, (list, 1, 0), {A, 0});
	ROW(cuLaunchCooperativeKernelMultiDevice, COMPLETION_ANY_STREAM, (list, 2, 0), {A, 0}, {A, 0});
	assert_int_equal(seen.n_unknown, 0);
}

TEST(every_row_has_been_called)
{
/* clang-format off */
#define HOOK_SUBMIT(name, params, args) if (!called[HOOK_##name]) fail_msg("%s", #name);
#define HOOK_SUBMIT_SYNC(name, params, args) if (!called[HOOK_##name]) fail_msg("%s", #name);
#include "shim/driver/hooks.def"
	/* clang-format on */
}

/* All else may do more than it says, or bring somebody a pointer. */
TEST(only_sets_touch_nothing_but_what_they_name)
{
	for (int id = 0; id < HOOK_COUNT; id++) {
		const char *name = real_name((enum hook_id)id), *own = strstr(name, "_pt");
		size_t n = own ? (size_t)(own - name) : strlen(name);
		/* The first versions have addresses of 32 bits; asynchronous sets have but one version. */
		bool is = !strncmp(name, "cuMemset", 8) &&
			  (!strncmp(name + n - 3, "_v2", 3) || !strncmp(name + n - 5, "Async", 5));

		if (called[id] && named_only[id] != is)
			fail_msg("%s: %d", name, named_only[id]);
	}
}

#define BRINGS_NONE(call)                                                                                              \
	({                                                                                                             \
		fake_forget();                                                                                         \
		call;                                                                                                  \
		seen.n_named_only != 0;                                                                                \
	})

TEST(a_set_brings_no_address_only_if_it_clears_words)
{
	assert_true(BRINGS_NONE(operands_cuMemsetD8Async(NULL, A, 0, 4, S)));
	assert_false(BRINGS_NONE(operands_cuMemsetD8Async(NULL, A, 1, 4, S)));
	assert_false(BRINGS_NONE(operands_cuMemsetD8Async(NULL, A, 0, 5, S)));
	assert_false(BRINGS_NONE(operands_cuMemsetD8Async(NULL, A + 1, 0, 4, S)));
	assert_true(BRINGS_NONE(operands_cuMemsetD16_v2(NULL, A, 0, 2)));
	assert_false(BRINGS_NONE(operands_cuMemsetD16_v2(NULL, A, 0, 1)));
	assert_false(BRINGS_NONE(operands_cuMemsetD16_v2(NULL, A, 0x100, 2)));
	assert_true(BRINGS_NONE(operands_cuMemsetD32Async(NULL, A + 4, 0, 1, S)));
	assert_false(BRINGS_NONE(operands_cuMemsetD32Async(NULL, A, 0x80000000, 1, S)));
	assert_true(BRINGS_NONE(operands_cuMemsetD2D8_v2(NULL, A, 8, 0, 4, 2)));
	assert_false(BRINGS_NONE(operands_cuMemsetD2D8_v2(NULL, A, 6, 0, 4, 2)));
	assert_false(BRINGS_NONE(operands_cuMemsetD2D8_v2(NULL, A, 8, 0, 3, 2)));
}

/* Every row again with nothing but zeros, and lists of which only the length is there. */
typedef void zeros_function(struct submission *, long, long, long, long, long, long, long, long, long, long, long,
			    long);

static void call_with_zeros(const char *name, void *function)
{
	fake_forget();
	((zeros_function *)function)(NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	assert_int_equal(seen.n_stream, 1);
	for (unsigned i = 0; i < seen.n; i++)
		if (seen.name[i].address)
			fail_msg("%s named %#llx", name, seen.name[i].address);
}

TEST(nulls_do_not_crash)
{
	real.cuFuncGetParamInfo = one_pointer;
/* clang-format off */
#define HOOK_SUBMIT(name, params, args) call_with_zeros(#name, (void *)operands_##name);
#define HOOK_SUBMIT_SYNC(name, params, args) call_with_zeros(#name, (void *)operands_##name);
#include "shim/driver/hooks.def"
	/* clang-format on */
	fake_forget();
	operands_cuMemcpyBatchAsync(NULL, NULL, NULL, NULL, 5, NULL, NULL, 0, NULL, S);
	operands_cuMemPrefetchBatchAsync(NULL, NULL, NULL, 5, NULL, NULL, 0, 0, S);
	operands_cuMemcpy3DBatchAsync(NULL, 5, NULL, NULL, 0, S);
	operands_cuMemBatchDecompressAsync(NULL, NULL, 5, 0, NULL, S);
	operands_cuStreamBatchMemOp(NULL, S, 5, NULL, 0);
	operands_cuLaunchCooperativeKernelMultiDevice(NULL, NULL, 1, 0);
	assert_int_equal(seen.n, 0);
}

/* Equal work, equal numbers, and none that could be a handle; other work, other numbers. */
static uint64_t number_of_set(size_t n)
{
	fake_forget();
	operands_cuMemsetD8Async(NULL, A + n * 4096, (unsigned char)n, n, S);
	return seen.function;
}

TEST(the_number_is_made_from_entry_point_and_extent)
{
	uint64_t first = number_of_set(100);
	assert_true(first >> 63);
	assert_int_equal(number_of_set(100), first);
	assert_int_not_equal(number_of_set(101), first);
	fake_forget();
	operands_cuMemsetD8_v2(NULL, A, 1, 100);
	assert_int_not_equal(seen.function, first);
}
