// SPDX-License-Identifier: Apache-2.0
/*
 * Copies between GPUs under the library: from any device, between any two, by every form, between heap memory, memory
 * of the driver and the host; with and without peer access (SIM_PEERS): every byte must be as it would be natively.
 */
#include "test/preload/gpus.h"
#include "test/test.h"

#define DEVICES 3
#define ROW     4096
#define ROWS    600
#define BYTES   ((size_t)ROW * ROWS) /* 2.3 MiB: more than one page */

BEFORE_ALL
{
	gpus_start_for_copies(DEVICES, BYTES);
}

/* ---- forms ---- */

/* A box of all rows, as the widest form there is. */
static CUDA_MEMCPY3D_PEER box(CUmemorytype to, CUdeviceptr dst, CUmemorytype from, CUdeviceptr src)
{
	return (CUDA_MEMCPY3D_PEER){.srcMemoryType = from,
				    .srcDevice = src,
				    .srcHost = (const void *)src,
				    .srcPitch = ROW,
				    .srcHeight = ROWS / 3,
				    .dstMemoryType = to,
				    .dstDevice = dst,
				    .dstHost = (void *)dst,
				    .dstPitch = ROW,
				    .dstHeight = ROWS / 3,
				    .WidthInBytes = ROW,
				    .Height = ROWS / 3,
				    .Depth = 3};
}

static CUDA_MEMCPY2D flat(const CUDA_MEMCPY3D_PEER *b)
{
	return (CUDA_MEMCPY2D){FORM_SIDE(src, b), FORM_SIDE(dst, b), .WidthInBytes = ROW, .Height = ROWS};
}

static CUresult list(CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
	CUdeviceptr dsts[] = {dst, dst + BYTES / 2}, srcs[] = {src, src + BYTES / 2};
	size_t sizes[] = {BYTES / 2, BYTES - BYTES / 2}, first = 0, failed;
	CUmemcpyAttributes in_order = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

	return cuMemcpyBatchAsync_ptsz(dsts, srcs, sizes, 2, &in_order, &first, 1, &failed, stream);
}

enum { SYNC_FORMS = 5, FORMS = 14 };
/* One copy with attributes (CUDA 13.2), and the same as a box. */
static CUresult attributed(CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
	CUmemcpyAttributes in_order = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

	return cuMemcpyWithAttributesAsync(dst, src, BYTES, &in_order, stream);
}

static CUresult attributed_box(CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
	CUDA_MEMCPY3D_BATCH_OP op = {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = src},
				     .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = dst},
				     .extent = {ROW, ROWS, 1},
				     .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

	return cuMemcpy3DWithAttributesAsync_ptsz(&op, 0, stream);
}

/* Between device addresses; the kinds of addresses are said, or left to the driver. */
static CUresult copy_between(int form, CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
	CUmemorytype kind = form & 1 ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
	CUDA_MEMCPY3D_PEER b = box(kind, dst, kind, src);
	CUDA_MEMCPY3D three = form_of_peers(&b);
	CUDA_MEMCPY2D two = flat(&b);

	switch (form) {
	case 0:
		return cuMemcpyDtoD_v2(dst, src, BYTES);
	case 1:
		return cuMemcpy_ptds(dst, src, BYTES);
	case 2:
		return cuMemcpy2D_v2(&two);
	case 3:
		return cuMemcpy2DUnaligned_v2(&two);
	case 4:
		return cuMemcpy3D_v2_ptds(&three);
	case 5:
		return cuMemcpyDtoDAsync_v2(dst, src, BYTES, stream);
	case 6:
		return cuMemcpyAsync(dst, src, BYTES, stream);
	case 7:
		return cuMemcpy2DAsync_v2(&two, stream);
	case 8:
		return cuMemcpy3DAsync_v2(&three, stream);
	case 9:
		return list(dst, src, stream);
	case 10:
		return cuMemcpyDtoDAsync_v2_ptsz(dst, src, BYTES, stream);
	case 11:
		return attributed(dst, src, stream);
	case 12:
		return attributed_box(dst, src, stream);
	default:
		return cuMemcpy(dst, src, BYTES);
	}
}

