// SPDX-License-Identifier: Apache-2.0
/*
 * In `fast` small blocks do not leave the device: kernels reach the tables of libraries by addresses that no launch
 * names, from other memory or from constants. A job that needs twice its budget looks into such a table in each of its
 * kernels. In `exact` slabs stay.
 */
#include "test/preload/scene.h"
#include "test/test.h"

#include <dlfcn.h>

/* A 16th of the budget stays: the table, and what of the small blocks beside it there is room for. */
#define BUDGET   (128 * MIB)
#define TABLE    (4 * MIB)
#define SMALL    (2 * MIB)
#define LARGE    (20 * MIB)
#define N_SMALL  16
#define N_LARGE  10
#define ROUNDS   40
#define SLOT     (64 * 1024) /* an allocation that shares its memory with others */
#define N_LOOKED 4

/*
 * Of a library: more than a 16th of the budget; one is larger than a small block. Three quarters of the quarter that
 * may stay, for the budget counts as smaller for a moment while the heap is full and less of it is used.
 */
#define N_TABLES 3
static const size_t table_bytes[N_TABLES] = {SLOT, TABLE, 18 * MIB};

static CUfunction look;

/* The parameter that is not an address says where the table and the slot are. */
static void look_body(const struct sim_launch *launch, void **args)
{
	uint32_t *block = sim_pointer(*(CUdeviceptr *)args[0]);
	CUdeviceptr *hidden = args[1];

	for (unsigned i = 0; i < N_LOOKED && hidden[i]; i++)
		block[0] += *(uint32_t *)sim_pointer(~hidden[i]);
}

SIM_MODULE(image, SIM_KERNEL("look", look_body, 8, N_LOOKED * 8));

static CUdeviceptr alloc_set(size_t bytes, unsigned value)
{
	CUdeviceptr block = child_alloc(bytes);

	MUST(cu.cuMemsetD32_v2(block, value, bytes / 4));
	return block;
}

static void load(void)
{
	driver_start(0);
	look = driver_function(&image, "look");
}

/* Twice the budget, from which each kernel names one block, and looks into what is hidden, whose values are `sum`. */
static void work(CUdeviceptr hidden[N_LOOKED], unsigned sum)
{
	CUdeviceptr small[N_SMALL], large[N_LARGE];

	for (unsigned i = 0; i < N_SMALL; i++)
		small[i] = alloc_set(SMALL, 0);
	for (unsigned i = 0; i < N_LARGE; i++)
		large[i] = alloc_set(LARGE, 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < N_LARGE + N_SMALL; i++) {
			void *args[] = {i < N_LARGE ? &large[i] : &small[i - N_LARGE], hidden};

			MUST(cu.cuLaunchKernel(look, 4, 1, 1, 64, 1, 1, 0, NULL, args, NULL));
		}
		MUST(cu.cuStreamSynchronize(NULL));
	}
	for (unsigned i = 0; i < N_LARGE + N_SMALL; i++) {
		uint32_t found;

		MUST(cu.cuMemcpyDtoH_v2(&found, i < N_LARGE ? large[i] : small[i - N_LARGE], 4));
		CHECK(found == ROUNDS * sum);
	}
	CHECK(sim_calls("cuMemcpyDtoDAsync_v2") > N_LARGE || !scene_moves());
	for (unsigned i = 0; i < N_LOOKED && hidden[i]; i++)
		CHECK(strcmp(scene_mode(), "fast") || sim_where(~hidden[i]) == 'D');
	CHECK(sim_broken_rules() == 0);
}

PART_TEST(tables, assert_int_equal(scene_run(BUDGET, part), 0))
{
	CUdeviceptr hidden[N_LOOKED] = {0};

	load();
	hidden[0] = ~alloc_set(TABLE, 3);
	hidden[1] = ~alloc_set(SLOT, 4);
	work(hidden, 7);
	/* Slabs stay in `exact`, too. */
	CHECK(sim_where(~hidden[1]) == 'D');
}

/* Small blocks of the program have all of their share before; the shipped policy knows the library by its name. */
PART_TEST(tables_of_a_library, assert_int_equal(scene_run(BUDGET, part), 0))
{
	CUresult (*table)(CUresult(*)(CUdeviceptr *, size_t), size_t, CUdeviceptr *);
	CUdeviceptr hidden[N_LOOKED] = {0};
	unsigned sum = 0;

	load();
	void *library = dlopen(KEEP_LIBRARY, RTLD_NOW);
	CHECK(library);
	table = (__typeof__(table))(uintptr_t)dlsym(library, "library_table");
	CHECK(table);
	for (unsigned i = 0; i < N_SMALL; i++)
		alloc_set(SMALL, 0);
	for (unsigned i = 0; i < N_TABLES; i++) {
		CUdeviceptr address;

		MUST(table(cu.cuMemAlloc_v2, table_bytes[i], &address));
		MUST(cu.cuMemsetD32_v2(address, i + 1, table_bytes[i] / 4));
		hidden[i] = ~address;
		sum += i + 1;
	}
	work(hidden, sum);
}
