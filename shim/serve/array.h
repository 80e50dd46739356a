/*
 * array.h: how much device memory a CUDA array takes. The driver does not say (cuArrayGetMemoryRequirements only
 * answers for arrays without memory of their own), so this is an estimate from the descriptor, charged to the budget:
 *
 *   texels x bytes of a texel, level by level, layers and the six faces of a cube included; block-compressed formats by
 *   blocks of 4 x 4; planar video formats with the share of their chroma planes; the sum rounded up to 512 bytes
 *
 * It does not include what the driver adds by tiling (up to 64 KiB a level, more for narrow ones); the reserve that
 * the default budget leaves (device.c) covers that. It is 0 for sparse arrays and those with deferred mapping: they
 * take nothing until memory of cuMemCreate, which is counted there, is mapped into them.
 */
#ifndef SPILLWAY_ARRAY_H
#define SPILLWAY_ARRAY_H

#include <cuda.h>
#include <stddef.h>

size_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels);

#endif
