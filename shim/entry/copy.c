// SPDX-License-Identifier: Apache-2.0
/*
 * Copies between GPUs where the device that would make them has no access to a heap block. For memory of cuMemAlloc
 * the driver knows which device owns it, and copies from any device to any other. Heap memory is accessed by the
 * device of the context that the copy is made in, or the copy is refused (docs/facts.md, Pointer queries). So these
 * copies are made in another way. Each is counted, and tracked as a submission, under the name of the function that
 * it is replaced by (submit_body.h):
 *
 *   between two GPUs             cuMemcpyPeer or cuMemcpy3DPeer, where each side is accessed in its own context. The
 *                                heaps of both are opened to each other before (peer_open_for_copies); where that is
 *                                impossible the copy goes through other memory on both (copy_staged.c)
 *   between the host and a GPU   the same copy in the block's context. An asynchronous one goes to a new stream, which
 *                                waits for the program's stream and is waited for by it; a synchronous one is made
 *                                between two waits
 *   a list of copies             if any of them needs another way, one after the other as lists of one (split_list),
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
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/entry/entry.h"
#include "shim/process/process.h"
#include "shim/submit/submit_body.h"

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

/*
 * Memory that the program maps itself is open to the devices that the program has chosen, and the heap opens it to
 * none.
 */
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
	result = go_here(job, NULL) ?: context_wait_stream(NULL, job->per_thread);
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
	result = REAL(cuStreamWaitEvent)(aside, before, 0) ?: go_here(job, aside);
	if (result == CUDA_SUCCESS) {
		result = context_record_stream(aside, false, &after, &context) ?: copy_go_on_behind(job, home, after);
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

/*
 * Counts a copy that is not made as the program asked, and logs the first of each kind. The caller must be inside
 * enter_serve().
 */
static void copy_count(enum way way)
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

/* Makes the copy if it needs another way than the driver's. Returns false if the caller must submit it unchanged. */
static bool copy_make(struct job *job, CUresult *ret_result)
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

/* ---- arguments to jobs ---- */

/*
 * Bodies of copies that may be between GPUs: the arguments become a job, and copy_make() decides how the copy is made.
 * For a list each copy is checked: if any needs another way, the copies are made one after the other, each as a list
 * of one that keeps its attributes; otherwise the list goes to the driver unchanged. A list with arrays goes to the
 * driver unchanged, too; it is counted if one of its copies needs another way. A copy with attributes is a list of one
 * that may be on the legacy stream.
 */

static struct job entry_copy_linear(CUmemorytype to, CUdeviceptr dst, CUmemorytype from, CUdeviceptr src, size_t bytes)
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
	struct job job = entry_copy_linear(CU_MEMORYTYPE_DEVICE, dst, CU_MEMORYTYPE_DEVICE, src, bytes);

	job.box.dstContext = to;
	job.box.srcContext = from;
	job.is_peer = true;
	return job;
}

/*
 * A copy in two dimensions may leave out the pitch where there is one row; a copy in three dimensions needs it, and
 * heights.
 */
static struct job of_2d(const CUDA_MEMCPY2D *two)
{
#define SIDE(w)                                                                                                        \
	.w##XInBytes = two->w##XInBytes, .w##Y = two->w##Y, .w##MemoryType = two->w##MemoryType,                       \
	.w##Host = two->w##Host, .w##Device = two->w##Device, .w##Array = two->w##Array,                               \
	.w##Pitch = two->w##Pitch ? two->w##Pitch : two->w##XInBytes + two->WidthInBytes,                              \
	.w##Height = two->w##Y + two->Height
	return (struct job){
	    .box = {SIDE(src), SIDE(dst), .WidthInBytes = two->WidthInBytes, .Height = two->Height, .Depth = 1}};
#undef SIDE
}

static struct job of_3d(const CUDA_MEMCPY3D *box)
{
	return (struct job){.box = {COPY_SIDE(src), COPY_SIDE(dst), .WidthInBytes = box->WidthInBytes,
				    .Height = box->Height, .Depth = box->Depth}};
}

