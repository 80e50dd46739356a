// SPDX-License-Identifier: Apache-2.0
/*
 * migrate_test.c: moves that are taken back, and mappings that the driver refuses. There is no mover's thread: the test
 * calls its parts itself. Where copies of the simulated GPU pause, the test decides when they go on.
 */
#include "shim/heap/block.h"
#include "shim/mover/mover.h"
#include "test/core/core.h"

#include <limits.h>

#define BYTES (2 * MIB)

static struct core_heap own;
static struct device device;
static struct engine *engine;
static struct heap_grant grant;

static uint32_t piece_of(void)
{
	return arena_unit(heap_arena(own.heap), grant.address);
}

FIXTURE(begin)
{
	core_heap_open(&own, 64 * MIB, 64 * MIB, 0);
	engine = core_engine(&own, &device, false);
	grant = core_take(&own, BYTES, CHUNK_MOVABLE, HEAP_DEVICE);
	assert_true(link_open(engine));
}

FIXTURE(end)
{
	while (deferred_map_map(engine))
		;
	assert_int_equal(atomic_load(&engine->channel.everything.unmapped), 0);
	link_close(engine);
	core_heap_close(&own);
}

/* ---- a move that is taken back ---- */

/* Pauses of copies, so far, and up to which one they go on. */
static _Atomic unsigned n_pauses, n_passed;

static void stand_still(unsigned us)
{
	unsigned n = ++n_pauses;

	while (n > n_passed)
		sched_yield();
}

/* Copies of SIM_PIECE pause between two pieces, and those onto themselves before they write what they have read. */
#define PAUSES (unsigned)(BYTES / (64 << 10) - 1)

/*
 * The piece leaves, in a gap or beside what runs where streams cannot wait for values. What copies there are for
 * mappings after each part, onto themselves, have read when this returns, and not written.
 */
static void leave(bool gap)
{
	core_fill(grant.address, BYTES, 1);
	engine->link.cannot_wait = engine->contention.waits[CHUNK_HOST][PTE_CONTENTION_OUT] = true;
	assert_ok(heap_make_spare(own.heap, CHUNK_HOST, BYTES / HEAP_UNIT, false));
	n_pauses = 0;
	n_passed = PAUSES;
	sim_pauses(stand_still);
	sim_switch("PIECE_US", 200);
	assert_int_equal(migrate_begin(engine, piece_of(), CHUNK_HOST, gap), MIGRATE_BEGUN);
	while (n_pauses <= PAUSES && cuEventQuery(engine->moves.out.at[0].event) == CUDA_ERROR_NOT_READY)
		sched_yield();
}

static void must_have_what_is_written_now(void)
{
	sim_switch("PIECE_US", 0);
	core_fill(grant.address, BYTES, 2);
	n_passed = UINT_MAX;
	assert_ok(cuStreamSynchronize(engine->link.stream_out));
	while (engine->moves.out.n)
		migrate_finish(engine);
	sim_pauses(NULL);
	assert_int_equal(sim_where(grant.address), 'D');
	assert_true(core_is_filled(grant.address, BYTES, 2));
}

TEST_WITH(what_is_written_after_a_move_was_taken_back_is_there, begin, end)
{
	leave(false);
	assert_true(migrate_take_back(engine));
	must_have_what_is_written_now();
}

static _Atomic bool opened;

static void *let_copies_go(void *argument)
{
	const unsigned long *before = argument;

	while (sim_calls("cuStreamSynchronize") == *before && !opened)
		sched_yield();
	n_passed = UINT_MAX;
	return NULL;
}

/* A gap that is given up opens after this. */
TEST_WITH(what_is_written_after_a_move_in_a_gap_was_given_up_is_there, begin, end)
{
	unsigned long before = sim_calls("cuStreamSynchronize");

	leave(true);
	pthread_t thread = test_thread(let_copies_go, &before);
	migrate_abandon(engine);
	must_have_what_is_written_now();
	opened = true;
	assert_ok(pthread_join(thread, NULL));
}

/* ---- mappings that the driver refuses ---- */

void __wrap_clock_sleep(uint64_t ns);
void __wrap_clock_sleep(uint64_t ns)
{
	sched_yield();
}

static __typeof__(&cuMemMap) own_map;
/* Which it refuses: so many; all while the heap has more of the device than this; those of host memory. */
static struct {
	unsigned n;
	uint64_t above;
	bool host;
} refused;
static unsigned n_refused;

