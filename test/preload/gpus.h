// SPDX-License-Identifier: Apache-2.0
/*
 * gpus.h: what tests of copies between several GPUs share: of each device its primary context, a stream and a block,
 * and two buffers on the host as large as a block.
 */
#ifndef PRELOAD_GPUS_H
#define PRELOAD_GPUS_H

#include "test/preload/driver.h"

enum { GPUS_MOST = 3 };
#define ok(call) assert_int_equal((call), CUDA_SUCCESS)

struct gpus {
	int n;
	size_t bytes; /* of each block and buffer */
	CUcontext context[GPUS_MOST];
	CUstream stream[GPUS_MOST];
	CUdeviceptr block[GPUS_MOST];
	unsigned char *host, *seen; /* pageable */
};
extern struct gpus gpus;

/* Fill gpus, of the first n devices; the last one's context is current after that. */
void gpus_start(int n, size_t bytes);
/*
 * The same for tests of copies: all blocks are of the heap, and each device may reach the others where PEERS_ENABLED is
 * set.
 */
void gpus_start_for_copies(int n, size_t bytes);
/* Heap blocks all of them? Under the library they must be, natively none is. */
bool gpus_are_heap(void);
/* The test is this device from now on: its context is current. */
void gpus_be(int device);

/* The byte that belongs there, which only this salt gives. */
unsigned char gpus_byte(size_t at, unsigned salt);
/* Returns the place of the first byte that does not belong there, or n. */
size_t gpus_difference(const unsigned char *bytes, size_t n, unsigned salt);
void gpus_fill_host(unsigned salt);
/* The device's block, written and read by its own device, with nothing between. They leave that device current. */
void gpus_fill(int device, unsigned salt);
/* The first bytes of the block are as salted; else the test fails, and says which form of what went wrong. */
void gpus_expect(int device, unsigned salt, size_t bytes, const char *what, int form);

#endif
