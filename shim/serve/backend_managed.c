/*
 * backend_managed.c: the backend of managed memory, for programs that asked for device memory: one address for both
 * sides, more of it than the device has, pages that move where they are touched. The driver moves them; the policy
 * adds advice and prefetch, and if those fail the memory is as good as without.
 *
 * Answers about such a block (entry_query.c): what the driver says of managed memory, with IS_MANAGED 1 and a
 * HOST_POINTER, for that is true, and a library that asks (UCX, MPI) then does the right thing. Two answers are ours:
 * the MEMORY_TYPE is DEVICE, because the program has asked for device memory and passes the pointer to libraries that
 * accept nothing else; and SYNC_MEMOPS can be set and is kept by us, as for heap blocks, where the driver refuses it.
 */
#include "shim/serve/backend.h"
#include "shim/context/capture.h"
#include "shim/faults/faults.h"
#include "shim/base/log.h"
#include "shim/serve/deferred_free.h"
#include "shim/driver/real.h"
#include "shim/stats/stats.h"

static const struct backend_managed_settings no_settings = {.device = -1};

static void backend_managed_advise(const struct ledger_row *row, const struct backend_managed_settings *settings)
{
	CUdevice device = settings->device < 0 ? row->device : settings->device;
	const struct {
		unsigned bit;
		CUmem_advise advice;
		CUdevice device;
	} advice[] = {
	    {BACKEND_READ_MOSTLY, CU_MEM_ADVISE_SET_READ_MOSTLY, device},
	    {BACKEND_PREFER_HOST, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU},
	    {BACKEND_PREFER_DEVICE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device},
	    {BACKEND_ACCESSED_BY_DEVICE, CU_MEM_ADVISE_SET_ACCESSED_BY, device},
	    {BACKEND_ACCESSED_BY_HOST, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU},
	};

	for (size_t i = 0; i < sizeof(advice) / sizeof(advice[0]); i++) {
		if (!(settings->advice & advice[i].bit))
			continue;
		CUresult result = REAL(cuMemAdvise)(row->key, row->bytes, advice[i].advice, advice[i].device);

		if (result != CUDA_SUCCESS)
			log_once("cuMemAdvise(%zu bytes, advice %d, device %d): %s; managed memory goes without it",
				 row->bytes, advice[i].advice, advice[i].device, real_error_name(result));
	}
}

/* The smallest unit that the driver moves (UVM: pages of 64 KiB on x86-64 and aarch64). */
#define PAGE ((size_t)64 << 10)

/*
 * Prefetches a block, or as much of its front as there is room for, to the current device, behind the work of the
 * thread's stream. Nothing waits for it. If anything is in the way, it comes where it is touched.
 */
static void backend_managed_bring(const struct device *device, CUdeviceptr address, size_t bytes)
{
	size_t left, total, headroom = device_headroom(device);
	CUdevice ordinal;

	if (!capture_pause())
		return;
	if (REAL(cuCtxGetDevice)(&ordinal) == CUDA_SUCCESS && REAL(cuMemGetInfo_v2)(&left, &total) == CUDA_SUCCESS &&
	    left >= headroom + PAGE) {
		size_t room = (left - headroom) / PAGE * PAGE;

		REAL(cuMemPrefetchAsync_ptsz)(address, bytes < room ? bytes : room, ordinal, NULL);
	}
	capture_resume();
}

static enum sw_status managed_alloc(struct device *device, const struct backend_request *request,
				    struct ledger_row *row, size_t *ret_pitch)
{
	const struct backend_managed_settings *settings = request->managed ? request->managed : &no_settings;
	CUdeviceptr address = 0;

	if (!device->managed) {
		log_once("device %d has no managed memory that both sides may use at once (concurrentManagedAccess is "
			 "0); the "
			 "next choice is taken, at last the driver",
			 device->ordinal);
		return SW_NOT_SUPPORTED;
	}
	CUresult result = REAL(cuMemAllocManaged)(&address, request->bytes, CU_MEM_ATTACH_GLOBAL);
	if (result != CUDA_SUCCESS)
		return status_of(result);
	if (!ledger_span(row)) {
		REAL(cuMemFree_v2)(address);
		return SW_NO_HOST_MEMORY;
	}
	faults_start();
	row->kind = LEDGER_MANAGED;
	row->home = &backend_managed;
	row->key = address;
	stats_live_add(row->device, PLACE_MANAGED, row->bytes);
	backend_managed_advise(row, settings);
	if (settings->prefetch)
		backend_managed_bring(device, address, request->bytes);
	if (request->height)
		*ret_pitch = request->bytes / request->height;
	return SW_OK;
}

/*
 * The driver itself waits for the context, and ends the memory with it: memory whose context has ended is not freed a
 * second time, another allocation may have the address. The call would invalidate a capture: then returns false, and
 * nothing has happened.
 */
static bool backend_managed_end(struct ledger_row *row, CUresult *ret_result)
{
	*ret_result = CUDA_SUCCESS;
	if (!row->orphan) {
		if (!capture_pause())
			return false;
		*ret_result = REAL(cuMemFree_v2)(row->key);
		capture_resume();
	}
	if (*ret_result != CUDA_SUCCESS)
		return false;
	stats_live_sub(row->device, PLACE_MANAGED, row->bytes);
	ledger_row_free(row);
	return true;
}

/*
 * Memory that the driver refuses to free stays the program's; if the driver may not be asked now, the free is
 * deferred.
 */
static CUresult managed_free(struct ledger_row *row)
{
	CUresult result;

	if (backend_managed_end(row, &result))
		return CUDA_SUCCESS;
	if (result != CUDA_SUCCESS) {
		ledger_commit(row);
		return result;
	}
	stats_add(STAT_deferred_frees, 1);
	deferred_free_add(row);
	return CUDA_SUCCESS;
}

static void managed_release(struct ledger_row *row)
{
	CUresult result;

	if (backend_managed_end(row, &result))
		return;
	row->pending.event = NULL; /* has completed, or ended with its context */
	deferred_free_add(row);
}

const struct backend backend_managed = {
    .name = "managed",
    .alloc = managed_alloc,
    .free = managed_free,
    .release = managed_release,
};
