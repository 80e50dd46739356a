// SPDX-License-Identifier: Apache-2.0
/*
 * What a program that knows Spillway asks of its memory (spillway.h): on a job that needs twice its budget and whose
 * memory moves (scene.h); each part in a process of its own, in each mode. Discarding: discard_test.c.
 */
#include "test/preload/typed_alloc_help.h"

#include <dlfcn.h>

#define LARGE (4 * MIB)

/* ---- budgets ---- */

PART_TEST(budgets_are_what_the_policy_says_and_what_is_in_use, own_run(part))
{
	uint64_t device = 0, host = 0, device_used = 1, host_used = 1;

	driver_start(0);
	CHECK(spillway_budget(0, &device, &host, &device_used, &host_used) == 0);
	CHECK(device == SCENE_BUDGET && host == SCENE_HOST && device_used == 0 && host_used == 0);
	CUdeviceptr block = child_alloc(LARGE), more = child_alloc(SCENE_BUDGET);
	CHECK(spillway_budget(0, NULL, NULL, &device_used, &host_used) == 0);
	CHECK(device_used + host_used == LARGE + SCENE_BUDGET && host_used && device_used <= SCENE_BUDGET);
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuMemFree_v2(more));
	CHECK(spillway_budget(0, &device, NULL, &device_used, &host_used) == 0);
	CHECK(device == SCENE_BUDGET && device_used == 0 && host_used == 0);
	errno = 77;
	CHECK(spillway_budget(7, &device, NULL, NULL, NULL) == -ENODEV && errno == 77);
	CHECK(spillway_budget(-1, NULL, NULL, NULL, NULL) == -ENODEV);
}

/* ---- where ---- */

static void places(void)
{
	int here = 0;
	void *pinned;
	CUdeviceptr pool;

	driver_start(0);
	MUST(cu.cuMemAllocAsync(&pool, MIB, NULL)); /* while the budget has room: then it is the driver's */
	CUdeviceptr block = child_alloc(3 * MIB), small = child_alloc(1000), large = child_alloc(SCENE_BUDGET);
	struct spillway_place place = own_place(block + 12345);
	CHECK(place.backend == SPILLWAY_HEAP && place.bytes == 3 * MIB && place.bytes_on_device == 3 * MIB &&
	      place.bytes_on_host == 0 && place.movable == scene_moves());
	place = own_place(small + 999);
	CHECK(place.backend == SPILLWAY_HEAP && place.bytes == 1000 && place.bytes_on_device == 1000);
	place = own_place(large);
	CHECK(place.bytes_on_device + place.bytes_on_host == SCENE_BUDGET && place.bytes_on_host >= 6 * MIB);
	CUdeviceptr managed = driver_managed(MIB);
	MUST(cu.cuMemHostAlloc(&pinned, MIB, 0));
	place = own_place(managed + 10);
	CHECK(place.backend == SPILLWAY_MANAGED && place.bytes == MIB && !place.bytes_on_device && !place.movable);
	CHECK(own_place(pool).backend == SPILLWAY_POOL && own_place(pool).bytes_on_device == MIB);
	place = own_place((CUdeviceptr)(uintptr_t)pinned + 5);
	CHECK(place.backend == SPILLWAY_PINNED && place.bytes_on_host == MIB);
	CHECK(spillway_where(&here, &place) == -ENOENT && spillway_where(NULL, &place) == -ENOENT);
	CHECK(spillway_where(own_pointer(small + 1000), &place) == -ENOENT);
	CHECK(spillway_where(own_pointer(block), NULL) == -EINVAL);
	CHECK(spillway_pin(own_pointer(managed)) == -ENOTSUP && spillway_grow(&here, 5) == -ENOENT);
	MUST(cu.cuMemFree_v2(block));
	CHECK(spillway_where(own_pointer(block), &place) == -ENOENT && spillway_pin(own_pointer(block)) == -ENOENT);
}

static void switched_off(void)
{
	struct spillway_place place;

	driver_start(0);
	CUdeviceptr block = child_alloc(LARGE);
	CHECK(spillway_budget(0, NULL, NULL, NULL, NULL) == -ENOTSUP);
	CHECK(spillway_where(own_pointer(block), &place) == -ENOTSUP && spillway_pin(own_pointer(block)) == -ENOTSUP);
	CHECK(spillway_grow(own_pointer(block), 2 * LARGE) == -ENOTSUP &&
	      spillway_discard(own_pointer(block), 1) == -ENOTSUP);
	CHECK(spillway_checkpoint_stats() == -ENOTSUP);
}

