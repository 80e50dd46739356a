// SPDX-License-Identifier: Apache-2.0
/*
 * sim_cudart.h: what the files of the small runtime share: the driver's functions as sim_cudart.c has found them, and
 * how a call of the runtime's is made of one of them.
 */
#ifndef SIM_CUDART_H
#define SIM_CUDART_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default")))

/* base name, version to ask for; the prototype is the one that cuda.h 13 gives the base name */
#define DRIVER_FUNCTIONS(ROW)                                                                                          \
	ROW(cuInit, 2000)                                                                                              \
	ROW(cuGetErrorString, 6000)                                                                                    \
	ROW(cuDeviceGetCount, 2000)                                                                                    \
	ROW(cuDeviceGetName, 2000)                                                                                     \
	ROW(cuDeviceGetUuid, 11040)                                                                                    \
	ROW(cuDeviceTotalMem, 3020)                                                                                    \
	ROW(cuDeviceGetAttribute, 2000)                                                                                \
	ROW(cuDevicePrimaryCtxRetain, 7000)                                                                            \
	ROW(cuDevicePrimaryCtxReset, 11000)                                                                            \
	ROW(cuCtxGetCurrent, 4000)                                                                                     \
	ROW(cuCtxSetCurrent, 4000)                                                                                     \
	ROW(cuCtxSynchronize, 2000)                                                                                    \
	ROW(cuModuleLoadData, 2000)                                                                                    \
	ROW(cuModuleGetFunction, 2000)                                                                                 \
	ROW(cuMemGetInfo, 3020)                                                                                        \
	ROW(cuMemAlloc, 3020)                                                                                          \
	ROW(cuMemAllocPitch, 3020)                                                                                     \
	ROW(cuMemFree, 3020)                                                                                           \
	ROW(cuMemAllocManaged, 6000)                                                                                   \
	ROW(cuMemAllocAsync, 11020)                                                                                    \
	ROW(cuMemAllocFromPoolAsync, 11020)                                                                            \
	ROW(cuMemFreeAsync, 11020)                                                                                     \
	ROW(cuMemHostAlloc, 2020)                                                                                      \
	ROW(cuMemFreeHost, 2000)                                                                                       \
	ROW(cuIpcGetMemHandle, 4010)                                                                                   \
	ROW(cuMemcpy, 4000)                                                                                            \
	ROW(cuMemcpyHtoD, 3020)                                                                                        \
	ROW(cuMemcpyDtoH, 3020)                                                                                        \
	ROW(cuMemcpyDtoD, 3020)                                                                                        \
	ROW(cuMemcpyAsync, 4000)                                                                                       \
	ROW(cuMemcpyHtoDAsync, 3020)                                                                                   \
	ROW(cuMemcpyDtoHAsync, 3020)                                                                                   \
	ROW(cuMemcpyDtoDAsync, 3020)                                                                                   \
	ROW(cuMemcpy2DUnaligned, 3020)                                                                                 \
	ROW(cuMemsetD8, 3020)                                                                                          \
	ROW(cuMemsetD8Async, 3020)                                                                                     \
	ROW(cuStreamCreate, 2000)                                                                                      \
	ROW(cuStreamDestroy, 4000)                                                                                     \
	ROW(cuStreamSynchronize, 2000)                                                                                 \
	ROW(cuStreamQuery, 2000)                                                                                       \
	ROW(cuStreamWaitEvent, 3020)                                                                                   \
	ROW(cuStreamBeginCapture, 10010)                                                                               \
	ROW(cuStreamEndCapture, 10000)                                                                                 \
	ROW(cuEventCreate, 2000)                                                                                       \
	ROW(cuEventRecord, 2000)                                                                                       \
	ROW(cuEventQuery, 2000)                                                                                        \
	ROW(cuLaunchKernel, 4000)                                                                                      \
	ROW(cuLaunchHostFunc, 10000)                                                                                   \
	ROW(cuGraphInstantiate, 12000)                                                                                 \
	ROW(cuGraphLaunch, 10000)                                                                                      \
	ROW(cuGraphDestroy, 10000)                                                                                     \
	ROW(cuGraphExecDestroy, 10000)

struct sim_driver {
#define ROW(name, version) __typeof__(name) *name##_;
	DRIVER_FUNCTIONS(ROW)
#undef ROW
};
extern struct sim_driver sim_driver;
#define CALL(name, ...) sim_driver.name##_(__VA_ARGS__)
#define PTR(p)          ((CUdeviceptr)(uintptr_t)(p))

/* A current context: the program's own, or the primary one of this thread's device. */
cudaError_t sim_ready(void);
/* Remember the error for cudaGetLastError(), and return it. */
cudaError_t sim_done(cudaError_t error);

/* All calls look alike: get ready, call, remember the error. */
#define RUNTIME(name, params, ...)                                                                                     \
	SIM_EXPORT cudaError_t name params                                                                             \
	{                                                                                                              \
		cudaError_t error = sim_ready();                                                                       \
		return sim_done(error ? error : (cudaError_t)(__VA_ARGS__));                                           \
	}

#endif
