/*
 * sim_copy.c: copies, in all spellings. Every one becomes a CUDA_MEMCPY3D of linear memory, the form that graph nodes
 * have.
 *
 * Device ranges are checked when the call is made (INVALID_VALUE) and can still fault when the turn comes, if they were
 * unmapped in between. Pageable sources of asynchronous copies are read at the call, pageable destinations make the
 * call wait: as the driver does. Copies between device addresses return before they are done. Of a list each copy says
 * when its source may be read: during the call, in the stream's order, or as the driver likes.
 */
#include "sim_internal.h"
#include <stdlib.h>
#include <sys/mman.h>

struct side {
	uintptr_t start;
	size_t pitch, slice; /* bytes from row to row and from slice to slice */
	bool device, pageable;
	int seen_by;
};

static size_t extent(const struct side *side, const CUDA_MEMCPY3D *copy)
{
	return (copy->Depth - 1) * side->slice + (copy->Height - 1) * side->pitch + copy->WidthInBytes;
}

/*
 * Memory of cuMemAlloc is copied from and to wherever it is: the driver knows whose it is and goes through the host
 * where devices do not reach each other. Memory of cuMemMap and of pools is touched by the device on whose behalf the
 * copy is made, or not at all (facts section 7).
 */
static bool may_copy(struct side *side, size_t bytes, CUcontext context, bool dst)
{
	struct sim_block *block = sim_block_at(side->start);

	side->seen_by = context->device;
	if (!side->device)
		return true;
	if (!block || block->kind != SIM_BLOCK_DEVICE)
		return sim_accessible(side->start, bytes, context, dst);
	side->seen_by = block->device;
	return side->start + bytes <= block->range.start + block->range.bytes;
}

static CUresult side_of(struct side *ret_side, const CUDA_MEMCPY3D *copy, bool dst, CUcontext context)
{
	CUmemorytype type = dst ? copy->dstMemoryType : copy->srcMemoryType;
	uintptr_t base = type == CU_MEMORYTYPE_HOST ? (uintptr_t)(dst ? copy->dstHost : copy->srcHost)
						    : (dst ? copy->dstDevice : copy->srcDevice);
	size_t pitch = dst ? copy->dstPitch : copy->srcPitch, height = dst ? copy->dstHeight : copy->srcHeight;
	size_t x = dst ? copy->dstXInBytes : copy->srcXInBytes, y = dst ? copy->dstY : copy->srcY;
	size_t z = dst ? copy->dstZ : copy->srcZ;

	if (type == CU_MEMORYTYPE_ARRAY)
		return sim_why(CUDA_ERROR_NOT_SUPPORTED, "the model has no arrays");
	if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!pitch)
		pitch = copy->WidthInBytes + x;
	if (!height)
		height = copy->Height + y;
	if (pitch < copy->WidthInBytes + x)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "the pitch is less than the width");
	*ret_side = (struct side){.pitch = pitch, .slice = pitch * height};
	ret_side->start = base + z * ret_side->slice + y * pitch + x;
	ret_side->device = sim_in_window(ret_side->start);
	ret_side->pageable = !ret_side->device && !sim_block_at(ret_side->start);
	if (!base)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "an address is NULL");
	/* With HMM or ATS such memory may be named wherever device memory may: assumed, the documentation does not say. */
	if (type == CU_MEMORYTYPE_DEVICE && ret_side->pageable && !sim.set.pageable)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#lx is not device memory", (unsigned long)ret_side->start);
	if (!may_copy(ret_side, extent(ret_side, copy), context, dst))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#lx + %zu is not accessible memory for device %d",
			       (unsigned long)ret_side->start, extent(ret_side, copy), context->device);
	return CUDA_SUCCESS;
}

/*
 * A copy that kernels write under is torn, on a GPU as here: it goes in pieces, and between two of them others run. The
 * thread sanitizer must not see it, for it would call that a race of ours.
 */
