// SPDX-License-Identifier: Apache-2.0
/* managed.c: how managed memory on the heap goes to the GPU, is made and is freed (managed.h). */
#include "shim/serve/managed.h"
#include "shim/base/array.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/signals.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/heap/arena.h"
#include "shim/heap/migration.h"
#include "shim/process/process.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/submit/channel.h"
#include "shim/submit/submission.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* An allocation that one call needs. */
struct traveller {
	struct managed it;
	uint32_t id;  /* on_use_id when it was listed; another one is there if that has changed */
	bool reached; /* a pointer leads there, so no later submission need name it */
	bool going;   /* in this turn */
	bool ready;   /* its memory has been taken, and stays */
};

/* What one call needs: first what it names, then what pointers lead to, in the order in which that was found. */
struct journey {
	struct traveller *at;
	uint32_t n, n_named, room;
	managed_take *take;
	int pagemap; /* -1: the kernel does not say which pages have contents */
	char *stage; /* of HEAP_UNIT bytes */
};

/*
 * Returns whether a unit has pages with contents. Where that cannot be asked it has: zeros that the CPU has written
 * count, too.
 */
static bool is_written(const struct journey *journey, const char *unit)
{
	const uint64_t there = UINT64_C(3) << 62; /* in memory, or swapped out */
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = HEAP_UNIT / page;
	uint64_t entry[HEAP_UNIT / 4096];

	if (pread(journey->pagemap, entry, n * sizeof(*entry), (off_t)((uintptr_t)unit / page * sizeof(*entry))) !=
	    (ssize_t)(n * sizeof(*entry)))
		return true;
	for (size_t i = 0; i < n; i++)
		if (entry[i] & there)
			return true;
	return false;
}

/* ---- to the GPU ---- */

static struct traveller *append(struct journey *journey, struct managed it)
{
	if (!ARRAY_ROOM(journey->at, journey->n, journey->room, ARRAY_MOST))
		return NULL;
	journey->at[journey->n] = (struct traveller){.it = it, .id = atomic_load(&managed_state_of(it)->on_use_id)};
	return &journey->at[journey->n++];
}

/*
 * Lists an allocation, once. Its place on the list is found again by what it keeps of it, which means nothing by
 * itself. Locking: the caller has the turn.
 */
static struct traveller *list(struct journey *journey, struct managed it)
{
	uint32_t place = atomic_load(&managed_state_of(it)->on_use_list);

	if (place < journey->n && journey->at[place].it.device == it.device && journey->at[place].it.first == it.first)
		return &journey->at[place];
	atomic_store(&managed_state_of(it)->on_use_list, journey->n);
	return append(journey, it);
}

/* Finds what a pointer means: also what it lies close beside (submission.c). No two allocations are so close. */
static bool find_near(CUdeviceptr pointer, struct managed *ret)
{
	return managed_find(pointer, ret) || managed_find(pointer - ON_USE_NEAR, ret) ||
	       managed_find(pointer + ON_USE_NEAR - 1, ret);
}

/* Lists what the words point to. */
static bool search(struct journey *journey, const char *words, size_t bytes)
{
	CUdeviceptr low = atomic_load(&serve_state.managed.low) - ON_USE_NEAR;
	CUdeviceptr span = atomic_load(&serve_state.managed.high) + ON_USE_NEAR - low;
	struct managed it;

	for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, words + i, sizeof(word));
		if (__builtin_expect(submission_pointer(word) - low < span, 0) &&
		    find_near(submission_pointer(word), &it)) {
			struct traveller *target = list(journey, it);

			if (!target)
				return false;
			target->reached = true;
		}
	}
	return true;
}

static bool search_all(struct journey *journey, struct managed it)
{
	uint32_t units = atomic_load(&managed_state_of(it)->on_use_units);
	bool ok = true;

	for (uint32_t i = 0; i < units && ok; i++)
		if (is_written(journey, managed_unit(it, i)))
			ok = search(journey, managed_unit(it, i), HEAP_UNIT);
	return ok;
}

