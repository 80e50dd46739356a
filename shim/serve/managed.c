// SPDX-License-Identifier: Apache-2.0
/* managed.c: how managed memory on the heap goes to the GPU, is made and is freed (managed.h). */
#include "shim/serve/managed.h"
#include "shim/base/array.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/pager.h"
#include "shim/base/signals.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/heap/arena.h"
#include "shim/heap/migration.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/spill.h"
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

#define PAGES_MOST ((unsigned)(HEAP_UNIT / 4096)) /* of a unit */

/* Pages of a unit. */
struct page_set {
	uint64_t bit[PAGES_MOST / 64];
};

/* An allocation that one call needs. */
struct traveller {
	struct managed it;
	uint32_t id;            /* on_use_id when it was listed; if that has changed, another allocation is there */
	bool reached;           /* a pointer leads there, so no later submission need name it */
	bool going;             /* in this turn */
	bool watched;           /* the same: a write of the CPU waits */
	bool ready;             /* its memory has been taken, and stays */
	uint8_t from;           /* of what is going: the side that it leaves */
	struct page_set *dirty; /* if it is DIRTY: of each unit what the CPU has written */
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
 * Returns which pages of a unit have contents to bring. Where that cannot be asked all have: zeros that the CPU has
 * written count, too.
 */
static struct page_set written(const struct journey *journey, const struct traveller *one, uint32_t unit)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = HEAP_UNIT / page, bytes = n * sizeof(uint64_t);
	const char *at = managed_unit(one->it, unit);
	struct page_set set = {{0}};
	uint64_t entry[PAGES_MOST];

	if (one->going && one->dirty)
		return one->dirty[unit];
	bool known =
	    pread(journey->pagemap, entry, bytes, (off_t)((uintptr_t)at / page * sizeof(*entry))) == (ssize_t)bytes ||
	    (one->watched && pager_pages(at, n, entry));
	for (size_t i = 0; i < n; i++)
		if (!known || (entry[i] & PAGER_THERE && !(one->from == ON_USE_DIRTY && entry[i] & PAGER_PROTECTED)))
			set.bit[i / 64] |= UINT64_C(1) << i % 64;
	return set;
}

static bool is_in(const struct page_set *set, size_t page)
{
	return set->bit[page / 64] >> page % 64 & 1;
}

/* Finds the next pages of a set that lie in a row, from *begin on. Returns false if there are none. In bytes. */
static bool next_run(const struct page_set *set, size_t *begin, size_t *ret_bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = HEAP_UNIT / page, i = *begin / page, end;

	while (i < n && !is_in(set, i))
		i++;
	for (end = i; end < n && is_in(set, end); end++)
		;
	*begin = i * page;
	*ret_bytes = (end - i) * page;
	return end > i;
}

static bool is_written(const struct journey *journey, const struct traveller *one, uint32_t unit)
{
	struct page_set set = written(journey, one, unit);
	size_t begin = 0, bytes;

	return next_run(&set, &begin, &bytes);
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
 * Lists an allocation, once. Its unit state keeps its place on the list (on_use_list). That may be out of date, so it
 * counts only if the list has the allocation there. Locking: the caller has the turn.
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

/* The list may grow, so `one` is a copy. */
static bool search_all(struct journey *journey, struct traveller one)
{
	uint32_t units = atomic_load(&managed_state_of(one.it)->on_use_units);
	bool ok = true;

	for (uint32_t i = 0; i < units && ok; i++) {
		struct page_set set = written(journey, &one, i);
		size_t bytes;

		pager_goes_on();
		for (size_t at = 0; ok && next_run(&set, &at, &bytes); at += bytes)
			ok = search(journey, managed_unit(one.it, i) + at, bytes);
	}
	return ok;
}

struct crossing {
	const struct journey *journey;
	const struct traveller *one;
};

static CUresult cross(CUdeviceptr at, const char *from, size_t bytes, CUstream stream)
{
	CUresult result = REAL(cuMemcpyHtoDAsync_v2)(at, from, bytes, stream);

	return result == CUDA_SUCCESS ? REAL(cuStreamSynchronize)(stream) : result;
}

/*
 * Copies what has memory of the heap: of a first use what the CPU has written, and zeros, which the CPU would read
 * elsewhere; later what it has written since. From the stage, for the address itself means memory of the GPU to the
 * driver; and by a copy, for a set may need a multiprocessor, of which a kernel that waits for the CPU may have all.
 */
static CUresult copy_units(void *argument, struct managed it, CUstream stream)
{
	const struct crossing *crossing = argument;
	char *stage = crossing->journey->stage;
	uint32_t units = atomic_load(&managed_state_of(it)->on_use_units);
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < units && result == CUDA_SUCCESS; i++) {
		CUdeviceptr at = arena_address(managed_arena(it), it.first + i);
		bool first = crossing->one->from == ON_USE_CPU;
		size_t bytes, n = 0;

		if (!arena_look(managed_arena(it), at))
			continue;
		pager_goes_on();
		struct page_set set = written(crossing->journey, crossing->one, i);
		if (first)
			memset(stage, 0, HEAP_UNIT);
		for (size_t begin = 0; result == CUDA_SUCCESS && next_run(&set, &begin, &bytes); begin += bytes) {
			memcpy(stage + begin, managed_unit(it, i) + begin, bytes);
			n += bytes;
			if (!first)
				result = cross(at + begin, stage + begin, bytes, stream);
		}
		if (first)
			result = cross(at, stage, HEAP_UNIT, stream);
		if (result == CUDA_SUCCESS && n && first)
			stats_add(STAT_managed_moved_bytes, HEAP_UNIT);
		else if (result == CUDA_SUCCESS && n)
			stats_add(STAT_managed_returned_bytes, n);
	}
	return result;
}

