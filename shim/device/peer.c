// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps the list of peer access that was enabled, opens heaps to devices, and closes them again when the devices are
 * idle (device.h).
 */
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"

#include <stdlib.h>
#include <time.h>

/* How long a call that revokes access waits until nothing of that device runs. */
#define IDLE_PATIENCE_MS 100
/* Poll interval of a thread that waits to open a shut heap; a gap takes some milliseconds. */
#define SHUT_NS 100000

struct lock peer_lock = LOCK_INIT(LOCK_PEER);

/*
 * Access of one context to another, or (context and owner_context NULL) of a device to a pool, or (pool 0, too) of a
 * device whose copies need it.
 */
struct opening {
	struct opening *next;
	CUcontext context, owner_context;
	uint64_t pool;
	CUdevice device, owner;
};

/*
 * The question whether a device is idle, kept from tick to tick: a device that gets more and more work would never be
 * idle.
 */
struct question {
	struct context_idle idle;
	unsigned changes;
	bool asked;
};

static struct {
	struct opening *list; /* under peer_lock */
	/*
	 * By owner, bits of devices that a copy may rely on, because they can access all of the heap and the access is
	 * wanted. A device that is no longer wanted loses this bit at once, and its bit in peer_mapped_for, to which
	 * new mappings are opened, when it is idle: work that waits for moving memory must find it open.
	 */
	_Atomic uint64_t usable[DEVICE_MOST];
	/* By owner: devices that were ever in peer_mapped_for, or are about to be. */
	_Atomic uint64_t ever[DEVICE_MOST];
	/*
	 * By device: other devices whose copies with it need no more to be looked at, and those that it cannot access.
	 */
	_Atomic uint64_t copies_open[DEVICE_MOST], copies_refused[DEVICE_MOST];
	/* By owner: odd while the heap is shut; counts up each time. */
	atomic_uint shuts[DEVICE_MOST];
	atomic_uint n_holds; /* threads between peer_hold() and peer_let_go() */
	/*
	 * Counts changes of access. A question put to a device before a change does not cover work that has used the
	 * access since.
	 */
	atomic_uint n_changes;
	_Atomic bool is_left; /* access that is no longer wanted may still be open; the next tick checks */
	struct question question[DEVICE_MOST]; /* by device; only the thread of peer_tick() uses them */
} peers;

_Static_assert(DEVICE_MOST <= 64, "devices are bits of a word");

bool peer_reaches(CUdevice device, CUdevice owner)
{
	if (device == owner)
		return true;
	return device >= 0 && device < DEVICE_MOST && owner >= 0 && owner < DEVICE_MOST &&
	       (atomic_load(&peers.usable[owner]) >> device & 1);
}

void peer_hold(void)
{
	atomic_fetch_add(&peers.n_holds, 1);
}

void peer_let_go(void)
{
	atomic_fetch_sub(&peers.n_holds, 1);
}

static uint64_t wanted_locked(CUdevice owner)
{
	uint64_t devices = 0;

	lock_assert_held(LOCK_PEER);
	for (const struct opening *at = peers.list; at; at = at->next)
		if (at->owner == owner)
			devices |= UINT64_C(1) << at->device;
	return devices;
}

/* ---- revoking ---- */

/* Without relaxed mode, a capture that begins meanwhile on another thread would be invalidated. */
static enum context_idleness look_relaxed(struct context_idle *idle)
{
	CUstreamCaptureMode mode = capture_relax();
	enum context_idleness state = context_idle_look(idle);

	capture_restore(mode);
	return state;
}

/*
 * Returns whether everything that was submitted to this device completes within a moment. Work submitted later does not
 * need the access: a thread that holds asked before the access was revoked, or knows that it was.
 */