/* A kernel that is given an address within a block brings all of it in `fast`, also what lies before. */
PART_TEST(a_block_comes_whole_for_a_kernel_that_names_its_end, own_run(part))
{
	scene_open(&own_scene, 0);
	CUdeviceptr block = own_scene.block[2], at = block + 4 * MIB;
	uint32_t n = 1, lane = 0;
	void *args[] = {&at, &n, &lane};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};

	if (strcmp(scene_mode(), "fast") != 0)
		return;
	own_empty_device();
	/* It is left where it is for a second at first. */
	for (time_t end = time(NULL) + 30; own_is_out(block) && time(NULL) < end;) {
		MUST(cuLaunchKernelEx(&config, own_scene.touch, args, NULL));
		MUST(cu.cuCtxSynchronize());
	}
	CHECK(own_place(block).bytes_on_device == SCENE_BYTES && own_is_out(own_scene.block[1]));
}

/* ---- pinning ---- */

static bool stays(CUdeviceptr block)
{
	struct spillway_place before = own_place(block);

	for (int i = 0; i < 60; i++) {
		own_rounds(1);
		struct spillway_place now = own_place(block);
		if (now.bytes_on_device != before.bytes_on_device || now.movable)
			return false;
	}
	return true;
}

static void pins(void)
{
	scene_open(&own_scene, 0);
	scene_warm_up(&own_scene);
	for (unsigned i = 0; i < 2; i++)
		CHECK(spillway_pin(own_pointer(own_scene.block[i] + 77)) == 0);
	CHECK(spillway_pin(own_pointer(own_scene.block[0])) == 0);
	CHECK(stays(own_scene.block[0]) && stays(own_scene.block[1]));
	uint64_t on_device = own_place(own_scene.block[0]).bytes_on_device;
	if (scene_moves()) {
		own_empty_device();
		CHECK(own_place(own_scene.block[0]).bytes_on_device == on_device && own_is_out(own_scene.block[2]));
	}
	CHECK(spillway_unpin(own_pointer(own_scene.block[0])) == 0 && stays(own_scene.block[0]));
	CHECK(spillway_unpin(own_pointer(own_scene.block[0])) == 0 &&
	      spillway_unpin(own_pointer(own_scene.block[1])) == 0);
	CHECK(spillway_unpin(own_pointer(own_scene.block[0])) == -EINVAL);
	CHECK(own_place(own_scene.block[0]).movable == scene_moves());
	if (scene_moves()) {
		own_empty_device();
		CHECK(own_is_out(own_scene.block[0]));
	}
	own_end();
}

/* Pins of small blocks end with them, though the memory they share goes on. */
static void pins_of_small_blocks(void)
{
	driver_start(0);
	CUdeviceptr first = child_alloc(1000), second = child_alloc(1000), large = child_alloc(LARGE);
	CHECK(spillway_pin(own_pointer(first)) == 0 && spillway_pin(own_pointer(first)) == 0);
	CHECK(spillway_pin(own_pointer(large)) == 0);
	CHECK(!own_place(second).movable && spillway_unpin(own_pointer(second)) == -EINVAL);
	MUST(cu.cuMemFree_v2(first));
	CHECK(own_place(second).movable == scene_moves());
	MUST(cu.cuMemFree_v2(large));
	large = child_alloc(LARGE);
	CHECK(own_place(large).movable == scene_moves() && spillway_unpin(own_pointer(large)) == -EINVAL);
}

/* ---- on the host ---- */

PART_TEST(a_block_that_should_be_on_the_host_goes_there_and_stays, own_run(part))
{
	scene_open(&own_scene, 0);
	CUdeviceptr small = child_alloc(1000);
	if (!scene_moves()) {
		CHECK(spillway_prefer_host(own_pointer(own_scene.block[0])) == -ENOTSUP);
		own_end();
		return;
	}
	CHECK(spillway_prefer_host(own_pointer(small)) == -ENOTSUP);
	CHECK(scene_warm_up(&own_scene));
	CHECK(spillway_prefer_host(own_pointer(own_scene.block[0])) == 0 &&
	      spillway_prefer_host(own_pointer(own_scene.block[3])) == 0);
	own_see_out(own_scene.block[0]);
	own_see_out(own_scene.block[3]);
	for (int i = 0; i < 200; i++) {
		own_rounds(1);
		CHECK(own_is_out(own_scene.block[0]) && own_is_out(own_scene.block[3]));
	}
	CHECK(own_place(own_scene.block[1]).movable);
	own_end();
}