TEST(every_form_copies_between_any_two_from_anywhere)
{
	unsigned salt = 1;

	for (int from = 0; from < DEVICES; from++)
		for (int to = 0; to < DEVICES; to++)
			for (int by = 0; by < DEVICES; by++)
				for (int form = 0; form < FORMS; form++, salt++) {
					if (from == to || (salt % 3 && by))
						continue;
					gpus_fill(from, salt);
					gpus_be(by);
					ok(copy_between(form, gpus.block[to], gpus.block[from], gpus.stream[by]));
					ok(cu.cuCtxSynchronize());
					gpus_expect(to, salt, BYTES, "between", form);
				}
}

/* Memory of the driver on one side: of pools here, which stay there by this test's policy. */
TEST(one_side_may_be_the_drivers)
{
	__typeof__(&cuMemAlloc_v2) native = (__typeof__(native))driver_native("cuMemAlloc_v2");
	__typeof__(&cuMemFree_v2) native_free = (__typeof__(native_free))driver_native("cuMemFree_v2");
	CUdeviceptr theirs;
	unsigned salt = 4000;

	gpus_be(1);
	ok(native(&theirs, BYTES));
	assert_false(driver_is_heap(theirs));
	for (int form = 0; form < FORMS; form++, salt++) {
		gpus_fill(2, salt);
		gpus_be(0);
		ok(copy_between(form, theirs, gpus.block[2], gpus.stream[0]));
		ok(copy_between(form, gpus.block[0], theirs, gpus.stream[0]));
		ok(cu.cuCtxSynchronize());
		gpus_expect(0, salt, BYTES, "by the driver's memory", form);
	}
	gpus_be(1);
	ok(native_free(theirs));
}

/* The contexts of a peer copy are the program's to name; of cuMemAlloc memory the driver knows better, and so do we. */
TEST(peer_forms_copy_whatever_contexts_are_named)
{
	unsigned salt = 5000;

	for (int wrong = 0; wrong < 2; wrong++) {
		CUcontext to = gpus.context[wrong ? 0 : 2], from = gpus.context[wrong ? 0 : 1];
		CUDA_MEMCPY3D_PEER b = box(CU_MEMORYTYPE_DEVICE, gpus.block[2], CU_MEMORYTYPE_DEVICE, gpus.block[1]);

		b.dstContext = to;
		b.srcContext = from;
		for (int form = 0; form < 4; form++, salt++) {
			gpus_fill(1, salt);
			gpus_be(0);
			ok(form == 0 ? cuMemcpyPeer(gpus.block[2], to, gpus.block[1], from, BYTES)
			   : form == 1
			       ? cuMemcpyPeerAsync(gpus.block[2], to, gpus.block[1], from, BYTES, gpus.stream[0])
			   : form == 2 ? cuMemcpy3DPeer(&b)
				       : cuMemcpy3DPeerAsync(&b, gpus.stream[0]));
			ok(cu.cuCtxSynchronize());
			gpus_expect(2, salt, BYTES, "peer", form);
		}
	}
}

/* ---- the host ---- */

enum { HOST_FORMS = 10 };
static CUresult copy_in(int form, CUdeviceptr dst, const void *src, CUstream stream)
{
	CUmemorytype kind = form & 1 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
	CUDA_MEMCPY3D_PEER b = box(CU_MEMORYTYPE_DEVICE, dst, kind, (CUdeviceptr)src);
	CUDA_MEMCPY3D three = form_of_peers(&b);
	CUDA_MEMCPY2D two = flat(&b);

	switch (form) {
	case 0:
		return cuMemcpyHtoD_v2(dst, src, BYTES);
	case 1:
		return cuMemcpyHtoD_v2_ptds(dst, src, BYTES);
	case 2:
		return cuMemcpy(dst, (CUdeviceptr)src, BYTES);
	case 3:
		return cuMemcpy2D_v2(&two);
	case 4:
		return cuMemcpy3D_v2(&three);
	case 5:
		return cuMemcpyHtoDAsync_v2(dst, src, BYTES, stream);
	case 6:
		return cuMemcpyAsync(dst, (CUdeviceptr)src, BYTES, stream);
	case 7:
		return cuMemcpy2DAsync_v2(&two, stream);
	case 8:
		return cuMemcpy3DAsync_v2_ptsz(&three, NULL);
	default:
		return list(dst, (CUdeviceptr)src, stream);
	}
}

