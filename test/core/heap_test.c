// SPDX-License-Identifier: Apache-2.0
/*
 * heap_test.c: what the heap promises (shim/heap/heap.h), one promise a test, each on a heap of its own. At the end of
 * each the model must be empty and no rule of it broken (core_heap_close).
 */
#include "test/core/core.h"

#define MOST 512

static struct core_heap own;
static struct heap_grant grants[MOST];

static void open_heap(size_t device_mib, size_t host_mib, size_t keep_mib)
{
	core_heap_open(&own, device_mib * MIB, host_mib * MIB, keep_mib * MIB);
}

static enum sw_status get(unsigned i, size_t bytes, bool may_spill)
{
	enum sw_status status = core_try(&own, bytes, CHUNK_MOVABLE, may_spill, &grants[i]);

	assert_true(own.device.used <= own.device.limit && own.host.used <= own.host.limit);
	return status;
}

static void put(unsigned i)
{
	core_give(&own, &grants[i]);
}

EACH_TEST(NULL, core_heap_end)

/* ---- reuse ---- */

TEST(a_block_freed_is_taken_again_without_a_driver_call)
{
	static const size_t sizes[] = {1, 512, 100000, MIB, MIB + 1, 10 * MIB, 70 * MIB};

	open_heap(256, 0, 256);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_ok(get(0, sizes[i], false));
		CUdeviceptr address = grants[0].address;
		put(0);
		unsigned long calls = core_vmm_calls();
		assert_ok(get(0, sizes[i], false));
		assert_true(grants[0].reused && grants[0].address == address);
		put(0);
		assert_int_equal(core_vmm_calls(), calls);
	}
}

TEST(a_warm_block_serves_what_is_up_to_an_eighth_smaller)
{
	open_heap(256, 0, 256);
	assert_ok(get(0, 64 * MIB, false));
	put(0);
	assert_ok(get(0, 58 * MIB, false));
	assert_true(grants[0].reused);
	assert_int_equal(grants[0].bytes_on_device, 64 * MIB);
	put(0);
	assert_ok(get(0, 40 * MIB, false)); /* a warm block half as long again would waste too much */
	assert_false(grants[0].reused);
	assert_int_equal(grants[0].bytes_on_device, 40 * MIB);
}

/* What lies behind the end of a block would be missing: a program would be out of memory that there is. */
TEST(where_room_is_short_a_block_has_no_more_than_its_length)
{
	static const unsigned host[] = {0, 64};

	for (unsigned i = 0; i < 2; i++) {
		unsigned all = 32 + host[i];

		open_heap(32, host[i], 256);
		heap_tick(own.heap);
		assert_ok(get(0, all * MIB, i));
		put(0);
		assert_ok(get(0, (all - 2) * MIB, i));
		assert_int_equal(grants[0].bytes_on_device + grants[0].bytes_away, (all - 2) * MIB);
		assert_ok(get(1, 2 * MIB, i));
		core_heap_close(&own);
	}
}

TEST(free_memory_is_kept_up_to_the_limit_and_goes_back_beyond)
{
	open_heap(256, 256, 16);
	for (unsigned i = 0; i < 8; i++)
		assert_ok(get(i, 8 * MIB, false));
	assert_int_equal(heap_idle(own.heap, CHUNK_DEVICE), 0);
	put(0);
	put(1);
	assert_int_equal(heap_idle(own.heap, CHUNK_DEVICE), 16 * MIB);
	assert_int_equal(sim_live().device_bytes, 64 * MIB);
	for (unsigned i = 2; i < 8; i++) {
		put(i);
		assert_in_range(heap_idle(own.heap, CHUNK_DEVICE), 1, 16 * MIB);
		assert_int_equal(sim_live().device_bytes, own.device.used);
	}
	/* A block larger than may be kept goes back whole. */
	assert_ok(get(0, 100 * MIB, false));
	put(0);
	assert_in_range(own.device.used, 0, 16 * MIB);
	heap_trim(own.heap, 0, 0);
	assert_int_equal(sim_live().device_bytes, 0);
}

