/*
 * map.h: the driver calls that change mappings, counted and timed. They cost the mover more time than the bytes do
 * (docs/facts.md, Mapping). Locking: the caller holds HEAP or no lock.
 */
#ifndef SPILLWAY_HEAP_MAP_H
#define SPILLWAY_HEAP_MAP_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Maps a whole chunk at an address. No device has access yet. */
CUresult map_chunk(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle);
/*
 * Grants access to the device and to the devices in the bits `peers`, in one call. Must never grant access to the host
 * location: a mapping that is half device, half host, with such access makes real drivers crash (docs/facts.md, Host
 * access).
 */
CUresult map_allow(CUdeviceptr at, uint64_t bytes, CUdevice device, uint64_t peers);
/* Grants access to the devices in the bits `peers`, or revokes it. */
CUresult map_allow_peers(CUdeviceptr at, uint64_t bytes, uint64_t peers, bool allow);
CUresult map_remove(CUdeviceptr at, uint64_t bytes);

#endif
