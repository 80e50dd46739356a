// SPDX-License-Identifier: Apache-2.0
/*
 * Work on memory that a program makes itself: across the borders of handles, by way of aliases, in graphs, from many
 * threads, until there is no room. Natively, and under the library whatever vmm.spill is (vmm_help.h). Who else may
 * reach it: vmm_reach_test.c.
 */
#include "test/preload/vmm_help.h"
#include "test/test.h"

#include <sys/socket.h>

/* ---- across borders ---- */

PART_TEST(copies_and_kernels_cross_the_borders_of_handles, vmm_run(part))
{
	unsigned *want = malloc(VMM_MIB * MIB), *got = malloc(VMM_MIB * MIB);
	const size_t n = VMM_MIB * MIB / 4, odd = 3 * MIB / 4 + 17;

	CUdeviceptr at = vmm_segment(), block = child_alloc(8 * MIB);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < n; i++)
			want[i] = (unsigned)(i * 2654435761u) + (unsigned)round;
		MUST(cu.cuMemcpyHtoD_v2(at, want, VMM_MIB * MIB));
		/* By a kernel, a copy on the device both ways, sets of every kind, a copy of rows. */
		vmm_count(NULL, at + odd * 4, 7, 9 * MIB / 4);
		for (size_t i = 0; i < 9 * MIB / 4; i++)
			want[odd + i] = 7 + (unsigned)i;
		MUST(cu.cuMemcpyDtoD_v2(at + 20 * MIB + 12, at + MIB + 4, 15 * MIB));
		memcpy((char *)want + 20 * MIB + 12, (char *)want + MIB + 4, 15 * MIB);
		MUST(cu.cuMemcpyDtoD_v2(block, at + 7 * MIB, 8 * MIB));
		MUST(cu.cuMemcpyDtoD_v2(at + 36 * MIB + 4, block, 8 * MIB));
		memcpy((char *)want + 36 * MIB + 4, (char *)want + 7 * MIB, 8 * MIB);
		MUST(cu.cuMemsetD32_v2(at + 2 * MIB - 400, 0xabcd1234, 2 * MIB / 4 + 200));
		for (size_t i = 0; i < 2 * MIB / 4 + 200; i++)
			want[(2 * MIB - 400) / 4 + i] = 0xabcd1234;
		MUST(cu.cuMemsetD8Async(at + 44 * MIB, 0x77, 4 * MIB, NULL));
		memset((char *)want + 44 * MIB, 0x77, 4 * MIB);
		MUST(cuMemsetD2D32_v2(at + 10 * MIB, 65536, 9, 100, 64));
		for (size_t y = 0; y < 64; y++)
			for (size_t x = 0; x < 100; x++)
				want[10 * MIB / 4 + y * 16384 + x] = 9;
		CUDA_MEMCPY2D rows = form_rows(0, at, MIB, 4096, VMM_MIB);

		rows.dstMemoryType = CU_MEMORYTYPE_HOST;
		rows.dstHost = got;
		rows.dstPitch = 4096;
		MUST(cuMemcpy2D_v2(&rows));
		for (size_t y = 0; y < VMM_MIB; y++)
			CHECK(!memcmp((char *)got + y * 4096, (char *)want + y * MIB, 4096));
		vmm_press();
		MUST(cu.cuMemcpyDtoH_v2(got, at, VMM_MIB * MIB));
		CHECK(!memcmp(got, want, VMM_MIB * MIB));
	}
	vmm_segment_drop(at);
	MUST(cu.cuMemFree_v2(block));
	free(want);
	free(got);
}

/* ---- a handle at another place, and at two ---- */