__attribute__((no_sanitize("thread"))) static void copy_piece(char *dst, const char *src, size_t bytes)
{
#ifdef __SANITIZE_THREAD__
	bool words = !(((uintptr_t)dst | (uintptr_t)src | bytes) & 7);

	for (size_t i = 0; words && i < bytes / 8; i++)
		((volatile uint64_t *)dst)[i] = ((const volatile uint64_t *)src)[i];
	for (size_t i = 0; !words && i < bytes; i++)
		((volatile char *)dst)[i] = ((const volatile char *)src)[i];
#else
	memcpy(dst, src, bytes);
#endif
}

/*
 * The first write to each 4 KiB of what was mapped anew is a page fault, which takes longer than copying them, and which
 * a GPU has not. Taken together they are cheap; where the kernel (Linux 5.14) or its headers cannot, one by one.
 */
static void fault_in(char *dst, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
	uintptr_t page = 4096, from = ((uintptr_t)dst + page - 1) & ~(page - 1),
		  to = ((uintptr_t)dst + bytes) & ~(page - 1);

	if (to > from + 8 * page)
		madvise((void *)from, to - from, MADV_POPULATE_WRITE);
#else
	(void)dst;
	(void)bytes;
#endif
}

static void copy_row(char *dst, const char *src, size_t bytes)
{
	if (dst < src + bytes && src < dst + bytes) {
		memmove(dst, src, bytes);
		return;
	}
	for (size_t at = 0, n; at < bytes; at += n) {
		n = bytes - at < SIM_PIECE ? bytes - at : SIM_PIECE;
		fault_in(dst + at, n);
		copy_piece(dst + at, src + at, n);
		if (at + n < bytes)
			sim_pause();
	}
}

static void copy_rows(char *dst, size_t dst_pitch, size_t dst_slice, const char *src, size_t src_pitch,
		      size_t src_slice, const CUDA_MEMCPY3D *copy)
{
	for (size_t z = 0; z < copy->Depth; z++)
		for (size_t y = 0; y < copy->Height; y++)
			copy_row(dst + z * dst_slice + y * dst_pitch, src + z * src_slice + y * src_pitch,
				 copy->WidthInBytes);
}

bool sim_copy_names(const struct sim_work *work, uintptr_t start, size_t bytes, unsigned devices)
{
	const CUDA_MEMCPY3D *copy = &work->copy;
	size_t src = copy->srcPitch * copy->srcHeight * (copy->Depth - 1) + copy->srcPitch * (copy->Height - 1);
	size_t dst = copy->dstPitch * copy->dstHeight * (copy->Depth - 1) + copy->dstPitch * (copy->Height - 1);

	return (devices >> work->dst_device & 1 && copy->dstDevice < start + bytes &&
		start < copy->dstDevice + dst + copy->WidthInBytes) ||
	       (devices >> work->src_device & 1 && !work->owned && copy->srcDevice < start + bytes &&
		start < copy->srcDevice + src + copy->WidthInBytes);
}

/*
 * Where one side is reached. Managed memory that was given as host memory is touched by the CPU, and otherwise by the
 * device, which faults.
 */
static char *reach(CUdeviceptr address, CUmemorytype given, size_t pitch, size_t height, const CUDA_MEMCPY3D *copy,
		   int device, bool write)
{
	if (sim_in_window(address))
		return sim_view(address, device);
	if (given != CU_MEMORYTYPE_HOST || !sim_in_managed(address))
		return sim_pointer(address);
	sim_lock();
	sim_managed_touch(address, ((copy->Depth - 1) * height + copy->Height - 1) * pitch + copy->WidthInBytes, write);
	sim_unlock();
	return (char *)(uintptr_t)address;
}

/* By now both sides are UNIFIED, without offsets, with explicit pitches and heights (sim_copy_work). */
static void run_copy(struct sim_work *work)
{
	const CUDA_MEMCPY3D *copy = &work->copy, *given = &work->given;
	const char *src = work->owned ? work->owned
				      : reach(copy->srcDevice, given->srcMemoryType, copy->srcPitch, copy->srcHeight,
					      copy, work->src_device, false);

	copy_rows(
	    reach(copy->dstDevice, given->dstMemoryType, copy->dstPitch, copy->dstHeight, copy, work->dst_device, true),
	    copy->dstPitch, copy->dstPitch * copy->dstHeight, src, copy->srcPitch, copy->srcPitch * copy->srcHeight,
	    copy);
}

