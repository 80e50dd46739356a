// SPDX-License-Identifier: Apache-2.0
/*
 * A library of the program that frees in its destructor, and again after all destructors: an exit handler that was
 * registered before the dynamic linker's own runs after it.
 */
#include <cuda.h>
#include <stdlib.h>
#include <unistd.h>

extern CUdeviceptr late_block[4];
CUdeviceptr late_block[4];
static CUresult worst;

static void note(CUresult result)
{
	if (result != CUDA_SUCCESS)
		worst = result;
}

__attribute__((destructor)) static void free_in_a_destructor(void)
{
	if (!late_block[0])
		return;
	note(cuMemFree_v2(late_block[0]));
	note(cuMemFreeAsync(late_block[1], NULL));
}

/* The status that the program ends with is 7 when every free went well. */
static void free_at_the_very_end(int status, void *argument)
{
	(void)argument;
	if (!late_block[2])
		return;
	note(cuMemFree_v2(late_block[2]));
	note(cuMemFreeAsync_ptsz(late_block[3], NULL));
	_exit(worst ? 100 : status);
}

__attribute__((constructor)) static void begin(void)
{
	on_exit(free_at_the_very_end, NULL);
}
