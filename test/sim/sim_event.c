// SPDX-License-Identifier: Apache-2.0
/*
 * sim_event.c: events, host functions, and the memory operations of streams.
 *
 * An event is the number of its last record on a stream. Its time is taken when the record's turn comes; a generation
 * keeps an overtaken record from writing into an event that was recorded again or destroyed since. Event structs are
 * reused, never freed.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"

/* All events there ever were lie in one array, so that whether a handle is one takes no search. */
#define EVENTS_MAX ((size_t)1 << 20)
static struct CUevent_st *all;
static size_t n_all;
static CUevent spare;

/* An event, living or destroyed. */
static bool is_event(CUevent event)
{
	uintptr_t at = (uintptr_t)event - (uintptr_t)all;

	return at < n_all * sizeof(*all) && at % sizeof(*all) == 0;
}

CUevent sim_event(CUevent event)
{
	return is_event(event) && event->alive ? event : NULL;
}

/* NULL: there is no room. */
static CUevent new_event(void)
{
	/* By calloc: the pages come when they are used, and a leak checker sees what the events own. */
	if (!all)
		all = calloc(EVENTS_MAX, sizeof(*all));
	return all && n_all < EVENTS_MAX ? &all[n_all++] : NULL;
}

CUresult sim_event_usable(CUevent event)
{
	if (!sim.set.dead_handles && is_event(event) && !event->alive)
		sim_break_rule("an event is used that was destroyed");
	if (!sim_event(event))
		return sim_why(CUDA_ERROR_INVALID_HANDLE, "%p is not an event", (void *)event);
	if (!event->context->alive || event->ends != event->context->ends) {
		sim_break_rule("an event is used that ended with its context");
		return sim_why(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the event ended with its context");
	}
	return CUDA_SUCCESS;
}

static CUresult destroy(CUevent event)
{
	CUresult result = sim_event_usable(event);

	if (result)
		return result;
	free(event->tips);
	event->tips = NULL;
	sim_shared_drop(event);
	event->alive = false;
	event->generation++;
	event->next = spare;
	spare = event;
	return CUDA_SUCCESS;
}

CUresult sim_event_new(CUevent *ret_event, unsigned flags)
{
	CUevent event = spare;

	if (!ret_event || (flags & ~7u))
		return CUDA_ERROR_INVALID_VALUE;
	if (event)
		spare = event->next;
	else
		event = new_event();
	if (!event)
		return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "no room for another event");
	unsigned long generation = event->generation + 1;
	*event = (struct CUevent_st){.alive = true, .flags = flags, .generation = generation};
	event->context = sim_context();
	event->ends = event->context->ends;
	CUresult result = sim_shared_make(event);
	if (result)
		destroy(event);
	else
		*ret_event = event;
	return result;
}

static void run_record(struct sim_work *work)
{
	uint64_t now = sim_now();

	sim_lock();
	if (work->event.event->generation == work->event.generation)
		work->event.event->time = now;
	sim_unlock();
	if (work->event.shared)
		sim_shared_reach(work->event.shared, work->event.number);
}

static CUresult record(CUevent event, CUstream handle)
{
	CUstream stream;
	CUresult result = sim_stream(handle, &stream) ?: sim_event_usable(event);

	if (result)
		return result;
	if (event->context != stream->context)
		return sim_why(CUDA_ERROR_INVALID_HANDLE, "event and stream are of different contexts");
	if (stream->capture)
		return sim_capture_record(stream, event);
	struct sim_work *work = sim_work_new("cuEventRecord", CU_GRAPH_NODE_TYPE_EVENT_RECORD, run_record);
	work->event.event = event;
	work->event.generation = event->generation + 1;
	work->event.shared = event->shared;
	uint64_t number = event->shared ? __atomic_add_fetch(&event->shared->recorded, 1, __ATOMIC_ACQ_REL) : 0;
	work->event.number = number;
	result = sim_submit(handle, work);
	if (result && event->shared)
		sim_shared_reach(event->shared, number);
	if (result)
		return result;
	event->generation++;
	event->capture = NULL;
	event->recorded = true;
	event->time = 0;
	event->at = (struct sim_after){stream, stream->last};
	return CUDA_SUCCESS;
}

/* All work of a context so far. A stream of it that captures makes that impossible, and its capture invalid. */
static CUresult record_context(CUcontext context, CUevent event)
{
	bool capturing = false;
	CUresult result = sim_event_usable(event);

	if (result)
		return result;
	if (event->context != context)
		return sim_why(CUDA_ERROR_INVALID_HANDLE, "%p is not an event of that context", (void *)event);
	for (struct sim_capture *capture = sim_captures; capture; capture = capture->next) {
		if (capture->context != context)
			continue;
		sim_capture_invalidate(capture, "cuCtxRecordEvent");
		capturing = true;
	}
	if (capturing)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	event->generation++;
	event->capture = NULL;
	event->recorded = true;
	event->time = 0;
	return sim_mark_context(context, &event->at);
}

