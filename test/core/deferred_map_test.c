// SPDX-License-Identifier: Apache-2.0
/*
 * deferred_map_test.c: which of the pieces that lie on the host and are not mapped are mapped when somebody waits, and
 * how they are fetched. There is no mover's thread: the test calls its parts itself.
 */
#include "shim/heap/block.h"
#include "shim/mover/mover.h"
#include "test/core/core.h"

enum { BLOCKS = 4 };
#define BYTES (2 * MIB)

static struct core_heap own;
static struct device device;
static struct engine *engine;
static struct heap_grant grants[BLOCKS];
static _Atomic uint64_t peers; /* bits of the devices that may access the heap */

static uint32_t piece_of(unsigned i)
{
	return arena_unit(heap_arena(own.heap), grants[i].address);
}

/* Each of the blocks lies on the host, unmapped. */
BEFORE_EACH
{
	atomic_store(&peers, 0);
	core_heap_open(&own, 64 * MIB, 64 * MIB, 0);
	own.heap->store.chunks.peers = &peers;
	engine = core_engine(&own, &device, false);
	for (unsigned i = 0; i < BLOCKS; i++) {
		grants[i] = core_take(&own, BYTES, CHUNK_MOVABLE, HEAP_DEVICE);
		assert_ok(heap_make_spare(own.heap, CHUNK_HOST, BYTES / HEAP_UNIT, false));
		assert_true(core_leaves(&own, grants[i].address));
		assert_true(deferred_map_unmap_early(engine, piece_of(i)));
	}
	deferred_map_give_up_early(engine);
	assert_int_equal(engine->deferred.n, BLOCKS);
}

AFTER_EACH
{
	while (deferred_map_map(engine))
		;
	core_heap_close(&own);
}

static bool is_away(unsigned i)
{
	return deferred_map_find(engine, piece_of(i)) != NULL;
}

TEST(if_nobody_waits_none_is_mapped)
{
	assert_false(deferred_map_serve(engine));
	assert_int_equal(engine->deferred.n, BLOCKS);
}

TEST(of_freed_blocks_alone_pieces_are_mapped)
{
	core_give(&own, &grants[2]);
	assert_true(heap_has_given(own.heap));
	assert_true(deferred_map_serve(engine));
	assert_false(heap_has_given(own.heap));
	assert_false(is_away(2));
	assert_int_equal(engine->deferred.n, BLOCKS - 1);
	assert_false(deferred_map_serve(engine));
}

static _Thread_local unsigned n_entered; /* how often this thread has taken HEAP */

void __real_lock_take(struct lock *lock);
void __wrap_lock_take(struct lock *lock);

void __wrap_lock_take(struct lock *lock)
{
	n_entered += lock->rank == LOCK_HEAP;
	__real_lock_take(lock);
}

/* As long as the copy takes, each pass of the mover looks. The lock may be held for long by threads that allocate. */
TEST(while_a_freed_block_is_copied_the_lock_is_taken_once)
{
	struct heap_grant grant = core_take(&own, BYTES, CHUNK_MOVABLE, HEAP_DEVICE);
	struct migration migration = core_begin_move(own.heap, grant.address, CHUNK_HOST, true);

	core_give(&own, &grant);
	assert_true(heap_has_given(own.heap));
	n_entered = 0;
	assert_false(deferred_map_serve(engine));
	assert_int_equal(n_entered, 1);
	assert_int_equal(engine->deferred.n, BLOCKS);
	migration_end(own.heap, &migration);
}

static void *pin(void *unused)
{
	CHECK(heap_pin(own.heap, grants[1].address, BYTES));
	heap_pin_end(own.heap, grants[1].address, BYTES, PIN_OFF);
	return NULL;
}

TEST(of_blocks_that_a_thread_pins_alone_pieces_are_mapped)
{
	pthread_t thread = test_thread(pin, NULL);

	UNTIL(deferred_map_serve(engine));
	assert_ok(pthread_join(thread, NULL));
	assert_false(is_away(1));
	assert_int_equal(engine->deferred.n, BLOCKS - 1);
}

static void *keep_elsewhere(void *unused)
{
	CHECK(heap_stay_beside(own.heap, grants[1].address, BYTES));
	return NULL;
}

/* A texture is made of it, which is a pin for good. */
TEST(of_a_block_that_is_about_to_stay_pieces_are_mapped)
{
	heap_set_beside(own.heap, true, 0);
	pthread_t thread = test_thread(keep_elsewhere, NULL);
	UNTIL(heap_is_awaited(own.heap));
	assert_true(deferred_map_serve(engine));
	assert_ok(pthread_join(thread, NULL));
	assert_false(is_away(1));
	assert_int_equal(engine->deferred.n, BLOCKS - 1);
}

static void *reach(void *unused)
{
	CHECK(heap_reach(own.heap) == CUDA_SUCCESS);
	return NULL;
}

/* Such a thread waits for the pieces of all blocks, and pins none of them. */
TEST(those_that_a_new_peer_cannot_access_are_mapped)
{
	atomic_store(&peers, 2);
	pthread_t thread = test_thread(reach, NULL);
	UNTIL(heap_is_awaited(own.heap));
	assert_true(deferred_map_serve(engine));
	assert_int_equal(engine->deferred.n, 0);
	assert_ok(pthread_join(thread, NULL));
}

TEST(for_a_submission_that_may_touch_anything_all_are_mapped)
{
	atomic_fetch_add(&engine->channel.everything.waits, 1);
	assert_true(deferred_map_serve(engine));
	atomic_fetch_sub(&engine->channel.everything.waits, 1);
	assert_int_equal(engine->deferred.n, 0);
}

/* Fetches a piece into memory that is made for it. Returns the alias of that memory. */
static CUdeviceptr fetch(unsigned i)
{
	assert_int_equal(heap_trim(own.heap, 0, 64 * MIB), 0);
	assert_int_equal(migrate_begin(engine, piece_of(i), CHUNK_DEVICE, false), MIGRATE_BEGUN);
	while (engine->moves.in.n)
		migrate_finish(engine);
	assert_false(is_away(i));
	return heap_arena(own.heap)->states[piece_of(i)].chunk->alias;
}

/* An alias is a mapping more, which takes as long as any. */
TEST(what_comes_without_a_copy_gets_no_alias)
{
	deferred_map_find(engine, piece_of(0))->is_empty = true;
	assert_true(link_open(engine));
	assert_int_equal(fetch(0), 0);
	assert_int_not_equal(fetch(1), 0);
	link_close(engine);
}

BEFORE_ALL
{
	core_settings((const char *const[]){"SIM_DEVICES=2", NULL});
	core_driver();
	core_context();
}
