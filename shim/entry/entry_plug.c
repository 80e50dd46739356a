/*
 * Allocators with the signatures that PyTorch and CuPy expect. They call the same entry points as cuMemAlloc and
 * cuMemFree, with the device's primary context current.
 *
 * PyTorch frees from any thread, often, and in the middle of a step; cuMemFree would wait for the device each time.
 * So the free is deferred until everything that was submitted to the context so far is complete (deferred_free.h),
 * which is as safe and does not wait. The stream that comes with a free says nothing about other streams that have
 * used the memory, so it is ignored.
 */
#define SPILLWAY_API __attribute__((visibility("default")))
#include "shim/spillway.h"

#include "shim/context/context.h"
#include "shim/process/enter.h"
#include "shim/entry/hook.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/serve.h"
#include "shim/serve/account.h"

/*
 * Primary contexts, each retained once: memory allocated in one must not end when the program releases its reference.
 */
static _Atomic(CUcontext) primary[DEVICE_MOST];

static CUcontext primary_of(int device)
{
	CUcontext context, none = NULL;

	if (device < 0 || device >= DEVICE_MOST)
		return NULL;
	context = atomic_load(&primary[device]);
	if (context || cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
		return context;
	if (!atomic_compare_exchange_strong(&primary[device], &none, context))
		cuDevicePrimaryCtxRelease_v2(device);
	return context;
}

static void *entry_plug_allocate(size_t bytes, int device)
{
	CUcontext context = primary_of(device);
	CUdeviceptr address = 0;
	bool pushed;

	if (!bytes || !context || context_enter(context, &pushed) != CUDA_SUCCESS)
		return NULL;
	if (cuMemAlloc_v2(&address, bytes) != CUDA_SUCCESS)
		address = 0;
	context_leave(pushed);
	return (void *)(uintptr_t)address;
}

/* Returns false if the address is not ours, or if the driver cannot record when the context is idle (before 12.5). */
static bool put_off(CUdeviceptr address)
{
	struct enter_scope scope;

	if (!real_has(HOOK_cuCtxRecordEvent) || !enter_serve(&scope))
		return false;
	struct ledger_row *row = serve_take_ours(address);
	if (row) {
		int device = row->device;

		trace_freed(trace_freeing(row));
		stats_add(STAT_frees, 1);
		stats_add(STAT_deferred_frees, 1);
		deferred_free_add(row);
		deferred_free_reap(device);
	}
	enter_leave(&scope, CUDA_SUCCESS);
	return row != NULL;
}

static void give_back(void *address, int device)
{
	CUcontext context = primary_of(device);
	bool pushed = false;

	if (!address || put_off((CUdeviceptr)(uintptr_t)address))
		return;
	if (context && context_enter(context, &pushed) == CUDA_SUCCESS) {
		cuMemFree_v2((CUdeviceptr)(uintptr_t)address);
		context_leave(pushed);
	}
}

void *spillway_torch_alloc(ssize_t size, int device, void *stream)
{
	(void)stream;
	return size > 0 ? entry_plug_allocate((size_t)size, device) : NULL;
}

void spillway_torch_free(void *ptr, ssize_t size, int device, void *stream)
{
	(void)size;
	(void)stream;
	give_back(ptr, device);
}

void *spillway_cupy_malloc(void *param, size_t size, int device)
{
	(void)param;
	return entry_plug_allocate(size, device);
}

void spillway_cupy_free(void *param, void *ptr, int device)
{
	(void)param;
	give_back(ptr, device);
}
