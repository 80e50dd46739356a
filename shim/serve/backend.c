// SPDX-License-Identifier: Apache-2.0
/*
 * backend.c: the backends of managed and of system memory, and the free that is common: wait until the context is idle,
 * then release; else defer the free.
 */
#include "shim/serve/backend.h"
#include "shim/context/context.h"
#include "shim/serve/deferred_free.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"
#include "shim/driver/real.h"
#include "shim/faults/faults.h"
#include "shim/base/log.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * cudaFree promises that work submitted before it is done when it returns. During a capture no thread may wait for
 * that, so the free is deferred. If waiting fails the program gets the driver's error, and the memory, which may
 * still be in use, is deferred too: it is free for the program, and for us when deferred_free.h finds it idle.
 */
CUresult backend_free_idle(struct ledger_row *row)
{
	CUcontext context = row->context;
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	uint64_t before = deferred_free_mark();

	if (capture_pause()) {
		result = context_wait_idle(context);
		capture_resume();
	}
	if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
		submission_faulted();
	if (result != CUDA_SUCCESS) {
		stats_add(STAT_deferred_frees, 1);
		deferred_free_add(row);
		if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
			result = context_died_of(NULL);
		return context_is_gone(result) ? CUDA_SUCCESS : result;
	}
	row->home->release(row);
	deferred_free_context_idle(context, before);
	return CUDA_SUCCESS;
}

/* ---- managed memory ---- */

/*
 * The backend of managed memory, for programs that asked for device memory: one address for both
 * sides, more of it than the device has, pages that move where they are touched. The driver moves them; the policy
 * adds advice and prefetch, and if those fail the memory is as good as without.
 *
 * Answers about such a block (entry_query.c): what the driver says of managed memory, with IS_MANAGED 1 and a
 * HOST_POINTER, for that is true, and a library that asks (UCX, MPI) then does the right thing. Two answers are ours:
 * the MEMORY_TYPE is DEVICE, because the program has asked for device memory and passes the pointer to libraries that
 * accept nothing else; and SYNC_MEMOPS can be set and is kept by us, as for heap blocks, where the driver refuses it.
 */

/* advise: as in struct policy_managed. Of several preferred locations the device has precedence. */
static void backend_managed_advise(const struct ledger_row *row, int advise)
{
	const struct {
		enum policy_advise policy;
		CUmem_advise advice;
		CUdevice device;
	} advice[] = {
	    {POLICY_ADVISE_READ_MOSTLY, CU_MEM_ADVISE_SET_READ_MOSTLY, row->device},
	    {POLICY_ADVISE_PREFERRED_HOST, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU},
	    {POLICY_ADVISE_PREFERRED_DEVICE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, row->device},
	    {POLICY_ADVISE_ACCESSED_BY, CU_MEM_ADVISE_SET_ACCESSED_BY, row->device},
	};

	for (size_t i = 0; i < sizeof(advice) / sizeof(advice[0]); i++) {
		if (!(advise & 1 << advice[i].policy))
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
				    struct ledger_row *row)
{
	const struct policy_managed *settings = request->decision->managed;
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
	backend_managed_advise(row, settings->advise);
	if (settings->prefetch == POLICY_PREFETCH_ON_ALLOC)
		backend_managed_bring(device, address, request->bytes);
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
    .alloc = managed_alloc,
    .free = managed_free,
    .release = managed_release,
};

/* ---- pages of the process ---- */

/*
 * The backend of system memory: pages of the process, from mmap, at one address for both sides if
 * the device reaches pageable memory (HMM, ATS); else, if the policy wants it, registered with the driver, where that
 * gives them the same address on the device. The driver knows nothing of the former, and answers as for host memory
 * for the latter: so all answers about such a block are ours (entry_query.c), and they are those of a heap block,
 * with a host pointer in addition.
 */

/* A transparent huge page of x86-64, and of aarch64 with pages of 4 KiB. */
#define HUGE_PAGE ((size_t)2 << 20)
/* From linux/mempolicy.h: preferred, not bound; if the node is full, memory of another one is better than none. */
#define PREFERRED 1

/* Prefers that node. The kernel takes nodes as bits of longs. */
static void go_to_node(void *at, size_t bytes, int node)
{
	enum { BITS = 8 * sizeof(unsigned long), MOST = 1024 };
	unsigned long mask[MOST / BITS] = {0};
	int saved = errno;

	if (node < 0 || node >= MOST)
		return;
	mask[node / BITS] = 1ul << node % BITS;
	if (syscall(SYS_mbind, at, bytes, PREFERRED, mask, (unsigned long)MOST, 0u))
		log_once("NUMA node %d is none for memory (mbind: error %d); the pages lie where the kernel puts them",
			 node, errno);
	errno = saved;
}

/* Aligned to huge pages, if the policy wants them: the kernel only makes them of aligned ranges. */
static void *map_pages(const struct device *device, size_t bytes, const struct policy_system *settings)
{
	size_t align = settings->huge_pages ? HUGE_PAGE : 0, spare;
	char *at = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	spare = align ? -(size_t)at & (align - 1) : 0;
	if (spare)
		munmap(at, spare);
	at += spare;
	if (align > spare)
		munmap(at + bytes, align - spare);
	if (settings->huge_pages)
		madvise(at, bytes, MADV_HUGEPAGE);
	/* The child of a fork gets no device memory, and the device's pages are never copied on write. */
	madvise(at, bytes, MADV_DONTFORK);
	go_to_node(at, bytes, settings->numa_node == POLICY_NODE_AUTO ? device->node : settings->numa_node);
	return at;
}

/*
 * Turns the driver's error of a registration into a status. All arguments are ours: if they are refused, it is not
 * supported.
 */
static enum sw_status backend_system_refusal(CUresult result, size_t bytes)
{
	char text[32];

	if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_PERMITTED ||
	    result == CUDA_ERROR_NOT_SUPPORTED) {
		log_once("cuMemHostRegister of %s: %s; the next choice is taken, at last the driver",
			 log_bytes(text, sizeof(text), bytes), real_error_name(result));
		return SW_NOT_SUPPORTED;
	}
	return status_of(result);
}

