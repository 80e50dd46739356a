/*
 * Lists the devices through the CUDA driver. This is the only place in the tool's common code that opens the driver,
 * which is only asked for attributes: no context is created.
 */
#include "tools/common/gpu.h"

#include <cuda.h>
#include <dlfcn.h>

static struct policy_device devices[GPU_MOST];

static struct policy_device look_at(__typeof__(&cuDeviceGetAttribute) get, CUdevice device)
{
	static const CUdevice_attribute asked[] = {
	    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
	    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
	    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
	    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
	    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
	    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
	    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
	};
	int has[sizeof(asked) / sizeof(*asked)] = {0};

	/* A device lacks an attribute that an older driver does not know. */
	for (unsigned i = 0; i < sizeof(asked) / sizeof(*asked); i++)
		if (get(&has[i], asked[i], device) != CUDA_SUCCESS)
			has[i] = 0;
	return (struct policy_device){
	    .heap = has[0],
	    .heap_on_host = has[1] || has[2],
	    .managed = has[3] && has[4],
	    .pageable = has[5],
	    .registers = has[6],
	};
}

static int gpu_look(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	__typeof__(&cuInit) init = driver ? (__typeof__(&cuInit))dlsym(driver, "cuInit") : NULL;
	__typeof__(&cuDeviceGetCount) count =
	    driver ? (__typeof__(&cuDeviceGetCount))dlsym(driver, "cuDeviceGetCount") : NULL;
	__typeof__(&cuDeviceGetAttribute) get =
	    driver ? (__typeof__(&cuDeviceGetAttribute))dlsym(driver, "cuDeviceGetAttribute") : NULL;
	int n = 0;

	if (!init || !count || !get || init(0) != CUDA_SUCCESS || count(&n) != CUDA_SUCCESS)
		return 0;
	n = n > GPU_MOST ? GPU_MOST : n;
	for (int i = 0; i < n; i++)
		devices[i] = look_at(get, i);
	return n;
}

int gpu_devices(const struct policy_device **ret_devices)
{
	static int known = -1;

	if (known < 0)
		known = gpu_look();
	*ret_devices = devices;
	return known;
}
