/*
 * sim_device.c: devices and contexts; and the model as a whole.
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
 *   sim_query.c    questions about addresses                       sim_copy.c     copies and sets
 *   sim_resolve.c  cuGetProcAddress                                sim_capture.c  capture; sim_graph.c graphs
 *   sim_control.c  sim.h                                           sim_graph_exec.c instances; sim_graph_ask.c questions
 *   sim_managed.c  managed memory and its faults                   sim_advise.c   advice, prefetch, questions about them
 *   sim_uvm.c      what the driver tells about faults             sim_peer.c     memory of other devices
 *   sim_fail.c     calls that fail by order or by chance
 *
 * Where CUDA leaves behaviour open the model is strict: it refuses, with the reason in the log. A context dies of a
 * fault in a kernel or copy; from then on every call that needs it returns the error, and only cuDevicePrimaryCtxReset
 * or cuCtxDestroy ends it. The VMM calls need no context and go on working.
 */
#include "sim_internal.h"
#include <stdio.h>
#include <stdlib.h>

static unsigned long long context_ids;

bool sim_is_device(int device)
{
	return device >= 0 && device < sim.set.devices;
}

/* ---- contexts ---- */

CUcontext sim_context(void)
{
	struct sim_thread *thread = sim_thread();

	return thread->depth ? thread->stack[thread->depth - 1] : NULL;
}

CUresult sim_current(CUcontext *ret_context)
{
	CUcontext context = sim_context();

	if (!context)
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "no current context");
	if (!context->alive)
		return sim_why(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context was destroyed");
	if (context->dead)
		return sim_why(context->dead, "the context is dead");
	*ret_context = context;
	return CUDA_SUCCESS;
}

CUcontext sim_memory_context(void)
{
	CUcontext context = sim_context();

	return context->memory ? context->memory : context;
}

bool sim_is_part(CUcontext part, CUcontext whole)
{
	return part == whole || part->memory == whole;
}

bool sim_is_context(CUcontext context)
{
	for (CUcontext at = sim.contexts; at; at = at->next)
		if (at == context)
			return true;
	return false;
}

CUcontext sim_context_new(int device)
{
	CUcontext context = calloc(1, sizeof(*context));

	context->device = device;
	context->alive = true;
	context->id = ++context_ids;
	context->next = sim.contexts;
	sim.contexts = context;
	return context;
}

/* All memory, modules, streams and events of a context go with it, after its work is done. */
void sim_context_end(CUcontext context)
{
	for (struct sim_capture *capture = sim_captures; capture; capture = capture->next)
		if (capture->context == context)
			sim_capture_invalidate(capture, "its context was destroyed");
	sim_wait_context(context);
	sim_peers_forget_context(context);
	sim_streams_forget_context(context);
	sim_alloc_forget_context(context);
	sim_arrays_forget_context(context);
	sim_modules_forget_context(context);
	context->alive = false;
	context->ends++;
}

static CUresult create_context(CUcontext *ret_context, unsigned flags, CUdevice device)
{
	struct sim_thread *thread = sim_thread();

	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (thread->depth == 16)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "the model's context stack holds 16");
	*ret_context = sim_context_new(device);
	(*ret_context)->flags = flags;
	thread->stack[thread->depth++] = *ret_context;
	return CUDA_SUCCESS;
}

static CUresult destroy_context(CUcontext context)
{
	struct sim_thread *thread = sim_thread();

	if (!sim_is_context(context) || !context->alive || context->primary)
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "not a context of cuCtxCreate");
	sim_context_end(context);
	if (thread->depth && thread->stack[thread->depth - 1] == context)
		thread->depth--;
	return CUDA_SUCCESS;
}

/*
 * One that has ended can be made current: what is asked of it then answers that it was destroyed. The driver has freed
 * what a handle of cuCtxCreate stood for, and ended processes when one was popped.
 */
static void made_current(CUcontext context)
{
	if (context && !context->alive && !context->primary)
		sim_break_rule("a context is made current that was destroyed");
}

/* The old way of several owners of a context: it ends with the last one. */
static CUresult attach(CUcontext *ret_context, unsigned flags)
{
	CUcontext context = sim_context();

	if (!ret_context || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (context->primary)
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "a primary context is retained");
	context->attached++;
	*ret_context = context;
	return CUDA_SUCCESS;
}

static CUresult detach(CUcontext context)
{
	if (context != sim_context() || context->primary)
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "not the current context, or a primary one");
	if (context->attached) {
		context->attached--;
		return CUDA_SUCCESS;
	}
	return destroy_context(context);
}

