/*
 * discard.h: discards, that is contents that the program no longer needs. Any thread may call these functions.
 */
#ifndef SPILLWAY_DISCARD_H
#define SPILLWAY_DISCARD_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;

/* Discards these bytes, which must lie in one block. Locking: takes DISCARD. */
void discard_bytes(struct engine *engine, CUdeviceptr address, uint64_t bytes);
/*
 * Discards in the order of a stream. The caller must be inside a submission to that stream that names the block. held:
 * whether that submission pins the block. Locking: takes DISCARD.
 */
void discard_behind(struct engine *engine, CUdeviceptr address, uint64_t bytes, CUstream stream, bool per_thread,
		    bool held);

#endif
