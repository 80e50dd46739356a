/*
 * map.h: the driver calls that change what is mapped at an address, counted and timed: they are the mover's time, more
 * than the bytes are (docs/facts.md, Mapping). Under HEAP or under no lock.
 */
#ifndef SPILLWAY_HEAP_MAP_H
#define SPILLWAY_HEAP_MAP_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* A whole chunk at an address. Cannot be touched yet. */
CUresult map_chunk(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle);
/*
 * Let the device, and others of which there is a bit, touch what is mapped there: one call for all. Never with access for
 * the host location: half device, half host, that makes real drivers crash (docs/facts.md, Host access).
 */
CUresult map_allow(CUdeviceptr at, uint64_t bytes, CUdevice device, uint64_t peers);
/* Other devices alone: let them, or let them no more. */
CUresult map_allow_peers(CUdeviceptr at, uint64_t bytes, uint64_t peers, bool allow);
CUresult map_remove(CUdeviceptr at, uint64_t bytes);

#endif
