// SPDX-License-Identifier: Apache-2.0
/*
 * Built as a libcufft.so.12: allocates memory for itself, as such a library does with the CUDA runtime that is linked
 * into it, so that the call to the driver comes from the library's own code.
 */
#include <cuda.h>
#include <stddef.h>

CUresult library_table(CUresult (*alloc)(CUdeviceptr *, size_t), size_t bytes, CUdeviceptr *ret);

__attribute__((visibility("default"))) CUresult library_table(CUresult (*alloc)(CUdeviceptr *, size_t), size_t bytes,
							      CUdeviceptr *ret)
{
	CUresult result = alloc(ret, bytes);

	__asm__ volatile("" ::: "memory"); /* a call, not a jump: a jump would have the caller's return address */
	return result;
}
