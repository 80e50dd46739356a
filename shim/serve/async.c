// SPDX-License-Identifier: Apache-2.0
/*
 * async.c: stream-ordered allocations and frees. An allocation is served by a segment, a deferred block, the heap or
 * the driver's pools; a free records an event behind the stream, and gives a part to its segment or defers the block.
 */
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/heap/arena.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/process/process.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/segments.h"
#include "shim/serve/serve.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"

/*
 * Returns the order of a stream: its handle, except for the default stream of each thread, which is a stream of its
 * own with the same handle. Threads have odd numbers which, unlike pthread_self(), are never used again.
 */
static uint64_t order_of(CUstream stream, bool per_thread)
{
	static __thread uint64_t mine __attribute__((tls_model("initial-exec")));

	if (stream != CU_STREAM_PER_THREAD && (stream || !per_thread))
		return (uintptr_t)(stream ? stream : CU_STREAM_LEGACY);
	if (!mine)
		/* From 3 on: 1 is CU_STREAM_LEGACY. */
		mine = (atomic_fetch_add(&serve_state.async.n_threads, 1) + 1) << 1 | 1;
	return mine;
}

bool async_is_capturing(CUstream stream, bool per_thread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!capture_is_open())
		return false;
	return (per_thread ? REAL(cuStreamIsCapturing_ptsz) : REAL(cuStreamIsCapturing))(stream, &status) !=
		   CUDA_SUCCESS ||
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool async_is_for_heap(void)
{
	return process_settings()->async_use != POLICY_ASYNC_DRIVER;
}

/* ---- allocating ---- */

/*
 * Returns true if the device is so short of memory that what another stream has freed is worth waiting for. Small
 * blocks are excepted: they fit into an existing slab.
 */
static bool is_short(struct device *device, size_t bytes)
{
	struct heap *heap = atomic_load(&device->heap);

	return heap && heap_rounded(bytes) >= HEAP_UNIT &&
	       budget_left(&device->budget) + heap_idle(heap, CHUNK_DEVICE) < heap_rounded(bytes);
}

static bool may_wait(CUmemoryPool pool)
{
	int allowed = 1;

	REAL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &allowed);
	return allowed;
}

/* Gives the row a block that is still deferred. Returns false if none fits well. */
static bool take_pending(struct device *device, const struct async_request *request, enum heap_from from,
			 CUcontext context, struct ledger_row *row)
{
	struct deferred_free_want want = {
	    .device = device->ordinal,
	    .fixed = row->fixed,
	    .from = from,
	    .bytes = request->question.bytes,
	    .most = heap_rounded(request->question.bytes) / 8 * 9, /* an eighth more is not worth a driver call */
	    .context = context,
	    .order = order_of(request->stream, request->per_thread),
	};
	struct ledger_row *old = deferred_free_take_behind(&want);

	if (!old && deferred_free_any()) {
		deferred_free_reap(device->ordinal);
		pool_refresh(device, false);
		if (from != HEAP_HOST && is_short(device, request->question.bytes) && may_wait(row->heap.pool))
			old = deferred_free_take_after(&want, request->stream, request->per_thread);
	}
	if (!old)
		return false;
	row->home = old->home;
	row->key = old->key;
	row->heap.block = old->heap.block;
	/* The memory has another user now, of which the former one's allocator knows nothing. */
	/* A part of a segment stays alive until its next user has freed it. */
	if (!segments_has(old))
		lifetimes_freed(heap_arena(atomic_load(&device->heap))->lifetimes,
				old->key / LIVE_MAP_UNIT * LIVE_MAP_UNIT, old->key % LIVE_MAP_UNIT + old->bytes);
	if (row->heap.block)
		heap_reused(atomic_load(&device->heap), old->key, old->bytes);
	pool_row_freed(old, true);
	ledger_row_free(old);
	stats_add(STAT_stream_reuses, 1);
	return true;
}

/* Makes a new segment for the allocation. Returns false if there is no memory for it, or little is left. */
static bool make_segment(const struct segment_want *want, struct policy_size limit, struct ledger_row *row)
{
	uint64_t bytes = segments_length(want);
	struct heap_grant grant = {0};

	if (!bytes ||
	    backend_heap_take(want->device, bytes, CHUNK_MOVABLE, HEAP_DEVICE_FIRST, limit, heap_alloc, &grant) !=
		SW_OK ||
	    !segments_add(want, &grant, row))
		return false;
	row->on_host_bytes = grant.bytes_away;
	return true;
}

/* Returns false if no segment serves the row: the caller must try other memory. */
static bool take_segment(const struct segment_want *want, struct policy_size limit, struct ledger_row *row)
{
	bool waits = is_short(want->device, want->bytes) && may_wait(row->heap.pool);

	segments_reap();
	return segments_take(want, waits ? SEGMENTS_UNUSED : SEGMENTS_OWN, row) || make_segment(want, limit, row) ||
	       segments_take(want, waits ? SEGMENTS_ANY : SEGMENTS_DONE, row);
}

