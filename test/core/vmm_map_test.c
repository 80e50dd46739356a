// SPDX-License-Identifier: Apache-2.0
/*
 * vmm_map_test.c: what a program maps itself while its other memory moves, or is unmapped or given back
 * (serve/serve.h). cuMemMap and the like in this file are the library's.
 */
#include "shim/heap/block_unmapped.h"
#include "shim/serve/types.h"
#include "test/core/core.h"
#include "test/ledger_check.h"

typedef CUmemGenericAllocationHandle handle_id;

#define SPACE (16 * MIB)
#define PIECE (4 * MIB)

static const char *const settings[] = {
    "SPILLWAY_SET=spill.mode=exact,vmm.spill=move,device.budget=64MiB,host.budget=64MiB,report.summary=no", NULL};
static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				   .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc access_desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
					    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static CUdeviceptr space;

static struct heap *heap(void)
{
	return atomic_load(&device_get(0)->heap);
}

static handle_id handle_new(void)
{
	handle_id handle;

	assert_ok(cuMemCreate(&handle, PIECE, &prop, 0));
	return handle;
}

static handle_id drivers_new(void)
{
	handle_id handle;

	assert_ok(REAL(cuMemCreate)(&handle, PIECE, &prop, 0));
	return handle;
}

static CUresult map(CUdeviceptr at, handle_id handle)
{
	return cuMemMap(at, PIECE, 0, handle, 0);
}

static void unmap(CUdeviceptr at)
{
	assert_ok(cuCtxSynchronize());
	assert_ok(cuMemUnmap(at, PIECE));
}

BEFORE_EACH
{
	assert_ok(cuMemAddressReserve(&space, SPACE, 0, 0, 0));
	assert_true(heap_contains(heap(), space));
}

AFTER_EACH
{
	assert_ok(cuMemAddressFree(space, SPACE));
	assert_int_equal(ledger_n_rows(), 0);
	heap_trim(heap(), 0, 0);
	assert_int_equal(sim_live().handles, 0);
	assert_int_equal(sim_broken_rules(), 0);
}

/* ---- what is moving ---- */

static handle_id mapped;
static struct migration transit;

/* The first piece of the space is on its way, and the driver has nothing there. */
static void begin_move(void)
{
	mapped = handle_new();
	assert_ok(map(space, mapped));
	assert_ok(cuMemSetAccess(space, PIECE, &access_desc, 1));
	core_fill(space, PIECE, 7);
	assert_ok(cuCtxSynchronize());
	transit = core_begin_move(heap(), space, CHUNK_HOST, true);
	assert_int_equal(migration_bytes(&transit), PIECE);
	assert_ok(migration_unmap(&transit));
}

/* It comes back to where it was, with what it held. */
static void end_of_move(void)
{
	CHECK(migration_map(heap(), &transit, false) == CUDA_SUCCESS);
	migration_end(heap(), &transit);
}

static void end_of_piece(void)
{
	assert_true(core_is_filled(space, PIECE, 7));
	unmap(space);
	assert_ok(cuMemRelease(mapped));
}

static void end_move(void)
{
	end_of_move();
	end_of_piece();
}

