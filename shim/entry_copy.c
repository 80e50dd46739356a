/*
 * Copies between GPUs where the device that would make them has no access to a heap block. Of memory of cuMemAlloc the
 * driver knows whose it is, and copies it from anywhere to anywhere; heap memory is touched by the device on whose behalf
 * the copy is made, or refused (facts 7). So these go another way, each in by the front door, where it is counted, and
 * held as a submission, under the name of what it has become:
 *
 *   between two GPUs             cuMemcpyPeer or cuMemcpy3DPeer, where each side is touched by its own context
 *   between the host and a GPU   the same copy in the block's own context: on a stream made for it that waits for the
 *                                program's and is waited for by it; a synchronous one between two waits
 *   a list of copies             one after the other, if any of them needs it
 *
 * What the device has access to is left as it is, and holds that access until it has been submitted (peer_hold). Not in a
 * capture: a graph may be launched after the access has gone, and natively its copies go on.
 *
 * Left as they are, and counted: copies between the host and another GPU in a capture, and lists with arrays. Nothing is
 * looked at while the process uses one GPU (peer_is_any).
 */
#include "shim/async.h"
#include "shim/context.h"
#include "shim/copy.h"
#include "shim/enter.h"
#include "shim/hook.h"
#include "shim/log.h"
#include "shim/peer.h"
#include "shim/serve.h"

/* Any copy, as the form that can say most. linear: WidthInBytes from one address to another. */
struct job {
	CUDA_MEMCPY3D_PEER box;
	CUstream stream; /* NULL: a synchronous one */
	bool linear, sync, per_thread;
	bool is_peer; /* the program has said in whose names */
};

enum way { WAY_AS_IT_IS, WAY_PEER, WAY_AWAY, WAY_NONE };

struct side {
	CUmemorytype type;
	CUdeviceptr start;
	CUcontext by;    /* on whose behalf it is touched */
	CUcontext owner; /* of a heap block; else NULL */
	bool foreign;    /* that is of another device */
	bool reached;
};

static __thread bool holds __attribute__((tls_model("initial-exec")));

void copy_submitted(void)
{
	if (holds)
		peer_let_go();
	holds = false;
}

static void hold(void)
{
	if (!holds)
		peer_hold();
	holds = true;
}

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
	struct ledger_row row;
	CUdevice device;

	if ((side.type != CU_MEMORYTYPE_DEVICE && side.type != CU_MEMORYTYPE_UNIFIED) || !device_of(side.start) ||
	    !serve_find(side.start, &row))
		return side;
	side.owner = row.context;
	side.foreign = !context_device(side.by, &device) || device != row.device;
	if (side.foreign) {
		hold();
		side.reached = peer_reaches(device, row.device);
	}
	return side;
}

/* In whose name the driver touches a side; NULL: it is on the host. */
static CUcontext context_for(const struct side *side)
{
	CUmemorytype type = CU_MEMORYTYPE_HOST;
	CUcontext context = NULL;

	if (side->owner)
		return side->owner;
	if (side->type == CU_MEMORYTYPE_ARRAY)
		return side->by;
	if (side->type == CU_MEMORYTYPE_HOST ||
	    REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, side->start) != CUDA_SUCCESS ||
	    type != CU_MEMORYTYPE_DEVICE)
		return NULL;
	if (REAL(cuPointerGetAttribute)(&context, CU_POINTER_ATTRIBUTE_CONTEXT, side->start) != CUDA_SUCCESS)
		context = NULL;
	return context ? context : side->by;
}

/* Fills in the contexts of the way that it goes. Holds what access it leans on. */
static enum way find_way(struct job *job, CUcontext *ret_away)
{
	CUcontext here = job->sync ? context_current() : context_of_stream(job->stream, job->per_thread);
	struct side src = side_of(job, false, here), dst = side_of(job, true, here);

	if (!src.foreign && !dst.foreign)
		return WAY_AS_IT_IS;
	bool captured = !job->sync && async_is_capturing(job->stream, job->per_thread);
	bool reached = src.reached && dst.reached;
	if (reached && !captured)
		return WAY_AS_IT_IS;
	job->box.srcContext = context_for(&src);
	job->box.dstContext = context_for(&dst);
	if (job->box.srcContext && job->box.dstContext)
		return WAY_PEER;
	*ret_away = job->box.srcContext ? job->box.srcContext : job->box.dstContext;
	return !captured ? WAY_AWAY : reached ? WAY_AS_IT_IS : WAY_NONE;
}