static CUresult copy_out(int form, void *dst, CUdeviceptr src, CUstream stream)
{
	CUmemorytype kind = form & 1 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
	CUDA_MEMCPY3D_PEER b = box(kind, (CUdeviceptr)dst, CU_MEMORYTYPE_DEVICE, src);
	CUDA_MEMCPY3D three = form_of_peers(&b);
	CUDA_MEMCPY2D two = flat(&b);

	switch (form) {
	case 0:
		return cuMemcpyDtoH_v2(dst, src, BYTES);
	case 1:
		return cuMemcpyDtoH_v2_ptds(dst, src, BYTES);
	case 2:
		return cuMemcpy((CUdeviceptr)dst, src, BYTES);
	case 3:
		return cuMemcpy2D_v2_ptds(&two);
	case 4:
		return cuMemcpy3D_v2(&three);
	case 5:
		return cuMemcpyDtoHAsync_v2(dst, src, BYTES, stream);
	case 6:
		return cuMemcpyAsync((CUdeviceptr)dst, src, BYTES, stream);
	case 7:
		return cuMemcpy2DAsync_v2(&two, stream);
	case 8:
		return cuMemcpy3DAsync_v2(&three, stream);
	default:
		return list((CUdeviceptr)dst, src, stream);
	}
}

TEST(host_memory_comes_and_goes_from_anywhere)
{
	unsigned salt = 7000;
	void *pinned;

	gpus_be(0);
	ok(cu.cuMemHostAlloc(&pinned, BYTES, CU_MEMHOSTALLOC_PORTABLE));
	for (int at = 0; at < DEVICES; at++)
		for (int by = 0; by < DEVICES; by++)
			for (int form = 0; form < HOST_FORMS; form++, salt++) {
				unsigned char *memory = salt & 1 ? pinned : gpus.host;

				gpus_fill_host(salt);
				memcpy(pinned, gpus.host, BYTES);
				gpus_be(by);
				ok(copy_in(form, gpus.block[at], memory, gpus.stream[by]));
				ok(cu.cuCtxSynchronize());
				gpus_expect(at, salt, BYTES, "in", form);
				memset(memory, 0, BYTES);
				gpus_be(by);
				ok(copy_out(form, memory, gpus.block[at], gpus.stream[by]));
				ok(cu.cuCtxSynchronize());
				size_t i = gpus_difference(memory, BYTES, salt);
				if (i < BYTES)
					fail_msg("out, form %d: byte %zu of device %d, by %d", form, i, at, by);
			}
	gpus_be(0);
	ok(cu.cuMemFreeHost(pinned));
}

/* ---- order ---- */

