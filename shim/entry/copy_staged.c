// SPDX-License-Identifier: Apache-2.0
/*
 * Copies between GPUs that cannot access each other. The driver would make them with cuMemcpyPeer, but ends the
 * process if memory of the heap that is on the host is among what it copies (peer_open_for_copies). So each part of at
 * most STAGED_BYTES is copied on the source's GPU to memory that the driver allocates in stream order, by
 * cuMemcpyPeerAsync to such memory of the other GPU, and there to where it belongs. All of that is behind what the
 * program's stream has been given, and that stream goes on behind it. `a ?: b` is the first error of calls in order.
 */
#include "shim/entry/entry.h"
#include "shim/base/number.h"
#include "shim/context/context.h"
#include "shim/serve/make_room.h"
#include "shim/submit/submit_body.h"

/* Bytes of staging memory on each GPU, at most. */
#define STAGED_BYTES ((size_t)32 << 20)

/* What is copied at a time: `width` bytes of each of `height` rows of one slice. */
struct part {
	size_t x, y, z, width, height;
};

/*
 * ADD_OFFSETS makes one side of a box that of a part. The part of plain memory gets an address of its own, so that
 * one row needs no pitch: the driver takes none of 2 GiB. BE_DENSE makes the other side a dense copy of the part in
 * `memory`.
 */
#define ADD_OFFSETS(box, w, part)                                                                                      \
	do {                                                                                                           \
		size_t pitch_ = (box).w##Pitch ? (box).w##Pitch : (box).w##XInBytes + (box).WidthInBytes;              \
		size_t rows_ = (box).w##Height ? (box).w##Height : (box).w##Y + (box).Height;                          \
		size_t x_ = (box).w##XInBytes + (part)->x, y_ = (box).w##Y + (part)->y, z_ = (box).w##Z + (part)->z;   \
		bool array_ = (box).w##MemoryType == CU_MEMORYTYPE_ARRAY;                                              \
		if (!array_)                                                                                           \
			(box).w##Device += (z_ * rows_ + y_) * pitch_ + x_;                                            \
		(box).w##XInBytes = array_ ? x_ : 0;                                                                   \
		(box).w##Y = array_ ? y_ : 0;                                                                          \
		(box).w##Z = array_ ? z_ : 0;                                                                          \
		(box).w##Pitch = (part)->height > 1 ? pitch_ : (part)->width;                                          \
		(box).w##Height = (part)->height;                                                                      \
	} while (0)
#define BE_DENSE(box, w, part, memory)                                                                                 \
	do {                                                                                                           \
		(box).w##MemoryType = CU_MEMORYTYPE_DEVICE;                                                            \
		(box).w##Device = (memory);                                                                            \
		(box).w##Array = NULL;                                                                                 \
		(box).w##XInBytes = (box).w##Y = (box).w##Z = (box).w##LOD = 0;                                        \
		(box).w##Pitch = (part)->width;                                                                        \
		(box).w##Height = (part)->height;                                                                      \
	} while (0)

/* One of the two GPUs: a stream, and memory of the driver's that no part of the heap is in. */
struct staging {
	CUcontext context;
	CUstream stream;
	CUdeviceptr memory;
	CUevent reached; /* by the stream, after the latest part or, before any, the allocation; NULL: neither */
};

struct staged {
	const struct job *job;
	CUcontext home;
	CUevent before;
	struct staging from, to;
};

/* The program may have set a pool that holds little. The default pool holds what the GPU does. */
static CUresult stage_alloc(struct staging *stage, size_t bytes)
{
	CUresult result = REAL(cuMemAllocAsync)(&stage->memory, bytes, stage->stream);
	CUmemoryPool pool;
	CUdevice device;

	if (result == CUDA_ERROR_OUT_OF_MEMORY && REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS &&
	    REAL(cuDeviceGetDefaultMemPool)(&pool, device) == CUDA_SUCCESS)
		result = REAL(cuMemAllocFromPoolAsync)(&stage->memory, bytes, pool, stage->stream);
	return result;
}

/*
 * A synchronous copy comes behind what either GPU was given in its default stream. If the driver has no memory left,
 * the heap makes room.
 */
static CUresult stage_open(const struct job *job, struct staging *stage, CUcontext context, size_t bytes)
{
	bool pushed;
	CUresult result = context_enter(context, &pushed);

	if (result != CUDA_SUCCESS)
		return result;
	stage->context = context;
	result = REAL(cuStreamCreate)(&stage->stream, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS && job->sync)
		result = context_wait_stream(NULL, job->per_thread);
	if (result == CUDA_SUCCESS)
		OOM_RETRY_CALL(result, -1, stage_alloc(stage, bytes));
	context_leave(pushed);
	return result;
}

/* What was given to the stream goes on, and the memory is freed behind it. */
static void stage_close(struct staging *stage)
{
	bool pushed;

	if (stage->reached)
		context_event_give(stage->context, stage->reached);
	if (!stage->stream || context_enter(stage->context, &pushed) != CUDA_SUCCESS)
		return;
	if (stage->memory)
		REAL(cuMemFreeAsync)(stage->memory, stage->stream);
	cuStreamDestroy_v2(stage->stream);
	context_leave(pushed);
}

