// SPDX-License-Identifier: Apache-2.0
/*
 * segments_order_test.c: who may use a part of a segment after it was freed, while threads and streams free at once.
 */
#include "test/core/async_help.h"
#include "test/ledger_check.h"

#include "shim/lifecycle/types.h"
#include "shim/mover/spill.h"
#include "shim/serve/make_room.h"
#include "shim/serve/segments.h"
#include "shim/stats/stats.h"

#define PART_BYTES (4 * MIB)

/* Something is spilled, and freed again: from now on memory moves, and the device has room. */
static void make_it_move(void)
{
	CUdeviceptr block[10];

	for (unsigned i = 0; i < 10; i++)
		CHECK(cuMemAlloc_v2(&block[i], 8 * MIB) == CUDA_SUCCESS);
	for (unsigned i = 0; i < 10; i++)
		CHECK(cuMemFree_v2(block[i]) == CUDA_SUCCESS);
	CHECK(segments_are_for(device_get(0), PART_BYTES));
}

/* Of a new segment and a part. */
static bool overlap(CUdeviceptr segment, CUdeviceptr part)
{
	return segment < part + PART_BYTES && part < segment + 3 * PART_BYTES;
}

/* ---- two threads free behind one stream ---- */

static __typeof__(&cuEventRecord) record;
static pthread_t slow;
static sem_t recorded, go_on;

/* One thread is put aside between its event and what it does next. */
static CUresult record_and_stop(CUevent event, CUstream stream)
{
	CUresult result = record(event, stream);

	if (pthread_equal(pthread_self(), slow)) {
		real.cuEventRecord = record;
		sem_post(&recorded);
		sem_wait(&go_on);
	}
	return result;
}

struct free_of {
	CUdeviceptr address;
	CUstream stream;
	CUcontext context;
};

static void *free_slowly(void *argument)
{
	const struct free_of *its = argument;

	slow = pthread_self();
	CHECK(cuCtxSetCurrent(its->context) == CUDA_SUCCESS);
	real.cuEventRecord = record_and_stop;
	CHECK(cuMemFreeAsync(its->address, its->stream) == CUDA_SUCCESS);
	return NULL;
}

TEST(the_event_of_a_segment_is_that_of_the_latest_free)
{
	CUstream stream = core_stream(), other = core_stream();
	struct free_of its = {.stream = stream};

	make_it_move();
	assert_ok(cuCtxGetCurrent(&its.context));
	/* A segment that is large enough for both. */
	its.address = async_get(3 * PART_BYTES, stream);
	assert_ok(cuMemFreeAsync(its.address, stream));
	assert_int_equal(async_get(PART_BYTES, stream), its.address);
	CUdeviceptr late = async_get(PART_BYTES, stream);
	assert_int_equal(late, its.address + PART_BYTES);
	record = REAL(cuEventRecord);
	sem_init(&recorded, 0, 0);
	sem_init(&go_on, 0, 0);
	pthread_t thread = test_thread(free_slowly, &its);
	sem_wait(&recorded);
	async_hold(stream);
	assert_ok(cuMemFreeAsync(late, stream));
	sem_post(&go_on);
	assert_int_equal(pthread_join(thread, NULL), 0);
	/* The stream has not reached the second free. */
	segments_reap();
	CUdeviceptr new = async_get(3 * PART_BYTES, other);
	assert_false(overlap(new, late));
}

/* ---- who else may not have it yet ---- */

/* A stream that has ended, but not its work; and a stream that has freed what another one has allocated. */
TEST(a_part_is_nobodys_until_its_free_is_reached)
{
	CUstream stream = core_stream(), other = core_stream(), third = core_stream();
	CUdeviceptr first = async_get(3 * PART_BYTES, stream), second = async_get(3 * PART_BYTES, third);

	assert_ok(cuMemsetD8Async(first, 1, PART_BYTES, stream));
	async_hold(stream);
	async_hold(other);
	assert_ok(cuMemFreeAsync(first, stream));
	assert_ok(cuMemFreeAsync(second, other));
	assert_ok(cuStreamDestroy_v2(stream));
	segments_reap();
	CUdeviceptr new = async_get(3 * PART_BYTES, third);
	CUdeviceptr newer = async_get(3 * PART_BYTES, core_stream());
	assert_int_not_equal(new, first);
	assert_int_not_equal(new, second);
	assert_int_not_equal(newer, first);
	assert_int_not_equal(newer, second);
	async_open(stream);
	async_let_go(other);
	assert_ok(cuMemFreeAsync(new, third));
	assert_ok(cuMemFreeAsync(newer, third));
	assert_int_equal(cuMemFreeAsync(newer, third), CUDA_ERROR_INVALID_VALUE);
	assert_ok(cuCtxSynchronize());
}

