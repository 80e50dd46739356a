// SPDX-License-Identifier: Apache-2.0
/*
 * near_test.c: what a pointer beside a block means. Of a heap with two blocks and a slab, submissions name addresses
 * about the borders, and pin what these may mean.
 */
#include "test/core/completion_help.h"

#include "shim/mover/mover.h"
#include "shim/submit/submission.h"

#define BLOCK_BYTES (4 * HEAP_UNIT)
#define N           3

static struct core_heap own_heap;
static struct device device;
static struct arena *arena;
static struct heap_grant grants[N];
static const size_t lengths[N] = {BLOCK_BYTES, 4096, BLOCK_BYTES};

/* Where the block, or the slab, of an allocation begins, and where it ends. */
static CUdeviceptr begin_of(unsigned i)
{
	return grants[i].address - (grants[i].address - arena->base) % HEAP_UNIT;
}

static CUdeviceptr end_of(unsigned i)
{
	return begin_of(i) + (lengths[i] < HEAP_UNIT ? HEAP_UNIT : lengths[i]);
}

static struct block_state *mark_of(unsigned i)
{
	return &arena->block_states[arena_unit(arena, begin_of(i))];
}

BEFORE_ALL
{
	core_driver();
	core_context();
	core_heap_open(&own_heap, 64 * MIB, 64 * MIB, 0);
	arena = heap_arena(own_heap.heap);
	struct engine *engine = core_engine(&own_heap, &device, false);
	assert_true(submission_add_arena(arena, &engine->channel));
	for (unsigned i = 0; i < N; i++)
		grants[i] = core_take(&own_heap, lengths[i], CHUNK_MOVABLE, HEAP_DEVICE);
	/* Everything that is submitted pins what it names, and has no ticket (inflight_ticket_test.c). */
	submission_set_tracking(true, true);
	submission_ask_to_pin();
}

/* Which allocations a submission pins, as bits. */
static unsigned pinned_by(CUdeviceptr address, size_t bytes)
{
	struct submission *use = submission_open(bytes ? HOOK_cuMemsetD8Async : HOOK_cuLaunchKernel);
	unsigned pinned = 0;

	assert_non_null(use);
	submission_name(use, address, bytes);
	struct submission_stripe *stripe = admit(use);
	for (unsigned i = 0; i < N; i++)
		pinned |= (block_state_pins(mark_of(i)) > 0) << i;
	submission_close(use, stripe);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(block_state_pins(mark_of(i)), 0);
	return pinned;
}

/* The first one also where the address space of the heap begins. */
TEST(a_pointer_beside_a_block_keeps_it)
{
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pinned_by(begin_of(i) - 512, 0), 0);
		assert_int_equal(pinned_by(begin_of(i) - 511, 0), 1u << i);
		assert_int_equal(pinned_by(begin_of(i) - 4, 0), 1u << i);
		assert_int_equal(pinned_by(begin_of(i), 0), 1u << i);
		assert_int_equal(pinned_by(end_of(i) - 4, 0), 1u << i);
		assert_int_equal(pinned_by(end_of(i), 0), 1u << i);
		assert_int_equal(pinned_by(end_of(i) + 511, 0), 1u << i);
		assert_int_equal(pinned_by(end_of(i) + 512, 0), 0);
	}
}

/* A copy says how far it reaches. */
TEST(a_range_beside_a_block_does_not)
{
	assert_int_equal(pinned_by(end_of(0), 4), 0);
	assert_int_equal(pinned_by(end_of(0) - 4, 4), 1);
}

/* Arrays of pointers are searched by these two. */
TEST(a_word_beside_a_block_means_it)
{
	CUdeviceptr first, bytes;

	submission_heap_span(&first, &bytes);
	for (int at = -600; at < 600; at++) {
		bool is_near = at > -512;

		assert_int_equal(submission_means_heap(begin_of(0) + at), is_near);
		assert_int_equal(submission_means_heap(end_of(0) - at), is_near);
		assert_true(!is_near || begin_of(0) + at - first < bytes);
	}
}

/* Of such an allocation the pointer may mean all: parts that were taken apart. */
TEST(a_pointer_beside_memory_on_use_keeps_all_of_it)
{
	const struct heap_grant before[] = {grants[0], grants[1]};
	struct heap_grant part = {0};
	CUdeviceptr base;

	heap_set_beside(own_heap.heap, true, UINT64_MAX); /* as in `fast` */
	assert_int_equal(heap_on_use_reserve(own_heap.heap, 2 * BLOCK_BYTES, false, &base), SW_OK);
	for (unsigned i = 0; i < 2; i++) {
		part.address = base + i * (2 * BLOCK_BYTES - HEAP_UNIT);
		assert_int_equal(heap_on_use_take(own_heap.heap, HEAP_UNIT, CHUNK_MOVABLE, HEAP_DEVICE_FIRST, &part),
				 SW_OK);
		grants[i].address = base + i * (2 * BLOCK_BYTES - HEAP_UNIT);
	}
	assert_int_equal(pinned_by(base, 0), 3);
	assert_int_equal(pinned_by(base - 4, 0), 3);
	assert_int_equal(pinned_by(base + 2 * BLOCK_BYTES, 0), 3);
	assert_int_equal(pinned_by(base + 2 * BLOCK_BYTES + 512, 0), 0);
	heap_on_use_free(own_heap.heap, base);
	heap_set_beside(own_heap.heap, false, UINT64_MAX);
	memcpy(grants, before, sizeof(before));
}

TEST(a_grown_block_touches_no_other)
{
	struct heap_grant first = core_take(&own_heap, BLOCK_BYTES, CHUNK_MOVABLE, HEAP_DEVICE);
	struct heap_grant next = core_take(&own_heap, BLOCK_BYTES, CHUNK_MOVABLE, HEAP_DEVICE);
	uint64_t away;

	assert_int_equal(heap_grow(own_heap.heap, first.address, BLOCK_BYTES + HEAP_UNIT, HEAP_DEVICE, &away),
			 SW_NO_MEMORY);
	core_give(&own_heap, &next);
	assert_int_equal(heap_grow(own_heap.heap, first.address, BLOCK_BYTES + HEAP_UNIT, HEAP_DEVICE, &away), SW_OK);
	next = core_take(&own_heap, BLOCK_BYTES, CHUNK_MOVABLE, HEAP_DEVICE);
	assert_true(next.address == first.address + BLOCK_BYTES + 2 * HEAP_UNIT);
	core_give(&own_heap, &next);
	core_give(&own_heap, &first);
}
