/*
 * sim_cudart.c: a small libcudart for the simulated driver. The real one refuses a driver that is not NVIDIA's.
 *
 * It reaches the driver the way the real one does (facts section 1), because that way is what a shim has to stand in:
 * dlopen("libcuda.so.1"), one dlsym(handle, "cuGetProcAddress_v2"), then every function by base name, version and
 * flags; the empty name first; cuGetProcAddress itself at 11030 and at 12000; some names a second time with flag 2.
 *
 * The primary context of a device is retained at the first call that needs one. A kernel's host-side handle is the
 * address of its struct sim_kernel: the first launch in a context loads a one-kernel module.
 */
#include "sim_cudart.h"
#include "sim.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* base name, version to ask for; the prototype is the one that cuda.h 13 gives the base name */
#define DRIVER_FUNCTIONS(ROW)                                                                                          \
	ROW(cuInit, 2000)                                                                                              \
	ROW(cuDriverGetVersion, 2020)                                                                                  \
	ROW(cuGetErrorString, 6000)                                                                                    \
	ROW(cuDeviceGet, 2000)                                                                                         \
	ROW(cuDeviceGetCount, 2000)                                                                                    \
	ROW(cuDeviceGetName, 2000)                                                                                     \
	ROW(cuDeviceGetUuid, 11040)                                                                                    \
	ROW(cuDeviceTotalMem, 3020)                                                                                    \
	ROW(cuDeviceGetAttribute, 2000)                                                                                \
	ROW(cuDevicePrimaryCtxRetain, 7000)                                                                            \
	ROW(cuDevicePrimaryCtxReset, 11000)                                                                            \
	ROW(cuCtxGetCurrent, 4000)                                                                                     \
	ROW(cuCtxSetCurrent, 4000)                                                                                     \
	ROW(cuCtxGetDevice, 2000)                                                                                      \
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
	ROW(cuDeviceGetDefaultMemPool, 11020)                                                                          \
	ROW(cuDeviceGetMemPool, 11020)                                                                                 \
	ROW(cuMemPoolSetAttribute, 11020)                                                                              \
	ROW(cuMemPoolGetAttribute, 11020)                                                                              \
	ROW(cuMemPoolTrimTo, 11020)                                                                                    \
	ROW(cuMemHostAlloc, 2020)                                                                                      \
	ROW(cuMemFreeHost, 2000)                                                                                       \
	ROW(cuMemHostRegister, 6050)                                                                                   \
	ROW(cuMemHostUnregister, 4000)                                                                                 \
	ROW(cuMemHostGetDevicePointer, 3020)                                                                           \
	ROW(cuMemPrefetchAsync, 12020)                                                                                 \
	ROW(cuMemAdvise, 12020)                                                                                        \
	ROW(cuIpcGetMemHandle, 4010)                                                                                   \
	ROW(cuPointerGetAttributes, 7000)                                                                              \
	ROW(cuMemcpy, 4000)                                                                                            \
	ROW(cuMemcpyHtoD, 3020)                                                                                        \
	ROW(cuMemcpyDtoH, 3020)                                                                                        \
	ROW(cuMemcpyDtoD, 3020)                                                                                        \
	ROW(cuMemcpyAsync, 4000)                                                                                       \
	ROW(cuMemcpyHtoDAsync, 3020)                                                                                   \
	ROW(cuMemcpyDtoHAsync, 3020)                                                                                   \
	ROW(cuMemcpyDtoDAsync, 3020)                                                                                   \
	ROW(cuMemcpy2DUnaligned, 3020)                                                                                 \
	ROW(cuMemcpy2DAsync, 3020)                                                                                     \
	ROW(cuMemsetD8, 3020)                                                                                          \
	ROW(cuMemsetD8Async, 3020)                                                                                     \
	ROW(cuStreamCreate, 2000)                                                                                      \
	ROW(cuStreamCreateWithPriority, 5050)                                                                          \
	ROW(cuStreamDestroy, 4000)                                                                                     \
	ROW(cuStreamSynchronize, 2000)                                                                                 \
	ROW(cuStreamQuery, 2000)                                                                                       \
	ROW(cuStreamWaitEvent, 3020)                                                                                   \
	ROW(cuStreamBeginCapture, 10010)                                                                               \
	ROW(cuStreamEndCapture, 10000)                                                                                 \
	ROW(cuStreamIsCapturing, 10000)                                                                                \
	ROW(cuThreadExchangeStreamCaptureMode, 10010)                                                                  \
	ROW(cuEventCreate, 2000)                                                                                       \
	ROW(cuEventRecord, 2000)                                                                                       \
	ROW(cuEventSynchronize, 2000)                                                                                  \
	ROW(cuEventQuery, 2000)                                                                                        \
	ROW(cuEventElapsedTime, 12080)                                                                                 \
	ROW(cuEventDestroy, 4000)                                                                                      \
	ROW(cuLaunchKernel, 4000)                                                                                      \
	ROW(cuLaunchHostFunc, 10000)                                                                                   \
	ROW(cuGraphInstantiate, 12000)                                                                                 \
	ROW(cuGraphLaunch, 10000)                                                                                      \
	ROW(cuGraphDestroy, 10000)                                                                                     \
	ROW(cuGraphExecDestroy, 10000)

