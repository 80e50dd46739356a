// SPDX-License-Identifier: Apache-2.0
/*
 * sim_device.c: devices; and the model as a whole.
 *
 * The simulated GPU keeps real bytes behind every address. At cuInit a window of address space is taken. Its lowest S
 * bytes hold the device addresses that programs see: never accessible, so that the host touching device
 * memory faults as on a real machine. Above it each device has a view of its own, device d at p + (1 + d) * S, where
 * physical memory (ranges of one memfd) is really mapped, with the access that this device has: one may reach what
 * another may not (sim_peer.c). Copies, sets and kernels work on the views: kernel parameters are translated before the
 * body runs, and a body translates what it reads from memory by sim_pointer(). Host memory is plain memory,
 * and managed memory has a window of its own (sim_managed.c).
 *
 *   sim_memory.c   window, physical memory, the VMM calls          sim_stream.c   streams; sim_event.c events
 *   sim_alloc.c    cuMemAlloc and kin, host memory                 sim_work.c     work, its order, its threads
 *   sim_pool.c     stream-ordered allocation                       sim_launch.c   modules, kernels, launches
 *   sim_query.c    questions about addresses                       sim_copy.c     copies; sim_memcpy.c the calls
 *   sim_resolve.c  cuGetProcAddress                                sim_capture.c  capture; sim_graph.c graphs
 *   sim_control.c  sim.h                                           sim_graph_exec.c instances; sim_graph_ask.c questions
 *   sim_managed.c  managed memory and its faults                   sim_advise.c   advice, prefetch, questions about them
 *   sim_uvm.c      what the driver tells about faults             sim_peer.c     memory of other devices
 *   sim_fail.c     calls that fail by order or by chance           sim_context.c  contexts; sim_green.c green ones
 *   sim_set.c      sets                                            sim_access.c   who may touch what is mapped
 *
 * Where CUDA leaves behaviour open the model is strict: it refuses, with the reason in the log. A context dies of a
 * fault in a kernel or copy; from then on every call that needs it returns the error, and only cuDevicePrimaryCtxReset
 * or cuCtxDestroy ends it. The VMM calls need no context and go on working.
 */
#include "sim_managed.h"
#include "sim_memory.h"

bool sim_is_device(int device)
{
	return device >= 0 && device < sim.set.devices;
}

static CUresult init(unsigned flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim.initialised)
		return CUDA_SUCCESS;
	if (sim.set.devices < 1)
		return CUDA_ERROR_NO_DEVICE;
	if (!sim_window_open() || !sim_managed_open())
		return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "no address space for the window");
	sim.initialised = true;
	return CUDA_SUCCESS;
}

static const struct {
	CUdevice_attribute attribute;
	int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1},
};

static CUresult attribute(int *ret_value, CUdevice_attribute which, CUdevice device)
{
	int value = 0;

	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if ((int)which < 1 || which >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (attributes[i].attribute == which)
			value = attributes[i].value;
	if (which == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)
		value = sim.set.stream_values;
	if (which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
		value = sim.set.vmm;
	if (which == CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
	    which == CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
		value = sim.set.vmm && sim.set.host_vmm;
	if (which == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)
		value = sim.set.concurrent_managed;
	if (which == CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)
		value = sim.set.same_pointer;
	if (which == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)
		value = sim.set.pageable;
	if (which == CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK)
		value = sim.set.decompress ? CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE : CU_MEM_DECOMPRESS_UNSUPPORTED;
	if (which == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
		value = device + 1;
	return SIM_ANSWER(ret_value, value);
}

static CUresult device_name(char *ret_name, int bytes, CUdevice device)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!ret_name || bytes < 1)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(ret_name, (size_t)bytes, "Spillway simulated GPU");
	return CUDA_SUCCESS;
}

CUresult sim_uuid(CUuuid *ret_uuid, CUdevice device)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!ret_uuid)
		return CUDA_ERROR_INVALID_VALUE;
	const char *name = getenv("SIM_UUID");

	memcpy(ret_uuid->bytes, "SIMULATED-GPU-0", 16);
	for (unsigned i = 0; i < 13 && name && name[i]; i++)
		ret_uuid->bytes[i] = name[i];
	ret_uuid->bytes[14] = (char)('0' + device);
	return CUDA_SUCCESS;
}

static CUresult bus_id(char *ret_text, int bytes, CUdevice device)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!ret_text || bytes < 13)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(ret_text, (size_t)bytes, "0000:%02x:00.0", device + 1);
	return CUDA_SUCCESS;
}

static CUresult by_bus_id(CUdevice *ret_device, const char *text)
{
	unsigned bus;

	if (!text || sscanf(text, "0000:%x:00.0", &bus) != 1 || !sim_is_device((int)bus - 1))
		return CUDA_ERROR_INVALID_VALUE;
	return SIM_ANSWER(ret_device, (int)bus - 1);
}

static CUresult capability(int *major, int *minor, CUdevice device)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*major = 9;
	*minor = 0;
	return CUDA_SUCCESS;
}

SPELL_RAW(cuInit, (unsigned flags), init(flags))
SPELL_RAW(cuDriverGetVersion, (int *version), SIM_ANSWER(version, 13000))
SPELL_FREE(cuDeviceGet, (CUdevice * device, int ordinal),
	   sim_is_device(ordinal) ? SIM_ANSWER(device, ordinal) : CUDA_ERROR_INVALID_DEVICE)
SPELL_FREE(cuDeviceGetCount, (int *count), SIM_ANSWER(count, sim.set.devices))
SPELL_FREE(cuDeviceGetAttribute, (int *value, CUdevice_attribute which, CUdevice device),
	   attribute(value, which, device))
SPELL_FREE(cuDeviceGetName, (char *name, int bytes, CUdevice device), device_name(name, bytes, device))
SPELL_FREE_2(cuDeviceGetUuid, (CUuuid * id, CUdevice device), sim_uuid(id, device))
SPELL_FREE(cuDeviceGetPCIBusId, (char *text, int bytes, CUdevice device), bus_id(text, bytes, device))
SPELL_FREE(cuDeviceGetByPCIBusId, (CUdevice * device, const char *text), by_bus_id(device, text))
SPELL_FREE(cuDeviceComputeCapability, (int *major, int *minor, CUdevice device), capability(major, minor, device))
SPELL_FREE(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device),
	   sim_is_device(device) ? SIM_ANSWER(bytes, sim.set.memory) : CUDA_ERROR_INVALID_DEVICE)
