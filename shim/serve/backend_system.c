/*
 * backend_system.c: the backend of system memory: pages of the process, from mmap, at one address for both sides if
 * the device reaches pageable memory (HMM, ATS); else, if the policy wants it, registered with the driver, where that
 * gives them the same address on the device. The driver knows nothing of the former, and answers as for host memory
 * for the latter: so all answers about such a block are ours (entry_query.c), and they are those of a heap block,
 * with a host pointer in addition.
 */
#include "shim/serve/backend.h"
#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/faults/faults.h"
#include "shim/base/log.h"
#include "shim/serve/deferred_free.h"
#include "shim/driver/real.h"
#include "shim/stats/stats.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A transparent huge page of x86-64, and of aarch64 with pages of 4 KiB. */
#define HUGE_PAGE ((size_t)2 << 20)
/* From linux/mempolicy.h: preferred, not bound; if the node is full, memory of another one is better than none. */
#define PREFERRED 1

static const struct backend_system_settings no_settings = {.numa_node = -1};

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

/* Whole pages are mapped, and pinned where they are registered: what is counted must be that. 64 KiB on many Arm machines. */
static size_t page_bytes(const struct backend_system_settings *settings)
{
	return settings->huge ? HUGE_PAGE : (size_t)sysconf(_SC_PAGESIZE);
}

/* Aligned to huge pages, if the policy wants them: the kernel only makes them of aligned ranges. */
static void *map_pages(size_t bytes, const struct backend_system_settings *settings)
{
	size_t align = settings->huge ? HUGE_PAGE : 0, spare;
	char *at = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	spare = align ? -(size_t)at & (align - 1) : 0;
	if (spare)
		munmap(at, spare);
	at += spare;
	if (align > spare)
		munmap(at + bytes, align - spare);
	if (settings->huge)
		madvise(at, bytes, MADV_HUGEPAGE);
	/* The child of a fork gets no device memory, and the device's pages are never copied on write. */
	madvise(at, bytes, MADV_DONTFORK);
	go_to_node(at, bytes, settings->numa_node);
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

static void unregister_pages(void *at, size_t bytes)
{
	REAL(cuMemHostUnregister)(at);
	budget_give(&host_budget, bytes);
}

static enum sw_status system_alloc(struct device *device, const struct backend_request *request, struct ledger_row *row,
				   size_t *ret_pitch)
{
	const struct backend_system_settings *settings = request->system ? request->system : &no_settings;
	size_t page = page_bytes(settings), bytes = (request->bytes + page - 1) & ~(page - 1);
	enum sw_status status = SW_OK;

	if (!device->pageable && !settings->register_pages) {
		log_once(
		    "device %d does not reach pages of the process (pageableMemoryAccess is 0), and the policy says "
		    "register: no; the next choice is taken, at last the driver",
		    device->ordinal);
		return SW_NOT_SUPPORTED;
	}
	int saved = errno;
	void *at = bytes >= request->bytes ? map_pages(bytes, settings) : NULL;
	if (!at)
		status = SW_NO_MEMORY;
	else if (!device->pageable)
		status = register_pages(device, at, bytes);
	errno = saved;
	if (status != SW_OK)
		goto unmap;
	if (!ledger_span(row)) {
		status = SW_NO_HOST_MEMORY;
		goto release;
	}
	/* Registered pages are pinned and never fault. */
	if (device->pageable)
		faults_start();
	row->kind = LEDGER_SYSTEM;
	row->home = &backend_system;
	row->key = (uintptr_t)at;
	row->system.mapped = bytes;
	row->system.registered = !device->pageable;
	stats_live_add(row->device, PLACE_SYSTEM, row->bytes);
	if (request->height)
		*ret_pitch = request->bytes / request->height;
	return SW_OK;

release:
	if (!device->pageable)
		unregister_pages(at, bytes);
unmap:
	if (at)
		munmap(at, bytes);
	errno = saved;
	return status;
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
    .name = "system",
    .alloc = system_alloc,
    .free = backend_free_idle,
    .release = system_release,
};