/*
 * Copies what has memory of the heap: what the CPU has written, and zeros, which the CPU would read elsewhere. From
 * the stage, for the address itself means memory of the GPU to the driver; and by a copy, for a set may need a
 * multiprocessor, of which a kernel that waits for the CPU may have all.
 */
static CUresult copy_units(const struct journey *journey, struct managed it, CUstream stream)
{
	uint32_t units = atomic_load(&managed_state_of(it)->on_use_units);
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < units && result == CUDA_SUCCESS; i++) {
		CUdeviceptr at = arena_address(managed_arena(it), it.first + i);

		if (!arena_look(managed_arena(it), at))
			continue;
		bool written = is_written(journey, managed_unit(it, i));
		if (written)
			memcpy(journey->stage, managed_unit(it, i), HEAP_UNIT);
		else
			memset(journey->stage, 0, HEAP_UNIT);
		result = REAL(cuMemcpyHtoDAsync_v2)(at, journey->stage, HEAP_UNIT, stream);
		if (result == CUDA_SUCCESS)
			result = REAL(cuStreamSynchronize)(stream);
		if (result == CUDA_SUCCESS && written)
			stats_add(STAT_managed_moved_bytes, HEAP_UNIT);
	}
	return result;
}

/* On a stream of its own, which waits for nothing, in a context of the memory's device. */
static CUresult copy(const struct journey *journey, struct managed it)
{
	struct heap *heap = atomic_load(&it.device->heap);
	CUcontext context = managed_context(it.device->ordinal);
	CUdeviceptr base = arena_address(managed_arena(it), it.first);
	CUstream stream;
	bool pushed;

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	/* It must not be moved meanwhile. */
	if (!heap_pin(heap, base, managed_bytes(it)))
		return CUDA_ERROR_NOT_READY;
	CUresult result = context_enter(context, &pushed);
	if (result == CUDA_SUCCESS) {
		CUstreamCaptureMode mode = capture_relax();

		result = REAL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
		if (result == CUDA_SUCCESS) {
			result = copy_units(journey, it, stream);
			REAL(cuStreamDestroy_v2)(stream);
		}
		capture_restore(mode);
		context_leave(pushed);
	}
	heap_pin_end(heap, base, managed_bytes(it), PIN_OFF);
	return result;
}

/* Takes memory of the heap for what the CPU has written; all: for all of the allocation. */
static enum sw_status take_written(const struct journey *journey, struct managed it, bool all)
{
	uint32_t units = atomic_load(&managed_state_of(it)->on_use_units), end;
	CUdeviceptr base = arena_address(managed_arena(it), it.first);
	enum sw_status status = SW_OK;

	if (all)
		return journey->take(it.device, base, managed_bytes(it), true);
	for (uint32_t i = 0; i < units && status == SW_OK; i = end + 1) {
		for (end = i; end < units && is_written(journey, managed_unit(it, end)); end++)
			;
		if (end > i)
			status = journey->take(it.device, base + i * HEAP_UNIT, (end - i) * HEAP_UNIT, false);
	}
	return status;
}

static bool has_memory_for_written(const struct journey *journey, struct managed it)
{
	uint32_t units = atomic_load(&managed_state_of(it)->on_use_units);

	for (uint32_t i = 0; i < units; i++)
		if (!arena_look(managed_arena(it), arena_address(managed_arena(it), it.first + i)) &&
		    is_written(journey, managed_unit(it, i)))
			return false;
	return true;
}

/* It has not been freed, nor is another one there. */
static bool is_there(const struct traveller *one)
{
	return atomic_load(&managed_state_of(one->it)->on_use_id) == one->id &&
	       atomic_load(&managed_state_of(one->it)->side) != ON_USE_PLAIN;
}

/*
 * Takes what was found missing in the last turn. Before the next one: that may wait for others, which may wait for the
 * turn. The CPU may write to more of what is named each time, so in the end all of it is taken.
 */
#define ROUNDS       64
#define ROUNDS_PARTS 4

static enum sw_status make_ready(struct journey *journey, unsigned round)
{
	enum sw_status status = SW_OK;

