/*
 * Programs on several GPUs whose device memory is managed memory by policy: each GPU's own, kernels and copies of one on
 * what another has, hints to any of them in both of their ABIs, and ends while another one is current. What a hint does
 * is compared with what it does to the program's own managed memory. Four GPUs of 64 MiB: the first two are wired, or
 * none, or all.
 */
#include "shim/spillway.h"
#include "shim/stats_page.h"
#include "test/preload/folder.h"
#include "test/preload/home.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { N = 4 };
#define BYTES MIB /* the least that this policy makes managed */
#define ON(d) (2u << (d))
#define QUIET "SPILLWAY_SET=report.summary=no,device.budget=32MiB,host.budget=64MiB"
#define SETTINGS(peers, more)                                                                                          \
	((const char *const[]){runtime, "SIM_DEVICES=4", "SIM_PEERS=" peers, "SIM_FILL=0", "SIM_MEMORY=64MiB",         \
			       "SPILLWAY_POLICY=managed", QUIET more, NULL})

static CUcontext contexts[N];

/* What the one before has left is not looked at. */
static int run(const char *const *settings, int (*part)(void))
{
	folder_clear();
	return child_run(settings, part);
}

static void begin(void)
{
	for (int d = N; d--;)
		contexts[d] = driver_start(d);
}

static void on(int device)
{
	MUST(cu.cuCtxSetCurrent(contexts[device]));
}

static CUdeviceptr on_device(int device, size_t bytes)
{
	unsigned managed = 0;

	on(device);
	CUdeviceptr block = child_alloc(bytes);
	MUST(cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block));
	CHECK(managed == (bytes >= MIB) && driver_is_heap(block) == (bytes < MIB));
	return block;
}

static void fill(int device, CUdeviceptr block, unsigned value)
{
	on(device);
	MUST(driver_fill(NULL, block, value, BYTES / 4));
	MUST(cu.cuCtxSynchronize());
}

/* For kernels of every GPU, for copies, and for the CPU. */
static void holds(CUdeviceptr block, unsigned value)
{
	for (int d = 0; d < N; d++) {
		CUdeviceptr copy = on_device(d, BYTES);

		MUST(driver_copy(NULL, copy, block, BYTES / 4));
		CHECK(driver_holds(copy, value, BYTES / 4));
		MUST(cu.cuMemFree_v2(copy));
		CHECK(driver_holds(block, value, BYTES / 4));
	}
	for (size_t i = 0; i < BYTES / 4; i++)
		CHECK(home_words(block)[i] == value);
}

static void ends(void)
{
	for (int d = 0; d < N; d++) {
		on(d);
		MUST(cu.cuCtxSynchronize());
		CHECK(sim_managed_of(d).resident == 0);
	}
	CHECK(sim_live().allocations == 0 && sim_broken_rules() == 0);
}

/* ---- whose it is ---- */

static const struct stats_page *figures(void)
{
	char path[256];

	CHECK(folder_files(STATS_TAIL, path) == 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const struct stats_page *page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
	CHECK(fd >= 0 && page != MAP_FAILED);
	close(fd);
	return page;
}

static int attribute(CUdeviceptr block, CUmem_range_attribute which)
{
	int value = 77;

	MUST(cuMemRangeGetAttribute(&value, sizeof(value), which, block, BYTES));
	return value;
}

static int belongs_to_its_device(void)
{
	CUdeviceptr block[N];

	begin();
	for (int d = 0; d < N; d++)
		block[d] = on_device(d, BYTES * (size_t)(d + 1));
	const struct stats_page *page = figures();
	for (int d = 0; d < N; d++) {
		CUcontext context;
		int ordinal = -1;

		on((d + 1) % N);
		MUST(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block[d]));
		MUST(cu.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block[d]));
		CHECK(ordinal == d && context == contexts[d]);
		CHECK(attribute(block[d], CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == d);
		CHECK(attribute(block[d], CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE) ==
		      CU_MEM_LOCATION_TYPE_DEVICE);
		CHECK(attribute(block[d], CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID) == d);
		CHECK(page->device[d].live[PLACE_MANAGED] == BYTES * (size_t)(d + 1));
		fill(d, block[d], (unsigned)d);
		CHECK(sim_managed_where(block[d]) == ON(d) && sim_managed_of(d).resident == BYTES);
	}
	for (int d = 0; d < N; d++) {
		on((d + 2) % N);
		MUST(cu.cuMemFree_v2(block[d]));
		CHECK(page->device[d].live[PLACE_MANAGED] == 0);
		CHECK(page->device[d].peak[PLACE_MANAGED] == BYTES * (size_t)(d + 1));
		CHECK(sim_managed_of(d).resident == 0);
	}
	ends();
	return 0;
}

