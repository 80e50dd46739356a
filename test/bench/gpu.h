// SPDX-License-Identifier: Apache-2.0
/*
 * gpu.h: what small measuring programs share: the driver (whichever libcuda.so.1 the loader finds, its functions by
 * dlsym) and a context; with sample.h. A program includes this once.
 */
#ifndef SPILLWAY_BENCH_GPU_H
#define SPILLWAY_BENCH_GPU_H

#include <cuda.h>
#include <dlfcn.h>

#include "test/libc.h"
#include "test/bench/sample.h"

#define GPU_FUNCTIONS(F)                                                                                               \
	F(cuInit)                                                                                                      \
	F(cuDeviceGet)                                                                                                 \
	F(cuDevicePrimaryCtxRetain)                                                                                    \
	F(cuCtxSetCurrent)                                                                                             \
	F(cuCtxSynchronize)                                                                                            \
	F(cuStreamCreate)                                                                                              \
	F(cuStreamSynchronize)                                                                                         \
	F(cuMemAlloc)                                                                                                  \
	F(cuMemFree)                                                                                                   \
	F(cuGetErrorName)                                                                                              \
	F(cuModuleLoadData)                                                                                            \
	F(cuModuleGetFunction)                                                                                         \
	F(cuLaunchKernel)                                                                                              \
	F(cuMemsetD8)                                                                                                  \
	F(cuMemGetInfo)                                                                                                \
	F(cuMemcpyDtoD)                                                                                                \
	F(cuMemcpyHtoD)                                                                                                \
	F(cuMemcpyDtoH)                                                                                                \
	F(cuMemAddressReserve)                                                                                         \
	F(cuMemAddressFree)                                                                                            \
	F(cuMemCreate)                                                                                                 \
	F(cuMemRelease)                                                                                                \
	F(cuMemMap)                                                                                                    \
	F(cuMemUnmap)                                                                                                  \
	F(cuMemSetAccess)                                                                                              \
	F(cuDeviceGetAttribute)                                                                                        \
	F(cuEventCreate)                                                                                               \
	F(cuEventRecord)                                                                                               \
	F(cuEventSynchronize)                                                                                          \
	F(cuEventElapsedTime)                                                                                          \
	F(cuStreamWaitEvent)                                                                                           \
	F(cuMemHostAlloc)                                                                                              \
	F(cuMemFreeHost)                                                                                               \
	F(cuMemcpyHtoDAsync)                                                                                           \
	F(cuMemcpyDtoHAsync)                                                                                           \
	F(cuMemcpyDtoDAsync)                                                                                           \
	F(cuMemsetD32)                                                                                                 \
	F(cuMemAllocAsync)                                                                                             \
	F(cuMemFreeAsync)                                                                                              \
	F(cuLaunchHostFunc)                                                                                            \
	F(cuMemsetD8Async)                                                                                             \
	F(cuPointerGetAttribute)                                                                                       \
	F(cuPointerGetAttributes)                                                                                      \
	F(cuEventQuery)                                                                                                \
	F(cuEventDestroy)                                                                                              \
	F(cuStreamDestroy)                                                                                             \
	F(cuCtxGetCurrent)                                                                                             \
	F(cuDevicePrimaryCtxRelease)                                                                                   \
	F(cuStreamWaitValue32)

/* cuda.h renames to the newest version (cuMemAlloc is cuMemAlloc_v2), and the names here follow it. */
#define GPU_DECLARE(name) __typeof__(name) *name;
static struct {
	GPU_FUNCTIONS(GPU_DECLARE)
} driver;

static bool simulated; /* sizes are smaller there: its memory is the host's, its copies the CPU's */
static void *driver_library;

#define GPU_TEXT(name)  GPU_TEXT_(name)
#define GPU_TEXT_(name) #name

static void check(const char *what, CUresult result)
{
	const char *name = "?";

	if (result == CUDA_SUCCESS)
		return;
	if (driver.cuGetErrorName)
		driver.cuGetErrorName(result, &name);
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, name);
	exit(1);
}

#define CHECK(call) check(#call, driver.call)

/* The driver's functions. Exit status 77 where there is no driver: a test that cannot run. */
static inline void gpu_open_driver(void)
{
	bool complete;

	driver_library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	complete = driver_library != NULL;
#define GPU_FIND(name)                                                                                                 \
	if (driver_library)                                                                                            \
		*(void **)&driver.name = dlsym(driver_library, GPU_TEXT(name));                                        \
	complete = complete && driver.name;
	GPU_FUNCTIONS(GPU_FIND)
#undef GPU_FIND
	if (!complete) {
		fprintf(stderr, "%s: no usable libcuda.so.1: %s\n", program_invocation_short_name,
			driver_library ? "a function is missing" : dlerror());
		exit(77);
	}
	simulated = dlsym(driver_library, "sim_calls") != NULL;
}

/* The first device's primary context becomes the current one. */
static inline void gpu_open_context(void)
{
	CUdevice device;
	CUcontext context;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
}

static inline void gpu_open(void)
{
	gpu_open_driver();
	gpu_open_context();
}

#endif