	for (uint32_t i = 0; i < journey->n && status == SW_OK; i++) {
		struct traveller *one = &journey->at[i];
		CUdeviceptr base = arena_address(managed_arena(one->it), one->it.first);
		uint64_t bytes = managed_bytes(one->it);

		if (one->ready || !is_there(one))
			continue;
		status = take_written(journey, one->it, one->reached || round >= ROUNDS_PARTS);
		if (status == SW_OK && one->reached) {
			one->ready = heap_stay_beside(atomic_load(&one->it.device->heap), base, bytes);
			status = one->ready ? SW_OK : SW_BUSY;
		}
		/* Freed meanwhile: nothing need be taken for it. */
		if (!is_there(one))
			status = SW_OK;
	}
	return status;
}

/* Begins the list anew: what pointers lead to now may be less, or other allocations at the same addresses. */
static void list_again(struct journey *journey)
{
	for (uint32_t i = 0; i < journey->n; i++) {
		struct traveller *one = &journey->at[i];

		if (one->ready && is_there(one))
			atomic_store(&managed_state_of(one->it)->on_use_stays, true);
		one->reached = one->going = one->ready = false;
		/* What is named means what is there now. */
		one->id = atomic_load(&managed_state_of(one->it)->on_use_id);
		if (i < journey->n_named)
			atomic_store(&managed_state_of(one->it)->on_use_list, i);
	}
	journey->n = journey->n_named;
}

/* Takes the right to write from the CPU, wherever it has what is listed, and lists what that points to. */
static enum sw_status protect(struct journey *journey)
{
	for (uint32_t i = 0; i < journey->n; i++) {
		struct managed it = journey->at[i].it;

		if (!is_there(&journey->at[i]) || atomic_load(&managed_state_of(it)->side) != ON_USE_CPU)
			continue;
		journey->at[i].going = true;
		atomic_store(&managed_state_of(it)->side, ON_USE_GOING);
		if (mprotect(managed_unit(it, 0), managed_bytes(it), PROT_READ) || !search_all(journey, it))
			return SW_NO_HOST_MEMORY;
	}
	return SW_OK;
}

static bool is_enough(const struct journey *journey)
{
	for (uint32_t i = 0; i < journey->n; i++) {
		const struct traveller *one = &journey->at[i];
		const struct unit_state *state = managed_state_of(one->it);

		if (one->reached && is_there(one) &&
		    (atomic_load(&state->on_use_left) || !atomic_load(&state->on_use_stays)))
			return false;
		if (one->going && !has_memory_for_written(journey, one->it))
			return false;
	}
	return true;
}

static void arrive(const struct journey *journey)
{
	for (uint32_t i = 0; i < journey->n; i++) {
		struct managed it = journey->at[i].it;

		if (!journey->at[i].going)
			continue;
		managed_unmap_for_cpu(managed_unit(it, 0), managed_bytes(it));
		atomic_store(&managed_state_of(it)->side, ON_USE_GPU);
		stats_add(STAT_managed_moved, 1);
	}
}

static void return_all(const struct journey *journey)
{
	for (uint32_t i = 0; i < journey->n; i++) {
		struct managed it = journey->at[i].it;

		if (!journey->at[i].going)
			continue;
		mprotect(managed_unit(it, 0), managed_bytes(it), PROT_READ | PROT_WRITE);
		atomic_store(&managed_state_of(it)->side, ON_USE_CPU);
	}
}

/* Stores in *ret_done that all has gone; else something has to be made ready, or there was an error. */
static enum sw_status take_turn(struct journey *journey, bool *ret_done)
{
	CUresult result = CUDA_SUCCESS;

	managed_turn_begin();
	list_again(journey);
	enum sw_status status = protect(journey);
	*ret_done = status == SW_OK && is_enough(journey);
	for (uint32_t i = 0; i < journey->n && *ret_done && result == CUDA_SUCCESS; i++)
		if (journey->at[i].going)
			result = copy(journey, journey->at[i].it);
	/* What should stay could not come: another round finds it in its place, or elsewhere. */
	if (result == CUDA_ERROR_NOT_READY)
		*ret_done = false;
	else if (result != CUDA_SUCCESS)
		status = status_of(result);
	if (*ret_done && status == SW_OK)
		arrive(journey);
	else
		return_all(journey);
	managed_turn_end();
	return status;
}

