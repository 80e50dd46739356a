/*
 * What a program that knows Spillway asks of its memory (spillway.h): on a job that needs twice its budget and whose
 * memory moves (scene.h); each part in a process of its own, in each mode.
 */
#include "shim/spillway.h"
#include "test/preload/scene.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SCENE_TAKE (6 * MIB)
#define LARGE      (4 * MIB)

static struct scene scene;

static const void *pointer(CUdeviceptr address)
{
	return (const void *)(uintptr_t)address;
}

static struct spillway_place place_of(CUdeviceptr address)
{
	struct spillway_place place;

	CHECK(spillway_where(pointer(address), &place) == 0);
	return place;
}

static void rounds(int n)
{
	for (; n; n--) {
		MUST(scene_round(&scene, NULL, 0));
		MUST(cu.cuStreamSynchronize(NULL));
	}
}

static int end(void)
{
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	CHECK(sim_broken_rules() == 0);
	return 0;
}

/* Round after round until it is so; there is no telling when the mover comes to it. */
static bool comes_to(bool (*is_so)(CUdeviceptr block), CUdeviceptr block)
{
	for (int i = 0; i < 300; i++) {
		if (is_so(block))
			return true;
		rounds(1);
	}
	return false;
}

static bool is_out(CUdeviceptr block)
{
	return place_of(block).bytes_on_device == 0;
}

/* Everything that can leaves the device; it comes back as it is used. */
static void empty_device(void)
{
	int status = -EBUSY;

	/* A safe point may not come in time where many programs share a processor. */
	for (int i = 0; i < 50 && status == -EBUSY; i++)
		status = spillway_suspend();
	CHECK(status == 0 && spillway_resume() == 0);
}

/* Where moving does not pay just now, nothing leaves by itself. */
static void see_out(CUdeviceptr block)
{
	if (!comes_to(is_out, block))
		empty_device();
	CHECK(is_out(block));
}

/* ---- budgets ---- */

static int budgets(void)
{
	uint64_t device = 0, host = 0, device_used = 1, host_used = 1;

	driver_start(0);
	CHECK(spillway_budget(0, &device, &host, &device_used, &host_used) == 0);
	CHECK(device == SCENE_BUDGET && host == SCENE_HOST && device_used == 0 && host_used == 0);
	CUdeviceptr block = child_alloc(LARGE), more = child_alloc(SCENE_BUDGET);
	CHECK(spillway_budget(0, NULL, NULL, &device_used, &host_used) == 0);
	CHECK(device_used + host_used == LARGE + SCENE_BUDGET && host_used && device_used <= SCENE_BUDGET);
	MUST(cu.cuMemFree_v2(block));
	MUST(cu.cuMemFree_v2(more));
	CHECK(spillway_budget(0, &device, NULL, &device_used, &host_used) == 0);
	CHECK(device == SCENE_BUDGET && device_used == 0 && host_used == 0);
	errno = 77;
	CHECK(spillway_budget(7, &device, NULL, NULL, NULL) == -ENODEV && errno == 77);
	CHECK(spillway_budget(-1, NULL, NULL, NULL, NULL) == -ENODEV);
	return 0;
}

/* ---- where ---- */