TEST(host_memory_is_kept_and_given_back_by_its_own_limit)
{
	open_heap(2, 256, 16);
	assert_ok(get(0, 2 * MIB, false));
	assert_ok(get(1, 16 * MIB, true));
	assert_ok(get(2, 16 * MIB, true));
	put(1);
	assert_int_equal(heap_idle(own.heap, CHUNK_HOST), 16 * MIB);
	put(2);
	assert_in_range(heap_idle(own.heap, CHUNK_HOST), 1, 16 * MIB);
	assert_int_equal(own.host.used, heap_idle(own.heap, CHUNK_HOST));
	assert_int_equal(sim_live().host_bytes, own.host.used);
}

/* ---- budgets and spilling ---- */

TEST(the_device_budget_is_used_to_the_last_2_mib)
{
	open_heap(101, 64, 0); /* an odd MiB that no chunk can use */
	assert_ok(get(0, 64 * MIB, true));
	assert_ok(get(1, 30 * MIB, true));
	assert_ok(get(2, 6 * MIB, true));
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(grants[i].bytes_away, 0);
	assert_int_equal(own.device.used, 100 * MIB);
	assert_ok(get(3, 2 * MIB, true));
	assert_int_equal(sim_where(grants[3].address), 'H');
	assert_int_equal(sim_where(grants[0].address), 'D');
}

TEST(only_what_does_not_fit_goes_to_the_host)
{
	open_heap(40, 64, 0);
	assert_ok(get(0, 64 * MIB, true));
	assert_int_equal(grants[0].bytes_on_device, 40 * MIB);
	assert_int_equal(grants[0].bytes_away, 24 * MIB);
	assert_int_equal(core_pages_at(grants[0].address, 64 * MIB, 'D'), 20);
	assert_int_equal(core_pages_at(grants[0].address, 64 * MIB, 'H'), 12);
	core_fill(grants[0].address, 64 * MIB, 1);
	assert_true(core_is_filled(grants[0].address, 64 * MIB, 1));
}

TEST(a_driver_with_less_than_the_budget_spills_as_well)
{
	open_heap(512, 64, 512);
	sim_switch("MEMORY", 50 * MIB);
	assert_ok(get(0, 64 * MIB, true));
	assert_int_equal(grants[0].bytes_on_device, 50 * MIB);
	assert_int_equal(grants[0].bytes_away, 14 * MIB);
	assert_int_equal(get(1, 2 * MIB, false), SW_NO_MEMORY);
	assert_int_equal(own.device.used, 50 * MIB);
	sim_switch("MEMORY", 4096 * MIB);
}

/* Take what is refused, and see that nothing has changed by it. */
static void refused_without_a_trace(size_t bytes, bool may_spill)
{
	struct sim_live before = sim_live();
	uint64_t device = own.device.used, host = own.host.used;

	grants[MOST - 1] = (struct heap_grant){.address = 42};
	assert_int_equal(get(MOST - 1, bytes, may_spill), SW_NO_MEMORY);
	assert_int_equal(grants[MOST - 1].address, 42);
	struct sim_live after = sim_live();
	assert_memory_equal(&before, &after, sizeof(before));
	assert_true(own.device.used == device && own.host.used == host);
}

TEST(without_spilling_what_is_over_the_budget_is_refused_and_nothing_changes)
{
	open_heap(64, 64, 0);
	assert_ok(get(0, 60 * MIB, false));
	core_fill(grants[0].address, 60 * MIB, 7);
	refused_without_a_trace(6 * MIB, false);
	refused_without_a_trace(200 * MIB, false);
	assert_ok(get(1, 4 * MIB, false));
	refused_without_a_trace(1, false);
	assert_true(core_is_filled(grants[0].address, 60 * MIB, 7));
	assert_int_equal(own.host.used, 0);
}