/* Not for ever: a function of the host may wait for this thread. */
#define HOST_FUNCTION_MS 500

void managed_wait(CUstream stream, bool per_thread)
{
	if (!atomic_load_explicit(&serve_state.managed.host_functions, memory_order_relaxed) || capture_is_open())
		return;
	CUstreamCaptureMode mode = capture_relax();
	int cancel;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	for (unsigned ms = 0; ms < HOST_FUNCTION_MS; ms++) {
		if ((per_thread ? REAL(cuStreamQuery_ptsz) : REAL(cuStreamQuery))(stream) != CUDA_ERROR_NOT_READY)
			break;
		clock_sleep(1000000);
	}
	pthread_setcancelstate(cancel, NULL);
	capture_restore(mode);
}

/* What is named twice is on the list twice, and goes once. */
static bool list_cpus(struct journey *journey, CUdeviceptr address)
{
	struct managed it;

	return !managed_find(address, &it) || !arena_on_use_is_cpus(managed_arena(it), it.first) || append(journey, it);
}

static bool list_named(struct journey *journey, const struct named *names, uint32_t n, uint64_t devices)
{
	bool ok = true;

	for (uint32_t i = 0; i < n && ok; i++)
		ok = list_cpus(journey, names[i].address);
	for (struct device *device = device_next(NULL); device && ok; device = device_next(device)) {
		struct heap *heap = devices >> device->ordinal & 1 ? atomic_load(&device->heap) : NULL;
		CUdeviceptr base = 0;
		uint64_t bytes = 0;

		while (heap && ok && heap_on_use_next(heap, base + bytes, &base, &bytes))
			ok = list_cpus(journey, base);
	}
	journey->n_named = journey->n;
	return ok;
}

enum sw_status managed_bring(const struct named *names, uint32_t n, uint64_t devices, managed_take *take)
{
	struct journey journey = {.take = take, .pagemap = -1};
	enum sw_status status = SW_NO_HOST_MEMORY;
	bool done = false, per_thread;
	CUstream stream;
	int cancel;

	if (list_named(&journey, names, n, devices) && !journey.n)
		return SW_OK;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	journey.stage = malloc(HEAP_UNIT);
	if (journey.n && journey.stage)
		status = SW_OK;
	journey.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (submission_stream_now(&stream, &per_thread))
		managed_wait(stream, per_thread);
	for (unsigned round = 0; round < ROUNDS && status == SW_OK && !done; round++) {
		status = make_ready(&journey, round);
		if (status == SW_OK)
			status = take_turn(&journey, &done);
	}
	if (journey.pagemap >= 0)
		close(journey.pagemap);
	free(journey.stage);
	free(journey.at);
	pthread_setcancelstate(cancel, NULL);
	return status == SW_OK && !done ? SW_BUSY : status;
}

void managed_host_function(void)
{
	if (!atomic_load_explicit(&serve_state.managed.host_functions, memory_order_relaxed))
		atomic_store(&serve_state.managed.host_functions, true);
}

/* ---- allocating and freeing ---- */

static void managed_release(struct ledger_row *row)
{
	struct managed it;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	managed_turn_begin();
	if (managed_find(row->key, &it)) {
		if (atomic_load(&managed_state_of(it)->side) == ON_USE_CPU)
			managed_unmap_for_cpu(managed_unit(it, 0), managed_bytes(it));
		atomic_store(&managed_state_of(it)->side, ON_USE_PLAIN);
	}
	managed_turn_end();
	pthread_setcancelstate(cancel, NULL);
	backend_heap.release(row);
}

static const struct backend backend_managed_on_heap = {
    .free = backend_free_idle,
    .release = managed_release,
};

