// SPDX-License-Identifier: Apache-2.0
/*
 * Programs on several GPUs whose device memory is managed memory by policy: each GPU's own, kernels and copies of one
 * on what another has, and ends while another one is current. What hints do has a program of its own
 * (managed_peer_hint_test.c).
 */
#include "shim/spillway.h"
#include "shim/stats/stats_page.h"
#include "test/preload/managed_help.h"
#include "test/test.h"

#include <sys/mman.h>

/* ---- whose it is ---- */

static const struct stats_page *figures(void)
{
	char path[256];

	CHECK(folder_files(STATS_TAIL, path) == 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const struct stats_page *page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
	CHECK(fd >= 0 && page != MAP_FAILED);
	close(fd);
	return page;
}

PART_TEST(a_block_belongs_to_the_device_it_was_asked_for_on, run_part(SETTINGS("all", ""), part);
	  run_part(SETTINGS("none", ""), part))
{
	CUdeviceptr block[N];

	start_gpus();
	for (int d = 0; d < N; d++)
		block[d] = new_on(d, BYTES * (size_t)(d + 1));
	const struct stats_page *page = figures();
	for (int d = 0; d < N; d++) {
		on_gpu((d + 1) % N);
		CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block[d]) == (uint64_t)d);
		CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_CONTEXT, block[d]) == (uintptr_t)contexts[d]);
		CHECK(range_attribute(block[d], CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == d);
		CHECK(range_attribute(block[d], CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE) ==
		      CU_MEM_LOCATION_TYPE_DEVICE);
		CHECK(range_attribute(block[d], CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID) == d);
		CHECK(page->device[d].live[PLACE_MANAGED] == BYTES * (size_t)(d + 1));
		fill_on(d, block[d], (unsigned)d);
		CHECK(sim_managed_where(block[d]) == ON(d) && sim_managed_of(d).resident == BYTES);
	}
	for (int d = 0; d < N; d++) {
		on_gpu((d + 2) % N);
		MUST(cu.cuMemFree_v2(block[d]));
		CHECK(page->device[d].live[PLACE_MANAGED] == 0);
		CHECK(page->device[d].peak[PLACE_MANAGED] == BYTES * (size_t)(d + 1));
		CHECK(sim_managed_of(d).resident == 0);
	}
	end_gpus();
}

/* ---- who uses it ---- */

static void copies(CUdeviceptr mine, int me, CUdeviceptr other, int it)
{
	CUDA_MEMCPY3D_PEER box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				  .srcDevice = mine,
				  .srcContext = contexts[me],
				  .srcPitch = 4096,
				  .srcHeight = 16,
				  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				  .dstDevice = other,
				  .dstContext = contexts[it],
				  .dstPitch = 4096,
				  .dstHeight = 16,
				  .WidthInBytes = 4096,
				  .Height = 16,
				  .Depth = BYTES / 65536};

	fill_on(me, mine, 21);
	on_gpu(it);
	CUstream stream = child_stream();
	MUST(cu.cuMemcpyPeer(other, contexts[it], mine, contexts[me], BYTES));
	MUST(cu.cuCtxSynchronize());
	holds_everywhere(other, 21);
	fill_on(it, other, 22);
	on_gpu(me);
	MUST(cu.cuMemcpyDtoD_v2(mine, other, BYTES));
	MUST(cu.cuCtxSynchronize());
	holds_everywhere(mine, 22);
	fill_on(me, mine, 23);
	on_gpu(it);
	MUST(cuMemcpyPeerAsync(other, contexts[it], mine, contexts[me], BYTES, stream));
	MUST(cu.cuStreamSynchronize(stream));
	holds_everywhere(other, 23);
	fill_on(me, mine, 24);
	MUST(cuMemcpy3DPeer(&box));
	MUST(cu.cuCtxSynchronize());
	holds_everywhere(other, 24);
	on_gpu(it);
	MUST(cu.cuMemsetD8Async(mine, 0x25, BYTES, stream));
	MUST(cu.cuStreamSynchronize(stream));
	holds_everywhere(mine, 0x25252525);
	MUST(cu.cuStreamDestroy_v2(stream));
}

