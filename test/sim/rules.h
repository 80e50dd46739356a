// SPDX-License-Identifier: Apache-2.0
/*
 * rules.h: what the programs share that ask a driver for the rules which the simulated one takes from real ones
 * (docs/facts.md). They ask whichever libcuda.so.1 is found: the simulated one in every build, a real one under the
 * label gpu. They link neither: every call goes through the table `cu`.
 *
 * On a real GPU they stay below 256 MiB, touch no managed memory, and do nothing that kills a context.
 */
#ifndef SPILLWAY_TEST_RULES_H
#define SPILLWAY_TEST_RULES_H

#include "test/forms.h"
#include "test/test.h"

#define RULES_FUNCTIONS(ROW)                                                                                           \
	ROW(cuInit)                                                                                                    \
	ROW(cuDeviceGetAttribute)                                                                                      \
	ROW(cuDeviceGetCount)                                                                                          \
	ROW(cuDeviceCanAccessPeer)                                                                                     \
	ROW(cuCtxEnablePeerAccess)                                                                                     \
	ROW(cuCtxDisablePeerAccess)                                                                                    \
	ROW(cuMemcpyPeer)                                                                                              \
	ROW(cuMemcpy3DPeer)                                                                                            \
	ROW(cuCtxCreate)                                                                                               \
	ROW(cuCtxDestroy)                                                                                              \
	ROW(cuCtxGetApiVersion)                                                                                        \
	ROW(cuCtxGetDevice)                                                                                            \
	ROW(cuCtxGetStreamPriorityRange)                                                                               \
	ROW(cuCtxPopCurrent)                                                                                           \
	ROW(cuCtxPushCurrent)                                                                                          \
	ROW(cuDevicePrimaryCtxGetState)                                                                                \
	ROW(cuDevicePrimaryCtxRetain)                                                                                  \
	ROW(cuDevicePrimaryCtxReset)                                                                                   \
	ROW(cuCtxRecordEvent)                                                                                          \
	ROW(cuDevicePrimaryCtxRelease)                                                                                 \
	ROW(cuCtxSetCurrent)                                                                                           \
	ROW(cuCtxSynchronize)                                                                                          \
	ROW(cuGetProcAddress)                                                                                          \
	ROW(cuMemAllocPitch)                                                                                           \
	ROW(cuMemAddressFree)                                                                                          \
	ROW(cuMemAddressReserve)                                                                                       \
	ROW(cuMemAlloc)                                                                                                \
	ROW(cuMemCreate)                                                                                               \
	ROW(cuMemExportToShareableHandle)                                                                              \
	ROW(cuMemImportFromShareableHandle)                                                                            \
	ROW(cuMemFree)                                                                                                 \
	ROW(cuMemFreeAsync)                                                                                            \
	ROW(cuMemAllocAsync)                                                                                           \
	ROW(cuMemGetAccess)                                                                                            \
	ROW(cuMemGetAddressRange)                                                                                      \
	ROW(cuMemGetAllocationGranularity)                                                                             \
	ROW(cuMemGetAllocationPropertiesFromHandle)                                                                    \
	ROW(cuMemHostAlloc)                                                                                            \
	ROW(cuMemFreeHost)                                                                                             \
	ROW(cuMemMap)                                                                                                  \
	ROW(cuMemRelease)                                                                                              \
	ROW(cuMemRetainAllocationHandle)                                                                               \
	ROW(cuMemSetAccess)                                                                                            \
	ROW(cuMemUnmap)                                                                                                \
	ROW(cuMemcpyDtoD)                                                                                              \
	ROW(cuMemcpyDtoH)                                                                                              \
	ROW(cuMemcpyHtoD)                                                                                              \
	ROW(cuMemcpyHtoDAsync)                                                                                         \
	ROW(cuMemsetD8)                                                                                                \
	ROW(cuMemsetD8Async)                                                                                           \
	ROW(cuPointerGetAttribute)                                                                                     \
	ROW(cuPointerGetAttributes)                                                                                    \
	ROW(cuPointerSetAttribute)                                                                                     \
	ROW(cuIpcGetMemHandle)                                                                                         \
	ROW(cuStreamBeginCapture)                                                                                      \
	ROW(cuStreamCreate)                                                                                            \
	ROW(cuStreamDestroy)                                                                                           \
	ROW(cuStreamEndCapture)                                                                                        \
	ROW(cuStreamQuery)                                                                                             \
	ROW(cuStreamSynchronize)                                                                                       \
	ROW(cuEventCreate)                                                                                             \
	ROW(cuEventDestroy)                                                                                            \
	ROW(cuEventQuery)                                                                                              \
	ROW(cuEventRecord)                                                                                             \
	ROW(cuEventSynchronize)                                                                                        \
	ROW(cuGraphAddChildGraphNode)                                                                                  \
	ROW(cuGraphAddMemcpyNode)                                                                                      \
	ROW(cuGraphAddMemsetNode)                                                                                      \
	ROW(cuGraphAddNode)                                                                                            \
	ROW(cuGraphChildGraphNodeGetGraph)                                                                             \
	ROW(cuGraphConditionalHandleCreate)                                                                            \
	ROW(cuGraphCreate)                                                                                             \
	ROW(cuGraphClone)                                                                                              \
	ROW(cuGraphExecDestroy)                                                                                        \
	ROW(cuGraphExecMemcpyNodeSetParams)                                                                            \
	ROW(cuGraphExecUpdate)                                                                                         \
	ROW(cuGraphGetNodes)                                                                                           \
	ROW(cuGraphInstantiate)                                                                                        \
	ROW(cuGraphLaunch)                                                                                             \
	ROW(cuGraphMemcpyNodeGetParams)                                                                                \
	ROW(cuGraphMemcpyNodeSetParams)                                                                                \
	ROW(cuGraphMemsetNodeGetParams)                                                                                \
	ROW(cuGraphNodeGetType)                                                                                        \
	ROW(cuMemcpyDtoDAsync)                                                                                         \
	ROW(cuMemsetD2D32Async)                                                                                        \
	ROW(cuGraphDestroy)                                                                                            \
	ROW(cuThreadExchangeStreamCaptureMode)                                                                         \
	ROW(cuModuleLoadData)                                                                                          \
	ROW(cuModuleGetFunction)                                                                                       \
	ROW(cuLaunchKernel)                                                                                            \
	ROW(cuLaunchHostFunc)                                                                                          \
	ROW(cuStreamWaitEvent)                                                                                         \
	ROW(cuStreamGetCtx)                                                                                            \
	ROW(cuMemGetInfo)                                                                                              \
	ROW(cuMemcpyDtoHAsync)                                                                                         \
	ROW(cuMemcpyPeerAsync)                                                                                         \
	ROW(cuDeviceGetDefaultMemPool)                                                                                 \
	ROW(cuMemAllocFromPoolAsync)                                                                                   \
	ROW(cuMemPoolCreate)                                                                                           \
	ROW(cuMemPoolDestroy)                                                                                          \
	ROW(cuMemPoolGetAttribute)

