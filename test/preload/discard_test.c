// SPDX-License-Identifier: Apache-2.0
/*
 * Memory whose contents a program says it needs no more (spillway_discard, cuMemDiscardBatchAsync): they are not
 * copied, and what is written then is kept; on a job whose memory moves (scene.h), each part in a process of its own.
 */
#include "test/preload/typed_alloc_help.h"

#define LARGE (4 * MIB)

static void begin(void)
{
	scene_load(&own_scene, 0);
}

CHILD_FRAME(begin, own_end)

static void run(void (*part)(void))
{
	if (scene_moves())
		own_run(part);
}

/* ---- at once ---- */

/* As CUDA has it, in the order of a stream. */
static void discard_in(CUstream stream, CUdeviceptr block)
{
	size_t bytes = LARGE;

	MUST(cuMemDiscardBatchAsync(&block, &bytes, 1, 0, stream));
}

/*
 * All of it is there, and pinned: it does not leave between what is written and its discard. Where moving does not pay
 * (memory of the host is as near as the device's here) the mover may have stopped; what comes after a suspension has it
 * ask again.
 */
static bool is_held_on_device(CUstream stream, CUdeviceptr block, unsigned value)
{
	for (int i = 1; i <= 300; i++) {
		if (own_place(block).bytes_on_device == LARGE) {
			CHECK(spillway_pin(own_pointer(block)) == 0);
			if (own_place(block).bytes_on_device == LARGE)
				return true;
			CHECK(spillway_unpin(own_pointer(block)) == 0);
		}
		if (i % 50 == 0)
			own_empty_device();
		MUST(driver_fill(stream, block, value, LARGE / 4));
		own_rounds(1);
	}
	return false;
}

/* Written on the device and discarded there, in that stream's order or, NULL, at once: does something else come out? */
static bool is_spared(CUstream stream, CUdeviceptr block, unsigned value)
{
	unsigned *words = malloc(LARGE), same = 0;

	CHECK(words);
	/* Another value: on its way there it may have been written to host memory, and that may be what comes out. */
	if (!is_held_on_device(stream, block, ~value)) {
		free(words);
		return false;
	}
	MUST(driver_fill(stream, block, value, LARGE / 4));
	if (stream)
		discard_in(stream, block);
	else
		CHECK(spillway_discard(own_pointer(block), LARGE) == 0);
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(spillway_unpin(own_pointer(block)) == 0);
	own_make_leave(block);
	MUST(cu.cuMemcpyDtoH_v2(words, block, LARGE));
	for (size_t i = 0; i < LARGE / 4; i++)
		same += words[i] == value;
	free(words);
	return same < LARGE / 4;
}

/* There is no telling whether it comes to the device, nor what is done with it when it leaves: another try tells. */
static bool is_spared_once(CUstream stream, CUdeviceptr block)
{
	for (unsigned i = 0; i < 100; i++)
		if (is_spared(stream, block, 0x6000 + i))
			return true;
	return false;
}