typedef CUresult (*get_proc_fn)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static struct {
#define ROW(name, version) __typeof__(name) *name##_;
	DRIVER_FUNCTIONS(ROW)
#undef ROW
} driver;
#define CALL(name, ...) driver.name##_(__VA_ARGS__)

static pthread_once_t started = PTHREAD_ONCE_INIT;
static cudaError_t start_error;
static void *(*driver_pointer)(CUdeviceptr);
static __thread int this_device;
static __thread cudaError_t last_error;

#define DEVICES_MAX 64
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	CUcontext context;
	bool retained;
} primary[DEVICES_MAX];
static struct loaded {
	struct loaded *next;
	const struct sim_kernel *kernel;
	CUcontext context;
	CUfunction function;
	struct sim_module image;
} * loaded;

static void start(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW), *unused = NULL;
	CUdriverProcAddressQueryResult status;
	get_proc_fn get;

	start_error = cudaErrorInsufficientDriver;
	if (!handle)
		return;
	get = (get_proc_fn)dlsym(handle, "cuGetProcAddress_v2");
	if (!get)
		return;
	*(void **)&driver_pointer = dlsym(handle, "sim_pointer");
	get("", &unused, 2000, 0, NULL);
	get("cuGetProcAddress", &unused, 11030, 0, &status);
	get("cuGetProcAddress", &unused, 12000, 0, &status);
#define ROW(name, version)                                                                                             \
	if (get(#name, (void **)&driver.name##_, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status) ||               \
	    !driver.name##_)                                                                                           \
		return;
	DRIVER_FUNCTIONS(ROW)
#undef ROW
	get("cuLaunchKernel", &unused, 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL);
	get("cuMemcpyAsync", &unused, 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL);
	get("cuMemcpyHtoD", &unused, 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL);
	get("cuMemAllocAsync", &unused, 11020, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL);
	get("cuGraphLaunch", &unused, 10000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL);
	start_error = (cudaError_t)CALL(cuInit, 0);
}

/* The numbers of CUresult and cudaError_t are the same where both exist. 700 and its like stay until the reset. */
static bool is_sticky(cudaError_t error)
{
	return error >= cudaErrorIllegalAddress && error < cudaErrorNotPermitted &&
	       error != cudaErrorPeerAccessAlreadyEnabled && error != cudaErrorPeerAccessNotEnabled &&
	       error != cudaErrorHostMemoryAlreadyRegistered && error != cudaErrorHostMemoryNotRegistered;
}

static cudaError_t done(cudaError_t error)
{
	if (error && !is_sticky(last_error))
		last_error = error;
	return error;
}

static cudaError_t driver_ready(void)
{
	pthread_once(&started, start);
	return start_error;
}

/* A current context: the program's own, or the primary one of this thread's device. */
static cudaError_t ready(void)
{
	cudaError_t error = driver_ready();
	CUcontext context = NULL;
	bool retained;

	if (error)
		return error;
	error = (cudaError_t)CALL(cuCtxGetCurrent, &context);
	if (error)
		return error;
	pthread_mutex_lock(&lock);
	retained = primary[this_device].retained;
	if (!retained && (!context || context == primary[this_device].context)) {
		error = (cudaError_t)CALL(cuDevicePrimaryCtxRetain, &primary[this_device].context, this_device);
		primary[this_device].retained = !error;
	}
	if (!error && !context)
		error = (cudaError_t)CALL(cuCtxSetCurrent, primary[this_device].context);
	pthread_mutex_unlock(&lock);
	return error;
}

/* All calls look alike: get ready, call, remember the error. */
#define RUNTIME(name, params, ...)                                                                                     \
	SIM_EXPORT cudaError_t name params                                                                             \
	{                                                                                                              \
		cudaError_t error = ready();                                                                           \
		return done(error ? error : (cudaError_t)(__VA_ARGS__));                                               \
	}

SIM_EXPORT void *sim_pointer(CUdeviceptr address)
{
	pthread_once(&started, start);
	return driver_pointer ? driver_pointer(address) : (void *)(uintptr_t)address;
}

/* ---- errors, devices ---- */

SIM_EXPORT cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last_error;

	if (!is_sticky(error))
		last_error = cudaSuccess;
	return error;
}

