// SPDX-License-Identifier: Apache-2.0
/*
 * operands.c: reads the names of each submission from its arguments (submit_body.h). The end of this file has one line
 * for each entry point; the functions before it are what those lines call.
 *
 * Host addresses are named too: under unified addressing the driver accepts a device address wherever it takes a host
 * pointer. An address outside the heaps costs a look-up and nothing more. Arrays belong to the driver and are never
 * named.
 *
 * The number of the work (submission_function) is the handle for kernels, and the number from graph.c for graphs. For
 * all else it is the entry point's id mixed with the extent, with the highest bit set, which no handle has.
 *
 * Measured (H200, driver 580): cuMemcpyHtoD and cuMemcpyDtoH with device addresses as their host side do copy, and so
 * do 2D copies with CU_MEMORYTYPE_HOST.
 */
#include "shim/submit/submit_body.h"
#include "shim/submit/arguments.h"
#include "shim/submit/completion.h"
#include "shim/submit/graph.h"
#include "shim/submit/pointer_arrays.h"

/* Most parameters of a call do not concern memory. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static void set_work(struct submission *submission, enum hook_id id, uint64_t extent)
{
	submission_function(submission, (((uint64_t)id << 48) ^ (extent * UINT64_C(0x9e3779b97f4a7c15))) | UINT64_C(1)
													       << 63);
}

/* Names an address with a known extent. Extent 0 touches nothing, but means "unknown" to submission_name(). */
static void operands_name(struct submission *submission, CUdeviceptr address, size_t bytes)
{
	if (bytes)
		submission_name(submission, address, bytes);
}

#define HOST(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

/* ---- kernels ---- */

static inline void name_word(void *submission, const char *at)
{
	uint64_t word;

	if (!at)
		return;
	memcpy(&word, at, sizeof(word));
	CUdeviceptr pointer = submission_pointer(word);
	if (pointer) {
		submission_name(submission, pointer, 0);
		pointer_arrays_name(submission, pointer);
	}
}

static void name_kernel(struct submission *submission, CUfunction function, void **params, void **extra)
{
	struct kernel_params unused;
	const char *buffer = NULL;
	size_t bytes = 0;

	if (__builtin_expect(extra != NULL, 0) && !kernel_params_buffer(extra, &buffer, &bytes))
		submission_unknown(submission);
	for (size_t at = 0; at + 8 <= bytes; at += 8)
		name_word(submission, buffer + at);
	if (params && !kernel_params_each(function, params, name_word, submission))
		submission_unknown(submission);
	else if (!params && extra) /* the buffer has them all; the cache holds the name with the layout */
		kernel_params_get(function, &unused);
}

static inline void launch(struct submission *submission, enum hook_id id, CUfunction function, void **params,
			  void **extra)
{
	submission_function(submission, (uintptr_t)function);
	name_kernel(submission, function, params, extra);
}

/* The parameters were set earlier, by cuParamSet*, and are not known. */
static void launch_old(struct submission *submission, enum hook_id id, CUfunction function)
{
	submission_function(submission, (uintptr_t)function);
	submission_unknown(submission);
}

/* A cooperative launch: one kernel for each device, each on a separate stream. */
static void launch_many(struct submission *submission, enum hook_id id, const CUDA_LAUNCH_PARAMS *list, unsigned n)
{
	for (unsigned i = 0; list && i < n; i++) {
		if (!i)
			submission_function(submission, (uintptr_t)list[i].function);
		name_kernel(submission, list[i].function, list[i].kernelParams, NULL);
	}
}

/* ---- copies and sets ---- */

/* One side of a copy. */
struct side {
	CUmemorytype type;
	struct pointer_arrays_side at;
};

/* Names the range of a copy or set. If it exceeds the address space, the driver will refuse it; only base is named. */
static void name_box(struct submission *submission, CUdeviceptr base, const struct copy_extent_place *place,
		     const struct copy_extent *extent)
{
	CUdeviceptr first;
	size_t bytes;

	if (copy_extent_range(base, place, extent, &first, &bytes))
		operands_name(submission, first, bytes);
	else
		operands_name(submission, base, 1);
}