/*
 * Registers the pages, at the same address for the device. Such pages are all pinned, for their life: they count
 * against the host budget, or a program could take more than the machine has.
 */
static enum sw_status register_pages(struct device *device, void *at, size_t bytes)
{
	CUdeviceptr address = 0;

	device_known_budget(device);
	if (!device_take_host(bytes))
		return SW_NO_MEMORY;
	CUresult result =
	    REAL(cuMemHostRegister_v2)(at, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result == CUDA_SUCCESS && REAL(cuMemHostGetDevicePointer_v2)(&address, at, 0) == CUDA_SUCCESS &&
	    address == (uintptr_t)at)
		return SW_OK;
	if (result == CUDA_SUCCESS)
		REAL(cuMemHostUnregister)(at);
	budget_give(&host_budget, bytes);
	if (result != CUDA_SUCCESS)
		return backend_system_refusal(result, bytes);
	log_once(
	    "registered memory has another address on device %d: there is no system memory for it; the next choice "
	    "is taken, at last the driver",
	    device->ordinal);
	return SW_NOT_SUPPORTED;
}

static enum sw_status system_alloc(struct device *device, const struct backend_request *request, struct ledger_row *row)
{
	const struct policy_system *settings = request->decision->system;
	/* Whole pages are mapped, and pinned where they are registered: what is counted must be that. */
	size_t page = settings->huge_pages ? HUGE_PAGE : (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = (request->bytes + page - 1) & ~(page - 1);
	enum sw_status status = SW_OK;

	if (!device->pageable && !settings->register_pages) {
		log_once(
		    "device %d does not reach pages of the process (pageableMemoryAccess is 0), and the policy says "
		    "register: no; the next choice is taken, at last the driver",
		    device->ordinal);
		return SW_NOT_SUPPORTED;
	}
	int saved = errno;
	void *at = bytes >= request->bytes ? map_pages(device, bytes, settings) : NULL;
	if (!at)
		status = SW_NO_MEMORY;
	else if (!device->pageable)
		status = register_pages(device, at, bytes);
	bool registered = status == SW_OK && !device->pageable;
	if (status == SW_OK && !ledger_span(row))
		status = SW_NO_HOST_MEMORY;
	if (status != SW_OK && registered) {
		REAL(cuMemHostUnregister)(at);
		budget_give(&host_budget, bytes);
	}
	if (status != SW_OK && at)
		munmap(at, bytes);
	errno = saved;
	if (status != SW_OK)
		return status;
	/* Registered pages are pinned and never fault. */
	if (device->pageable)
		faults_start();
	row->kind = LEDGER_SYSTEM;
	row->home = &backend_system;
	row->key = (uintptr_t)at;
	row->system.mapped = bytes;
	row->system.registered = registered;
	stats_live_add(row->device, PLACE_SYSTEM, row->bytes);
	return SW_OK;
}

/*
 * A registration ends with its context, if that has ended; else it is ended first, and if the driver refuses that the
 * pages stay: the device may still write to them. A registration must not be ended during a capture.
 */
static void system_release(struct ledger_row *row)
{
	bool ends = row->system.registered && !row->orphan, gone = true;
	int saved = errno;

	if (ends && !capture_pause()) {
		row->pending.event = NULL; /* has completed, or ended with its context */
		deferred_free_add(row);
		return;
	}
	if (ends) {
		bool pushed;
		CUresult entered = context_enter(row->context, &pushed);

		gone =
		    REAL(cuMemHostUnregister)((void *)(uintptr_t)row->key) == CUDA_SUCCESS || context_is_gone(entered);
		context_leave(pushed);
		capture_resume();
	}
	if (gone)
		munmap((void *)(uintptr_t)row->key, row->system.mapped);
	else
		log_once("the driver does not let go of registered memory; %zu bytes of it stay", row->system.mapped);
	if (gone && row->system.registered)
		budget_give(&host_budget, row->system.mapped);
	stats_live_sub(row->device, PLACE_SYSTEM, row->bytes);
	ledger_row_free(row);
	errno = saved;
}

const struct backend backend_system = {
    .alloc = system_alloc,
    .free = backend_free_idle,
    .release = system_release,
};
