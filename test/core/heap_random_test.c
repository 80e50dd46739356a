// SPDX-License-Identifier: Apache-2.0
/*
 * heap_random_test.c: long random runs on a heap, beside a shadow that knows what each block holds. After every step
 * the heap's own invariants hold, the budgets hold, and no two blocks overlap; every free checks the contents.
 */
#include "test/core/core.h"

#include "test/unit/seed.h"

#define MOST  300
#define STEPS 10000
#define LENT  (40 * MIB)

struct shadow {
	struct heap_grant grant;
	size_t bytes;
	uint64_t seed;
};

static struct core_heap own;
static struct shadow live[MOST];
static unsigned n_live;

static bool overlaps(const struct shadow *a, const struct shadow *b)
{
	return a->grant.address < b->grant.address + b->bytes && b->grant.address < a->grant.address + a->bytes;
}

static void check_heap(void)
{
	struct sim_live model = sim_live();

	assert_true(heap_is_valid(own.heap));
	assert_true(own.device.used <= own.device.limit && own.host.used <= own.host.limit);
	assert_int_equal(model.device_bytes - own.before.device_bytes,
			 own.device.used + own.peer[0].used + own.peer[1].used);
	assert_true(own.peer[0].used <= LENT && own.peer[1].used <= LENT);
	assert_int_equal(model.host_bytes - own.before.host_bytes, own.host.used);
	assert_true(heap_idle(own.heap, CHUNK_DEVICE) <= own.device.used &&
		    heap_idle(own.heap, CHUNK_HOST) <= own.host.used);
}

static void step_alloc(struct seed *seed, size_t most)
{
	struct shadow *new = &live[n_live];
	bool may_spill = seed_below(seed, 4) != 0;

	*new = (struct shadow){.bytes = seed_size(seed, most), .seed = seed_next(seed)};
	enum chunk_kind kind = seed_below(seed, 4) ? CHUNK_MOVABLE : CHUNK_FIXED;
	enum sw_status status = heap_alloc(own.heap, new->bytes, kind, may_spill, &new->grant);
	if (status != SW_OK) {
		assert_true(status == SW_NO_MEMORY || status == SW_DRIVER);
		return;
	}
	CUdeviceptr base;
	assert_true(heap_base_of(own.heap, new->grant.address + new->bytes - 1, &base));
	assert_int_equal(base, new->grant.address);
	for (unsigned i = 0; i < n_live; i++)
		assert_false(overlaps(new, &live[i]));
	if (!may_spill)
		assert_int_equal(core_pages_at(new->grant.address, new->bytes, 'H'), 0);
	core_fill(new->grant.address, new->bytes, new->seed);
	n_live++;
}

static void step_free(unsigned which)
{
	struct shadow gone = live[which];

	assert_true(core_is_filled(gone.grant.address, gone.bytes, gone.seed));
	live[which] = live[--n_live];
	heap_free(own.heap, gone.grant.block, gone.grant.address);
}

/* Any one of the driver's calls may fail somewhere in the next steps. */
static void maybe_fail(struct seed *seed)
{
	if (seed_below(seed, 10) == 0)
		sim_fail_any((unsigned)seed_below(seed, 20) + 1,
			     seed_below(seed, 2) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_LAUNCH_FAILED);
}

static void run(struct seed *seed, size_t most, bool with_failures)
{
	for (unsigned i = 0; i < STEPS; i++) {
		unsigned takes = i / 1000 % 2 ? 40 : 60;

		if (with_failures)
			maybe_fail(seed);
		if (seed_below(seed, 200) == 0)
			heap_trim(own.heap, seed_below(seed, 64) * MIB, seed_below(seed, 64) * MIB);
		else if (n_live < MOST && (!n_live || seed_below(seed, 100) < takes))
			step_alloc(seed, most);
		else
			step_free((unsigned)seed_below(seed, n_live));
		check_heap();
	}
	sim_fail_any(0, CUDA_SUCCESS);
	while (n_live)
		step_free(n_live - 1);
	core_heap_close(&own);
}

TEST(blocks_of_all_sizes_keep_their_contents)
{
	struct seed seed = seed_start(__func__);

	core_heap_open(&own, 192 * MIB, 96 * MIB, 32 * MIB);
	run(&seed, 64 * MIB, false);
}

TEST(small_blocks_keep_their_contents)
{
	struct seed seed = seed_start(__func__);

	core_heap_open(&own, 12 * MIB, 8 * MIB, 4 * MIB);
	run(&seed, MIB, false);
}

TEST(nothing_is_lost_while_driver_calls_fail_at_random)
{
	struct seed seed = seed_start(__func__);

	core_heap_open(&own, 192 * MIB, 96 * MIB, 32 * MIB);
	run(&seed, 64 * MIB, true);
}

/* Two peers lend memory, too. */
TEST(blocks_that_lie_on_peers_keep_their_contents)
{
	struct seed seed = seed_start(__func__);

	core_heap_open_lent(&own, 128 * MIB, 48 * MIB, 32 * MIB, 2, LENT);
	run(&seed, 64 * MIB, false);
	core_heap_open_lent(&own, 12 * MIB, 8 * MIB, 4 * MIB, 2, LENT);
	run(&seed, MIB, true);
}

BEFORE_ALL
{
	setenv("SIM_DEVICES", "3", 1);
	setenv("SIM_MEMORY", "1GiB", 1);
	core_driver();
}
