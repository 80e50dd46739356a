// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that must stay where it is: by rule, because it has left the process, or because a tensor map or a texture
 * knows its address. On a job that needs twice its budget and whose memory moves (scene.h); each part in a process of
 * its own, in each mode. What does stay is asked by suspending: everything else leaves the device then.
 */
#include "shim/spillway.h"
#include "test/preload/scene.h"
#include "test/test.h"

#define FIXED      (3 * MIB) /* by pin.yaml; takes 4 MiB */
#define FIXED_TAKE (4 * MIB)
#define FIXED_LONG (10 * MIB)
#define SCENE_TAKE (6 * MIB)

static struct scene scene;

static bool is_fast(void)
{
	return !strcmp(scene_mode(), "fast");
}

/* The places of all 2 MiB of a block, as text; '?' is on its way. */
static const char *places_of(CUdeviceptr block, size_t bytes, char *text)
{
	unsigned n = 0;

	for (size_t at = 0; at < bytes; at += 2 * MIB) {
		char where = sim_where(block + at);

		text[n++] = where ? where : '?';
	}
	text[n] = 0;
	return text;
}

static bool is_at(CUdeviceptr block, size_t bytes, const char *expected)
{
	char text[32];

	if (!strcmp(places_of(block, bytes, text), expected))
		return true;
	printf("is %s, was %s\n", text, expected);
	return false;
}

static void rounds(int n)
{
	for (; n; n--) {
		MUST(scene_round(&scene, NULL, 0));
		MUST(cu.cuStreamSynchronize(NULL));
	}
}

/* Device memory left when all that can leave has left; 0 where nothing moves. */
static size_t stays(void)
{
	if (!scene_moves()) {
		CHECK(spillway_suspend() == -ENOTSUP);
		return 0;
	}
	child_suspend();
	size_t bytes = sim_live().device_bytes;
	CHECK(spillway_resume() == 0);
	return bytes;
}

static void end(void)
{
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
}

/* ---- by rule ---- */

static unsigned native_rdma(CUdeviceptr block)
{
	__typeof__(&cuPointerGetAttribute) native = (__typeof__(native))driver_native("cuPointerGetAttribute");
	unsigned capable = 77;

	MUST(native(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, block));
	return capable;
}

static void fixed_memory_that_is_exported(void)
{
	CUmemGenericAllocationHandle handle, again;
	unsigned long long types = 77;
	unsigned capable = 77;
	int file = -1;

	driver_start(0);
	CUdeviceptr fixed = child_alloc(FIXED), movable = child_alloc(FIXED_TAKE);
	MUST(cu.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, fixed));
	MUST(cu.cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, fixed));
	CHECK(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && capable == 1);
	MUST(cu.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, movable));
	MUST(cu.cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, movable));
	CHECK(types == CU_MEM_HANDLE_TYPE_NONE && capable == 0);
	CHECK(cu.cuMemRetainAllocationHandle(&handle, (void *)movable) == CUDA_ERROR_INVALID_VALUE);
	MUST(cu.cuMemRetainAllocationHandle(&handle, (void *)(fixed + MIB)));
	MUST(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(file >= 0 && close(file) == 0);
	/* While others have it, the memory of a freed block is not used for another. */
	MUST(cu.cuMemFree_v2(fixed));
	fixed = child_alloc(FIXED);
	MUST(cu.cuMemRetainAllocationHandle(&again, (void *)fixed));
	CHECK(again != handle);
	MUST(cu.cuMemRelease(handle));
	MUST(cu.cuMemRelease(again));
	MUST(cu.cuMemFree_v2(fixed));
	CHECK(sim_live().device_bytes == FIXED_TAKE);
}

/* Whoever has a handle takes it for all of the block. Pieces that move are of 4 MiB here. */
static void fixed_memory_that_is_exported_whole(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr base, window;
	size_t range;

	driver_start(0);
	CUdeviceptr whole = child_alloc(FIXED_LONG), small = child_alloc(1000);
	CHECK(child_on_device(whole, FIXED_LONG));
	CHECK(cu.cuMemRetainAllocationHandle(&handle, (void *)small) == CUDA_ERROR_INVALID_VALUE);
	MUST(cu.cuMemGetAddressRange_v2(&base, &range, whole + MIB));
	MUST(cu.cuMemRetainAllocationHandle(&handle, (void *)whole));
	MUST(cuMemAddressReserve(&window, range, 0, 0, 0));
	MUST(cuMemMap(window, range, 0, handle, 0));
	MUST(cuMemUnmap(window, range));
	MUST(cu.cuMemRelease(handle));
	/* What is left is not in one place. */
	CUdeviceptr rest = child_alloc(FIXED_LONG);
	CHECK(!child_on_device(rest, FIXED_LONG));
	CHECK(cu.cuMemRetainAllocationHandle(&handle, (void *)rest) == CUDA_ERROR_INVALID_VALUE);
}