/* ---- going it ---- */

#define DOOR(name, suffix) (job->per_thread ? name##suffix : name)

static CUresult go_as_peer(const struct job *job)
{
	const CUDA_MEMCPY3D_PEER *box = &job->box;

	if (job->linear && job->sync)
		return DOOR(cuMemcpyPeer, _ptds)(box->dstDevice, box->dstContext, box->srcDevice, box->srcContext,
						 box->WidthInBytes);
	if (job->linear)
		return DOOR(cuMemcpyPeerAsync, _ptsz)(box->dstDevice, box->dstContext, box->srcDevice, box->srcContext,
						      box->WidthInBytes, job->stream);
	return job->sync ? DOOR(cuMemcpy3DPeer, _ptds)(box) : DOOR(cuMemcpy3DPeerAsync, _ptsz)(box, job->stream);
}

static CUDA_MEMCPY3D without_contexts(const CUDA_MEMCPY3D_PEER *box)
{
#define SIDE(w)                                                                                                        \
	.w##XInBytes = box->w##XInBytes, .w##Y = box->w##Y, .w##Z = box->w##Z, .w##LOD = box->w##LOD,                  \
	.w##MemoryType = box->w##MemoryType, .w##Host = box->w##Host, .w##Device = box->w##Device,                     \
	.w##Array = box->w##Array, .w##Pitch = box->w##Pitch, .w##Height = box->w##Height
	return (CUDA_MEMCPY3D){SIDE(src), SIDE(dst), .WidthInBytes = box->WidthInBytes, .Height = box->Height,
			       .Depth = box->Depth};
#undef SIDE
}

/* The copy as it is, in the current context; asynchronous ones on that stream. */
static CUresult go_here(const struct job *job, CUstream stream)
{
	const CUDA_MEMCPY3D_PEER *box = &job->box;
	size_t n = box->WidthInBytes;

	if (!job->linear) {
		CUDA_MEMCPY3D plain = without_contexts(box);

		return job->sync ? DOOR(cuMemcpy3D_v2, _ptds)(&plain) : cuMemcpy3DAsync_v2(&plain, stream);
	}
	if (box->srcMemoryType == CU_MEMORYTYPE_HOST)
		return job->sync ? DOOR(cuMemcpyHtoD_v2, _ptds)(box->dstDevice, box->srcHost, n)
				 : cuMemcpyHtoDAsync_v2(box->dstDevice, box->srcHost, n, stream);
	if (box->dstMemoryType == CU_MEMORYTYPE_HOST)
		return job->sync ? DOOR(cuMemcpyDtoH_v2, _ptds)(box->dstHost, box->srcDevice, n)
				 : cuMemcpyDtoHAsync_v2(box->dstHost, box->srcDevice, n, stream);
	return job->sync ? DOOR(cuMemcpy, _ptds)(box->dstDevice, box->srcDevice, n)
			 : cuMemcpyAsync(box->dstDevice, box->srcDevice, n, stream);
}

static CUresult wait_for_default(const struct job *job)
{
	return job->per_thread ? REAL(cuStreamSynchronize_ptsz)(NULL) : REAL(cuStreamSynchronize)(NULL);
}

/* What the calling context was given before is done first, and what it is given afterwards comes after the copy. */
static CUresult go_away_now(const struct job *job, CUcontext away)
{
	CUresult result = wait_for_default(job);
	bool pushed;

	if (result != CUDA_SUCCESS)
		return result;
	if (!context_enter(away, &pushed))
		return CUDA_ERROR_INVALID_CONTEXT;
	result = go_here(job, NULL);
	if (result == CUDA_SUCCESS)
		result = wait_for_default(job);
	context_leave(pushed);
	return result;
}

