// SPDX-License-Identifier: Apache-2.0
/*
 * checked_job.c: a program with four kernels, for checked_test.sh: two name what they use, two do not. It ends with 3 if
 * the driver says that one has used memory that is not there.
 */
#include "test/preload/child.h"

#define BLOCK  (20 * MIB) /* no small one, which would stay where it is (piece.c) */
#define ROUNDS 200        /* the first ones pass before the mover runs */

static void names_body(const struct sim_launch *launch, void **args)
{
	++**(uint32_t **)args[0];
}

/* The address has been hidden from the library, as if it were in a table of the kernel's. */
static void hides_body(const struct sim_launch *launch, void **args)
{
	++*(uint32_t *)sim_pointer(~*(CUdeviceptr *)args[0]);
}

SIM_MODULE(image, SIM_KERNEL("names", names_body, 8), SIM_KERNEL("names_more", names_body, 8),
	   SIM_KERNEL("hides", hides_body, 8), SIM_KERNEL("hides_more", hides_body, 8));

int main(void)
{
	CUdeviceptr block[2];
	uint32_t count;

	driver_start(0);
	for (unsigned i = 0; i < 2; i++) {
		block[i] = child_alloc(BLOCK);
		MUST(cu.cuMemsetD32_v2(block[i], 0, BLOCK / 4));
	}
	for (unsigned round = 0; round < ROUNDS; round++, usleep(1000))
		for (unsigned i = 0; i < 4; i++) {
			CUdeviceptr word = i < 2 ? block[0] : ~block[1];
			void *args[] = {&word};
			CUfunction function = driver_function(&image, image.kernels[i].name);
			CUresult result = cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL);

			result = result ?: cu.cuCtxSynchronize();
			if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
				exit(3);
			MUST(result);
		}
	for (unsigned i = 0; i < 2; i++) {
		MUST(cu.cuMemcpyDtoH_v2(&count, block[i], 4));
		CHECK(count == 2 * ROUNDS);
	}
	return 0;
}
