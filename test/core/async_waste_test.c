// SPDX-License-Identifier: Apache-2.0
/*
 * async_waste_test.c: with async.use: auto, pools that reserve more than is used of them, for what was freed does not
 * always fit what is asked for. All that is reserved counts, and the device stays within its budget, but for what the
 * driver reserves before anybody can know.
 */
#include "test/core/async_help.h"

#include "test/unit/seed.h"

#define LIVE   18 /* more than there is room for */
#define TIMES  800
#define WITHIN (ASYNC_BUDGET + ASYNC_BUDGET / 8)

/* A quarter of what is freed fits nothing that comes later. */
static void waste(bool on)
{
	sim_switch("POOL_WASTE", on ? 25 : 0);
	async_keep_in(async_default_pool(), on ? ~0ull : 0);
}

/*
 * Blocks of different sizes come and go, n of about 4 MiB at a time, so that there is always something to be freed and
 * something to fit; then all go. The most that the device had; *ret_heap: how many blocks were in the heap.
 */
static uint64_t come_and_go(struct seed *seed, unsigned n, unsigned *ret_heap)
{
	CUdeviceptr block[LIVE] = {0};
	uint64_t most = 0;

	*ret_heap = 0;
	for (unsigned i = 0; i < TIMES; i++) {
		unsigned at = (unsigned)seed_below(seed, n);

		if (block[at])
			async_give(block[at]);
		block[at] = async_get((2 + seed_below(seed, 5)) * MIB + 512, NULL);
		*ret_heap += async_in_heap(block[at]);
		pool_refresh(device_get(0), false);
		most = device_get(0)->budget.used > most ? device_get(0)->budget.used : most;
	}
	for (unsigned i = 0; i < n; i++)
		async_give(block[i]);
	printf("%llu of %llu MiB at most, %u of %u in the heap\n", (unsigned long long)most / MIB,
	       (unsigned long long)ASYNC_BUDGET / MIB, *ret_heap, TIMES);
	return most;
}

TEST(what_pools_waste_counts)
{
	struct seed seed = seed_start(__func__);
	unsigned heap;

	waste(true);
	assert_true(come_and_go(&seed, LIVE, &heap) <= WITHIN);
	assert_true(heap > 60);
	waste(false);
}

/* What a pool once had within the budget it may not have again when the heap has grown meanwhile. */
TEST(what_others_have_taken_since_is_not_the_pools_again)
{
	struct seed seed = seed_start(__func__);
	unsigned heap;

	waste(true);
	come_and_go(&seed, LIVE, &heap);
	waste(false);
	core_drain();
	heap_trim(atomic_load(&device_get(0)->heap), 0, 0);
	assert_ok(cuMemPoolTrimTo(async_default_pool(), 0));
	pool_refresh(device_get(0), false);
	assert_int_equal(device_get(0)->budget.used, 0);
	CUdeviceptr own = core_alloc(32 * MIB);
	waste(true);
	assert_true(come_and_go(&seed, 11, &heap) <= WITHIN);
	waste(false);
	assert_ok(cuMemFree_v2(own));
}

EACH_TEST(NULL, async_check_pools)

START(core_start(ASYNC_AUTO_SETTINGS))
