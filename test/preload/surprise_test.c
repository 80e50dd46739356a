// SPDX-License-Identifier: Apache-2.0
/*
 * A submission that nobody foresaw, in the middle of a job that repeats itself and whose future is known: room for it
 * is made, and what the future wants does not take that room away again and again. Small blocks are used in turn, twice
 * as much as fits; what had to leave for the large one is the very next that the turn needs.
 */
#include "test/preload/scene.h"
#include "test/test.h"

/* Pieces of the large block are two units, a 32nd of the budget; small ones come free one unit at a time. */
#define BUDGET      (128 * MIB)
#define SMALL       (2 * MIB)
#define N_SMALL     128
#define LARGE       (112 * MIB)
#define WARM_ROUNDS 5
#define SURPRISES   8
/*
 * Copies in and out for one surprise: its pieces, what leaves for them, the reserve, and what a round moves beside it.
 */
#define COPIES_MOST 200

/* What the GPU reaches over the link takes longer than bringing it in, as on a real one; us for 2 MiB. */
#define REMOTE_US 3000

static CUfunction add;
static CUdeviceptr small[N_SMALL], large;
static unsigned n_rounds;

static void add_body(const struct sim_launch *launch, void **args)
{
	/* The first parameter is for the library to see; it comes here translated. */
	CUdeviceptr block = ~*(CUdeviceptr *)args[2], end = block + *(uint64_t *)args[1];

	for (; block < end; block += 2 * MIB) {
		if (sim_where(block) != 'D')
			usleep(REMOTE_US);
		++*(uint32_t *)sim_pointer(block);
	}
}

SIM_MODULE(image, SIM_KERNEL("add", add_body, 8, 8, 8));

static void touch(CUdeviceptr block, uint64_t bytes)
{
	CUdeviceptr hidden = ~block;
	void *args[] = {&block, &bytes, &hidden};

	MUST(cu.cuLaunchKernel(add, 4, 1, 1, 64, 1, 1, 0, NULL, args, NULL));
}

static void turn(unsigned first, unsigned end)
{
	for (unsigned i = first; i < end; i++) {
		touch(small[i], SMALL);
		/* No further ahead of the device than a few launches. */
		if (i % 8 == 7)
			MUST(cu.cuStreamSynchronize(NULL));
	}
}

static bool holds(CUdeviceptr block, unsigned count)
{
	uint32_t word;

	MUST(cu.cuMemcpyDtoH_v2(&word, block, 4));
	if (word != count)
		printf("%u, not %u\n", word, count);
	return word == count;
}

PART_TEST(a_surprise, assert_int_equal(scene_run(BUDGET, part), 0))
{
	unsigned long most = 0;

	driver_start(0);
	add = driver_function(&image, "add");
	for (unsigned i = 0; i < N_SMALL; i++) {
		small[i] = child_alloc(SMALL);
		MUST(cu.cuMemsetD32_v2(small[i], 0, SMALL / 4));
	}
	large = child_alloc(LARGE);
	MUST(cu.cuMemsetD32_v2(large, 0, LARGE / 4));
	for (; n_rounds < WARM_ROUNDS; n_rounds++)
		turn(0, N_SMALL);
	for (unsigned i = 0; i < SURPRISES; i++, n_rounds++) {
		/* Each time elsewhere, so that it stays a surprise. */
		unsigned at = i * 37 % N_SMALL;

		turn(0, at);
		unsigned long before = sim_calls("cuMemcpyDtoDAsync_v2");
		touch(large, LARGE);
		MUST(cu.cuStreamSynchronize(NULL));
		unsigned long copies = sim_calls("cuMemcpyDtoDAsync_v2") - before;
		most = copies > most ? copies : most;
		turn(at, N_SMALL);
	}
	printf("%lu copies at most\n", most);
	CHECK(most <= COPIES_MOST);
	for (unsigned i = 0; i < N_SMALL; i++)
		CHECK(holds(small[i], n_rounds));
	CHECK(holds(large, SURPRISES));
}