/* The program's own memory may be anything, a file or a userfault: it is not read under the model's lock. */
static void stage_source(struct sim_work *work, const struct side *src)
{
	const CUDA_MEMCPY3D *copy = &work->copy;
	size_t row = copy->WidthInBytes, slice = row * copy->Height;
	const char *from = src->device ? sim_view(src->start, src->seen_by) : sim_pointer(src->start);

	work->owned_bytes = slice * copy->Depth;
	work->owned = malloc(work->owned_bytes);
	if (!src->device)
		sim_unlock();
	copy_rows(work->owned, row, slice, from, src->pitch, src->slice, copy);
	if (!src->device)
		sim_lock();
	work->copy.srcPitch = row;
	work->copy.srcHeight = copy->Height;
}

/*
 * ---- copies in instances of graphs ----
 *
 * The driver notes of both sides of a copy what is mapped there when a node is given it (made, captured, set), and keeps
 * that whatever is mapped there later; clones and instances inherit it. A node of an instance becomes another copy only
 * where nothing of that differs, or the copy is the very same: then it is noted anew (driver 580).
 */
enum {
	CLASS_HOST,   /* memory of the program's */
	CLASS_DEVICE, /* mapped by cuMemMap, all of it of devices */
	CLASS_AWAY,   /* all of it of the host */
	CLASS_MIXED,
	CLASS_BLOCK, /* an allocation; + enum sim_kind */
};

static unsigned char class_of(const struct side *side, size_t bytes)
{
	const struct sim_block *block = sim_block_at(side->start);
	unsigned char found = 0;

	if (block && block->kind < SIM_BLOCK_HOST)
		return (unsigned char)(CLASS_BLOCK + block->kind);
	if (!side->device)
		return CLASS_HOST;
	for (uintptr_t at = side->start; at < side->start + bytes; at = (at | (SIM_GRANULE - 1)) + 1) {
		const struct sim_mapping *mapping = sim_mapping_at(at);

		if (mapping)
			found |= mapping->handle->physical.device < 0 ? CLASS_AWAY : CLASS_DEVICE;
	}
	return found;
}

bool sim_copy_may_become(const struct sim_work *work, const struct sim_work *other)
{
	const CUDA_MEMCPY3D *a = &work->copy, *b = &other->copy, *was = &work->given, *is = &other->given;
	CUresult result = CUDA_SUCCESS;

	if (a->srcDevice == b->srcDevice && a->dstDevice == b->dstDevice && a->WidthInBytes == b->WidthInBytes &&
	    a->Height == b->Height && a->Depth == b->Depth)
		return true;
	if (a->Height * a->Depth != 1 || b->Height * b->Depth != 1)
		result = sim_why(CUDA_ERROR_INVALID_VALUE, "a copy of more than one row cannot be changed");
	else if (was->srcMemoryType != is->srcMemoryType || was->dstMemoryType != is->dstMemoryType)
		result = sim_why(CUDA_ERROR_INVALID_VALUE, "the memory types are %d <- %d, not %d <- %d",
				 is->dstMemoryType, is->srcMemoryType, was->dstMemoryType, was->srcMemoryType);
	else if (work->src_class != other->src_class || work->dst_class != other->dst_class)
		result = sim_why(CUDA_ERROR_INVALID_VALUE, "the memory is of class %d <- %d, not %d <- %d",
				 other->dst_class, other->src_class, work->dst_class, work->src_class);
	return result == CUDA_SUCCESS;
}

CUresult sim_copy_work(struct sim_work **ret_work, const CUDA_MEMCPY3D *copy, struct sim_sides sides,
		       enum sim_stage stage)
{
	struct side src, dst;
	struct sim_work *work;
	CUresult result = side_of(&src, copy, false, sides.src);