/* All of it, 2 MiB by 2 MiB; on another device that lends memory nothing. */
static bool is_on_host(CUdeviceptr block)
{
	for (size_t at = 0; at < SCENE_BYTES; at += 2 * MIB)
		if (sim_where(block + at) != 'H')
			return false;
	return true;
}

/* Rounds until it is there. False: in `exact` the GPU is not stopped at all where moving does not pay just now. */
static bool comes_to_host(CUdeviceptr block)
{
	unsigned long maps = 0;

	for (int n = 0; !is_on_host(block); n++) {
		if (n == 2000)
			maps = sim_calls("cuMemMap");
		if (n == 3000) {
			CHECK(!strcmp(scene_mode(), "exact") && sim_calls("cuMemMap") == maps);
			return false;
		}
		own_rounds(1);
	}
	return true;
}

/* Blocks on the device and blocks on a peer that holds all of the rest. */
static void to_the_host_past_peers(void)
{
	scene_open(&own_scene, 0);
	own_rounds(10);
	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		CHECK(!is_on_host(own_scene.block[i]));
	for (int i = 0; i < 4; i++)
		CHECK(spillway_prefer_host(own_pointer(own_scene.block[i])) == 0);
	bool is_there = true;
	for (int i = 0; i < 4 && is_there; i++)
		is_there = comes_to_host(own_scene.block[i]);
	for (int i = 0; i < 100 && is_there; i++) {
		own_rounds(1);
		CHECK(is_on_host(own_scene.block[i % 4]));
	}
	own_end();
}

/* ---- growing ---- */

/* A piece that was on its way when its block was freed is in use until its move has ended. */
static bool nothing_is_used(void)
{
	uint64_t used = 1;

	for (int ms = 0; ms < 10000 && used; ms++) {
		CHECK(spillway_budget(0, NULL, NULL, &used, NULL) == 0);
		usleep(1000 * (used != 0));
	}
	return used == 0;
}