/* Returns false if the side is an array, or invalid. */
static bool name_side(struct submission *submission, const struct side *side, const struct copy_extent *extent)
{
	if (side->type != CU_MEMORYTYPE_HOST && side->type != CU_MEMORYTYPE_DEVICE &&
	    side->type != CU_MEMORYTYPE_UNIFIED)
		return false;
	name_box(submission, side->at.base, &side->at.place, extent);
	return true;
}

/* The structures of 2D, 3D and peer copies, old and new, have members of the same names but of different types. */
#define SIDE(args, which, ...)                                                                                         \
	(&(struct side){                                                                                               \
	    (args)->which##MemoryType,                                                                                 \
	    {(args)->which##MemoryType == CU_MEMORYTYPE_HOST ? HOST((args)->which##Host) : (args)->which##Device,      \
	     {.x = (args)->which##XInBytes, .y = (args)->which##Y, .pitch = (args)->which##Pitch, __VA_ARGS__}}})
#define SIDE_2D(args, which) SIDE(args, which, .z = 0)
#define SIDE_3D(args, which) SIDE(args, which, .z = (args)->which##Z, .height = (args)->which##Height)

static void copy_sides(struct submission *submission, const struct side *dst, const struct side *src,
		       struct copy_extent extent)
{
	bool linear = name_side(submission, dst, &extent);

	if (name_side(submission, src, &extent) && linear)
		pointer_arrays_copied_box(submission, &dst->at, &src->at, &extent);
}

static uint64_t operands_volume(const struct copy_extent *extent)
{
	return extent->width * extent->height * extent->depth;
}

#define COPY_2D(submission, id, args)                                                                                  \
	do {                                                                                                           \
		set_work(submission, id, (args) ? (uint64_t)(args)->WidthInBytes *(args)->Height : 0);                 \
		if (args)                                                                                              \
			copy_sides(submission, SIDE_2D(args, dst), SIDE_2D(args, src),                                 \
				   (struct copy_extent){(args)->WidthInBytes, (args)->Height, 1});                     \
	} while (0)

#define EXTENT_3D(args) ((struct copy_extent){(args)->WidthInBytes, (args)->Height, (args)->Depth})
#define COPY_3D(submission, id, args)                                                                                  \
	do {                                                                                                           \
		set_work(submission, id, (args) ? operands_volume(&EXTENT_3D(args)) : 0);                              \
		if (args)                                                                                              \
			copy_sides(submission, SIDE_3D(args, dst), SIDE_3D(args, src), EXTENT_3D(args));               \
	} while (0)

static void copy(struct submission *submission, enum hook_id id, CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	set_work(submission, id, bytes);
	operands_name(submission, dst, bytes);
	operands_name(submission, src, bytes);
	pointer_arrays_copied(submission, dst, src, bytes);
}

/* Names one address of known extent. */
static void one(struct submission *submission, enum hook_id id, CUdeviceptr address, size_t bytes)
{
	set_work(submission, id, bytes);
	operands_name(submission, address, bytes);
}

/*
 * A 2D set of one row may have pitch 0; with more rows the driver refuses it.
 *
 * A set that clears whole words of 32 bits tells nobody an address; with other values it may write one, half by half.
 * Libraries clear counters before their kernels, usually of 4 bytes.
 */
static void set(struct submission *submission, enum hook_id id, CUdeviceptr dst, size_t pitch, unsigned value,
		size_t element, size_t width, size_t height)
{
	struct copy_extent_place place = {.pitch = pitch};
	struct copy_extent extent = {.height = height, .depth = 1};

	set_work(submission, id, element * width * height);
	if (!value && (dst | pitch | element * width) % 4 == 0)
		submission_named_only(submission);
	if (__builtin_mul_overflow(width, element, &extent.width))
		operands_name(submission, dst, 1);
	else
		name_box(submission, dst, &place, &extent);
}

/* ---- lists ---- */

/* srcs: what is copied there; NULL: nothing is. */
static void list(struct submission *submission, enum hook_id id, const CUdeviceptr *addresses, const CUdeviceptr *srcs,
		 const size_t *sizes, size_t n)
{
	uint64_t sum = n;

	for (size_t i = 0; addresses && sizes && i < n; i++) {
		operands_name(submission, addresses[i], sizes[i]);
		if (srcs) {
			operands_name(submission, srcs[i], sizes[i]);
			pointer_arrays_copied(submission, addresses[i], srcs[i], sizes[i]);
		}
		sum = sum * 31 + sizes[i];
	}
	set_work(submission, id, sum);
}

/*
 * Names one side of a copy of a list. Extents are in elements: bytes if both sides are pointers, elements of the array
 * if one side is an array. Such elements have at most 16 bytes (four channels of 32 bits, or a compressed block), and
 * are assumed to have 16. Returns false if this side is an array, or if its size in bytes overflows.
 */
static bool name_operand(struct submission *submission, const CUmemcpy3DOperand *operand, struct copy_extent extent,
			 size_t element, struct pointer_arrays_side *ret_named)
{
	struct copy_extent_place place = {.height = operand->op.ptr.layerHeight};

	if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
		return false;
	if (__builtin_mul_overflow(extent.width, element, &extent.width) ||
	    __builtin_mul_overflow(operand->op.ptr.rowLength, element, &place.pitch)) {
		operands_name(submission, operand->op.ptr.ptr, 1);
		return false;
	}
	*ret_named = (struct pointer_arrays_side){operand->op.ptr.ptr, place};
	name_box(submission, operand->op.ptr.ptr, &place, &extent);
	return true;
}

static void copy_list_3d(struct submission *submission, enum hook_id id, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t n)
{
	uint64_t sum = n;

	for (size_t i = 0; ops && i < n; i++) {
		struct copy_extent extent = {ops[i].extent.width, ops[i].extent.height, ops[i].extent.depth};
		bool arrays =
		    ops[i].dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY || ops[i].src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;

		struct pointer_arrays_side to, from;
		bool linear = name_operand(submission, &ops[i].dst, extent, arrays ? 16 : 1, &to);

		if (name_operand(submission, &ops[i].src, extent, arrays ? 16 : 1, &from) && linear)
			pointer_arrays_copied_box(submission, &to, &from, &extent);
		sum = sum * 31 + operands_volume(&extent);
	}
	set_work(submission, id, sum);
}

/* dstNumBytes is only a hint, so the reach of the output is unknown. */
static void decompress(struct submission *submission, enum hook_id id, const CUmemDecompressParams *params, size_t n)
{
	uint64_t sum = n;

	for (size_t i = 0; params && i < n; i++) {
		operands_name(submission, HOST(params[i].src), params[i].srcNumBytes);
		submission_name(submission, HOST(params[i].dst), 0);
		submission_name(submission, HOST(params[i].dstActBytes), sizeof(*params[i].dstActBytes));
		sum = sum * 31 + params[i].srcNumBytes;
	}
	set_work(submission, id, sum);
}

static void write_word(struct submission *submission, enum hook_id id, CUdeviceptr address, uint64_t word)
{
	one(submission, id, address, sizeof(word));
	pointer_arrays_written(submission, address, word);
}

static void memory_operations(struct submission *submission, enum hook_id id, const CUstreamBatchMemOpParams *params,
			      unsigned n)
{
	set_work(submission, id, n);
	for (unsigned i = 0; params && i < n; i++) {
		CUdeviceptr address;
		size_t bytes;
		uint64_t word;

		if (!memory_operation(&params[i], &address, &bytes, &word))
			submission_unknown(submission);
		else if (bytes)
			submission_name(submission, address, bytes);
		if (word)
			pointer_arrays_written(submission, address, word);
	}
}

static void launch_graph(struct submission *submission, enum hook_id id, CUgraphExec exec)
{
	graph_operands(submission, exec);
}

/* ---- one line for each entry point ---- */

/* clang-format off */

/* what: the function that gets the submission, the id of the entry point, and what follows. */
#define ROW(call, stream_used, per_thread, params, what, ...)                                                          \
	void operands_##call(struct submission *submission, SUBMIT_UNPACK params)                                           \
	{                                                                                                              \
		submission_stream(submission, stream_used, per_thread);                                                       \
		what(submission, HOOK_##call, __VA_ARGS__);                                                                   \
	}
/*
 * Synchronous entry points have no stream; asynchronous ones take it from their parameter `stream`. _OWN also defines
 * the variant (_ptds, _ptsz) whose stream 0 is the thread's own.
 */
#define SYNC(call, params, ...)      ROW(call, NULL, false, params, __VA_ARGS__)
#define SYNC_OWN(call, params, ...)  SYNC(call, params, __VA_ARGS__) ROW(call##_ptds, NULL, true, params, __VA_ARGS__)
#define ASYNC(call, params, ...)     ROW(call, stream, false, params, __VA_ARGS__)
#define ASYNC_OWN(call, params, ...)                                                                                   \
	ASYNC(call, params, __VA_ARGS__) ROW(call##_ptsz, stream, true, params, __VA_ARGS__)

/*
 * First versions of entry points have 32-bit device addresses: those are never in a heap, but their host side can be.
 */
SYNC(cuMemcpyHtoD, (CUdeviceptr_v1 dst, const void *src, unsigned n), one, HOST(src), n)
SYNC(cuMemcpyDtoH, (void *dst, CUdeviceptr_v1 src, unsigned n), one, HOST(dst), n)
SYNC(cuMemcpyDtoD, (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned n), set_work, n)
SYNC(cuMemcpyDtoA, (CUarray dst, unsigned at, CUdeviceptr_v1 src, unsigned n), set_work, n)
SYNC(cuMemcpyAtoD, (CUdeviceptr_v1 dst, CUarray src, unsigned at, unsigned n), set_work, n)
SYNC(cuMemcpyHtoA, (CUarray dst, unsigned at, const void *src, unsigned n), one, HOST(src), n)
SYNC(cuMemcpyAtoH, (void *dst, CUarray src, unsigned at, unsigned n), one, HOST(dst), n)
SYNC(cuMemcpyAtoA, (CUarray dst, unsigned to, CUarray src, unsigned from, unsigned n), set_work, n)
SYNC(cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *box), COPY_2D, box)
SYNC(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *box), COPY_2D, box)
SYNC(cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *box), COPY_3D, box)
ASYNC(cuMemcpyHtoDAsync, (CUdeviceptr_v1 dst, const void *src, unsigned n, CUstream stream), one, HOST(src), n)
ASYNC(cuMemcpyDtoHAsync, (void *dst, CUdeviceptr_v1 src, unsigned n, CUstream stream), one, HOST(dst), n)
ASYNC(cuMemcpyDtoDAsync, (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned n, CUstream stream), set_work, n)
ASYNC(cuMemcpyHtoAAsync, (CUarray dst, unsigned at, const void *src, unsigned n, CUstream stream), one, HOST(src), n)
ASYNC(cuMemcpyAtoHAsync, (void *dst, CUarray src, unsigned at, unsigned n, CUstream stream), one, HOST(dst), n)
ASYNC(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *box, CUstream stream), COPY_2D, box)
ASYNC(cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *box, CUstream stream), COPY_3D, box)

/* Copies of one run of bytes. */
SYNC_OWN(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t n), copy, dst, src, n)
SYNC_OWN(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t n), copy, dst, HOST(src), n)
SYNC_OWN(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t n), copy, HOST(dst), src, n)
SYNC_OWN(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n), copy, dst, src, n)
SYNC_OWN(cuMemcpyDtoA_v2, (CUarray dst, size_t at, CUdeviceptr src, size_t n), one, src, n)
SYNC_OWN(cuMemcpyAtoD_v2, (CUdeviceptr dst, CUarray src, size_t at, size_t n), one, dst, n)
SYNC_OWN(cuMemcpyHtoA_v2, (CUarray dst, size_t at, const void *src, size_t n), one, HOST(src), n)
SYNC_OWN(cuMemcpyAtoH_v2, (void *dst, CUarray src, size_t at, size_t n), one, HOST(dst), n)
SYNC_OWN(cuMemcpyAtoA_v2, (CUarray dst, size_t to, CUarray src, size_t from, size_t n), set_work, n)
SYNC_OWN(cuMemcpyPeer, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n), copy, dst, src, n)
ASYNC_OWN(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream), copy, dst, src, n)
ASYNC_OWN(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t n, CUstream stream), copy, dst, HOST(src), n)
ASYNC_OWN(cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t n, CUstream stream), copy, HOST(dst), src, n)
ASYNC_OWN(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream), copy, dst, src, n)
ASYNC_OWN(cuMemcpyHtoAAsync_v2, (CUarray dst, size_t at, const void *src, size_t n, CUstream stream), one, HOST(src), n)
ASYNC_OWN(cuMemcpyAtoHAsync_v2, (void *dst, CUarray src, size_t at, size_t n, CUstream stream), one, HOST(dst), n)
ASYNC_OWN(cuMemcpyPeerAsync,
	  (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream stream),
	  copy, dst, src, n)

