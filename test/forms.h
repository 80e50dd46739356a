// SPDX-License-Identifier: Apache-2.0
/*
 * forms.h: what copies and memory of the driver are described by, filled in as most tests need it.
 */
#ifndef TEST_FORMS_H
#define TEST_FORMS_H

#include <cuda.h>

/* Rows of `width` bytes, `pitch` bytes apart on both sides; `depth` layers of `height` rows. Addresses of the device. */
static inline CUDA_MEMCPY2D form_rows(CUdeviceptr to, CUdeviceptr from, size_t pitch, size_t width, size_t height)
{
	return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = from,
			       .srcPitch = pitch,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = to,
			       .dstPitch = pitch,
			       .WidthInBytes = width,
			       .Height = height};
}

static inline CUDA_MEMCPY3D form_box(CUdeviceptr to, CUdeviceptr from, size_t pitch, size_t width, size_t height,
				     size_t depth)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = from,
			       .srcPitch = pitch,
			       .srcHeight = height,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = to,
			       .dstPitch = pitch,
			       .dstHeight = height,
			       .WidthInBytes = width,
			       .Height = height,
			       .Depth = depth};
}

/* One side of a copy, src or dst, as it is in another description of it. */
#define FORM_SIDE(side, of)                                                                                            \
	.side##XInBytes = (of)->side##XInBytes, .side##Y = (of)->side##Y, .side##MemoryType = (of)->side##MemoryType,  \
	.side##Host = (of)->side##Host, .side##Device = (of)->side##Device, .side##Array = (of)->side##Array,          \
	.side##Pitch = (of)->side##Pitch

static inline CUDA_MEMCPY3D form_of_rows(const CUDA_MEMCPY2D *of)
{
	return (CUDA_MEMCPY3D){FORM_SIDE(src, of), FORM_SIDE(dst, of), .WidthInBytes = of->WidthInBytes,
			       .Height = of->Height, .Depth = 1};
}

static inline CUDA_MEMCPY3D form_of_peers(const CUDA_MEMCPY3D_PEER *of)
{
	return (CUDA_MEMCPY3D){
	    FORM_SIDE(src, of), .srcZ = of->srcZ,           .srcHeight = of->srcHeight,       FORM_SIDE(dst, of),
	    .dstZ = of->dstZ,   .dstHeight = of->dstHeight, .WidthInBytes = of->WidthInBytes, .Height = of->Height,
	    .Depth = of->Depth};
}

/* So many bytes. */
static inline CUDA_MEMCPY3D form_line(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return form_box(to, from, 0, bytes, 1, 1);
}

static inline CUDA_KERNEL_NODE_PARAMS form_kernel(CUfunction function, void **params, CUcontext context)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = function,
					 .gridDimX = 1,
					 .gridDimY = 1,
					 .gridDimZ = 1,
					 .blockDimX = 32,
					 .blockDimY = 1,
					 .blockDimZ = 1,
					 .kernelParams = params,
					 .ctx = context};
}

/* Memory of a device, as cuMemCreate and pools make it, and access to it. */
static inline CUmemLocation form_location(int device)
{
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

static inline CUmemAllocationProp form_memory(int device)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = form_location(device)};
}

static inline CUmemAccessDesc form_access(int device, CUmemAccess_flags flags)
{
	return (CUmemAccessDesc){.location = form_location(device), .flags = flags};
}

/* most: bytes; 0: no limit. */
static inline CUmemPoolProps form_pool(int device, size_t most)
{
	return (CUmemPoolProps){
	    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = form_location(device), .maxSize = most};
}

#endif