static bool is_idle(CUdevice device)
{
	enum context_idleness state = CONTEXT_BUSY;
	struct context_idle idle;

	for (unsigned ms = 0; atomic_load(&peers.n_holds); ms++) {
		if (ms == IDLE_PATIENCE_MS)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	if (!context_idle_ask(UINT64_C(1) << device, &idle))
		return false;
	for (unsigned ms = 0; ms < IDLE_PATIENCE_MS && state == CONTEXT_BUSY; ms++) {
		if (ms)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		state = look_relaxed(&idle);
	}
	if (state == CONTEXT_BUSY)
		context_idle_forget(&idle);
	return state == CONTEXT_IDLE;
}

/* Returns bits: the devices with open access that is no longer wanted. */
static uint64_t left_open_locked(CUdevice owner)
{
	struct heap *heap = device_heap_there(owner);
	uint64_t open = atomic_load(&peer_mapped_for[owner]) | (heap ? heap_reached_by(heap) : 0);

	return open & ~wanted_locked(owner);
}

static uint64_t left_open(CUdevice owner)
{
	lock_take(&peer_lock);
	uint64_t left = left_open_locked(owner);
	lock_drop(&peer_lock);
	return left;
}

/*
 * Revokes the access of devices that have completed everything submitted before change number `changes`. If access has
 * changed since, the next call handles it.
 */
static void take_away(CUdevice owner, uint64_t devices, unsigned changes)
{
	struct heap *heap = device_heap_there(owner);

	lock_take(&peer_lock);
	devices &= changes == atomic_load(&peers.n_changes) ? left_open_locked(owner) : 0;
	atomic_fetch_and(&peer_mapped_for[owner], ~devices);
	if (heap && devices)
		heap_unreach(heap, devices);
	lock_drop(&peer_lock);
}

/* Revokes access that is no longer wanted. Busy devices keep it until a tick finds them idle. */
static void close_left_open(void)
{
	unsigned changes = atomic_load(&peers.n_changes);
	uint64_t idle = 0, asked = 0;

	for (CUdevice owner = 0; owner < DEVICE_MOST; owner++) {
		uint64_t left = left_open(owner);

		for (uint64_t more = left & ~asked; more; more &= more - 1) {
			CUdevice device = __builtin_ctzll(more);

			asked |= UINT64_C(1) << device;
			if (is_idle(device))
				idle |= UINT64_C(1) << device;
		}
		if (left & idle)
			take_away(owner, left & idle, changes);
		if (left & ~idle)
			log_once("a GPU that no longer has peer access to another one is busy: it may reach heap "
				 "memory of that for a while longer");
	}
	for (CUdevice owner = 0; owner < DEVICE_MOST; owner++)
		if (left_open(owner))
			atomic_store(&peers.is_left, true);
}

static bool has_done(CUdevice device, unsigned changes)
{
	struct question *question = &peers.question[device];

	if (question->asked && question->changes != changes) {
		context_idle_forget(&question->idle);
		question->asked = false;
	}
	question->changes = changes;
	if (!question->asked)
		question->asked =
		    !atomic_load(&peers.n_holds) && context_idle_ask(UINT64_C(1) << device, &question->idle);
	enum context_idleness state = question->asked ? look_relaxed(&question->idle) : CONTEXT_BUSY;
	question->asked &= state == CONTEXT_BUSY;
	return state == CONTEXT_IDLE;
}

void peer_tick(void)
{
	unsigned changes = atomic_load(&peers.n_changes);
	uint64_t left = 0, done = 0;

	if (!atomic_load_explicit(&peers.is_left, memory_order_relaxed))
		return;
	atomic_store(&peers.is_left, false);
	for (CUdevice owner = 0; owner < DEVICE_MOST; owner++)
		left |= left_open(owner);
	if (!left)
		return;
	for (CUdevice device = 0; device < DEVICE_MOST; device++)
		if ((left >> device & 1) && has_done(device, changes))
			done |= UINT64_C(1) << device;
	for (CUdevice owner = 0; owner < DEVICE_MOST && done; owner++)
		take_away(owner, done, changes);
	atomic_store(&peers.is_left, true);
}

/* Removes the matching entries. Returns whether a device has lost its access to a heap. */
static bool peer_forget(bool (*fits)(const struct opening *opening, const struct opening *pattern),
			const struct opening *pattern)
{
	bool lost = false;

	lock_take(&peer_lock);
	for (struct opening **at = &peers.list; *at;) {
		struct opening *opening = *at;

		if (!fits(opening, pattern)) {
			at = &opening->next;
			continue;
		}
		*at = opening->next;
		if (!(wanted_locked(opening->owner) >> opening->device & 1)) {
			atomic_fetch_and(&peers.usable[opening->owner], ~(UINT64_C(1) << opening->device));
			atomic_fetch_add(&peers.n_changes, 1);
			lost = true;
		}
		free(opening);
	}
	lock_drop(&peer_lock);
	return lost;
}

/* Returns whether the list has a matching entry. */
static bool peer_find(bool (*fits)(const struct opening *opening, const struct opening *pattern),
		      const struct opening *pattern)
{
	bool found = false;

	lock_take(&peer_lock);
	for (const struct opening *at = peers.list; at && !found; at = at->next)
		found = fits(at, pattern);
	lock_drop(&peer_lock);
	return found;
}

/* ---- granting ---- */

uint64_t peer_may_reach(CUdevice owner)
{
	return atomic_load(&peers.ever[owner]) | UINT64_C(1) << owner;
}

/*
 * A thread that opens the heap sets its bit first and reads `shuts` second; here it is the other way round, so at least
 * one sees the other.
 */
bool peer_shut(CUdevice owner, uint64_t devices)
{
	atomic_fetch_add(&peers.shuts[owner], 1);
	if (!(peer_may_reach(owner) & ~devices))
		return true;
	peer_unshut(owner);
	return false;
}

void peer_unshut(CUdevice owner)
{
	atomic_fetch_add(&peers.shuts[owner], 1);
}

/*
 * Locking: under no lock, because the thread that shut the heap may need any. If the heap is shut again meanwhile, the
 * new quiesce stops this device, too, so the wait is for at most one gap.
 */
static void wait_until_not_shut(CUdevice owner, CUdevice device)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	atomic_fetch_or(&peers.ever[owner], UINT64_C(1) << device);
	unsigned shut = atomic_load(&peers.shuts[owner]);
	while ((shut & 1) && atomic_load(&peers.shuts[owner]) == shut)
		nanosleep(&(struct timespec){.tv_nsec = SHUT_NS}, NULL);
	pthread_setcancelstate(cancel, NULL);
}

