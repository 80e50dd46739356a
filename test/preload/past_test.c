// SPDX-License-Identifier: Apache-2.0
/*
 * Contexts that end before, and while, memory moves: nothing is asked in them any more, they keep nothing from moving,
 * and what is right stays right. Each part is a process of its own with a job that needs twice its budget (scene.h).
 */
#include "test/preload/scene.h"
#include "test/test.h"

#include <stdatomic.h>

/* Of the device's 256 MiB (SCENE_SETTINGS): more than it has free beside what the scene keeps there. */
#define ALL_BUT_A_LITTLE (252 * MIB)

static struct scene scene;

static void job(void)
{
	scene_open_warm(&scene);
	for (int i = 0; i < 20; i++)
		MUST(scene_round(&scene, NULL, 1));
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	scene_close(&scene);
}

/* ---- before the first allocation, when no books are kept yet ---- */

static void destroyed_before(void)
{
	driver_open();
	MUST(cu.cuInit(0));
	MUST(cu.cuCtxDestroy_v2(child_context()));
	job();
}

static void detached_before(void)
{
	CUcontext context, again;

	driver_open();
	MUST(cu.cuInit(0));
	context = child_context();
	MUST(cuCtxAttach(&again, 0));
	CHECK(again == context);
	MUST(cuCtxDetach(context));
	MUST(cu.cuCtxSynchronize()); /* is alive */
	MUST(cuCtxDetach(context));
	job();
}

/* The primary context of another device: of the first one the job makes it again. */
static void released_before(void)
{
	driver_start(1);
	MUST(cu.cuDevicePrimaryCtxRelease_v2(1));
	job();
}

static void reset_before(void)
{
	driver_start(1);
	MUST(cu.cuDevicePrimaryCtxReset_v2(1));
	job();
}

/* ---- beside the job ---- */

static atomic_bool stop;
static atomic_uint n_contexts;

/* A stream of the current context, and a block that goes with the context or before it. */
static void use_the_current_one(bool free)
{
	CUstream stream = child_stream();
	CUdeviceptr block = child_alloc(4096);

	MUST(cu.cuMemsetD8Async(block, 1, 4096, stream));
	if (free)
		MUST(cu.cuMemFree_v2(block));
}

/* Contexts that come and go: the mover asks in each whether it is idle. */
static void *come_and_go(void *argument)
{
	while (!atomic_load(&stop)) {
		CUcontext context = child_context();

		use_the_current_one(atomic_fetch_add(&n_contexts, 1) % 2);
		MUST(cu.cuCtxDestroy_v2(context));
	}
	return NULL;
}

/* Memory of green contexts is the primary one's: it would stay. */
static void *come_and_go_green(void *argument)
{
	while (!atomic_load(&stop)) {
		CUcontext context;
		CUgreenCtx green;

		MUST(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
		MUST(cuCtxFromGreenCtx(&context, green));
		MUST(cu.cuCtxSetCurrent(context));
		use_the_current_one(true);
		atomic_fetch_add(&n_contexts, 1);
		MUST(cu.cuCtxSetCurrent(NULL));
		MUST(cuGreenCtxDestroy(green));
	}
	return NULL;
}

/*
 * Memory still moves: by itself, or on order, when the device has no memory for the program's own. By itself it may not
 * move for up to a minute, if the library has seen on a loaded machine that moving takes long.
 */
static bool memory_moves(void)
{
	const CUmemAllocationProp prop = form_memory(0);
	CUmemGenericAllocationHandle handle;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	while (result == CUDA_ERROR_OUT_OF_MEMORY && !scene_moves_within(&scene, 100))
		result = cu.cuMemCreate(&handle, ALL_BUT_A_LITTLE, &prop, 0);
	if (result == CUDA_SUCCESS)
		MUST(cu.cuMemRelease(handle));
	return result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY;
}

static void ends_beside(void *(*come)(void *))
{
	scene_open(&scene, 0);
	pthread_t thread = test_thread(come, NULL);
	for (int i = 0; i < 60 || atomic_load(&n_contexts) < 100; i++) {
		MUST(scene_round(&scene, NULL, 0));
		MUST(cu.cuStreamSynchronize(NULL));
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	CHECK(memory_moves());
	CHECK(scene_holds(&scene));
	scene_close(&scene);
}

/* A release that ends nothing, while another thread is in the context for as long as this one says. */
static atomic_bool frees;
static CUdeviceptr held_block;

static void *free_from_outside(void *argument)
{
	CUcontext context = child_context();

	atomic_store(&frees, true);
	MUST(cu.cuMemFree_v2(held_block));
	MUST(cu.cuCtxDestroy_v2(context));
	return NULL;
}

static void contexts_end(void)
{
	ends_beside(come_and_go);
}

static void green_contexts_end(void)
{
	ends_beside(come_and_go_green);
}

TEST(contexts_of_the_past_keep_nothing_from_moving)
{
	static void (*const parts[])(void) = {destroyed_before, detached_before, released_before, reset_before};

	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		assert_int_equal(child_run(SCENE_SETTINGS("SIM_DEVICES=2"), parts[i]), 0);
}

TEST(contexts_that_come_and_go_are_left_in_time)
{
	assert_int_equal(child_run(SCENE_SETTINGS("SIM_DELAY_US=20"), contexts_end), 0);
	assert_int_equal(child_run(SCENE_SETTINGS("SIM_DELAY_US=20"), green_contexts_end), 0);
}

/* Of another device: the last owner of its primary context, which ends with it. */
CHILD_TEST(the_last_owner_of_a_context_may_be_a_green_one, SCENE_SETTINGS("SIM_DEVICES=2"))
{
	CUcontext context, popped;
	CUgreenCtx green;

	scene_open_warm(&scene);
	for (int i = 0; i < 2; i++) {
		MUST(cuGreenCtxCreate(&green, NULL, 1, CU_GREEN_CTX_DEFAULT_STREAM));
		MUST(cuCtxFromGreenCtx(&context, green));
		MUST(cu.cuCtxPushCurrent_v2(context));
		struct scene other = {0};
		for (unsigned b = 0; b < SCENE_BLOCKS; b++)
			other.block[b] = child_alloc(SCENE_BYTES);
		CUstream stream = child_stream();
		for (int k = 0; k < 20; k++)
			for (unsigned b = 0; b < SCENE_BLOCKS; b++)
				MUST(cu.cuMemsetD8Async(other.block[b], (unsigned char)k, SCENE_BYTES, stream));
		MUST(cu.cuCtxPopCurrent_v2(&popped));
		MUST(cuGreenCtxDestroy(green));
		CHECK(sim_broken_rules() == 0);
	}
	CHECK(scene_warm_up(&scene));
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
}

/* It hung for two minutes. */
CHILD_TEST(a_release_that_ends_nothing_waits_for_nobody, SCENE_SETTINGS())
{
	CUcontext context;

	driver_start(0);
	held_block = child_alloc(MIB);
	unsigned *word = child_hold(child_stream());
	pthread_t thread = test_thread(free_from_outside, NULL);
	UNTIL(atomic_load(&frees));
	usleep(50000);
	for (int i = 0; i < 20; i++) {
		MUST(cu.cuDevicePrimaryCtxRetain(&context, 0));
		MUST(cu.cuDevicePrimaryCtxRelease_v2(0));
	}
	child_release(word);
	pthread_join(thread, NULL);
}

START(scene_size = SCENE_SMALL)
