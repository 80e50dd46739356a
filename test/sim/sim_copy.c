// SPDX-License-Identifier: Apache-2.0
/*
 * sim_copy.c: what a copy is. Every one is a CUDA_MEMCPY3D of linear memory, the form that graph nodes have; here it
 * becomes a piece of work. Arrays are linear memory of the model's own. The calls that copy are in sim_memcpy.c.
 *
 * Device ranges are checked when the work is made (INVALID_VALUE) and can still fault when the turn comes, if they were
 * unmapped in between. What is to be read before the copy's turn (sim_stage) is read when the work is made.
 */
#include "sim_context.h"
#include "sim_managed.h"
#include "sim_memory.h"

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
 * copy is made, or not at all (docs/facts.md, Pointer queries).
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

/* Assumed: the device that touches an array is its own. Offsets and widths of both kinds of memory are bytes. */
static CUresult array_side(struct side *ret_side, const CUDA_MEMCPY3D *copy, bool dst, CUcontext context)
{
	size_t x = dst ? copy->dstXInBytes : copy->srcXInBytes, y = dst ? copy->dstY : copy->srcY;
	size_t z = dst ? copy->dstZ : copy->srcZ;
	struct sim_texels texels;

	if (!sim_array_texels(dst ? copy->dstArray : copy->srcArray, &texels))
		return sim_why(CUDA_ERROR_INVALID_HANDLE, "a side of a copy is no array");
	if (x + copy->WidthInBytes > texels.row || y + copy->Height > texels.height || z + copy->Depth > texels.depth)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "a copy goes beyond its array");
	if (texels.device != context->device)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "an array of device %d is touched for device %d",
			       texels.device, context->device);
	*ret_side = (struct side){.pitch = texels.row, .slice = texels.row * texels.height, .seen_by = texels.device};
	ret_side->start = texels.start + z * ret_side->slice + y * texels.row + x;
	return CUDA_SUCCESS;
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
		return array_side(ret_side, copy, dst, context);
	if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	pitch = pitch ?: copy->WidthInBytes + x;
	height = height ?: copy->Height + y;
	if (pitch < copy->WidthInBytes + x)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "the pitch is less than the width");
	*ret_side = (struct side){.pitch = pitch, .slice = pitch * height};
	ret_side->start = base + z * ret_side->slice + y * pitch + x;
	ret_side->device = sim_in_window(ret_side->start);
	ret_side->pageable = !ret_side->device && !sim_block_at(ret_side->start);
	if (!base)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "an address is NULL");
	/*
	 * With HMM or ATS such memory may be named wherever device memory may: assumed, the documentation does not say.
	 */
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

/* It is read before it is written, as on a GPU: what others write in between is lost. */
static void copy_onto_itself(char *at, size_t bytes)
{
	char held[SIM_PIECE];

	for (size_t n; bytes; bytes -= n, at += n) {
		n = bytes < sizeof(held) ? bytes : sizeof(held);
		copy_piece(held, at, n);
		sim_pause();
		copy_piece(at, held, n);
	}
}

static void copy_row(char *dst, const char *src, size_t bytes)
{
	if (dst == src) {
		copy_onto_itself(dst, bytes);
		return;
	}
	if (dst < src + bytes && src < dst + bytes) {
		memmove(dst, src, bytes);
		return;
	}
	for (size_t at = 0, n; at < bytes; at += n) {
		n = bytes - at < SIM_PIECE ? bytes - at : SIM_PIECE;
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
 * The driver notes of both sides of a copy what is mapped there when a node is given it (made, captured, set), and
 * keeps that whatever is mapped there later; clones and instances inherit it. A node of an instance becomes another
 * copy only where nothing of that differs, or the copy is the very same: then it is noted anew (driver 580).
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

static bool is_on_host(unsigned char class)
{
	return class == CLASS_AWAY || class == CLASS_MIXED;
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

/*
 * Between two devices of which neither has access to both sides, a handle with a location of the host on either side
 * ends the process: SIGSEGV in the driver (two H200, driver 580.159.04; in captures not tried).
 */
void sim_copy_check_sides(const struct sim_work *work, const struct sim_sides *sides)
{
	const CUDA_MEMCPY3D *copy = &work->copy;
	size_t src = copy->srcPitch * (copy->srcHeight * (copy->Depth - 1) + copy->Height - 1) + copy->WidthInBytes;
	size_t dst = copy->dstPitch * (copy->dstHeight * (copy->Depth - 1) + copy->Height - 1) + copy->WidthInBytes;

	if (!sides || sides->src->device == sides->dst->device ||
	    (!is_on_host(work->src_class) && !is_on_host(work->dst_class)) ||
	    sim_accessible(copy->srcDevice, src, sides->dst, false) ||
	    sim_accessible(copy->dstDevice, dst, sides->src, true))
		return;
	sim_break_rule("a copy from device %d to device %d names memory on the host, which one of them has no access "
		       "to: the process would end with SIGSEGV",
		       sides->src->device, sides->dst->device);
}

CUresult sim_copy_work(struct sim_work **ret_work, const CUDA_MEMCPY3D *copy, struct sim_sides sides,
		       enum sim_stage stage)
{
	struct side src, dst;
	CUresult result = side_of(&src, copy, false, sides.src) ?: side_of(&dst, copy, true, sides.dst);

	if (result)
		return result;
	struct sim_work *work = sim_work_new("a copy", CU_GRAPH_NODE_TYPE_MEMCPY, run_copy);
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
