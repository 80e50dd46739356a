/*
 * backend_heap.c: the backend of the heap. An allocation that finds no memory tries, in order, deferred frees, memory
 * that the mover is about to free, host memory kept by other heaps, unused host memory of other processes, and the
 * driver's pools. While the process is suspended, or it is not its turn, what it may have when it goes on is waited for.
 */
#include "shim/serve/backend.h"
#include "shim/context/context.h"
#include "shim/serve/control.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/base/log.h"
#include "shim/serve/deferred_free.h"
#include "shim/heap/on_use.h"
#include "shim/serve/segments.h"
#include "shim/device/admission.h"
#include "shim/device/pool.h"
#include "shim/accounting/quota.h"
#include "shim/driver/real.h"
#include "shim/mover/spill.h"
#include "shim/submit/pdl.h"
#include "shim/submit/submission.h"

#include <time.h>

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

/* A request to the heap, for repeated tries. */
struct want {
	struct heap *heap;
	struct device *device; /* the heap's device */
	size_t bytes;
	enum chunk_kind kind;
	backend_heap_make make;
};

static enum sw_status backend_heap_ask(const struct want *want, enum heap_from from, struct heap_grant *ret_grant)
{
	return want->make(want->heap, want->bytes, want->kind, from, ret_grant);
}

/* How long an allocation that finds no memory at all waits for memory that the mover holds for a moment. */
#define GIVEN_PATIENCE_MS 50

/*
 * Before anything goes to the host, deferred frees are awaited, for a few milliseconds at most, since what they wait
 * for may need the calling thread.
 */
static enum sw_status alloc_with_frees(const struct want *want, enum heap_from from, struct heap_grant *ret_grant)
{
	enum sw_status status = SW_NO_MEMORY;