/* Adds the entry to the list and opens all existing mappings, or does neither. Consumes `opening`. */
static CUresult put_into_effect(struct opening *opening)
{
	uint64_t bit = UINT64_C(1) << opening->device;
	CUresult result = CUDA_SUCCESS;

	lock_take(&peer_lock);
	atomic_fetch_add(&peers.n_changes, 1);
	opening->next = peers.list;
	peers.list = opening;
	atomic_fetch_or(&peer_mapped_for[opening->owner], bit);
	struct heap *heap = device_heap_there(opening->owner);
	if (heap && !(atomic_load(&peers.usable[opening->owner]) & bit))
		result = heap_reach(heap);
	if (result == CUDA_SUCCESS) {
		atomic_fetch_or(&peers.usable[opening->owner], bit);
	} else {
		peers.list = opening->next;
		log_once("opening the heap of GPU %d to GPU %d: %s; it is refused to the program", opening->owner,
			 opening->device, real_error_name(result));
		free(opening);
	}
	lock_drop(&peer_lock);
	if (result != CUDA_SUCCESS)
		close_left_open();
	return result;
}

static CUresult peer_add(const struct opening *wish)
{
	struct opening *opening = malloc(sizeof(*opening));

	if (wish->device < 0 || wish->device >= DEVICE_MOST || wish->owner < 0 || wish->owner >= DEVICE_MOST) {
		free(opening);
		return CUDA_ERROR_INVALID_DEVICE;
	}
	if (!opening)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*opening = *wish;
	wait_until_not_shut(wish->owner, wish->device);
	return put_into_effect(opening);
}

/* The same, unless the list has a matching entry. */
static CUresult add_once(bool (*fits)(const struct opening *opening, const struct opening *pattern),
			 const struct opening *wish)
{
	return peer_find(fits, wish) ? CUDA_SUCCESS : peer_add(wish);
}

