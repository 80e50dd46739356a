// SPDX-License-Identifier: Apache-2.0
/*
 * sim_capture.c: stream capture. A capturing stream has a set of tips, the nodes its next node depends on. A record in
 * a capturing stream gives the tips to the event; waiting for such an event brings the waiting stream into the capture
 * and adds those tips to its own.
 *
 * Unsafe calls (docs/facts.md, Stream capture): a thread whose interaction mode is not RELAXED may not make them while
 * a capture is open that concerns it: one in GLOBAL mode by anybody, or one not RELAXED begun by itself. The call fails
 * with STREAM_CAPTURE_UNSUPPORTED and invalidates those captures. In any mode cuCtxSynchronize does so, and a question
 * about an event that was recorded in the capture.
 */
#include "sim_graph.h"
#include "sim_context.h"
#include "sim_work.h"

struct sim_capture *sim_captures;
static unsigned long capture_ids;

void sim_capture_invalidate(struct sim_capture *capture, const char *because)
{
	capture->invalid = true;
	sim_why(0, "capture %lu is invalid: %s", capture->id, because);
}

CUresult sim_unsafe(void)
{
	struct sim_thread *thread = sim_thread();
	bool met = false;

	if (thread->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct sim_capture *capture = sim_captures; capture; capture = capture->next) {
		bool ours = capture->thread == thread->id && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		bool global =
		    thread->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

		if (!ours && !global)
			continue;
		sim_capture_invalidate(capture, "an unsafe call");
		met = true;
	}
	return met ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult sim_capture_stream_touched(CUstream stream)
{
	if (!stream->capture)
		return CUDA_SUCCESS;
	sim_capture_invalidate(stream->capture, "a question about a capturing stream");
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_capture_context_touched(CUcontext context)
{
	bool met = false;

	for (struct sim_capture *capture = sim_captures; capture; capture = capture->next) {
		if (capture->context != context)
			continue;
		sim_capture_invalidate(capture, "cuCtxSynchronize");
		met = true;
	}
	return met ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult sim_capture_legacy(CUcontext context)
{
	for (CUstream stream = context->streams; stream; stream = stream->next) {
		if (!stream->capture || !stream->blocking)
			continue;
		sim_capture_invalidate(stream->capture, "the legacy stream would wait for it");
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	return CUDA_SUCCESS;
}

static void add_tips(CUgraphNode **tips, size_t *n_tips, CUgraphNode *more, size_t n_more)
{
	*tips = realloc(*tips, (*n_tips + n_more + 1) * sizeof(**tips));
	for (size_t i = 0; i < n_more; i++) {
		size_t j = 0;

		while (j < *n_tips && (*tips)[j] != more[i])
			j++;
		if (j == *n_tips)
			(*tips)[(*n_tips)++] = more[i];
	}
}

CUresult sim_capture_work(CUstream stream, struct sim_work *work)
{
	struct sim_capture *capture = stream->capture;

	if (capture->invalid) {
		sim_work_free(work);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	work->context = stream->context;
	CUgraphNode node = sim_graph_add(capture->graph, work, stream->tips, stream->n_tips);
	node->overlaps =
	    work->overlaps && stream->n_tips == 1 && stream->tips[0]->work->type == CU_GRAPH_NODE_TYPE_KERNEL;
	work->overlaps = false;
	stream->n_tips = 0;
	add_tips(&stream->tips, &stream->n_tips, &node, 1);
	return CUDA_SUCCESS;
}

CUresult sim_capture_record(CUstream stream, CUevent event)
{
	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	event->generation++;
	event->capture = stream->capture;
	event->capture_id = stream->capture->id;
	event->n_tips = 0;
	add_tips(&event->tips, &event->n_tips, stream->tips, stream->n_tips);
	return CUDA_SUCCESS;
}

static bool is_open(const struct sim_capture *capture, unsigned long id)
{
	for (struct sim_capture *at = sim_captures; at; at = at->next)
		if (at == capture && at->id == id)
			return true;
	return false;
}

CUresult sim_capture_wait(CUstream stream, CUevent event)
{
	bool open = event->capture && is_open(event->capture, event->capture_id);

	if (stream->capture && stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!open) {
		if (event->capture)
			return sim_why(CUDA_ERROR_CAPTURED_EVENT, "the capture it was recorded in has ended");
		if (!event->recorded)
			return CUDA_SUCCESS;
		sim_capture_invalidate(stream->capture, "it would depend on work outside");
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (stream->capture && stream->capture != event->capture) {
		sim_capture_invalidate(stream->capture, "two captures would merge");
		sim_capture_invalidate(event->capture, "two captures would merge");
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (event->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	stream->capture = event->capture;
	add_tips(&stream->tips, &stream->n_tips, event->tips, event->n_tips);
	return CUDA_SUCCESS;
}

CUresult sim_capture_event_touched(CUevent event)
{
	if (is_open(event->capture, event->capture_id))
		sim_capture_invalidate(event->capture, "a question about an event of it");
	return sim_why(CUDA_ERROR_INVALID_VALUE, "the event was last recorded in a capture");
}

/* All streams leave the capture. Hands the graph over. */
static CUgraph end(struct sim_capture *capture)
{
	struct sim_capture **link = &sim_captures;
	CUgraph graph = capture->graph;

	for (CUcontext context = sim.contexts; context; context = context->next) {
		for (CUstream stream = context->streams; stream; stream = stream->next) {
			if (stream->capture != capture)
				continue;
			stream->capture = NULL;
			stream->n_tips = 0;
		}
	}
	while (*link != capture)
		link = &(*link)->next;
	*link = capture->next;
	free(capture);
	return graph;
}

void sim_capture_forget_stream(CUstream stream)
{
	struct sim_capture *capture = stream->capture;
	bool to_graph;

	if (!capture)
		goto out;
	if (capture->origin != stream) {
		sim_capture_invalidate(capture, "a joined stream was destroyed");
		stream->capture = NULL;
		goto out;
	}
	to_graph = capture->to_graph;
	CUgraph graph = end(capture);
	if (!to_graph)
		sim_graph_free(graph);
out:
	free(stream->tips);
	stream->tips = NULL;
	stream->n_tips = 0;
}

static CUresult begin(CUstream handle, CUgraph graph, const CUgraphNode *after, size_t n_after,
		      CUstreamCaptureMode mode)
{
	struct sim_capture *capture;
	CUstream stream;
	CUresult result = sim_stream(handle, &stream);

	if (result)
		return result;
	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream == stream->context->legacy)
		return sim_why(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy stream cannot be captured");
	if (stream->capture)
		return sim_why(CUDA_ERROR_ILLEGAL_STATE, "the stream captures already");
	capture = calloc(1, sizeof(*capture));
	capture->to_graph = graph != NULL;
	capture->graph = graph ? graph : sim_graph_new();
	capture->mode = mode;
	capture->origin = stream;
	capture->context = stream->context;
	capture->thread = sim_thread()->id;
	capture->id = ++capture_ids;
	capture->next = sim_captures;
	sim_captures = capture;
	stream->capture = capture;
	stream->n_tips = 0;
	add_tips(&stream->tips, &stream->n_tips, (CUgraphNode *)after, n_after);
	return CUDA_SUCCESS;
}

static void mark_reached(CUgraphNode node, unsigned long mark)
{
	if (node->mark == mark)
		return;
	node->mark = mark;
	for (size_t i = 0; i < node->n_after; i++)
		mark_reached(node->after[i], mark);
}

/* Every stream that joined must have been joined back: its tips are before the origin's. */
static bool is_joined(struct sim_capture *capture)
{
	static unsigned long mark;

	mark++;
	for (size_t i = 0; i < capture->origin->n_tips; i++)
		mark_reached(capture->origin->tips[i], mark);
	for (CUstream stream = capture->context->streams; stream; stream = stream->next)
		for (size_t i = 0; stream->capture == capture && i < stream->n_tips; i++)
			if (stream->tips[i]->mark != mark)
				return false;
	return true;
}

static CUresult end_capture(CUstream handle, CUgraph *ret_graph)
{
	CUstream stream;
	CUresult result = sim_stream(handle, &stream);

	if (result)
		return result;
	if (!ret_graph)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_graph = NULL;
	struct sim_capture *capture = stream->capture;
	if (!capture)
		return sim_why(CUDA_ERROR_ILLEGAL_STATE, "the stream does not capture");
	if (capture->origin != stream)
		return sim_why(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began on another stream");
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_thread()->id)
		return sim_why(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture began on another thread");
	result = capture->invalid      ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
		 : !is_joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
				       : CUDA_SUCCESS;
	bool to_graph = capture->to_graph;
	CUgraph graph = end(capture);
	if (!result)
		*ret_graph = graph;
	else if (!to_graph)
		sim_graph_free(graph);
	return result;
}

static CUresult is_capturing(CUstream handle, CUstreamCaptureStatus *ret_status)
{
	CUstream stream;
	CUresult result = sim_stream(handle, &stream);

	if (!result && stream == stream->context->legacy)
		result = sim_capture_legacy(stream->context);
	if (result)
		return result;
	if (!ret_status)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
		      : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
						 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}

static CUresult info(CUstream handle, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id, CUgraph *ret_graph,
		     const CUgraphNode **ret_tips, size_t *ret_n_tips)
{
	CUstream stream;
	CUresult result = is_capturing(handle, ret_status) ?: sim_stream(handle, &stream);

	if (result || *ret_status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return result;
	if (ret_id)
		*ret_id = stream->capture->id;
	if (ret_graph)
		*ret_graph = stream->capture->graph;
	if (ret_tips)
		*ret_tips = stream->tips;
	if (ret_n_tips)
		*ret_n_tips = stream->n_tips;
	return CUDA_SUCCESS;
}

static CUresult update_tips(CUstream handle, CUgraphNode *nodes, size_t n, unsigned flags)
{
	CUstream stream;
	CUresult result = sim_stream(handle, &stream);

	if (result)
		return result;
	if (!stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		stream->n_tips = 0;
	add_tips(&stream->tips, &stream->n_tips, nodes, n);
	return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	struct sim_thread *thread = sim_thread();
	CUstreamCaptureMode before = thread->mode;

	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread->mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

SPELL_FREE(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), exchange_mode(mode))
SPELL_STREAM(cuStreamBeginCapture, (CUstream stream), stream,
	     begin(stream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL))
SPELL_STREAM(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), stream,
	     begin(stream, NULL, NULL, 0, mode))
SPELL_STREAM(cuStreamBeginCaptureToGraph,
	     (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t n,
	      CUstreamCaptureMode mode),
	     stream, ((void)edges, begin(stream, graph, after, n, mode)))
/* Nodes are added, and none is compared. */
SPELL_STREAM(cuStreamBeginRecaptureToGraph,
	     (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback told, void *data),
	     stream, ((void)told, (void)data, begin(stream, graph, NULL, 0, mode)))
SPELL_STREAM(cuStreamEndCapture, (CUstream stream, CUgraph *graph), stream, end_capture(stream, graph))
SPELL_STREAM(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), stream,
	     is_capturing(stream, status))
SPELL_STREAM(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id), stream,
	     info(stream, status, id, NULL, NULL, NULL))
SPELL_STREAM(cuStreamGetCaptureInfo_v2,
	     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **tips,
	      size_t *n),
	     stream, info(stream, status, id, graph, tips, n))
SPELL_STREAM(cuStreamGetCaptureInfo_v3,
	     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **tips,
	      const CUgraphEdgeData **edges, size_t *n),
	     stream, (edges ? (void)(*edges = NULL) : (void)0, info(stream, status, id, graph, tips, n)))
SPELL_STREAM(cuStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *nodes, size_t n, unsigned flags), stream,
	     update_tips(stream, nodes, n, flags))
SPELL_STREAM(cuStreamUpdateCaptureDependencies_v2,
	     (CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t n, unsigned flags), stream,
	     ((void)edges, update_tips(stream, nodes, n, flags)))