/* Held where it stands, all of it is submitted: a kernel, a copy to another GPU, one to the host, and so on around. */
TEST(copies_keep_the_order_of_their_stream)
{
	unsigned *pinned;

	gpus_be(0);
	ok(cu.cuMemHostAlloc((void **)&pinned, BYTES, CU_MEMHOSTALLOC_PORTABLE));
	gpus_fill(1, 1);
	gpus_fill(2, 2);
	gpus_be(0);
	sim_hold();
	ok(driver_fill(gpus.stream[0], gpus.block[0], 77, BYTES / 4));
	ok(cuMemcpyDtoDAsync_v2(gpus.block[1], gpus.block[0], BYTES, gpus.stream[0]));
	ok(cuMemcpyDtoHAsync_v2(pinned, gpus.block[1], BYTES, gpus.stream[0]));
	ok(cuMemcpyHtoDAsync_v2(gpus.block[2], pinned, BYTES, gpus.stream[0]));
	ok(driver_fill(gpus.stream[0], gpus.block[0], 78, BYTES / 4));
	ok(cuMemcpyDtoDAsync_v2(gpus.block[0], gpus.block[2], BYTES / 2, gpus.stream[0]));
	sim_release();
	ok(cu.cuStreamSynchronize(gpus.stream[0]));
	for (size_t i = 0; i < BYTES / 4; i++)
		assert_int_equal(pinned[i], 77);
	assert_true(driver_holds(gpus.block[0], 77, BYTES / 8));
	assert_true(driver_holds(gpus.block[0] + BYTES / 2, 78, BYTES / 8));
	gpus_be(2);
	assert_true(driver_holds(gpus.block[2], 77, BYTES / 4));
	gpus_be(0);
	/* The default stream, and a synchronous copy behind what is in it. */
	sim_switch("DELAY_US", 3000);
	ok(driver_fill(NULL, gpus.block[0], 5, BYTES / 4));
	ok(cuMemcpyDtoDAsync_v2(gpus.block[1], gpus.block[0], BYTES, NULL));
	ok(cuMemcpyDtoH_v2(pinned, gpus.block[1], BYTES));
	sim_switch("DELAY_US", 0);
	for (size_t i = 0; i < BYTES / 4; i++)
		assert_int_equal(pinned[i], 5);
	ok(cu.cuMemFreeHost(pinned));
}

TEST(copies_are_captured_and_replayed)
{
	gpus_be(0);
	ok(cu.cuStreamBeginCapture_v2(gpus.stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cuMemcpyDtoDAsync_v2(gpus.block[2], gpus.block[1], BYTES, gpus.stream[0]));
	CUgraphExec instance = driver_captured(gpus.stream[0]);
	for (unsigned salt = 9000; salt < 9003; salt++) {
		gpus_fill(1, salt);
		gpus_be(0);
		ok(cu.cuGraphLaunch(instance, gpus.stream[0]));
		ok(cu.cuStreamSynchronize(gpus.stream[0]));
		gpus_expect(2, salt, BYTES, "captured", 0);
	}
	gpus_be(0);
	ok(cu.cuGraphExecDestroy(instance));
}

/* The simulated driver refuses such lists where there is no access: what comes out right was made one by one. */
TEST(lists_of_boxes_are_made_one_by_one)
{
	CUDA_MEMCPY3D_BATCH_OP ops[2] = {
	    {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = gpus.block[1], .rowLength = ROW}},
	     .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = gpus.block[2], .layerHeight = ROWS / 2}},
	     .extent = {ROW, ROWS / 2, 1},
	     .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}};
	size_t failed;

	if (strcmp(getenv("SIM_PEERS") ? getenv("SIM_PEERS") : "all", "none"))
		skip();
	ops[1] = ops[0];
	ops[1].src.op.ptr.ptr += BYTES / 2;
	ops[1].dst.op.ptr.ptr += BYTES / 2;
	for (unsigned salt = 9500; salt < 9504; salt++) {
		gpus_fill(1, salt);
		gpus_be(0);
		ok(salt == 9500   ? cuMemcpy3DBatchAsync(2, ops, &failed, 0, gpus.stream[0])
		   : salt == 9501 ? cuMemcpy3DBatchAsync_ptsz(2, ops, &failed, 0, NULL)
		   : salt == 9502 ? cuMemcpy3DBatchAsync_v2(2, ops, 0, gpus.stream[0])
				  : cuMemcpy3DBatchAsync_v2_ptsz(2, ops, 0, NULL));
		ok(cu.cuCtxSynchronize());
		gpus_expect(2, salt, BYTES, "a list of boxes", (int)salt);
	}
	/* Natively refused: the legacy stream. */
	assert_int_not_equal(cuMemcpy3DBatchAsync_v2(2, ops, 0, NULL), CUDA_SUCCESS);
}

/* A context that cannot be entered counts as gone. */
static bool is_told(CUresult result)
{
	return result == CUDA_SUCCESS || result == CUDA_ERROR_UNKNOWN || result == CUDA_ERROR_INVALID_CONTEXT;
}

