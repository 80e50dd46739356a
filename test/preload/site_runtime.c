// SPDX-License-Identifier: Apache-2.0
/*
 * site_runtime.c: stands for the CUDA runtime, as its name says (libcudart_site.so): what calls the driver is no answer
 * to the question who asked.
 */
#include <cuda.h>
#include <stddef.h>

int runtime_start(void);
unsigned long long runtime_alloc(size_t bytes);
int runtime_set(unsigned long long address, size_t bytes);
int runtime_current(void);
unsigned long long runtime_managed(size_t bytes);
unsigned long long runtime_async(size_t bytes);
int runtime_create(size_t bytes);

int runtime_start(void)
{
	CUdevice device;
	CUcontext context;

	return cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
	       cuCtxSetCurrent(context);
}

int runtime_current(void)
{
	CUcontext context;

	return cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

unsigned long long runtime_alloc(size_t bytes)
{
	CUdeviceptr address = 0;

	return cuMemAlloc(&address, bytes) == CUDA_SUCCESS ? address : 0;
}

unsigned long long runtime_managed(size_t bytes)
{
	CUdeviceptr address = 0;

	return cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS ? address : 0;
}

unsigned long long runtime_async(size_t bytes)
{
	CUdeviceptr address = 0;

	return cuMemAllocAsync(&address, bytes, NULL) == CUDA_SUCCESS ? address : 0;
}

int runtime_create(size_t bytes)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemGenericAllocationHandle handle;

	return cuMemCreate(&handle, bytes, &prop, 0);
}

int runtime_set(unsigned long long address, size_t bytes)
{
	return cuMemsetD8(address, 7, bytes) || cuCtxSynchronize();
}
