// SPDX-License-Identifier: Apache-2.0
/*
 * make_room.c: the givers, in their order (make_room.h), and the backends whose requests ask them: the heap's and the
 * driver's.
 */
#include "shim/serve/make_room.h"
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/serve/account.h"
#include "shim/serve/control.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/segments.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/submit/arguments.h"
#include "shim/submit/submission.h"

#include <pthread.h>

/* ---- what frees and the mover are about to give ---- */

/* Lets a request that was tried at one place only go on to all that it may use. */
static bool give_next_place(struct room *room)
{
	bool more = room->place != room->from;

	room->place = room->from;
	return more;
}

/* How long (ms) a request that finds no memory at all waits for memory that the mover holds for a moment. */
#define SOON_LOOKS 50

static bool give_soon(struct room *room)
{
	if (!room->soon || room->looks++ == SOON_LOOKS)
		return false;
	clock_sleep(1000000);
	return true;
}

/* ---- what others do not use ---- */

/* If other processes of the user have the host memory, they are asked for what they do not use. */
static bool give_other_processes(struct room *room)
{
	uint64_t here = room->place == HEAP_HOST ? 0 : budget_left(&room->device->budget);

	return atomic_load(&host_budget.refusals) != room->refusals &&
	       quota_wait(room->bytes > here ? room->bytes - here : 0, &room->asked);
}

static bool give_segments(struct room *room)
{
	if (!segments_wait(room->device))
		return false;
	room->asked = 0; /* a segment may give too little: other processes are asked again then */
	return true;
}

/* ---- live memory of the heap, for the driver ---- */

/* Evicted for a request of unknown size: a library's workspace, as a rule. */
#define UNKNOWN_BYTES ((uint64_t)512 << 20)
/*
 * Evictions that a request may have: other allocations, or the mover, may take what was freed. A request of unknown
 * size may need any amount, so it gets one only.
 */
#define SPILLS_KNOWN   2
#define SPILLS_UNKNOWN 1
/* Longest wait for the turns of others, in all. */
#define WAIT_NS 30000000000ull
/* Time to retry. A turn then ends by itself: its request may be stuck in the driver, or gone. */
#define RETRY_NS 200000000u
#define LOOK_NS  100000

/* Takes the turn for `ns` from now. Returns false if another request has it. */
static bool take_turn(struct room *room, uint64_t ns)
{
	_Atomic uint64_t *end = &serve_state.turns[room->device->ordinal];
	uint64_t now = clock_now(), until = now + ns, before = atomic_load(end);

	if ((before > now && before != room->turn) || !atomic_compare_exchange_strong(end, &before, until))
		return false;
	room->turn = until;
	return true;
}

static bool give_eviction(struct room *room)
{
	uint64_t most = room->bytes > UNKNOWN_BYTES ? room->bytes : UNKNOWN_BYTES;
	bool waited = false, made = false;

	if (room->spills == (room->bytes ? SPILLS_KNOWN : SPILLS_UNKNOWN))
		return false;
	while (!take_turn(room, spill_room_ns(most) + RETRY_NS)) {
		room->turn = 0;
		if (clock_now() >= room->until)
			return false;
		waited = true;
		clock_sleep(LOOK_NS);
	}
	if (!waited) {
		room->spills++;
		made = spill_make_room(room->device, most, false);
	}
	take_turn(room, RETRY_NS);
	return made || waited;
}

/* ---- the turn ---- */

/* A try counts if the process was not away at its beginning, nor at its end; or if so many were cut. */
#define CUT_TRIES 20
/*
 * How long (ms) a request waits with an open gate until this process has left for another's turn, or others have left
 * for its own. Vain tries to stop a process end after two seconds, or nine (TURN_TRIES).
 */
#define TURN_PATIENCE_MS 10000

/* What a request lacks now it may have later. */
static bool is_away(const struct device *device)
{
	return spill_residence(device) != RESIDENCE_RUNS || atomic_load(&device->out_of_turn);
}