static void handles_change_places(void)
{
	enum { N = 6, ROUNDS = 12 };
	const size_t bytes = 6 * MIB, words = bytes / 4;
	handle_id handle[N];

	CUdeviceptr at = vmm_reserve(N * bytes);
	for (unsigned i = 0; i < N; i++) {
		handle[i] = vmm_create(0, bytes);
		vmm_map(at + i * bytes, bytes, handle[i]);
		vmm_count(NULL, at + i * bytes, i << 24, words);
	}
	for (unsigned round = 1; round < ROUNDS; round++) {
		vmm_unmap(at, N * bytes);
		for (unsigned i = 0; i < N; i++)
			vmm_map(at + (i + round) % N * bytes, bytes, handle[i]);
		if (round % 4 == 1)
			vmm_press();
		for (unsigned i = 0; i < N; i++) {
			CUdeviceptr here = at + (i + round) % N * bytes;

			CHECK(vmm_counts(here, (i << 24) + (round - 1) % 2, words));
			vmm_count(NULL, here, (i << 24) + round % 2, words);
		}
	}
	for (unsigned i = 0; i < N; i++)
		MUST(cu.cuMemRelease(handle[i]));
	vmm_unmap_and_free(at, N * bytes, N * bytes);
}

/* Unmapped it is nowhere, and still holds what it held, for as long as its handle lives. */
static void handles_lie_by(void)
{
	enum { N = 6 };
	const size_t bytes = 6 * MIB, words = bytes / 4;
	handle_id handle[N];

	CUdeviceptr at = vmm_reserve(bytes);
	for (unsigned i = 0; i < N; i++) {
		handle[i] = vmm_create(0, bytes);
		vmm_map(at, bytes, handle[i]);
		vmm_write(at, i << 24, words);
		vmm_unmap(at, bytes);
	}
	vmm_press();
	for (unsigned i = N; i--;) {
		vmm_map(at, bytes, handle[i]);
		MUST(cu.cuMemRelease(handle[i]));
		CHECK(vmm_counts(at, i << 24, words));
		vmm_unmap(at, bytes);
	}
	MUST(cu.cuMemAddressFree(at, bytes));
}

PART_TEST(aliases_see_the_same_memory, vmm_run(part))
{
	enum { N = 5 };
	const size_t bytes = 4 * MIB, words = bytes / 4;
	handle_id handle[N];

	CUdeviceptr at = vmm_reserve(N * bytes), other = vmm_reserve(N * bytes), third = vmm_reserve(bytes);
	for (unsigned i = 0; i < N; i++) {
		handle[i] = vmm_create(0, bytes);
		vmm_map(at + i * bytes, bytes, handle[i]);
		vmm_map(other + (N - 1 - i) * bytes, bytes, handle[i]);
	}
	vmm_map(third, bytes, handle[2]);
	MUST(vmm_access(third, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < N; i++) {
			CUdeviceptr here = at + i * bytes, there = other + (N - 1 - i) * bytes;

			vmm_count(NULL, here, i * 16 + round, words);
			MUST(cu.cuMemsetD32_v2(there + 4096, 99, 1));
			CHECK(vmm_counts(there, i * 16 + round, 1024) && driver_holds(here + 4096, 99, 1));
			vmm_count(NULL, there, 3, words);
			vmm_count(NULL, here + MIB, 5, 100);
			CHECK(vmm_counts(there + MIB, 5, 100) && vmm_counts(here, 3, MIB / 4));
			/* One copy that names it twice. */
			MUST(cu.cuMemcpyDtoD_v2(here, there + 2 * MIB, MIB));
			CHECK(vmm_counts(there, 3 + 2 * MIB / 4, MIB / 4));
		}
		CHECK(vmm_counts(third + 2 * MIB, 3 + 2 * MIB / 4, 100));
		CHECK(vmm_access_of(third, 0) == CU_MEM_ACCESS_FLAGS_PROT_READ);
		vmm_press();
	}
	vmm_unmap(at, N * bytes);
	for (unsigned i = 0; i < N; i++)
		MUST(cu.cuMemRelease(handle[i]));
	CHECK(vmm_counts(other + 2 * bytes + 2 * MIB, 3 + 2 * MIB / 4, 100));
	vmm_unmap(other, N * bytes);
	CHECK(vmm_counts(third + 2 * MIB, 3 + 2 * MIB / 4, 100));
	vmm_unmap_and_free(third, bytes, bytes);
	MUST(cu.cuMemAddressFree(at, N * bytes));
	MUST(cu.cuMemAddressFree(other, N * bytes));
}