static enum sw_status async_take(struct device *device, const struct async_request *request,
				 const struct policy_decision *decision, CUcontext context, struct ledger_row *row)
{
	struct backend_request plain = request->question;
	/* Not behind a green context, whose events end before its work does. */
	bool segments = context == row->context && !row->fixed && !decision->keep &&
			backend_heap_from(decision) == HEAP_DEVICE_FIRST &&
			segments_are_for(device, request->question.bytes);
	struct segment_want want = {
	    .device = device,
	    .bytes = request->question.bytes,
	    .context = context,
	    .order = order_of(request->stream, request->per_thread),
	    .stream = request->stream,
	    .per_thread = request->per_thread,
	};

	plain.decision = decision;
	row->kind = LEDGER_HEAP;
	row->home = &backend_heap;
	/* The context is known already, unless the program has kept the handle of one that was reset. */
	context_known(row->context, device->ordinal);
	if (segments && segments_take(&want, SEGMENTS_OWN, row))
		return SW_OK;
	if (take_pending(device, request, backend_heap_from(decision), context, row))
		return SW_OK;
	if (segments && take_segment(&want, decision->spill_limit, row))
		return SW_OK;
	return backend_heap.alloc(device, &plain, row);
}

/*
 * Serves from the heap, on behalf of the pool. Returns NOT_SUPPORTED if there is no heap for this pool or this
 * device.
 */
static enum sw_status serve_heap(struct device *device, const struct async_request *request,
				 const struct policy_decision *decision, CUcontext context, CUdeviceptr *ret_address)
{
	CUmemoryPool pool = request->pool;

	if (!pool && REAL(cuDeviceGetMemPool)(&pool, device->ordinal) != CUDA_SUCCESS)
		return SW_NOT_SUPPORTED;
	uint64_t id = pool_for_heap(pool, device);
	struct ledger_row *row = id ? ledger_row_new(LEDGER_HEAP) : NULL;
	if (!row)
		return SW_NOT_SUPPORTED;
	row->device = device->ordinal;
	row->bytes = request->question.bytes;
	row->context = context_of_memory();
	row->fixed = !decision->movable;
	row->rule = decision->rule;
	row->heap.pool = pool;
	row->heap.pool_id = id;
	enum sw_status status = SW_NO_MEMORY; /* a full cap counts as out of memory */
	if (decision->use != POLICY_USE_HEAP || alloc_decide_take(decision, request->question.bytes, &row->cap))
		status = async_take(device, request, decision, context, row);
	if (status != SW_OK) {
		ledger_row_free(row);
		return status;
	}
	*ret_address = row->key;
	stats_add(STAT_stream_allocations, 1);
	pool_row_grown(row, row->bytes);
	account_commit(row, request->question.api, request->question.site);
	return SW_OK;
}

/*
 * Tries the uses in their order, as in serve.c; only the heap and the driver's pools know stream order. Returns
 * NOT_SUPPORTED if the driver is to serve it, or, with claim NULL, has had its turn.
 */
static enum sw_status ask_in_turn(struct device *device, const struct async_request *request,
				  const struct policy_decision *decision, CUcontext context,
				  struct account_claim *claim, CUdeviceptr *ret_address)
{
	enum sw_status status = SW_NOT_SUPPORTED;

	for (unsigned i = 0; i < decision->n_uses && (status_is_short(status) || status == SW_NOT_SUPPORTED); i++) {
		if (decision->uses[i] == POLICY_USE_DRIVER) {
			if (claim)
				claim->rule = decision->rule;
			if (claim && (i || alloc_decide_take(decision, request->question.bytes, &claim->cap)))
				return SW_NOT_SUPPORTED;
			status = SW_NO_MEMORY;
			continue;
		}
		if (decision->uses[i] == POLICY_USE_HEAP)
			status = serve_heap(device, request, decision, context, ret_address);
		else if (decision->uses[i] != POLICY_USE_DENY)
			status = SW_NOT_SUPPORTED;
		else if (status != SW_LIMIT)
			status = SW_NO_MEMORY;
	}
	return status;
}

/* Turns the status into the program's result. Returns false if that is the driver's answer. */
static bool async_answer(struct device *device, const struct async_request *request,
			 const struct policy_decision *decision, enum sw_status status, CUresult *ret_result)
{
	if (status == SW_NOT_SUPPORTED)
		return false;
	if (status_is_short(status))
		account_refused(status, device, request->question.bytes, decision->rule, request->question.site);
	*ret_result = status_result(status);
	if (status != SW_OK)
		trace_refused(device, &request->question, decision->rule, *ret_result);
	return true;
}