/* ---- contexts ---- */

CUresult peer_enabled(CUcontext owner)
{
	struct opening wish = {.context = context_of_memory(), .owner_context = owner};

	if (!context_device(wish.context, &wish.device) || !context_device(owner, &wish.owner))
		return CUDA_ERROR_INVALID_CONTEXT;
	return peer_add(&wish);
}

static bool is_between(const struct opening *opening, const struct opening *pattern)
{
	return opening->context && opening->context == pattern->context &&
	       opening->owner_context == pattern->owner_context;
}

void peer_disabled(CUcontext owner)
{
	struct opening pattern = {.context = context_of_memory(), .owner_context = owner};

	if (peer_forget(is_between, &pattern))
		close_left_open();
}

static bool is_of_context(const struct opening *opening, const struct opening *pattern)
{
	return opening->context == pattern->context || opening->owner_context == pattern->context;
}

void peer_context_ended(CUcontext context)
{
	struct opening pattern = {.context = context};

	if (context && peer_forget(is_of_context, &pattern))
		close_left_open();
}

/* ---- pools ---- */

static bool is_of_pool(const struct opening *opening, const struct opening *pattern)
{
	return opening->pool == pattern->pool && (pattern->device < 0 || opening->device == pattern->device);
}

CUresult peer_pool_opened(uint64_t pool, CUdevice owner, CUdevice device)
{
	return add_once(is_of_pool, &(struct opening){.pool = pool, .device = device, .owner = owner});
}

void peer_pool_closed(uint64_t pool, CUdevice device)
{
	struct opening pattern = {.pool = pool, .device = device};

	if (pool && peer_forget(is_of_pool, &pattern))
		close_left_open();
}

/* ---- copies ---- */

static bool is_for_copies(const struct opening *opening, const struct opening *pattern)
{
	return !opening->context && !opening->pool && opening->device == pattern->device &&
	       opening->owner == pattern->owner;
}

static CUresult open_for_copies(CUdevice device, CUdevice owner)
{
	return add_once(is_for_copies, &(struct opening){.device = device, .owner = owner});
}

bool peer_open_for_copies(CUdevice one, CUdevice other)
{
	if (one == other)
		return true;
	if (one < 0 || one >= DEVICE_MOST || other < 0 || other >= DEVICE_MOST)
		return false;
	if (atomic_load(&peers.copies_open[one]) >> other & 1)
		return true;
	if (atomic_load(&peers.copies_refused[one]) >> other & 1)
		return false;
	CUresult result = device_reaches(one, other) && device_reaches(other, one) ? open_for_copies(one, other)
										   : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (result == CUDA_SUCCESS)
		result = open_for_copies(other, one);
	/* What passes is asked for again by the next copy. */
	if (result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_OUT_OF_MEMORY)
		return false;
	bool open = result == CUDA_SUCCESS;
	_Atomic uint64_t *bits = open ? peers.copies_open : peers.copies_refused;
	atomic_fetch_or(&bits[one], UINT64_C(1) << other);
	atomic_fetch_or(&bits[other], UINT64_C(1) << one);
	return open;
}

/* ---- pointer queries ---- */

CUmemAccess_flags peer_access(CUcontext context, const struct ledger_row *row)
{
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	CUdevice device, opened;

	/* Only the device that opened the memory can access it (ipc.c). */
	if (row->kind == LEDGER_TAKEN && context && context_device(context, &device) &&
	    context_device(row->context, &opened) && device != opened)
		return CU_MEM_ACCESS_FLAGS_PROT_NONE;
	if (row->kind != LEDGER_HEAP || !peer_is_any() || !context || !context_device(context, &device) ||
	    device == row->device)
		return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	location.id = device;
	if (row->heap.pool && REAL(cuMemPoolGetAccess)(&flags, row->heap.pool, &location) == CUDA_SUCCESS)
		return flags;
	const struct opening pattern = {.context = context, .owner_context = row->context};
	return peer_find(is_between, &pattern) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}
