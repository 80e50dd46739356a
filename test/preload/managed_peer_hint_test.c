// SPDX-License-Identifier: Apache-2.0
/*
 * Hints for memory that is managed by policy, on several GPUs: to any of them, in both of their ABIs. What one does is
 * compared with what it does to the program's own managed memory.
 */
#include "test/preload/managed_help.h"
#include "test/test.h"

/* ---- the calls ---- */

static struct {
	__typeof__(&cuMemPrefetchAsync) prefetch;
	__typeof__(&cuMemPrefetchAsync_v2) prefetch_v2;
	__typeof__(&cuMemAdvise) advise;
	__typeof__(&cuMemAdvise_v2) advise_v2;
} door;

/* As the runtime asks for them, by its version. */
static void open_doors(bool by_number)
{
	static const struct {
		const char *name;
		void **old, **young;
	} rows[] = {{"cuMemPrefetchAsync", (void **)&door.prefetch, (void **)&door.prefetch_v2},
		    {"cuMemAdvise", (void **)&door.advise, (void **)&door.advise_v2}};
	CUdriverProcAddressQueryResult status;

	door.prefetch = cuMemPrefetchAsync;
	door.prefetch_v2 = cuMemPrefetchAsync_v2;
	door.advise = cuMemAdvise;
	door.advise_v2 = cuMemAdvise_v2;
	for (int i = 0; by_number && i < 2; i++) {
		MUST(cuGetProcAddress_v2(rows[i].name, rows[i].old, 8000, 0, &status));
		MUST(cuGetProcAddress_v2(rows[i].name, rows[i].young, 13000, 0, &status));
		CHECK(*rows[i].old != *rows[i].young);
	}
}

static CUmemLocation place(int device)
{
	return device == CU_DEVICE_CPU ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
				       : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

static CUresult prefetch(CUdeviceptr block, int to, CUstream stream, bool young)
{
	CUresult result =
	    young ? door.prefetch_v2(block, BYTES, place(to), 0, stream) : door.prefetch(block, BYTES, to, stream);

	MUST(cu.cuStreamSynchronize(stream));
	return result;
}

static CUresult advise(CUdeviceptr block, CUmem_advise advice, int device, bool young)
{
	return young ? door.advise_v2(block, BYTES, advice, place(device)) : door.advise(block, BYTES, advice, device);
}

/* The result and the place after each step, as text. */
static char told[4096];

static void tell(CUdeviceptr block, CUresult result)
{
	size_t length = strlen(told);
	int by[N + 1] = {0};

	MUST(cuMemRangeGetAttribute(by, sizeof(by), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, block, BYTES));
	snprintf(told + length, sizeof(told) - length, "%d: on %#x, prefers %d, read %d, by %d %d, prefetched to %d\n",
		 result, sim_managed_where(block + BYTES - 4),
		 range_attribute(block, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION),
		 range_attribute(block, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), by[0], by[1],
		 range_attribute(block, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION));
}

static void hint(CUdeviceptr block, bool young)
{
	fill_on(0, block, 1);
	on_gpu(1);
	CUstream stream = child_stream();
	for (int to = N; to >= CU_DEVICE_CPU; to--) /* the first is none */
		tell(block, prefetch(block, to, to % 2 ? stream : NULL, young));
	for (int d = 0; d < N; d++) {
		tell(block, advise(block, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, d, young));
		fill_on((d + 1) % N, block, 10 + (unsigned)d);
		tell(block, CUDA_SUCCESS);
		holds_everywhere(block, 10 + (unsigned)d);
	}
	tell(block, advise(block, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0, young));
	on_gpu(0);
	tell(block, prefetch(block, 0, NULL, young));
	tell(block, advise(block, CU_MEM_ADVISE_SET_ACCESSED_BY, 1, young));
	tell(block, advise(block, CU_MEM_ADVISE_SET_ACCESSED_BY, N, young));
	fill_on(1, block, 20);
	tell(block, CUDA_SUCCESS);
	holds_everywhere(block, 20);
	tell(block, advise(block, CU_MEM_ADVISE_UNSET_ACCESSED_BY, 1, young));
	fill_on(0, block, 21);
	tell(block, advise(block, CU_MEM_ADVISE_SET_READ_MOSTLY, 2, young));
	holds_everywhere(block, 21);
	CHECK(sim_managed_where(block) == (ON(0) | ON(1) | ON(2) | ON(3)));
	fill_on(2, block, 22);
	CHECK(sim_managed_where(block) == ON(2));
	holds_everywhere(block, 22);
	tell(block, advise(block, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 2, young));
	on_gpu(1);
	MUST(cu.cuStreamDestroy_v2(stream));
}

PART_TEST(hints_name_any_gpu_and_do_what_they_do_natively, run_part(SETTINGS("all", ""), part);
	  run_part(SETTINGS("0-1", ""), part); run_part(SETTINGS("none", ""), part))
{
	static char native[sizeof(told)];
	CUdeviceptr own, block;

	start_gpus();
	for (int i = 0; i < 4; i++) {
		open_doors(i / 2);
		on_gpu(1);
		MUST(cu.cuMemAllocManaged(&own, BYTES, CU_MEM_ATTACH_GLOBAL));
		MUST(cuMemAdvise(own, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 1)); /* as the policy does */
		hint(own, i % 2);
		memcpy(native, told, sizeof(told));
		told[0] = 0;
		block = new_on(1, BYTES);
		hint(block, i % 2);
		if (strcmp(told, native))
			printf("natively:\n%s\nby policy:\n%s\n", native, told);
		CHECK(!strcmp(told, native));
		told[0] = 0;
		on_gpu(i);
		MUST(cu.cuMemFree_v2(block));
		MUST(cu.cuMemFree_v2(own));
	}
	/* In the heap they are taken and do nothing, where they name a GPU that there is. */
	block = new_on(0, MIB / 2);
	MUST(door.prefetch(block, MIB / 2, N - 1, NULL));
	MUST(door.advise_v2(block, MIB / 2, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place(N - 1)));
	CHECK(door.prefetch(block, MIB / 2, N, NULL) == CUDA_ERROR_INVALID_DEVICE);
	CHECK(door.advise_v2(block, MIB / 2, CU_MEM_ADVISE_SET_ACCESSED_BY, place(N)) == CUDA_ERROR_INVALID_DEVICE);
	CHECK(driver_is_heap(block));
	MUST(cu.cuMemFree_v2(block));
	end_gpus();
}

EACH_TEST(folder_make, folder_remove)
