/*
 * array.h: how much device memory a CUDA array takes. The driver does not say (cuArrayGetMemoryRequirements answers for
 * arrays without memory of their own alone), so this is an estimate from the descriptor, charged to the budget:
 *
 *   texels x bytes of a texel, level by level, layers and the six faces of a cube included; block-compressed formats by
 *   blocks of 4 x 4; planar video formats with the share of their chroma planes; the sum rounded up to 512 bytes
 *
 * What the driver adds by tiling (up to 64 KiB a level, more for narrow ones) is not in it; the reserve that the default
 * budget leaves (device.c) covers that. Sparse arrays and those with deferred mapping take nothing until memory of
 * cuMemCreate, which is counted there, is mapped into them: 0.
 */
#ifndef SPILLWAY_ARRAY_H
#define SPILLWAY_ARRAY_H

#include <cuda.h>
#include <stddef.h>

size_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels);

#endif