static CUresult push(CUcontext context)
{
	struct sim_thread *thread = sim_thread();

	if (!sim_is_context(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	made_current(context);
	if (thread->depth == 16)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "the model's context stack holds 16");
	thread->stack[thread->depth++] = context;
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret_context)
{
	struct sim_thread *thread = sim_thread();

	if (!thread->depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	thread->depth--;
	if (ret_context)
		*ret_context = thread->stack[thread->depth];
	return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
	struct sim_thread *thread = sim_thread();

	if (context && !sim_is_context(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	made_current(context);
	if (thread->depth)
		thread->depth--;
	if (context)
		thread->stack[thread->depth++] = context;
	return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret_context)
{
	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_context = sim_context();
	return CUDA_SUCCESS;
}

/* The current one is told after its end, too. */
static CUresult device_of(CUdevice *ret_device, CUcontext context)
{
	bool current = !context;

	if (current)
		context = sim_context();
	if (!ret_device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_is_context(context) || !(context->alive || current))
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_device = context->device;
	return CUDA_SUCCESS;
}

static CUresult synchronize(CUcontext context)
{
	CUresult result;

	if (!context)
		context = sim_context();
	if (!sim_is_context(context) || !context->alive)
		return CUDA_ERROR_INVALID_CONTEXT;
	result = sim_capture_context_touched(context);
	if (result)
		return result;
	result = sim_wait_context(context);
	sim_pool_trim();
	return result;
}

static CUresult context_id(CUcontext context, unsigned long long *ret_id)
{
	if (!context)
		context = sim_context();
	if (!ret_id || !sim_is_context(context))
		return CUDA_ERROR_INVALID_VALUE;
	if (!context->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_id = context->id;
	return CUDA_SUCCESS;
}

/* The one question that can be asked of any handle, whatever became of its context. */
static CUresult api_version(CUcontext context, unsigned *ret_version)
{
	if (!context)
		context = sim_context();
	if (!ret_version)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_is_context(context) || !context->alive)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_version = 3020;
	return CUDA_SUCCESS;
}

static CUresult current_flags(unsigned *ret_flags)
{
	CUcontext context = sim_context();

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ret_flags)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_flags = context->flags;
	return CUDA_SUCCESS;
}

/* Any value put in comes out again; the defaults are a data-centre GPU's. */
static CUresult limit(CUlimit which, size_t *ret_value, const size_t *value)
{
	static size_t limits[CU_LIMIT_MAX] = {[CU_LIMIT_STACK_SIZE] = 1024,
					      [CU_LIMIT_PRINTF_FIFO_SIZE] = (size_t)7 << 20,
					      [CU_LIMIT_MALLOC_HEAP_SIZE] = (size_t)8 << 20};

	if ((unsigned)which >= CU_LIMIT_MAX)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	if (value)
		limits[which] = *value;
	else if (ret_value)
		*ret_value = limits[which];
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult put_int(int *ret_value, int value)
{
	if (!ret_value)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_value = value;
	return CUDA_SUCCESS;
}

static CUresult priority_range(int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

SPELL_FREE(cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice device), create_context(context, flags, device))
SPELL_FREE(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device),
	   create_context(context, flags, device))
SPELL_FREE(cuCtxCreate_v3, (CUcontext * context, CUexecAffinityParam *affinity, int n, unsigned flags, CUdevice device),
	   ((void)affinity, (void)n, create_context(context, flags, device)))
SPELL_FREE(cuCtxCreate_v4, (CUcontext * context, CUctxCreateParams *params, unsigned flags, CUdevice device),
	   ((void)params, create_context(context, flags, device)))
SPELL_FREE(cuCtxDestroy, (CUcontext context), destroy_context(context))
SPELL_FREE(cuCtxDestroy_v2, (CUcontext context), destroy_context(context))
SPELL(cuCtxAttach, (CUcontext * context, unsigned flags), attach(context, flags))
SPELL(cuCtxDetach, (CUcontext context), detach(context))
SPELL_FREE(cuCtxPushCurrent, (CUcontext context), push(context))
SPELL_FREE(cuCtxPushCurrent_v2, (CUcontext context), push(context))
SPELL_FREE(cuCtxPopCurrent, (CUcontext * context), pop(context))
SPELL_FREE(cuCtxPopCurrent_v2, (CUcontext * context), pop(context))
SPELL_FREE(cuCtxSetCurrent, (CUcontext context), set_current(context))
SPELL_FREE(cuCtxGetCurrent, (CUcontext * context), get_current(context))
SPELL_FREE(cuCtxGetDevice, (CUdevice * device), device_of(device, NULL))
SPELL_FREE(cuCtxGetDevice_v2, (CUdevice * device, CUcontext context), device_of(device, context))
SPELL(cuCtxSynchronize, (void), synchronize(NULL))
SPELL_FREE(cuCtxSynchronize_v2, (CUcontext context), synchronize(context))
SPELL_FREE(cuCtxGetId, (CUcontext context, unsigned long long *id), context_id(context, id))
SPELL(cuCtxGetLimit, (size_t * value, CUlimit which), limit(which, value, NULL))
SPELL(cuCtxSetLimit, (CUlimit which, size_t value), limit(which, NULL, &value))
SPELL_FREE(cuCtxGetFlags, (unsigned *flags), current_flags(flags))
SPELL(cuCtxSetFlags, (unsigned flags), (sim_context()->flags = flags, CUDA_SUCCESS))
SPELL_FREE(cuCtxGetApiVersion, (CUcontext context, unsigned *version), api_version(context, version))
SPELL(cuCtxGetCacheConfig, (CUfunc_cache * config), put_int((int *)config, 0))
SPELL(cuCtxSetCacheConfig, (CUfunc_cache config), ((void)config, CUDA_SUCCESS))
SPELL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), priority_range(least, greatest))
SPELL(cuCtxResetPersistingL2Cache, (void), CUDA_SUCCESS)

/* ---- primary contexts ---- */

CUresult sim_primary_retain(CUcontext *ret_context, CUdevice device)
{
	struct sim_device *d;

	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	d = &sim.device[device];
	if (!d->primary) {
		d->primary = sim_context_new(device);
		d->primary->primary = true;
	}
	if (!d->primary->alive) {
		d->primary->alive = true;
		d->primary->dead = CUDA_SUCCESS;
	}
	d->primary->flags = d->primary_flags;
	d->primary_references++;
	*ret_context = d->primary;
	return CUDA_SUCCESS;
}

CUresult sim_primary_release(CUdevice device)
{
	struct sim_device *d;

	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	d = &sim.device[device];
	if (!d->primary_references)
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "released more often than retained");
	if (--d->primary_references == 0)
		sim_context_end(d->primary);
	return CUDA_SUCCESS;
}