static CUresult may_ask(CUevent event)
{
	CUresult result = sim_event_usable(event) ?: sim_unsafe();

	if (!result && event->capture)
		result = sim_capture_event_touched(event);
	return result;
}

static CUresult query(CUevent event)
{
	CUresult result = may_ask(event);

	if (result)
		return result;
	if (event->context->dead)
		return event->context->dead;
	if (event->shared)
		return sim_shared_is_reached(event->shared, event->shared->recorded) ? CUDA_SUCCESS
										     : CUDA_ERROR_NOT_READY;
	return !event->recorded || event->at.stream->done >= event->at.seq ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult synchronize(CUevent event)
{
	CUresult result = may_ask(event);

	if (result)
		return result;
	CUcontext context = event->context;
	struct sim_shared *shared = event->shared;
	uint64_t number = shared ? shared->recorded : 0;
	unsigned tries = 0;
	while (shared && !context->dead && !sim_shared_is_reached(shared, number)) {
		sim_unlock();
		sim_look_again(&tries);
		sim_lock();
	}
	if (!shared && event->recorded)
		sim_wait_after(event->at);
	sim_pool_trim();
	return context->dead;
}

static CUresult elapsed(float *ret_ms, CUevent start, CUevent end)
{
	if (!ret_ms)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = sim_event_usable(start) ?: sim_event_usable(end);
	if (result)
		return result;
	if (!start->recorded || !end->recorded)
		return sim_why(CUDA_ERROR_INVALID_HANDLE, "an event was never recorded");
	if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
		return sim_why(CUDA_ERROR_INVALID_HANDLE, "an event was made without timing");
	if (start->at.stream->done < start->at.seq || end->at.stream->done < end->at.seq)
		return CUDA_ERROR_NOT_READY;
	*ret_ms = (float)((double)(int64_t)(end->time - start->time) / 1e6);
	return CUDA_SUCCESS;
}

SPELL_FREE(cuCtxRecordEvent, (CUcontext context, CUevent event), record_context(context, event))
SPELL(cuEventCreate, (CUevent * event, unsigned flags), sim_event_new(event, flags))
SPELL_FREE_2(cuEventDestroy, (CUevent event), destroy(event))
SPELL_STREAM(cuEventRecord, (CUevent event, CUstream stream), stream, record(event, stream))
SPELL_STREAM(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), stream,
	     ((void)flags, record(event, stream)))
SPELL_FREE(cuEventQuery, (CUevent event), query(event))
SPELL_FREE(cuEventSynchronize, (CUevent event), synchronize(event))
SPELL_FREE_2(cuEventElapsedTime, (float *ms, CUevent start, CUevent end), elapsed(ms, start, end))

/* ---- host functions ---- */

static CUresult host_function(CUstream handle, CUhostFn fn, CUstreamCallback callback, void *data)
{
	CUstream stream;
	CUresult result = sim_stream(handle, &stream);

	if (result)
		return result;
	if (!fn && !callback)
		return CUDA_ERROR_INVALID_VALUE;
	if (callback && stream->capture) {
		sim_capture_invalidate(stream->capture, "cuStreamAddCallback cannot be captured");
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	struct sim_work *work = sim_work_new("a host function", CU_GRAPH_NODE_TYPE_HOST, sim_run_host);
	work->host.fn = fn;
	work->host.callback = callback;
	work->host.stream = handle;
	work->host.data = data;
	work->always = callback != NULL;
	return sim_submit(handle, work);
}

SPELL_STREAM(cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *data), stream,
	     host_function(stream, fn, NULL, data))
SPELL_STREAM(cuStreamAddCallback, (CUstream stream, CUstreamCallback fn, void *data, unsigned flags), stream,
	     ((void)flags, host_function(stream, NULL, fn, data)))

/* ---- wait for and write values ---- */

static bool is_wait(const CUstreamBatchMemOpParams *op)
{
	return op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

/* 4 or 8; 0: no value is concerned. */
static unsigned value_bytes(const CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return 4;
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return 8;
	default:
		return 0;
	}
}

