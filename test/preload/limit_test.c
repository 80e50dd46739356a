// SPDX-License-Identifier: Apache-2.0
/*
 * spill.limit: a program that asks how much it can have gets the answer that it would get on a device of the budget and
 * the limit together, in each mode; frees make room again, and no number of threads gets more.
 */
#include "test/preload/child.h"
#include "test/test.h"

CHILD_FRAME(child_start, NULL)

#define BUDGET      64         /* MiB */
#define ALL         (80 * MIB) /* with spill.limit: 25% */
#define SET(more)   "SPILLWAY_SET=device.budget=64MiB,host.budget=256MiB,report.summary=no,async.use=heap," more
#define RULES(m)    ((const char *const[]){"SPILLWAY_POLICY=" LIMIT_POLICY, LIMITED(m), NULL})
#define LIMITED(m)  "SIM_MEMORY=192MiB", "SIM_FILL=0", SET("spill.limit=25%,spill.mode=" m)
#define GRANULE     (2 * MIB)
#define MOST_BLOCKS 256

static const char *const modes[][4] = {{LIMITED("static")}, {LIMITED("exact")}, {LIMITED("fast")}};

static void in_each_mode(void (*part)(void))
{
	for (unsigned i = 0; i < 3; i++)
		child_passes(modes[i], part);
}

/* ---- a finder of batch sizes, above an allocator that keeps what is freed, as PyTorch's ---- */

#define TENSORS 6
#define WEIGHTS (12 * MIB)
#define SAMPLE  (MIB / 8) /* of each tensor */

static struct cached {
	CUdeviceptr address;
	size_t bytes;
	bool used;
} cache[MOST_BLOCKS];
static unsigned n_cached;

static void cache_empty(void)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n_cached; i++)
		if (cache[i].used)
			cache[kept++] = cache[i];
		else
			MUST(cu.cuMemFree_v2(cache[i].address));
	n_cached = kept;
}

/* Returns NULL if there is no memory, even after all that is kept was freed. */
static struct cached *cache_take(size_t bytes)
{
	size_t rounded = (bytes + GRANULE - 1) / GRANULE * GRANULE;
	CUdeviceptr address;

	for (unsigned i = 0; i < n_cached; i++)
		if (!cache[i].used && cache[i].bytes == rounded) {
			cache[i].used = true;
			return &cache[i];
		}
	if (cu.cuMemAlloc_v2(&address, rounded) != CUDA_SUCCESS) {
		cache_empty();
		if (cu.cuMemAlloc_v2(&address, rounded) != CUDA_SUCCESS)
			return NULL;
	}
	CHECK(n_cached < MOST_BLOCKS);
	cache[n_cached] = (struct cached){address, rounded, true};
	return &cache[n_cached++];
}

static bool step_fits(unsigned batch)
{
	bool fits = true;

	for (unsigned i = 0; fits && i < TENSORS; i++) {
		struct cached *tensor = cache_take(batch * SAMPLE);

		fits = tensor != NULL;
		if (fits)
			MUST(driver_fill(NULL, tensor->address, batch + i, batch * SAMPLE / 4));
	}
	MUST(cu.cuCtxSynchronize());
	for (unsigned i = 1; i < n_cached; i++)
		cache[i].used = false;
	if (!fits)
		cache_empty();
	return fits;
}

/* The exit status is the batch size that it finds. */
static void find(void)
{
	unsigned fits = 0, fails = 1;

	CHECK(cache_take(WEIGHTS));
	while (fails < 200 && step_fits(fails)) {
		fits = fails;
		fails *= 2;
	}
	while (fails - fits > 1) {
		unsigned middle = (fits + fails) / 2;

		*(step_fits(middle) ? &fits : &fails) = middle;
	}
	_exit(sim_broken_rules() ? 255 : (int)fits);
}

TEST(a_finder_of_batch_sizes_finds_what_it_finds_with_that_much_device_memory)
{
	static const char *const native[] = {"SIM_MEMORY=192MiB", "SIM_FILL=0",
					     "SPILLWAY_SET=device.budget=80MiB,report.summary=no,spill.mode=off", NULL};
	static const char *const free_of_limits[] = {"SIM_MEMORY=192MiB", "SIM_FILL=0", SET("spill.mode=exact"), NULL};
	int finds = child_run(native, find);

	assert_in_range(finds, 80, 96);
	assert_true(child_run(free_of_limits, find) > 2 * finds);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(child_run(modes[i], find), finds);
}

/* ---- what the program is told, and what it gets ---- */

static size_t free_now(void)
{
	size_t is_free, total;

	MUST(cu.cuMemGetInfo_v2(&is_free, &total));
	return is_free;
}

static CUdeviceptr blocks[MOST_BLOCKS];

static unsigned take_all(size_t bytes)
{
	unsigned n = 0;

	while (n < MOST_BLOCKS && cu.cuMemAlloc_v2(&blocks[n], bytes) == CUDA_SUCCESS)
		n++;
	return n;
}