/* A copy of one row of an array; the offset in the array is in bytes, too. */
static struct job into_array(CUarray dst, size_t at, CUdeviceptr src, size_t bytes)
{
	struct job job = entry_copy_linear(CU_MEMORYTYPE_ARRAY, 0, CU_MEMORYTYPE_DEVICE, src, bytes);

	job.linear = false;
	job.box.srcPitch = bytes;
	job.box.srcHeight = 1;
	job.box.dstArray = dst;
	job.box.dstXInBytes = at;
	return job;
}

static struct job out_of_array(CUdeviceptr dst, CUarray src, size_t at, size_t bytes)
{
	struct job job = entry_copy_linear(CU_MEMORYTYPE_DEVICE, dst, CU_MEMORYTYPE_ARRAY, 0, bytes);

	job.linear = false;
	job.box.dstPitch = bytes;
	job.box.dstHeight = 1;
	job.box.srcArray = src;
	job.box.srcXInBytes = at;
	return job;
}

/* ---- the entry points ---- */

/* `given` in the macros below is false for a NULL, which the driver must refuse. */
static bool make_sync(CUresult *ret_result, struct job job, bool per_thread)
{
	job.sync = true;
	job.per_thread = per_thread;
	return copy_make(&job, ret_result);
}

static bool make_on(CUresult *ret_result, struct job job, CUstream stream, bool per_thread)
{
	job.stream = stream;
	job.per_thread = per_thread;
	return copy_make(&job, ret_result);
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
     entry_copy_linear(CU_MEMORYTYPE_UNIFIED, dst, CU_MEMORYTYPE_UNIFIED, src, n))
BOTH(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t n), n,
     entry_copy_linear(CU_MEMORYTYPE_DEVICE, dst, CU_MEMORYTYPE_HOST, ADDRESS(src), n))
BOTH(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t n), n,
     entry_copy_linear(CU_MEMORYTYPE_HOST, ADDRESS(dst), CU_MEMORYTYPE_DEVICE, src, n))
BOTH(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n), n,
     entry_copy_linear(CU_MEMORYTYPE_DEVICE, dst, CU_MEMORYTYPE_DEVICE, src, n))
SYNC(cuMemcpyDtoA_v2, (CUarray dst, size_t at, CUdeviceptr src, size_t n), n, into_array(dst, at, src, n))
SYNC(cuMemcpyAtoD_v2, (CUdeviceptr dst, CUarray src, size_t at, size_t n), n, out_of_array(dst, src, at, n))
BOTH(cuMemcpyPeer, cuMemcpyPeerAsync, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n), n,
     peer_linear(dst, to, src, from, n))
BOTH(cuMemcpy2D_v2, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *box), box, of_2d(box))
SYNC(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *box), box, of_2d(box))
BOTH(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *box), box, of_3d(box))
BOTH(cuMemcpy3DPeer, cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *box), box,
     (struct job){.box = *box, .is_peer = true})

/* ---- lists ---- */

struct list {
	CUdeviceptr *dsts, *srcs;
	size_t *sizes;
	CUmemcpyAttributes *attributes;
	size_t *first, n_attributes; /* first[i]: the first copy that attributes[i] is for */
	CUDA_MEMCPY3D_BATCH_OP *ops; /* instead of all fields above */
	size_t n;
	CUstream stream;
	bool per_thread;
	enum hook_id id;
	CUresult (*as_list)(const struct job *job, CUstream stream);
};

/* Returns NULL if the copy has no attributes, which the driver must refuse. */
static CUmemcpyAttributes *attributes_at(const struct list *list, size_t i)
{
	size_t n = list->n_attributes;

	while (n && list->first[n - 1] > i)
		n--;
	return n ? &list->attributes[n - 1] : NULL;
}