/* Returns what a request may have at most, whoever uses the rest now. */
static uint64_t make_room_most(const struct device *device, const struct heap *heap, enum heap_from from)
{
	uint64_t used, left, shared = atomic_load(&device->shared_total);
	uint64_t most = atomic_load(&device->follows) ? device->total : atomic_load(&device->own_limit);

	if (from == HEAP_HOST)
		most = 0;
	else if (shared && shared < most)
		most = shared;
	if (from == HEAP_DEVICE_FIRST)
		most += heap_lent(heap, &used, &left);
	return most + (from != HEAP_DEVICE && heap_has_host(heap) ? atomic_load(&host_budget.limit) : 0);
}

/*
 * What it lacks while it is away it may have in its turn, or when it is resumed, for which it waits as a submission
 * does.
 */
static bool give_turn(struct room *room)
{
	struct device *device = room->device;

	if (!(room->away || is_away(device)) || room->late || room->cuts++ == CUT_TRIES ||
	    room->bytes > make_room_most(device, atomic_load(&device->heap), room->from))
		return false;
	control_start();
	room->late = !gate_wait_while(&device->out_of_turn, TURN_PATIENCE_MS);
	if (spill_is_ending())
		return false;
	room->away = is_away(device);
	room->asked = 0;
	return true;
}

uint64_t backend_heap_most(const struct device *device, struct policy_size limit)
{
	if (limit.kind == POLICY_SIZE_AUTO)
		return UINT64_MAX;
	bool turns = atomic_load(&device->shared_total) && process_settings()->turns.mode != POLICY_TURNS_OFF;
	uint64_t budget = atomic_load(&device->budget.limit);

	if (turns || is_away(device))
		budget = larger(budget, make_room_most(device, NULL, HEAP_DEVICE));
	/* What other devices have borrowed of the budget is not this one's. */
	return budget + sizes_resolve(limit, budget, 0) + atomic_load(&device->lender.of_own);
}

/* ---- the table ---- */

#define LACK_HEAP (LACK_DEVICE | LACK_HOST | LACK_ADDRESS)

static const struct giver {
	unsigned lack; /* bits of enum lack: for what it is asked */
	bool to_heap;  /* what it gives is warm in the heap: who lacks the driver's memory needs those behind it, too */
	bool renews;   /* it may take long, so those before it may have something again */
	bool once;     /* even if it gave, it is asked again only after one behind it: others go on to use memory */
	/* One of the two gives: it needs to know the device alone, or the request. */
	bool (*give_of)(struct device *device);
	bool (*give)(struct room *room);
} givers[] = {
    /* For a few milliseconds at most, since what they wait for may need the calling thread. */
    {LACK_HEAP | LACK_DRIVER | LACK_LIMIT, true, false, false, deferred_free_wait, NULL},
    /* What was to stay on the device if a free came in time. */
    {LACK_DEVICE | LACK_ADDRESS, false, false, false, NULL, give_next_place},
    {LACK_HEAP | LACK_LIMIT, false, false, false, NULL, give_soon},
    /* What other heaps keep for their next blocks is host memory of the same budget. */
    {LACK_HOST, false, false, true, device_make_host_room, NULL},
    {LACK_HOST, false, true, false, NULL, give_other_processes},
    /* What was to leave the device to others. */
    {LACK_HOST | LACK_ADDRESS, false, true, false, NULL, give_next_place},
    /* Before idle memory goes back, because that is what an unused segment becomes. */
    {LACK_HEAP | LACK_DRIVER | LACK_LIMIT, true, true, false, NULL, give_segments},
    {LACK_DRIVER, false, false, false, device_make_room, NULL},
    {LACK_DEVICE | LACK_LIMIT, false, false, true, pool_give_back, NULL},
    {LACK_DRIVER, false, true, false, NULL, give_eviction},
    {LACK_HEAP, false, true, false, NULL, give_turn},
};

