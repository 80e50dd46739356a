// SPDX-License-Identifier: Apache-2.0
/*
 * walk_job: the program that scripts/walk.sh follows. It allocates so many blocks of so many MiB, and fills one after
 * the other, again and again. Usage: walk_job MIB BLOCKS
 */
#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>

#define BLOCKS 64

int main(int argc, char **argv)
{
	const uint64_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 8) << 20;
	unsigned n = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) % (BLOCKS + 1) : 6;
	CUcontext context;
	CUdeviceptr block[BLOCKS];
	CUresult result = cuInit(0) ?: cuDevicePrimaryCtxRetain(&context, 0) ?: cuCtxSetCurrent(context);

	for (unsigned i = 0; i < n && !result; i++)
		result = cuMemAlloc(&block[i], bytes);
	for (unsigned step = 0; step < 40 && !result; step++)
		for (unsigned i = 0; i < n && !result; i++)
			result = cuMemsetD8Async(block[i], (unsigned char)step, bytes, 0);
	result = result ?: cuCtxSynchronize();
	for (unsigned i = 0; i < n && !result; i++)
		result = cuMemFree(block[i]);
	if (result)
		fprintf(stderr, "walk_job: CUDA error %d\n", (int)result);
	return result != CUDA_SUCCESS;
}