TEST(handle_takes_its_contents_along)
{
	vmm_run(handles_change_places);
	vmm_run(handles_lie_by);
}

/* ---- graphs ---- */

PART_TEST(graph_runs_over_many_handles_again_and_again, vmm_run(part))
{
	const size_t half = VMM_MIB / 2 * MIB;
	CUgraph graph;
	void *host;

	CUdeviceptr at = vmm_segment(), block = child_alloc(2 * MIB);
	vmm_kernel();
	MUST(cu.cuMemHostAlloc(&host, half, 0));
	CUstream stream = child_stream();
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	/* While captured: what makes and maps memory is none of the capture's business. */
	vmm_map_new(at + VMM_MIB * MIB, GRANULE);
	vmm_count(stream, at + 4, 1000, half / 4);
	MUST(cuMemcpyDtoDAsync_v2(at + half, at + 4, half - 4, stream));
	MUST(cuMemsetD32Async(at + half - 4096, 0xfeed, 2048, stream));
	MUST(cuMemcpyDtoDAsync_v2(block, at + 5 * MIB, 2 * MIB, stream));
	MUST(cu.cuMemcpyDtoHAsync_v2(host, at + half, half, stream));
	MUST(cu.cuMemUnmap(at + VMM_MIB * MIB, GRANULE));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	CUgraphExec exec = driver_instance(graph);
	for (unsigned round = 0; round < 6; round++) {
		if (round % 2) {
			/* Other memory at the same addresses; the graph is none the wiser. */
			vmm_unmap(at + vmm_sizes[0], vmm_sizes[1] + vmm_sizes[2]);
			vmm_map_new(at + vmm_sizes[0], vmm_sizes[1]);
			vmm_map_new(at + vmm_sizes[0] + vmm_sizes[1], vmm_sizes[2]);
		}
		vmm_press();
		MUST(cu.cuMemsetD32_v2(at, 7, VMM_MIB * MIB / 4));
		MUST(cu.cuCtxSynchronize());
		MUST(cu.cuGraphLaunch(exec, stream));
		MUST(cu.cuStreamSynchronize(stream));
		CHECK(driver_holds(at, 7, 1) && vmm_counts(at + 4, 1000, half / 4 - 1025));
		CHECK(driver_holds(at + half - 4096, 0xfeed, 2048));
		CHECK(vmm_counts(at + half + 4096, 1000 + 1024, half / 4 - 1025));
		CHECK(vmm_counts(block, 1000 + 5 * MIB / 4 - 1, MIB / 2));
		CHECK(((unsigned *)host)[0] == 0xfeed && ((unsigned *)host)[half / 4 - 2] == 1000 + half / 4 - 2);
	}
	MUST(cu.cuGraphExecDestroy(exec));
	MUST(cu.cuGraphDestroy(graph));
	MUST(cu.cuMemFreeHost(host));
	MUST(cu.cuMemFree_v2(block));
	vmm_segment_drop(at);
}

/* ---- many at once ---- */

enum { THREADS = 4, TURNS = 60 };
static CUcontext shared;
static CUdeviceptr common; /* one reservation for all: each has its part */

static void *thread_body(void *argument)
{
	unsigned me = (unsigned)(uintptr_t)argument, random = me + 1;
	CUdeviceptr at = common + me * 16 * MIB, block;
	bool mapped[4] = {false};
	handle_id kept = 0;

	MUST(cu.cuCtxSetCurrent(shared));
	CUstream stream = child_stream();
	for (unsigned turn = 0; turn < TURNS; turn++) {
		random = random * 1664525u + 1013904223u;
		unsigned i = random >> 30;
		CUdeviceptr here = at + i * 4 * MIB;

		if (mapped[i]) {
			CHECK(vmm_counts(here, me * 4 + i, MIB));
			MUST(cu.cuMemUnmap(here, 4 * MIB));
		} else if (i == 3) {
			if (!kept)
				kept = vmm_create(0, 4 * MIB);
			vmm_map(here, 4 * MIB, kept);
		} else {
			vmm_map_new(here, 4 * MIB);
		}
		mapped[i] = !mapped[i];
		if (mapped[i])
			vmm_count(stream, here, me * 4 + i, MIB);
		if (random >> 28 & 1) {
			block = child_alloc(MIB);
			vmm_count(stream, block, turn, MIB / 4);
			MUST(cu.cuStreamSynchronize(stream));
			CHECK(vmm_counts(block, turn, MIB / 4));
			MUST(cu.cuMemFree_v2(block));
		}
		MUST(cu.cuStreamSynchronize(stream));
	}
	for (unsigned i = 0; i < 4; i++)
		if (mapped[i])
			MUST(cu.cuMemUnmap(at + i * 4 * MIB, 4 * MIB));
	if (kept)
		MUST(cu.cuMemRelease(kept));
	MUST(cu.cuStreamDestroy_v2(stream));
	return NULL;
}