SIM_EXPORT cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

SIM_EXPORT const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;

	if (!driver_ready())
		CALL(cuGetErrorString, (CUresult)error, &text);
	return text ? text : cudaGetErrorName(error);
}

SIM_EXPORT cudaError_t cudaDriverGetVersion(int *version)
{
	*version = 0;
	return driver_ready() == cudaErrorInsufficientDriver ? cudaSuccess
							     : done((cudaError_t)CALL(cuDriverGetVersion, version));
}

SIM_EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = 13000;
	return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t error = driver_ready();

	*count = 0;
	return done(error ? error : (cudaError_t)CALL(cuDeviceGetCount, count));
}

SIM_EXPORT cudaError_t cudaSetDevice(int device)
{
	cudaError_t error = driver_ready();
	int count = 0;

	if (!error)
		error = (cudaError_t)CALL(cuDeviceGetCount, &count);
	if (error)
		return done(error);
	if (device < 0 || device >= count || device >= DEVICES_MAX)
		return done(cudaErrorInvalidDevice);
	this_device = device;
	CALL(cuCtxSetCurrent, NULL);
	return done(ready());
}

SIM_EXPORT cudaError_t cudaGetDevice(int *device)
{
	cudaError_t error = driver_ready();
	CUcontext context = NULL;

	if (error)
		return done(error);
	*device = this_device;
	if (!CALL(cuCtxGetCurrent, &context) && context)
		CALL(cuCtxGetDevice, device);
	return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
	cudaError_t error = driver_ready();

	return done(error ? error : (cudaError_t)CALL(cuDeviceGetAttribute, value, (CUdevice_attribute)which, device));
}

static int attribute(CUdevice_attribute which, int device)
{
	int value = 0;

	CALL(cuDeviceGetAttribute, &value, which, device);
	return value;
}

SIM_EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	cudaError_t error = driver_ready();

	if (error)
		return done(error);
	memset(prop, 0, sizeof(*prop));
	error = (cudaError_t)CALL(cuDeviceGetName, prop->name, sizeof(prop->name), device);
	if (error)
		return done(error);
	CALL(cuDeviceGetUuid, (CUuuid *)&prop->uuid, device);
	CALL(cuDeviceTotalMem, &prop->totalGlobalMem, device);
	prop->major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
	prop->minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
	prop->multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	prop->warpSize = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
	prop->maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device);
	prop->maxThreadsPerMultiProcessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
	prop->sharedMemPerBlock = (size_t)attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device);
	prop->l2CacheSize = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
	prop->asyncEngineCount = attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, device);
	prop->unifiedAddressing = attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device);
	prop->managedMemory = attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device);
	prop->concurrentManagedAccess = attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
	prop->concurrentKernels = attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, device);
	prop->canMapHostMemory = attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, device);
	prop->memoryPoolsSupported = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device);
	return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaDeviceReset(void)
{
	cudaError_t error = driver_ready();

	if (error)
		return done(error);
	pthread_mutex_lock(&lock);
	for (struct loaded *at = loaded; at; at = at->next)
		if (at->context == primary[this_device].context)
			at->context = NULL;
	primary[this_device].retained = false;
	pthread_mutex_unlock(&lock);
	error = (cudaError_t)CALL(cuDevicePrimaryCtxReset, this_device);
	last_error = cudaSuccess;
	return done(error);
}

RUNTIME(cudaDeviceSynchronize, (void), CALL(cuCtxSynchronize))

/* ---- memory ---- */

