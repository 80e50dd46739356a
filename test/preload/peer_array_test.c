// SPDX-License-Identifier: Apache-2.0
/*
 * Copies between an array on one GPU and linear memory on another, by every form that knows arrays, with and without
 * peer access (SIM_PEERS), under the library and natively: whoever has an array works on its GPU, and takes what it
 * copies from wherever it is.
 */
#include "test/preload/gpus.h"
#include "test/test.h"

enum { DEVICES = 3, ROW = 4096, ROWS = 64, LINE = 64 << 10, LEVELS = 2, BYTES = ROW * ROWS };

static CUarray planes[DEVICES], levels[DEVICES], lines[DEVICES];

static void make_arrays(int device)
{
	CUDA_ARRAY_DESCRIPTOR plane = {ROW / 4, ROWS, CU_AD_FORMAT_UNSIGNED_INT8, 4};
	CUDA_ARRAY_DESCRIPTOR line = {LINE / 4, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
	CUDA_ARRAY3D_DESCRIPTOR whole = {2 * ROW / 4, 2 * ROWS, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
	CUmipmappedArray mipmap;

	ok(cuArrayCreate_v2(&planes[device], &plane));
	ok(cuArrayCreate_v2(&lines[device], &line));
	ok(cuMipmappedArrayCreate(&mipmap, &whole, LEVELS));
	ok(cuMipmappedArrayGetLevel(&levels[device], mipmap, 1));
}

BEFORE_ALL
{
	gpus_start(DEVICES, BYTES);
	for (int i = 0; i < DEVICES; i++) {
		gpus_be(i);
		make_arrays(i);
	}
}

/* ---- forms ---- */

enum form { PLANE, PLANE_ASYNC, PLANE_UNALIGNED, SOLID, SOLID_ASYNC, PEER, PEER_ASYNC, FORMS };

/* The array is of the first device, the block of the second; into the array, or out of it. */
static CUDA_MEMCPY3D_PEER box(CUarray array, int array_on, int block_on, bool in)
{
	CUDA_MEMCPY3D_PEER one = {.WidthInBytes = ROW, .Height = ROWS, .Depth = 1};

	if (in) {
		one.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		one.dstArray = array;
		one.dstContext = gpus.context[array_on];
		one.srcMemoryType = CU_MEMORYTYPE_DEVICE;
		one.srcDevice = gpus.block[block_on];
		one.srcContext = gpus.context[block_on];
		one.srcPitch = ROW;
		one.srcHeight = ROWS;
	} else {
		one.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		one.srcArray = array;
		one.srcContext = gpus.context[array_on];
		one.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
		one.dstDevice = gpus.block[block_on];
		one.dstContext = gpus.context[block_on];
		one.dstPitch = ROW;
		one.dstHeight = ROWS;
	}
	return one;
}

static CUDA_MEMCPY2D flat(const CUDA_MEMCPY3D_PEER *one)
{
	return (CUDA_MEMCPY2D){FORM_SIDE(src, one), FORM_SIDE(dst, one), .WidthInBytes = ROW, .Height = ROWS};
}

static CUresult copy(enum form form, const CUDA_MEMCPY3D_PEER *one, CUstream stream)
{
	CUDA_MEMCPY2D two = flat(one);
	CUDA_MEMCPY3D three = form_of_peers(one);

	switch (form) {
	case PLANE:
		return cuMemcpy2D_v2(&two);
	case PLANE_ASYNC:
		return cuMemcpy2DAsync_v2(&two, stream);
	case PLANE_UNALIGNED:
		return cuMemcpy2DUnaligned_v2(&two);
	case SOLID:
		return cuMemcpy3D_v2(&three);
	case SOLID_ASYNC:
		return cuMemcpy3DAsync_v2(&three, stream);
	case PEER:
		return cuMemcpy3DPeer(one);
	default:
		return cuMemcpy3DPeerAsync(one, stream);
	}
}

/* Out of the block of one device, through the array, into the block of another one. */
static void by_way_of(CUarray array, int device, int from, int to, enum form form, const char *what)
{
	unsigned salt = (unsigned)(100 * form + 10 * from + to);
	CUDA_MEMCPY3D_PEER in = box(array, device, from, true), out = box(array, device, to, false);

	gpus_fill(from, salt);
	gpus_be(device);
	ok(copy(form, &in, gpus.stream[device]));
	ok(cu.cuCtxSynchronize());
	gpus_fill(from, salt + 1);
	gpus_be(device);
	ok(copy(form, &out, gpus.stream[device]));
	ok(cu.cuCtxSynchronize());
	gpus_expect(to, salt, BYTES, what, (int)form);
}

TEST(every_form_copies_into_arrays_and_out_of_them)
{
	for (int device = 0; device < DEVICES; device++)
		for (int from = 0; from < DEVICES; from++)
			for (enum form form = 0; form < FORMS; form++) {
				by_way_of(planes[device], device, from, (from + 1) % DEVICES, form, "an array");
				by_way_of(levels[device], device, from, (from + 2) % DEVICES, form, "a level");
			}
	assert_int_equal(sim_broken_rules(), 0);
}

/* ---- one row ---- */

TEST(lines_are_copied_by_their_own_functions)
{
	for (int device = 0; device < DEVICES; device++)
		for (int from = 0; from < DEVICES; from++) {
			int to = (from + 1) % DEVICES, offset = 1024;
			unsigned salt = (unsigned)(3 + 10 * device + from);

			gpus_fill(from, salt);
			gpus_be(device);
			if (from & 1)
				ok(cuMemcpyDtoA_v2(lines[device], offset, gpus.block[from], LINE - 1024));
			else
				ok(cuMemcpyDtoA_v2_ptds(lines[device], offset, gpus.block[from], LINE - 1024));
			ok(cu.cuCtxSynchronize());
			if (from & 1)
				ok(cuMemcpyAtoD_v2_ptds(gpus.block[to], lines[device], offset, LINE - 1024));
			else
				ok(cuMemcpyAtoD_v2(gpus.block[to], lines[device], offset, LINE - 1024));
			ok(cu.cuCtxSynchronize());
			gpus_expect(to, salt, LINE - 1024, "a line", device);
		}
	assert_int_equal(sim_broken_rules(), 0);
}

/* ---- captures ---- */

TEST(copies_with_arrays_are_captured_and_replayed)
{
	for (int device = 0; device < DEVICES; device++) {
		int from = (device + 1) % DEVICES, to = (device + 2) % DEVICES;
		CUDA_MEMCPY3D_PEER in = box(planes[device], device, from, true),
				   out = box(planes[device], device, to, false);

		gpus_be(device);
		ok(cu.cuStreamBeginCapture_v2(gpus.stream[device], CU_STREAM_CAPTURE_MODE_GLOBAL));
		ok(copy(PLANE_ASYNC, &in, gpus.stream[device]));
		ok(copy(SOLID_ASYNC, &out, gpus.stream[device]));
		CUgraphExec exec = driver_captured(gpus.stream[device]);
		gpus_fill(from, 70u + (unsigned)device);
		gpus_be(device);
		ok(cu.cuGraphLaunch(exec, gpus.stream[device]));
		ok(cu.cuCtxSynchronize());
		gpus_expect(to, 70u + (unsigned)device, BYTES, "a graph", device);
		gpus_be(device);
		ok(cu.cuGraphExecDestroy(exec));
	}
	assert_int_equal(sim_broken_rules(), 0);
}