PART_TEST(threads_map_and_unmap_at_once, vmm_run(part))
{
	pthread_t thread[THREADS];

	shared = driver_current();
	common = vmm_reserve(THREADS * 16 * MIB);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&thread[i], NULL, thread_body, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	MUST(cu.cuMemAddressFree(common, THREADS * 16 * MIB));
}

/* ---- no room ---- */

PART_TEST(out_of_memory_is_told_when_it_is_made, vmm_run(part))
{
	const CUmemAllocationProp prop = form_memory(0);
	enum { PIECES = 64 };
	const size_t bytes = 8 * MIB;
	handle_id handle[PIECES], more;
	CUresult result;
	unsigned n = 0;

	CUdeviceptr at = vmm_reserve(PIECES * bytes);
	for (int round = 0; round < 3; round++) {
		while (n < PIECES && (result = cu.cuMemCreate(&handle[n], bytes, &prop, 0)) == CUDA_SUCCESS)
			n++;
		CHECK(n < PIECES && result == CUDA_ERROR_OUT_OF_MEMORY && n * bytes >= 64 * MIB);
		/* What was made can be mapped. */
		for (unsigned i = 0; i < n; i++) {
			vmm_map(at + i * bytes, bytes, handle[i]);
			vmm_count(NULL, at + i * bytes, i << 24, bytes / 4);
		}
		for (unsigned i = 0; i < n; i++)
			CHECK(vmm_counts(at + i * bytes, i << 24, bytes / 4));
		CHECK(cu.cuMemCreate(&more, bytes, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
		/* Where one goes there is room for one; while it is mapped it has not gone. */
		MUST(cu.cuMemRelease(handle[0]));
		CHECK(cu.cuMemCreate(&more, bytes, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
		vmm_unmap(at, bytes);
		MUST(cu.cuMemCreate(&handle[0], bytes, &prop, 0));
		vmm_map(at, bytes, handle[0]);
		vmm_count(NULL, at, 9, bytes / 4);
		CHECK(vmm_counts(at, 9, bytes / 4));
		vmm_unmap(at, n * bytes);
		while (n)
			MUST(cu.cuMemRelease(handle[--n]));
	}
	MUST(cu.cuMemAddressFree(at, PIECES * bytes));
}

/* A job that is put to sleep and woken: addresses stay, memory goes and comes. */
PART_TEST(memory_that_is_released_can_be_had_again, vmm_run(part))
{
	enum { ROUNDS = 10, N = 6 };
	const size_t bytes = 10 * MIB, words = bytes / 4;

	CUdeviceptr at = vmm_reserve(N * bytes);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < N; i++)
			vmm_map_new(at + i * bytes, bytes);
		for (unsigned again = 0; again < 2; again++)
			for (unsigned i = 0; i < N; i++)
				vmm_count(NULL, at + i * bytes, round * 100 + i + again, words);
		for (unsigned i = 0; i < N; i++)
			CHECK(vmm_counts(at + i * bytes, round * 100 + i + 1, words));
		vmm_unmap(at, N * bytes);
		if (round % 4 == 1)
			vmm_press();
	}
	MUST(cu.cuMemAddressFree(at, N * bytes));
}