	if (!result)
		result = side_of(&dst, copy, true, sides.dst);
	if (result)
		return result;
	work = sim_work_new("a copy", CU_GRAPH_NODE_TYPE_MEMCPY, run_copy);
	work->copy = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
				     .srcDevice = src.start,
				     .srcPitch = src.pitch,
				     .srcHeight = src.slice / src.pitch,
				     .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
				     .dstDevice = dst.start,
				     .dstPitch = dst.pitch,
				     .dstHeight = dst.slice / dst.pitch,
				     .WidthInBytes = copy->WidthInBytes,
				     .Height = copy->Height,
				     .Depth = copy->Depth};
	work->given = *copy;
	work->src_device = src.seen_by;
	work->dst_device = dst.seen_by;
	work->src_class = class_of(&src, extent(&src, copy));
	work->dst_class = class_of(&dst, extent(&dst, copy));
	if (stage == SIM_STAGE_ALL || (stage == SIM_STAGE_PAGEABLE && src.pageable))
		stage_source(work, &src);
	*ret_work = work;
	return CUDA_SUCCESS;
}

/* `sides`: NULL where the stream's context touches both. */
static CUresult copy_staged(const CUDA_MEMCPY3D *copy, const struct sim_sides *sides, CUstream handle, bool async,
			    enum sim_stage stage)
{
	CUdeviceptr dst, src;
	struct sim_work *work;
	CUstream stream;
	CUresult result = sim_stream(handle, &stream);
	bool wait;

	if (result)
		return result;
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	if (!copy->WidthInBytes || !copy->Height || !copy->Depth)
		return CUDA_SUCCESS;
	result = sim_copy_work(&work, copy, sides ? *sides : (struct sim_sides){stream->context, stream->context},
			       async && !stream->capture ? stage : SIM_STAGE_NOTHING);
	if (result)
		return result;
	dst = work->copy.dstDevice;
	src = work->copy.srcDevice;
	if (!async)
		wait = !sim_in_window(dst) || !sim_in_window(src);
	else
		wait = !stream->capture && !sim_in_window(dst) && !sim_block_at(dst);
	if (!async && wait)
		return sim_submit_sync(handle, work);
	if (!async)
		result = sim_unsafe();
	if (result) {
		sim_work_free(work);
		return result;
	}
	result = sim_submit(handle, work);
	if (result || !wait)
		return result;
	sim_wait_after((struct sim_after){stream, stream->last});
	return stream->context->dead;
}

static CUresult copy_sides(const CUDA_MEMCPY3D *copy, const struct sim_sides *sides, CUstream handle, bool async)
{
	return copy_staged(copy, sides, handle, async, SIM_STAGE_PAGEABLE);
}

static CUresult copy3d(const CUDA_MEMCPY3D *copy, CUstream handle, bool async)
{
	return copy_sides(copy, NULL, handle, async);
}

/* kinds: 'H' host, 'D' device, 'U' whichever the address says */
static CUmemorytype memory_type(char kind)
{
	return kind == 'H' ? CU_MEMORYTYPE_HOST : kind == 'D' ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
}

static CUDA_MEMCPY3D one_row(char dst_kind, uintptr_t dst, char src_kind, uintptr_t src, size_t bytes)
{
	return (CUDA_MEMCPY3D){.dstMemoryType = memory_type(dst_kind),
			       .srcMemoryType = memory_type(src_kind),
			       .dstHost = (void *)dst,
			       .dstDevice = dst,
			       .srcHost = (void *)src,
			       .srcDevice = src,
			       .WidthInBytes = bytes,
			       .Height = 1,
			       .Depth = 1};
}

static CUresult linear(char dst_kind, uintptr_t dst, char src_kind, uintptr_t src, size_t bytes, CUstream stream,
		       bool async)
{
	CUDA_MEMCPY3D copy = one_row(dst_kind, dst, src_kind, src, bytes);

	return copy3d(&copy, stream, async);
}

static CUresult peers_are_contexts(const struct sim_sides *sides)
{
	const CUcontext both[] = {sides->src, sides->dst};

	for (int i = 0; i < 2; i++)
		if (!sim_is_context(both[i]) || !both[i]->alive)
			return sim_why(CUDA_ERROR_INVALID_CONTEXT, "%p is not a context", (void *)both[i]);
	return both[0]->dead ? both[0]->dead : both[1]->dead;
}

/* Each side is touched by its own context's device. */
static CUresult peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
		     CUstream stream, bool async)
{
	struct sim_sides sides = {.src = src_context, .dst = dst_context};
	CUDA_MEMCPY3D copy = one_row('D', dst, 'D', src, bytes);
	CUresult result = peers_are_contexts(&sides);

	return result ? result : copy_sides(&copy, &sides, stream, async);
}