static CUmemcpySrcAccessOrder order_at(const struct list *list, size_t i)
{
	const CUmemcpyAttributes *attributes = list->ops ? NULL : attributes_at(list, i);

	return list->ops    ? list->ops[i].srcAccessOrder
	       : attributes ? attributes->srcAccessOrder
			    : CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
}

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
		job = entry_copy_linear(CU_MEMORYTYPE_UNIFIED, list->dsts[i], CU_MEMORYTYPE_UNIFIED, list->srcs[i],
					list->sizes[i]);
	else
		job = (struct job){.box = {POINTER(op->src, src, op), POINTER(op->dst, dst, op),
					   .WidthInBytes = op->extent.width, .Height = op->extent.height,
					   .Depth = op->extent.depth}};
	job.stream = list->stream;
	job.per_thread = list->per_thread;
	job.list = list;
	job.index = i;
	job.as_list = list->as_list;
	job.during_call = order_at(list, i) == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
	return job;
}

/* Returns false for a list that the driver refuses: on the legacy stream, or with missing arrays. */
static bool may_be_looked_at(const struct list *list)
{
	if (list->stream == CU_STREAM_LEGACY || (!list->stream && !list->per_thread))
		return false;
	return list->ops ||
	       (list->dsts && list->srcs && list->sizes && (!list->n_attributes || (list->attributes && list->first)));
}

/* Returns true if one of the copies needs another way and the list has no arrays. */
static bool is_to_be_split(const struct list *list)
{
	bool split = false, arrays = false;

	for (size_t i = 0; i < list->n; i++) {
		CUcontext away;

		if (list->ops && has_array(&list->ops[i])) {
			arrays = true;
			continue;
		}
		struct job job = job_at(list, i);
		split |= copy_find_way(&job, &away) != WAY_AS_IT_IS;
	}
	if (split && arrays)
		copy_count(WAY_NONE);
	return split && !arrays;
}

/* Makes each copy as a list of one, choosing the way of each again. Returns false if the list need not be split. */
static bool split_list(const struct list *list, size_t *ret_failed, CUresult *ret_result)
{
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return false;
	bool split = is_to_be_split(list);
	if (split)
		submit_let_go_access();
	enter_leave(&scope, CUDA_SUCCESS);
	*ret_result = CUDA_SUCCESS;
	for (size_t i = 0; i < list->n && split && *ret_result == CUDA_SUCCESS; i++) {
		struct job job = job_at(list, i);

		if (copy_make(&job, ret_result))
			stats_call(list->id);
		else
			*ret_result = job.as_list(&job, job.stream);
		if (*ret_result != CUDA_SUCCESS && ret_failed)
			*ret_failed = i;
	}
	return split;
}

static bool make_one(const struct list *list, CUresult *ret_result)
{
	if (list->ops && has_array(list->ops))
		return false;
	struct job job = job_at(list, 0);
	return copy_make(&job, ret_result);
}

static bool make_list(const struct list *list, size_t *ret_failed, CUresult *ret_result)
{
	if (!list->n || !may_be_looked_at(list))
		return false;
	if (list->n > 1)
		return split_list(list, ret_failed, ret_result);
	bool made = make_one(list, ret_result);
	if (made && *ret_result != CUDA_SUCCESS && ret_failed)
		*ret_failed = 0;
	return made;
}

/* A list of one is submitted by the function that the program called: an older driver may have no other. */
#define AS_LIST(name, ...)                                                                                             \
	static CUresult as_##name(const struct job *job, CUstream stream)                                              \
	{                                                                                                              \
		const struct list *list = job->list;                                                                   \
		size_t i = job->index, failed;                                                                         \
                                                                                                                       \
		(void)failed;                                                                                          \
		return submit_##name(__VA_ARGS__, stream);                                                             \
	}
#define LINEAR_ONE                                                                                                     \
	&list->dsts[i], &list->srcs[i], &list->sizes[i], 1, attributes_at(list, i), &(size_t){0},                      \
	    attributes_at(list, i) != NULL
