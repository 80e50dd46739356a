/*
 * Copies between GPUs where the device that would make them has no access to a heap block. For memory of cuMemAlloc
 * the driver knows which device owns it, and copies from any device to any other. Heap memory is accessed by the
 * device of the context that the copy is made in, or the copy is refused (docs/facts.md, Pointer queries). So these
 * copies are made in another way. Each is counted, and tracked as a submission, under the name of the function that
 * it is replaced by (submit_copy.h):
 *
 *   between two GPUs             cuMemcpyPeer or cuMemcpy3DPeer, where each side is accessed in its own context. The
 *                                heaps of both are opened to each other before (peer_open_for_copies); where that is
 *                                impossible the copy goes through other memory on both (copy_staged.c)
 *   between the host and a GPU   the same copy in the block's context. An asynchronous one goes to a new stream, which
 *                                waits for the program's stream and is waited for by it; a synchronous one is made
 *                                between two waits
 *   a list of copies             if any of them needs another way, one after the other as lists of one (entry_copy.c),
 *                                so that attributes which only a list can carry are kept. cuMemcpyPeer cannot express
 *                                that the source is to be read during the call, so in that case it is waited for
 *
 * A copy that its device has access to is left unchanged, and holds that access until it has been submitted
 * (peer_hold). In a capture it is not left unchanged: a graph may be launched after the access is gone, and without
 * Spillway its copies would go on.
 *
 * Left unchanged, and counted: copies between the host and another GPU in a capture, and lists with arrays. Nothing
 * is checked while the process uses one GPU (peer_is_any).
 */
#include "shim/serve/async.h"
#include "shim/context/context.h"
#include "shim/entry/copy_internal.h"
#include "shim/process/enter.h"
#include "shim/base/log.h"
#include "shim/device/peer.h"
#include "shim/serve/serve.h"
#include "shim/serve/vmm.h"
#include "shim/submit/submit_copy.h"

struct side {
	CUmemorytype type;
	CUdeviceptr start;
	CUcontext by; /* the context that the driver accesses this side in */
	bool is_heap;
	bool foreign; /* the heap belongs to another device than that of `by` */
	/* For a heap block, set by look_up(): */
	CUcontext owner;
	bool reached;
};

/* ---- which way ---- */

