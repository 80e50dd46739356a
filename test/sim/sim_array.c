// SPDX-License-Identifier: Apache-2.0
/*
 * sim_array.c: arrays. What they take of the device is texels times the bytes of one, level by level, in units of 64
 * KiB as tiles come in. Formats with one plain number of bytes a channel only. What copies put into them is kept;
 * textures and surfaces are not modelled.
 */
#include "sim_context.h"
#include "sim_graph.h"
#include "sim_memory.h"

#define TILE ((size_t)64 << 10)

/* What a CUarray and a CUmipmappedArray are. A level is an array that lives with the whole. */
struct sim_array {
	struct sim_array *next;
	bool alive, mipmapped;
	CUcontext context;
	CUDA_ARRAY3D_DESCRIPTOR about;
	size_t bytes;
	unsigned n_levels;
	struct sim_array **levels;
	char *texels; /* from the first copy on, and for good: one that is under way may outlive the array */
	struct sim_origin origin;
};

static struct sim_array *arrays; /* alive or not; handles are never reused */

static unsigned channel_bytes(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

static size_t size_at(size_t size, unsigned level)
{
	return size >> level ? size >> level : 1;
}

static CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR *about, unsigned level)
{
	CUDA_ARRAY3D_DESCRIPTOR one = *about;
	bool layered = about->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

	one.Width = size_at(about->Width, level);
	one.Height = about->Height ? size_at(about->Height, level) : 0;
	if (about->Depth && !layered)
		one.Depth = size_at(about->Depth, level);
	return one;
}

static size_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *about)
{
	size_t texels = about->Width * (about->Height ? about->Height : 1) * (about->Depth ? about->Depth : 1);

	return (texels * about->NumChannels * channel_bytes(about->Format) + TILE - 1) / TILE * TILE;
}

static struct sim_array *array_new(const CUDA_ARRAY3D_DESCRIPTOR *about)
{
	struct sim_array *array = calloc(1, sizeof(*array));

	array->alive = true;
	array->context = sim_context();
	array->about = *about;
	array->origin = sim_origin();
	array->n_levels = 1;
	array->next = arrays;
	arrays = array;
	return array;
}

static CUresult create(struct sim_array **ret_array, const CUDA_ARRAY3D_DESCRIPTOR *about, unsigned n_levels)
{
	struct sim_device *device = &sim.device[sim_context()->device];
	CUresult result = sim_unsafe();
	size_t bytes = 0;

	if (result)
		return result;
	if (!ret_array || !about || !about->Width || !n_levels || !channel_bytes(about->Format) ||
	    (about->NumChannels != 1 && about->NumChannels != 2 && about->NumChannels != 4))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "no width, or a format the model does not know");
	if (about->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return sim_why(CUDA_ERROR_NOT_SUPPORTED, "the model has no arrays without memory");
	if (n_levels > 32)
		n_levels = 32;
	while (n_levels > 1 && !((about->Width | about->Height | about->Depth) >> (n_levels - 1)))
		n_levels--;
	for (unsigned i = 0; i < n_levels; i++) {
		CUDA_ARRAY3D_DESCRIPTOR one = level_of(about, i);

		bytes += bytes_of(&one);
	}
	if (device->used > sim.set.memory || bytes > sim.set.memory - device->used)
		return sim_why(CUDA_ERROR_OUT_OF_MEMORY, "%zu bytes wanted, %zu used", bytes, device->used);
	device->used += bytes;
	*ret_array = array_new(about);
	(*ret_array)->bytes = bytes;
	(*ret_array)->n_levels = n_levels;
	return CUDA_SUCCESS;
}

static CUresult create_plane(CUarray *ret_array, const CUDA_ARRAY_DESCRIPTOR *about)
{
	if (!about)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY3D_DESCRIPTOR solid =
	    (CUDA_ARRAY3D_DESCRIPTOR){about->Width, about->Height, 0, about->Format, about->NumChannels, 0};
	return create((struct sim_array **)ret_array, &solid, 1);
}

/* The descriptors of CUDA 3.1 have numbers of 32 bits. */
static CUresult create_plane_v1(CUarray *ret_array, const CUDA_ARRAY_DESCRIPTOR_v1 *about)
{
	if (!about)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY_DESCRIPTOR wide =
	    (CUDA_ARRAY_DESCRIPTOR){about->Width, about->Height, about->Format, about->NumChannels};
	return create_plane(ret_array, &wide);
}

static CUresult create_solid_v1(CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *about)
{
	if (!about)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY3D_DESCRIPTOR wide = {about->Width,  about->Height,      about->Depth,
								 about->Format, about->NumChannels, about->Flags};
	return create((struct sim_array **)ret_array, &wide, 1);
}