/* cuda.h gives a base name its newest spelling by #define: the field and the look-up take that one. */
struct rules_driver {
#define ROW(name) __typeof__(name) *name;
	RULES_FUNCTIONS(ROW)
#undef ROW
};
extern struct rules_driver cu;
extern CUcontext rules_context; /* the primary one of device 0, current in the main thread */
extern bool rules_host_vmm;     /* physical memory may lie in host memory */
extern bool rules_simulated;

#define CHUNK         (2 * MIB)
#define RULES_SECONDS 80
#define ok(call)      assert_int_equal((call), CUDA_SUCCESS)
#define is(e, call)   assert_int_equal((call), (e))

/*
 * Prints one line, "rule: <rule>: <found>", and what the library assumes if that is something else. Only of the
 * simulated driver that fails: what a real one does is to be read.
 */
void rules_found(const char *rule, const char *found, const char *assumed);

/*
 * Before the tests: loads the driver and makes the context. 0, or 77 with the reason on stderr: what main() ends with,
 * for there is nothing to ask. After RULES_SECONDS the process ends. After the tests: rules_fini() lets the context go.
 */
int rules_init(void);
void rules_fini(void);

/* Each is made, or the test fails. Streams are non-blocking. */
CUdeviceptr rules_alloc(size_t bytes);
CUstream rules_stream(void);
CUevent rules_event(unsigned flags);
CUgraph rules_graph(void);
CUgraphExec rules_instance(CUgraph graph);

CUmemAllocationProp rules_at_location(CUmemLocationType type);
CUmemGenericAllocationHandle rules_new_handle(size_t bytes, CUmemLocationType type);
CUdeviceptr rules_reserve(size_t bytes);
CUresult rules_set_access(CUdeviceptr at, size_t bytes);
/* Maps a new handle of this size, with access, and releases the handle. */
void rules_map_new(CUdeviceptr at, size_t bytes, CUmemLocationType type);
void rules_unmap_and_free(CUdeviceptr at, size_t bytes);

#endif