static void growing(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(3 * MIB);
	MUST(driver_fill(NULL, block, 0x1234, 3 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	unsigned long copies = sim_calls("cuMemcpyDtoDAsync_v2") + sim_calls("cuMemcpyDtoHAsync_v2");
	CHECK(spillway_grow(own_pointer(block), 4 * MIB) == 0 && own_place(block).bytes == 4 * MIB);
	CHECK(spillway_grow(own_pointer(block + MIB), 9 * MIB) == 0 && own_place(block + 8 * MIB).bytes == 9 * MIB);
	CHECK(spillway_grow(own_pointer(block), MIB) == 0 && own_place(block).bytes == 9 * MIB);
	CHECK(sim_calls("cuMemcpyDtoDAsync_v2") + sim_calls("cuMemcpyDtoHAsync_v2") == copies);
	CHECK(driver_holds(block, 0x1234, 3 * MIB / 4));
	MUST(driver_fill(NULL, block, 0x77, 9 * MIB / 4));
	CHECK(driver_holds(block, 0x77, 9 * MIB / 4));
	size_t size;
	MUST(cu.cuMemGetAddressRange_v2(NULL, &size, block + 8 * MIB));
	CHECK(size == 9 * MIB);
	/* Beyond the budget it grows on the host. */
	CHECK(spillway_grow(own_pointer(block), 24 * MIB) == 0 && own_place(block).bytes_on_host >= 8 * MIB);
	MUST(driver_fill(NULL, block, 0x99, 24 * MIB / 4));
	CHECK(driver_holds(block, 0x99, 24 * MIB / 4));
	CUdeviceptr behind = child_alloc(3 * MIB);
	CHECK(behind == block + 26 * MIB); /* 2 MiB are left between allocations */
	CHECK(spillway_grow(own_pointer(block), 26 * MIB) == -ENOMEM && own_place(block).bytes == 24 * MIB);
	CHECK(spillway_grow(own_pointer(block), UINT64_MAX) == -ENOMEM);
	/* What is kept for later is in nobody's way. */
	MUST(cu.cuMemFree_v2(behind));
	CHECK(spillway_grow(own_pointer(block), 26 * MIB) == 0);
	CHECK(spillway_grow(own_pointer(block), 400 * MIB) == -ENOMEM && own_place(block).bytes == 26 * MIB);
	CHECK(driver_holds(block, 0x99, 24 * MIB / 4));
	CUdeviceptr small = child_alloc(1000);
	CHECK(spillway_grow(own_pointer(small), 1024) == 0 && spillway_grow(own_pointer(small), MIB) == -ENOMEM);
	MUST(cu.cuMemFree_v2(small));
	MUST(cu.cuMemFree_v2(block));
	CHECK(nothing_is_used());
}

static void growing_among_moves(void)
{
	scene_load(&own_scene, 0);
	scene_allocate(&own_scene);
	CUdeviceptr block = child_alloc(3 * MIB);
	MUST(driver_fill(NULL, block, 0x1234, 3 * MIB / 4));
	scene_warm_up(&own_scene);
	for (size_t bytes = 4 * MIB; bytes <= 12 * MIB; bytes += MIB) {
		CHECK(spillway_grow(own_pointer(block), bytes) == 0);
		MUST(driver_fill(NULL, block + bytes - MIB, (unsigned)(bytes / MIB), MIB / 4));
		own_rounds(10);
	}
	CHECK(driver_holds(block, 0x1234, 3 * MIB / 4));
	for (size_t bytes = 4 * MIB; bytes <= 12 * MIB; bytes += MIB)
		CHECK(driver_holds(block + bytes - MIB, (unsigned)(bytes / MIB), MIB / 4));
	MUST(cu.cuMemFree_v2(block));
	own_end();
}

/* ---- allocators for frameworks ---- */

PART_TEST(the_allocators_of_frameworks_go_to_the_heap, own_run(part))
{
	void *(*torch_alloc)(ssize_t, int, void *) =
	    (void *(*)(ssize_t, int, void *))dlsym(RTLD_DEFAULT, "spillway_torch_alloc");
	struct spillway_place place;
	CUcontext none;

	driver_open();
	MUST(cu.cuInit(0));
	CHECK(torch_alloc && torch_alloc == spillway_torch_alloc);
	unsigned long before = sim_calls("cuMemAlloc_v2");
	void *torch = torch_alloc(LARGE, 0, NULL), *cupy = spillway_cupy_malloc(NULL, LARGE, 0);
	CHECK(torch && cupy && sim_calls("cuMemAlloc_v2") == before);
	CHECK(cu.cuCtxGetCurrent(&none) == CUDA_SUCCESS && !none);
	CHECK(spillway_where(torch, &place) == 0 && place.backend == SPILLWAY_HEAP && place.bytes == LARGE);
	CHECK(spillway_where(cupy, &place) == 0 && place.backend == SPILLWAY_HEAP);
	CHECK(!spillway_torch_alloc(0, 0, NULL) && !spillway_torch_alloc(-1, 0, NULL) &&
	      !spillway_cupy_malloc(NULL, LARGE, 9));
	CHECK(!spillway_cupy_malloc(NULL, SIZE_MAX, 0));
	driver_start(0);
	/* Freed while a stream uses it: it returns at once, and the memory is not used again before that is over. */
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);
	MUST(driver_fill(stream, (CUdeviceptr)(uintptr_t)torch, 0x1111, LARGE / 4));
	spillway_torch_free(torch, LARGE, 0, NULL);
	CHECK(spillway_where(torch, &place) == -ENOENT);
	CUdeviceptr other = child_alloc(LARGE);
	CHECK(other != (CUdeviceptr)(uintptr_t)torch);
	child_release(word);
	MUST(cu.cuCtxSynchronize());
	spillway_cupy_free(NULL, cupy, 0);
	spillway_cupy_free(NULL, NULL, 0);
	MUST(cu.cuMemFree_v2(other));
	for (int i = 0; i < 100; i++) {
		cupy = spillway_cupy_malloc(NULL, LARGE, 0);
		CHECK(cupy);
		spillway_cupy_free(NULL, cupy, 0);
	}
}

TEST(every_block_is_where_it_is_said_to_be)
{
	own_run(places);
	assert_int_equal(child_run(SCENE_SETTINGS("SPILLWAY=0"), switched_off), 0);
}

TEST(a_pinned_block_stays_until_it_is_unpinned)
{
	own_run(pins);
	own_run(pins_of_small_blocks);
}

TEST(a_block_that_should_be_on_the_host_goes_past_gpus_that_lend)
{
	char set[200];

	snprintf(set, sizeof(set), "%s,spill.peers=1", scene_set());
	if (scene_moves())
		assert_int_equal(child_run(SCENE_SETTINGS("SIM_DEVICES=2", set), to_the_host_past_peers), 0);
}

TEST(a_block_grows_where_it_is)
{
	own_run(growing);
	own_run(growing_among_moves);
}