/*
 * Before anything goes to the host, deferred frees are awaited. While the process is suspended, the device is left to
 * other processes, unless the host has nothing left.
 */
static enum heap_from place_of(const struct room *room)
{
	if (room->from != HEAP_DEVICE_FIRST)
		return room->from;
	if (room->kind == CHUNK_MOVABLE && spill_residence(room->device) != RESIDENCE_RUNS)
		return HEAP_HOST;
	return atomic_load(&serve_state.deferred_free.n_pending) ? HEAP_DEVICE : HEAP_DEVICE_FIRST;
}

/* The givers before this one may have something again. */
static void renew(struct room *room, unsigned giver)
{
	room->spent &= ~0u << giver;
	room->looks = 0;
	if (givers[giver].give != give_next_place)
		room->place = place_of(room);
}

/*
 * There was no memory: returns true if something was given, so that the caller should try again, at room->place.
 * Sleeping is a cancellation point, and the program's call that called us must not be cancelled half-way.
 */
static bool make_room(struct room *room)
{
	bool made = false;
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	for (unsigned i = 0; i < sizeof(givers) / sizeof(givers[0]); i++) {
		const struct giver *giver = &givers[i];

		if (!(giver->lack & room->lack) || room->spent & 1u << i)
			continue;
		bool gave = giver->give ? giver->give(room) : giver->give_of(room->device);

		made |= gave;
		if (!gave || giver->once)
			room->spent |= 1u << i;
		if (gave && giver->renews)
			renew(room, i);
		if (made && !(giver->to_heap && room->lack == LACK_DRIVER))
			break;
	}
	pthread_setcancelstate(before, NULL);
	room->made |= made;
	return made;
}

/* ---- calls of the driver ---- */

bool make_room_for_driver(struct room *room, int ordinal, uint64_t bytes)
{
	struct device *device = ordinal < 0 ? device_current(NULL) : device_get(ordinal);

	room->bytes = bytes;
	room->lack = LACK_DRIVER;
	room->spent = 0;
	/* No request can get more than the device has, whatever is evicted. */
	if (!device || bytes > device->total)
		return false;
	room->device = device;
	if (!room->until)
		room->until = clock_now() + WAIT_NS;
	return clock_now() <= room->until && make_room(room);
}

bool make_room_outside(struct room *room, int device)
{
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return false;
	bool made = make_room_for_driver(room, device, 0);
	enter_leave(&scope, CUDA_SUCCESS);
	return made;
}

void make_room_end(struct room *room, CUresult result)
{
	uint64_t mine = room->turn;

	if (mine)
		atomic_compare_exchange_strong(&serve_state.turns[room->device->ordinal], &mine, 0);
	room->turn = 0;
	if (room->made && result == CUDA_SUCCESS)
		stats_add(STAT_rescues, 1);
}

/* ---- no backend: passes the request through to the driver ---- */

static enum sw_status pass_alloc(struct device *device, const struct backend_request *request, struct ledger_row *row)
{
	CUdeviceptr address = 0;
	CUresult result;

	OOM_RETRY_CALL_INSIDE(result, device->ordinal, request->bytes,
			      request->height ? REAL(cuMemAllocPitch_v2)(&address, request->ret_pitch, request->width,
									 request->height, (unsigned)request->element)
					      : REAL(cuMemAlloc_v2)(&address, request->bytes));
	if (result != CUDA_SUCCESS)
		return status_of(result);
	row->kind = LEDGER_DRIVER;
	row->key = address;
	stats_add(STAT_passed, 1);
	account_drivers(row);
	return SW_OK;
}

static CUresult pass_free(struct ledger_row *row)
{
	return REAL(cuMemFree_v2)(row->key);
}

const struct backend backend_pass = {
    .alloc = pass_alloc,
    .free = pass_free,
};

/* ---- the heap's backend ---- */

