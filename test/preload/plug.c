// SPDX-License-Identifier: Apache-2.0
/* plug.c: a plugin that allocates. Two are built from this, so that the second lies where the first was. */
#include <cuda.h>
#include <stddef.h>

CUresult plug_take(CUdeviceptr *ret, size_t bytes);

CUresult plug_take(CUdeviceptr *ret, size_t bytes)
{
	CUresult result = cuMemAlloc(ret, bytes);

	__asm__ volatile("" ::: "memory"); /* a call, not a jump */
	return result;
}