static void nothing_is_mapped_over_it(handle_id handle)
{
	assert_int_equal(map(space, handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(map(space + PIECE / 2, handle), CUDA_ERROR_INVALID_VALUE);
	assert_ok(map(space + PIECE, handle));
	unmap(space + PIECE);
}

TEST(a_drivers_handle_is_not_mapped_over_what_is_moving)
{
	handle_id handle = drivers_new();

	begin_move();
	nothing_is_mapped_over_it(handle);
	end_move();
	assert_ok(map(space, handle));
	unmap(space);
	assert_ok(cuMemRelease(handle));
}

/* A second mapping of our handle is one that the heap does not track. */
TEST(nor_is_a_handle_of_ours_that_is_mapped_elsewhere)
{
	handle_id handle = handle_new();

	assert_ok(map(space + 2 * PIECE, handle));
	begin_move();
	nothing_is_mapped_over_it(handle);
	end_move();
	unmap(space + 2 * PIECE);
	assert_ok(cuMemRelease(handle));
}

TEST(nor_is_one_that_was_exported_before_it_was_mapped)
{
	handle_id handle = handle_new();
	int file;

	assert_ok(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	begin_move();
	nothing_is_mapped_over_it(handle);
	end_move();
	assert_ok(cuMemRelease(handle));
}

static void *arrive_late(void *unused)
{
	for (int naps = 0; naps < 1500; naps++) /* a pin is waited for through 1000 of them */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	end_of_move();
	return unused;
}

static void *open_it(void *ret_result)
{
	*(CUresult *)ret_result = cuMemSetAccess(space, PIECE, &access_desc, 1);
	return NULL;
}

/* As without the library: programs end if one of these fails. */
TEST(calls_on_what_is_moving_wait_until_it_has_arrived)
{
	CUresult result = CUDA_ERROR_UNKNOWN;

	begin_move();
	pthread_t mover = test_thread(arrive_late, NULL), opener = test_thread(open_it, &result);
	assert_ok(map(space + 2 * PIECE, mapped)); /* a second mapping */
	assert_int_equal(pthread_join(opener, NULL), 0);
	assert_ok(result);
	assert_int_equal(pthread_join(mover, NULL), 0);
	unmap(space + 2 * PIECE);
	end_of_piece();
}

/* ---- memory that is unmapped meanwhile ---- */

static _Atomic bool asks;
static CUresult retained;

static void *retain(void *unused)
{
	handle_id handle;

	retained = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)space);
	return unused;
}

CUresult __real_heap_unplace(struct heap *of, CUdeviceptr address, uint64_t bytes);
CUresult __wrap_heap_unplace(struct heap *of, CUdeviceptr address, uint64_t bytes);

/* No row says any more what is mapped, and it still is. */
CUresult __wrap_heap_unplace(struct heap *of, CUdeviceptr address, uint64_t bytes)
{
	if (asks) {
		test_beside(retain, NULL);
	}
	return __real_heap_unplace(of, address, bytes);
}

/* The heap would give the memory to others while the program has its handle. */
TEST(a_piece_of_the_heap_has_no_handle_for_the_program)
{
	handle_id handle = handle_new();

	assert_ok(map(space, handle));
	asks = true;
	unmap(space);
	asks = false;
	assert_int_equal(retained, CUDA_ERROR_INVALID_VALUE);
	assert_ok(cuMemRelease(handle));
	/* Of the driver's own memory there it has. */
	handle = drivers_new();
	assert_ok(map(space, handle));
	retain(NULL);
	assert_ok(retained);
	unmap(space);
	for (int i = 0; i < 2; i++)
		assert_ok(cuMemRelease(handle));
}

/* ---- memory that is made for others ---- */

static bool made_room, was_free;

bool __real_segments_give_up(const struct device *device);
bool __wrap_segments_give_up(const struct device *device);
bool __wrap_segments_give_up(const struct device *device)
{
	made_room = true;
	was_free = lock_try(&serve_state.vmm.lock);
	if (was_free)
		lock_drop(&serve_state.vmm.lock);
	return __real_segments_give_up(device);
}

/* Room is made by what takes other locks, and may wait. */
TEST(no_lock_is_held_while_room_is_made_for_what_is_exported)
{
	handle_id handle = handle_new(), drivers;
	int file;
	CUdeviceptr warm = core_alloc(PIECE);

	assert_ok(cuMemFree_v2(warm));
	sim_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
	made_room = false;
	assert_ok(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	assert_true(made_room && was_free);
	/* It is the driver's all the same: nothing of the heap is left with the handle. */
	assert_ok(map(space, handle));
	assert_true(heap_is_vacant(heap(), space, PIECE));
	assert_ok(
	    cuMemImportFromShareableHandle(&drivers, (void *)(intptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	unmap(space);
	assert_ok(cuMemRelease(drivers));
	assert_ok(cuMemRelease(handle));
}

/* ---- several mappings at once ---- */

static void map_three(const handle_id handles[3])
{
	for (int i = 0; i < 3; i++)
		assert_ok(map(space + i * PIECE, handles[i]));
	assert_ok(cuMemSetAccess(space, 3 * PIECE, &access_desc, 1));
}

TEST(an_unmapping_that_the_driver_refuses_unmaps_nothing)
{
	handle_id handles[3] = {handle_new(), drivers_new(), handle_new()};

	map_three(handles);
	core_fill(space, 3 * PIECE, 8);
	for (unsigned n = 1; n <= 3; n++) {
		assert_ok(cuCtxSynchronize());
		sim_fail("cuMemUnmap", n, CUDA_ERROR_UNKNOWN);
		CUresult result = cuMemUnmap(space, 3 * PIECE);
		sim_fail("cuMemUnmap", 0, CUDA_SUCCESS);
		if (result != CUDA_SUCCESS) {
			assert_true(core_is_filled(space, 3 * PIECE, 8));
			assert_ok(cuCtxSynchronize());
			/* Nor is anything pinned by it. */
			assert_ok(heap_make_spare(heap(), CHUNK_HOST, PIECE / HEAP_UNIT, true));
			assert_true(core_leaves(&(struct core_heap){.heap = heap()}, space));
			assert_ok(cuMemUnmap(space, 3 * PIECE));
		}
		map_three(handles);
		core_fill(space, 3 * PIECE, 8);
	}
	assert_ok(cuCtxSynchronize());
	assert_ok(cuMemUnmap(space, 3 * PIECE));
	for (int i = 0; i < 3; i++)
		assert_ok(cuMemRelease(handles[i]));
}

/* ---- handles that have ended ---- */

/* A driver may take a number that it has never given for an address. */
TEST(a_number_of_ours_is_never_the_drivers_to_look_up)
{
	handle_id handle = handle_new();
	CUmemAllocationProp said;
	int file;

	assert_ok(cuMemRelease(handle));
	unsigned long calls = sim_calls("cuMemRelease") + sim_calls("cuMemGetAllocationPropertiesFromHandle") +
			      sim_calls("cuMemExportToShareableHandle");
	assert_int_equal(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemGetAllocationPropertiesFromHandle(&said, handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(map(space, handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(calls, sim_calls("cuMemRelease") + sim_calls("cuMemGetAllocationPropertiesFromHandle") +
				    sim_calls("cuMemExportToShareableHandle"));
}

/* ---- addresses that are given back meanwhile ---- */

static _Atomic bool gives_back, has_answer;
static CUresult answer;

static void *give_back(void *unused)
{
	answer = cuMemAddressFree(space, SPACE);
	has_answer = true;
	return unused;
}

void __real_va_ranges_count(CUdeviceptr address, int more);
void __wrap_va_ranges_count(CUdeviceptr address, int more);

/* The driver has mapped it, and no row of the library says so yet: time for the other thread to be answered. */
void __wrap_va_ranges_count(CUdeviceptr address, int more)
{
	static pthread_t thread;

	if (more > 0 && gives_back) {
		CHECK(pthread_create(&thread, NULL, give_back, NULL) == 0);
		for (int ms = 0; ms < 100 && !has_answer; ms++)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		CHECK(pthread_detach(thread) == 0);
	}
	__real_va_ranges_count(address, more);
}

TEST(addresses_that_have_just_been_mapped_are_not_given_back)
{
	handle_id handle = drivers_new();

	gives_back = true;
	assert_ok(map(space, handle));
	gives_back = false;
	while (!has_answer)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_int_equal(answer, CUDA_ERROR_INVALID_VALUE);
	unmap(space);
	assert_ok(cuMemRelease(handle));
}

BEFORE_ALL
{
	core_start(settings);
	/* The heap is made with the first memory. */
	CUdeviceptr first = 0;
	assert_ok(cuMemAlloc_v2(&first, PIECE));
	assert_ok(cuMemFree_v2(first));
}
