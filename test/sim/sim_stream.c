// SPDX-License-Identifier: Apache-2.0
/*
 * sim_stream.c: streams, from a handle to what is asked of it. Their work, and its order: sim_work.c.
 *
 * A stream struct is never freed: a destroyed stream finishes its work, its thread ends, and it moves to a list of the
 * dead, where events still find its numbers. With SIM_REUSE the next stream that is made is the one that died last,
 * under the same handle, as with a driver whose handles are addresses of its heap; its numbers go on, so that what
 * events say of the earlier stream stays true.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"

static CUstream graveyard;
static unsigned long long stream_ids = 16;

static CUstream stream_new(CUcontext context, unsigned flags, int priority)
{
	CUstream stream = sim.set.reuse ? graveyard : NULL;

	if (stream) {
		graveyard = stream->next;
		stream->orphan = false;
		stream->owner = 0;
	} else {
		stream = calloc(1, sizeof(*stream));
		pthread_cond_init(&stream->arrival, NULL);
	}
	stream->context = context;
	stream->alive = true;
	stream->flags = flags;
	stream->blocking = !(flags & CU_STREAM_NON_BLOCKING);
	stream->priority = priority;
	stream->id = ++stream_ids;
	stream->next = context->streams;
	context->streams = stream;
	return stream;
}

void sim_stream_unlink(CUstream stream)
{
	CUstream *link = &stream->context->streams;

	while (*link && *link != stream)
		link = &(*link)->next;
	if (*link)
		*link = stream->next;
	stream->next = graveyard;
	graveyard = stream;
}

CUresult sim_mark_context(CUcontext context, struct sim_after *ret_at)
{
	struct sim_work *marker = sim_work_new("cuCtxRecordEvent", CU_GRAPH_NODE_TYPE_EMPTY, sim_nothing);

	if (!context->observer)
		context->observer = stream_new(context, CU_STREAM_NON_BLOCKING, 0);
	/* It covers green contexts, too, also those that were destroyed (docs/facts.md). */
	for (CUcontext part = sim.contexts; part; part = part->next)
		for (CUstream stream = part->streams; stream && sim_is_part(part, context); stream = stream->next)
			sim_work_after(marker, stream, stream->last);
	marker->always = true;
	CUresult result = sim_work_queue(context->observer, marker);
	*ret_at = (struct sim_after){context->observer, context->observer->last};
	return result;
}

static bool is_stream(CUstream handle)
{
	for (CUcontext context = sim.contexts; context; context = context->next)
		for (CUstream stream = context->streams; stream; stream = stream->next)
			if (stream == handle)
				return stream->alive;
	return false;
}

SIM_EXPORT bool sim_is_stream(CUstream stream)
{
	sim_lock();
	bool is = is_stream(stream);
	sim_unlock();
	return is;
}

/* Destroyed, whether or not its work is done yet. */
static CUstream dead_stream(CUstream handle)
{
	for (CUcontext context = sim.contexts; context; context = context->next)
		for (CUstream stream = context->streams; stream; stream = stream->next)
			if (stream == handle)
				return stream;
	for (CUstream stream = graveyard; stream; stream = stream->next)
		if (stream == handle)
			return stream;
	return NULL;
}

/* One that ended is freed memory of the driver's; processes end when they use it. */
static CUresult not_a_stream(CUstream handle)
{
	CUstream dead = dead_stream(handle);

	if (dead && dead->orphan)
		sim_break_rule("a stream is used that ended with its context");
	else if (dead && !sim.set.dead_handles)
		sim_break_rule("a stream is used that was destroyed");
	return sim_why(CUDA_ERROR_INVALID_HANDLE, "%p is not a living stream", (void *)handle);
}

CUresult sim_stream(CUstream handle, CUstream *ret_stream)
{
	CUcontext context = sim_context();
	unsigned thread = sim_thread()->id;

	if (handle == NULL || handle == CU_STREAM_LEGACY) {
		if (!context->legacy)
			context->legacy = stream_new(context, 0, 0);
		*ret_stream = context->legacy;
		return CUDA_SUCCESS;
	}
	if (handle == CU_STREAM_PER_THREAD) {
		for (CUstream stream = context->streams; stream; stream = stream->next) {
			if (stream->owner != thread || !stream->alive)
				continue;
			*ret_stream = stream;
			return CUDA_SUCCESS;
		}
		*ret_stream = stream_new(context, 0, 0);
		(*ret_stream)->owner = thread;
		return CUDA_SUCCESS;
	}
	if (!is_stream(handle))
		return not_a_stream(handle);
	*ret_stream = handle;
	return CUDA_SUCCESS;
}