static void note_spill(const struct device *device, const struct heap_grant *grant)
{
	bool moves = process_settings()->spill >= POLICY_SPILL_EXACT;
	char budget[32], bytes[32];

	stats_add(STAT_spilled_allocations, 1);
	stats_add(STAT_spilled_bytes, grant->bytes_away);
	stats_add(STAT_rescues, 1);
	if (process_settings()->report == POLICY_REPORT_NONE)
		return;
	log_once("SPILLING BEGINS: the device budget of %s is %s, %s went to %s; %s",
		 log_bytes(budget, sizeof(budget), atomic_load(&device->budget.limit)),
		 heap_is_full(atomic_load(&device->heap)) ? "not full but the device is" : "full",
		 log_bytes(bytes, sizeof(bytes), grant->bytes_away),
		 !grant->bytes_lent                       ? "host memory"
		 : grant->bytes_lent == grant->bytes_away ? "other devices"
							  : "other devices and host memory",
		 moves ? "memory moves over the link to where it is used, which takes time"
		       : "the GPU reaches it over the link, many times slower");
}

enum heap_from backend_heap_from(const struct policy_decision *decision)
{
	enum policy_place_of place = decision ? decision->place : POLICY_PLACE_AUTO;

	if (place == POLICY_PLACE_HOST)
		return HEAP_HOST;
	if (place == POLICY_PLACE_STRIPE)
		return HEAP_STRIPE;
	return place == POLICY_PLACE_DEVICE || process_settings()->spill == POLICY_SPILL_OFF ? HEAP_DEVICE
											     : HEAP_DEVICE_FIRST;
}

enum sw_status backend_heap_take(struct device *device, size_t bytes, enum chunk_kind kind, enum heap_from from,
				 struct policy_size limit, backend_heap_make make, struct heap_grant *ret_grant)
{
	struct room room = {.device = device, .bytes = bytes, .kind = kind, .from = from};
	enum sw_status status;

	/* The first that asks for memory of the heap of this device. */
	if (__builtin_expect(!atomic_load_explicit(&device->admission.over, memory_order_acquire), 0)) {
		admission_wait(device);
		control_start();
	}
	struct heap *heap = device_heap(device);
	if (!heap)
		return SW_NOT_SUPPORTED;
	if (from == HEAP_HOST && !heap_has_host(heap)) {
		log_once(
		    "place: host needs host-backed VMM memory, which this driver or device does not have; the next "
		    "choice is taken, at last the driver");
		return SW_NOT_SUPPORTED;
	}
	if (atomic_load_explicit(&pool_any, memory_order_relaxed))
		pool_refresh(device, false);
	if (from != HEAP_HOST && atomic_load(&device->lender.lent.used))
		device_take_back(device, heap_rounded(bytes));
	if (from == HEAP_DEVICE_FIRST && kind == CHUNK_MOVABLE)
		spill_room_for_new(device, bytes);
	/*
	 * Behind that, which may wait: the process may be suspended meanwhile, and new memory belongs on the host then.
	 */
	room.away = is_away(device);
	room.place = place_of(&room);
	for (;;) {
		room.refusals = atomic_load(&host_budget.refusals);
		uint64_t most = backend_heap_most(device, limit);
		bool is_limited = most != UINT64_MAX;

		/* One thread at a time: none takes what another was told is left. */
		if (is_limited)
			lock_take(&serve_state.limit);
		if (is_limited && heap_is_beyond(heap, bytes, kind, most, ret_grant))
			status = SW_LIMIT;
		else
			status = make(heap, bytes, kind, room.place, ret_grant);
		if (is_limited)
			lock_drop(&serve_state.limit);
		if (status == SW_OK)
			break;
		room.lack = ret_grant->lack;
		room.soon = ret_grant->soon;
		if (!status_is_short(status) || !make_room(&room))
			break;
	}
	/* heap_on_use_take() keeps what it took before it failed. */
	if (ret_grant->bytes_away) {
		if (!atomic_load_explicit(&pdl_cleared, memory_order_relaxed))
			pdl_spilled();
		if (from == HEAP_DEVICE_FIRST && spill_residence(device) == RESIDENCE_RUNS)
			note_spill(device, ret_grant);
		/* Memory that begins on the host is fetched when it is used. */
		if (kind == CHUNK_MOVABLE)
			spill_prepare(device, false);
	}
	if (status != SW_OK)
		return status;
	if (ret_grant->reused)
		stats_add(STAT_block_reuses, 1);
	return SW_OK;
}