	if (deferred_free_any()) {
		do
			status = backend_heap_ask(want, from == HEAP_DEVICE_FIRST ? HEAP_DEVICE : from, ret_grant);
		while (status == SW_NO_MEMORY && deferred_free_wait(want->device->ordinal));
	}
	if (status != SW_NO_MEMORY)
		return status;
	/* Asked before trying: what the mover holds now may be free a moment after the try has failed. */
	for (unsigned i = 0;; i++) {
		bool in_hand = heap_has_given(want->heap) || heap_is_copying(want->heap) ||
			       heap_is_filling_host_reserve(want->heap);

		status = backend_heap_ask(want, from, ret_grant);
		if (status != SW_NO_MEMORY)
			return status;
		/* What other heaps keep for their next blocks is host memory of the same budget. */
		if (!in_hand || i == GIVEN_PATIENCE_MS)
			return (from == HEAP_DEVICE_FIRST || from == HEAP_HOST) && device_make_host_room(want->device)
				   ? backend_heap_ask(want, from, ret_grant)
				   : status;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

/* Returns how much host memory a request needs that was refused. */
static uint64_t host_bytes(const struct want *want, enum heap_from from)
{
	uint64_t here = from == HEAP_DEVICE_FIRST ? budget_left(&want->device->budget) : 0;

	return want->bytes > here ? want->bytes - here : 0;
}

/* If other processes of the user have the host memory, they are asked for what they do not use. */
static enum sw_status alloc_patiently(const struct want *want, enum heap_from from, struct heap_grant *ret_grant)
{
	unsigned tries = 0;

	for (;;) {
		uint64_t refusals = quota_refusals();
		enum sw_status status = alloc_with_frees(want, from, ret_grant);

		if (status != SW_NO_MEMORY || quota_refusals() == refusals ||
		    !quota_wait(host_bytes(want, from), &tries))
			return status;
	}
}

/* Returns what a request may have at most, whoever uses the rest now. */
static uint64_t most_ever(const struct device *device, const struct heap *heap, enum heap_from from)
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

/* A try counts if the process was not away at its beginning, nor at its end; or if so many were cut. */
#define CUT_TRIES 20
/*
 * For so long an allocation waits with an open gate until the process has left for another's turn, or others have for
 * its own. It gives up when it cannot be stopped (TURN_TRIES), which takes about two seconds.
 */
#define TURN_PATIENCE_MS 10000

/* What an allocation lacks now it may have later. */
static bool is_away(const struct device *device)
{
	return spill_is_suspended(device) || atomic_load(&device->out_of_turn);
}

/*
 * What it lacks while it is away it may have in its turn, or when it is resumed, for which it waits as a submission
 * does. Locking: the caller must hold no lock.
 */
static enum sw_status alloc_when_back(const struct want *want, enum heap_from from, struct heap_grant *ret_grant)
{
	enum sw_status status = SW_NO_MEMORY;
	bool away = true;

	control_start();
	for (unsigned i = 0; status == SW_NO_MEMORY && away && i < CUT_TRIES; i++) {
		bool in_time = gate_wait_while(&want->device->out_of_turn, TURN_PATIENCE_MS);
		if (spill_is_ending())
			break;
		away = is_away(want->device);
		status = alloc_patiently(want, from, ret_grant);
		away = in_time && (away || is_away(want->device));
	}
	return status;
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
				 backend_heap_make make, struct heap_grant *ret_grant)
{
	admission_wait(device);
	struct want want = {device_heap(device), device, bytes, kind, make};
	struct heap_grant grant = *ret_grant;

	if (!want.heap)
		return SW_NOT_SUPPORTED;
	if (from == HEAP_HOST && !heap_has_host(want.heap)) {
		log_once(
		    "place: host needs host-backed VMM memory, which this driver or device does not have; the next "
		    "choice is taken, at last the driver");
		return SW_NOT_SUPPORTED;
	}
	pool_refresh(device);
	if (from != HEAP_HOST)
		device_take_back(device, heap_rounded(bytes));
	enum sw_status status = SW_NO_MEMORY;
	bool away = is_away(device);
	if (from == HEAP_DEVICE_FIRST && kind == CHUNK_MOVABLE) {
		spill_room_for_new(device, bytes);
		/* While suspended, the device is left to other processes, unless the host has nothing left. */
		if (spill_is_suspended(device))
			status = alloc_patiently(&want, HEAP_HOST, &grant);
	}
	if (status == SW_NO_MEMORY)
		status = alloc_patiently(&want, from, &grant);
	while (status == SW_NO_MEMORY && segments_wait(device))
		status = alloc_patiently(&want, from, &grant);
	if (status == SW_NO_MEMORY && pool_give_back(device))
		status = backend_heap_ask(&want, from, &grant);
	away |= is_away(device);
	if (status == SW_NO_MEMORY && away && bytes <= most_ever(device, want.heap, from))
		status = alloc_when_back(&want, from, &grant);
	/* heap_on_use_take() keeps what it took before it failed. */
	*ret_grant = grant;
	if (grant.bytes_away) {
		pdl_spilled();
		if (from == HEAP_DEVICE_FIRST && !spill_is_suspended(device))
			note_spill(device, &grant);
		/* Memory that begins on the host is fetched when it is used. */
		if (kind == CHUNK_MOVABLE)
			spill_pressure(device);
	}
	if (status != SW_OK)
		return status;
	control_start();
	if (grant.reused)
		stats_add(STAT_block_reuses, 1);
	return SW_OK;
}

/*
 * Returns whether such an allocation may be made: one that fits on the device natively, or into the budgets. More could
 * never be used, and a program that asks for less and less until it gets it is to learn that.
 */
static bool may_reserve(const struct device *device, struct heap *heap, uint64_t bytes, enum heap_from from)
{
	return bytes <= device->total || bytes <= most_ever(device, heap, from);
}

/* By address space alone; submissions take memory (serve/on_use.h). */
static enum sw_status reserve(struct device *device, const struct backend_request *request, struct ledger_row *row)
{
	struct heap *heap = device_heap(device);
	CUdeviceptr address;

	if (!heap)
		return SW_NOT_SUPPORTED;
	if (!may_reserve(device, heap, request->bytes, backend_heap_from(request->decision)))
		return SW_NO_MEMORY;
	enum sw_status status = heap_on_use_reserve(heap, request->bytes, request->decision->keep, &address);
	if (status != SW_OK)
		return status;
	/* Before the program knows the address. */
	submission_set_on_use();
	row->key = address;
	row->kind = LEDGER_HEAP;
	row->home = &backend_heap;
	row->heap.on_use = true;
	return SW_OK;
}

static enum sw_status backend_heap_alloc(struct device *device, const struct backend_request *request,
					 struct ledger_row *row, size_t *ret_pitch)
{
	enum chunk_kind kind = row->fixed ? CHUNK_FIXED : CHUNK_MOVABLE;
	struct heap_grant grant = {0};

	/* Known already, unless the program has kept the handle of a context that was reset. */
	context_known(row->context, device->ordinal);
	if (request->on_use) {
		if (request->height)
			*ret_pitch = request->bytes / request->height;
		return reserve(device, request, row);
	}
	enum sw_status status =
	    backend_heap_take(device, request->bytes, kind, backend_heap_from(request->decision), heap_alloc, &grant);
	if (status != SW_OK)
		return status;
	if (request->decision && request->decision->keep)
		heap_keep(atomic_load(&device->heap), grant.block);
	row->kind = LEDGER_HEAP;
	row->home = &backend_heap;
	row->key = grant.address;
	row->heap.block = grant.block;
	row->on_host_bytes = grant.bytes_away;
	if (request->height)
		*ret_pitch = request->bytes / request->height;
	return SW_OK;
}

static void backend_heap_release(struct ledger_row *row)
{
	struct device *device = device_get(row->device);

	pool_row_gone(row);
	if (row->heap.on_use)
		row->heap.had = heap_on_use_free(atomic_load(&device->heap), row->key);
	else if (segments_has(row))
		segments_release(row);
	else
		heap_free(atomic_load(&device->heap), row->heap.block, row->key);
	ledger_row_free(row);
}

const struct backend backend_heap = {
    .name = "heap",
    .alloc = backend_heap_alloc,
    .free = backend_free_idle,
    .release = backend_heap_release,
};
