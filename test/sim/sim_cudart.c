// SPDX-License-Identifier: Apache-2.0
/*
 * sim_cudart.c: a small libcudart for the simulated driver. The real one refuses a driver that is not NVIDIA's.
 *
 * It reaches the driver the way the real one does (docs/facts.md, Reaching the driver), because that way is what a shim
 * has to stand in: dlopen("libcuda.so.1"), one dlsym(handle, "cuGetProcAddress_v2"), then every function by base name,
 * version and flags; the empty name first; cuGetProcAddress itself at 11030 and at 12000; some names a second time with
 * flag 2.
 *
 * The primary context of a device is retained at the first call that needs one. A kernel's host-side handle is the
 * address of its struct sim_kernel: the first launch in a context loads a one-kernel module.
 */
#include "sim_cudart.h"
#include "sim.h"
#include <dlfcn.h>

typedef CUresult (*get_proc_fn)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

struct sim_driver sim_driver;

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

	start_error = cudaErrorInsufficientDriver;
	if (!handle)
		return;
	get_proc_fn get = (get_proc_fn)dlsym(handle, "cuGetProcAddress_v2");
	if (!get)
		return;
	*(void **)&driver_pointer = dlsym(handle, "sim_pointer");
	get("", &unused, 2000, 0, NULL);
	get("cuGetProcAddress", &unused, 11030, 0, &status);
	get("cuGetProcAddress", &unused, 12000, 0, &status);
#define ROW(name, version)                                                                                             \
	if (get(#name, (void **)&sim_driver.name##_, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status) ||           \
	    !sim_driver.name##_)                                                                                       \
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

cudaError_t sim_done(cudaError_t error)
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

cudaError_t sim_ready(void)
{
	cudaError_t error = driver_ready();
	CUcontext context = NULL;

	if (error)
		return error;
	error = (cudaError_t)CALL(cuCtxGetCurrent, &context);
	if (error)
		return error;
	pthread_mutex_lock(&lock);
	bool retained = primary[this_device].retained;
	if (!retained && (!context || context == primary[this_device].context)) {
		error = (cudaError_t)CALL(cuDevicePrimaryCtxRetain, &primary[this_device].context, this_device);
		primary[this_device].retained = !error;
	}
	if (!error && !context)
		error = (cudaError_t)CALL(cuCtxSetCurrent, primary[this_device].context);
	pthread_mutex_unlock(&lock);
	return error;
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

SIM_EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t error = driver_ready();

	*count = 0;
	return sim_done(error ? error : (cudaError_t)CALL(cuDeviceGetCount, count));
}

SIM_EXPORT cudaError_t cudaSetDevice(int device)
{
	cudaError_t error = driver_ready();
	int count = 0;

	error = error ?: (cudaError_t)CALL(cuDeviceGetCount, &count);
	if (error)
		return sim_done(error);
	if (device < 0 || device >= count || device >= DEVICES_MAX)
		return sim_done(cudaErrorInvalidDevice);
	this_device = device;
	CALL(cuCtxSetCurrent, NULL);
	return sim_done(sim_ready());
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
		return sim_done(error);
	memset(prop, 0, sizeof(*prop));
	error = (cudaError_t)CALL(cuDeviceGetName, prop->name, sizeof(prop->name), device);
	if (error)
		return sim_done(error);
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
		return sim_done(error);
	pthread_mutex_lock(&lock);
	for (struct loaded *at = loaded; at; at = at->next)
		if (at->context == primary[this_device].context)
			at->context = NULL;
	primary[this_device].retained = false;
	pthread_mutex_unlock(&lock);
	error = (cudaError_t)CALL(cuDevicePrimaryCtxReset, this_device);
	last_error = cudaSuccess;
	return sim_done(error);
}

RUNTIME(cudaDeviceSynchronize, (void), CALL(cuCtxSynchronize))

/* ---- streams, events ---- */

RUNTIME(cudaStreamCreate, (cudaStream_t * stream), CALL(cuStreamCreate, stream, 0))
RUNTIME(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags), CALL(cuStreamCreate, stream, flags))
RUNTIME(cudaStreamDestroy, (cudaStream_t stream), CALL(cuStreamDestroy, stream))
RUNTIME(cudaStreamSynchronize, (cudaStream_t stream), CALL(cuStreamSynchronize, stream))
RUNTIME(cudaStreamQuery, (cudaStream_t stream), CALL(cuStreamQuery, stream))
RUNTIME(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
	CALL(cuStreamWaitEvent, stream, event, flags))
RUNTIME(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
	CALL(cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode))
RUNTIME(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph), CALL(cuStreamEndCapture, stream, graph))
RUNTIME(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), CALL(cuEventCreate, event, flags))
RUNTIME(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), CALL(cuEventRecord, event, stream))
RUNTIME(cudaEventQuery, (cudaEvent_t event), CALL(cuEventQuery, event))
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
	result = result ?: CALL(cuModuleGetFunction, &at->function, module, kernel->name);
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
	cudaError_t error = sim_ready();

	if (!error && !func)
		error = cudaErrorInvalidDeviceFunction;
	error = error ?: (cudaError_t)function_of(&function, func);
	return sim_done(error
			    ?: (cudaError_t)CALL(cuLaunchKernel, function, grid.x, grid.y, grid.z, block.x, block.y,
						 block.z, (unsigned)shared, stream, args, NULL));
}

RUNTIME(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
	CALL(cuGraphInstantiate, exec, graph, flags))
RUNTIME(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), CALL(cuGraphLaunch, exec, stream))
RUNTIME(cudaGraphDestroy, (cudaGraph_t graph), CALL(cuGraphDestroy, graph))
RUNTIME(cudaGraphExecDestroy, (cudaGraphExec_t exec), CALL(cuGraphExecDestroy, exec))