static void fixed_memory_that_the_device_cannot_make_so(void)
{
	unsigned long long types = 77;

	driver_start(0);
	sim_fail("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
	CUdeviceptr fixed = child_alloc(FIXED);
	CHECK(!sim_fail_pending() && child_on_device(fixed, FIXED));
	MUST(cu.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, fixed));
	CHECK(types == CU_MEM_HANDLE_TYPE_NONE);
	MUST(cu.cuMemFree_v2(fixed));
}

/* ---- ranges that leave the process ---- */

static CUresult export_range(CUdeviceptr block)
{
	int file = -1;
	CUresult result =
	    cuMemGetHandleForAddressRange(&file, block, SCENE_BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	if (result == CUDA_SUCCESS)
		CHECK(file >= 0 && close(file) == 0);
	return result;
}

static CUresult bind_range(CUdeviceptr block)
{
	return cuLogicalEndpointBindAddr(1, 0, 0, (void *)block, SCENE_BYTES, 0);
}

static const struct {
	const char *call;
	CUresult (*give)(CUdeviceptr block);
} ways_out[] = {{"cuMemGetHandleForAddressRange", export_range}, {"cuLogicalEndpointBindAddr", bind_range}};
static unsigned out;

static void range_that_the_driver_refuses(void)
{
	scene_open(&scene, 0);
	sim_fail(ways_out[out].call, 1, CUDA_ERROR_NOT_SUPPORTED);
	CHECK(ways_out[out].give(scene.block[0]) == CUDA_ERROR_NOT_SUPPORTED);
	CHECK(stays() == 0);
	end();
}

static void exported_range(void)
{
	scene_open(&scene, 0);
	CHECK(ways_out[out].give(scene.block[0]) == CUDA_SUCCESS);
	CHECK(child_on_device(scene.block[0], SCENE_BYTES));
	CHECK(scene_warm_up(&scene));
	for (int i = 0; i < 200; i++) {
		rounds(1);
		CHECK(child_on_device(scene.block[0], SCENE_BYTES));
	}
	if (scene_moves())
		CHECK(stays() == SCENE_TAKE);
	end();
	/* Others may still write there: the driver has it back, and the next block has other memory. */
	size_t before = sim_live().device_bytes + sim_live().host_bytes;
	MUST(cu.cuMemFree_v2(scene.block[0]));
	CHECK(sim_live().device_bytes + sim_live().host_bytes <= before - SCENE_TAKE);
	CHECK(stays() == 0);
}

/* ---- tensor maps and textures ---- */

static void encode(CUdeviceptr block)
{
	CUtensorMap map;
	cuuint64_t dim[1] = {1024}, strides[1] = {0};
	cuuint32_t box[1] = {64}, step[1] = {1};

	MUST(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, (void *)(block + 3 * MIB), dim, strides,
				    box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
				    CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

static void make_texture(CUdeviceptr block, bool pitched)
{
	CUDA_RESOURCE_DESC resource = {.resType = pitched ? CU_RESOURCE_TYPE_PITCH2D : CU_RESOURCE_TYPE_LINEAR};
	CUDA_TEXTURE_DESC texture = {0};
	CUtexObject object;

	if (pitched)
		resource.res.pitch2D.devPtr = block;
	else
		resource.res.linear.devPtr = block;
	MUST(cuTexObjectCreate(&object, &resource, &texture, NULL));
}

static void by_tensor_map(CUdeviceptr block)
{
	encode(block);
}

static void by_new_address(CUdeviceptr block)
{
	CUtensorMap map;

	MUST(cuTensorMapReplaceAddress(&map, (void *)block));
}

static void by_linear_texture(CUdeviceptr block)
{
	make_texture(block, false);
}

static void by_pitched_texture(CUdeviceptr block)
{
	make_texture(block, true);
}

static void by_texture_reference(CUdeviceptr block)
{
	MUST(cuTexRefSetAddress_v2(NULL, (CUtexref)&scene, block, SCENE_BYTES));
}

static void (*pin)(CUdeviceptr block);

static void addresses_kept_elsewhere(void)
{
	char was[32];

	scene_open(&scene, 0);
	CHECK(child_on_device(scene.block[0], SCENE_BYTES));
	pin(scene.block[0]);
	CHECK(stays() == (is_fast() ? SCENE_TAKE : 0));
	CHECK(scene_warm_up(&scene));
	if (is_fast())
		CHECK(child_on_device(scene.block[0], SCENE_BYTES));
	/* Wherever they are by now, and on whatever way. */
	pin(scene.block[3]);
	places_of(scene.block[3], SCENE_BYTES, was);
	for (int i = 0; i < 200; i++) {
		rounds(1);
		CHECK(!is_fast() || is_at(scene.block[3], SCENE_BYTES, was));
	}
	MUST(cu.cuMemFree_v2(scene.block[0]));
	MUST(cu.cuMemFree_v2(scene.block[3]));
	CHECK(stays() == 0);
}

/* A page of some block that is not mapped: it is on its way. False: none was seen for a while. */
static bool find_moving(unsigned *ret_block)
{
	for (int i = 0; i < 20000; i++) {
		MUST(scene_round(&scene, NULL, 0));
		for (unsigned b = 0; b < SCENE_BLOCKS; b++) {
			char text[32];

			if (strchr(places_of(scene.block[b], SCENE_BYTES, text), '?')) {
				*ret_block = b;
				return true;
			}
		}
		if (i % 16 == 0)
			MUST(cu.cuStreamSynchronize(NULL));
	}
	return false;
}

/* The call returns when all of the block is mapped, to stay. In `fast` alone anything is ever not mapped. */
static void blocks_pinned_on_their_way(void)
{
	unsigned block;
	char was[32];

	scene_open_warm(&scene);
	/* The more stays, the less is there that moves. */
	for (int i = 0; is_fast() && i < 3; i++) {
		if (!find_moving(&block)) {
			CHECK(i > 0);
			break;
		}
		pin(scene.block[block]);
		CHECK(!strchr(places_of(scene.block[block], SCENE_BYTES, was), '?'));
		rounds(100);
		CHECK(is_at(scene.block[block], SCENE_BYTES, was));
	}
	end();
}

/* The GPU does nothing any more: who asks is not to hang with it. */
static void blocks_pinned_while_the_gpu_stands_still(void)
{
	unsigned block;

	scene_open_warm(&scene);
	if (is_fast()) {
		CHECK(find_moving(&block));
		sim_hold();
		double begin = (double)test_now() / 1e9;
		pin(scene.block[block]);
		CHECK(export_range(scene.block[block]) != CUDA_ERROR_UNKNOWN);
		CHECK((double)test_now() / 1e9 - begin < 20);
		sim_release();
	}
	rounds(10);
	end();
}

/* ---- the parts ---- */

#define PINNED(...) SCENE_SETTINGS("SPILLWAY_POLICY=" PIN_POLICY, ##__VA_ARGS__)

CHILD_TEST(what_a_rule_says_is_not_movable_stays_where_it_was_placed, PINNED())
{
	char was[32];

	scene_load(&scene, 0);
	CUdeviceptr first = child_alloc(FIXED);
	CUdeviceptr small = child_alloc(1000);
	scene_allocate(&scene);
	CUdeviceptr late = child_alloc(FIXED);
	CHECK(child_on_device(first, FIXED) && child_on_device(small, 1000));
	/* The budget is full: the rule does not make room for it, it lies where static puts it. */
	places_of(late, FIXED, was);
	CHECK(!strcmp(was, "HH"));
	MUST(driver_fill(NULL, first, 0x1111, FIXED / 4));
	MUST(driver_fill(NULL, small, 0x2222, 250));
	MUST(driver_fill(NULL, late, 0x3333, FIXED / 4));
	CHECK(scene_warm_up(&scene));
	for (int i = 0; i < 200; i++) {
		rounds(1);
		/* Used again and again, it would be brought in. */
		MUST(driver_fill(NULL, late, 0x3333, FIXED / 4));
		CHECK(child_on_device(first, FIXED) && child_on_device(small, 1000) && is_at(late, FIXED, "HH"));
	}
	if (scene_moves())
		CHECK(stays() == FIXED_TAKE + 2 * MIB);
	CHECK(child_on_device(first, FIXED) && is_at(late, FIXED, "HH"));
	/* What can has come back, and leaves, as room for somebody else, who has been refused. */
	CHECK(scene_warm_up(&scene));
	CUDA_ARRAY_DESCRIPTOR description = {.Width = 4, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUarray array;
	for (int i = 0; i < 3; i++) {
		sim_fail("cuArrayCreate_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
		CUresult result = cuArrayCreate_v2(&array, &description);
		CHECK(i > 0 || (result == CUDA_SUCCESS) == scene_moves());
		if (result == CUDA_SUCCESS)
			MUST(cuArrayDestroy(array));
	}
	CHECK(child_on_device(first, FIXED) && child_on_device(small, 1000) && is_at(late, FIXED, "HH"));
	rounds(10);
	CHECK(driver_holds(first, 0x1111, FIXED / 4) && driver_holds(small, 0x2222, 250) &&
	      driver_holds(late, 0x3333, FIXED / 4));
	MUST(cu.cuMemFree_v2(first));
	MUST(cu.cuMemFree_v2(small));
	MUST(cu.cuMemFree_v2(late));
	if (scene_moves())
		CHECK(stays() == 0);
	end();
}

/* Freed memory of the one kind is not taken for the other, whole blocks, chunks and slots alike. */
CHILD_TEST(fixed_and_movable_memory_never_mix, PINNED())
{
	CUdeviceptr fixed, movable, small[2];

	driver_start(0);
	for (int i = 0; i < 4; i++) {
		fixed = child_alloc(FIXED);
		CHECK(native_rdma(fixed) == 1);
		MUST(cu.cuMemFree_v2(fixed));
		movable = child_alloc(FIXED_TAKE);
		CHECK(native_rdma(movable) == 0);
		MUST(cu.cuMemFree_v2(movable));
		small[0] = child_alloc(1000);
		small[1] = child_alloc(1001);
		CHECK(small[0] / (2 * MIB) != small[1] / (2 * MIB));
		CHECK(native_rdma(small[0]) == 1 && native_rdma(small[1]) == 0);
		MUST(cu.cuMemFree_v2(small[i % 2]));
		MUST(cu.cuMemFree_v2(small[!(i % 2)]));
	}
	/* What is kept of the one makes room for the other. */
	movable = child_alloc(SCENE_BUDGET);
	CHECK(child_on_device(movable, SCENE_BUDGET));
	MUST(cu.cuMemFree_v2(movable));
	fixed = child_alloc(FIXED);
	CHECK(child_on_device(fixed, FIXED) && native_rdma(fixed) == 1);
}

TEST(fixed_memory_can_be_registered_and_exported_where_the_device_can)
{
	assert_int_equal(child_run(PINNED(), fixed_memory_that_is_exported), 0);
	assert_int_equal(child_run(PINNED(), fixed_memory_that_is_exported_whole), 0);
	assert_int_equal(child_run(PINNED(), fixed_memory_that_the_device_cannot_make_so), 0);
}

TEST(a_range_that_left_the_process_stays_and_its_memory_is_not_used_again)
{
	for (out = 0; out < sizeof(ways_out) / sizeof(ways_out[0]); out++) {
		assert_int_equal(child_run(SCENE_SETTINGS(), range_that_the_driver_refuses), 0);
		assert_int_equal(child_run(SCENE_SETTINGS(), exported_range), 0);
	}
}

TEST(what_maps_and_textures_know_stays_in_fast)
{
	static void (*const pins[])(CUdeviceptr) = {by_tensor_map, by_new_address, by_linear_texture,
						    by_pitched_texture, by_texture_reference};

	for (unsigned i = 0; i < sizeof(pins) / sizeof(pins[0]); i++) {
		pin = pins[i];
		assert_int_equal(child_run(SCENE_SETTINGS(), addresses_kept_elsewhere), 0);
	}
}

TEST(a_pin_waits_for_what_is_on_its_way_and_not_for_ever)
{
	pin = by_tensor_map;
	assert_int_equal(child_run(SCENE_SETTINGS("SIM_PIECE_US=50"), blocks_pinned_on_their_way), 0);
	assert_int_equal(child_run(SCENE_SETTINGS("SIM_PIECE_US=50"), blocks_pinned_while_the_gpu_stands_still), 0);
}