/* ---- a discard ---- */

static bool is_discarded(CUdeviceptr address)
{
	const struct arena *arena = heap_arena(atomic_load(&device_get(0)->heap));

	uint64_t number = atomic_load(&arena->states[arena_unit(arena, address)].discard);

	return number && number == atomic_load(&arena->block_states[arena_look(arena, address) - 1].discarded);
}

/* Also one up to the end, which takes the rest of the last piece where that belongs to nobody. */
TEST(a_discard_ends_with_its_part)
{
	CUstream stream = core_stream();
	CUdeviceptr first = async_get(4 * PART_BYTES, stream), block[8];

	assert_ok(cuMemFreeAsync(first, stream));
	assert_int_equal(async_get(PART_BYTES, stream), first);
	CUdeviceptr second = async_get(PART_BYTES, stream), third = async_get(PART_BYTES, stream);
	assert_int_equal(second, first + PART_BYTES);
	assert_int_equal(third, second + PART_BYTES);
	/* Discards count where submissions are tracked: where something is spilled. */
	for (unsigned i = 0; i < 8; i++)
		assert_ok(cuMemAlloc_v2(&block[i], 8 * MIB));
	do
		spill_discard(device_get(0), second, UINT64_MAX);
	while (!is_discarded(second) && sched_yield() == 0);
	assert_false(is_discarded(first));
	assert_false(is_discarded(third));
	/* The next one there may be written through a pointer that nothing names. */
	assert_ok(cuMemFreeAsync(second, stream));
	assert_int_equal(async_get(PART_BYTES, stream), second);
	assert_false(is_discarded(second));
	for (unsigned i = 0; i < 8; i++)
		assert_ok(cuMemFree_v2(block[i]));
}

/* ---- threads that share their streams ---- */

enum { THREADS = 3, STREAMS = 2, ROUNDS = 60, KEPT = 3 };

struct sharer {
	pthread_t thread;
	CUcontext context;
	const CUstream *stream;
	unsigned number;
};

struct kept {
	CUdeviceptr address;
	CUstream stream;
	unsigned value;
};

/* Each word is what this thread has written, whoever had the memory before it. */
static void look_and_free(struct kept *kept, bool async)
{
	unsigned words[2];

	CHECK(cuMemcpyDtoHAsync_v2(&words[0], kept->address, 4, kept->stream) == CUDA_SUCCESS);
	CHECK(cuMemcpyDtoHAsync_v2(&words[1], kept->address + PART_BYTES - 4, 4, kept->stream) == CUDA_SUCCESS);
	CHECK(cuStreamSynchronize(kept->stream) == CUDA_SUCCESS);
	CHECK(words[0] == kept->value && words[1] == kept->value);
	CHECK(cuMemsetD32Async(kept->address, ~kept->value, PART_BYTES / 4, kept->stream) == CUDA_SUCCESS);
	CHECK((async ? cuMemFreeAsync(kept->address, kept->stream) : cuMemFree_v2(kept->address)) == CUDA_SUCCESS);
	kept->address = 0;
}

static void *share_streams(void *argument)
{
	const struct sharer *me = argument;
	struct kept kept[KEPT] = {{0}};

	CHECK(cuCtxSetCurrent(me->context) == CUDA_SUCCESS);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct kept *one = &kept[i * 7 % KEPT];

		if (one->address)
			look_and_free(one, i % 5 != 0);
		one->stream = me->stream[(i + me->number) % STREAMS];
		one->value = me->number << 16 | i;
		one->address = async_get(PART_BYTES * (1 + i % 3), one->stream);
		CHECK(cuMemsetD32Async(one->address, one->value, PART_BYTES / 4, one->stream) == CUDA_SUCCESS);
	}
	for (unsigned i = 0; i < KEPT; i++)
		if (kept[i].address)
			look_and_free(&kept[i], true);
	return NULL;
}

