// SPDX-License-Identifier: Apache-2.0
/*
 * extent_test.c: memory that the program has placed itself, in `fast`: which blocks a submission names that is given
 * one address, and which of them may move. Births are reported by the test; there is no mover.
 */
#include "shim/heap/block_unmapped.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/mover.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"
#include "test/core/core.h"

enum { BLOCKS = 4 };
#define BLOCK (4 * MIB)
#define SPACE (32 * MIB)

static struct core_heap own;
static struct device device;
static struct engine *engine;
static struct arena *arena;
static CUdeviceptr space;
static struct block *blocks[BLOCKS];
static uint64_t reserved; /* what the allocator says that it has, in all heaps */

/* ---- the program ---- */

static void place(unsigned i)
{
	assert_ok(heap_place(own.heap, blocks[i], space + i * BLOCK, space, SPACE));
	lifetimes_allocated(arena->lifetimes, space + i * BLOCK, BLOCK, space, &own);
}

static void open_heap(void **state)
{
	CUmemAccessDesc desc = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	struct heap_grant grant;

	core_heap_open(&own, 64 * MIB, 64 * MIB, 0);
	heap_set_beside(own.heap, true, 0);
	arena = heap_arena(own.heap);
	engine = core_engine(&own, &device, false);
	assert_true(submission_add_arena(arena, &engine->channel));
	submission_set_tracking(true, true);
	submission_ask_to_pin();
	assert_true(heap_reserve(own.heap, SPACE, 0, &space));
	for (unsigned i = 0; i < BLOCKS; i++) {
		assert_ok(heap_make_unmapped(own.heap, BLOCK, CHUNK_MOVABLE, HEAP_DEVICE, &grant));
		blocks[i] = grant.block;
		place(i);
	}
	assert_true(heap_pin(own.heap, space, BLOCKS * BLOCK));
	assert_ok(cuMemSetAccess(space, BLOCKS * BLOCK, &desc, 1));
	for (unsigned i = 0; i < BLOCKS; i++)
		heap_open(own.heap, space + i * BLOCK, true);
	heap_pin_end(own.heap, space, BLOCKS * BLOCK, PIN_OFF);
}

static void tell(uint64_t at, uint64_t bytes, bool born)
{
	static uint64_t in_use;

	in_use += born ? bytes : -bytes;
	lifetimes_tell(&(struct lifetimes_report){.device = 0,
						  .address = space + at,
						  .bytes = bytes,
						  .born = born,
						  .reserved = reserved,
						  .allocated = in_use,
						  .reporter = &own});
}

/* The allocator has all of it. */
static void report_all(void)
{
	reserved += BLOCKS * BLOCK;
	tell(0, 512, true);
	heap_follow_reports(own.heap, 0, UINT32_MAX);
}

static uint32_t unit_of(unsigned i)
{
	return arena_unit(arena, space + i * BLOCK);
}

static bool is_pinned(unsigned i)
{
	return atomic_load(&arena->states[unit_of(i)].where) == BLOCK_STATE_PINNED;
}

static unsigned n_bounded(void)
{
	return atomic_load(&arena->states[unit_of(0)].n_bounded);
}

/* ---- submissions ---- */

enum { ALL = 1 << BLOCKS };

/* Names an address and returns which blocks are held, a bit each; ALL: it may touch anything. */
static unsigned held(uint64_t id, uint64_t at, size_t bytes)
{
	struct submission *use = submission_open(id);
	unsigned found = 0;

	assert_non_null(use);
	submission_name(use, space + at, bytes);
	struct submission_stripe *stripe = admit(use);
	for (unsigned i = 0; i < BLOCKS; i++)
		if (block_state_pins(&arena->block_states[unit_of(i)]))
			found |= 1u << i;
	if (block_state_pins(&engine->channel.everything))
		found |= ALL;
	submission_close(use, stripe);
	return found;
}

static unsigned held_by_kernel(uint64_t at)
{
	return held(HOOK_cuLaunchKernel, at, 0);
}

static unsigned held_by_graph(uint64_t at)
{
	return held(HOOK_cuGraphLaunch, at, 0);
}