void on_use_begins(CUdeviceptr address, uint64_t bytes)
{
	lock_take(&serve_state.managed.lock);
	submission_set_on_use(address, bytes);
	lock_drop(&serve_state.managed.lock);
}

void on_use_settle(void)
{
	bool any = false;

	lock_take(&serve_state.managed.lock);
	for (struct device *device = device_next(NULL); device && !any; device = device_next(device)) {
		struct heap *heap = atomic_load(&device->heap);

		any = heap && heap_on_use_any(heap);
	}
	if (!any)
		submission_set_on_use_off();
	lock_drop(&serve_state.managed.lock);
}

/* By address space alone; submissions take memory (serve/named.h). */
static enum sw_status reserve(struct device *device, const struct backend_request *request, struct ledger_row *row)
{
	struct heap *heap = device_heap(device);
	CUdeviceptr address;

	if (!heap)
		return SW_NOT_SUPPORTED;
	uint64_t most = backend_heap_most(device, request->decision->spill_limit);
	struct heap_grant grant = {0};
	if (most != UINT64_MAX && heap_is_beyond(heap, request->bytes, CHUNK_MOVABLE, most, &grant))
		return SW_LIMIT;
	/*
	 * More than fits on the device natively, or into the budgets, could never be used, and a program that asks for
	 * less and less until it gets it is to learn that. Managed memory may be larger than the device natively.
	 */
	bool managed = request->api == POLICY_API_MANAGED;
	if ((managed || request->bytes > device->total) &&
	    request->bytes > make_room_most(device, heap, backend_heap_from(request->decision)))
		return SW_NO_MEMORY;
	enum sw_status status = heap_on_use_reserve(heap, request->bytes, request->decision->keep, &address);
	if (status != SW_OK)
		return status;
	on_use_begins(address, request->bytes);
	row->key = address;
	row->kind = LEDGER_HEAP;
	row->home = &backend_heap;
	row->heap.on_use = true;
	return SW_OK;
}

static enum sw_status backend_heap_alloc(struct device *device, const struct backend_request *request,
					 struct ledger_row *row)
{
	enum chunk_kind kind = row->fixed ? CHUNK_FIXED : CHUNK_MOVABLE;
	struct heap_grant grant = {0};

	if (request->on_use)
		return reserve(device, request, row);
	enum sw_status status = backend_heap_take(device, request->bytes, kind, backend_heap_from(request->decision),
						  request->decision ? request->decision->spill_limit : BACKEND_NO_LIMIT,
						  heap_alloc, &grant);
	if (status != SW_OK)
		return status;
	if (request->decision && request->decision->keep)
		heap_keep(atomic_load(&device->heap), grant.block);
	row->kind = LEDGER_HEAP;
	row->home = &backend_heap;
	row->key = grant.address;
	row->heap.block = grant.block;
	row->on_host_bytes = grant.bytes_away;
	return SW_OK;
}

static void backend_heap_release(struct ledger_row *row)
{
	struct device *device = device_get(row->device);

	pool_row_freed(row, true);
	if (row->heap.on_use) {
		row->heap.had = heap_on_use_free(atomic_load(&device->heap), row->key);
		on_use_settle();
	} else if (segments_has(row)) {
		segments_release(row);
	} else {
		heap_free(atomic_load(&device->heap), row->heap.block, row->key);
	}
	ledger_row_free(row);
}

const struct backend backend_heap = {
    .alloc = backend_heap_alloc,
    .free = backend_free_idle,
    .release = backend_heap_release,
};
