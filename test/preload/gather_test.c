// SPDX-License-Identifier: Apache-2.0
/*
 * Arrays of pointers that are copied from the host, and kernels that follow them: what they reach is named by no
 * parameter, and is there all the same; in `fast` nothing is stopped.
 */
#include "test/preload/scene.h"
#include "test/test.h"

enum { ROUNDS = 80, POINTERS = 2, LANE = 1, SLOTS = 4 };
/* Room of an array: the pointers may begin anywhere in it. */
#define ROOM 64

static CUfunction gather;

static void gather_body(const struct sim_launch *launch, void **args)
{
	CUdeviceptr *table = *(CUdeviceptr **)args[0];

	for (unsigned i = 0; i < POINTERS; i++) {
		uint32_t *at = sim_pointer(table[i]);

		for (uint32_t k = 0; k < SCENE_BYTES / 4 / SCENE_STRIDE; k++)
			at[(size_t)k * SCENE_STRIDE + LANE]++;
	}
}

SIM_MODULE(image, SIM_KERNEL("gather", gather_body, 8));

/* An array goes over as a run of bytes, in a list of copies, or as rows of a box. */
static void send_plain(CUdeviceptr at, CUdeviceptr *table, CUstream stream)
{
	MUST(cu.cuMemcpyHtoDAsync_v2(at, table, ROOM * sizeof(*table), stream));
}

static void send_listed(CUdeviceptr at, CUdeviceptr *table, CUstream stream)
{
	CUdeviceptr from = (CUdeviceptr)(uintptr_t)table;
	size_t bytes = ROOM * sizeof(*table), first = 0;
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

	MUST(cuMemcpyBatchAsync_v2(&at, &from, &bytes, 1, &attributes, &first, 1, stream));
}

static void send_box(CUdeviceptr at, CUdeviceptr *table, CUstream stream)
{
	CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			     .srcHost = table,
			     .srcPitch = ROOM / 4 * sizeof(*table),
			     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstDevice = at,
			     .dstPitch = ROOM / 4 * sizeof(*table),
			     .WidthInBytes = ROOM / 4 * sizeof(*table),
			     .Height = 4};

	MUST(cuMemcpy2DAsync_v2(&box, stream));
}

static void follow(CUdeviceptr (*alloc)(size_t bytes),
		   void (*send)(CUdeviceptr at, CUdeviceptr *table, CUstream stream))
{
	static CUdeviceptr pageable[SLOTS][ROOM];
	CUdeviceptr *pinned, tables;
	struct scene scene;
	CUstream stream;

	scene_open(&scene, 0);
	gather = driver_function(&image, "gather");
	MUST(cu.cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	MUST(cu.cuMemHostAlloc((void **)&pinned, sizeof(pageable), 0));
	tables = alloc(sizeof(pageable));
	CHECK(scene_warm_up(&scene));
	for (unsigned round = 0; round < (send == send_plain ? ROUNDS : ROUNDS / 2); round++) {
		for (unsigned slot = 0; slot < SLOTS; slot++) {
			CUdeviceptr *table = slot % 2 ? pinned + (size_t)slot * ROOM : pageable[slot];
			CUdeviceptr at = tables + (size_t)slot * ROOM * sizeof(*table);
			unsigned first = (round + slot) % (ROOM - POINTERS);
			CUdeviceptr begin = at + first * sizeof(*table);

			/* What lies beside the pointers is none. */
			for (unsigned i = 0; i < ROOM; i++)
				table[i] = i;
			for (unsigned i = 0; i < POINTERS; i++) {
				unsigned block = (round * 5 + slot * 2 + i) % SCENE_BLOCKS;

				table[first + i] = scene.block[block];
				scene.count[block][LANE]++;
			}
			send(at, table, stream);
			void *args[] = {&begin};
			MUST(cu.cuLaunchKernel(gather, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
		}
		MUST(scene_round(&scene, stream, 0));
		MUST(cu.cuStreamSynchronize(stream));
	}
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
}

static CUdeviceptr alloc_elsewhere(size_t bytes)
{
	CUdeviceptr address = 0;

	return cu.cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS ? address : 0;
}

CHILD_TEST(arrays, SCENE_SETTINGS())
{
	follow(child_alloc, send_plain);
}

CHILD_TEST(arrays_in_lists, SCENE_SETTINGS())
{
	follow(child_alloc, send_listed);
}

CHILD_TEST(arrays_in_rows, SCENE_SETTINGS())
{
	follow(child_alloc, send_box);
}

/* Libraries take theirs from the driver's pools, which the heap knows nothing of. */
CHILD_TEST(arrays_elsewhere, SCENE_SETTINGS())
{
	follow(alloc_elsewhere, send_plain);
}

/* What cannot be read is the driver's to refuse. */
CHILD_TEST(no_array, SCENE_SETTINGS())
{
	struct scene scene;

	scene_open_warm(&scene);
	CUdeviceptr small = child_alloc(4096);
	CHECK(cu.cuMemcpyHtoD_v2(small, NULL, 64) == CUDA_ERROR_INVALID_VALUE);
	MUST(scene_round(&scene, NULL, 0));
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
}

START(scene_size = SCENE_SMALL)