static void a_block_belongs_to_the_device_it_was_asked_for_on(void **state)
{
	(void)state;
	assert_int_equal(run(SETTINGS("all", ""), belongs_to_its_device), 0);
	assert_int_equal(run(SETTINGS("none", ""), belongs_to_its_device), 0);
}

/* ---- who uses it ---- */

static void copies(CUdeviceptr mine, int me, CUdeviceptr other, int it)
{
	CUDA_MEMCPY3D_PEER box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				  .srcDevice = mine,
				  .srcContext = contexts[me],
				  .srcPitch = 4096,
				  .srcHeight = 16,
				  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				  .dstDevice = other,
				  .dstContext = contexts[it],
				  .dstPitch = 4096,
				  .dstHeight = 16,
				  .WidthInBytes = 4096,
				  .Height = 16,
				  .Depth = BYTES / 65536};
	CUstream stream;

	fill(me, mine, 21);
	on(it);
	stream = child_stream();
	MUST(cu.cuMemcpyPeer(other, contexts[it], mine, contexts[me], BYTES));
	MUST(cu.cuCtxSynchronize());
	holds(other, 21);
	fill(it, other, 22);
	on(me);
	MUST(cu.cuMemcpyDtoD_v2(mine, other, BYTES));
	MUST(cu.cuCtxSynchronize());
	holds(mine, 22);
	fill(me, mine, 23);
	on(it);
	MUST(cuMemcpyPeerAsync(other, contexts[it], mine, contexts[me], BYTES, stream));
	MUST(cu.cuStreamSynchronize(stream));
	holds(other, 23);
	fill(me, mine, 24);
	MUST(cuMemcpy3DPeer(&box));
	MUST(cu.cuCtxSynchronize());
	holds(other, 24);
	on(it);
	MUST(cu.cuMemsetD8Async(mine, 0x25, BYTES, stream));
	MUST(cu.cuStreamSynchronize(stream));
	holds(mine, 0x25252525);
	MUST(cu.cuStreamDestroy_v2(stream));
}

/* With memory in the heap of another device, which its own kernels alone may name. */
static void copies_with_the_heap(CUdeviceptr block, int it)
{
	const size_t bytes = MIB / 2;
	CUdeviceptr small = on_device(it, bytes);

	MUST(driver_fill(NULL, small, 31, bytes / 4));
	MUST(cu.cuMemcpyDtoD_v2(block, small, bytes));
	MUST(driver_copy(NULL, small, block + bytes, bytes / 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(home_words(block)[0] == 31 && home_words(block)[bytes / 4 - 1] == 31);
	CHECK(driver_holds(small, home_words(block)[bytes / 4], bytes / 4));
	on((it + 1) % N);
	MUST(cu.cuMemcpyPeer(small, contexts[it], block, contexts[(it + 1) % N], bytes));
	CHECK(driver_holds(small, 31, bytes / 4));
	MUST(cu.cuMemFree_v2(small));
}

static int is_used_by_all(void)
{
	CUdeviceptr block[N];

	begin();
	for (int d = 0; d < N; d++)
		block[d] = on_device(d, BYTES);
	/* No kernel needs peer access for it; and who has it does as well. */
	for (int round = 0; round < 2; round++) {
		for (int d = 0; d < N; d++)
			for (int other = 0; other < N; other++) {
				unsigned value = (unsigned)(round * 100 + d * 10 + other);

				fill(other, block[d], value);
				holds(block[d], value);
			}
		on(0);
		CHECK(cuCtxEnablePeerAccess(contexts[1], 0) ==
		      (strcmp(getenv("SIM_PEERS"), "none") && !round ? CUDA_SUCCESS
		       : !strcmp(getenv("SIM_PEERS"), "none")        ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
								     : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED));
	}
	copies(block[0], 0, block[1], 1);
	copies(block[2], 2, block[0], 0);
	fill(1, block[1], 30);
	copies_with_the_heap(block[1], 1);
	copies_with_the_heap(block[1], 0);
	copies_with_the_heap(block[1], 3);
	for (int d = 0; d < N; d++)
		MUST(cu.cuMemFree_v2(block[d]));
	ends();
	return 0;
}

static void every_gpu_uses_what_any_has(void **state)
{
	(void)state;
	assert_int_equal(run(SETTINGS("all", ""), is_used_by_all), 0);
	assert_int_equal(run(SETTINGS("0-1", ""), is_used_by_all), 0);
	assert_int_equal(run(SETTINGS("none", ""), is_used_by_all), 0);
}

static int is_more_than_all_have(void)
{
	CUdeviceptr block[2 * N];

	begin();
	for (int i = 0; i < 2 * N; i++) {
		block[i] = on_device(i % N, 40 * MIB);
		MUST(driver_fill(NULL, block[i], (unsigned)i, 40 * MIB / 4));
	}
	for (int d = 0; d < N; d++) {
		on(d);
		MUST(cu.cuCtxSynchronize());
		CHECK(sim_managed_of(d).evictions > 0 && sim_managed_of(d).bytes_out > 0);
	}
	/* The figures of each, when they are brought up to date. */
	CHECK(spillway_checkpoint_stats() == 0);
	for (int d = 0; d < N; d++) {
		struct sim_managed model = sim_managed_of(d);
		const struct stats_device *seen = &figures()->device[d];

		CHECK(seen->fault[FAULT_GPU] == model.gpu_faults && seen->live[PLACE_MANAGED] == 80 * MIB);
		CHECK(seen->fault[FAULT_IN_BYTES] == model.bytes_in && seen->fault[FAULT_OUT_BYTES] == model.bytes_out);
	}
	for (int i = 0; i < 2 * N; i++) {
		on((i + 1) % N);
		CHECK(driver_holds(block[i], (unsigned)i, 40 * MIB / 4));
		MUST(cu.cuMemFree_v2(block[i]));
	}
	ends();
	return 0;
}

static void more_than_each_has_works_on_each(void **state)
{
	(void)state;
	assert_int_equal(run(SETTINGS("all", ""), is_more_than_all_have), 0);
	assert_int_equal(run(SETTINGS("none", ""), is_more_than_all_have), 0);
}

/* ---- hints, in both ABIs ---- */

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
		 attribute(block, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION),
		 attribute(block, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), by[0], by[1],
		 attribute(block, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION));
}