/* Waits and writes lie alike in the union. */
static bool satisfied(const CUstreamBatchMemOpParams *op)
{
	const void *at = sim_pointer(op->waitValue.address);
	uint64_t value = op->waitValue.value64, now;
	bool is_short = value_bytes(op) == 4;
	int64_t difference;

	if (is_short) {
		value = op->waitValue.value;
		now = __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
		difference = (int32_t)((uint32_t)now - (uint32_t)value);
	} else {
		now = __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
		difference = (int64_t)(now - value);
	}
	switch (op->waitValue.flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return difference >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return difference == 0;
	case CU_STREAM_WAIT_VALUE_AND:
		return (now & value) != 0;
	default:
		return is_short ? (uint32_t) ~(now | value) != 0 : ~(now | value) != 0;
	}
}

static void run_wait(struct sim_work *work, const CUstreamBatchMemOpParams *op)
{
	bool dead = false;
	unsigned tries = 0;

	while (!dead && !satisfied(op)) {
		sim_look_again(&tries);
		sim_lock();
		dead = work->context->dead;
		sim_unlock();
	}
}

static void run_write(const CUstreamBatchMemOpParams *op)
{
	void *at = sim_pointer(op->writeValue.address);

	if (value_bytes(op) == 4)
		__atomic_store_n((uint32_t *)at, op->writeValue.value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint64_t *)at, op->writeValue.value64, __ATOMIC_RELEASE);
}

static void run_values(struct sim_work *work)
{
	const CUstreamBatchMemOpParams *ops = work->owned;

	for (size_t i = 0; i < work->owned_bytes / sizeof(*ops); i++) {
		if (is_wait(&ops[i]))
			run_wait(work, &ops[i]);
		else if (value_bytes(&ops[i]))
			run_write(&ops[i]);
	}
}

bool sim_values_name(const struct sim_work *work, uintptr_t start, size_t bytes)
{
	const CUstreamBatchMemOpParams *ops = work->owned;

	for (size_t i = 0; i < work->owned_bytes / sizeof(*ops); i++)
		if (value_bytes(&ops[i]) && ops[i].waitValue.address - start < bytes)
			return true;
	return false;
}

static CUresult judge_value(const CUstreamBatchMemOpParams *op)
{
	CUdeviceptr address = op->waitValue.address;
	unsigned bytes = value_bytes(op);

	if (op->operation == CU_STREAM_MEM_OP_BARRIER || op->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)
		return CUDA_SUCCESS;
	if (!bytes || address % bytes || !address)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_in_window(address) && !sim_accessible(address, bytes, sim_context(), !is_wait(op)))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx is not mapped", address);
	return CUDA_SUCCESS;
}

CUresult sim_values_work(struct sim_work **ret_work, unsigned n, const CUstreamBatchMemOpParams *ops)
{
	if (!n || !ops)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n; i++) {
		CUresult result = judge_value(&ops[i]);

		if (result)
			return result;
	}
	struct sim_work *work = sim_work_new("waits and writes of values", CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, run_values);
	work->owned_bytes = n * sizeof(*ops);
	work->owned = malloc(work->owned_bytes);
	memcpy(work->owned, ops, work->owned_bytes);
	*ret_work = work;
	return CUDA_SUCCESS;
}

static CUresult batch(CUstream stream, unsigned n, const CUstreamBatchMemOpParams *ops)
{
	struct sim_work *work;
	CUresult result = sim_values_work(&work, n, ops);

	return result ? result : sim_submit(stream, work);
}

static CUresult value(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, cuuint64_t number,
		      unsigned flags)
{
	CUstreamBatchMemOpParams op = {
	    .waitValue = {.operation = type, .address = address, .value64 = number, .flags = flags}};

	if (!sim.set.stream_values)
		return sim_why(CUDA_ERROR_NOT_SUPPORTED, "SIM_STREAM_VALUES is off");
	return batch(stream, 1, &op);
}

#define VALUE_SPELLS(name, type, operation)                                                                            \
	SPELL_STREAM_2(name, (CUstream stream, CUdeviceptr address, type number, unsigned flags), stream,              \
		       value(stream, CU_STREAM_MEM_OP_##operation, address, number, flags))
VALUE_SPELLS(cuStreamWaitValue32, cuuint32_t, WAIT_VALUE_32)
VALUE_SPELLS(cuStreamWaitValue64, cuuint64_t, WAIT_VALUE_64)
VALUE_SPELLS(cuStreamWriteValue32, cuuint32_t, WRITE_VALUE_32)
VALUE_SPELLS(cuStreamWriteValue64, cuuint64_t, WRITE_VALUE_64)
SPELL_STREAM_2(cuStreamBatchMemOp, (CUstream stream, unsigned n, CUstreamBatchMemOpParams *ops, unsigned flags), stream,
	       ((void)flags, batch(stream, n, ops)))