static void give_all(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		MUST(cu.cuMemFree_v2(blocks[i]));
}

PART_TEST(what_is_free_is_what_can_be_had_and_frees_make_room_again, in_each_mode(part))
{
	CUdeviceptr small[3], large;

	CHECK(free_now() == ALL);
	for (int i = 0; i < 3; i++) {
		CHECK(cu.cuMemAlloc_v2(&large, free_now() + 1) == CUDA_ERROR_OUT_OF_MEMORY);
		unsigned n = take_all(4 * MIB);
		CHECK(n == ALL / (4 * MIB) && !free_now());
		give_all(n);
		CHECK(free_now() == ALL);
		MUST(cu.cuMemAlloc_v2(&large, ALL));
		MUST(cu.cuMemFree_v2(large));
	}
	/* Small ones share memory, which counts once. */
	small[0] = child_alloc(1000);
	large = child_alloc(ALL - GRANULE);
	small[1] = child_alloc(1000);
	CHECK(cu.cuMemAlloc_v2(&small[2], GRANULE) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(cu.cuMemFree_v2(large));
	small[2] = child_alloc(GRANULE);
	for (int i = 0; i < 3; i++)
		MUST(cu.cuMemFree_v2(small[i]));
}

CHILD_TEST(the_capacity_of_both_budgets_ends_at_the_limit,
	   ((const char *const[]){"SIM_MEMORY=192MiB", "SIM_FILL=0",
				  SET("spill.limit=16MiB,report.capacity=device+host"), NULL}))
{
	size_t is_free, total;

	MUST(cu.cuMemGetInfo_v2(&is_free, &total));
	CHECK(is_free == ALL && total == ALL);
	MUST(cu.cuDeviceTotalMem_v2(&total, 0));
	CHECK(total == ALL);
}

/* Some of it may be of the driver's pools, which lie on the device and are charged to its budget. */
static void takes_in_stream_order(void)
{
	unsigned n = 0, again = 0;

	CUstream stream = child_stream();
	while (n < MOST_BLOCKS && cu.cuMemAllocAsync(&blocks[n], 4 * MIB, stream) == CUDA_SUCCESS)
		n++;
	CHECK(n == ALL / (4 * MIB));
	for (unsigned i = 0; i < n; i++)
		MUST(cu.cuMemFreeAsync(blocks[i], stream));
	MUST(cu.cuStreamSynchronize(stream));
	again = take_all(8 * MIB);
	CHECK(again == ALL / (8 * MIB));
	give_all(again);
}

TEST(memory_in_stream_order_has_the_same_limit)
{
	const char *setting[5] = {LIMITED("exact")};

	in_each_mode(takes_in_stream_order);
	setting[2] = "SPILLWAY_SET=device.budget=64MiB,host.budget=256MiB,report.summary=no,async.use=auto,"
		     "spill.limit=25%,spill.mode=exact";
	child_passes(setting, takes_in_stream_order);
}

/* ---- several threads ---- */

#define THREADS 8

static void *takes(void *n)
{
	CUdeviceptr block[MOST_BLOCKS];
	unsigned *total = n, mine = 0;

	driver_start(0);
	while (mine < MOST_BLOCKS && cu.cuMemAlloc_v2(&block[mine], GRANULE) == CUDA_SUCCESS) {
		blocks[__atomic_fetch_add(total, 1, __ATOMIC_RELAXED)] = block[mine];
		mine++;
	}
	return NULL;
}

PART_TEST(threads_together_get_all_of_it_and_no_more, in_each_mode(part))
{
	pthread_t thread[THREADS];

	for (int round = 0; round < 10; round++) {
		unsigned total = 0;

		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_create(&thread[i], NULL, takes, &total) == 0);
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_join(thread[i], NULL) == 0);
		CHECK(total == ALL / GRANULE);
		give_all(total);
	}
}

/* ---- by rule ---- */

PART_TEST(a_rule_has_a_limit_of_its_own_or_that_of_the_policy, child_passes(RULES("exact"), part);
	  child_passes(RULES("static"), part))
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr block;
	size_t pitch;

	CUdeviceptr first = child_alloc(BUDGET * MIB);
	/* limit.yaml: from 8 MiB on, nothing beyond the budget; memory of the program's own, 4 MiB; all else, 25 %. */
	CHECK(cu.cuMemAlloc_v2(&block, 8 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	/* What is refused so goes to the rule's fallback. */
	MUST(cu.cuMemAllocPitch_v2(&block, &pitch, MIB, 4, 4));
	CHECK(!sim_broken_rules());
	MUST(cu.cuMemFree_v2(block));
	CHECK(free_now() == 16 * MIB);
	MUST(driver_create(&handle, 0, 4 * MIB));
	CHECK(driver_create(&handle, 0, 2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	unsigned n = take_all(4 * MIB);
	CHECK(n == 3);
	give_all(n);
	MUST(cu.cuMemFree_v2(first));
	MUST(cu.cuMemAlloc_v2(&block, 8 * MIB));
}
