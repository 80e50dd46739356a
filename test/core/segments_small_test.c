// SPDX-License-Identifier: Apache-2.0
/*
 * segments_small_test.c: in `fast`, small allocations share segments that are small blocks, which stay on the device up
 * to a share of the budget (mover/piece.c), and no others.
 */
#include "test/core/async_help.h"
#include "test/ledger_check.h"

#include "shim/mover/spill.h"
#include "shim/serve/segments.h"

enum { BLOCKS = 18 };

/* Something is spilled, and freed again: from now on memory moves, and the device has room. */
BEFORE_ALL
{
	CUdeviceptr block[BLOCKS];

	for (unsigned i = 0; i < BLOCKS; i++)
		assert_ok(cuMemAlloc_v2(&block[i], 64 * MIB));
	for (unsigned i = 0; i < BLOCKS; i++)
		assert_ok(cuMemFree_v2(block[i]));
	/* Warm blocks are longer than what is asked for. */
	heap_trim(atomic_load(&device_get(0)->heap), 0, 0);
	assert_true(segments_are_for(device_get(0), 2 * MIB));
}

/* Returns the length of the block that has this address. */
static uint64_t block_of(CUdeviceptr address, CUdeviceptr *ret_begin)
{
	const struct arena *arena = heap_arena(atomic_load(&device_get(0)->heap));
	uint32_t unit = arena_look(arena, address) - 1;

	*ret_begin = arena_address(arena, unit);
	return atomic_load(&arena->states[unit].units) * (uint64_t)HEAP_UNIT;
}

TEST(small_parts_share_small_blocks)
{
	CUstream stream = core_stream();
	CUdeviceptr part[3], begin[3];

	part[0] = async_get(6 * MIB, stream);
	part[1] = async_get(10 * MIB, stream);
	part[2] = async_get(16 * MIB, stream);
	for (unsigned i = 0; i < 3; i++)
		assert_true(block_of(part[i], &begin[i]) <= SPILL_SMALL_BLOCK);
	assert_int_equal(begin[0], begin[1]);
	assert_int_equal(part[1], part[0] + 6 * MIB);
	assert_int_not_equal(begin[2], begin[0]);
}

TEST(small_and_large_ones_do_not_mix)
{
	CUstream stream = core_stream();
	CUdeviceptr large = async_get(40 * MIB, stream), small, begin;

	assert_true(block_of(large, &begin) >= 40 * MIB);
	/* Unused, it would be freed when ticks have stopped. */
	async_hold(stream);
	assert_ok(cuMemFreeAsync(large, stream));
	small = async_get(12 * MIB, stream);
	assert_true(block_of(small, &begin) <= SPILL_SMALL_BLOCK);
	assert_int_equal(async_get(20 * MIB, stream), large);
}

/* The mover keeps some chunks at hand. */
AFTER_EACH
{
	async_end();
	core_drain();
	segments_give_up(device_get(0));
	assert_int_equal(ledger_n_rows(), 0);
	assert_true(heap_is_valid(atomic_load(&device_get(0)->heap)));
	assert_int_equal(sim_broken_rules(), 0);
}

CORE_START("SIM_MEMORY=2GiB", "SIM_FILL=0", "SPILLWAY_POLICY=" STREAMS_POLICY,
	   "SPILLWAY_SET=device.budget=1GiB,host.budget=512MiB,spill.mode=fast,report.summary=no")
