/*
 * array.c: estimates the device memory of a CUDA array from its descriptor. See array.h.
 */
#include "shim/serve/array.h"

#include <stdbool.h>
#include <stdint.h>

/* Bits of a texel, all channels; channels 0: as many as the descriptor says. */
struct format {
	unsigned first, last; /* CUarray_format, in ranges of the same size */
	unsigned bits, channels;
	bool blocks; /* blocks of 4 x 4 texels */
};

static const struct format formats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT8, 8, 0, false},
    {CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT16, 16, 0, false},
    {CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_UNSIGNED_INT32, 32, 0, false},
    {CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_SIGNED_INT8, 8, 0, false},
    {CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16, 16, 0, false},
    {CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32, 32, 0, false},
    {CU_AD_FORMAT_HALF, CU_AD_FORMAT_HALF, 16, 0, false},
    {CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_FLOAT, 32, 0, false},
    {CU_AD_FORMAT_UNORM_INT_101010_2, CU_AD_FORMAT_UNORM_INT_101010_2, 32, 1, false},
    {CU_AD_FORMAT_BC1_UNORM, CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 1, true},
    {CU_AD_FORMAT_BC2_UNORM, CU_AD_FORMAT_BC3_UNORM_SRGB, 8, 1, true},
    {CU_AD_FORMAT_BC4_UNORM, CU_AD_FORMAT_BC4_SNORM, 4, 1, true},
    {CU_AD_FORMAT_BC5_UNORM, CU_AD_FORMAT_BC7_UNORM_SRGB, 8, 1, true},
    {CU_AD_FORMAT_NV12, CU_AD_FORMAT_NV12, 12, 1, false}, /* 4:2:0, one and a half samples a texel */
    {CU_AD_FORMAT_P010, CU_AD_FORMAT_P016, 24, 1, false},
    {CU_AD_FORMAT_NV16, CU_AD_FORMAT_NV16, 16, 1, false}, /* 4:2:2, two */
    {CU_AD_FORMAT_P210, CU_AD_FORMAT_P216, 32, 1, false},
    {CU_AD_FORMAT_YUY2, CU_AD_FORMAT_YUY2, 16, 1, false},
    {CU_AD_FORMAT_Y210, CU_AD_FORMAT_Y216, 32, 1, false},
    {CU_AD_FORMAT_AYUV, CU_AD_FORMAT_Y410, 32, 1, false},
    {CU_AD_FORMAT_Y416, CU_AD_FORMAT_Y416, 64, 1, false},
    {CU_AD_FORMAT_Y444_PLANAR8, CU_AD_FORMAT_Y444_PLANAR8, 24, 1, false},
    {CU_AD_FORMAT_Y444_PLANAR10, CU_AD_FORMAT_Y444_PLANAR10, 48, 1, false},
    {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 24, 1, false},
    {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 48, 1, false},
    {CU_AD_FORMAT_UNORM_INT8X1, CU_AD_FORMAT_UNORM_INT8X1, 8, 1, false},
    {CU_AD_FORMAT_UNORM_INT8X2, CU_AD_FORMAT_UNORM_INT8X2, 16, 1, false},
    {CU_AD_FORMAT_UNORM_INT8X4, CU_AD_FORMAT_UNORM_INT8X4, 32, 1, false},
    {CU_AD_FORMAT_UNORM_INT16X1, CU_AD_FORMAT_UNORM_INT16X1, 16, 1, false},
    {CU_AD_FORMAT_UNORM_INT16X2, CU_AD_FORMAT_UNORM_INT16X2, 32, 1, false},
    {CU_AD_FORMAT_UNORM_INT16X4, CU_AD_FORMAT_UNORM_INT16X4, 64, 1, false},
    {CU_AD_FORMAT_SNORM_INT8X1, CU_AD_FORMAT_SNORM_INT8X1, 8, 1, false},
    {CU_AD_FORMAT_SNORM_INT8X2, CU_AD_FORMAT_SNORM_INT8X2, 16, 1, false},
    {CU_AD_FORMAT_SNORM_INT8X4, CU_AD_FORMAT_SNORM_INT8X4, 32, 1, false},
    {CU_AD_FORMAT_SNORM_INT16X1, CU_AD_FORMAT_SNORM_INT16X1, 16, 1, false},
    {CU_AD_FORMAT_SNORM_INT16X2, CU_AD_FORMAT_SNORM_INT16X2, 32, 1, false},
    {CU_AD_FORMAT_SNORM_INT16X4, CU_AD_FORMAT_SNORM_INT16X4, 64, 1, false},
};

/* A format newer than this list counts as 32 bits a channel. */
static struct format format_of(CUarray_format which)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if ((unsigned)which >= formats[i].first && (unsigned)which <= formats[i].last)
			return formats[i];
	return (struct format){.bits = 32};
}

static size_t at_level(size_t size, unsigned level)
{
	return size >> level ? size >> level : 1;
}

static size_t array_up(size_t size, size_t unit)
{
	return (size + unit - 1) / unit * unit;
}

size_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
	struct format format = format_of(array->Format);
	bool layered = array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP); /* depth: layers, faces */
	uint64_t bits = 0;

	if (array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0;
	for (unsigned level = 0; level < levels && level < 32; level++) {
		size_t width = at_level(array->Width, level), height = at_level(array->Height, level);
		size_t depth = layered ? (array->Depth ? array->Depth : 1) : at_level(array->Depth, level);

		if (format.blocks) {
			width = array_up(width, 4);
			height = array_up(height, 4);
		}
		bits += (uint64_t)width * height * depth * format.bits *
			(format.channels ? format.channels : array->NumChannels);
	}
	return array_up(bits / 8, 512);
}