TEST(pointer_means_what_was_born_there)
{
	open_heap(state);
	/* Before anything is known of it, it is what it lies in, and nothing moves. */
	assert_int_equal(held_by_kernel(5 * MIB), 1 << 1);
	tell(3 * MIB, 6 * MIB, true);
	tell(9 * MIB, MIB, true);
	for (unsigned at = 3; at < 9; at++)
		assert_int_equal(held_by_kernel(at * MIB + 8), 1 << 0 | 1 << 1 | 1 << 2);
	assert_int_equal(held_by_kernel(2 * MIB), 1 << 0);
	assert_int_equal(held_by_kernel(10 * MIB), 1 << 2);
	assert_int_equal(held_by_kernel(13 * MIB), 1 << 3);
	/* After its death, until something else is born there. */
	tell(3 * MIB, 6 * MIB, false);
	assert_int_equal(held_by_kernel(3 * MIB), 1 << 0 | 1 << 1 | 1 << 2);
	tell(3 * MIB, 2 * MIB, true);
	assert_int_equal(held_by_kernel(3 * MIB + 4096), 1 << 0 | 1 << 1);
	/* Nothing is mapped behind the last. */
	tell(14 * MIB, 10 * MIB, true);
	assert_int_equal(held_by_kernel(14 * MIB), 1 << 3);
}

/* Kernels go backwards from where their memory ends, and count from 1. It is held, but not waited for. */
TEST(what_is_close_to_a_pointer_is_held)
{
	open_heap(state);
	tell(3 * MIB, 6 * MIB, true);
	tell(9 * MIB, MIB, true);
	assert_int_equal(held_by_kernel(9 * MIB), 1 << 0 | 1 << 1 | 1 << 2);
	assert_int_equal(held_by_kernel(9 * MIB + 511), 1 << 0 | 1 << 1 | 1 << 2);
	assert_int_equal(held_by_kernel(9 * MIB + 512), 1 << 2);
	assert_int_equal(held_by_kernel(3 * MIB - 4), 1 << 0 | 1 << 1 | 1 << 2);
	assert_int_equal(held_by_kernel(3 * MIB - 512), 1 << 0);
	/* Where handles meet, and where the last one ends. */
	assert_int_equal(held_by_kernel(12 * MIB), 1 << 2 | 1 << 3);
	assert_int_equal(held_by_kernel(12 * MIB - 4), 1 << 2 | 1 << 3);
	assert_int_equal(held_by_kernel(16 * MIB), 1 << 3);
	tell(11 * MIB, 5 * MIB, true);
	assert_int_equal(held_by_kernel(16 * MIB), 1 << 2 | 1 << 3);
	assert_int_equal(held_by_kernel(16 * MIB + 512), 0);
	/* As if a piece lay on the host: only what is meant is worth waiting for. */
	uint64_t waits = stats_get(STAT_waits);
	atomic_store(&arena->block_states[unit_of(0)].away, 1);
	assert_int_equal(held_by_kernel(9 * MIB), 1 << 0 | 1 << 1 | 1 << 2);
	assert_int_equal(stats_get(STAT_waits), waits);
	assert_int_equal(held_by_kernel(8 * MIB), 1 << 0 | 1 << 1 | 1 << 2);
	assert_true(stats_get(STAT_waits) > waits);
	atomic_store(&arena->block_states[unit_of(0)].away, 0);
}

TEST(copy_means_its_bytes)
{
	open_heap(state);
	tell(0, 16 * MIB, true);
	assert_int_equal(held(HOOK_cuMemcpyDtoDAsync_v2, 5 * MIB, 16), 1 << 1);
	assert_int_equal(held(HOOK_cuMemcpyDtoDAsync_v2, 4 * MIB, 4 * MIB), 1 << 1);
	assert_int_equal(held(HOOK_cuMemcpyDtoDAsync_v2, 4 * MIB, 4 * MIB + 1), 1 << 1 | 1 << 2);
	assert_int_equal(held(HOOK_cuMemcpyDtoDAsync_v2, 3 * MIB, 10 * MIB), 15);
	assert_int_equal(held(HOOK_cuMemcpyDtoDAsync_v2, 13 * MIB, SIZE_MAX), 1 << 3);
}

