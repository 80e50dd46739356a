/*
 * discard.h: contents that the program no longer needs. Any thread.
 */
#ifndef SPILLWAY_DISCARD_H
#define SPILLWAY_DISCARD_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;

/* The program no longer needs these bytes of one block. */
void discard_bytes(struct engine *engine, CUdeviceptr address, uint64_t bytes);
/* The same in the order of a stream; the caller is inside a submission to it that names the block. held: and holds it. */
void discard_behind(struct engine *engine, CUdeviceptr address, uint64_t bytes, CUstream stream, bool per_thread,
		    bool held);

#endif
