// SPDX-License-Identifier: Apache-2.0
/*
 * What of a program's own memory moves under vmm.spill: move, in `exact` alone: all of what a pointer reaches,
 * whichever handles that lies in, and nothing once others may know it. What moving does to a job: vmm_job_test.c.
 */
#include "test/preload/vmm_help.h"
#include "test/test.h"

#include "shim/spillway.h"

/* Twice the budget, in tensors of two handles each: the second of them no pointer ever names. */
enum { TENSORS = 8, HANDLES = 2 * TENSORS };
#define HANDLE ((size_t)4 * MIB)
#define TENSOR (2 * HANDLE)
#define WORDS  (TENSOR / 4)
/* So much that what a pointer means is not simply all of it (tensors.h). */
#define SPACE ((size_t)1024 * MIB)

static bool is_exact(void)
{
	return !strcmp(vmm_mode(), "exact");
}

static struct spillway_place place_of(CUdeviceptr at)
{
	struct spillway_place place;

	CHECK(spillway_where((const void *)(uintptr_t)at, &place) == 0);
	CHECK(place.backend == SPILLWAY_HEAP && place.bytes == HANDLE);
	CHECK(place.bytes_on_device + place.bytes_on_host == HANDLE);
	return place;
}

static bool is_on_device(CUdeviceptr at)
{
	return place_of(at).bytes_on_device == HANDLE;
}

static CUdeviceptr segment_make(void)
{
	CUdeviceptr at = vmm_reserve(SPACE);

	for (unsigned i = 0; i < HANDLES; i++)
		vmm_map_new(at + i * HANDLE, HANDLE);
	return at;
}

/* A step of the job: every tensor is written by a kernel that is given where it begins. */
static void step(CUdeviceptr at, unsigned number)
{
	for (unsigned i = 0; i < TENSORS; i++)
		vmm_count(NULL, at + i * TENSOR, number + i, WORDS);
	MUST(cu.cuCtxSynchronize());
}

static void check(CUdeviceptr at, unsigned number)
{
	for (unsigned i = 0; i < TENSORS; i++)
		CHECK(vmm_counts(at + i * TENSOR, number + i, WORDS));
}

/* Steps until a handle that no pointer names has come in from the host; false: none did in that time. */
static bool one_comes_in(CUdeviceptr at, unsigned *number, time_t seconds)
{
	bool was_out[HANDLES];

	for (unsigned i = 0; i < HANDLES; i++)
		was_out[i] = !is_on_device(at + i * HANDLE);
	for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
		step(at, ++*number);
		for (unsigned i = 1; i < HANDLES; i += 2)
			if (was_out[i] && is_on_device(at + i * HANDLE))
				return true;
	}
	return false;
}

static void segment_drop(CUdeviceptr at)
{
	vmm_unmap_and_free(at, HANDLES * HANDLE, SPACE);
}

PART_TEST(segment_moves_in_exact_alone, vmm_run(part))
{
	unsigned number = 0, out = 0;

	CUdeviceptr at = segment_make();
	for (unsigned i = 0; i < HANDLES; i++) {
		out += !is_on_device(at + i * HANDLE);
		CHECK(place_of(at + i * HANDLE).movable == is_exact());
	}
	CHECK(out == HANDLES / 2);
	CHECK(one_comes_in(at, &number, is_exact() ? 60 : 3) == is_exact());
	check(at, number);
	segment_drop(at);
}

/* ---- what others may know ---- */

static CUdeviceptr map_movable(handle_id handle)
{
	CUdeviceptr at = vmm_reserve(HANDLE);

	vmm_map(at, HANDLE, handle);
	CHECK(place_of(at).movable == is_exact());
	return at;
}