/* The list that a call has given: its members, and on which stream, by which function. */
#define GIVEN(name, on, ...)                                                                                           \
	&(struct list)                                                                                                 \
	{                                                                                                              \
		__VA_ARGS__, .stream = on, .per_thread = submit_is_per_thread(#name), .id = HOOK_##name,               \
			     .as_list = as_##name                                                                      \
	}
#define LINEAR                                                                                                         \
	CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *first
#define LINEAR_MEMBERS dsts, srcs, sizes, attrs, first, numAttrs, NULL, count
#define LIST(name)                                                                                                     \
	AS_LIST(name, LINEAR_ONE, &failed)                                                                             \
	bool copy_##name(CUresult *ret_result, LINEAR, size_t numAttrs, size_t *failIdx, CUstream hStream)             \
	{                                                                                                              \
		return make_list(GIVEN(name, hStream, LINEAR_MEMBERS), failIdx, ret_result);                           \
	}
#define LIST_V2(name)                                                                                                  \
	AS_LIST(name, LINEAR_ONE)                                                                                      \
	bool copy_##name(CUresult *ret_result, LINEAR, size_t numAttrs, CUstream hStream)                              \
	{                                                                                                              \
		return make_list(GIVEN(name, hStream, LINEAR_MEMBERS), NULL, ret_result);                              \
	}
#define LIST_3D(name)                                                                                                  \
	AS_LIST(name, 1, &list->ops[i], &failed, 0)                                                                    \
	bool copy_##name(CUresult *ret_result, size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,         \
			 unsigned long long flags, CUstream hStream)                                                   \
	{                                                                                                              \
		return opList && !flags &&                                                                             \
		       make_list(GIVEN(name, hStream, .ops = opList, .n = numOps), failIdx, ret_result);               \
	}
#define LIST_3D_V2(name)                                                                                               \
	AS_LIST(name, 1, &list->ops[i], 0)                                                                             \
	bool copy_##name(CUresult *ret_result, size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,                          \
			 unsigned long long flags, CUstream hStream)                                                   \
	{                                                                                                              \
		return opList && !flags &&                                                                             \
		       make_list(GIVEN(name, hStream, .ops = opList, .n = numOps), NULL, ret_result);                  \
	}
LIST(cuMemcpyBatchAsync)
LIST(cuMemcpyBatchAsync_ptsz)
LIST_V2(cuMemcpyBatchAsync_v2)
LIST_V2(cuMemcpyBatchAsync_v2_ptsz)
LIST_3D(cuMemcpy3DBatchAsync)
LIST_3D(cuMemcpy3DBatchAsync_ptsz)
LIST_3D_V2(cuMemcpy3DBatchAsync_v2)
LIST_3D_V2(cuMemcpy3DBatchAsync_v2_ptsz)

/* ---- one copy with attributes ---- */

#define WITH_ATTRIBUTES(name)                                                                                          \
	AS_LIST(name, list->dsts[i], list->srcs[i], list->sizes[i], list->attributes)                                  \
	bool copy_##name(CUresult *ret_result, CUdeviceptr dst, CUdeviceptr src, size_t size,                          \
			 CUmemcpyAttributes *attr, CUstream hStream)                                                   \
	{                                                                                                              \
		return size && attr &&                                                                                 \
		       make_one(GIVEN(name, hStream, &dst, &src, &size, attr, &(size_t){0}, 1, NULL, 1), ret_result);  \
	}
#define WITH_ATTRIBUTES_3D(name)                                                                                       \
	AS_LIST(name, &list->ops[i], 0)                                                                                \
	bool copy_##name(CUresult *ret_result, CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream hStream) \
	{                                                                                                              \
		return op && !flags && make_one(GIVEN(name, hStream, .ops = op, .n = 1), ret_result);                  \
	}
WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync)
WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync_ptsz)
WITH_ATTRIBUTES_3D(cuMemcpy3DWithAttributesAsync)
WITH_ATTRIBUTES_3D(cuMemcpy3DWithAttributesAsync_ptsz)