#define PTR(p) ((CUdeviceptr)(uintptr_t)(p))

SIM_EXPORT cudaError_t cudaMalloc(void **address, size_t bytes)
{
	cudaError_t error = ready();

	if (!error && !address)
		error = cudaErrorInvalidValue;
	if (!error && !bytes)
		*address = NULL;
	else if (!error)
		error = (cudaError_t)CALL(cuMemAlloc, (CUdeviceptr *)address, bytes);
	return done(error);
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
RUNTIME(cudaHostRegister, (void *address, size_t bytes, unsigned flags), CALL(cuMemHostRegister, address, bytes, flags))
RUNTIME(cudaHostUnregister, (void *address), CALL(cuMemHostUnregister, address))
RUNTIME(cudaHostGetDevicePointer, (void **device, void *host, unsigned flags),
	CALL(cuMemHostGetDevicePointer, (CUdeviceptr *)device, host, flags))
RUNTIME(cudaMemGetInfo, (size_t * ret_free, size_t *ret_total), CALL(cuMemGetInfo, ret_free, ret_total))
RUNTIME(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device), CALL(cuDeviceGetDefaultMemPool, pool, device))
RUNTIME(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int device), CALL(cuDeviceGetMemPool, pool, device))
RUNTIME(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value),
	CALL(cuMemPoolSetAttribute, pool, (CUmemPool_attribute)which, value))
RUNTIME(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value),
	CALL(cuMemPoolGetAttribute, pool, (CUmemPool_attribute)which, value))
RUNTIME(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), CALL(cuMemPoolTrimTo, pool, keep))
RUNTIME(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *address),
	CALL(cuIpcGetMemHandle, (CUipcMemHandle *)handle, PTR(address)))
RUNTIME(cudaMemPrefetchAsync,
	(const void *address, size_t bytes, struct cudaMemLocation location, unsigned flags, cudaStream_t stream),
	CALL(cuMemPrefetchAsync, PTR(address), bytes,
	     (CUmemLocation){.type = (CUmemLocationType)location.type, .id = location.id}, flags, stream))
RUNTIME(cudaMemAdvise,
	(const void *address, size_t bytes, enum cudaMemoryAdvise advice, struct cudaMemLocation location),
	CALL(cuMemAdvise, PTR(address), bytes, (CUmem_advise)advice,
	     (CUmemLocation){.type = (CUmemLocationType)location.type, .id = location.id}))

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

static CUresult copy2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
		       bool async, CUstream stream)
{
	CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .srcDevice = PTR(src),
			       .srcPitch = src_pitch,
			       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .dstDevice = PTR(dst),
			       .dstPitch = dst_pitch,
			       .WidthInBytes = width,
			       .Height = height};

	return async ? CALL(cuMemcpy2DAsync, &plane, stream) : CALL(cuMemcpy2DUnaligned, &plane);
}

RUNTIME(cudaMemcpy, (void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind), copy(dst, src, bytes, kind))
RUNTIME(cudaMemcpyAsync, (void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
	copy_async(dst, src, bytes, kind, stream))
RUNTIME(cudaMemcpy2D,
	(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
	 enum cudaMemcpyKind kind),
	((void)kind, copy2d(dst, dst_pitch, src, src_pitch, width, height, false, NULL)))
RUNTIME(cudaMemcpy2DAsync,
	(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
	 enum cudaMemcpyKind kind, cudaStream_t stream),
	((void)kind, copy2d(dst, dst_pitch, src, src_pitch, width, height, true, stream)))
RUNTIME(cudaMemset, (void *dst, int value, size_t bytes), CALL(cuMemsetD8, PTR(dst), (unsigned char)value, bytes))
RUNTIME(cudaMemsetAsync, (void *dst, int value, size_t bytes, cudaStream_t stream),
	CALL(cuMemsetD8Async, PTR(dst), (unsigned char)value, bytes, stream))

SIM_EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *ret, const void *address)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
				       CU_POINTER_ATTRIBUTE_IS_MANAGED};
	unsigned type = 0, managed = 0;
	int device = 0;
	CUdeviceptr device_address = 0;
	void *host = NULL, *values[] = {&type, &device, &device_address, &host, &managed};
	cudaError_t error = ready();

	if (!error)
		error = (cudaError_t)CALL(cuPointerGetAttributes, 5, which, values, PTR(address));
	if (error)
		return done(error);
	memset(ret, 0, sizeof(*ret));
	ret->type = (managed & 255)                ? cudaMemoryTypeManaged
		    : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
		    : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
						   : cudaMemoryTypeUnregistered;
	ret->device = type ? device : -2;
	ret->devicePointer = (void *)(uintptr_t)device_address;
	ret->hostPointer = type ? host : (void *)(uintptr_t)address;
	return cudaSuccess;
}