/* Whatever fails on the way is told, or made up for; the next copy is as good as ever. */
TEST(failures_on_the_way_leave_nothing_behind)
{
	static const char *const names[] = {"cuEventCreate",     "cuEventRecord",        "cuStreamCreate",
					    "cuStreamWaitEvent", "cuMemcpyHtoDAsync_v2", "cuCtxPushCurrent_v2",
					    "cuMemcpyPeerAsync"};
	CUcontext now;
	unsigned salt = 10000;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (unsigned n = 1; n <= 3; n++, salt++) {
			gpus_fill_host(salt);
			gpus_be(0);
			sim_fail(names[i], n, CUDA_ERROR_UNKNOWN);
			CUresult in = cuMemcpyHtoDAsync_v2(gpus.block[1], gpus.host, BYTES, gpus.stream[0]);
			CUresult across = cuMemcpyDtoDAsync_v2(gpus.block[2], gpus.block[1], BYTES, gpus.stream[0]);
			sim_fail(names[i], 0, CUDA_SUCCESS);
			assert_true(is_told(in) && is_told(across));
			ok(cu.cuCtxGetCurrent(&now));
			assert_ptr_equal(now, gpus.context[0]);
			ok(cu.cuCtxSynchronize());
			if (in == CUDA_SUCCESS)
				gpus_expect(1, salt, BYTES, "after a failure, in", (int)i);
			if (in == CUDA_SUCCESS && across == CUDA_SUCCESS)
				gpus_expect(2, salt, BYTES, "after a failure, across", (int)i);
			gpus_fill_host(salt + 500);
			gpus_be(0);
			ok(cuMemcpyHtoDAsync_v2(gpus.block[1], gpus.host, BYTES, gpus.stream[0]));
			ok(cuMemcpyDtoDAsync_v2(gpus.block[2], gpus.block[1], BYTES, gpus.stream[0]));
			ok(cu.cuCtxSynchronize());
			gpus_expect(2, salt + 500, BYTES, "the next one", (int)i);
		}
}

/*
 * The driver would end the process for them (sim_copy_check_sides). More than the budget of device 1 has been asked
 * for, so that what comes next is on the host.
 */
TEST(memory_on_the_host_is_copied_like_any_other)
{
	CUdeviceptr device_memory = gpus.block[1], more;
	CUDA_MEMCPY3D_PEER there = box(CU_MEMORYTYPE_DEVICE, gpus.block[2], CU_MEMORYTYPE_DEVICE, 0);

	gpus_be(1);
	ok(cu.cuMemAlloc_v2(&more, (size_t)36 << 20));
	ok(cu.cuMemAlloc_v2(&gpus.block[1], BYTES));
	there.srcDevice = gpus.block[1];
	there.srcContext = gpus.context[1];
	there.dstContext = gpus.context[2];
	for (int to = 0; to < DEVICES; to += 2)
		for (int by = 0; by < DEVICES; by++) {
			unsigned salt = 20000 + (unsigned)(to * DEVICES + by) * 4;

			gpus_fill(1, salt);
			gpus_be(by);
			ok(cuMemcpyDtoD_v2(gpus.block[to], gpus.block[1], BYTES));
			ok(cu.cuCtxSynchronize());
			gpus_expect(to, salt, BYTES, "from the host's, plain", by);
			gpus_fill(to, salt + 1);
			gpus_be(by);
			ok(cuMemcpyPeerAsync(gpus.block[1], gpus.context[1], gpus.block[to], gpus.context[to], BYTES,
					     gpus.stream[by]));
			ok(cuStreamSynchronize(gpus.stream[by]));
			gpus_expect(1, salt + 1, BYTES, "into the host's, named", by);
			gpus_fill(1, salt + 2);
			gpus_be(by);
			ok(cuMemcpy3DPeer(&there));
			ok(cu.cuCtxSynchronize());
			gpus_expect(2, salt + 2, BYTES, "from the host's, a box", by);
		}
	gpus_be(1);
	ok(cu.cuMemFree_v2(gpus.block[1]));
	ok(cu.cuMemFree_v2(more));
	gpus.block[1] = device_memory;
	assert_int_equal(sim_broken_rules(), 0);
}
