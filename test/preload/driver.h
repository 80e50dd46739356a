// SPDX-License-Identifier: Apache-2.0
/*
 * driver.h: what the preload programs share. They are programs as users write them: they know nothing of Spillway, and
 * what they promise is checked by what the driver API answers and by what the simulated GPU (sim.h) has seen.
 *
 * The driver's functions are reached by the door that DRIVER_DOOR names, so that one program tests every door:
 *   link (default)   the dynamic linker
 *   handle, default  dlsym with dlopen's handle, with RTLD_DEFAULT
 *   proc, proc_v2    cuGetProcAddress in its four- and five-argument form
 */
#ifndef PRELOAD_DRIVER_H
#define PRELOAD_DRIVER_H

#include "test/forms.h"
#include "test/sim/sim.h"

/* clang-format off */
#define DRIVER_FUNCTIONS(ROW)                                                                                          \
	ROW(cuInit) ROW(cuDeviceGet) ROW(cuDeviceTotalMem_v2) ROW(cuDevicePrimaryCtxRetain)                            \
	ROW(cuDevicePrimaryCtxRelease_v2) ROW(cuDevicePrimaryCtxReset_v2) ROW(cuCtxCreate_v2) ROW(cuCtxDestroy_v2)     \
	ROW(cuCtxSetCurrent) ROW(cuCtxGetCurrent) ROW(cuCtxGetDevice) ROW(cuCtxSynchronize)                            \
	ROW(cuCtxPushCurrent_v2) ROW(cuCtxPopCurrent_v2)                                                               \
	ROW(cuMemAlloc_v2) ROW(cuMemAllocPitch_v2) ROW(cuMemAllocManaged) ROW(cuMemFree_v2) ROW(cuMemGetInfo_v2)       \
	ROW(cuMemGetAddressRange_v2) ROW(cuMemAllocAsync) ROW(cuMemFreeAsync) ROW(cuMemHostAlloc) ROW(cuMemFreeHost)   \
	ROW(cuPointerGetAttribute) ROW(cuPointerGetAttributes) ROW(cuPointerSetAttribute) ROW(cuIpcGetMemHandle)       \
	ROW(cuMemcpyHtoD_v2) ROW(cuMemcpyDtoH_v2) ROW(cuMemcpyDtoD_v2) ROW(cuMemcpyPeer) ROW(cuMemsetD32_v2)           \
	ROW(cuMemsetD8Async) ROW(cuMemcpyHtoDAsync_v2) ROW(cuMemcpyDtoHAsync_v2)                                       \
	ROW(cuModuleLoadData) ROW(cuModuleGetFunction) ROW(cuLaunchKernel)                                             \
	ROW(cuStreamCreate) ROW(cuStreamDestroy_v2) ROW(cuStreamSynchronize) ROW(cuStreamBeginCapture_v2)              \
	ROW(cuStreamEndCapture) ROW(cuStreamIsCapturing) ROW(cuEventCreate) ROW(cuEventRecord) ROW(cuEventElapsedTime) \
	ROW(cuMemRangeGetAttributes)                                                                                   \
	ROW(cuGraphInstantiateWithFlags) ROW(cuGraphLaunch) ROW(cuGraphDestroy) ROW(cuGraphExecDestroy)                \
	ROW(cuMemCreate) ROW(cuMemRelease) ROW(cuMemMap) ROW(cuMemUnmap) ROW(cuMemSetAccess) ROW(cuMemAddressReserve)  \
	ROW(cuMemAddressFree) ROW(cuMemRetainAllocationHandle) ROW(cuMemGetAllocationGranularity)
/* clang-format on */

struct driver {
#define FIELD(name) __typeof__(&name) name;
	DRIVER_FUNCTIONS(FIELD)
#undef FIELD
};
extern struct driver cu;

/* Fill cu by the door asked for. Ends the program when the door does not open. */
void driver_open(void);
/* driver_open() if need be, cuInit, and the device's primary context made current. */
CUcontext driver_start(int device);

/* The driver's own function, past everything that stands in front; NULL when it has none of that name. */
void *driver_native(const char *name);
/* The C library's own dlsym. For any handle but RTLD_NEXT it does not matter who calls. */
typedef void *dlsym_function(void *handle, const char *name);
dlsym_function *driver_dlsym(void);
/* "cuMemcpyHtoD_v2_ptds" -> "cuMemcpyHtoD": what cuGetProcAddress is asked for. */
void driver_base_name(const char *name, char *ret_base, size_t room);

/* Is this address mapped by cuMemMap (a heap block), rather than the driver's own cuMemAlloc? */
bool driver_is_heap(CUdeviceptr address);
/* Memory for a test; its tear-down frees what the test has left of it. No more than 256 a test. */
CUdeviceptr driver_alloc(size_t bytes);
void driver_free_rest(void);

/* A kernel of a module, which is loaded into the current context. */
CUfunction driver_function(const void *code, const char *name);
/* A kernel of the shared module, loaded into the current context: "fill" or "copy". */
CUfunction driver_kernel(const char *name);
CUgraphExec driver_instance(CUgraph graph);
/* Ends the stream's capture: an instance of what it has captured; or nothing is left of it. */
CUgraphExec driver_captured(CUstream stream);
void driver_forget_capture(CUstream stream);
CUcontext driver_current(void);
uint64_t driver_attribute(CUpointer_attribute which, CUdeviceptr at); /* one of at most 8 bytes */
/* Memory of the device, by cuMemCreate. */
CUresult driver_create(CUmemGenericAllocationHandle *ret_handle, int device, size_t bytes);
CUdeviceptr driver_managed(size_t bytes);
/* n words of value at address; n words from one place to another. Asynchronous in the stream. */
CUresult driver_fill(CUstream stream, CUdeviceptr address, unsigned value, size_t n);
CUresult driver_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t n);
/* Read n words back and compare; false at the first that differs. */
bool driver_holds(CUdeviceptr address, unsigned value, size_t n);

#define MUST(call) driver_must((call), #call, __FILE__, __LINE__)
/* Anything but success ends the program with status 1 and says where. */
void driver_must(CUresult result, const char *call, const char *file, int line);

#endif
