/*
 * Bodies of copies that may be between GPUs: the arguments become a job, and copy.c decides how the copy is made. For
 * a list each copy is checked: if any needs another way, the copies are made one after the other, each as a list of
 * one that keeps its attributes; otherwise the list goes to the driver unchanged. A list with arrays goes to the
 * driver unchanged, too; it is counted if one of its copies needs another way. A copy with attributes is a list of one
 * that may be on the legacy stream.
 */
#include "shim/entry/copy_internal.h"
#include "shim/driver/real.h"
#include "shim/process/enter.h"
#include "shim/submit/submit_copy.h"

/* ---- arguments to jobs ---- */

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
BOTH(cuMemcpy3DPeer, cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *box), box, of_peer_3d(box))

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
#define LIST(name, own)                                                                                                \
	AS_LIST(name, LINEAR_ONE, &failed)                                                                             \
	bool copy_##name(CUresult *ret_result, CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count_,     \
			 CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,               \
			 CUstream hStream)                                                                             \
	{                                                                                                              \
		struct list list = {dsts, srcs,   sizes,   attrs, attrsIdxs,   numAttrs,                               \
				    NULL, count_, hStream, own,   HOOK_##name, as_##name};                             \
                                                                                                                       \
		return make_list(&list, failIdx, ret_result);                                                          \
	}
#define LIST_V2(name, own)                                                                                             \
	AS_LIST(name, LINEAR_ONE)                                                                                      \
	bool copy_##name(CUresult *ret_result, CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count_,     \
			 CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)              \
	{                                                                                                              \
		struct list list = {dsts, srcs,   sizes,   attrs, attrsIdxs,   numAttrs,                               \
				    NULL, count_, hStream, own,   HOOK_##name, as_##name};                             \
                                                                                                                       \
		return make_list(&list, NULL, ret_result);                                                             \
	}
#define LIST_3D(name, own)                                                                                             \
	AS_LIST(name, 1, &list->ops[i], &failed, 0)                                                                    \
	bool copy_##name(CUresult *ret_result, size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,         \
			 unsigned long long flags, CUstream hStream)                                                   \
	{                                                                                                              \
		struct list list = {.ops = opList,                                                                     \
				    .n = numOps,                                                                       \
				    .stream = hStream,                                                                 \
				    .per_thread = own,                                                                 \
				    .id = HOOK_##name,                                                                 \
				    .as_list = as_##name};                                                             \
                                                                                                                       \
		return opList && !flags && make_list(&list, failIdx, ret_result);                                      \
	}
#define LIST_3D_V2(name, own)                                                                                          \
	AS_LIST(name, 1, &list->ops[i], 0)                                                                             \
	bool copy_##name(CUresult *ret_result, size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,                          \
			 unsigned long long flags, CUstream hStream)                                                   \
	{                                                                                                              \
		struct list list = {.ops = opList,                                                                     \
				    .n = numOps,                                                                       \
				    .stream = hStream,                                                                 \
				    .per_thread = own,                                                                 \
				    .id = HOOK_##name,                                                                 \
				    .as_list = as_##name};                                                             \
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

/* ---- one copy with attributes ---- */

#define WITH_ATTRIBUTES(name, own)                                                                                     \
	AS_LIST(name, list->dsts[i], list->srcs[i], list->sizes[i], list->attributes)                                  \
	bool copy_##name(CUresult *ret_result, CUdeviceptr dst, CUdeviceptr src, size_t size,                          \
			 CUmemcpyAttributes *attr, CUstream hStream)                                                   \
	{                                                                                                              \
		struct list list = {&dst, &src, &size,   attr, &(size_t){0}, 1,                                        \
				    NULL, 1,    hStream, own,  HOOK_##name,  as_##name};                               \
                                                                                                                       \
		return size && attr && make_one(&list, ret_result);                                                    \
	}
#define WITH_ATTRIBUTES_3D(name, own)                                                                                  \
	AS_LIST(name, &list->ops[i], 0)                                                                                \
	bool copy_##name(CUresult *ret_result, CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream hStream) \
	{                                                                                                              \
		struct list list = {                                                                                   \
		    .ops = op, .n = 1, .stream = hStream, .per_thread = own, .id = HOOK_##name, .as_list = as_##name}; \
                                                                                                                       \
		return op && !flags && make_one(&list, ret_result);                                                    \
	}
WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync, false)
WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync_ptsz, true)
WITH_ATTRIBUTES_3D(cuMemcpy3DWithAttributesAsync, false)
WITH_ATTRIBUTES_3D(cuMemcpy3DWithAttributesAsync_ptsz, true)
