// SPDX-License-Identifier: Apache-2.0
/*
 * A libcuda.so.1 whose constructor looks itself and others up by dlsym, as the one of WSL2 does, from its own thread
 * and from another one.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

int eager_found(void);
static int found;

static void *look_up(void *argument)
{
	found += dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == argument;
	found += dlsym(RTLD_DEFAULT, "cuInit") != NULL;
	return NULL;
}

CUresult cuInit(unsigned flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	*address = bytes;
	return CUDA_SUCCESS;
}

int eager_found(void)
{
	return found;
}

__attribute__((constructor)) static void begin(void)
{
	dlsym(RTLD_NEXT, "cuMemAlloc_v2");
	dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
	look_up(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
}
