// SPDX-License-Identifier: Apache-2.0
/*
 * sim_context.c: contexts, those that programs make and the primary one of each device: which is current, and what is
 * answered for ended ones (as driver 580 does, rules_order_test).
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"

static unsigned long long context_ids;

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

/*
 * One whose handle may be given out anew (SIM_REUSE): it was destroyed, and nothing of it goes on. Not a primary one,
 * which lives again by itself, nor a green one's, whose handle is another (sim_green.c).
 */
static CUcontext dead_context(void)
{
	for (CUcontext at = sim.contexts; at && sim.set.reuse; at = at->next)
		if (!at->alive && !at->primary && !at->memory && !at->streams)
			return at;
	return NULL;
}

CUcontext sim_context_new(int device)
{
	CUcontext context = dead_context();

	if (context) {
		context->attached = context->flags = 0;
		context->dead = CUDA_SUCCESS;
	} else {
		context = calloc(1, sizeof(*context));
		context->next = sim.contexts;
		sim.contexts = context;
	}
	context->device = device;
	context->alive = true;
	context->id = ++context_ids;
	return context;
}

/*
 * All memory but that of pools, modules, streams and events of a context go with it, after its work is done; not after
 * that of a green one, for which cuda.h does not promise that.
 */
void sim_context_end(CUcontext context)
{
	for (struct sim_capture *capture = sim_captures; capture; capture = capture->next)
		if (capture->context == context)
			sim_capture_invalidate(capture, "its context was destroyed");
	if (!context->memory)
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

/* The current one is told after its end, too. */
static CUresult device_of(CUdevice *ret_device, CUcontext context)
{
	bool current = !context;

	if (current)
		context = sim_context();
	if (!sim_is_context(context) || !(context->alive || current))
		return CUDA_ERROR_INVALID_CONTEXT;
	return SIM_ANSWER(ret_device, context->device);
}

static CUresult synchronize(CUcontext context)
{
	context = context ?: sim_context();
	if (!sim_is_context(context) || !context->alive)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult result = sim_capture_context_touched(context);
	if (result)
		return result;
	result = sim_wait_context(context);
	sim_pool_trim();
	return result;
}

static CUresult context_id(CUcontext context, unsigned long long *ret_id)
{
	context = context ?: sim_context();
	if (!sim_is_context(context))
		return CUDA_ERROR_INVALID_VALUE;
	return context->alive ? SIM_ANSWER(ret_id, context->id) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* The one question that can be asked of any handle, whatever became of its context. */
static CUresult api_version(CUcontext context, unsigned *ret_version)
{
	context = context ?: sim_context();
	if (!sim_is_context(context) || !context->alive)
		return CUDA_ERROR_INVALID_CONTEXT;
	return SIM_ANSWER(ret_version, 3020);
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

/* No work of a stream: it disturbs no capture, and asked in a dead context it gives the error, as every call there. */
static CUresult priority_range(int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

SPELL_FREE_2(cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice device),
	     create_context(context, flags, device))
SPELL_FREE(cuCtxCreate_v3, (CUcontext * context, CUexecAffinityParam *affinity, int n, unsigned flags, CUdevice device),
	   ((void)affinity, (void)n, create_context(context, flags, device)))
SPELL_FREE(cuCtxCreate_v4, (CUcontext * context, CUctxCreateParams *params, unsigned flags, CUdevice device),
	   ((void)params, create_context(context, flags, device)))
SPELL_FREE_2(cuGLCtxCreate, (CUcontext * context, unsigned flags, CUdevice device),
	     create_context(context, flags, device))
SPELL_FREE_2(cuVDPAUCtxCreate, (CUcontext * context, unsigned flags, CUdevice device, unsigned vdp, void *functions),
	     ((void)vdp, (void)functions, create_context(context, flags, device)))
SPELL_FREE_2(cuCtxDestroy, (CUcontext context), destroy_context(context))
SPELL(cuCtxAttach, (CUcontext * context, unsigned flags), attach(context, flags))
SPELL(cuCtxDetach, (CUcontext context), detach(context))
SPELL_FREE_2(cuCtxPushCurrent, (CUcontext context), push(context))
SPELL_FREE_2(cuCtxPopCurrent, (CUcontext * context), pop(context))
SPELL_FREE(cuCtxSetCurrent, (CUcontext context), set_current(context))
SPELL_FREE(cuCtxGetCurrent, (CUcontext * context), SIM_ANSWER(context, sim_context()))
SPELL_FREE(cuCtxGetDevice, (CUdevice * device), device_of(device, NULL))
SPELL_FREE(cuCtxGetDevice_v2, (CUdevice * device, CUcontext context), device_of(device, context))
SPELL(cuCtxSynchronize, (void), synchronize(NULL))
SPELL_FREE(cuCtxSynchronize_v2, (CUcontext context), synchronize(context))
SPELL_FREE(cuCtxGetId, (CUcontext context, unsigned long long *id), context_id(context, id))
SPELL(cuCtxGetLimit, (size_t * value, CUlimit which), limit(which, value, NULL))
SPELL(cuCtxSetLimit, (CUlimit which, size_t value), limit(which, NULL, &value))
SPELL_FREE(cuCtxGetFlags, (unsigned *flags),
	   sim_context() ? SIM_ANSWER(flags, sim_context()->flags) : CUDA_ERROR_INVALID_CONTEXT)
SPELL(cuCtxSetFlags, (unsigned flags), (sim_context()->flags = flags, CUDA_SUCCESS))
SPELL_FREE(cuCtxGetApiVersion, (CUcontext context, unsigned *version), api_version(context, version))
SPELL(cuCtxGetCacheConfig, (CUfunc_cache * config), SIM_ANSWER(config, CU_FUNC_CACHE_PREFER_NONE))
SPELL(cuCtxSetCacheConfig, (CUfunc_cache config), ((void)config, CUDA_SUCCESS))
SPELL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), priority_range(least, greatest))
SPELL(cuCtxResetPersistingL2Cache, (void), CUDA_SUCCESS)

/* ---- primary contexts ---- */

CUresult sim_primary_retain(CUcontext *ret_context, CUdevice device)
{
	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	struct sim_device *d = &sim.device[device];
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
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	struct sim_device *d = &sim.device[device];
	if (!d->primary_references)
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "released more often than retained");
	if (--d->primary_references == 0 && d->primary->alive)
		sim_context_end(d->primary);
	return CUDA_SUCCESS;
}

/*
 * The context goes whoever holds it. Those who retained it keep a handle to something that was destroyed, and their
 * references: until they are released, too, it lives on when it is retained anew (cuda.h). Nobody promises that green
 * ones outlive it.
 */
static CUresult reset(CUdevice device)
{
	if (!sim_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	struct sim_device *d = &sim.device[device];
	if (d->primary && d->primary->alive)
		sim_context_end(d->primary);
	for (CUcontext part = sim.contexts; part; part = part->next)
		if (part->alive && part->memory && part->memory == d->primary)
			sim_context_end(part);
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
SPELL_FREE_2(cuDevicePrimaryCtxRelease, (CUdevice device), sim_primary_release(device))
SPELL_FREE_2(cuDevicePrimaryCtxReset, (CUdevice device), reset(device))
SPELL_FREE(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active),
	   primary_state(device, flags, active))
SPELL_FREE_2(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned flags), primary_flags(device, flags))
