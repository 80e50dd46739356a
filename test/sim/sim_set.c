// SPDX-License-Identifier: Apache-2.0
/*
 * sim_set.c: sets, in all spellings. Every one becomes a CUDA_MEMSET_NODE_PARAMS, the form that graph nodes have. They
 * return before they are done.
 *
 * Device ranges are checked when the call is made (INVALID_VALUE) and can still fault when the turn comes, if they were
 * unmapped in between.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"

#ifdef __SANITIZE_THREAD__
#define OWN volatile /* the compiler may not make a call of memset() of it, which the sanitizer sees */
#else
#define OWN
#endif

__attribute__((no_sanitize("thread"))) static void set_piece(char *at, const CUDA_MEMSET_NODE_PARAMS *set, size_t n)
{
	const unsigned value = set->value, bytes = set->elementSize;

	for (size_t x = 0; bytes == 1 && x < n; x++)
		((OWN unsigned char *)at)[x] = (unsigned char)value;
	for (size_t x = 0; bytes == 2 && x < n; x++)
		((OWN uint16_t *)at)[x] = (uint16_t)value;
	for (size_t x = 0; bytes == 4 && x < n; x++)
		((OWN uint32_t *)at)[x] = value;
}

static void run_set(struct sim_work *work)
{
	const CUDA_MEMSET_NODE_PARAMS *set = &work->set;
	char *row = sim_pointer(set->dst);
	size_t most = SIM_PIECE / set->elementSize;

	for (size_t y = 0; y < set->height; y++, row += set->pitch) {
		for (size_t x = 0, n; x < set->width; x += n) {
			n = set->width - x < most ? set->width - x : most;
			set_piece(row + x * set->elementSize, set, n);
			if (x + n < set->width)
				sim_pause();
		}
	}
}

bool sim_set_names(const struct sim_work *work, uintptr_t start, size_t bytes)
{
	const CUDA_MEMSET_NODE_PARAMS *set = &work->set;
	size_t all = set->pitch * (set->height - 1) + set->width * set->elementSize;

	return set->dst < start + bytes && start < set->dst + all;
}

/* What instantiating a graph looks at again; at copies it does not (driver 580). */
bool sim_set_is_mapped(const struct sim_work *work)
{
	const CUDA_MEMSET_NODE_PARAMS *set = &work->set;

	return !sim_in_window(set->dst) ||
	       sim_accessible(set->dst, (set->height - 1) * set->pitch + set->width * set->elementSize,
			      work->context ? work->context : sim_context(), true);
}

CUresult sim_set_work(struct sim_work **ret_work, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context)
{
	size_t row = set->width * set->elementSize, bytes = (set->height - 1) * set->pitch + row;
	struct sim_block *block = sim_block_at(set->dst);

	if (!set->dst || set->dst % set->elementSize || (set->height > 1 && set->pitch < row))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx, or the pitch, is not right for the element", set->dst);
	if (sim_in_window(set->dst) ? !sim_accessible(set->dst, bytes, context, true)
	    : block                 ? set->dst + bytes > block->range.start + block->range.bytes
				    : !sim.set.pageable)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%#llx + %zu is not accessible memory", set->dst, bytes);
	*ret_work = sim_work_new("a set", CU_GRAPH_NODE_TYPE_MEMSET, run_set);
	(*ret_work)->set = *set;
	return CUDA_SUCCESS;
}

static CUresult set(CUdeviceptr dst, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
		    CUstream handle, bool async)
{
	CUDA_MEMSET_NODE_PARAMS params = {dst, height > 1 ? pitch : 0, value, element, width, height};
	struct sim_work *work;
	CUstream stream;
	CUresult result = sim_stream(handle, &stream);

	if (result || !width || !height)
		return result;
	result = async ? CUDA_SUCCESS : sim_unsafe();
	return result ?: sim_set_work(&work, &params, stream->context) ?: sim_submit(handle, work);
}

#define SETS(bits, bytes, type)                                                                                        \
	SPELL(cuMemsetD##bits##_v2, (CUdeviceptr dst, type value, size_t n),                                           \
	      set(dst, 0, value, bytes, n, 1, CU_STREAM_LEGACY, false))                                                \
	SPELL(cuMemsetD##bits##_v2_ptds, (CUdeviceptr dst, type value, size_t n),                                      \
	      set(dst, 0, value, bytes, n, 1, CU_STREAM_PER_THREAD, false))                                            \
	SPELL_STREAM(cuMemsetD##bits##Async, (CUdeviceptr dst, type value, size_t n, CUstream stream), stream,         \
		     set(dst, 0, value, bytes, n, 1, stream, true))                                                    \
	SPELL(cuMemsetD2D##bits##_v2, (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),        \
	      set(dst, pitch, value, bytes, width, height, CU_STREAM_LEGACY, false))                                   \
	SPELL(cuMemsetD2D##bits##_v2_ptds, (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),   \
	      set(dst, pitch, value, bytes, width, height, CU_STREAM_PER_THREAD, false))                               \
	SPELL_STREAM(cuMemsetD2D##bits##Async,                                                                         \
		     (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream),        \
		     stream, set(dst, pitch, value, bytes, width, height, stream, true))
SETS(8, 1, unsigned char)
SETS(16, 2, unsigned short)
SETS(32, 4, unsigned)