/* Returns whether the device, and all others that the process may come to use, reach each other's memory. */
static bool is_reached_by_all(CUdevice device)
{
	int n = 0;

	REAL(cuDeviceGetCount)(&n);
	for (CUdevice other = 0; other < n; other++)
		if (other != device && !(device_reaches(device, other) && device_reaches(other, device)))
			return false;
	return true;
}

/* Opens the heaps of the device and of all others that the process uses to each other, for good. */
static bool open_to_all(CUdevice device)
{
	for (CUdevice other = 0; other < DEVICE_MOST; other++)
		if (other != device && context_any(other) && !peer_open_for_copies(device, other))
			return false;
	return true;
}

static void cannot_reach(CUdevice device, CUdevice owner)
{
	log_once("GPU %d cannot reach managed memory that is on the heap of GPU %d", device, owner);
}

static enum sw_status to_driver(const struct backend_request *request, const char *why)
{
	char text[32];

	log_once("use: heap for managed memory: %s: %s; the driver serves such allocations",
		 log_bytes(text, sizeof(text), request->bytes), why);
	return SW_NOT_SUPPORTED;
}

enum sw_status managed_alloc(struct device *device, const struct backend_request *request, struct ledger_row *row)
{
	struct managed_state *const managed = &serve_state.managed;
	struct backend_request reserved = *request;
	struct managed it = {.device = device};
	int cancel;

	reserved.on_use = true;
	if (!is_reached_by_all(device->ordinal))
		return to_driver(request, "not all GPUs that the process sees reach each other's memory "
					  "(CUDA_VISIBLE_DEVICES hides GPUs)");
	if (!signals_watch(managed_say))
		return to_driver(request, "no handler of SIGSEGV can be installed");
	if (!open_to_all(device->ordinal))
		return to_driver(request, "the heaps of the process's GPUs cannot be opened to each other now");
	enum sw_status status = backend_heap.alloc(device, &reserved, row);
	if (status == SW_NO_MEMORY)
		return to_driver(request, "that is more than both budgets together, or than there are addresses for");
	if (status != SW_OK)
		return status;
	it.first = arena_unit(managed_arena(it), row->key);
	/* The GPU's uses, and frees, of what was at this address before have ended. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	managed_turn_begin();
	bool mapped = managed_map_for_cpu(managed_unit(it, 0), managed_bytes(it));
	if (mapped) {
		CUdeviceptr low = atomic_load(&managed->low);

		if (!low || row->key < low)
			atomic_store(&managed->low, row->key);
		if (row->key + managed_bytes(it) > atomic_load(&managed->high))
			atomic_store(&managed->high, row->key + managed_bytes(it));
		atomic_store(&managed_state_of(it)->on_use_rule, (uint16_t)row->rule);
		atomic_store(&managed_state_of(it)->side, ON_USE_CPU);
		/* Before this, another thread may have seen that nothing lacks anything (on_use_settle). */
		on_use_begins(row->key, managed_bytes(it));
	}
	managed_turn_end();
	pthread_setcancelstate(cancel, NULL);
	if (!mapped) {
		heap_on_use_free(atomic_load(&device->heap), row->key);
		on_use_settle();
		return to_driver(request, "the kernel maps no more memory for it");
	}
	/* To contexts made since; those made from here on find that there is managed memory (managed_context_made). */
	for (CUdevice other = 0; other < DEVICE_MOST; other++)
		if (other != device->ordinal && context_any(other) && !peer_open_for_copies(device->ordinal, other))
			cannot_reach(other, device->ordinal);
	row->heap.managed = true;
	row->home = &backend_managed_on_heap;
	stats_add(STAT_managed_made, 1);
	stats_add(STAT_managed_made_bytes, row->bytes);
	return SW_OK;
}

void managed_context_made(CUdevice device)
{
	for (const struct device *other = device_next(NULL); other; other = device_next(other))
		if (other->ordinal != device && atomic_load(&serve_state.managed.high) && atomic_load(&other->heap) &&
		    !peer_open_for_copies(other->ordinal, device))
			cannot_reach(device, other->ordinal);
}