static CUresult copy2d(const CUDA_MEMCPY2D *two, CUstream stream, bool async)
{
	CUDA_MEMCPY3D copy;

	if (!two)
		return CUDA_ERROR_INVALID_VALUE;
	copy = (CUDA_MEMCPY3D){.srcXInBytes = two->srcXInBytes,
			       .srcY = two->srcY,
			       .srcMemoryType = two->srcMemoryType,
			       .srcHost = two->srcHost,
			       .srcDevice = two->srcDevice,
			       .srcPitch = two->srcPitch,
			       .dstXInBytes = two->dstXInBytes,
			       .dstY = two->dstY,
			       .dstMemoryType = two->dstMemoryType,
			       .dstHost = two->dstHost,
			       .dstDevice = two->dstDevice,
			       .dstPitch = two->dstPitch,
			       .WidthInBytes = two->WidthInBytes,
			       .Height = two->Height,
			       .Depth = 1};
	return copy3d(&copy, stream, async);
}

static CUresult copy_peer3d(const CUDA_MEMCPY3D_PEER *peer, CUstream stream, bool async)
{
	struct sim_sides sides;
	CUDA_MEMCPY3D copy;
	CUresult result;

	if (!peer)
		return CUDA_ERROR_INVALID_VALUE;
	sides = (struct sim_sides){.src = peer->srcContext, .dst = peer->dstContext};
	result = peers_are_contexts(&sides);
	if (result)
		return result;
	copy = (CUDA_MEMCPY3D){.srcXInBytes = peer->srcXInBytes,
			       .srcY = peer->srcY,
			       .srcZ = peer->srcZ,
			       .srcMemoryType = peer->srcMemoryType,
			       .srcHost = peer->srcHost,
			       .srcDevice = peer->srcDevice,
			       .srcPitch = peer->srcPitch,
			       .srcHeight = peer->srcHeight,
			       .dstXInBytes = peer->dstXInBytes,
			       .dstY = peer->dstY,
			       .dstZ = peer->dstZ,
			       .dstMemoryType = peer->dstMemoryType,
			       .dstHost = peer->dstHost,
			       .dstDevice = peer->dstDevice,
			       .dstPitch = peer->dstPitch,
			       .dstHeight = peer->dstHeight,
			       .WidthInBytes = peer->WidthInBytes,
			       .Height = peer->Height,
			       .Depth = peer->Depth};
	return copy_sides(&copy, &sides, stream, async);
}

/* ---- lists ---- */

static CUresult ordered(const CUDA_MEMCPY3D *copy, CUmemcpySrcAccessOrder order, CUstream stream)
{
	enum sim_stage stage = order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ? SIM_STAGE_NOTHING
			       : order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY  ? SIM_STAGE_PAGEABLE
									  : SIM_STAGE_ALL;

	if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "a copy of a list does not say when its source may be read");
	if (stream == CU_STREAM_LEGACY || !stream)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "a list is not for the legacy stream");
	return copy_staged(copy, NULL, stream, true, stage);
}

static CUmemcpySrcAccessOrder order_at(const CUmemcpyAttributes *attributes, const size_t *indices, size_t n, size_t i)
{
	while (n && indices[n - 1] > i)
		n--;
	return n ? attributes[n - 1].srcAccessOrder : CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
}

static CUresult batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
		      size_t *indices, size_t n_attributes, size_t *ret_failed, CUstream stream)
{
	for (size_t i = 0; i < n; i++) {
		CUDA_MEMCPY3D copy = one_row('U', dsts[i], 'U', srcs[i], sizes[i]);
		CUresult result = ordered(&copy, order_at(attributes, indices, n_attributes, i), stream);

		if (!result)
			continue;
		if (ret_failed)
			*ret_failed = i;
		return result;
	}
	return CUDA_SUCCESS;
}

