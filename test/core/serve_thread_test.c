// SPDX-License-Identifier: Apache-2.0
/*
 * serve_thread_test.c: threads that allocate, write, ask, free now and free behind their streams, all at once and over
 * the budget. Each knows what its blocks hold. Meant for the thread sanitizer too.
 */
#include "test/core/core.h"

#include "shim/serve/deferred_free.h"
#include "shim/heap/block.h"
#include "shim/serve/serve.h"
#include "shim/stats/stats.h"
#include "test/unit/seed.h"
#include "test/ledger_check.h"

#define THREADS 4
#define STEPS   400
#define MOST    12

struct worker {
	pthread_t thread;
	struct seed seed;
	CUcontext context;
	CUstream stream;
	unsigned n_live, n_refused, n_served;
	struct {
		CUdeviceptr address;
		size_t bytes;
		uint64_t seed;
	} live[MOST];
};

static void take_one(struct worker *worker)
{
	size_t bytes = seed_size(&worker->seed, 6 * MIB);
	uint64_t seed = seed_next(&worker->seed);
	CUdeviceptr address;
	CUresult result = cuMemAlloc_v2(&address, bytes);

	if (result != CUDA_SUCCESS) {
		CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
		worker->n_refused++;
		return;
	}
	core_fill(address, bytes, seed);
	worker->live[worker->n_live].address = address;
	worker->live[worker->n_live].bytes = bytes;
	worker->live[worker->n_live++].seed = seed;
	worker->n_served++;
}

static void give_one(struct worker *worker, unsigned which)
{
	CUdeviceptr address = worker->live[which].address;
	size_t bytes = worker->live[which].bytes;

	CHECK(core_is_filled(address, bytes, worker->live[which].seed));
	worker->live[which] = worker->live[--worker->n_live];
	/* Work that is still under way when the block is freed: it must not land in its next owner. */
	CHECK(cuMemsetD8Async(address, 0xee, bytes, worker->stream) == CUDA_SUCCESS);
	if (seed_below(&worker->seed, 2))
		CHECK(cuMemFree_v2(address) == CUDA_SUCCESS);
	else
		CHECK(cuMemFreeAsync(address, worker->stream) == CUDA_SUCCESS);
}

static void ask_about_one(struct worker *worker, unsigned which)
{
	CUdeviceptr address = worker->live[which].address;
	size_t bytes = worker->live[which].bytes;
	struct ledger_row row;

	CHECK(serve_find(address + seed_below(&worker->seed, bytes), &row));
	CHECK(row.key == address && row.bytes == bytes);
	CHECK(core_is_filled(address, bytes, worker->live[which].seed));
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	CHECK(cuCtxSetCurrent(worker->context) == CUDA_SUCCESS);
	CHECK(cuStreamCreate(&worker->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	for (unsigned i = 0; i < STEPS; i++) {
		uint64_t die = seed_below(&worker->seed, 10);

		if (worker->n_live < MOST && (!worker->n_live || die < 5))
			take_one(worker);
		else if (worker->n_live && die < 8)
			give_one(worker, (unsigned)seed_below(&worker->seed, worker->n_live));
		else if (worker->n_live)
			ask_about_one(worker, (unsigned)seed_below(&worker->seed, worker->n_live));
	}
	while (worker->n_live)
		give_one(worker, worker->n_live - 1);
	CHECK(cuStreamSynchronize(worker->stream) == CUDA_SUCCESS);
	CHECK(cuStreamDestroy_v2(worker->stream) == CUDA_SUCCESS);
	return NULL;
}

static void run_workers(const char *name)
{
	static struct worker workers[THREADS];
	struct seed seed = seed_start(name);
	unsigned served = 0;
	CUcontext context = core_current();

	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.seed = {.state = seed_next(&seed)}, .context = context};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		served += workers[i].n_served;
	}
	assert_true(served > STEPS);
}

TEST(threads_never_see_each_others_blocks)
{
	struct device *device = device_get(0);

	run_workers(__func__);
	struct heap *heap = atomic_load(&device->heap);
	core_drain();
	assert_false(deferred_free_any());
	assert_int_equal(ledger_n_rows(), 0);
	assert_true(ledger_is_valid() && heap_is_valid(heap));
	assert_true(device->budget.peak <= device->budget.limit && host_budget.peak <= host_budget.limit);
	heap_trim(heap, 0, 0);
	assert_int_equal(device->budget.used + host_budget.used, 0);
	assert_int_equal(sim_live().handles + sim_live().mappings, 0);
	assert_int_equal(sim_broken_rules(), 0);
}

static void *trim_often(void *argument)
{
	atomic_bool *stop = argument;

	while (!atomic_load(stop))
		heap_trim(atomic_load(&device_get(0)->heap), 2 * MIB, 0);
	return NULL;
}

TEST(trimming_beside_them_harms_nobody)
{
	atomic_bool stop = false;
	pthread_t trimmer = test_thread(trim_often, &stop);

	threads_never_see_each_others_blocks(state);
	atomic_store(&stop, true);
	pthread_join(trimmer, NULL);
}

static void *count_for_another(void *block)
{
	heap_set_site(atomic_load(&device_get(0)->heap), *(CUdeviceptr *)block,
		      stats_site(0, POLICY_USE_HEAP, 7, NULL, 4 * MIB));
	return NULL;
}

/* As the mover does, which nothing but the number tells of the thread that made the site: for the thread sanitizer. */
TEST(with_the_number_of_a_site_comes_what_it_says)
{
	unsigned before, site;
	CUdeviceptr block = core_alloc(4 * MIB);

	const struct arena *arena = &atomic_load(&device_get(0)->heap)->store.arena;
	uint32_t unit = arena_unit(arena, block);

	before = arena_site(arena, unit, unit);
	pthread_t thread = test_thread(count_for_another, &block);
	UNTIL((site = arena_site(arena, unit, unit)) != before);
	stats_moved(site, true, MIB, false, NULL, 0);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&stats.rule[8].figures.figure[FIGURE_moved_in_bytes]), MIB);
	assert_ok(cuMemFree_v2(block));
}

CORE_START("SIM_MEMORY=128MiB", "SIM_FILL=0", "SPILLWAY_SET=device.budget=24MiB,host.budget=40MiB,report.summary=no")
