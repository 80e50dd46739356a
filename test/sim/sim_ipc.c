// SPDX-License-Identifier: Apache-2.0
/*
 * sim_ipc.c: events of one process in another. Such an event is two numbers in a page that both have mapped: how many
 * records there were, and which of them has been reached last. Both sides may record, wait and ask, as cuda.h 13.0
 * says; so does that it must be made without timing. Assumed: a handle is refused in the process that it came from, and
 * a capture takes no such event of another process. A page stays mapped when its event has ended, for records on their
 * way.
 */
#include "sim_context.h"
#include "sim_work.h"
#include <sys/mman.h>

static const char magic[8] = "SIMEVENT";

struct handle {
	char magic[8];
	int pid, file;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcEventHandle), "it fits");

static struct sim_shared *map(int file)
{
	void *at = mmap(NULL, sizeof(struct sim_shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	return at == MAP_FAILED ? NULL : at;
}

CUresult sim_shared_make(CUevent event)
{
	if (!(event->flags & CU_EVENT_INTERPROCESS))
		return CUDA_SUCCESS;
	if (!(event->flags & CU_EVENT_DISABLE_TIMING))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "an event for other processes has no timing");
	event->shared_file = memfd_create("simulated event", MFD_CLOEXEC);
	if (event->shared_file >= 0 && !ftruncate(event->shared_file, sizeof(struct sim_shared)))
		event->shared = map(event->shared_file);
	return event->shared ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

void sim_shared_drop(CUevent event)
{
	if (event->shared)
		close(event->shared_file);
	event->shared = NULL;
}

void sim_shared_reach(struct sim_shared *shared, uint64_t number)
{
	uint64_t now = __atomic_load_n(&shared->reached, __ATOMIC_RELAXED);

	while (now < number &&
	       !__atomic_compare_exchange_n(&shared->reached, &now, number, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

bool sim_shared_is_reached(const struct sim_shared *shared, uint64_t number)
{
	return __atomic_load_n(&shared->reached, __ATOMIC_ACQUIRE) >= number;
}

struct wait {
	struct sim_shared *shared;
	uint64_t number;
};

static void run_wait(struct sim_work *work)
{
	const struct wait *wait = work->owned;
	bool dead = false;
	unsigned tries = 0;

	while (!dead && !sim_shared_is_reached(wait->shared, wait->number)) {
		sim_look_again(&tries);
		sim_lock();
		dead = work->context->dead;
		sim_unlock();
	}
}

CUresult sim_shared_wait(CUstream handle, CUevent event)
{
	uint64_t number = __atomic_load_n(&event->shared->recorded, __ATOMIC_ACQUIRE);

	if (sim_shared_is_reached(event->shared, number))
		return CUDA_SUCCESS;
	struct sim_work *work = sim_work_new("cuStreamWaitEvent", CU_GRAPH_NODE_TYPE_EMPTY, run_wait);
	work->owned_bytes = sizeof(struct wait);
	work->owned = malloc(work->owned_bytes);
	*(struct wait *)work->owned = (struct wait){event->shared, number};
	return sim_submit(handle, work);
}

static CUresult get(CUipcEventHandle *ret_handle, CUevent event)
{
	struct handle handle = {.pid = getpid()};

	if (!ret_handle || !sim_event(event) || !event->shared)
		return sim_why(CUDA_ERROR_INVALID_HANDLE, "%p is no event for other processes", (void *)event);
	memcpy(handle.magic, magic, sizeof(magic));
	handle.file = event->shared_file;
	memset(ret_handle, 0, sizeof(*ret_handle));
	memcpy(ret_handle, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

static CUresult open_shared(CUevent *ret_event, const CUipcEventHandle *opaque)
{
	struct handle handle;
	char path[64];

	memcpy(&handle, opaque, sizeof(handle));
	if (!ret_event || memcmp(handle.magic, magic, sizeof(magic)))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "no handle of the model's");
	if (handle.pid == getpid())
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "a handle of this process");
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.pid, handle.file);
	int file = open(path, O_RDWR | O_CLOEXEC);
	struct sim_shared *shared = file < 0 ? NULL : map(file);
	if (!shared) {
		if (file >= 0)
			close(file);
		return sim_why(CUDA_ERROR_INVALID_HANDLE, "the event has ended");
	}
	CUresult result = sim_event_new(ret_event, CU_EVENT_DISABLE_TIMING);
	if (result) {
		close(file);
		return result;
	}
	(*ret_event)->flags |= CU_EVENT_INTERPROCESS;
	(*ret_event)->shared = shared;
	(*ret_event)->shared_file = file;
	return CUDA_SUCCESS;
}

SPELL(cuIpcGetEventHandle, (CUipcEventHandle * handle, CUevent event), get(handle, event))
SPELL(cuIpcOpenEventHandle, (CUevent * event, CUipcEventHandle handle), open_shared(event, &handle))