TEST(threads_may_share_streams)
{
	CUstream stream[STREAMS] = {core_stream(), core_stream()};
	struct sharer sharer[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		sharer[i] = (struct sharer){.stream = stream, .number = i + 1};
		assert_ok(cuCtxGetCurrent(&sharer[i].context));
		assert_int_equal(pthread_create(&sharer[i].thread, NULL, share_streams, &sharer[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(sharer[i].thread, NULL), 0);
}

/* ---- what is unused serves others ---- */

static __typeof__(&cuEventQuery) query;
static CUstream held;
static pthread_t asks;
static unsigned n_queries;

/* The stream goes on when the thread has asked often: it waits. The mover asks, too. */
static CUresult query_and_let_go(CUevent event)
{
	if (pthread_equal(pthread_self(), asks) && ++n_queries == 20)
		async_let_go(held);
	return query(event);
}

TEST(an_allocation_without_memory_waits_for_segments)
{
	CUstream stream = held = core_stream();
	CUdeviceptr block[10], large;
	CUdeviceptr part = async_get(4 * PART_BYTES, stream);

	for (unsigned i = 0; i < 9; i++)
		assert_ok(cuMemAlloc_v2(&block[i], 12 * MIB));
	async_hold(stream);
	assert_ok(cuMemFreeAsync(part, stream));
	query = REAL(cuEventQuery);
	asks = pthread_self();
	n_queries = 0;
	real.cuEventQuery = query_and_let_go;
	CUresult result = cuMemAlloc_v2(&large, 4 * PART_BYTES);
	real.cuEventQuery = query;
	async_open(stream);
	assert_true(n_queries >= 20);
	/* On a busy machine the mover may still have some of it in hand. */
	for (unsigned i = 0; i < 1000 && result == CUDA_ERROR_OUT_OF_MEMORY; i++) {
		usleep(1000);
		result = cuMemAlloc_v2(&large, 4 * PART_BYTES);
	}
	assert_ok(result);
	assert_ok(cuMemFree_v2(large));
	for (unsigned i = 0; i < 9; i++)
		assert_ok(cuMemFree_v2(block[i]));
}

TEST(the_driver_gets_unused_segments_before_anything_is_moved)
{
	struct heap *heap = atomic_load(&device_get(0)->heap);
	CUstream stream = core_stream();
	struct room retry = {0};

	segments_tick(); /* ticks run: unused segments stay for a while */
	CUdeviceptr block = core_alloc(8 * MIB), part = async_get(PART_BYTES, stream);
	assert_ok(cuMemFreeAsync(part, stream));
	assert_ok(cuStreamSynchronize(stream));
	heap_trim(heap, 0, 0);
	unsigned long live = sim_live().handles;
	uint64_t moves = stats_get(STAT_moves_out);
	assert_true(make_room_for_driver(&retry, 0, PART_BYTES));
	make_room_end(&retry, CUDA_SUCCESS);
	assert_true(sim_live().handles < live);
	assert_int_equal(stats_get(STAT_moves_out), moves);
	assert_ok(cuMemFree_v2(block));
}

static unsigned site_at(CUdeviceptr address)
{
	const struct arena *arena = heap_arena(atomic_load(&device_get(0)->heap));

	return arena_site(arena, arena_look(arena, address) - 1, arena_unit(arena, address));
}

/* Sizes of other classes make other sites. */
TEST(each_part_is_counted_for_who_has_allocated_it)
{
	CUstream stream = core_stream();
	CUdeviceptr first = async_get(4 * PART_BYTES, stream);
	unsigned before = site_at(first);

	assert_ok(cuMemFreeAsync(first, stream));
	assert_int_equal(async_get(2 * MIB, stream), first);
	CUdeviceptr second = async_get(3 * PART_BYTES, stream);
	assert_int_equal(second, first + 2 * MIB);
	assert_int_not_equal(site_at(first), 0);
	assert_int_not_equal(site_at(first), before);
	assert_int_not_equal(site_at(first), site_at(second));
	assert_int_equal(site_at(second + 3 * PART_BYTES - 1), site_at(second));
	/* The rest is counted for who has the beginning. */
	assert_int_equal(site_at(second + 3 * PART_BYTES), site_at(first));
}

static uint64_t reserved(CUmemPool_attribute attribute)
{
	cuuint64_t bytes;

	CHECK(cuMemPoolGetAttribute(async_default_pool(), attribute, &bytes) == CUDA_SUCCESS);
	return bytes;
}

TEST(what_a_stream_has_not_reached_is_reserved)
{
	CUstream stream = core_stream();
	uint64_t before = reserved(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
	CUdeviceptr part[2] = {async_get(4 * PART_BYTES, stream), async_get(PART_BYTES, stream)};

	assert_int_equal(reserved(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), before + 5 * PART_BYTES);
	async_hold(stream);
	assert_ok(cuMemFreeAsync(part[0], stream));
	assert_int_equal(reserved(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), before + 5 * PART_BYTES);
	assert_int_equal(reserved(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), before + PART_BYTES);
	assert_true(reserved(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= before + 5 * PART_BYTES);
	async_let_go(stream);
	assert_int_equal(reserved(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), before + PART_BYTES);
}

/* A step may take some seconds, in which a segment has no use. */
TEST(an_unused_segment_stays_for_some_ticks)
{
	CUstream stream = core_stream();
	CUdeviceptr part = async_get(PART_BYTES, stream);

	segments_tick();
	assert_ok(cuMemFreeAsync(part, stream));
	assert_ok(cuStreamSynchronize(stream));
	for (unsigned i = 0; i < 10; i++)
		segments_tick();
	CUdeviceptr again = async_get(PART_BYTES, stream);
	assert_int_equal(again, part);
	assert_ok(cuMemFreeAsync(again, stream));
	assert_ok(cuStreamSynchronize(stream));
	for (unsigned i = 0; i < 22; i++)
		segments_tick();
	assert_false(segments_give_up(device_get(0)));
}

enum { ALL = 64 };

/* Allocates until there is no memory. Returns how many blocks that are. */
static unsigned take_all(CUdeviceptr block[ALL])
{
	unsigned n = 0;

	for (size_t bytes = 8 * MIB; bytes >= 2 * MIB; bytes /= 2)
		while (n < ALL && cuMemAlloc_v2(&block[n], bytes) == CUDA_SUCCESS)
			n++;
	assert_true(n < ALL);
	return n;
}

/* A budget that shrinks takes what is unused before anything is moved. */
TEST(a_smaller_budget_takes_unused_segments_first)
{
	struct device *device = device_get(0);
	CUstream stream = core_stream();
	uint64_t limit = atomic_load(&device->budget.limit);

	segments_tick();
	heap_trim(atomic_load(&device->heap), 0, 0);
	CUdeviceptr block = core_alloc(8 * MIB), part = async_get(4 * PART_BYTES, stream);
	assert_ok(cuMemFreeAsync(part, stream));
	assert_ok(cuStreamSynchronize(stream));
	uint64_t moves = stats_get(STAT_moves_out);
	atomic_store(&device->budget.limit, 8 * MIB);
	assert_true(follow_make_fit(device));
	assert_int_equal(atomic_load(&device->budget.used), 8 * MIB);
	assert_int_equal(stats_get(STAT_moves_out), moves);
	atomic_store(&device->budget.limit, limit);
	assert_ok(cuMemFree_v2(block));
}

/* When that is done, or behind it. Its owner has what it has freed there at once, as before. */
TEST(for_want_of_memory_a_stream_takes_what_another_has_freed)
{
	CUstream stream = core_stream(), other = core_stream();
	CUdeviceptr block[ALL], part[4], none;
	int no = 0, yes = 1;

	part[0] = async_get(4 * PART_BYTES, stream);
	assert_ok(cuMemFreeAsync(part[0], stream));
	assert_int_equal(async_get(PART_BYTES, stream), part[0]);
	assert_ok(cuStreamSynchronize(stream));
	unsigned n = take_all(block);
	part[1] = async_get(PART_BYTES, other);
	assert_int_equal(part[1], part[0] + PART_BYTES);
	part[2] = async_get(PART_BYTES, stream);
	part[3] = async_get(PART_BYTES, stream);
	async_hold(stream);
	assert_ok(cuMemFreeAsync(part[2], stream));
	assert_ok(cuMemFreeAsync(part[3], stream));
	/* The owner is behind its frees. */
	assert_int_equal(async_get(PART_BYTES, stream), part[2]);
	assert_ok(cuMemPoolSetAttribute(async_default_pool(), CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no));
	assert_int_equal(cuMemAllocAsync(&none, PART_BYTES, other), CUDA_ERROR_OUT_OF_MEMORY);
	assert_ok(cuMemPoolSetAttribute(async_default_pool(), CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &yes));
	assert_ok(cuStreamQuery(other));
	assert_int_equal(async_get(PART_BYTES, other), part[3]);
	assert_int_equal(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	async_let_go(stream);
	for (unsigned i = 0; i < n; i++)
		assert_ok(cuMemFree_v2(block[i]));
}

/* The mover keeps a word of pinned memory for itself; all else is given back. */
AFTER_EACH
{
	struct heap *heap = atomic_load(&device_get(0)->heap);

	async_end();
	core_drain();
	segments_give_up(device_get(0));
	assert_int_equal(ledger_n_rows(), 0);
	assert_true(heap_is_valid(heap));
	heap_trim(heap, 0, 0);
	assert_int_equal(host_budget.used + device_get(0)->budget.used, 0);
	assert_int_equal(sim_live().handles, 0);
	assert_int_equal(sim_broken_rules(), 0);
}

CORE_START("SIM_MEMORY=256MiB", "SPILLWAY_POLICY=" STREAMS_POLICY,
	   "SPILLWAY_SET=device.budget=64MiB,host.budget=64MiB,spill.mode=exact,report.summary=no")