CUstream sim_own_stream(CUstream handle)
{
	return handle ? handle : CU_STREAM_PER_THREAD;
}

static CUresult create(CUstream *ret_stream, unsigned flags, int priority)
{
	if (!ret_stream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_stream = stream_new(sim_context(), flags, priority);
	return CUDA_SUCCESS;
}

static void end_stream(CUstream stream)
{
	sim_capture_forget_stream(stream);
	stream->alive = false;
	if (stream->running)
		pthread_cond_signal(&stream->arrival);
	else
		sim_stream_unlink(stream);
}

static CUresult destroy(CUstream handle)
{
	if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD || !is_stream(handle))
		return not_a_stream(handle);
	end_stream(handle);
	return CUDA_SUCCESS;
}

void sim_streams_forget_context(CUcontext context)
{
	for (CUstream stream = context->streams, next; stream; stream = next) {
		next = stream->next;
		stream->orphan = stream->alive;
		if (stream->alive)
			end_stream(stream);
	}
	context->legacy = context->observer = NULL;
}

/* The legacy stream stands for the blocking streams, too. */
static bool all_done(CUstream stream)
{
	if (stream->done < stream->last)
		return false;
	if (stream != stream->context->legacy)
		return true;
	for (CUstream other = stream->context->streams; other; other = other->next)
		if (other->blocking && other->done < other->last)
			return false;
	return true;
}

static CUresult may_ask(CUstream handle, CUstream *ret_stream)
{
	CUresult result = sim_stream(handle, ret_stream) ?: sim_capture_stream_touched(*ret_stream);

	if (!result && *ret_stream == (*ret_stream)->context->legacy)
		result = sim_capture_legacy((*ret_stream)->context);
	result = result ?: sim_unsafe();
	return result;
}

static CUresult query(CUstream handle)
{
	CUstream stream;
	CUresult result = may_ask(handle, &stream) ?: stream->context->dead;

	if (!result && !all_done(stream))
		result = CUDA_ERROR_NOT_READY;
	return result;
}

static CUresult synchronize(CUstream handle)
{
	CUstream stream;
	CUresult result = may_ask(handle, &stream);

	if (result)
		return result;
	if (stream == stream->context->legacy) {
		struct sim_work *marker = sim_work_new("a wait", CU_GRAPH_NODE_TYPE_EMPTY, sim_nothing);

		if (!all_done(stream))
			sim_work_queue(stream, marker);
		else
			sim_work_free(marker);
	}
	sim_wait_stream(stream);
	sim_pool_trim();
	return stream->context->dead;
}

static CUresult wait_event(CUstream handle, CUevent event, unsigned flags)
{
	CUstream stream;
	CUresult result = sim_stream(handle, &stream) ?: sim_event_usable(event);

	if (result)
		return result;
	if (flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	if (event->capture || stream->capture)
		return sim_capture_wait(stream, event);
	if (event->shared)
		return sim_shared_wait(handle, event);
	if (!event->recorded || event->at.stream->done >= event->at.seq)
		return CUDA_SUCCESS;
	struct sim_work *work = sim_work_new("cuStreamWaitEvent", CU_GRAPH_NODE_TYPE_EMPTY, sim_nothing);
	sim_work_after(work, event->at.stream, event->at.seq);
	return sim_submit(handle, work);
}

/* A question about a stream: its answer is that of the member. */
#define ABOUT(handle, ret_value, member) (sim_stream(handle, &(handle)) ?: SIM_ANSWER(ret_value, (handle)->member))

SPELL(cuStreamCreate, (CUstream * stream, unsigned flags), create(stream, flags, 0))
SPELL(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority), create(stream, flags, priority))
SPELL_2(cuStreamDestroy, (CUstream stream), destroy(stream))
SPELL_STREAM(cuStreamQuery, (CUstream stream), stream, query(stream))
SPELL_STREAM(cuStreamSynchronize, (CUstream stream), stream, synchronize(stream))
SPELL_STREAM(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), stream,
	     wait_event(stream, event, flags))
SPELL_STREAM(cuStreamGetFlags, (CUstream stream, unsigned *flags), stream, ABOUT(stream, flags, flags))
SPELL_STREAM(cuStreamGetPriority, (CUstream stream, int *priority), stream, ABOUT(stream, priority, priority))
SPELL_STREAM(cuStreamGetId, (CUstream stream, unsigned long long *id), stream, ABOUT(stream, id, id))
SPELL_STREAM(cuStreamGetCtx, (CUstream stream, CUcontext *context), stream, ABOUT(stream, context, context))
SPELL_STREAM(cuStreamGetDevice, (CUstream stream, CUdevice *device), stream, ABOUT(stream, device, context->device))