/* ---- streams, events ---- */

RUNTIME(cudaStreamCreate, (cudaStream_t * stream), CALL(cuStreamCreate, stream, 0))
RUNTIME(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags), CALL(cuStreamCreate, stream, flags))
RUNTIME(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority),
	CALL(cuStreamCreateWithPriority, stream, flags, priority))
RUNTIME(cudaStreamDestroy, (cudaStream_t stream), CALL(cuStreamDestroy, stream))
RUNTIME(cudaStreamSynchronize, (cudaStream_t stream), CALL(cuStreamSynchronize, stream))
RUNTIME(cudaStreamQuery, (cudaStream_t stream), CALL(cuStreamQuery, stream))
RUNTIME(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
	CALL(cuStreamWaitEvent, stream, event, flags))
RUNTIME(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
	CALL(cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode))
RUNTIME(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph), CALL(cuStreamEndCapture, stream, graph))
RUNTIME(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
	CALL(cuStreamIsCapturing, stream, (CUstreamCaptureStatus *)status))
RUNTIME(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode),
	CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode))
RUNTIME(cudaEventCreate, (cudaEvent_t * event), CALL(cuEventCreate, event, 0))
RUNTIME(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), CALL(cuEventCreate, event, flags))
RUNTIME(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), CALL(cuEventRecord, event, stream))
RUNTIME(cudaEventSynchronize, (cudaEvent_t event), CALL(cuEventSynchronize, event))
RUNTIME(cudaEventQuery, (cudaEvent_t event), CALL(cuEventQuery, event))
RUNTIME(cudaEventElapsedTime, (float *ms, cudaEvent_t from, cudaEvent_t to), CALL(cuEventElapsedTime, ms, from, to))
RUNTIME(cudaEventDestroy, (cudaEvent_t event), CALL(cuEventDestroy, event))
RUNTIME(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t fn, void *data),
	CALL(cuLaunchHostFunc, stream, fn, data))

/* ---- kernels, graphs ---- */

static CUresult function_of(CUfunction *ret_function, const struct sim_kernel *kernel)
{
	struct loaded *at;
	CUcontext context;
	CUmodule module;
	CUresult result = CALL(cuCtxGetCurrent, &context);

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	for (at = loaded; at && (at->kernel != kernel || at->context != context); at = at->next)
		;
	if (at)
		*ret_function = at->function;
	pthread_mutex_unlock(&lock);
	if (at)
		return CUDA_SUCCESS;
	at = calloc(1, sizeof(*at));
	at->kernel = kernel;
	at->context = context;
	at->image = (struct sim_module){SIM_MODULE_MAGIC, 1, kernel};
	result = CALL(cuModuleLoadData, &module, &at->image);
	if (!result)
		result = CALL(cuModuleGetFunction, &at->function, module, kernel->name);
	if (result) {
		free(at);
		return result;
	}
	*ret_function = at->function;
	pthread_mutex_lock(&lock);
	at->next = loaded;
	loaded = at;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

SIM_EXPORT cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args, size_t shared,
					cudaStream_t stream)
{
	CUfunction function;
	cudaError_t error = ready();

	if (!error && !func)
		error = cudaErrorInvalidDeviceFunction;
	if (!error)
		error = (cudaError_t)function_of(&function, func);
	if (!error)
		error = (cudaError_t)CALL(cuLaunchKernel, function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
					  (unsigned)shared, stream, args, NULL);
	return done(error);
}

RUNTIME(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
	CALL(cuGraphInstantiate, exec, graph, flags))
RUNTIME(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), CALL(cuGraphLaunch, exec, stream))
RUNTIME(cudaGraphDestroy, (cudaGraph_t graph), CALL(cuGraphDestroy, graph))
RUNTIME(cudaGraphExecDestroy, (cudaGraphExec_t exec), CALL(cuGraphExecDestroy, exec))
