// SPDX-License-Identifier: Apache-2.0
/*
 * A libcuda of more GPUs than the simulation has (MANY_DEVICES), which does nothing at all: for what `spillway doctor`
 * measures. With MANY_LATE the first copy between two of them takes so many seconds; with MANY_HANG they never
 * end, with MANY_CRASH they crash.
 */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

CUresult cuInit(unsigned flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = 13000;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	*count = atoi(getenv("MANY_DEVICES"));
	return CUDA_SUCCESS;
}

/* They can do everything, and are in their standard mode. */
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
	*value = which != CU_DEVICE_ATTRIBUTE_COMPUTE_MODE;
	return device < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	*can = device != peer;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	*context = (CUcontext)((uintptr_t)device + 1);
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total)
{
	*free_bytes = *total = (size_t)1 << 30;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *block, size_t bytes)
{
	*block = bytes;
	return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **block, size_t bytes, unsigned flags)
{
	*block = malloc(bytes);
	return *block && !flags ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFreeHost(void *block)
{
	free(block);
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	*stream = (CUstream)(uintptr_t)flags;
	return CUDA_SUCCESS;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
			   CUstream stream)
{
	static int n;

	if (getenv("MANY_LATE") && !n++)
		sleep((unsigned)atoi(getenv("MANY_LATE")));
	while (getenv("MANY_HANG"))
		pause();
	if (getenv("MANY_CRASH"))
		abort();
	return to && to_context != from_context && from && bytes && stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Takes a moment without a processor, as with a real GPU: what is measured is made again and again for some time. */
CUresult cuStreamSynchronize(CUstream stream)
{
	usleep(1000);
	return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Nothing to be done. */
#define DONE(name, types)                                                                                              \
	CUresult name types                                                                                            \
	{                                                                                                              \
		return CUDA_SUCCESS;                                                                                   \
	}
#pragma GCC diagnostic ignored "-Wunused-parameter"
DONE(cuDevicePrimaryCtxRelease, (CUdevice device))
DONE(cuMemCreate,
     (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *what, unsigned long long flags))
DONE(cuMemMap,
     (CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags))
DONE(cuCtxSetCurrent, (CUcontext context))
DONE(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))
DONE(cuCtxDisablePeerAccess, (CUcontext peer))
DONE(cuMemFree, (CUdeviceptr block))
DONE(cuStreamDestroy, (CUstream stream))
DONE(cuMemcpyHtoDAsync, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))
DONE(cuMemcpyDtoHAsync, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))