/* Copies in 2D and 3D, and lists of copies. */
SYNC_OWN(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *box), COPY_2D, box)
SYNC_OWN(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *box), COPY_2D, box)
SYNC_OWN(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *box), COPY_3D, box)
SYNC_OWN(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *box), COPY_3D, box)
ASYNC_OWN(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *box, CUstream stream), COPY_2D, box)
ASYNC_OWN(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *box, CUstream stream), COPY_3D, box)
ASYNC_OWN(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *box, CUstream stream), COPY_3D, box)
#define COPIES     CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t n
#define ATTRIBUTES CUmemcpyAttributes *attributes, size_t *first, size_t n_attributes
ASYNC_OWN(cuMemcpyBatchAsync, (COPIES, ATTRIBUTES, size_t *failed, CUstream stream), list, dsts, srcs, sizes, n)
ASYNC_OWN(cuMemcpyBatchAsync_v2, (COPIES, ATTRIBUTES, CUstream stream), list, dsts, srcs, sizes, n)
ASYNC_OWN(cuMemcpyWithAttributesAsync,
	  (CUdeviceptr dst, CUdeviceptr src, size_t n, CUmemcpyAttributes *attributes, CUstream stream),
	  copy, dst, src, n)
ASYNC_OWN(cuMemcpy3DWithAttributesAsync, (CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream stream),
	  copy_list_3d, op, 1)