/* In the away context: the copy, on a stream of its own, behind `before`; the program's stream goes on behind it. */
static CUresult go_aside(const struct job *job, CUevent before)
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
			result = (job->per_thread ? REAL(cuStreamWaitEvent_ptsz) : REAL(cuStreamWaitEvent))(job->stream,
													    after, 0);
		/* The copy is made in any case: then nothing may overtake it. */
		if (result != CUDA_SUCCESS)
			result = REAL(cuStreamSynchronize)(aside);
	}
	if (after)
		REAL(cuEventDestroy_v2)(after);
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
	if (context_enter(away, &pushed)) {
		result = go_aside(job, before);
		context_leave(pushed);
	} else {
		result = CUDA_ERROR_INVALID_CONTEXT;
	}
	REAL(cuEventDestroy_v2)(before);
	return result;
}

/* ---- one copy ---- */

static void count(enum way way)
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
	}
}

static bool make(struct job *job, CUresult *ret_result)
{
	struct enter_scope scope;
	CUcontext away = NULL;

	if (!enter_serve(&scope, false))
		return false;
	enum way way = find_way(job, &away);
	count(way);
	if (way != WAY_AS_IT_IS)
		copy_submitted();
	enter_leave(&scope, CUDA_SUCCESS);
	if (way == WAY_PEER)
		*ret_result = go_as_peer(job);
	else if (way == WAY_AWAY)
		*ret_result = go_away(job, away);
	return way == WAY_PEER || way == WAY_AWAY;
}

static struct job linear(CUmemorytype to, CUdeviceptr dst, CUmemorytype from, CUdeviceptr src, size_t bytes)
{
	return (struct job){.linear = true,
			    .box = {.dstMemoryType = to,
				    .dstDevice = dst,
				    .dstHost = (void *)(uintptr_t)dst,
				    .srcMemoryType = from,
				    .srcDevice = src,
				    .srcHost = (const void *)(uintptr_t)src,
				    .WidthInBytes = bytes,
				    .Height = 1,
				    .Depth = 1}};
}

static struct job peer_linear(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes)
{
	struct job job = linear(CU_MEMORYTYPE_DEVICE, dst, CU_MEMORYTYPE_DEVICE, src, bytes);

	job.box.dstContext = to;
	job.box.srcContext = from;
	job.is_peer = true;
	return job;
}

/* A pitch may be left out where there is one row; a copy in three dimensions wants it, and heights. */
static struct job of_2d(const CUDA_MEMCPY2D *two)
{
	return (struct job){.box = {.srcXInBytes = two->srcXInBytes,
				    .srcY = two->srcY,
				    .srcMemoryType = two->srcMemoryType,
				    .srcHost = two->srcHost,
				    .srcDevice = two->srcDevice,
				    .srcArray = two->srcArray,
				    .srcPitch = two->srcPitch ? two->srcPitch : two->srcXInBytes + two->WidthInBytes,
				    .srcHeight = two->srcY + two->Height,
				    .dstXInBytes = two->dstXInBytes,
				    .dstY = two->dstY,
				    .dstMemoryType = two->dstMemoryType,
				    .dstHost = two->dstHost,
				    .dstDevice = two->dstDevice,
				    .dstArray = two->dstArray,
				    .dstPitch = two->dstPitch ? two->dstPitch : two->dstXInBytes + two->WidthInBytes,
				    .dstHeight = two->dstY + two->Height,
				    .WidthInBytes = two->WidthInBytes,
				    .Height = two->Height,
				    .Depth = 1}};
}

static struct job of_3d(const CUDA_MEMCPY3D *box)
{
#define SIDE(w)                                                                                                        \
	.w##XInBytes = box->w##XInBytes, .w##Y = box->w##Y, .w##Z = box->w##Z, .w##LOD = box->w##LOD,                  \
	.w##MemoryType = box->w##MemoryType, .w##Host = box->w##Host, .w##Device = box->w##Device,                     \
	.w##Array = box->w##Array, .w##Pitch = box->w##Pitch, .w##Height = box->w##Height
	return (struct job){.box = {SIDE(src), SIDE(dst), .WidthInBytes = box->WidthInBytes, .Height = box->Height,
				    .Depth = box->Depth}};
#undef SIDE
}

static struct job of_peer_3d(const CUDA_MEMCPY3D_PEER *box)
{
	return (struct job){.box = *box, .is_peer = true};
}

