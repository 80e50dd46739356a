// SPDX-License-Identifier: Apache-2.0
/*
 * sim_cudart_memory.c: memory in the small runtime: allocating, pools, copying, setting, and what an address is.
 */
#include "sim_cudart.h"

#include <string.h>

SIM_EXPORT cudaError_t cudaMalloc(void **address, size_t bytes)
{
	cudaError_t error = sim_ready();

	if (!error && !address)
		error = cudaErrorInvalidValue;
	if (!error && !bytes)
		*address = NULL;
	else if (!error)
		error = (cudaError_t)CALL(cuMemAlloc, (CUdeviceptr *)address, bytes);
	return sim_done(error);
}

RUNTIME(cudaFree, (void *address), address ? CALL(cuMemFree, PTR(address)) : CUDA_SUCCESS)
RUNTIME(cudaMallocPitch, (void **address, size_t *pitch, size_t width, size_t height),
	CALL(cuMemAllocPitch, (CUdeviceptr *)address, pitch, width, height, 4))
RUNTIME(cudaMallocManaged, (void **address, size_t bytes, unsigned flags),
	CALL(cuMemAllocManaged, (CUdeviceptr *)address, bytes, flags))
RUNTIME(cudaMallocAsync, (void **address, size_t bytes, cudaStream_t stream),
	CALL(cuMemAllocAsync, (CUdeviceptr *)address, bytes, stream))
RUNTIME(cudaMallocFromPoolAsync, (void **address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
	CALL(cuMemAllocFromPoolAsync, (CUdeviceptr *)address, bytes, pool, stream))
RUNTIME(cudaFreeAsync, (void *address, cudaStream_t stream), CALL(cuMemFreeAsync, PTR(address), stream))
RUNTIME(cudaMallocHost, (void **address, size_t bytes), CALL(cuMemHostAlloc, address, bytes, 0))
RUNTIME(cudaHostAlloc, (void **address, size_t bytes, unsigned flags), CALL(cuMemHostAlloc, address, bytes, flags))
RUNTIME(cudaFreeHost, (void *address), address ? CALL(cuMemFreeHost, address) : CUDA_SUCCESS)
RUNTIME(cudaMemGetInfo, (size_t * ret_free, size_t *ret_total), CALL(cuMemGetInfo, ret_free, ret_total))
RUNTIME(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *address),
	CALL(cuIpcGetMemHandle, (CUipcMemHandle *)handle, PTR(address)))

static CUresult copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
	if (!bytes)
		return CUDA_SUCCESS;
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CALL(cuMemcpyHtoD, PTR(dst), src, bytes);
	case cudaMemcpyDeviceToHost:
		return CALL(cuMemcpyDtoH, dst, PTR(src), bytes);
	case cudaMemcpyDeviceToDevice:
		return CALL(cuMemcpyDtoD, PTR(dst), PTR(src), bytes);
	default:
		return CALL(cuMemcpy, PTR(dst), PTR(src), bytes);
	}
}

static CUresult copy_async(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, CUstream stream)
{
	if (!bytes)
		return CUDA_SUCCESS;
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CALL(cuMemcpyHtoDAsync, PTR(dst), src, bytes, stream);
	case cudaMemcpyDeviceToHost:
		return CALL(cuMemcpyDtoHAsync, dst, PTR(src), bytes, stream);
	case cudaMemcpyDeviceToDevice:
		return CALL(cuMemcpyDtoDAsync, PTR(dst), PTR(src), bytes, stream);
	default:
		return CALL(cuMemcpyAsync, PTR(dst), PTR(src), bytes, stream);
	}
}

static CUresult copy2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height)
{
	CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .srcDevice = PTR(src),
			       .srcPitch = src_pitch,
			       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .dstDevice = PTR(dst),
			       .dstPitch = dst_pitch,
			       .WidthInBytes = width,
			       .Height = height};

	return CALL(cuMemcpy2DUnaligned, &plane);
}

RUNTIME(cudaMemcpy, (void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind), copy(dst, src, bytes, kind))
RUNTIME(cudaMemcpyAsync, (void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
	copy_async(dst, src, bytes, kind, stream))
RUNTIME(cudaMemcpy2D,
	(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
	 enum cudaMemcpyKind kind),
	((void)kind, copy2d(dst, dst_pitch, src, src_pitch, width, height)))
RUNTIME(cudaMemset, (void *dst, int value, size_t bytes), CALL(cuMemsetD8, PTR(dst), (unsigned char)value, bytes))
RUNTIME(cudaMemsetAsync, (void *dst, int value, size_t bytes, cudaStream_t stream),
	CALL(cuMemsetD8Async, PTR(dst), (unsigned char)value, bytes, stream))
