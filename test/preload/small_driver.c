// SPDX-License-Identifier: Apache-2.0
/*
 * A libcuda.so.1 that has next to nothing of what the library looks for, as an old one would; it looks for nothing
 * itself.
 */
#include <cuda.h>
#include <stddef.h>

CUresult cuInit(unsigned flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	(void)address;
	(void)bytes;
	return CUDA_ERROR_OUT_OF_MEMORY;
}