/* A NULL is the driver's to refuse. */
static bool make_sync(CUresult *ret_result, struct job job, bool per_thread)
{
	job.sync = true;
	job.per_thread = per_thread;
	return make(&job, ret_result);
}

static bool make_on(CUresult *ret_result, struct job job, CUstream stream, bool per_thread)
{
	job.stream = stream;
	job.per_thread = per_thread;
	return make(&job, ret_result);
}

#define UNPACK(...)   __VA_ARGS__
#define ADDRESS(host) ((CUdeviceptr)(uintptr_t)(host))
#define SYNC(name, params, given, ...)                                                                                 \
	bool copy_##name(CUresult *ret_result, UNPACK params)                                                          \
	{                                                                                                              \
		return (given) && make_sync(ret_result, (__VA_ARGS__), false);                                         \
	}                                                                                                              \
	bool copy_##name##_ptds(CUresult *ret_result, UNPACK params)                                                   \
	{                                                                                                              \
		return (given) && make_sync(ret_result, (__VA_ARGS__), true);                                          \
	}
#define ASYNC(name, params, given, ...)                                                                                \
	bool copy_##name(CUresult *ret_result, UNPACK params, CUstream stream)                                         \
	{                                                                                                              \
		return (given) && make_on(ret_result, (__VA_ARGS__), stream, false);                                   \
	}                                                                                                              \
	bool copy_##name##_ptsz(CUresult *ret_result, UNPACK params, CUstream stream)                                  \
	{                                                                                                              \
		return (given) && make_on(ret_result, (__VA_ARGS__), stream, true);                                    \
	}
#define BOTH(sync, async, params, given, ...)                                                                          \
	SYNC(sync, params, given, __VA_ARGS__)                                                                         \
	ASYNC(async, params, given, __VA_ARGS__)

BOTH(cuMemcpy, cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t n), n,
     linear(CU_MEMORYTYPE_UNIFIED, dst, CU_MEMORYTYPE_UNIFIED, src, n))
BOTH(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t n), n,
     linear(CU_MEMORYTYPE_DEVICE, dst, CU_MEMORYTYPE_HOST, ADDRESS(src), n))
BOTH(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t n), n,
     linear(CU_MEMORYTYPE_HOST, ADDRESS(dst), CU_MEMORYTYPE_DEVICE, src, n))
BOTH(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n), n,
     linear(CU_MEMORYTYPE_DEVICE, dst, CU_MEMORYTYPE_DEVICE, src, n))
BOTH(cuMemcpyPeer, cuMemcpyPeerAsync, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n), n,
     peer_linear(dst, to, src, from, n))
BOTH(cuMemcpy2D_v2, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *box), box, of_2d(box))
SYNC(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *box), box, of_2d(box))
BOTH(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *box), box, of_3d(box))
BOTH(cuMemcpy3DPeer, cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *box), box, of_peer_3d(box))

/* ---- lists ---- */

struct list {
	const CUdeviceptr *dsts, *srcs;
	const size_t *sizes;
	const CUDA_MEMCPY3D_BATCH_OP *ops; /* instead of those */
	size_t n;
	CUstream stream;
	bool per_thread;
};

#define POINTER(operand, w, op)                                                                                        \
	.w##MemoryType = CU_MEMORYTYPE_UNIFIED, .w##Device = (operand).op.ptr.ptr,                                     \
	.w##Pitch = (operand).op.ptr.rowLength ? (operand).op.ptr.rowLength : (op)->extent.width,                      \
	.w##Height = (operand).op.ptr.layerHeight ? (operand).op.ptr.layerHeight : (op)->extent.height

static bool has_array(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	return op->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER || op->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER;
}

static struct job job_at(const struct list *list, size_t i)
{
	const CUDA_MEMCPY3D_BATCH_OP *op = list->ops ? &list->ops[i] : NULL;
	struct job job;

	if (!op)
		job =
		    linear(CU_MEMORYTYPE_UNIFIED, list->dsts[i], CU_MEMORYTYPE_UNIFIED, list->srcs[i], list->sizes[i]);
	else
		job = (struct job){.box = {POINTER(op->src, src, op), POINTER(op->dst, dst, op),
					   .WidthInBytes = op->extent.width, .Height = op->extent.height,
					   .Depth = op->extent.depth}};
	job.stream = list->stream;
	job.per_thread = list->per_thread;
	return job;
}