ASYNC_OWN(cuMemcpy3DBatchAsync,
	  (size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags, CUstream stream),
	  copy_list_3d, ops, n)
ASYNC_OWN(cuMemcpy3DBatchAsync_v2, (size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream),
	  copy_list_3d, ops, n)

#define SETS(bits, bytes, type)                                                                                        \
	SYNC(cuMemsetD##bits, (CUdeviceptr_v1 dst, type value, unsigned n), set_work, n)                                \
	SYNC(cuMemsetD2D##bits, (CUdeviceptr_v1 dst, unsigned pitch, type value, unsigned width, unsigned height),     \
	     set_work, (size_t)width * height)                                                                          \
	SYNC_OWN(cuMemsetD##bits##_v2, (CUdeviceptr dst, type value, size_t n), set, dst, 0, value, bytes, n, 1)       \
	SYNC_OWN(cuMemsetD2D##bits##_v2, (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),     \
		 set, dst, pitch, value, bytes, width, height)                                                         \
	ASYNC_OWN(cuMemsetD##bits##Async, (CUdeviceptr dst, type value, size_t n, CUstream stream),                    \
		  set, dst, 0, value, bytes, n, 1)                                                                     \
	ASYNC_OWN(cuMemsetD2D##bits##Async,                                                                            \
		  (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream),           \
		  set, dst, pitch, value, bytes, width, height)
SETS(8, 1, unsigned char)
SETS(16, 2, unsigned short)
SETS(32, 4, unsigned)

/* Prefetches, discards, decompression. */
#define RANGES CUdeviceptr *addresses, size_t *sizes, size_t n
#define PLACES CUmemLocation *locations, size_t *first, size_t n_locations
ASYNC_OWN(cuMemPrefetchAsync, (CUdeviceptr address, size_t n, CUdevice device, CUstream stream), one, address, n)
ASYNC_OWN(cuMemPrefetchAsync_v2,
	  (CUdeviceptr address, size_t n, CUmemLocation location, unsigned flags, CUstream stream), one, address, n)
ASYNC_OWN(cuMemPrefetchBatchAsync,
	  (RANGES, PLACES, unsigned long long flags, CUstream stream), list, addresses, NULL, sizes, n)
ASYNC_OWN(cuMemDiscardBatchAsync, (RANGES, unsigned long long flags, CUstream stream), list, addresses, NULL, sizes, n)
ASYNC_OWN(cuMemDiscardAndPrefetchBatchAsync, (RANGES, PLACES, unsigned long long flags, CUstream stream),
	  list, addresses, NULL, sizes, n)
ASYNC_OWN(cuMemBatchDecompressAsync,
	  (CUmemDecompressParams *params, size_t n, unsigned flags, size_t *failed, CUstream stream),
	  decompress, params, n)

/* Memory operations of streams. */
#define VALUES(call, type, ...)                                                                                        \
	ASYNC_OWN(call, (CUstream stream, CUdeviceptr address, type value, unsigned flags), __VA_ARGS__)               \
	ASYNC_OWN(call##_v2, (CUstream stream, CUdeviceptr address, type value, unsigned flags), __VA_ARGS__)
#define OPERATIONS (CUstream stream, unsigned n, CUstreamBatchMemOpParams *params, unsigned flags)
VALUES(cuStreamWaitValue32, cuuint32_t, one, address, 4)
VALUES(cuStreamWaitValue64, cuuint64_t, one, address, 8)
VALUES(cuStreamWriteValue32, cuuint32_t, one, address, 4)
VALUES(cuStreamWriteValue64, cuuint64_t, write_word, address, value)
ASYNC_OWN(cuStreamBatchMemOp, OPERATIONS, memory_operations, params, n)
ASYNC_OWN(cuStreamBatchMemOp_v2, OPERATIONS, memory_operations, params, n)

/* Launches. */
#define DIMS unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define STREAM_OF(config) ((config) ? (config)->hStream : NULL)
/* Several launches have a stream each. */
#define STREAM_OF_ALL(launches, n) ((launches) && (n) == 1 ? (launches)->hStream : COMPLETION_ANY_STREAM)
#define EX_PARAMS (const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
ASYNC_OWN(cuLaunchKernel, (CUfunction function, DIMS, CUstream stream, void **params, void **extra),
	  launch, function, params, extra)
ASYNC_OWN(cuLaunchCooperativeKernel, (CUfunction function, DIMS, CUstream stream, void **params),
	  launch, function, params, NULL)
ROW(cuLaunchKernelEx, STREAM_OF(config), false, EX_PARAMS, launch, function, params, extra)
ROW(cuLaunchKernelEx_ptsz, STREAM_OF(config), true, EX_PARAMS, launch, function, params, extra)
ROW(cuLaunchCooperativeKernelMultiDevice, STREAM_OF_ALL(launches, n), false,
    (CUDA_LAUNCH_PARAMS *launches, unsigned n, unsigned flags), launch_many, launches, n)
SYNC(cuLaunch, (CUfunction function), launch_old, function)
SYNC(cuLaunchGrid, (CUfunction function, int width, int height), launch_old, function)
ASYNC(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream), launch_old, function)
ASYNC_OWN(cuGraphLaunch, (CUgraphExec exec, CUstream stream), launch_graph, exec)
/* clang-format on */