TEST(over_both_budgets_is_refused_and_nothing_changes)
{
	open_heap(16, 32, 0);
	assert_ok(get(0, 10 * MIB, true));
	refused_without_a_trace(40 * MIB, true);
	assert_ok(get(1, 38 * MIB, true));
	refused_without_a_trace(1, true);
	put(1);
	assert_ok(get(1, 38 * MIB, true));
}

/* To find that out by pinning host memory takes the longer the more of it there is. */
TEST(more_than_there_could_ever_be_is_refused_at_once)
{
	open_heap(16, 32, 0);
	unsigned long made = sim_calls("cuMemCreate");
	refused_without_a_trace(50 * MIB, true);
	refused_without_a_trace(18 * MIB, false);
	assert_int_equal(sim_calls("cuMemCreate"), made);
	assert_ok(get(0, 48 * MIB, true));
	put(0);
	assert_ok(get(0, 48 * MIB, true));
}

TEST(a_small_block_goes_to_the_host_only_when_the_device_is_full)
{
	open_heap(4, 8, 8);
	for (unsigned i = 0; i < 4; i++)
		assert_ok(get(i, MIB, true));
	assert_int_equal(core_pages_at(grants[3].address, 1, 'D'), 1);
	assert_ok(get(4, MIB, true));
	assert_int_equal(sim_where(grants[4].address), 'H');
	assert_int_equal(grants[4].bytes_away, 2 * MIB);
	/* Room on the device again: it comes first, though the host's slab has a free slot. */
	put(0);
	assert_ok(get(0, MIB, true));
	assert_int_equal(sim_where(grants[0].address), 'D');
	put(4);
	put(0);
	put(1);
	/* ... and though the host's slab is empty and warm. */
	assert_ok(get(0, MIB, true));
	assert_int_equal(sim_where(grants[0].address), 'D');
}

TEST(an_empty_slab_on_the_host_is_no_choice_while_the_device_has_room)
{
	open_heap(4, 8, 8);
	assert_ok(get(0, 4 * MIB, true));
	assert_ok(get(1, MIB, true));
	assert_int_equal(sim_where(grants[1].address), 'H');
	put(1); /* the slab on the host is empty and stays warm */
	put(0);
	assert_ok(get(1, MIB, true));
	assert_int_equal(sim_where(grants[1].address), 'D');
}

TEST(a_warm_block_on_the_host_is_no_choice_while_the_device_has_room)
{
	open_heap(24, 64, 64);
	assert_ok(get(0, 24 * MIB, true));
	assert_ok(get(1, 8 * MIB, true));
	assert_int_equal(grants[1].bytes_away, 8 * MIB);
	put(1);
	put(0); /* the room on the device is one warm block of another length */
	assert_ok(get(1, 8 * MIB, true));
	assert_int_equal(grants[1].bytes_away, 0);
}

TEST(a_device_without_host_chunks_refuses_instead_of_spilling)
{
	struct budget device = {.limit = 8 * MIB}, host = {.limit = 64 * MIB};
	struct heap_config config = {.device_budget = &device, .host_budget = &host, .arena_bytes = 256 * MIB};
	size_t handles = sim_live().handles;
	struct heap_grant grant;
	struct heap *heap;

	assert_ok(heap_create(&config, &heap));
	assert_int_equal(heap_alloc(heap, 10 * MIB, CHUNK_MOVABLE, true, &grant), SW_NO_MEMORY);
	assert_ok(heap_alloc(heap, 8 * MIB, CHUNK_MOVABLE, true, &grant));
	heap_free(heap, grant.block, grant.address);
	heap_destroy(heap);
	assert_int_equal(sim_live().handles, handles);
}

/* ---- physical memory is remapped where it is needed ---- */