static void hint(CUdeviceptr block, bool young)
{
	CUstream stream;

	fill(0, block, 1);
	on(1);
	stream = child_stream();
	for (int to = N; to >= CU_DEVICE_CPU; to--) /* the first is none */
		tell(block, prefetch(block, to, to % 2 ? stream : NULL, young));
	for (int d = 0; d < N; d++) {
		tell(block, advise(block, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, d, young));
		fill((d + 1) % N, block, 10 + (unsigned)d);
		tell(block, CUDA_SUCCESS);
		holds(block, 10 + (unsigned)d);
	}
	tell(block, advise(block, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0, young));
	on(0);
	tell(block, prefetch(block, 0, NULL, young));
	tell(block, advise(block, CU_MEM_ADVISE_SET_ACCESSED_BY, 1, young));
	tell(block, advise(block, CU_MEM_ADVISE_SET_ACCESSED_BY, N, young));
	fill(1, block, 20);
	tell(block, CUDA_SUCCESS);
	holds(block, 20);
	tell(block, advise(block, CU_MEM_ADVISE_UNSET_ACCESSED_BY, 1, young));
	fill(0, block, 21);
	tell(block, advise(block, CU_MEM_ADVISE_SET_READ_MOSTLY, 2, young));
	holds(block, 21);
	CHECK(sim_managed_where(block) == (ON(0) | ON(1) | ON(2) | ON(3)));
	fill(2, block, 22);
	CHECK(sim_managed_where(block) == ON(2));
	holds(block, 22);
	tell(block, advise(block, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 2, young));
	on(1);
	MUST(cu.cuStreamDestroy_v2(stream));
}

static int takes_hints(void)
{
	static char native[sizeof(told)];
	CUdeviceptr own, block;

	begin();
	for (int i = 0; i < 4; i++) {
		open_doors(i / 2);
		on(1);
		MUST(cu.cuMemAllocManaged(&own, BYTES, CU_MEM_ATTACH_GLOBAL));
		MUST(cuMemAdvise(own, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 1)); /* as the policy does */
		hint(own, i % 2);
		memcpy(native, told, sizeof(told));
		told[0] = 0;
		block = on_device(1, BYTES);
		hint(block, i % 2);
		if (strcmp(told, native))
			printf("natively:\n%s\nby policy:\n%s\n", native, told);
		CHECK(!strcmp(told, native));
		told[0] = 0;
		on(i);
		MUST(cu.cuMemFree_v2(block));
		MUST(cu.cuMemFree_v2(own));
	}
	/* In the heap they are taken and do nothing, where they name a GPU that there is. */
	block = on_device(0, MIB / 2);
	MUST(door.prefetch(block, MIB / 2, N - 1, NULL));
	MUST(door.advise_v2(block, MIB / 2, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place(N - 1)));
	CHECK(door.prefetch(block, MIB / 2, N, NULL) == CUDA_ERROR_INVALID_DEVICE);
	CHECK(door.advise_v2(block, MIB / 2, CU_MEM_ADVISE_SET_ACCESSED_BY, place(N)) == CUDA_ERROR_INVALID_DEVICE);
	CHECK(driver_is_heap(block));
	MUST(cu.cuMemFree_v2(block));
	ends();
	return 0;
}