/* What has been said to be dead may be what the CPU has written: from now on all of it is alive. */
static CUresult copy(const struct journey *journey, const struct traveller *one)
{
	struct crossing crossing = {journey, one};
	const struct arena *arena = managed_arena(one->it);
	CUdeviceptr base = arena_address(arena, one->it.first);
	uint64_t bytes = managed_bytes(one->it);

	if (one->from == ON_USE_DIRTY) {
		spill_reused(base, bytes);
		if (arena->lifetimes && lifetimes_is_declared(arena->lifetimes, base))
			lifetimes_distrust(arena->lifetimes, base, base, bytes);
	}
	return managed_on_stream(one->it, base, bytes, false, copy_units, &crossing);
}

/* Takes memory of the heap for what the CPU has written; all: for all of the allocation. */
static enum sw_status take_written(const struct journey *journey, const struct traveller *one, bool all)
{
	struct managed it = one->it;
	uint32_t units = atomic_load(&managed_state_of(it)->on_use_units), end;
	CUdeviceptr base = arena_address(managed_arena(it), it.first);
	enum sw_status status = SW_OK;

	if (all)
		return journey->take(it.device, base, managed_bytes(it), true);
	for (uint32_t i = 0; i < units && status == SW_OK; i = end + 1) {
		for (end = i; end < units && is_written(journey, one, end); end++)
			;
		if (end > i)
			status = journey->take(it.device, base + i * HEAP_UNIT, (end - i) * HEAP_UNIT, false);
	}
	return status;
}

