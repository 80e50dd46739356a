// SPDX-License-Identifier: Apache-2.0
/*
 * What other devices reach of a heap (peers.c): what is mapped before and after they are named, here and on the
 * host, in blocks, slabs and warm memory, and of pieces that change places meanwhile. The driver is asked for every 2
 * MiB.
 */
#include "test/core/core.h"

#define PEER_1 (UINT64_C(1) << 1)
#define PEER_2 (UINT64_C(1) << 2)

static _Atomic uint64_t peers;
static struct core_heap own;

BEFORE_EACH
{
	struct heap_config config = {
	    .host_usable = true,
	    .host_location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA},
	    .moves = true,
	    .peers = &peers,
	    .device_budget = &own.device,
	    .host_budget = &own.host,
	    .arena_bytes = (uint64_t)8 << 30,
	    .keep_device = 64 * MIB,
	    .keep_host = 64 * MIB,
	};

	atomic_store(&peers, 0);
	own = (struct core_heap){.device = {.limit = 24 * MIB}, .host = {.limit = 64 * MIB}, .before = sim_live()};
	assert_int_equal(heap_create(&config, &own.heap), SW_OK);
}

AFTER_EACH
{
	core_heap_close(&own);
}

static struct heap_grant take(size_t bytes)
{
	return core_take(&own, bytes, CHUNK_MOVABLE, HEAP_DEVICE_FIRST);
}

/* Bits of the devices that may touch all of it; those that may touch a part must not be. */
static uint64_t open_to(CUdeviceptr at, size_t bytes)
{
	uint64_t all = 0;

	for (int device = 0; device < 3; device++) {
		CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
		size_t n = 0, n_open = 0;

		for (size_t offset = 0; offset < bytes; offset += HEAP_UNIT, n++) {
			unsigned long long flags = 0;

			assert_ok(cuMemGetAccess(&flags, &location, at + offset));
			n_open += flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		}
		assert_true(n_open == 0 || n_open == n);
		all |= (uint64_t)(n_open != 0) << device;
	}
	return all;
}

TEST(all_that_is_mapped_is_opened_and_closed)
{
	struct heap_grant on_device = take(8 * MIB), both = take(24 * MIB), slab = take(1000), warm, later;

	assert_true(both.bytes_away && both.bytes_on_device);
	warm = take(6 * MIB);
	core_give(&own, &warm);
	atomic_store(&peers, PEER_1);
	assert_ok(heap_reach(own.heap));
	assert_int_equal(open_to(on_device.address, 8 * MIB), 1 | PEER_1);
	assert_int_equal(open_to(both.address, 24 * MIB), 1 | PEER_1);
	assert_int_equal(open_to(slab.address, 1), 1 | PEER_1);
	assert_int_equal(open_to(warm.address, 6 * MIB), 1 | PEER_1);
	later = take(10 * MIB);
	assert_int_equal(open_to(later.address, 10 * MIB), 1 | PEER_1);
	/* Another one: nothing is asked twice. */
	unsigned long calls = sim_calls("cuMemSetAccess");
	assert_ok(heap_reach(own.heap));
	assert_int_equal(sim_calls("cuMemSetAccess"), calls);
	atomic_store(&peers, PEER_1 | PEER_2);
	assert_ok(heap_reach(own.heap));
	assert_int_equal(open_to(both.address, 24 * MIB), 1 | PEER_1 | PEER_2);
	assert_int_equal(heap_reached_by(own.heap), PEER_1 | PEER_2);
	/* Only who is no longer named loses it. */
	atomic_store(&peers, PEER_2);
	heap_unreach(own.heap, PEER_1 | PEER_2);
	assert_int_equal(open_to(both.address, 24 * MIB), 1 | PEER_2);
	assert_int_equal(open_to(on_device.address, 8 * MIB), 1 | PEER_2);
	assert_int_equal(heap_reached_by(own.heap), PEER_2);
}

TEST(a_failure_on_the_way_is_told_and_made_up_for)
{
	struct heap_grant a = take(4 * MIB), b = take(4 * MIB);

	atomic_store(&peers, PEER_1);
	sim_fail("cuMemSetAccess", 2, CUDA_ERROR_UNKNOWN);
	assert_int_equal(heap_reach(own.heap), CUDA_ERROR_UNKNOWN);
	assert_int_equal(heap_reached_by(own.heap), PEER_1);
	assert_ok(heap_reach(own.heap));
	assert_int_equal(open_to(a.address, 4 * MIB), 1 | PEER_1);
	assert_int_equal(open_to(b.address, 4 * MIB), 1 | PEER_1);
	/* What the driver will not take back stays open, and is tried again. */
	atomic_store(&peers, 0);
	sim_fail("cuMemSetAccess", 1, CUDA_ERROR_UNKNOWN);
	heap_unreach(own.heap, PEER_1);
	assert_int_equal(heap_reached_by(own.heap), PEER_1);
	heap_unreach(own.heap, PEER_1);
	assert_int_equal(heap_reached_by(own.heap), 0);
	assert_int_equal(open_to(a.address, 4 * MIB), 1);
}

static void *reach(void *ret_result)
{
	*(CUresult *)ret_result = heap_reach(own.heap);
	return NULL;
}

/* A piece that is on its way when a device is named: waited for, and open wherever it arrives. */
TEST(what_is_on_its_way_is_waited_for)
{
	for (int turn = 0; turn < 2; turn++) {
		struct heap_grant grant = take(2 * MIB);
		struct migration transit = core_begin_move(own.heap, grant.address, CHUNK_HOST, false);
		CUresult result = CUDA_ERROR_UNKNOWN;
		pthread_t thread;

		assert_ok(migration_unmap(&transit));
		if (turn) /* before it is named: back where it was, closed to it */
			assert_ok(migration_map(own.heap, &transit, false));
		atomic_store(&peers, PEER_2);
		assert_int_equal(pthread_create(&thread, NULL, reach, &result), 0);
		UNTIL(heap_is_awaited(own.heap));
		if (!turn) { /* after: it arrives open */
			assert_ok(migration_map(own.heap, &transit, true));
			migration_exchange(own.heap, &transit, false);
		}
		migration_end(own.heap, &transit);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_ok(result);
		assert_int_equal(sim_where(grant.address), turn ? 'D' : 'H');
		assert_int_equal(open_to(grant.address, 2 * MIB), 1 | PEER_2);
		atomic_store(&peers, 0);
		heap_unreach(own.heap, PEER_2);
		assert_int_equal(open_to(grant.address, 2 * MIB), 1);
		core_give(&own, &grant);
	}
}

int main(void)
{
	core_settings((const char *const[]){"SIM_DEVICES=3", NULL});
	core_driver();
	return test_run();
}