static int places(void)
{
	struct spillway_place place;
	int here = 0;
	void *pinned;
	CUdeviceptr managed, pool;

	driver_start(0);
	CUdeviceptr block = child_alloc(3 * MIB), small = child_alloc(1000), large = child_alloc(SCENE_BUDGET);
	place = place_of(block + 12345);
	CHECK(place.backend == SPILLWAY_HEAP && place.bytes == 3 * MIB && place.bytes_on_device == 3 * MIB &&
	      place.bytes_on_host == 0 && place.movable == scene_moves());
	place = place_of(small + 999);
	CHECK(place.backend == SPILLWAY_HEAP && place.bytes == 1000 && place.bytes_on_device == 1000);
	place = place_of(large);
	CHECK(place.bytes_on_device + place.bytes_on_host == SCENE_BUDGET && place.bytes_on_host >= 6 * MIB);
	MUST(cu.cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
	MUST(cu.cuMemAllocAsync(&pool, MIB, NULL));
	MUST(cu.cuMemHostAlloc(&pinned, MIB, 0));
	place = place_of(managed + 10);
	CHECK(place.backend == SPILLWAY_MANAGED && place.bytes == MIB && !place.bytes_on_device && !place.movable);
	CHECK(place_of(pool).backend == SPILLWAY_POOL && place_of(pool).bytes_on_device == MIB);
	place = place_of((CUdeviceptr)(uintptr_t)pinned + 5);
	CHECK(place.backend == SPILLWAY_PINNED && place.bytes_on_host == MIB);
	CHECK(spillway_where(&here, &place) == -ENOENT && spillway_where(NULL, &place) == -ENOENT);
	CHECK(spillway_where(pointer(small + 1000), &place) == -ENOENT);
	CHECK(spillway_where(pointer(block), NULL) == -EINVAL);
	CHECK(spillway_pin(pointer(managed)) == -ENOTSUP && spillway_grow(&here, 5) == -ENOENT);
	MUST(cu.cuMemFree_v2(block));
	CHECK(spillway_where(pointer(block), &place) == -ENOENT && spillway_pin(pointer(block)) == -ENOENT);
	return 0;
}

static int switched_off(void)
{
	struct spillway_place place;

	driver_start(0);
	CUdeviceptr block = child_alloc(LARGE);
	CHECK(spillway_budget(0, NULL, NULL, NULL, NULL) == -ENOTSUP);
	CHECK(spillway_where(pointer(block), &place) == -ENOTSUP && spillway_pin(pointer(block)) == -ENOTSUP);
	CHECK(spillway_grow(pointer(block), 2 * LARGE) == -ENOTSUP && spillway_discard(pointer(block), 1) == -ENOTSUP);
	CHECK(spillway_checkpoint_stats() == -ENOTSUP);
	return 0;
}

/* ---- pinning ---- */

static bool stays(CUdeviceptr block)
{
	struct spillway_place before = place_of(block);

	for (int i = 0; i < 60; i++) {
		rounds(1);
		struct spillway_place now = place_of(block);
		if (now.bytes_on_device != before.bytes_on_device || now.movable)
			return false;
	}
	return true;
}

static int pins(void)
{
	scene_open(&scene, 0);
	scene_warm_up(&scene);
	for (unsigned i = 0; i < 2; i++)
		CHECK(spillway_pin(pointer(scene.block[i] + 77)) == 0);
	CHECK(spillway_pin(pointer(scene.block[0])) == 0);
	CHECK(stays(scene.block[0]) && stays(scene.block[1]));
	uint64_t on_device = place_of(scene.block[0]).bytes_on_device;
	if (scene_moves()) {
		empty_device();
		CHECK(place_of(scene.block[0]).bytes_on_device == on_device && is_out(scene.block[2]));
	}
	CHECK(spillway_unpin(pointer(scene.block[0])) == 0 && stays(scene.block[0]));
	CHECK(spillway_unpin(pointer(scene.block[0])) == 0 && spillway_unpin(pointer(scene.block[1])) == 0);
	CHECK(spillway_unpin(pointer(scene.block[0])) == -EINVAL);
	CHECK(place_of(scene.block[0]).movable == scene_moves());
	if (scene_moves()) {
		empty_device();
		CHECK(is_out(scene.block[0]));
	}
	return end();
}

/* Pins of small blocks end with them, though the memory they share goes on. */
static int pins_of_small_blocks(void)
{
	driver_start(0);
	CUdeviceptr first = child_alloc(1000), second = child_alloc(1000), large = child_alloc(LARGE);
	CHECK(spillway_pin(pointer(first)) == 0 && spillway_pin(pointer(first)) == 0);
	CHECK(spillway_pin(pointer(large)) == 0);
	CHECK(!place_of(second).movable && spillway_unpin(pointer(second)) == -EINVAL);
	MUST(cu.cuMemFree_v2(first));
	CHECK(place_of(second).movable == scene_moves());
	MUST(cu.cuMemFree_v2(large));
	large = child_alloc(LARGE);
	CHECK(place_of(large).movable == scene_moves() && spillway_unpin(pointer(large)) == -EINVAL);
	return 0;
}

/* ---- on the host ---- */

static int to_the_host(void)
{
	scene_open(&scene, 0);
	CUdeviceptr small = child_alloc(1000);
	if (!scene_moves()) {
		CHECK(spillway_prefer_host(pointer(scene.block[0])) == -ENOTSUP);
		return end();
	}
	CHECK(spillway_prefer_host(pointer(small)) == -ENOTSUP);
	CHECK(scene_warm_up(&scene));
	CHECK(spillway_prefer_host(pointer(scene.block[0])) == 0 && spillway_prefer_host(pointer(scene.block[3])) == 0);
	see_out(scene.block[0]);
	see_out(scene.block[3]);
	for (int i = 0; i < 200; i++) {
		rounds(1);
		CHECK(is_out(scene.block[0]) && is_out(scene.block[3]));
	}
	CHECK(place_of(scene.block[1]).movable);
	return end();
}

/* ---- growing ---- */

static int growing(void)
{
	driver_start(0);
	CUdeviceptr block = child_alloc(3 * MIB);
	MUST(driver_fill(NULL, block, 0x1234, 3 * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	unsigned long copies = sim_calls("cuMemcpyDtoDAsync_v2") + sim_calls("cuMemcpyDtoHAsync_v2");
	CHECK(spillway_grow(pointer(block), 4 * MIB) == 0 && place_of(block).bytes == 4 * MIB);
	CHECK(spillway_grow(pointer(block + MIB), 9 * MIB) == 0 && place_of(block + 8 * MIB).bytes == 9 * MIB);
	CHECK(spillway_grow(pointer(block), MIB) == 0 && place_of(block).bytes == 9 * MIB);
	CHECK(sim_calls("cuMemcpyDtoDAsync_v2") + sim_calls("cuMemcpyDtoHAsync_v2") == copies);
	CHECK(driver_holds(block, 0x1234, 3 * MIB / 4));
	MUST(driver_fill(NULL, block, 0x77, 9 * MIB / 4));
	CHECK(driver_holds(block, 0x77, 9 * MIB / 4));
	size_t size;
	MUST(cu.cuMemGetAddressRange_v2(NULL, &size, block + 8 * MIB));
	CHECK(size == 9 * MIB);
	/* Beyond the budget it grows on the host. */
	CHECK(spillway_grow(pointer(block), 24 * MIB) == 0 && place_of(block).bytes_on_host >= 8 * MIB);
	MUST(driver_fill(NULL, block, 0x99, 24 * MIB / 4));
	CHECK(driver_holds(block, 0x99, 24 * MIB / 4));
	CUdeviceptr behind = child_alloc(3 * MIB);
	CHECK(behind == block + 24 * MIB);
	CHECK(spillway_grow(pointer(block), 26 * MIB) == -ENOMEM && place_of(block).bytes == 24 * MIB);
	CHECK(spillway_grow(pointer(block), UINT64_MAX) == -ENOMEM);
	/* What is kept for later is in nobody's way. */
	MUST(cu.cuMemFree_v2(behind));
	CHECK(spillway_grow(pointer(block), 26 * MIB) == 0);
	CHECK(spillway_grow(pointer(block), 400 * MIB) == -ENOMEM && place_of(block).bytes == 26 * MIB);
	CHECK(driver_holds(block, 0x99, 24 * MIB / 4));
	CUdeviceptr small = child_alloc(1000);
	CHECK(spillway_grow(pointer(small), 1024) == 0 && spillway_grow(pointer(small), MIB) == -ENOMEM);
	MUST(cu.cuMemFree_v2(small));
	MUST(cu.cuMemFree_v2(block));
	uint64_t used;
	CHECK(spillway_budget(0, NULL, NULL, &used, NULL) == 0 && used == 0);
	CHECK(sim_broken_rules() == 0);
	return 0;
}

static int growing_among_moves(void)
{
	scene_load(&scene, 0);
	scene_allocate(&scene);
	CUdeviceptr block = child_alloc(3 * MIB);
	MUST(driver_fill(NULL, block, 0x1234, 3 * MIB / 4));
	scene_warm_up(&scene);
	for (size_t bytes = 4 * MIB; bytes <= 12 * MIB; bytes += MIB) {
		CHECK(spillway_grow(pointer(block), bytes) == 0);
		MUST(driver_fill(NULL, block + bytes - MIB, (unsigned)(bytes / MIB), MIB / 4));
		rounds(10);
	}
	CHECK(driver_holds(block, 0x1234, 3 * MIB / 4));
	for (size_t bytes = 4 * MIB; bytes <= 12 * MIB; bytes += MIB)
		CHECK(driver_holds(block + bytes - MIB, (unsigned)(bytes / MIB), MIB / 4));
	MUST(cu.cuMemFree_v2(block));
	return end();
}

/* ---- discarding ---- */

/* As CUDA has it, in the order of a stream. */
static void discard_in(CUstream stream, CUdeviceptr block)
{
	size_t bytes = LARGE;

	MUST(cuMemDiscardBatchAsync(&block, &bytes, 1, 0, stream));
}

/* Written on the device and discarded there, in that stream's order or, NULL, at once: does something else come out? */
static bool is_spared(CUstream stream, CUdeviceptr block, unsigned value)
{
	unsigned *words = malloc(LARGE), same = 0;

	CHECK(words);
	for (int i = 0; i < 300 && place_of(block).bytes_on_device < LARGE; i++) {
		MUST(driver_fill(stream, block, value, LARGE / 4));
		rounds(1);
	}
	/* At once, before it may leave; nothing else knows of it. */
	MUST(driver_fill(stream, block, value, LARGE / 4));
	if (stream)
		discard_in(stream, block);
	else
		CHECK(spillway_discard(pointer(block), LARGE) == 0);
	MUST(cu.cuStreamSynchronize(stream));
	see_out(block);
	MUST(cu.cuMemcpyDtoH_v2(words, block, LARGE));
	for (size_t i = 0; i < LARGE / 4; i++)
		same += words[i] == value;
	free(words);
	return same < LARGE / 4;
}

/*
 * It may have begun to leave before the discard, and where moving does not pay for a while it is not on the device at
 * all: then another try tells.
 */
static bool is_spared_once(CUstream stream, CUdeviceptr block)
{
	for (unsigned i = 0; i < 100; i++)
		if (is_spared(stream, block, 0x6000 + i))
			return true;
	return false;
}

static int discarding(void)
{
	CUdeviceptr block, kept;

	scene_load(&scene, 0);
	block = child_alloc(LARGE);
	kept = child_alloc(LARGE);
	MUST(driver_fill(NULL, block, 0x5555, LARGE / 4));
	MUST(driver_fill(NULL, kept, 0x6666, LARGE / 4));
	scene_allocate(&scene);
	CHECK(scene_warm_up(&scene));
	CHECK(spillway_prefer_host(pointer(kept)) == 0);
	see_out(kept);
	CHECK(spillway_discard(pointer(block + MIB), LARGE) == -EINVAL);
	CHECK(is_spared_once(NULL, block));
	/* What is written after that is of use. */
	for (unsigned i = 0; i < 8; i++) {
		CHECK(spillway_discard(pointer(block), LARGE) == 0);
		MUST(driver_fill(NULL, block, 0x7000 + i, LARGE / 4));
		rounds(3);
		CHECK(driver_holds(block, 0x7000 + i, LARGE / 4));
		/* In part: nothing that moves as one is covered. */
		CHECK(spillway_discard(pointer(block + 4096), MIB) == 0);
		see_out(block);
		CHECK(driver_holds(block + 4096 + MIB, 0x7000 + i, MIB / 4));
	}
	CHECK(driver_holds(kept, 0x6666, LARGE / 4));
	return end();
}

enum { HALVES = 2, WORDS = 2 * MIB / 4, MINE = 3, STEPS = 60 };

/* Blocks of a thread's own, of two pieces, and what each half holds; UNKNOWN: it is discarded. */
struct discarder {
	pthread_t thread;
	CUdeviceptr block[MINE];
	unsigned value[MINE][HALVES];
	unsigned seed;
};
#define UNKNOWN 0u

static void check_half(const struct discarder *own, unsigned i, unsigned half)
{
	if (own->value[i][half] != UNKNOWN)
		CHECK(driver_holds(own->block[i] + half * 2 * MIB, own->value[i][half], WORDS));
}

static void *discard_and_write(void *argument)
{
	struct discarder *own = argument;
	CUstream stream;

	MUST(cu.cuCtxSetCurrent(scene.context));
	stream = child_stream();
	for (unsigned step = 1; step <= STEPS; step++) {
		unsigned i = (unsigned)rand_r(&own->seed) % MINE, half = (unsigned)rand_r(&own->seed) % HALVES;
		CUdeviceptr at = own->block[i] + half * 2 * MIB;

		switch (rand_r(&own->seed) % 4) {
		case 0: /* a half, which may be a piece */
			CHECK(spillway_discard(pointer(at), 2 * MIB) == 0);
			own->value[i][half] = UNKNOWN;
			break;
		case 1: /* all of it, but for some bytes: nothing or one half is covered */
			CHECK(spillway_discard(pointer(own->block[i] + 4), 4 * MIB - 8) == 0);
			own->value[i][0] = own->value[i][1] = UNKNOWN;
			break;
		case 2:
			own->value[i][half] = own->seed | 1;
			MUST(driver_fill(stream, at, own->value[i][half], WORDS));
			MUST(cu.cuStreamSynchronize(stream));
			break;
		default:
			check_half(own, i, half);
		}
		CHECK(step % 3 || scene_round(&scene, stream, 1) == CUDA_SUCCESS);
	}
	for (unsigned i = 0; i < MINE; i++)
		for (unsigned half = 0; half < HALVES; half++)
			check_half(own, i, half);
	return NULL;
}

static int discarding_at_random(void)
{
	struct discarder own = {.seed = 4711};

	scene_load(&scene, 0);
	scene_allocate(&scene);
	for (unsigned i = 0; i < MINE; i++)
		own.block[i] = child_alloc(4 * MIB);
	scene_warm_up(&scene);
	for (unsigned i = 0; i < MINE; i++)
		for (unsigned half = 0; half < HALVES; half++) {
			own.value[i][half] = i * 2 + half + 1;
			MUST(driver_fill(NULL, own.block[i] + half * 2 * MIB, own.value[i][half], WORDS));
		}
	MUST(cu.cuCtxSynchronize());
	CHECK(pthread_create(&own.thread, NULL, discard_and_write, &own) == 0);
	rounds(STEPS);
	CHECK(pthread_join(own.thread, NULL) == 0);
	for (unsigned i = 0; i < MINE; i++)
		MUST(cu.cuMemFree_v2(own.block[i]));
	return end();
}

/* ---- discarding in the order of a stream ---- */

static int discarding_in_a_stream(void)
{
	scene_load(&scene, 0);
	CUstream stream = child_stream(), other = child_stream();
	CUdeviceptr block = child_alloc(LARGE);
	MUST(driver_fill(stream, block, 0x5555, LARGE / 4));
	MUST(cu.cuStreamSynchronize(stream));
	scene_allocate(&scene);
	CHECK(scene_warm_up(&scene));
	CHECK(is_spared_once(stream, block));
	for (unsigned i = 0; i < 8; i++) {
		/* The stream has not got there. */
		MUST(driver_fill(stream, block, 0x7000 + i, LARGE / 4));
		MUST(cu.cuStreamSynchronize(stream));
		unsigned *word = child_hold(stream);
		discard_in(stream, block);
		for (int j = 0; j < 5; j++)
			MUST(scene_round(&scene, other, 0));
		MUST(cu.cuStreamSynchronize(other));
		MUST(driver_copy(other, block, block, 1));
		unsigned *words = malloc(LARGE), same = 0;
		CHECK(words);
		MUST(cu.cuMemcpyDtoHAsync_v2(words, block, LARGE, other));
		MUST(cu.cuStreamSynchronize(other));
		for (size_t j = 0; j < LARGE / 4; j++)
			same += words[j] == 0x7000 + i;
		free(words);
		CHECK(same == LARGE / 4);
		child_release(word);
		MUST(cu.cuCtxSynchronize());
		/* Given to another stream before, run after it. */
		word = child_hold(other);
		MUST(driver_fill(other, block, 0x8000 + i, LARGE / 4));
		discard_in(stream, block);
		MUST(cu.cuStreamSynchronize(stream));
		child_release(word);
		MUST(cu.cuCtxSynchronize());
		see_out(block);
		CHECK(driver_holds(block, 0x8000 + i, LARGE / 4));
		/* Written behind it in the stream. */
		discard_in(stream, block);
		MUST(driver_fill(stream, block, 0x9000 + i, LARGE / 4));
		MUST(cu.cuStreamSynchronize(stream));
		see_out(block);
		CHECK(driver_holds(block, 0x9000 + i, LARGE / 4));
	}
	return end();
}

/* ---- allocators for frameworks ---- */

static int plugs(void)
{
	void *(*torch_alloc)(ssize_t, int, void *) =
	    (void *(*)(ssize_t, int, void *))dlsym(RTLD_DEFAULT, "spillway_torch_alloc");
	struct spillway_place place;
	CUcontext none;

	driver_open();
	MUST(cu.cuInit(0));
	CHECK(torch_alloc && torch_alloc == spillway_torch_alloc);
	unsigned long before = sim_calls("cuMemAlloc_v2");
	void *torch = torch_alloc(LARGE, 0, NULL), *cupy = spillway_cupy_malloc(NULL, LARGE, 0);
	CHECK(torch && cupy && sim_calls("cuMemAlloc_v2") == before);
	CHECK(cu.cuCtxGetCurrent(&none) == CUDA_SUCCESS && !none);
	CHECK(spillway_where(torch, &place) == 0 && place.backend == SPILLWAY_HEAP && place.bytes == LARGE);
	CHECK(spillway_where(cupy, &place) == 0 && place.backend == SPILLWAY_HEAP);
	CHECK(!spillway_torch_alloc(0, 0, NULL) && !spillway_torch_alloc(-1, 0, NULL) &&
	      !spillway_cupy_malloc(NULL, LARGE, 9));
	CHECK(!spillway_cupy_malloc(NULL, SIZE_MAX, 0));
	driver_start(0);
	/* Freed while a stream uses it: it returns at once, and the memory is not used again before that is over. */
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);
	MUST(driver_fill(stream, (CUdeviceptr)(uintptr_t)torch, 0x1111, LARGE / 4));
	spillway_torch_free(torch, LARGE, 0, NULL);
	CHECK(spillway_where(torch, &place) == -ENOENT);
	CUdeviceptr other = child_alloc(LARGE);
	CHECK(other != (CUdeviceptr)(uintptr_t)torch);
	child_release(word);
	MUST(cu.cuCtxSynchronize());
	spillway_cupy_free(NULL, cupy, 0);
	spillway_cupy_free(NULL, NULL, 0);
	MUST(cu.cuMemFree_v2(other));
	for (int i = 0; i < 100; i++) {
		cupy = spillway_cupy_malloc(NULL, LARGE, 0);
		CHECK(cupy);
		spillway_cupy_free(NULL, cupy, 0);
	}
	CHECK(sim_broken_rules() == 0);
	return 0;
}

static void run(int (*part)(void))
{
	assert_int_equal(child_run(SCENE_SETTINGS(), part), 0);
}

static void budgets_are_what_the_policy_says_and_what_is_in_use(void **state)
{
	(void)state;
	run(budgets);
}

static void every_block_is_where_it_is_said_to_be(void **state)
{
	(void)state;
	run(places);
	assert_int_equal(child_run(SCENE_SETTINGS("SPILLWAY=0"), switched_off), 0);
}

static void a_pinned_block_stays_until_it_is_unpinned(void **state)
{
	(void)state;
	run(pins);
	run(pins_of_small_blocks);
}

static void a_block_that_should_be_on_the_host_goes_there_and_stays(void **state)
{
	(void)state;
	run(to_the_host);
}

static void a_block_grows_where_it_is(void **state)
{
	(void)state;
	run(growing);
	run(growing_among_moves);
}

static void what_is_discarded_is_not_copied_and_what_is_written_then_is_kept(void **state)
{
	(void)state;
	if (!scene_moves())
		return;
	run(discarding);
	run(discarding_at_random);
	run(discarding_in_a_stream);
}

static void the_allocators_of_frameworks_go_to_the_heap(void **state)
{
	(void)state;
	run(plugs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(budgets_are_what_the_policy_says_and_what_is_in_use),
	    cmocka_unit_test(every_block_is_where_it_is_said_to_be),
	    cmocka_unit_test(a_pinned_block_stays_until_it_is_unpinned),
	    cmocka_unit_test(a_block_that_should_be_on_the_host_goes_there_and_stays),
	    cmocka_unit_test(a_block_grows_where_it_is),
	    cmocka_unit_test(what_is_discarded_is_not_copied_and_what_is_written_then_is_kept),
	    cmocka_unit_test(the_allocators_of_frameworks_go_to_the_heap),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
