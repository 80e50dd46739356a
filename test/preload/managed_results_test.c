// SPDX-License-Identifier: Apache-2.0
/*
 * managed_results_test.c: calls whose results the program wants in managed memory that the GPU has (serve/managed.h), in all
 * modes. Each part in a process of its own.
 */
#include "test/forms.h"
#include "test/preload/managed_heap_help.h"

#include <sys/wait.h>

/* A structure, as classes of managed memory are. */
static struct members {
	uint32_t uses; /* by the GPU */
	CUstream stream;
	CUevent event[2];
	CUdeviceptr block, managed;
	size_t free, total;
	uint64_t attribute;
	void *host;
	CUmemoryPool pool;
	CUtexObject texture;
	float ms;
} * members;

static CUfunction bump;
static uint32_t n_uses;

/* The GPU has them from now on. */
static void gpu_uses(CUstream stream)
{
	launch(bump, stream, (CUdeviceptr)(uintptr_t)members);
	n_uses++;
}

static void begin(void)
{
	driver_start(0);
	bump = driver_function(&bump_module, "bump");
	members = (void *)words(used_by_gpu(MIB, 0));
}

static void all_right(void)
{
	CHECK(members->uses == n_uses);
	end_of((CUdeviceptr)(uintptr_t)members);
}

PART_TEST(the_library_returns_results, assert_int_equal(run(part), 0))
{
	begin();
	CUdeviceptr a = (CUdeviceptr)(uintptr_t)members;

	for (int i = 0; i < 3; i++) {
		MUST(cu.cuMemAlloc_v2(&members->block, MIB));
		gpu_uses(NULL);
		MUST(cu.cuMemAllocManaged(&members->managed, MIB, CU_MEM_ATTACH_GLOBAL));
		gpu_uses(NULL);
		MUST(cu.cuMemGetInfo_v2(&members->free, &members->total));
		gpu_uses(NULL);
		MUST(cu.cuPointerGetAttribute(&members->attribute, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, a));
		gpu_uses(NULL);
		CHECK(members->attribute == a && members->free && members->total);
		MUST(cu.cuMemFree_v2(members->block));
		MUST(cu.cuMemFree_v2(members->managed));
	}
	all_right();
}

/* The driver writes them itself, and holds its locks meanwhile. */
PART_TEST(the_driver_returns_results, assert_int_equal(run(part), 0))
{
	CUmemPoolProps props = form_pool(0, 0);
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
	CUDA_TEXTURE_DESC description = {0};

	begin();
	MUST(cu.cuStreamCreate(&members->stream, CU_STREAM_NON_BLOCKING));
	CUstream stream = members->stream;
	for (int i = 0; i < 2; i++) {
		gpu_uses(stream);
		MUST(cu.cuEventCreate(&members->event[i], CU_EVENT_DEFAULT));
		MUST(cu.cuEventRecord(members->event[i], stream));
	}
	MUST(cu.cuStreamSynchronize(stream));
	CUevent first = members->event[0], last = members->event[1];
	members->ms = -1;
	gpu_uses(NULL);
	MUST(cu.cuEventElapsedTime(&members->ms, first, last));
	gpu_uses(NULL);
	MUST(cu.cuMemAllocAsync(&members->block, MIB, NULL));
	gpu_uses(NULL);
	MUST(cu.cuMemHostAlloc(&members->host, MIB, 0));
	gpu_uses(NULL);
	MUST(cuMemPoolCreate(&members->pool, &props));
	CHECK(cuMemPoolCreate(NULL, &props) == CUDA_ERROR_INVALID_VALUE);
	resource.res.linear.devPtr = members->block;
	gpu_uses(NULL);
	MUST(cuTexObjectCreate(&members->texture, &resource, &description, NULL));
	CHECK(members->ms >= 0 && members->texture);
	MUST(cuTexObjectDestroy(members->texture));
	MUST(cuMemPoolDestroy(members->pool));
	MUST(cu.cuMemFreeAsync(members->block, NULL));
	MUST(cu.cuMemFreeHost(members->host));
	MUST(cu.cuStreamDestroy_v2(members->stream));
	all_right();
}

/* A call that fails touches nothing: the GPU waits for what this thread does after it. */
PART_TEST(a_call_that_fails_does_not_touch_them, assert_int_equal(run(part), 0))
{
	CUevent event[2];

	begin();
	CUstream held = child_stream();
	members->ms = 4;
	gpu_uses(NULL);
	for (int i = 0; i < 2; i++)
		MUST(cu.cuEventCreate(&event[i], CU_EVENT_DEFAULT));
	unsigned *word = child_hold(held);
	for (int i = 0; i < 2; i++)
		MUST(cu.cuEventRecord(event[i], held));
	gpu_uses(held);
	CHECK(cu.cuEventElapsedTime(&members->ms, event[0], event[1]) == CUDA_ERROR_NOT_READY);
	CHECK(cu.cuStreamCreate(&members->stream, ~0u) == CUDA_ERROR_INVALID_VALUE);
	child_release(word);
	MUST(cu.cuStreamSynchronize(held));
	CHECK(members->ms == 4 && !members->stream);
	MUST(cu.cuEventElapsedTime(&members->ms, event[0], event[1]));
	CHECK(members->ms != 4);
	all_right();
}

/* In a child of a fork, which has no access, it fails as it does elsewhere. */
PART_TEST(a_call_fails_in_a_child_of_a_fork, assert_int_equal(run(part), 0))
{
	int status;

	begin();
	pid_t child = fork();
	if (!child)
		_exit(cu.cuStreamCreate(&members->stream, 0) != CUDA_SUCCESS ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	gpu_uses(NULL);
	all_right();
}

EACH_TEST(folder_make, folder_remove)