PART_TEST(what_others_may_know_stays, vmm_run(part))
{
	CUmemAllocationProp prop = form_memory(0);
	handle_id exported;
	int file;

	handle_id twice = vmm_create(0, HANDLE), closed = vmm_create(0, HANDLE), shown = vmm_create(0, HANDLE);
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	MUST(cu.cuMemCreate(&exported, HANDLE, &prop, 0));
	CUdeviceptr at[] = {map_movable(exported), map_movable(twice), map_movable(closed), map_movable(shown)};
	MUST(cuMemExportToShareableHandle(&file, exported, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(!place_of(at[0]).movable);
	CUdeviceptr alias = vmm_reserve(HANDLE);
	vmm_map(alias, HANDLE, twice);
	CHECK(!place_of(at[1]).movable);
	MUST(vmm_access(at[2], HANDLE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
	CHECK(!place_of(at[2]).movable);
	MUST(vmm_access(at[2], HANDLE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CHECK(place_of(at[2]).movable == is_exact());
	MUST(vmm_access(at[3], HANDLE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CHECK(!place_of(at[3]).movable);
	/* That was of the mapping; what is exported is known for good. */
	vmm_unmap(at[3], HANDLE);
	vmm_map(at[3], HANDLE, shown);
	CHECK(place_of(at[3]).movable == is_exact());
	vmm_unmap(at[0], HANDLE);
	vmm_map(at[0], HANDLE, exported);
	CHECK(!place_of(at[0]).movable);
	CHECK(close(file) == 0);
	vmm_unmap_and_free(alias, HANDLE, HANDLE);
	handle_id handles[] = {exported, twice, closed, shown};
	for (int i = 0; i < 4; i++) {
		MUST(cu.cuMemRelease(handles[i]));
		vmm_unmap_and_free(at[i], HANDLE, HANDLE);
	}
}

/* What holds nothing yet is made by the driver, as it was asked for; it is the program's by the same handle. */
PART_TEST(what_is_shown_before_it_is_mapped_is_the_drivers, vmm_run(part))
{
	CUmemAllocationProp prop = form_memory(0), said;
	struct spillway_place place;
	handle_id handle, imported;
	int file;

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	MUST(cu.cuMemCreate(&handle, HANDLE, &prop, 0));
	MUST(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	MUST(cuMemGetAllocationPropertiesFromHandle(&said, handle));
	CHECK(said.requestedHandleTypes == prop.requestedHandleTypes && said.location.id == 0);
	CUdeviceptr at = vmm_reserve(4 * HANDLE);
	vmm_map(at + HANDLE, HANDLE, handle);
	CHECK(spillway_where((const void *)(uintptr_t)(at + HANDLE), &place) != 0 || place.backend != SPILLWAY_HEAP);
	vmm_write(at + HANDLE, 55, HANDLE / 4);
	MUST(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)file,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CHECK(close(file) == 0);
	vmm_map(at + 2 * HANDLE, HANDLE, imported);
	CHECK(vmm_counts(at + 2 * HANDLE, 55, HANDLE / 4));
	/* Again, and after a release: it is the same. */
	MUST(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(close(file) == 0);
	MUST(cu.cuMemRelease(handle));
	CHECK(cu.cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
	vmm_unmap(at + HANDLE, HANDLE);
	CHECK(cu.cuMemMap(at, HANDLE, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
	MUST(cu.cuMemRelease(imported));
	vmm_unmap(at + 2 * HANDLE, HANDLE);
	MUST(cu.cuMemAddressFree(at, 4 * HANDLE));
}

/* Longer than a piece can be: it moves in pieces, and has no handle for others once it holds something. */
static void lies_in_pieces(void)
{
	const size_t bytes = 160 * MIB;
	CUmemAllocationProp prop = form_memory(0);
	struct spillway_place place;
	handle_id handle;
	int file;

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	MUST(cu.cuMemCreate(&handle, bytes, &prop, 0));
	CUdeviceptr at = vmm_reserve(bytes), base;
	size_t size;
	vmm_map(at, bytes, handle);
	vmm_count(NULL, at, 3, bytes / 4);
	CHECK(spillway_where((const void *)(uintptr_t)(at + 150 * MIB), &place) == 0);
	CHECK(place.backend == SPILLWAY_HEAP && place.bytes == bytes && place.bytes_on_device <= 64 * MIB &&
	      place.movable == is_exact());
	CHECK(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
	      CUDA_ERROR_NOT_SUPPORTED);
	MUST(cu.cuMemGetAddressRange_v2(&base, &size, at + 150 * MIB));
	CHECK(base == at && size == bytes);
	CHECK(vmm_counts(at, 3, bytes / 4));
	MUST(cu.cuMemRelease(handle));
	vmm_unmap_and_free(at, bytes, bytes);
}

TEST(long_memory_lies_in_pieces)
{
	char set[200];
	const char *const settings[] = {"SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", set, NULL};

	snprintf(set, sizeof(set), "SPILLWAY_SET=spill.mode=%s,device.budget=64MiB,host.budget=256MiB,vmm.spill=move",
		 vmm_mode());
	assert_int_equal(child_run(settings, lies_in_pieces), 0);
}

/* A program that knows Spillway: a pin ends with the mapping, and what ends with it cannot be asked for. */
PART_TEST(pin_ends_with_the_mapping, vmm_run(part))
{
	handle_id handle = vmm_create(0, HANDLE);
	CUdeviceptr at = map_movable(handle);
	const void *inside = (const void *)(uintptr_t)(at + 12345);

	CHECK(spillway_pin(inside) == 0 && !place_of(at).movable);
	CHECK(spillway_unpin(inside) == 0 && place_of(at).movable == is_exact());
	CHECK(spillway_pin(inside) == 0);
	CHECK(spillway_grow(inside, 2 * HANDLE) != 0 && spillway_prefer_host(inside) != 0);
	vmm_unmap(at, HANDLE);
	vmm_map(at, HANDLE, handle);
	CHECK(place_of(at).movable == is_exact() && spillway_unpin(inside) != 0);
	MUST(cu.cuMemRelease(handle));
	vmm_unmap_and_free(at, HANDLE, HANDLE);
}