TEST(what_is_reported_as_a_whole_may_move)
{
	open_heap(state);
	heap_follow_reports(own.heap, 0, UINT32_MAX);
	for (unsigned i = 0; i < BLOCKS; i++)
		assert_true(is_pinned(i));
	assert_int_equal(n_bounded(), 0);
	report_all();
	for (unsigned i = 0; i < BLOCKS; i++)
		assert_false(is_pinned(i));
	assert_int_equal(n_bounded(), BLOCKS);
	/* Placed anew, it is not reported. */
	assert_ok(heap_unplace(own.heap, space + 2 * BLOCK, BLOCK));
	assert_int_equal(n_bounded(), BLOCKS - 1);
	place(2);
	heap_follow_reports(own.heap, 0, UINT32_MAX);
	assert_true(is_pinned(2) && !is_pinned(1));
	assert_int_equal(n_bounded(), BLOCKS - 1);
}

/* A graph uses memory without births: until nothing there may move, its launches may touch anything. */
TEST(graph_reaches_over_all_of_the_space)
{
	CUdeviceptr other;

	open_heap(state);
	tell(3 * MIB, 6 * MIB, true);
	assert_int_equal(held_by_graph(3 * MIB), 1 << 0 | 1 << 1 | 1 << 2);
	assert_ok(heap_unplace(own.heap, space + 3 * BLOCK, BLOCK));
	assert_ok(heap_unplace(own.heap, space + 2 * BLOCK, BLOCK));
	assert_ok(heap_unplace(own.heap, space + 1 * BLOCK, BLOCK));
	assert_ok(heap_unplace(own.heap, space + 0 * BLOCK, BLOCK));
	heap_unreserve(own.heap, space, SPACE);
	assert_true(heap_reserve(own.heap, SPACE, space, &other) && other == space);
	for (unsigned i = 0; i < BLOCKS; i++)
		place(i);
	/* What was doubted was given back. */
	report_all();
	assert_int_equal(n_bounded(), BLOCKS);
	assert_true(held_by_graph(13 * MIB) & ALL);
	assert_int_equal(held_by_kernel(13 * MIB), 1 << 3);
	assert_true(held_by_graph(13 * MIB) & ALL);
	heap_follow_reports(own.heap, 0, UINT32_MAX);
	assert_int_equal(n_bounded(), 0);
	for (unsigned i = 0; i < BLOCKS; i++)
		assert_true(is_pinned(i));
	assert_int_equal(held_by_graph(13 * MIB), 1 << 3);
	/* A copy in a graph names its bytes. */
	assert_int_equal(held(HOOK_cuGraphLaunch, 2 * MIB, 8 * MIB), 1 << 0 | 1 << 1 | 1 << 2);
}

TEST(what_is_on_its_way_when_the_doubt_comes_counts_until_it_has_arrived)
{
	open_heap(state);
	report_all();
	struct migration migration = core_begin_move(own.heap, space + BLOCK, CHUNK_HOST, true);
	assert_true(held_by_graph(0) & ALL);
	heap_follow_reports(own.heap, 0, UINT32_MAX);
	assert_int_equal(n_bounded(), 1);
	assert_true(held_by_graph(0) & ALL);
	migration_end(own.heap, &migration);
	assert_int_equal(n_bounded(), 0);
	assert_true(is_pinned(1));
	assert_int_equal(held_by_graph(0), 1 << 0);
}

/* The allocator has less than it had, and none of it was freed: somebody else has it, and reports nothing. */
TEST(what_others_may_have_reaches_anywhere)
{
	open_heap(state);
	report_all();
	assert_int_equal(held_by_kernel(0), 1 << 0);
	reserved -= BLOCK;
	tell(0, 512, false);
	assert_true(held_by_kernel(0) & ALL);
	heap_follow_reports(own.heap, 0, UINT32_MAX);
	assert_int_equal(n_bounded(), 0);
	assert_int_equal(held_by_kernel(0), 1 << 0);
}

BEFORE_ALL
{
	core_driver();
}

int main(void)
{
	/* Arenas are never taken from submissions, so each heap lasts. */
	return test_run();
}