static CUresult create_levels(CUmipmappedArray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *about, unsigned n_levels)
{
	struct sim_array *array;
	CUresult result = ret_array ? create(&array, about, n_levels) : CUDA_ERROR_INVALID_VALUE;

	if (result)
		return result;
	array->mipmapped = true;
	array->levels = calloc(array->n_levels, sizeof(struct sim_array *));
	*ret_array = (CUmipmappedArray)array;
	return CUDA_SUCCESS;
}

static struct sim_array *array_of(const void *handle)
{
	struct sim_array *array = arrays;

	while (array && array != handle)
		array = array->next;
	return array && array->alive ? array : NULL;
}

static void drop(struct sim_array *array)
{
	for (unsigned i = 0; array->levels && i < array->n_levels; i++)
		if (array->levels[i])
			array->levels[i]->alive = false;
	free(array->levels);
	array->levels = NULL;
	array->alive = false;
	sim.device[array->context->device].used -= array->bytes;
	array->bytes = 0;
}

static CUresult destroy(void *handle, bool mipmapped)
{
	struct sim_array *array = array_of(handle);
	CUresult result = sim_unsafe();

	if (result)
		return result;
	if (!array || array->mipmapped != mipmapped || !array->bytes)
		return sim_why(CUDA_ERROR_INVALID_HANDLE, "%p is not an array to be destroyed", handle);
	result = sim_wait_context(array->context);
	if (!result)
		drop(array);
	return result;
}

static size_t one_at_least(size_t n)
{
	return n ? n : 1;
}

bool sim_array_texels(CUarray handle, struct sim_texels *ret_texels)
{
	struct sim_array *array = array_of(handle);

	if (!array || array->mipmapped)
		return false;
	if (!array->texels)
		array->texels = calloc(1, bytes_of(&array->about));
	*ret_texels = (struct sim_texels){
	    .start = (uintptr_t)array->texels,
	    .row = array->about.Width * array->about.NumChannels * channel_bytes(array->about.Format),
	    .height = one_at_least(array->about.Height),
	    .depth = one_at_least(array->about.Depth),
	    .device = array->context->device,
	};
	return true;
}

static CUresult describe(CUDA_ARRAY3D_DESCRIPTOR *ret_about, CUarray handle)
{
	struct sim_array *array = array_of(handle);

	if (!array || array->mipmapped || !ret_about)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_about = array->about;
	return CUDA_SUCCESS;
}

static CUresult describe_plane(CUDA_ARRAY_DESCRIPTOR *ret_about, CUarray handle)
{
	CUDA_ARRAY3D_DESCRIPTOR about;
	CUresult result = ret_about ? describe(&about, handle) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		*ret_about = (CUDA_ARRAY_DESCRIPTOR){about.Width, about.Height, about.Format, about.NumChannels};
	return result;
}

static CUresult get_level(CUarray *ret_array, CUmipmappedArray handle, unsigned level)
{
	struct sim_array *array = array_of(handle);
	CUDA_ARRAY3D_DESCRIPTOR about;

	if (!array || !array->mipmapped || !ret_array || level >= array->n_levels)
		return CUDA_ERROR_INVALID_VALUE;
	if (!array->levels[level]) {
		about = level_of(&array->about, level);
		array->levels[level] = array_new(&about);
	}
	*ret_array = (CUarray)array->levels[level];
	return CUDA_SUCCESS;
}

SPELL(cuArrayCreate, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR_v1 *about), create_plane_v1(array, about))
SPELL(cuArrayCreate_v2, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *about), create_plane(array, about))
SPELL(cuArray3DCreate, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *about), create_solid_v1(array, about))
SPELL(cuArray3DCreate_v2, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *about),
      create((struct sim_array **)array, about, 1))
SPELL(cuArrayDestroy, (CUarray array), destroy(array, false))
SPELL(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR * about, CUarray array), describe_plane(about, array))
SPELL(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR * about, CUarray array), describe(about, array))
SPELL(cuMipmappedArrayCreate, (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *about, unsigned n_levels),
      create_levels(array, about, n_levels))
SPELL(cuMipmappedArrayDestroy, (CUmipmappedArray array), destroy(array, true))
SPELL(cuMipmappedArrayGetLevel, (CUarray * level, CUmipmappedArray array, unsigned which),
      get_level(level, array, which))

/* ---- the end of a context, and controls ---- */

void sim_arrays_forget_context(CUcontext context)
{
	for (struct sim_array *array = arrays; array; array = array->next)
		if (array->alive && array->bytes && array->context == context)
			drop(array);
}

size_t sim_arrays_live(struct sim_live *live, FILE *out)
{
	size_t n = 0;

	for (struct sim_array *array = arrays; array; array = array->next) {
		if (!array->alive || !array->bytes)
			continue;
		n++;
		if (out)
			fprintf(out, "leak array %p %zu bytes, from call %lu %s\n", (void *)array, array->bytes,
				array->origin.call, array->origin.name);
	}
	live->arrays += n;
	return n;
}
