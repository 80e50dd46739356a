/*
 * vmm.h: the program's own virtual memory management, served by the heap (vmm.spill: move).
 *
 * cuMemAddressReserve gives address space of the current device's arena (ledger.h), cuMemCreate memory of the heap
 * without an address, known by a handle of ours, and cuMemMap places it (heap/block_unmapped.h). From then on the
 * launch path finds it and the mover migrates it like any block; the program sees no difference. The rest stays
 * with the driver: compressed memory, handles to be exported otherwise than as a file descriptor, address space that
 * must lie at an address outside the arena, memory of processes without a context; and what is shared with others
 * before it was ever mapped, which the driver then makes in place of ours.
 *
 * What is made known to others stays where it is for good: a handle that is exported, mapped twice, or mapped where
 * the heap cannot look (space of another device); memory that another device, or the host, is granted access to, or
 * that may only be read. In `fast`, nothing that a kernel may touch may be migrating, so memory moves only where it is
 * known how many handles a pointer reaches: where the program's allocator reports its tensors, and no graph uses the
 * address space (heap_follow_reports). The rest stays where it was placed. In `exact` everything is mapped at all
 * times.
 *
 * The functions that return bool return false if the address or handle is not ours; then the caller asks the driver
 * as ever. Called with the scope of process.h open. Locking: takes VMM, HEAP, VA_RANGES and LEDGER; the caller must
 * hold no lock.
 */
#ifndef SPILLWAY_VMM_H
#define SPILLWAY_VMM_H

#include "shim/accounting/ledger.h"
#include "shim/serve/serve.h"

#include <cuda.h>

bool vmm_reserve(CUdeviceptr *ret_address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags);
bool vmm_unreserve(CUdeviceptr address, size_t bytes, CUresult *ret);

/* On success the handle takes over the claim; if *ret is an error, the caller must end it. */
bool vmm_create(CUmemGenericAllocationHandle *ret_handle, size_t bytes, const CUmemAllocationProp *prop,
		unsigned long long flags, const struct account_claim *claim, CUresult *ret);
bool vmm_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *ret_prop, CUresult *ret);
/* Returns true if it is a number of ours, whether or not the handle still exists. */
bool vmm_is_handle(CUmemGenericAllocationHandle handle);
/* Takes one reference to the handle of what is mapped at the address, also of the driver's in a range of ours. */
bool vmm_retain(CUdeviceptr address, CUmemGenericAllocationHandle *ret_handle, CUresult *ret);
/*
 * Replaces *handle by the driver's handle, for a call that makes the memory known to others; the memory then stays
 * for good. A *handle that is not ours is left as it is, and the result is CUDA_SUCCESS. type: handle type that it is
 * exported as, 0: none. Returns INVALID_VALUE if the handle is unknown or was not made for that type, NOT_READY if
 * the memory cannot be pinned now, NOT_SUPPORTED if it has been mapped and is in more than one piece.
 */
CUresult vmm_expose(CUmemGenericAllocationHandle *handle, unsigned type);

bool vmm_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
	     unsigned long long flags, CUresult *ret);
/* Also of what is not ours. All of it is unmapped, or on an error nothing. */
CUresult vmm_unmap(CUdeviceptr address, size_t bytes);
bool vmm_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t n, CUresult *ret);
bool vmm_get_access(unsigned long long *ret_flags, const CUmemLocation *location, CUdeviceptr address, CUresult *ret);

/*
 * Finds the mapping of ours that has the address in it. *ret_row: its row, whose key is where it begins. No driver
 * call.
 */
bool vmm_find(CUdeviceptr address, struct ledger_row *ret_row);
/*
 * The same for a further mapping of a handle of ours, which the heap does not track: the driver would speak of the
 * library's chunks, not of what the program has made. It has no block, and may lie outside all arenas.
 */
bool vmm_find_further(CUdeviceptr address, struct ledger_row *ret_row);
/*
 * Asks what access the device of the current context has to what is mapped there. Returns CUDA_SUCCESS, or the
 * driver's error.
 */
CUresult vmm_access_of(const struct ledger_row *row, CUdeviceptr address, unsigned *ret_flags);

#endif
