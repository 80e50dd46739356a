// SPDX-License-Identifier: Apache-2.0
/*
 * sim_memcpy.c: the calls that copy, in all spellings. Each becomes one CUDA_MEMCPY3D a copy (sim_copy.c). Lists with
 * arrays the model has not.
 *
 * Pageable sources of asynchronous copies are read at the call, pageable destinations make the call wait: as the driver
 * does. Copies between device addresses return before they are done. Of a list each copy says when its source may be
 * read: during the call, in the stream's order, or as the driver likes.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"
#include "test/forms.h"

/* A synchronous copy between peers comes behind the default streams of both contexts (rules_peer_test). */
static void come_behind(struct sim_work *work, CUcontext context)
{
	for (CUstream stream = context->streams; stream; stream = stream->next)
		if (stream->blocking || stream == context->legacy)
			sim_work_after(work, stream, stream->last);
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
	if (!stream->capture)
		sim_copy_check_sides(work, sides);
	if (sides && !async) {
		come_behind(work, sides->src);
		come_behind(work, sides->dst);
	}
	dst = work->copy.dstDevice;
	src = work->copy.srcDevice;
	if (!async)
		wait = !sim_in_window(dst) || !sim_in_window(src);
	else
		wait = !stream->capture && copy->dstMemoryType != CU_MEMORYTYPE_ARRAY && !sim_in_window(dst) &&
		       !sim_block_at(dst);
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

/* One row of an array and as much of linear memory. */
static CUresult array_row(char dst_kind, uintptr_t dst, CUarray dst_array, char src_kind, uintptr_t src,
			  CUarray src_array, size_t offset, size_t bytes, CUstream stream)
{
	CUDA_MEMCPY3D copy = one_row(dst_kind, dst, src_kind, src, bytes);

	if (dst_array) {
		copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		copy.dstArray = dst_array;
		copy.dstXInBytes = offset;
	} else {
		copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		copy.srcArray = src_array;
		copy.srcXInBytes = offset;
	}
	return copy3d(&copy, stream, false);
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
	if (!two)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_MEMCPY3D copy = form_of_rows(two);
	return copy3d(&copy, stream, async);
}

static CUresult copy_peer3d(const CUDA_MEMCPY3D_PEER *peer, CUstream stream, bool async)
{
	if (!peer)
		return CUDA_ERROR_INVALID_VALUE;
	struct sim_sides sides = (struct sim_sides){.src = peer->srcContext, .dst = peer->dstContext};
	CUresult result = peers_are_contexts(&sides);
	if (result)
		return result;
	CUDA_MEMCPY3D copy = form_of_peers(peer);
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

		result = arrays ? sim_why(CUDA_ERROR_NOT_SUPPORTED, "the model has no lists with arrays")
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
/* What a newer driver might have, as cuBrandNew (sim_outside.c). */
SPELL(cuBrandNewCopyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream),
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
SPELL_STREAM(cuMemcpyWithAttributesAsync,
	     (CUdeviceptr dst, CUdeviceptr src, size_t n, CUmemcpyAttributes *attributes, CUstream stream), stream,
	     attributes ? linear('U', dst, 'U', src, n, stream, true) : CUDA_ERROR_INVALID_VALUE)
SPELL_STREAM(cuMemcpy3DWithAttributesAsync, (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream stream),
	     stream, batch3d(op, 1, NULL, flags, stream))
SPELL_STREAM(cuMemcpy3DBatchAsync,
	     (size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags, CUstream stream), stream,
	     batch3d(ops, n, failed, flags, stream))
SPELL_STREAM(cuMemcpy3DBatchAsync_v2,
	     (size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream), stream,
	     batch3d(ops, n, NULL, flags, stream))

#define ARRAYS(suffix, stream)                                                                                         \
	SPELL(cuMemcpyDtoA_v2##suffix, (CUarray dst, size_t at, CUdeviceptr src, size_t n),                            \
	      array_row('D', 0, dst, 'D', src, NULL, at, n, stream))                                                   \
	SPELL(cuMemcpyAtoD_v2##suffix, (CUdeviceptr dst, CUarray src, size_t at, size_t n),                            \
	      array_row('D', dst, NULL, 'D', 0, src, at, n, stream))                                                   \
	SPELL(cuMemcpyHtoA_v2##suffix, (CUarray dst, size_t at, const void *src, size_t n),                            \
	      array_row('H', 0, dst, 'H', (uintptr_t)src, NULL, at, n, stream))                                        \
	SPELL(cuMemcpyAtoH_v2##suffix, (void *dst, CUarray src, size_t at, size_t n),                                  \
	      array_row('H', (uintptr_t)dst, NULL, 'H', 0, src, at, n, stream))
ARRAYS(, CU_STREAM_LEGACY)
ARRAYS(_ptds, CU_STREAM_PER_THREAD)