/* The context goes whoever holds it; those who retained it keep a handle to something that was destroyed. */
static CUresult reset(CUdevice device)
{
	struct sim_device *d;

	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	d = &sim.device[device];
	if (d->primary && d->primary->alive)
		sim_context_end(d->primary);
	d->primary_references = 0;
	return CUDA_SUCCESS;
}

static CUresult primary_state(CUdevice device, unsigned *ret_flags, int *ret_active)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!ret_flags || !ret_active)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_flags = sim.device[device].primary_flags;
	*ret_active = sim.device[device].primary && sim.device[device].primary->alive;
	return CUDA_SUCCESS;
}

static CUresult primary_flags(CUdevice device, unsigned flags)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	sim.device[device].primary_flags = flags;
	return CUDA_SUCCESS;
}

SPELL_FREE(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), sim_primary_retain(context, device))
SPELL_FREE(cuDevicePrimaryCtxRelease, (CUdevice device), sim_primary_release(device))
SPELL_FREE(cuDevicePrimaryCtxRelease_v2, (CUdevice device), sim_primary_release(device))
SPELL_FREE(cuDevicePrimaryCtxReset, (CUdevice device), reset(device))
SPELL_FREE(cuDevicePrimaryCtxReset_v2, (CUdevice device), reset(device))
SPELL_FREE(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active),
	   primary_state(device, flags, active))
SPELL_FREE(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned flags), primary_flags(device, flags))
SPELL_FREE(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned flags), primary_flags(device, flags))

/* ---- devices ---- */

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
	if (!ret_value || (int)which < 1 || which >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (attributes[i].attribute == which)
			value = attributes[i].value;
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
	if (which == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
		value = device + 1;
	*ret_value = value;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *ret_device, int ordinal)
{
	if (!sim_is_device(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	return put_int(ret_device, ordinal);
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
	memcpy(ret_uuid->bytes, "SIMULATED-GPU-0", 16);
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

	if (!ret_device || !text || sscanf(text, "0000:%x:00.0", &bus) != 1 || !sim_is_device((int)bus - 1))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_device = (int)bus - 1;
	return CUDA_SUCCESS;
}

static CUresult capability(int *major, int *minor, CUdevice device)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*major = 9;
	*minor = 0;
	return CUDA_SUCCESS;
}

static CUresult total_mem(size_t *ret_bytes, CUdevice device)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!ret_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_bytes = sim.set.memory;
	return CUDA_SUCCESS;
}

SPELL_RAW(cuInit, (unsigned flags), init(flags))
SPELL_RAW(cuDriverGetVersion, (int *version), put_int(version, 13000))
SPELL_FREE(cuDeviceGet, (CUdevice * device, int ordinal), get_device(device, ordinal))
SPELL_FREE(cuDeviceGetCount, (int *count), put_int(count, sim.set.devices))
SPELL_FREE(cuDeviceGetAttribute, (int *value, CUdevice_attribute which, CUdevice device),
	   attribute(value, which, device))
SPELL_FREE(cuDeviceGetName, (char *name, int bytes, CUdevice device), device_name(name, bytes, device))
SPELL_FREE(cuDeviceGetUuid, (CUuuid * id, CUdevice device), sim_uuid(id, device))
SPELL_FREE(cuDeviceGetUuid_v2, (CUuuid * id, CUdevice device), sim_uuid(id, device))
SPELL_FREE(cuDeviceGetPCIBusId, (char *text, int bytes, CUdevice device), bus_id(text, bytes, device))
SPELL_FREE(cuDeviceGetByPCIBusId, (CUdevice * device, const char *text), by_bus_id(device, text))
SPELL_FREE(cuDeviceComputeCapability, (int *major, int *minor, CUdevice device), capability(major, minor, device))
SPELL_FREE(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device), total_mem(bytes, device))