#define START(box, which, base)                                                                                        \
	((base) + ((box)->which##Z * (box)->which##Height + (box)->which##Y) * (box)->which##Pitch +                   \
	 (box)->which##XInBytes)

static struct side side_of(const struct job *job, bool dst, CUcontext here)
{
	const CUDA_MEMCPY3D_PEER *box = &job->box;
	struct side side = {.type = dst ? box->dstMemoryType : box->srcMemoryType,
			    .start = dst ? START(box, dst, box->dstDevice) : START(box, src, box->srcDevice),
			    .by = !job->is_peer ? here
				  : dst         ? box->dstContext
						: box->srcContext,
			    .reached = true};
	const struct device *owner = device_of(side.start);
	CUdevice device;

	side.is_heap = owner && (side.type == CU_MEMORYTYPE_DEVICE || side.type == CU_MEMORYTYPE_UNIFIED);
	side.foreign = side.is_heap && (!context_device(side.by, &device) || device != owner->ordinal);
	return side;
}

/* Takes process-wide locks, so it is called only where at least one side is foreign. */
static void look_up(struct side *side)
{
	struct ledger_row row;
	CUdevice device;

	if (!side->is_heap)
		return;
	if (!serve_find(side->start, &row)) {
		side->foreign = false;
		return;
	}
	side->owner = row.context;
	if (side->foreign) {
		submit_hold_access();
		side->reached = context_device(side->by, &device) && peer_reaches(device, row.device);
	}
}

/*
 * Returns the context that the driver accesses a side in, or NULL if the side is on the host. Memory of a pool
 * belongs to no context: it is open to devices, and the program has named, or works on, one that it is open to.
 */
static CUcontext context_for(const struct side *side)
{
	CUmemorytype type = CU_MEMORYTYPE_HOST;
	CUmemoryPool pool = NULL;
	CUcontext context = NULL;

	if (side->owner)
		return side->owner;
	if (side->type == CU_MEMORYTYPE_ARRAY)
		return side->by;
	if (side->type == CU_MEMORYTYPE_HOST ||
	    REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, side->start) != CUDA_SUCCESS ||
	    type != CU_MEMORYTYPE_DEVICE)
		return NULL;
	if (REAL(cuPointerGetAttribute)(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, side->start) == CUDA_SUCCESS &&
	    pool)
		return side->by;
	if (REAL(cuPointerGetAttribute)(&context, CU_POINTER_ATTRIBUTE_CONTEXT, side->start) != CUDA_SUCCESS)
		context = NULL;
	return context ? context : side->by;
}

/* Memory that the program maps itself is open to the devices that the program has chosen, and the heap opens it to none. */
static bool is_mapped_by_program(const struct side *side)
{
	struct ledger_row row;

	return side->is_heap && vmm_find(side->start, &row);
}

/*
 * Of a copy between these contexts. Where one GPU cannot access the other, a capture can only record what the driver
 * would do.
 */
static enum way way_between(const struct side *src, const struct side *dst, CUcontext from, CUcontext to, enum way open,
			    bool captured)
{
	CUdevice one, other;

	if (!context_device(from, &one) || !context_device(to, &other) || one == other)
		return open;
	bool opened = peer_open_for_copies(one, other) && !is_mapped_by_program(src) && !is_mapped_by_program(dst);
	return opened || captured ? open : WAY_STAGED;
}

enum way copy_find_way(struct job *job, CUcontext *ret_away)
{
	CUcontext here = job->sync ? context_current() : context_of_stream(job->stream, job->per_thread);
	struct side src = side_of(job, false, here), dst = side_of(job, true, here);

	if (src.foreign || dst.foreign) {
		look_up(&src);
		look_up(&dst);
	}
	bool captured = !job->sync && async_is_capturing(job->stream, job->per_thread);
	if (!src.foreign && !dst.foreign)
		return job->is_peer && (src.is_heap || dst.is_heap) && src.type != CU_MEMORYTYPE_HOST &&
			       dst.type != CU_MEMORYTYPE_HOST
			   ? way_between(&src, &dst, src.by, dst.by, WAY_AS_IT_IS, captured)
			   : WAY_AS_IT_IS;
	bool reached = src.reached && dst.reached;
	if (reached && !captured)
		return WAY_AS_IT_IS;
	job->box.srcContext = context_for(&src);
	job->box.dstContext = context_for(&dst);
	if (job->box.srcContext && job->box.dstContext)
		return way_between(&src, &dst, job->box.srcContext, job->box.dstContext, WAY_PEER, captured);
	*ret_away = job->box.srcContext ? job->box.srcContext : job->box.dstContext;
	return !captured ? WAY_AWAY : reached ? WAY_AS_IT_IS : WAY_NONE;
}

/* ---- making the copy in that way ---- */

#define SUBMIT(name, suffix) (job->per_thread ? submit_##name##suffix : submit_##name)

static CUresult submit_as_peer(const struct job *job)
{
	const CUDA_MEMCPY3D_PEER *box = &job->box;

	if (job->linear && job->sync)
		return SUBMIT(cuMemcpyPeer, _ptds)(box->dstDevice, box->dstContext, box->srcDevice, box->srcContext,
						   box->WidthInBytes);
	if (job->linear)
		return SUBMIT(cuMemcpyPeerAsync, _ptsz)(box->dstDevice, box->dstContext, box->srcDevice,
							box->srcContext, box->WidthInBytes, job->stream);
	return job->sync ? SUBMIT(cuMemcpy3DPeer, _ptds)(box) : SUBMIT(cuMemcpy3DPeerAsync, _ptsz)(box, job->stream);
}

/*
 * If the source is to be read during the call, waits for the stream, as the driver does for a source on the device or
 * in pinned memory: it makes the copy in stream order and returns when the copy is complete. A program that blocks
 * the stream until the call returns hangs without Spillway, too. Copying the source aside instead of waiting would
 * take as much memory again until the stream gets there. In a capture waiting is impossible, and the source is read
 * when the graph runs.
 *
 * Measured (H200, driver 580, CUDA 13): the call lasted as long as its stream was blocked, from 1 KiB to 64 MiB.
 */
static CUresult go_as_peer(const struct job *job)
{
	CUresult result = submit_as_peer(job);

	if (result != CUDA_SUCCESS || !job->during_call || async_is_capturing(job->stream, job->per_thread))
		return result;
	return context_wait_stream(job->stream, job->per_thread);
}

/* Submits the copy unchanged in the current context; an asynchronous one on the given stream. */
static CUresult go_here(const struct job *job, CUstream stream)
{
	const CUDA_MEMCPY3D_PEER *box = &job->box;
	size_t n = box->WidthInBytes;

	if (job->as_list)
		return job->as_list(job, stream);
	if (!job->linear) {
		CUDA_MEMCPY3D plain = copy_without_contexts(box);

		return job->sync ? SUBMIT(cuMemcpy3D_v2, _ptds)(&plain) : submit_cuMemcpy3DAsync_v2(&plain, stream);
	}
	if (box->srcMemoryType == CU_MEMORYTYPE_HOST)
		return job->sync ? SUBMIT(cuMemcpyHtoD_v2, _ptds)(box->dstDevice, box->srcHost, n)
				 : submit_cuMemcpyHtoDAsync_v2(box->dstDevice, box->srcHost, n, stream);
	if (box->dstMemoryType == CU_MEMORYTYPE_HOST)
		return job->sync ? SUBMIT(cuMemcpyDtoH_v2, _ptds)(box->dstHost, box->srcDevice, n)
				 : submit_cuMemcpyDtoHAsync_v2(box->dstHost, box->srcDevice, n, stream);
	return job->sync ? SUBMIT(cuMemcpy, _ptds)(box->dstDevice, box->srcDevice, n)
			 : submit_cuMemcpyAsync(box->dstDevice, box->srcDevice, n, stream);
}

/* Earlier work of the calling context completes before the copy, and later work comes after it. */
static CUresult go_away_now(const struct job *job, CUcontext away)
{
	CUresult result = context_wait_stream(NULL, job->per_thread);
	bool pushed;

	if (result != CUDA_SUCCESS)
		return result;
	result = context_enter(away, &pushed);
	if (result != CUDA_SUCCESS)
		return result;
	result = go_here(job, NULL);
	if (result == CUDA_SUCCESS)
		result = context_wait_stream(NULL, job->per_thread);
	context_leave(pushed);
	return result;
}

/*
 * Makes the program's stream wait for `after`. Enters the home context, because a default stream is that of the
 * current context.
 */
static CUresult go_on_behind(const struct job *job, CUcontext home, CUevent after)
{
	bool pushed;
	CUresult result = context_enter(home, &pushed);

	if (result != CUDA_SUCCESS)
		return result;
	result = (job->per_thread ? REAL(cuStreamWaitEvent_ptsz) : REAL(cuStreamWaitEvent))(job->stream, after, 0);
	context_leave(pushed);
	return result;
}

/*
 * Makes the copy on a new stream, which waits for `before`, an event of the home context. The current context must be
 * the one to copy in.
 */
static CUresult go_aside(const struct job *job, CUcontext home, CUevent before)
{
	CUevent after = NULL;
	CUcontext context;
	CUstream aside;
	CUresult result = REAL(cuStreamCreate)(&aside, CU_STREAM_NON_BLOCKING);

	if (result != CUDA_SUCCESS)
		return result;
	result = REAL(cuStreamWaitEvent)(aside, before, 0);
	if (result == CUDA_SUCCESS)
		result = go_here(job, aside);
	if (result == CUDA_SUCCESS) {
		result = context_record_stream(aside, false, &after, &context);
		if (result == CUDA_SUCCESS)
			result = go_on_behind(job, home, after);
		/* The copy has been submitted, so nothing may overtake it: wait. */
		if (result != CUDA_SUCCESS)
			result = context_wait_stream(aside, false);
	}
	if (after)
		context_event_give(context, after);
	cuStreamDestroy_v2(aside);
	return result;
}

static CUresult go_away(const struct job *job, CUcontext away)
{
	CUcontext context;
	CUevent before;
	bool pushed;

	if (job->sync)
		return go_away_now(job, away);
	CUresult result = context_record_stream(job->stream, job->per_thread, &before, &context);
	if (result != CUDA_SUCCESS)
		return result;
	result = context_enter(away, &pushed);
	if (result == CUDA_SUCCESS) {
		result = go_aside(job, context, before);
		context_leave(pushed);
	}
	context_event_give(context, before);
	return result;
}

/* ---- one copy ---- */

void copy_count(enum way way)
{
	if (way == WAY_NONE) {
		stats_add(STAT_peer_passed, 1);
		log_once("a copy to or from heap memory of another GPU without peer access is left as it is (between "
			 "host and GPU in a stream capture, or a list with arrays): the driver may refuse it");
	} else if (way != WAY_AS_IT_IS) {
		stats_add(STAT_peer_copies, 1);
		if (way == WAY_AWAY)
			log_once("copies between the host and heap memory of a GPU that is not the stream's, without "
				 "peer access: each takes a detour by a stream of that GPU");
		if (way == WAY_STAGED)
			log_once("copies between GPUs that cannot access each other go through other memory on both");
	}
}

bool copy_make(struct job *job, CUresult *ret_result)
{
	struct enter_scope scope;
	CUcontext away = NULL;

	if (!enter_serve(&scope))
		return false;
	enum way way = copy_find_way(job, &away);
	copy_count(way);
	if (way != WAY_AS_IT_IS)
		submit_let_go_access();
	enter_leave(&scope, CUDA_SUCCESS);
	if (way == WAY_PEER)
		*ret_result = go_as_peer(job);
	else if (way == WAY_STAGED)
		*ret_result = copy_staged(job);
	else if (way == WAY_AWAY)
		*ret_result = go_away(job, away);
	return way == WAY_PEER || way == WAY_STAGED || way == WAY_AWAY;
}