static CUDA_MEMCPY3D box_of(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	return (CUDA_MEMCPY3D){.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .dstDevice = op->dst.op.ptr.ptr,
			       .dstPitch = op->dst.op.ptr.rowLength,
			       .dstHeight = op->dst.op.ptr.layerHeight,
			       .srcDevice = op->src.op.ptr.ptr,
			       .srcPitch = op->src.op.ptr.rowLength,
			       .srcHeight = op->src.op.ptr.layerHeight,
			       .WidthInBytes = op->extent.width,
			       .Height = op->extent.height,
			       .Depth = op->extent.depth};
}

static CUresult batch3d(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t n, size_t *ret_failed, unsigned long long flags,
			CUstream stream)
{
	CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

	for (size_t i = 0; i < n && !result; i++) {
		CUDA_MEMCPY3D copy = box_of(&ops[i]);
		bool arrays = ops[i].src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
			      ops[i].dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER;

		result = arrays ? sim_why(CUDA_ERROR_NOT_SUPPORTED, "the model has no arrays")
				: ordered(&copy, ops[i].srcAccessOrder, stream);
		if (result && ret_failed)
			*ret_failed = i;
	}
	return result;
}

/* ---- spellings ---- */

/* A synchronous spelling and its per-thread twin, which the driver names _ptds. */
#define SPELL_SYNC(name, params, call_with)                                                                            \
	SPELL(name, params, call_with(CU_STREAM_LEGACY))                                                               \
	SPELL(name##_ptds, params, call_with(CU_STREAM_PER_THREAD))

#define PLAIN(stream) linear('U', dst, 'U', src, n, stream, false)
#define HTOD(stream)  linear('D', dst, 'H', (uintptr_t)src, n, stream, false)
#define DTOH(stream)  linear('H', (uintptr_t)dst, 'D', src, n, stream, false)
#define DTOD(stream)  linear('D', dst, 'D', src, n, stream, false)
#define TWO(stream)   copy2d(copy, stream, false)
#define THREE(stream) copy3d(copy, stream, false)
#define PEER(stream)  peer(dst, dst_ctx, src, src_ctx, n, stream, false)
#define PEER3(stream) copy_peer3d(copy, stream, false)
SPELL_SYNC(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t n), PLAIN)
SPELL_SYNC(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t n), HTOD)
SPELL_SYNC(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t n), DTOH)
SPELL_SYNC(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n), DTOD)
SPELL_SYNC(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy), TWO)
SPELL_SYNC(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy), TWO)
SPELL_SYNC(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy), THREE)
SPELL_SYNC(cuMemcpyPeer, (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t n), PEER)
SPELL_SYNC(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *copy), PEER3)

SPELL_STREAM(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream), stream,
	     linear('U', dst, 'U', src, n, stream, true))
SPELL_STREAM(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t n, CUstream stream), stream,
	     linear('D', dst, 'H', (uintptr_t)src, n, stream, true))
SPELL_STREAM(cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t n, CUstream stream), stream,
	     linear('H', (uintptr_t)dst, 'D', src, n, stream, true))
SPELL_STREAM(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream), stream,
	     linear('D', dst, 'D', src, n, stream, true))
SPELL_STREAM(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream), stream, copy2d(copy, stream, true))
SPELL_STREAM(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy, CUstream stream), stream, copy3d(copy, stream, true))
SPELL_STREAM(cuMemcpyPeerAsync,
	     (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t n, CUstream stream),
	     stream, peer(dst, dst_ctx, src, src_ctx, n, stream, true))
SPELL_STREAM(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), stream,
	     copy_peer3d(copy, stream, true))
SPELL_STREAM(cuMemcpyBatchAsync,
	     (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
	      size_t *indices, size_t n_attributes, size_t *failed, CUstream stream),
	     stream, batch(dsts, srcs, sizes, n, attributes, indices, n_attributes, failed, stream))
SPELL_STREAM(cuMemcpyBatchAsync_v2,
	     (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
	      size_t *indices, size_t n_attributes, CUstream stream),
	     stream, batch(dsts, srcs, sizes, n, attributes, indices, n_attributes, NULL, stream))
SPELL_STREAM(cuMemcpy3DBatchAsync,
	     (size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags, CUstream stream), stream,
	     batch3d(ops, n, failed, flags, stream))
SPELL_STREAM(cuMemcpy3DBatchAsync_v2,
	     (size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream), stream,
	     batch3d(ops, n, NULL, flags, stream))
