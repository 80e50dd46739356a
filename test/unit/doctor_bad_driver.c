// SPDX-License-Identifier: Apache-2.0
/*
 * A libcuda that hangs, crashes or refuses in cuInit, by the variable BAD_DRIVER: "hang", "crash", or an error's
 * number.
 */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

CUresult cuInit(unsigned flags)
{
	const char *how = getenv("BAD_DRIVER");

	(void)flags;
	while (how && strcmp(how, "hang") == 0)
		pause();
	if (how && strcmp(how, "crash") == 0)
		abort();
	return how ? (CUresult)atoi(how) : CUDA_SUCCESS;
}

/* CUDA 11.0, which has no virtual memory management of ours in it. */
CUresult cuDriverGetVersion(int *version)
{
	*version = 11000;
	return CUDA_SUCCESS;
}