/* With memory in the heap of another device, which its own kernels alone may name. */
static void copies_with_the_heap(CUdeviceptr block, int it)
{
	const size_t bytes = MIB / 2;
	CUdeviceptr small = new_on(it, bytes);

	MUST(driver_fill(NULL, small, 31, bytes / 4));
	MUST(cu.cuMemcpyDtoD_v2(block, small, bytes));
	MUST(driver_copy(NULL, small, block + bytes, bytes / 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(home_words(block)[0] == 31 && home_words(block)[bytes / 4 - 1] == 31);
	CHECK(driver_holds(small, home_words(block)[bytes / 4], bytes / 4));
	on_gpu((it + 1) % N);
	MUST(cu.cuMemcpyPeer(small, contexts[it], block, contexts[(it + 1) % N], bytes));
	CHECK(driver_holds(small, 31, bytes / 4));
	MUST(cu.cuMemFree_v2(small));
}

PART_TEST(every_gpu_uses_what_any_has, run_part(SETTINGS("all", ""), part); run_part(SETTINGS("0-1", ""), part);
	  run_part(SETTINGS("none", ""), part))
{
	CUdeviceptr block[N];

	start_gpus();
	for (int d = 0; d < N; d++)
		block[d] = new_on(d, BYTES);
	/* No kernel needs peer access for it; and who has it does as well. */
	for (int round = 0; round < 2; round++) {
		for (int d = 0; d < N; d++)
			for (int other = 0; other < N; other++) {
				unsigned value = (unsigned)(round * 100 + d * 10 + other);

				fill_on(other, block[d], value);
				holds_everywhere(block[d], value);
			}
		on_gpu(0);
		CHECK(cuCtxEnablePeerAccess(contexts[1], 0) ==
		      (strcmp(getenv("SIM_PEERS"), "none") && !round ? CUDA_SUCCESS
		       : !strcmp(getenv("SIM_PEERS"), "none")        ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
								     : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED));
	}
	copies(block[0], 0, block[1], 1);
	copies(block[2], 2, block[0], 0);
	fill_on(1, block[1], 30);
	copies_with_the_heap(block[1], 1);
	copies_with_the_heap(block[1], 0);
	copies_with_the_heap(block[1], 3);
	for (int d = 0; d < N; d++)
		MUST(cu.cuMemFree_v2(block[d]));
	end_gpus();
}

PART_TEST(more_than_each_has_works_on_each, run_part(SETTINGS("all", ""), part); run_part(SETTINGS("none", ""), part))
{
	CUdeviceptr block[2 * N];

	start_gpus();
	for (int i = 0; i < 2 * N; i++) {
		block[i] = new_on(i % N, 40 * MIB);
		MUST(driver_fill(NULL, block[i], (unsigned)i, 40 * MIB / 4));
	}
	for (int d = 0; d < N; d++) {
		on_gpu(d);
		MUST(cu.cuCtxSynchronize());
		CHECK(sim_managed_of(d).evictions > 0 && sim_managed_of(d).bytes_out > 0);
	}
	/* The figures of each, when they are brought up to date. */
	CHECK(spillway_checkpoint_stats() == 0);
	for (int d = 0; d < N; d++) {
		struct sim_managed model = sim_managed_of(d);
		const struct stats_device *seen = &figures()->device[d];

		CHECK(seen->fault[FAULT_GPU] == model.gpu_faults && seen->live[PLACE_MANAGED] == 80 * MIB);
		CHECK(seen->fault[FAULT_IN_BYTES] == model.bytes_in && seen->fault[FAULT_OUT_BYTES] == model.bytes_out);
	}
	for (int i = 0; i < 2 * N; i++) {
		on_gpu((i + 1) % N);
		CHECK(driver_holds(block[i], (unsigned)i, 40 * MIB / 4));
		MUST(cu.cuMemFree_v2(block[i]));
	}
	end_gpus();
}

/* ---- what the policy brings ---- */

PART_TEST(the_policy_brings_it_to_the_gpu_that_wants_it, run_part(SETTINGS("all", ",managed.prefetch=on-alloc"), part))
{
	start_gpus();
	for (int d = 0; d < N; d++) {
		CUdeviceptr block = new_on(d, BYTES);

		MUST(cu.cuCtxSynchronize());
		CHECK(sim_managed_where(block) == ON(d) && sim_managed_of(d).gpu_faults == 0);
		on_gpu((d + 1) % N);
		MUST(cu.cuMemFree_v2(block));
	}
	end_gpus();
}

/* ---- how it ends ---- */

/* Behind a stream of another GPU, which alone knows when it is done with it. */
static void is_freed_behind(int owner, int user)
{
	CUdeviceptr block = new_on(owner, BYTES), next;

	on_gpu(user);
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);
	MUST(driver_fill(stream, block, 6, BYTES / 4));
	CHECK(cu.cuMemFreeAsync(block, stream) == CUDA_SUCCESS);
	CHECK(cu.cuMemFree_v2(block) == CUDA_ERROR_INVALID_VALUE);
	next = new_on(owner, BYTES);
	CHECK(next != block);
	child_release(word);
	on_gpu(user);
	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuStreamDestroy_v2(stream));
	MUST(cu.cuMemFreeHost(word));
	MUST(cu.cuMemFree_v2(next));
	/* An allocation looks at what streams have passed. */
	MUST(cu.cuMemFree_v2(new_on(owner, BYTES)));
	CHECK(!child_is_alive(block));
}

PART_TEST(a_block_ends_whichever_gpu_is_current, run_part(SETTINGS("all", ""), part);
	  run_part(SETTINGS("none", ""), part))
{
	start_gpus();
	for (int owner = 0; owner < N; owner++)
		for (int user = 0; user < N; user++)
			is_freed_behind(owner, user);
	/* Without any context. */
	CUdeviceptr first = new_on(2, BYTES);
	MUST(cu.cuCtxSetCurrent(NULL));
	CUresult result = cu.cuMemFree_v2(first);
	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_CONTEXT);
	if (result != CUDA_SUCCESS) {
		on_gpu(0);
		MUST(cu.cuMemFree_v2(first));
	}
	/* With its context, and nobody else's. */
	first = new_on(0, BYTES);
	CUdeviceptr second = new_on(1, BYTES);
	fill_on(1, first, 8);
	fill_on(0, second, 9);
	MUST(cu.cuDevicePrimaryCtxReset_v2(1));
	on_gpu(0);
	CHECK(!child_is_alive(second) && cu.cuMemFree_v2(second) == CUDA_ERROR_INVALID_VALUE);
	CHECK(driver_holds(first, 8, BYTES / 4));
	MUST(cu.cuMemFree_v2(first));
	CHECK(figures()->device[1].live[PLACE_MANAGED] == 0 && sim_managed().resident == 0);
}

EACH_TEST(folder_make, folder_remove)