TEST(fragmentation_cannot_cause_out_of_memory)
{
	static const size_t sizes[] = {2, 10, 4, 6, 34, 2};
	size_t freed = 0;
	unsigned n = 0;

	open_heap(256, 0, 256);
	while (get(n, sizes[n % 6] * MIB, false) == SW_OK)
		core_fill(grants[n].address, sizes[n % 6] * MIB, n), n++;
	for (unsigned i = 0; i < n; i += 2) {
		put(i);
		freed += sizes[i % 6] * MIB;
	}
	freed += own.device.limit - own.device.used;
	assert_ok(get(MOST - 1, freed, false));
	assert_int_equal(core_pages_at(grants[MOST - 1].address, freed, 'D'), freed / HEAP_UNIT);
	core_fill(grants[MOST - 1].address, freed, 99);
	/* Memory was taken down beside these, and what they hold is untouched. */
	for (unsigned i = 1; i < n; i += 2)
		assert_true(core_is_filled(grants[i].address, sizes[i % 6] * MIB, i));
}

TEST(empty_slabs_give_way_to_large_blocks)
{
	open_heap(32, 0, 32);
	for (unsigned i = 0; i < 32; i++)
		assert_ok(get(i, (i % 8 + 1) * 128 * 1024, false));
	for (unsigned i = 0; i < 32; i++)
		put(i);
	assert_int_equal(heap_idle(own.heap, CHUNK_DEVICE), own.device.used);
	assert_ok(get(0, 32 * MIB, false));
}

TEST(what_is_warm_on_the_host_is_reused_for_other_sizes)
{
	open_heap(2, 64, 64);
	assert_ok(get(0, 2 * MIB, false));
	for (unsigned i = 1; i < 9; i++)
		assert_ok(get(i, 8 * MIB, true));
	for (unsigned i = 1; i < 9; i++)
		put(i);
	assert_ok(get(1, 64 * MIB, true));
	assert_int_equal(grants[1].bytes_away, 64 * MIB);
}

/* ---- sizes ---- */

TEST(large_blocks_waste_less_than_2_mib_and_are_aligned_to_it)
{
	static const size_t sizes[] = {MIB + 1, 2 * MIB, 2 * MIB + 1, 7 * MIB + 5, 100 * MIB - 1, 1030 * MIB};

	open_heap(2048, 0, 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_ok(get(i, sizes[i], false));
		assert_int_equal(grants[i].address % HEAP_UNIT, 0);
		assert_true(grants[i].bytes_on_device - sizes[i] < HEAP_UNIT);
	}
}

TEST(small_blocks_share_2_mib_and_do_not_overlap)
{
	open_heap(64, 0, 64);
	/* 20 of 100 KiB make 2 MiB; their class is 112 KiB, 18 to a slab. */
	for (unsigned i = 0; i < 36; i++) {
		assert_ok(get(i, 100 * 1024, false));
		assert_int_equal(grants[i].address % 512, 0);
		core_fill(grants[i].address, 100 * 1024, i);
	}
	assert_int_equal(own.device.used, 4 * MIB);
	for (unsigned i = 0; i < 36; i++)
		assert_true(core_is_filled(grants[i].address, 100 * 1024, i));
}