static CUresult stage_mark(struct staging *stage)
{
	CUcontext context;
	CUevent reached;
	CUresult result = context_record_stream(stage->stream, false, &reached, &context);

	if (result != CUDA_SUCCESS)
		return result;
	if (stage->reached)
		context_event_give(stage->context, stage->reached);
	stage->reached = reached;
	return CUDA_SUCCESS;
}

/*
 * On the stage's stream, behind `after`: makes the copy, sends so many bytes of its memory over to that of `other`, and
 * marks it. copy, other: NULL for neither.
 */
static CUresult stage_step(struct staging *stage, CUevent after, const CUDA_MEMCPY3D *copy, const struct staging *other,
			   size_t bytes)
{
	bool pushed;
	CUresult result = context_enter(stage->context, &pushed);

	if (result != CUDA_SUCCESS)
		return result;
	result = REAL(cuStreamWaitEvent)(stage->stream, after, 0);
	if (result == CUDA_SUCCESS && copy)
		result = submit_cuMemcpy3DAsync_v2(copy, stage->stream);
	if (result == CUDA_SUCCESS && other)
		result = REAL(cuMemcpyPeerAsync)(other->memory, other->context, stage->memory, stage->context, bytes,
						 stage->stream);
	if (result == CUDA_SUCCESS)
		result = stage_mark(stage);
	context_leave(pushed);
	return result;
}

static CUresult copy_part(struct staged *staged, const struct part *part)
{
	CUDA_MEMCPY3D out = copy_without_contexts(&staged->job->box), in = out;

	ADD_OFFSETS(out, src, part);
	BE_DENSE(out, dst, part, staged->from.memory);
	ADD_OFFSETS(in, dst, part);
	BE_DENSE(in, src, part, staged->to.memory);
	out.WidthInBytes = in.WidthInBytes = part->width;
	out.Height = in.Height = part->height;
	out.Depth = in.Depth = 1;
	/* Out of the source, and over to the other GPU as soon as that has taken the part before this one. */
	return stage_step(&staged->from, staged->to.reached, &out, &staged->to, part->width * part->height)
		   ?: stage_step(&staged->to, staged->from.reached, &in, NULL, 0);
}

static CUresult copy_parts(struct staged *staged)
{
	const CUDA_MEMCPY3D_PEER *box = &staged->job->box;
	size_t width = smaller(box->WidthInBytes, STAGED_BYTES), height = smaller(box->Height, STAGED_BYTES / width);
	CUresult result = CUDA_SUCCESS;

	for (size_t z = 0; z < box->Depth; z++)
		for (size_t y = 0; y < box->Height; y += height)
			for (size_t x = 0; x < box->WidthInBytes && result == CUDA_SUCCESS; x += width) {
				struct part part = {x, y, z, smaller(width, box->WidthInBytes - x),
						    smaller(height, box->Height - y)};

				result = copy_part(staged, &part);
			}
	return result;
}

static CUresult stage_wait(const struct staging *stage)
{
	return stage->stream ? context_wait_stream(stage->stream, false) : CUDA_SUCCESS;
}

CUresult copy_go_on_behind(const struct job *job, CUcontext home, CUevent after)
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
 * The program's stream, or for a synchronous copy the program itself, goes on behind the last part. After a failure
 * everything is waited for: nothing may overtake it, and what it uses is freed behind the stage's own stream only.
 */
static CUresult go_on(const struct staged *staged, CUresult result)
{
	const struct job *job = staged->job;

	if (result == CUDA_SUCCESS && !job->sync && !job->during_call) {
		result = copy_go_on_behind(job, staged->home, staged->to.reached);
		if (result == CUDA_SUCCESS)
			return CUDA_SUCCESS;
	}
	CUresult from = stage_wait(&staged->from), to = stage_wait(&staged->to);
	return result ?: from ?: to;
}

static CUresult copy_relaxed(const struct job *job)
{
	const CUDA_MEMCPY3D_PEER *box = &job->box;
	struct staged staged = {.job = job};

	if (!box->WidthInBytes || !box->Height || !box->Depth)
		return CUDA_SUCCESS;
	size_t width = smaller(box->WidthInBytes, STAGED_BYTES),
	       bytes = width * smaller(box->Height, STAGED_BYTES / width);
	CUresult result =
	    context_record_stream(job->sync ? NULL : job->stream, job->per_thread, &staged.before, &staged.home);
	if (result != CUDA_SUCCESS)
		return result;
	/*
	 * The first part is written from the source's stream to memory that the other stream allocated, and that may be
	 * someone else's until that stream gets there: it comes behind a mark of that stream, as later parts do.
	 */
	result = stage_open(job, &staged.from, box->srcContext, bytes)
		     ?: stage_open(job, &staged.to, box->dstContext, bytes)
		     ?: stage_step(&staged.to, staged.before, NULL, NULL, 0)
		     ?: go_on(&staged, copy_parts(&staged));
	stage_close(&staged.from);
	stage_close(&staged.to);
	context_event_give(staged.home, staged.before);
	return result;
}

/* To allocate in stream order and to free so would end the captures of other threads. */
CUresult copy_staged(const struct job *job)
{
	CUstreamCaptureMode mode = capture_relax();
	CUresult result = copy_relaxed(job);

	capture_restore(mode);
	return result;
}