/* Returns true if the heap is the first of the uses that know stream order or deny. */
static bool is_for_heap(const struct policy_decision *decision)
{
	for (unsigned i = 0; i < decision->n_uses; i++)
		if (decision->uses[i] != POLICY_USE_MANAGED && decision->uses[i] != POLICY_USE_SYSTEM)
			return decision->uses[i] == POLICY_USE_HEAP;
	return false;
}

/* Claims from the pool: the driver is to serve it; if it cannot, the heap is asked. */
static bool claim_pool(struct device *device, struct async_request *request, const struct policy_decision *decision,
		       enum pool_claim how)
{
	if (!pool_claim(device, request->pool, request->question.bytes, how, &request->claim.pool))
		return false;
	request->claim.rule = decision->rule;
	request->heap_is_next = true;
	request->decision = *decision;
	return true;
}

/* Called in the stream's context. With async.use: driver a rule can deny, and nothing else. */
static bool async_serve(struct async_request *request, CUcontext context, CUdeviceptr *ret_address,
			CUresult *ret_result)
{
	enum policy_async use = process_settings()->async_use;
	struct device *device = device_current(NULL);
	struct account_claim *claim = &request->claim;

	if (!device)
		return false;
	claim->site = request->question.site = call_site_find(request->question.caller);
	trace_ask(device, &request->question);
	struct policy_decision decision = alloc_decide(device, &request->question);
	if (use == POLICY_ASYNC_DRIVER && decision.use != POLICY_USE_DENY)
		return false;
	bool pools_first = use == POLICY_ASYNC_AUTO && is_for_heap(&decision);
	if (pools_first && claim_pool(device, request, &decision, POOL_OPEN))
		return false;
	enum sw_status status = ask_in_turn(device, request, &decision, context, claim, ret_address);
	if (pools_first && status == SW_OK)
		pool_close(device);
	/* What a closed pool has unused, and cannot give back yet, may be all the memory that is left. */
	if (pools_first && status == SW_NO_MEMORY && claim_pool(device, request, &decision, POOL_WITHIN))
		return false;
	if (async_answer(device, request, &decision, status, ret_result))
		return true;
	if (use == POLICY_ASYNC_AUTO)
		pool_claim(device, request->pool, request->question.bytes, POOL_OVER, &claim->pool);
	return false;
}

static bool enter_stream(const struct async_request *request, CUcontext *ret_context, bool *ret_pushed)
{
	*ret_pushed = false;
	if ((request->per_thread ? REAL(cuStreamGetCtx_ptsz) : REAL(cuStreamGetCtx))(request->stream, ret_context) !=
	    CUDA_SUCCESS)
		return false;
	return *ret_context == context_current() || context_enter(*ret_context, ret_pushed) == CUDA_SUCCESS;
}

bool async_alloc(struct async_request *request, CUdeviceptr *ret_address, CUresult *ret_result)
{
	CUcontext context = NULL;
	bool pushed;

	/* The driver handles requests that it refuses, and allocations that become nodes of a graph. */
	if (!ret_address || !request->question.bytes || async_is_capturing(request->stream, request->per_thread))
		return false;
	if (!enter_stream(request, &context, &pushed))
		return false;
	bool served = async_serve(request, context, ret_address, ret_result);
	context_leave(pushed);
	return served;
}

bool async_rescue(const struct async_request *request, CUdeviceptr *ret_address, CUresult *ret_result)
{
	CUcontext context = NULL;
	bool pushed;

	if (!request->heap_is_next || !enter_stream(request, &context, &pushed))
		return false;
	struct device *device = device_current(NULL);
	bool served = false;
	if (device) {
		enum sw_status status = ask_in_turn(device, request, &request->decision, context, NULL, ret_address);

		if (status == SW_OK)
			pool_close(device);
		served = async_answer(device, request, &request->decision, status, ret_result);
	}
	context_leave(pushed);
	return served;
}

/* ---- freeing ---- */

/*
 * The block is free for the program at once, and for us when an event recorded now has completed. In a capture the
 * driver would refuse to record this free of memory that the graph did not allocate; so do we.
 */
CUresult async_free(CUdeviceptr address, CUstream stream, bool per_thread)
{
	if (async_is_capturing(stream, per_thread))
		return CUDA_ERROR_INVALID_VALUE;
	struct ledger_row *row = serve_take_ours(address);
	if (!row)
		return CUDA_ERROR_INVALID_VALUE;
	unsigned mark = segments_mark(row);
	CUresult result = context_record_stream(stream, per_thread, &row->pending.event, &row->pending.context);
	if (result != CUDA_SUCCESS) {
		ledger_commit(row);
		return result;
	}
	row->pending.order = order_of(stream, per_thread);
	trace_freed(trace_freeing(row));
	int device = row->device;
	stats_add(STAT_frees, 1);
	stats_add(STAT_deferred_frees, 1);
	if (segments_give(row, stream, per_thread, mark))
		return CUDA_SUCCESS;
	deferred_free_add(row);
	if (deferred_free_is_due())
		deferred_free_reap(device);
	return CUDA_SUCCESS;
}
