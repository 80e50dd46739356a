// SPDX-License-Identifier: Apache-2.0
/*
 * model_peer.h: what the tests of several simulated devices share. Their settings: four devices, wired 0-1 and 0-2,
 * device 3 alone, and one enabled peer at most.
 */
#ifndef MODEL_PEER_H
#define MODEL_PEER_H

#include "model.h"

#define DEVICES 4
#define BLOCK   (4 * MIB)
#define WORDS   (BLOCK / 4)

/* peer_context[0] is the one that model_set_up() made, and current. */
extern CUcontext peer_context[DEVICES];

int peer_set_up(void **state);
int peer_tear_down(void **state);

/* From now on the device's context is current. */
void peer_be(int device);
CUdeviceptr peer_alloc(int device);
/* A kernel of that device writes BLOCK bytes there; what its context says afterwards. */
CUresult peer_touch(int device, CUdeviceptr at, uint32_t value);
/* Are value, value + 1 and so on, as peer_touch() writes them, there? Looks at the first and the last word only. */
bool peer_holds(CUdeviceptr at, uint32_t value);

struct mapped {
	CUdeviceptr at;
	CUmemGenericAllocationHandle handle;
};
CUresult peer_set_access(CUdeviceptr at, int device, CUmemAccess_flags flags);
/* owner -1: of the host; by itself no device may touch it. */
struct mapped peer_map(int owner);
/* The same, and its owner may touch it. */
struct mapped peer_map_for(int owner);
void peer_unmap(struct mapped m);

#endif