/* Does one of them need another way? The legacy stream is refused for lists, and so is what is not there. */
static bool is_to_be_split(const struct list *list)
{
	bool legacy = list->stream == CU_STREAM_LEGACY || (!list->stream && !list->per_thread);
	bool split = false, arrays = false;

	if (legacy || (!list->ops && (!list->dsts || !list->srcs || !list->sizes)))
		return false;
	for (size_t i = 0; i < list->n; i++) {
		CUcontext away;

		if (list->ops && has_array(&list->ops[i])) {
			arrays = true;
			continue;
		}
		struct job job = job_at(list, i);
		split |= find_way(&job, &away) != WAY_AS_IT_IS;
	}
	if (split && arrays)
		count(WAY_NONE);
	return split && !arrays;
}

static CUresult go_one(const struct job *job)
{
	CUDA_MEMCPY3D plain = without_contexts(&job->box);

	if (job->linear)
		return DOOR(cuMemcpyAsync, _ptsz)(job->box.dstDevice, job->box.srcDevice, job->box.WidthInBytes,
						  job->stream);
	return DOOR(cuMemcpy3DAsync_v2, _ptsz)(&plain, job->stream);
}

static bool make_list(const struct list *list, size_t *ret_failed, CUresult *ret_result)
{
	struct enter_scope scope;

	if (!enter_serve(&scope, false))
		return false;
	bool split = is_to_be_split(list);
	if (split)
		copy_submitted();
	enter_leave(&scope, CUDA_SUCCESS);
	*ret_result = CUDA_SUCCESS;
	for (size_t i = 0; i < list->n && split && *ret_result == CUDA_SUCCESS; i++) {
		struct job job = job_at(list, i);

		*ret_result = go_one(&job);
		if (*ret_result != CUDA_SUCCESS && ret_failed)
			*ret_failed = i;
	}
	return split;
}

#define LIST(name, own)                                                                                                \
	bool copy_##name(CUresult *ret_result, CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count_,     \
			 CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,               \
			 CUstream hStream)                                                                             \
	{                                                                                                              \
		struct list list = {dsts, srcs, sizes, NULL, count_, hStream, own};                                    \
                                                                                                                       \
		(void)attrs, (void)attrsIdxs, (void)numAttrs;                                                          \
		return make_list(&list, failIdx, ret_result);                                                          \
	}
#define LIST_V2(name, own)                                                                                             \
	bool copy_##name(CUresult *ret_result, CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count_,     \
			 CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)              \
	{                                                                                                              \
		struct list list = {dsts, srcs, sizes, NULL, count_, hStream, own};                                    \
                                                                                                                       \
		(void)attrs, (void)attrsIdxs, (void)numAttrs;                                                          \
		return make_list(&list, NULL, ret_result);                                                             \
	}
#define LIST_3D(name, own)                                                                                             \
	bool copy_##name(CUresult *ret_result, size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,         \
			 unsigned long long flags, CUstream hStream)                                                   \
	{                                                                                                              \
		struct list list = {NULL, NULL, NULL, opList, numOps, hStream, own};                                   \
                                                                                                                       \
		return opList && !flags && make_list(&list, failIdx, ret_result);                                      \
	}
#define LIST_3D_V2(name, own)                                                                                          \
	bool copy_##name(CUresult *ret_result, size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,                          \
			 unsigned long long flags, CUstream hStream)                                                   \
	{                                                                                                              \
		struct list list = {NULL, NULL, NULL, opList, numOps, hStream, own};                                   \
                                                                                                                       \
		return opList && !flags && make_list(&list, NULL, ret_result);                                         \
	}
LIST(cuMemcpyBatchAsync, false)
LIST(cuMemcpyBatchAsync_ptsz, true)
LIST_V2(cuMemcpyBatchAsync_v2, false)
LIST_V2(cuMemcpyBatchAsync_v2_ptsz, true)
LIST_3D(cuMemcpy3DBatchAsync, false)
LIST_3D(cuMemcpy3DBatchAsync_ptsz, true)
LIST_3D_V2(cuMemcpy3DBatchAsync_v2, false)
LIST_3D_V2(cuMemcpy3DBatchAsync_v2_ptsz, true)