TEST(sizes_beyond_all_address_space_are_refused)
{
	static const size_t sizes[] = {SIZE_MAX,        SIZE_MAX - 1,    SIZE_MAX - HEAP_UNIT,
				       (size_t)1 << 63, (size_t)1 << 52, ((size_t)8 << 30) + 1};

	open_heap(64, 64, 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		refused_without_a_trace(sizes[i], true);
}

TEST(blocks_longer_than_the_last_bin_are_reused_too)
{
	open_heap(3500, 0, 3500);
	assert_ok(get(0, 1024 * MIB, false)); /* exactly the last but one bin */
	assert_ok(get(1, 1030 * MIB, false));
	assert_ok(get(2, 1400 * MIB, false));
	for (unsigned i = 0; i < 3; i++)
		put(i);
	unsigned long calls = core_vmm_calls();
	assert_ok(get(2, 1390 * MIB, false));
	assert_ok(get(1, 1028 * MIB, false));
	assert_ok(get(0, 1022 * MIB, false));
	for (unsigned i = 0; i < 3; i++)
		assert_true(grants[i].reused);
	assert_int_equal(core_vmm_calls(), calls);
}

/* ---- looking addresses up ---- */

TEST(every_address_of_a_block_leads_to_its_start)
{
	static const size_t sizes[] = {3 * MIB, 512, 100 * 1024, 64 * MIB, MIB};
	CUdeviceptr base;

	open_heap(128, 0, 128);
	for (unsigned i = 0; i < 5; i++)
		assert_ok(get(i, sizes[i], false));
	for (unsigned i = 0; i < 5; i++) {
		for (size_t at = 0; at < sizes[i]; at += sizes[i] / 7 + 1)
			assert_true(heap_base_of(own.heap, grants[i].address + at, &base) && base == grants[i].address);
		assert_true(heap_base_of(own.heap, grants[i].address + sizes[i] - 1, &base));
		assert_int_equal(base, grants[i].address);
	}
	CUdeviceptr gone = grants[3].address;
	assert_true(heap_contains(own.heap, gone));
	put(3);
	assert_false(heap_base_of(own.heap, gone, &base));
	assert_true(heap_contains(own.heap, gone));
	assert_false(heap_contains(own.heap, 0));
	assert_false(heap_contains(own.heap, ~(CUdeviceptr)0));
	assert_false(heap_base_of(own.heap, 4096, &base));
}

/* ---- the driver says no ---- */

TEST(a_reservation_refused_is_tried_smaller)
{
	struct budget device = {.limit = 8 * MIB}, host = {0};
	struct heap_config config = {.device_budget = &device, .host_budget = &host, .arena_bytes = (uint64_t)8 << 50};
	size_t reservations = sim_live().reservations;
	struct heap_grant grant;
	struct heap *heap;

	assert_ok(heap_create(&config, &heap));
	assert_ok(heap_alloc(heap, 8 * MIB, CHUNK_MOVABLE, false, &grant));
	assert_true(heap_contains(heap, grant.address));
	heap_free(heap, grant.block, grant.address);
	heap_destroy(heap);
	assert_int_equal(sim_live().reservations, reservations);
}

TEST(memory_the_driver_will_not_unmap_is_kept_and_tried_again)
{
	open_heap(64, 0, 0);
	assert_ok(get(0, 62 * MIB, false)); /* 32 + 16 + 8 + 4 + 2 */
	sim_fail("cuMemUnmap", 3, CUDA_ERROR_UNKNOWN);
	put(0); /* two chunks come off, the rest is stuck */
	assert_true(own.device.used > 0);
	assert_int_equal(sim_live().device_bytes - own.before.device_bytes, own.device.used);
	assert_ok(get(0, 64 * MIB, false)); /* tried again when room is needed */
}

TEST(a_handle_the_driver_will_not_release_is_kept_for_reuse)
{
	open_heap(64, 0, 0);
	assert_ok(get(0, 32 * MIB, false));
	sim_fail("cuMemRelease", 1, CUDA_ERROR_UNKNOWN);
	put(0);
	assert_int_equal(own.device.used, 32 * MIB);
	assert_int_equal(heap_idle(own.heap, CHUNK_DEVICE), 32 * MIB);
	unsigned long made = sim_calls("cuMemCreate");
	assert_ok(get(0, 32 * MIB, false));
	assert_int_equal(sim_calls("cuMemCreate"), made);
}

BEFORE_ALL
{
	setenv("SIM_MEMORY", "4GiB", 1);
	setenv("SIM_HOST_MEMORY", "4GiB", 1);
	core_driver();
}