static bool has_memory_for_written(const struct journey *journey, const struct traveller *one)
{
	struct managed it = one->it;
	uint32_t units = atomic_load(&managed_state_of(it)->on_use_units);

	for (uint32_t i = 0; i < units; i++)
		if (!arena_look(managed_arena(it), arena_address(managed_arena(it), it.first + i)) &&
		    is_written(journey, one, i))
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
		/* What the CPU has touched has memory. */
		if (one->reached || arena_on_use_is_cpus(managed_arena(one->it), one->it.first))
			status = take_written(journey, one, one->reached || round >= ROUNDS_PARTS);
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

/*
 * Begins the list anew: what pointers lead to now may be less, or other allocations at the same addresses. What the CPU
 * has touched is on it: the GPU may use it by addresses that nobody names.
 */
static bool list_again(struct journey *journey)
{
	const struct managed_state *managed = &serve_state.managed;

	for (uint32_t i = 0; i < journey->n; i++) {
		struct traveller *one = &journey->at[i];

		if (one->ready && is_there(one))
			atomic_store(&managed_state_of(one->it)->on_use_stays, true);
		one->reached = one->going = one->watched = one->ready = false;
		one->from = ON_USE_PLAIN;
		/* What is named means what is there now. */
		one->id = atomic_load(&managed_state_of(one->it)->on_use_id);
		if (i < journey->n_named)
			atomic_store(&managed_state_of(one->it)->on_use_list, i);
	}
	journey->n = journey->n_named;
	for (uint32_t i = 0; i < managed->n_touched; i++)
		if (!list(journey, managed->touched[i]))
			return false;
	return true;
}

/*
 * Of what the CPU has touched: notes what it has written, and only then takes the right to write. No page is added
 * meanwhile: for that the turn is needed.
 */
static bool protect_dirty(struct journey *journey, struct traveller *one)
{
	uint32_t units = atomic_load(&managed_state_of(one->it)->on_use_units);
	struct page_set *dirty = calloc(units, sizeof(*dirty));

	if (!dirty)
		return false;
	for (uint32_t i = 0; i < units; i++)
		dirty[i] = written(journey, one, i);
	one->dirty = dirty;
	return pager_protect(managed_unit(one->it, 0), managed_bytes(one->it));
}

/* Takes the right to write from the CPU, wherever it has what is listed, and lists what that points to. */
static enum sw_status protect(struct journey *journey)
{
	for (uint32_t i = 0; i < journey->n; i++) {
		struct traveller *one = &journey->at[i];
		_Atomic uint8_t *side = &managed_state_of(one->it)->side;
		uint8_t from = atomic_load(side);
		bool ok = true;

		if (!is_there(one) || from == ON_USE_GPU || from == ON_USE_GOING)
			continue;
		one->from = from;
		one->watched = from != ON_USE_CPU || managed_watch(one->it);
		if (from == ON_USE_DIRTY)
			ok = protect_dirty(journey, one);
		else if (!one->watched)
			ok = !mprotect(managed_unit(one->it, 0), managed_bytes(one->it), PROT_READ);
		one->going = true;
		atomic_store(side, ON_USE_GOING);
		if (!ok || (from != ON_USE_READ && !search_all(journey, *one)))
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
		if (one->going && one->from == ON_USE_CPU && !has_memory_for_written(journey, one))
			return false;
	}
	return true;
}

static void arrive(const struct journey *journey)
{
	for (uint32_t i = 0; i < journey->n; i++) {
		const struct traveller *one = &journey->at[i];

		if (!one->going)
			continue;
		if (!one->watched || !managed_withdraw(one->it))
			managed_unmap_for_cpu(managed_unit(one->it, 0), managed_bytes(one->it));
		atomic_store(&managed_state_of(one->it)->side, ON_USE_GPU);
		stats_add(STAT_managed_moved, one->from == ON_USE_CPU);
	}
	managed_touched_end_all();
}

/* What the CPU had written it may write again, and that alone: so it is known the next time. */
static void allow_dirty(const struct traveller *one)
{
	uint32_t units = atomic_load(&managed_state_of(one->it)->on_use_units);
	size_t bytes;

	for (uint32_t i = 0; one->dirty && i < units; i++)
		for (size_t at = 0; next_run(&one->dirty[i], &at, &bytes); at += bytes)
			pager_allow(managed_unit(one->it, i) + at, bytes);
}

static void return_all(const struct journey *journey)
{
	for (uint32_t i = 0; i < journey->n; i++) {
		const struct traveller *one = &journey->at[i];
		char *at = managed_unit(one->it, 0);

		if (!one->going)
			continue;
		if (one->from != ON_USE_CPU)
			allow_dirty(one);
		else if (one->watched)
			pager_forget(at, managed_bytes(one->it));
		else
			mprotect(at, managed_bytes(one->it), PROT_READ | PROT_WRITE);
		atomic_store(&managed_state_of(one->it)->side, one->from);
	}
}

/* Stores in *ret_done that all has gone; else something has to be made ready, or there was an error. */
static enum sw_status take_turn(struct journey *journey, bool *ret_done)
{
	CUresult result = CUDA_SUCCESS;

	managed_turn_begin();
	enum sw_status status = list_again(journey) ? protect(journey) : SW_NO_HOST_MEMORY;
	*ret_done = status == SW_OK && is_enough(journey);
	for (uint32_t i = 0; i < journey->n && *ret_done && result == CUDA_SUCCESS; i++)
		if (journey->at[i].going && journey->at[i].from != ON_USE_READ)
			result = copy(journey, &journey->at[i]);
	/* What should stay could not come: another round finds it in its place, or elsewhere. */
	if (result == CUDA_ERROR_NOT_READY)
		*ret_done = false;
	else if (result != CUDA_SUCCESS)
		status = status_of(result);
	if (*ret_done && status == SW_OK)
		arrive(journey);
	else
		return_all(journey);
	for (uint32_t i = 0; i < journey->n; i++) {
		free(journey->at[i].dirty);
		journey->at[i].dirty = NULL;
	}
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

	bool listed = list_named(&journey, names, n, devices);
	if (listed && !journey.n && !atomic_load(&serve_state.managed.n_touched))
		return SW_OK;
	atomic_store(&serve_state.managed.take, take);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	journey.stage = malloc(HEAP_UNIT);
	if (listed && journey.stage)
		status = SW_OK;
	journey.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (submission_stream_now(&stream, &per_thread))
		managed_wait(stream, per_thread);
	/* What leaves for a turn or a suspension may do so for seconds. */
	for (unsigned round = 0; round < ROUNDS && (status == SW_OK || status == SW_BUSY) && !done; round++) {
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
		managed_unmap_for_cpu(managed_unit(it, 0), managed_bytes(it));
		managed_touched_end(it);
		serve_state.managed.n_made--;
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
	touch_start();
	bool mapped = managed_map_for_cpu(managed_unit(it, 0), managed_bytes(it));
	if (mapped) {
		managed->n_made++;
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

/* ---- results of calls ---- */

void *managed_result_begin(struct managed_result *result, void *at, size_t bytes)
{
	CUdeviceptr low = atomic_load(&serve_state.managed.low), high = atomic_load(&serve_state.managed.high);

	*result = (struct managed_result){.at = at};
	if ((CUdeviceptr)(uintptr_t)at - low >= high - low)
		return at;
	result->bytes = bytes;
	return &result->value;
}

void managed_result_end(const struct managed_result *result)
{
	if (result->bytes)
		memcpy(result->at, &result->value, result->bytes);
}
