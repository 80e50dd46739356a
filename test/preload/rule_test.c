// SPDX-License-Identifier: Apache-2.0
/*
 * rule_test.c: what rules say, seen from a program that knows nothing of them: which memory it gets from each entry
 * point. Every part runs in a process of its own with a policy of its own. What the core makes of rules:
 * alloc_decide_test.c.
 */
#include "shim/spillway.h"
#include "test/preload/child.h"
#include "test/test.h"

/* BECOMES: the rank that the program gives itself, after the library has been loaded into it. */
static void begin(void)
{
	if (getenv("BECOMES"))
		setenv("RANK", getenv("BECOMES"), 1);
	driver_start(0);
}

CHILD_FRAME(begin, NULL)

/* Run under a policy of this text. */
static int under(const char *text, void (*run)(void))
{
	char path[] = "/tmp/rule_test.XXXXXX.yaml", setting[64];
	int fd = mkstemps(path, 5);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	snprintf(setting, sizeof(setting), "SPILLWAY_POLICY=%s", path);
	int status =
	    child_run((const char *const[]){"SIM_MEMORY=128MiB", "SPILLWAY_SET=report.summary=no", setting, NULL}, run);
	unlink(path);
	return status;
}

/* ---- memory in stream order ---- */

PART_TEST(a_rule_about_pools_means_those_that_are_named,
	  assert_int_equal(under("async.use: heap\nrules:\n"
				 "- {match: {api: pool, size: < 3MiB}, use: driver}\n"
				 "- {match: {size: == 4MiB}, use: deny}\n",
				 part),
			   0))
{
	CUdeviceptr of_pool, of_stream, refused;
	CUmemoryPool pool;

	MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	MUST(cuMemAllocFromPoolAsync(&of_pool, 2 * MIB, pool, NULL));
	MUST(cu.cuMemAllocAsync(&of_stream, 2 * MIB, NULL));
	CHECK(!driver_is_heap(of_pool) && driver_is_heap(of_stream));
	CHECK(cuMemAllocFromPoolAsync(&refused, 4 * MIB, pool, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cu.cuMemAllocAsync(&refused, 4 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(cu.cuMemFreeAsync(of_pool, NULL));
	MUST(cu.cuMemFreeAsync(of_stream, NULL));
	MUST(cu.cuStreamSynchronize(NULL));
}

static uint64_t threshold(void)
{
	cuuint64_t bytes = 1;
	CUmemoryPool pool;

	MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
	return bytes;
}

static void set_threshold(uint64_t bytes)
{
	cuuint64_t value = bytes;
	CUmemoryPool pool;

	MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
}

static uint64_t kept(void)
{
	cuuint64_t bytes = 0;
	CUmemoryPool pool;
	CUdeviceptr block;

	MUST(cu.cuMemAllocAsync(&block, 8 * MIB, NULL));
	CHECK(!driver_is_heap(block));
	MUST(cu.cuMemFreeAsync(block, NULL));
	MUST(cu.cuStreamSynchronize(NULL));
	MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
	return bytes;
}

static void keeps_what_the_policy_says(void)
{
	CHECK(kept() >= 8 * MIB && threshold() == 16 * MIB);
	/* What the program says later holds, 0 too. */
	set_threshold(0);
	CHECK(kept() == 0 && threshold() == 0);
}

static void keeps_what_the_program_says(void)
{
	set_threshold(0);
	CHECK(kept() == 0 && threshold() == 0);
}

static void keeps_nothing(void)
{
	CHECK(kept() == 0 && threshold() == 0);
}

static void cannot_be_told(void)
{
	sim_fail("cuMemPoolSetAttribute", 1, CUDA_ERROR_NOT_SUPPORTED);
	CHECK(kept() == 0 && threshold() == 0 && !sim_fail_pending());
}

/* ---- what the heap keeps ---- */

PART_TEST(what_is_kept_is_not_free_where_others_have_taken_as_much,
	  assert_int_equal(under("device.budget: 32MiB\nhost.budget: 32MiB\nheap.release_threshold: 32MiB\n"
				 "spill.mode: static\n",
				 part),
			   0))
{
	CUmemAllocationProp prop = form_memory(0);
	CUmemGenericAllocationHandle handle;
	size_t before, after;

	MUST(cu.cuMemFree_v2(child_alloc(32 * MIB)));
	CHECK(sim_live().device_bytes == 32 * MIB);
	MUST(cu.cuMemGetInfo_v2(&before, NULL));
	MUST(cu.cuMemCreate(&handle, 4 * MIB, &prop, 0));
	MUST(cu.cuMemGetInfo_v2(&after, NULL));
	CHECK(before - after == 4 * MIB);
	MUST(cu.cuMemRelease(handle));
	MUST(cu.cuMemGetInfo_v2(&after, NULL));
	CHECK(after == before);
}

/* Returns what is left on the device, or on the host, of a block that was freed in the first second. */
static uint64_t left_at_the_start(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(32 * MIB);
	CHECK(driver_is_heap(block));
	MUST(cu.cuMemFree_v2(block));
	return sim_live().device_bytes + sim_live().host_bytes;
}

static void keeps_all(void)
{
	CHECK(left_at_the_start() == 32 * MIB);
}

static void keeps_a_quarter(void)
{
	CHECK(left_at_the_start() <= 16 * MIB);
}

/* Pinned memory is short, and where nobody looks once a second (control: no), what is idle would stay for good. */
TEST(device_memory_that_is_freed_before_the_first_tick_stays)
{
	assert_int_equal(under("device.budget: 64MiB\n", keeps_all), 0);
	assert_int_equal(under("device.budget: 64MiB\ncontrol: no\n", keeps_a_quarter), 0);
	assert_int_equal(under("host.budget: 64MiB\nrules:\n- {use: heap, place: host}\n", keeps_a_quarter), 0);
}

/* ---- where heap memory begins ---- */

#define BLOCK (4 * MIB)

static void uses_what_begins_on_the_host(void)
{
	int rounds = 0;

	CUdeviceptr stays = child_alloc(2 * MIB), moves = child_alloc(BLOCK);
	CHECK(sim_where(moves) == 'H' && sim_where(stays) == 'H');
	CHECK(sim_where(child_alloc(MIB)) == 'D');
	/* Used over and over it comes in, for there is room; the other is as good where it is. */
	for (; sim_where(moves) != 'D' && rounds < 20000; rounds++) {
		MUST(driver_fill(NULL, moves, (unsigned)rounds, BLOCK / 4));
		MUST(driver_fill(NULL, stays, (unsigned)rounds, 2 * MIB / 4));
		MUST(cu.cuStreamSynchronize(NULL));
		usleep(500);
	}
	CHECK(sim_where(moves) == 'D' && sim_where(stays) == 'H');
	CHECK(driver_holds(moves, (unsigned)rounds - 1, BLOCK / 4) &&
	      driver_holds(stays, (unsigned)rounds - 1, 2 * MIB / 4));
}

TEST(what_begins_on_the_host_comes_in_when_it_is_used)
{
	for (int fast = 0; fast < 2; fast++) {
		char text[512];

		snprintf(text, sizeof(text),
			 "spill.mode: %s\ndevice.budget: 32MiB\nhost.budget: 64MiB\nrules:\n"
			 "- {match: {size: == 4MiB}, use: heap, place: host}\n"
			 "- {match: {size: == 2MiB}, use: heap, place: host, movable: no}\n",
			 fast ? "fast" : "exact");
		assert_int_equal(under(text, uses_what_begins_on_the_host), 0);
	}
}

/* ---- how heap memory is divided ---- */

static void counts_pieces(void)
{
	child_alloc(2 * MIB); /* the first call makes the heap */
	unsigned long before = sim_calls("cuMemCreate");
	child_alloc(24 * MIB);
	CHECK(sim_calls("cuMemCreate") == before + (unsigned long)atoi(getenv("PIECES")));
}

TEST(a_chunk_is_as_large_as_the_policy_lets_it_be)
{
	setenv("PIECES", "12", 1);
	assert_int_equal(under("heap.chunk: 2MiB\n", counts_pieces), 0);
	setenv("PIECES", "3", 1);
	assert_int_equal(under("heap.chunk: 8MiB\n", counts_pieces), 0);
	setenv("PIECES", "1", 1);
	assert_int_equal(under("heap.chunk: 128MiB\n", counts_pieces), 0);
	setenv("PIECES", "6", 1);
	assert_int_equal(under("heap.chunk: auto\n", counts_pieces), 0);
}

TEST(the_default_pool_keeps_what_the_policy_says_until_the_program_does)
{
	assert_int_equal(under("async.release_threshold: 16MiB\n", keeps_what_the_policy_says), 0);
	assert_int_equal(under("async.release_threshold: 16MiB\n", keeps_what_the_program_says), 0);
	assert_int_equal(under("async.release_threshold: 16MiB\n", cannot_be_told), 0);
	assert_int_equal(under("async.release_threshold: auto\n", keeps_nothing), 0);
	assert_int_equal(under("async.release_threshold: 16MiB\nobserve: yes\n", keeps_nothing), 0);
}

/* ---- memory of the program's own kind ---- */

static unsigned word_of(CUdeviceptr address, CUpointer_attribute attribute)
{
	unsigned word = 77;

	MUST(cu.cuPointerGetAttribute(&word, attribute, address));
	return word;
}

PART_TEST(a_rule_puts_pages_of_the_system_in_the_place_of_managed_memory,
	  assert_int_equal(under("default: deny\nrules:\n"
				 "- {match: {api: managed, size: == 2MiB}, use: system, cap: 2MiB, fallback: driver}\n"
				 "- {match: {api: managed, size: == 4MiB}, use: deny}\n",
				 part),
			   0))
{
	CUdeviceptr managed, refused;

	unsigned long before = sim_calls("cuMemAllocManaged");
	CUdeviceptr pages = driver_managed(2 * MIB);
	CHECK(sim_calls("cuMemAllocManaged") == before);
	/* Both sides use it at one address, and it answers as managed memory does. */
	MUST(driver_fill(NULL, pages, 5, 2 * MIB / 4));
	MUST(cu.cuStreamSynchronize(NULL));
	CHECK(*(unsigned *)pages == 5 && ((unsigned *)pages)[2 * MIB / 4 - 1] == 5);
	CHECK(word_of(pages, CU_POINTER_ATTRIBUTE_IS_MANAGED) == 1);
	MUST(cuStreamAttachMemAsync(NULL, pages, 0, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuStreamAttachMemAsync(NULL, pages + 8, 0, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemPrefetchAsync(pages, 2 * MIB, 0, NULL));
	MUST(cuMemAdvise(pages, 2 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	/* Over the cap: the rule's fallback. */
	MUST(cu.cuMemAllocManaged(&managed, 2 * MIB, CU_MEM_ATTACH_HOST));
	CHECK(sim_calls("cuMemAllocManaged") == before + 1);
	MUST(cuStreamAttachMemAsync(NULL, managed, 0, CU_MEM_ATTACH_GLOBAL));
	MUST(cu.cuMemFree_v2(pages));
	MUST(cu.cuMemAllocManaged(&pages, 2 * MIB, CU_MEM_ATTACH_GLOBAL));
	CHECK(sim_calls("cuMemAllocManaged") == before + 1);
	CHECK(cu.cuMemAllocManaged(&refused, 4 * MIB, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_OUT_OF_MEMORY);
	/* No rule, though the default denies; and what is wrong is refused as the driver does. */
	MUST(cu.cuMemAllocManaged(&refused, MIB, CU_MEM_ATTACH_GLOBAL));
	CHECK(cu.cuMemAllocManaged(&refused, 2 * MIB, 77) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cu.cuMemAlloc_v2(&refused, MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(cu.cuMemFree_v2(pages));
	MUST(cu.cuMemFree_v2(managed));
}

static void gets_managed_memory(void)
{
	CUdeviceptr managed = driver_managed(2 * MIB);
	CHECK(sim_calls("cuMemAllocManaged") == 1);
	MUST(cu.cuMemFree_v2(managed));
}

TEST(managed_memory_is_the_drivers_where_no_other_can_be_or_none_is_asked_for)
{
	assert_int_equal(
	    under("rules:\n- {match: {api: managed}, use: system, system.register: no}\n", gets_managed_memory), 0);
	assert_int_equal(under("default: system\nrules:\n- {use: system}\n", gets_managed_memory), 0);
	assert_int_equal(under("observe: yes\nrules:\n- {match: {api: managed}, use: deny}\n", gets_managed_memory), 0);
}

PART_TEST(rules_bound_and_deny_pinned_memory,
	  assert_int_equal(under("rules:\n"
				 "- {match: {api: host, size: == 8MiB}, use: deny}\n"
				 "- {match: {api: host}, use: driver, cap: 2MiB}\n",
				 part),
			   0))
{
	void *block[2], *refused;

	MUST(cu.cuMemHostAlloc(&block[0], MIB, 0));
	MUST(cuMemAllocHost_v2(&block[1], MIB));
	CHECK(cu.cuMemHostAlloc(&refused, MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(cu.cuMemFreeHost(block[0]));
	/* What the driver refuses does not stay under the cap. */
	sim_fail("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cu.cuMemHostAlloc(&refused, MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY && !sim_fail_pending());
	MUST(cu.cuMemHostAlloc(&block[0], MIB, 0));
	CHECK(cu.cuMemHostAlloc(&refused, 8 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(cu.cuMemFreeHost(block[0]));
	MUST(cu.cuMemFreeHost(block[1]));
}

/* ---- blocks that grow ---- */

static int grow(CUdeviceptr block, size_t bytes)
{
	return spillway_grow((const void *)(uintptr_t)block, bytes);
}

static bool has_room(size_t bytes)
{
	CUdeviceptr block;
	CUresult result = cu.cuMemAlloc_v2(&block, bytes);

	if (result == CUDA_SUCCESS)
		MUST(cu.cuMemFree_v2(block));
	return result == CUDA_SUCCESS;
}

static void *grows_it_too(void *block)
{
	for (size_t mib = 5; mib <= 12; mib++)
		CHECK(grow((CUdeviceptr)(uintptr_t)block, mib * MIB) == 0);
	return NULL;
}

PART_TEST(a_block_grows_within_the_cap_of_its_rule,
	  assert_int_equal(under("rules:\n- {match: {api: malloc}, use: heap, cap: 16MiB}\n", part), 0))
{
	CUdeviceptr block = child_alloc(4 * MIB);
	CHECK(grow(block, 17 * MIB) == -ENOMEM && has_room(12 * MIB));
	CHECK(grow(block, 12 * MIB) == 0 && has_room(4 * MIB) && !has_room(5 * MIB));
	CHECK(grow(block, 8 * MIB) == 0 && !has_room(5 * MIB));
	/* What the heap refuses takes nothing. */
	sim_fail("cuMemMap", 1, CUDA_ERROR_UNKNOWN);
	CHECK(grow(block, 16 * MIB) < 0 && !sim_fail_pending() && has_room(4 * MIB));
	MUST(cu.cuMemFree_v2(block));
	CHECK(has_room(16 * MIB) && !has_room(17 * MIB));
	/* Two threads grow one block: its length counts once. */
	block = child_alloc(4 * MIB);
	pthread_t other = test_thread(grows_it_too, (void *)(uintptr_t)block);
	grows_it_too((void *)(uintptr_t)block);
	CHECK(pthread_join(other, NULL) == 0);
	CHECK(has_room(4 * MIB) && !has_room(5 * MIB));
	MUST(cu.cuMemFree_v2(block));
	CHECK(has_room(16 * MIB) && !has_room(17 * MIB) && sim_broken_rules() == 0);
}

static cuuint64_t pool_bytes(CUmemPool_attribute attribute)
{
	CUmemoryPool pool;
	cuuint64_t bytes;

	MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	MUST(cuMemPoolGetAttribute(pool, attribute, &bytes));
	return bytes;
}

PART_TEST(a_block_that_grows_counts_in_its_pool, assert_int_equal(under("async.use: heap\n", part), 0))
{
	CUdeviceptr block;

	MUST(cu.cuMemAllocAsync(&block, 5 * MIB, NULL));
	CHECK(driver_is_heap(block) && grow(block, 6 * MIB) == 0);
	CHECK(pool_bytes(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 6 * MIB);
	CHECK(pool_bytes(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 6 * MIB);
	sim_fail("cuMemMap", 1, CUDA_ERROR_UNKNOWN);
	CHECK(grow(block, 8 * MIB) < 0 && !sim_fail_pending());
	CHECK(pool_bytes(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 6 * MIB);
	MUST(cu.cuMemFreeAsync(block, NULL));
	MUST(cu.cuCtxSynchronize());
	CHECK(pool_bytes(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
}

/* ---- memory that the program maps ---- */

/* As PyTorch's expandable segments do it: one reservation, filled handle by handle, each mapped and opened. */
#define SEGMENTS 8
#define SEGMENT  (8 * MIB)

static void expands_a_segment(void)
{
	CUmemAllocationProp prop = form_memory(0);
	CUmemAccessDesc access = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle[SEGMENTS], refused;
	CUdeviceptr base;

	MUST(cu.cuMemAddressReserve(&base, SEGMENTS * SEGMENT, 0, 0, 0));
	for (unsigned i = 0; i < SEGMENTS; i++) {
		CUdeviceptr at = base + i * SEGMENT;

		MUST(cu.cuMemCreate(&handle[i], SEGMENT, &prop, 0));
		MUST(cu.cuMemMap(at, SEGMENT, 0, handle[i], 0));
		MUST(cu.cuMemSetAccess(at, SEGMENT, &access, 1));
		/* The budget is half of it. */
		CHECK(sim_where(at) == (i < SEGMENTS / 2 ? 'D' : 'H'));
		MUST(driver_fill(NULL, at, i, SEGMENT / 4));
	}
	CHECK(cu.cuMemCreate(&refused, 2 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	for (unsigned i = 0; i < SEGMENTS; i++)
		CHECK(driver_holds(base + i * SEGMENT, i, SEGMENT / 4));
	MUST(cu.cuMemUnmap(base, SEGMENTS * SEGMENT));
	for (unsigned i = 0; i < SEGMENTS; i++)
		MUST(cu.cuMemRelease(handle[i]));
	MUST(cu.cuMemAddressFree(base, SEGMENTS * SEGMENT));
}

static void is_denied_memory_of_its_own(void)
{
	CUmemAllocationProp prop = form_memory(0);
	CUmemGenericAllocationHandle handle;

	CHECK(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(cu.cuMemCreate(&handle, 4 * MIB, &prop, 0));
	/* On the host it is none of the rule's. */
	prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
	MUST(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0));
}

/* ---- ranks ---- */

static void is_rank_0(void)
{
	CHECK(!driver_is_heap(child_alloc(2 * MIB)) && driver_is_heap(child_alloc(4 * MIB)));
}

static void is_rank_1(void)
{
	CUdeviceptr refused;

	CHECK(driver_is_heap(child_alloc(2 * MIB)));
	CHECK(cu.cuMemAlloc_v2(&refused, 4 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void is_no_rank(void)
{
	CHECK(driver_is_heap(child_alloc(2 * MIB)) && driver_is_heap(child_alloc(4 * MIB)));
}

TEST(ranks_of_a_job_have_rules_of_their_own)
{
	static const char text[] = "rules:\n- {match: {rank: 0, size: < 3MiB}, use: driver}\n"
				   "- {match: {rank: '>= 1', size: == 4MiB}, use: deny}\n";
	static const char *const variables[] = {"RANK",     "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
						"PMI_RANK", "SLURM_PROCID",         "LOCAL_RANK"};
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		unsetenv(variables[i]);
	assert_int_equal(under(text, is_no_rank), 0);
	/* As a program does that starts its ranks itself. */
	setenv("BECOMES", "1", 1);
	assert_int_equal(under(text, is_rank_1), 0);
	unsetenv("BECOMES");
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
		setenv(variables[i], "0", 1);
		assert_int_equal(under(text, is_rank_0), 0);
		setenv(variables[i], "1", 1);
		assert_int_equal(under(text, is_rank_1), 0);
		unsetenv(variables[i]);
	}
}

TEST(a_program_with_memory_management_of_its_own_has_more_than_the_device_by_rule)
{
	assert_int_equal(under("device.budget: 32MiB\nhost.budget: 32MiB\nrules:\n"
			       "- {match: {api: vmm, library: '*rule_test'}, use: driver, vmm.spill: move}\n",
			       expands_a_segment),
			 0);
	assert_int_equal(under("device.budget: 32MiB\nhost.budget: 32MiB\nvmm.spill: move\n", expands_a_segment), 0);
	assert_int_equal(
	    under("rules:\n- {match: {api: vmm, size: == 2MiB}, use: deny}\n", is_denied_memory_of_its_own), 0);
}
