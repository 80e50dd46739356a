// SPDX-License-Identifier: Apache-2.0
/*
 * The heap, managed memory and pages of the process in one program: the spill engine moves the heap's part and nothing
 * else, launches that name all of them are right, and threads that allocate and free them all do not get in each
 * other's way. In every mode (scene.h).
 */
#include "test/preload/home.h"
#include "test/preload/scene.h"
#include "test/test.h"

static struct scene scene;

/* The scene's blocks are in the heap by homes.yaml; 3 MiB are managed, 6 MiB are pages. */
enum { MANAGED = 3, PAGES = 6, ROUNDS = 40 };

CHILD_TEST(the_spill_engine_moves_the_heap_and_nothing_else, SCENE_SETTINGS("SPILLWAY_POLICY=" HOMES_POLICY))
{
	scene_load(&scene, 0);
	CUdeviceptr managed = child_alloc(MANAGED * MIB), pages = child_alloc(PAGES * MIB);
	CHECK(!driver_is_heap(managed) && !driver_is_heap(pages));
	scene_allocate(&scene);
	CHECK(driver_is_heap(scene.block[0]));
	CHECK(scene_warm_up(&scene));
	for (unsigned round = 1; round <= ROUNDS; round++) {
		MUST(driver_fill(NULL, managed, round, MANAGED * MIB / 4));
		MUST(scene_round(&scene, NULL, 0));
		MUST(driver_copy(NULL, pages, managed, MANAGED * MIB / 4));
		MUST(driver_copy(NULL, pages + MANAGED * MIB, managed, MANAGED * MIB / 4));
		MUST(cu.cuCtxSynchronize());
		CHECK(home_words(managed)[5] == round && home_words(pages)[PAGES * MIB / 4 - 1] == round);
	}
	CHECK(scene_holds(&scene));
	MUST(cu.cuMemFree_v2(managed));
	MUST(cu.cuMemFree_v2(pages));
	scene_close(&scene);
}

/* ---- threads ---- */

enum { THREADS = 4, HELD = 6, STEPS = 150 };

struct worker {
	pthread_t thread;
	unsigned seed;
	CUdeviceptr block[HELD];
	size_t bytes[HELD];
	unsigned value[HELD];
};

static void drop(struct worker *own, unsigned i, CUstream stream)
{
	if (!own->block[i])
		return;
	CHECK(driver_holds(own->block[i], own->value[i], 1000));
	if (rand_r(&own->seed) % 2)
		MUST(cu.cuMemFreeAsync(own->block[i], stream));
	else
		MUST(cu.cuMemFree_v2(own->block[i]));
	own->block[i] = 0;
}

static void *work(void *argument)
{
	static const size_t sizes[] = {4096, MIB / 2, 1 * MIB, 3 * MIB, 6 * MIB, 7 * MIB};
	struct worker *own = argument;

	MUST(cu.cuCtxSetCurrent(scene.context));
	CUstream stream = child_stream();
	for (unsigned step = 0; step < STEPS; step++) {
		unsigned i = (unsigned)rand_r(&own->seed) % HELD;

		drop(own, i, stream);
		own->bytes[i] = sizes[(unsigned)rand_r(&own->seed) % (sizeof(sizes) / sizeof(sizes[0]))];
		own->value[i] = own->seed | 1;
		CUresult result = cu.cuMemAlloc_v2(&own->block[i], own->bytes[i]);
		if (result == CUDA_ERROR_OUT_OF_MEMORY) /* the others have all that may be pinned */
			continue;
		MUST(result);
		MUST(driver_fill(stream, own->block[i], own->value[i], 1000));
		MUST(cu.cuStreamSynchronize(stream));
	}
	for (unsigned i = 0; i < HELD; i++)
		drop(own, i, stream);
	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuStreamDestroy_v2(stream));
	return NULL;
}

CHILD_TEST(threads_allocate_and_free_all_of_them_at_once, SCENE_SETTINGS("SPILLWAY_POLICY=" HOMES_POLICY))
{
	struct worker worker[THREADS] = {0};

	scene_load(&scene, 0);
	CHECK(driver_kernel("fill")); /* by one thread first: it opens the driver */
	for (unsigned i = 0; i < THREADS; i++) {
		worker[i].seed = 4711 + i;
		CHECK(pthread_create(&worker[i].thread, NULL, work, &worker[i]) == 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_join(worker[i].thread, NULL) == 0);
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemFree_v2(child_alloc(3 * MIB)));
	MUST(cu.cuMemFree_v2(child_alloc(3 * MIB)));
	CHECK(sim_calls("cuMemHostRegister_v2") == sim_calls("cuMemHostUnregister"));
	CHECK(sim_calls("cuMemHostRegister_v2") > 0 && sim_managed().resident == 0 && sim_live().allocations == 0);
}