static void hints_name_any_gpu_and_do_what_they_do_natively(void **state)
{
	(void)state;
	assert_int_equal(run(SETTINGS("all", ""), takes_hints), 0);
	assert_int_equal(run(SETTINGS("0-1", ""), takes_hints), 0);
	assert_int_equal(run(SETTINGS("none", ""), takes_hints), 0);
}

/* ---- what the policy brings ---- */

static int comes_to_who_asked(void)
{
	begin();
	for (int d = 0; d < N; d++) {
		CUdeviceptr block = on_device(d, BYTES);

		MUST(cu.cuCtxSynchronize());
		CHECK(sim_managed_where(block) == ON(d) && sim_managed_of(d).gpu_faults == 0);
		on((d + 1) % N);
		MUST(cu.cuMemFree_v2(block));
	}
	ends();
	return 0;
}

static int comes_to_who_launches(void)
{
	begin();
	for (int d = 0; d < N; d++) {
		CUdeviceptr block = on_device(0, BYTES);

		unsigned long faults = sim_managed_of(d).gpu_faults;

		CHECK(sim_managed_where(block) == 0);
		fill(d, block, 5);
		CHECK(sim_managed_where(block) == ON(d) && sim_managed_of(d).gpu_faults == faults);
		holds(block, 5);
		MUST(cu.cuMemFree_v2(block));
	}
	ends();
	return 0;
}

static void the_policy_brings_it_to_the_gpu_that_wants_it(void **state)
{
	(void)state;
	assert_int_equal(run(SETTINGS("all", ",managed.prefetch=on-alloc,managed.headroom=8MiB"), comes_to_who_asked),
			 0);
	assert_int_equal(
	    run(SETTINGS("none", ",managed.prefetch=before-launch,managed.headroom=8MiB"), comes_to_who_launches), 0);
}

/* ---- how it ends ---- */

/* Behind a stream of another GPU, which alone knows when it is done with it. */
static void is_freed_behind(int owner, int user)
{
	CUdeviceptr block = on_device(owner, BYTES), next;

	on(user);
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);
	MUST(driver_fill(stream, block, 6, BYTES / 4));
	CHECK(cu.cuMemFreeAsync(block, stream) == CUDA_SUCCESS);
	CHECK(cu.cuMemFree_v2(block) == CUDA_ERROR_INVALID_VALUE);
	next = on_device(owner, BYTES);
	CHECK(next != block);
	child_release(word);
	on(user);
	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuStreamDestroy_v2(stream));
	MUST(cu.cuMemFreeHost(word));
	MUST(cu.cuMemFree_v2(next));
	/* An allocation looks at what streams have passed. */
	MUST(cu.cuMemFree_v2(on_device(owner, BYTES)));
	CHECK(!child_is_alive(block));
}

static int ends_anywhere(void)
{
	CUdeviceptr first, second;

	begin();
	for (int owner = 0; owner < N; owner++)
		for (int user = 0; user < N; user++)
			is_freed_behind(owner, user);
	/* Without any context. */
	first = on_device(2, BYTES);
	MUST(cu.cuCtxSetCurrent(NULL));
	CUresult result = cu.cuMemFree_v2(first);
	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_CONTEXT);
	if (result != CUDA_SUCCESS) {
		on(0);
		MUST(cu.cuMemFree_v2(first));
	}
	/* With its context, and nobody else's. */
	first = on_device(0, BYTES);
	second = on_device(1, BYTES);
	fill(1, first, 8);
	fill(0, second, 9);
	MUST(cu.cuDevicePrimaryCtxReset_v2(1));
	on(0);
	CHECK(!child_is_alive(second) && cu.cuMemFree_v2(second) == CUDA_ERROR_INVALID_VALUE);
	CHECK(driver_holds(first, 8, BYTES / 4));
	MUST(cu.cuMemFree_v2(first));
	CHECK(figures()->device[1].live[PLACE_MANAGED] == 0 && sim_managed().resident == 0);
	CHECK(sim_broken_rules() == 0);
	return 0;
}

static void a_block_ends_whichever_gpu_is_current(void **state)
{
	(void)state;
	assert_int_equal(run(SETTINGS("all", ""), ends_anywhere), 0);
	assert_int_equal(run(SETTINGS("none", ""), ends_anywhere), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_make, folder_remove)
	const struct CMUnitTest tests[] = {
	    TEST(a_block_belongs_to_the_device_it_was_asked_for_on),
	    TEST(every_gpu_uses_what_any_has),
	    TEST(more_than_each_has_works_on_each),
	    TEST(hints_name_any_gpu_and_do_what_they_do_natively),
	    TEST(the_policy_brings_it_to_the_gpu_that_wants_it),
	    TEST(a_block_ends_whichever_gpu_is_current),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