PART_TEST(what_is_discarded_is_not_copied_and_what_is_written_then_is_kept, run(part))
{
	CUdeviceptr block = child_alloc(LARGE), kept = child_alloc(LARGE);
	MUST(driver_fill(NULL, block, 0x5555, LARGE / 4));
	MUST(driver_fill(NULL, kept, 0x6666, LARGE / 4));
	scene_allocate(&own_scene);
	CHECK(scene_warm_up(&own_scene));
	CHECK(spillway_prefer_host(own_pointer(kept)) == 0);
	own_see_out(kept);
	CHECK(spillway_discard(own_pointer(block + MIB), LARGE) == -EINVAL);
	CHECK(is_spared_once(NULL, block));
	/* What is written after that is of use. */
	for (unsigned i = 0; i < 8; i++) {
		CHECK(spillway_discard(own_pointer(block), LARGE) == 0);
		MUST(driver_fill(NULL, block, 0x7000 + i, LARGE / 4));
		own_rounds(3);
		CHECK(driver_holds(block, 0x7000 + i, LARGE / 4));
		/* In part: nothing that moves as one is covered. */
		CHECK(spillway_discard(own_pointer(block + 4096), MIB) == 0);
		own_see_out(block);
		CHECK(driver_holds(block + 4096 + MIB, 0x7000 + i, MIB / 4));
	}
	CHECK(driver_holds(kept, 0x6666, LARGE / 4));
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

	MUST(cu.cuCtxSetCurrent(own_scene.context));
	CUstream stream = child_stream();
	for (unsigned step = 1; step <= STEPS; step++) {
		unsigned i = (unsigned)rand_r(&own->seed) % MINE, half = (unsigned)rand_r(&own->seed) % HALVES;
		CUdeviceptr at = own->block[i] + half * 2 * MIB;

		switch (rand_r(&own->seed) % 4) {
		case 0: /* a half, which may be a piece */
			CHECK(spillway_discard(own_pointer(at), 2 * MIB) == 0);
			own->value[i][half] = UNKNOWN;
			break;
		case 1: /* all of it, but for some bytes: nothing or one half is covered */
			CHECK(spillway_discard(own_pointer(own->block[i] + 4), 4 * MIB - 8) == 0);
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
		CHECK(step % 3 || scene_round(&own_scene, stream, 1) == CUDA_SUCCESS);
	}
	for (unsigned i = 0; i < MINE; i++)
		for (unsigned half = 0; half < HALVES; half++)
			check_half(own, i, half);
	return NULL;
}

PART_TEST(what_is_written_after_discards_at_random_is_kept, run(part))
{
	struct discarder own = {.seed = 4711};

	scene_allocate(&own_scene);
	for (unsigned i = 0; i < MINE; i++)
		own.block[i] = child_alloc(4 * MIB);
	scene_warm_up(&own_scene);
	for (unsigned i = 0; i < MINE; i++)
		for (unsigned half = 0; half < HALVES; half++) {
			own.value[i][half] = i * 2 + half + 1;
			MUST(driver_fill(NULL, own.block[i] + half * 2 * MIB, own.value[i][half], WORDS));
		}
	MUST(cu.cuCtxSynchronize());
	CHECK(pthread_create(&own.thread, NULL, discard_and_write, &own) == 0);
	own_rounds(STEPS);
	CHECK(pthread_join(own.thread, NULL) == 0);
	for (unsigned i = 0; i < MINE; i++)
		MUST(cu.cuMemFree_v2(own.block[i]));
}

/* ---- before it is known what runs ---- */

static void *release_soon(void *word)
{
	usleep(
	    20000); /* the suspension waits for the device by then; else the mover knows what runs, and all is well */
	child_release(word);
	return NULL;
}

/*
 * A write that was submitted before anybody looked comes after the discard; the process is suspended right behind it.
 */
PART_TEST(a_write_that_comes_after_the_discard_is_kept, run(part))
{
	CUstream stream = child_stream();
	CUdeviceptr block = child_alloc(LARGE);
	MUST(driver_fill(NULL, block, 0x1111, LARGE / 4));
	MUST(cu.cuCtxSynchronize());
	unsigned *word = child_hold(stream);
	MUST(driver_fill(stream, block, 0x2222, LARGE / 4));
	for (unsigned i = 0; i < SCENE_BLOCKS; i++) {
		own_scene.block[i] = child_alloc(SCENE_BYTES);
		MUST(cu.cuMemsetD32_v2(own_scene.block[i], 0, SCENE_BYTES / 4));
	}
	MUST(cu.cuStreamSynchronize(NULL));
	usleep(100000); /* tracking begins */
	CHECK(spillway_discard(own_pointer(block), LARGE) == 0);
	pthread_t thread = test_thread(release_soon, word);
	own_empty_device();
	CHECK(pthread_join(thread, NULL) == 0);
	MUST(cu.cuCtxSynchronize());
	CHECK(driver_holds(block, 0x2222, LARGE / 4));
}

/* ---- in the order of a stream ---- */

PART_TEST(a_discard_in_a_stream_comes_in_its_order, run(part))
{
	CUstream stream = child_stream(), other = child_stream();
	CUdeviceptr block = child_alloc(LARGE);
	MUST(driver_fill(stream, block, 0x5555, LARGE / 4));
	MUST(cu.cuStreamSynchronize(stream));
	scene_allocate(&own_scene);
	CHECK(scene_warm_up(&own_scene));
	CHECK(is_spared_once(stream, block));
	for (unsigned i = 0; i < 8; i++) {
		/* The stream has not got there. */
		MUST(driver_fill(stream, block, 0x7000 + i, LARGE / 4));
		MUST(cu.cuStreamSynchronize(stream));
		unsigned *word = child_hold(stream);
		discard_in(stream, block);
		for (int j = 0; j < 5; j++)
			MUST(scene_round(&own_scene, other, 0));
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
		own_see_out(block);
		CHECK(driver_holds(block, 0x8000 + i, LARGE / 4));
		/* Written behind it in the stream. */
		discard_in(stream, block);
		MUST(driver_fill(stream, block, 0x9000 + i, LARGE / 4));
		MUST(cu.cuStreamSynchronize(stream));
		own_see_out(block);
		CHECK(driver_holds(block, 0x9000 + i, LARGE / 4));
	}
}