static CUresult CUDAAPI map_or_refuse(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
				      unsigned long long flags)
{
	CUmemAllocationProp prop;

	CHECK(cuMemGetAllocationPropertiesFromHandle(&prop, handle) == CUDA_SUCCESS);
	if (n_refused < refused.n || own.device.used > refused.above ||
	    (refused.host && prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)) {
		n_refused++;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return own_map(at, bytes, offset, handle, flags);
}

static void refuse_none(void)
{
	real.cuMemMap = own_map;
	refused.n = 0;
	refused.above = UINT64_MAX;
	refused.host = false;
}

static int begin_to_refuse(void **state)
{
	begin(state);
	own_map = real.cuMemMap;
	refuse_none();
	n_refused = 0;
	real.cuMemMap = map_or_refuse;
	return 0;
}

static int end_refusing(void **state)
{
	refuse_none();
	return end(state);
}

/* The block goes to the host, and is not mapped there yet. */
static void evict(void)
{
	core_fill(grant.address, BYTES, 3);
	assert_ok(heap_make_spare(own.heap, CHUNK_HOST, BYTES / HEAP_UNIT, false));
	assert_int_equal(migrate_begin(engine, piece_of(), CHUNK_HOST, false), MIGRATE_BEGUN);
	while (engine->moves.out.n)
		migrate_finish(engine);
	assert_int_equal(engine->deferred.n, 1);
}

static void must_be_there(char place)
{
	assert_false(atomic_load(&engine->channel.dead));
	assert_int_equal(atomic_load(&engine->channel.everything.unmapped), 0);
	assert_int_equal(sim_where(grant.address), place);
	assert_true(core_is_filled(grant.address, BYTES, 3));
	assert_int_equal(atomic_load(&heap_arena(own.heap)->states[piece_of()].where),
			 place == 'D' ? BLOCK_STATE_DEVICE : BLOCK_STATE_HOST);
}

#define MANY 120

TEST_WITH(a_mapping_that_is_refused_many_times_is_made, begin_to_refuse, end_refusing)
{
	evict();
	heap_trim(own.heap, 0, 64 * MIB);
	own.device.limit = 0; /* no room there */
	refused.n = MANY;
	assert_true(deferred_map_map(engine));
	assert_true(n_refused == MANY);
	must_be_there('H');
}

TEST_WITH(what_is_taken_back_is_mapped_though_that_is_refused_many_times, begin_to_refuse, end_refusing)
{
	core_fill(grant.address, BYTES, 3);
	assert_ok(heap_make_spare(own.heap, CHUNK_HOST, BYTES / HEAP_UNIT, false));
	assert_int_equal(migrate_begin(engine, piece_of(), CHUNK_HOST, false), MIGRATE_BEGUN);
	refused.n = n_refused + MANY;
	assert_true(migrate_take_back(engine));
	while (engine->moves.out.n)
		migrate_finish(engine);
	must_be_there('D');
}

/* The driver's tables take memory of the device, too. */
TEST_WITH(idle_memory_of_the_device_goes_back_before_a_mapping_is_given_up, begin_to_refuse, end_refusing)
{
	own.heap->keep[CHUNK_DEVICE] = 64 * MIB;
	struct heap_grant more = core_take(&own, 4 * MIB, CHUNK_MOVABLE, HEAP_DEVICE);
	evict();
	core_give(&own, &more);
	assert_true(heap_idle(own.heap, CHUNK_DEVICE) >= 4 * MIB);
	refused.above = own.device.used - heap_idle(own.heap, CHUNK_DEVICE);
	assert_true(deferred_map_map(engine));
	assert_int_equal(heap_idle(own.heap, CHUNK_DEVICE), 0);
	must_be_there('H');
}

/* Those of the device are smaller. */
TEST_WITH(what_cannot_be_mapped_on_the_host_comes_to_the_device, begin_to_refuse, end_refusing)
{
	evict();
	refused.host = true;
	assert_true(deferred_map_map(engine));
	must_be_there('D');
}

static void map_by_hand(CUdeviceptr address)
{
	const struct arena *arena = heap_arena(own.heap);

	assert_ok(own_map(address, BYTES, 0, arena->states[arena_unit(arena, address)].chunk->handle, 0));
}

TEST_WITH(with_what_is_refused_for_seconds_moving_ends_and_nobody_waits_any_more, begin_to_refuse, end_refusing)
{
	struct heap_grant other = core_take(&own, BYTES, CHUNK_MOVABLE, HEAP_DEVICE);

	assert_ok(heap_make_spare(own.heap, CHUNK_HOST, BYTES / HEAP_UNIT, false));
	assert_true(core_leaves(&own, other.address));
	evict();
	assert_true(deferred_map_unmap_early(engine, arena_unit(heap_arena(own.heap), other.address)));
	deferred_map_give_up_early(engine);
	heap_trim(own.heap, 0, 64 * MIB);
	own.device.limit = 0;
	refused.n = UINT_MAX;
	assert_true(deferred_map_map(engine));
	assert_true(atomic_load(&engine->channel.dead));
	unsigned before = n_refused;
	assert_true(deferred_map_map(engine));
	assert_true(n_refused - before <= 2);
	assert_int_equal(atomic_load(&engine->channel.everything.unmapped), 0);
	/* For the end of the heap, which unmaps them. */
	map_by_hand(other.address);
	map_by_hand(grant.address);
}

BEFORE_ALL
{
	core_driver();
	core_context();
}
