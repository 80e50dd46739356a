/*
 * vmm.h: virtual memory management of the program's own, served by the heap (vmm.spill: move).
 *
 * cuMemAddressReserve gives address space of the arena of the current device (va_ranges.h), cuMemCreate memory of the heap
 * without an address, known by a handle of ours, and cuMemMap places it (heap/block_unmapped.h). From then on it is found by the
 * launch path and moved like any block; natively nobody can tell. What is of another kind goes on being the driver's:
 * compressed memory, handles to be exported otherwise than as a file descriptor, address space that must lie at an
 * address outside the arena, memory of processes without a context; and what is shown to others before it was ever mapped,
 * which is made anew by the driver then.
 *
 * What is made known to others stays where it is for good: a handle that is exported, mapped twice, or where the heap
 * cannot look (space of another device); memory that another device, or the host, is granted access to, or that may only
 * be read. In `fast` it all stays where it was placed: of a pointer into such space it is not known how many handles it
 * reaches over, and nothing that a kernel may touch must be on its way there. In `exact` everything is mapped at all
 * times.
 *
 * The functions that return bool: false, it is not ours, and the driver is asked as ever. Called with the scope of enter.h
 * open. No lock is held; VIRTUAL, HEAP, SPACE and LEDGER are taken inside.
 */
#ifndef SPILLWAY_VMM_H
#define SPILLWAY_VMM_H

#include "shim/accounting/ledger.h"
#include "shim/serve/typed_alloc.h"
#include "shim/accounting/va_ranges.h"

#include <cuda.h>

bool vmm_reserve(CUdeviceptr *ret_address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags);
bool vmm_unreserve(CUdeviceptr address, size_t bytes, CUresult *ret);

/* The claim goes over to the handle, or, where the answer is an error, is ended by the caller. */
bool vmm_create(CUmemGenericAllocationHandle *ret_handle, size_t bytes, const CUmemAllocationProp *prop,
		unsigned long long flags, const struct account_claim *claim, CUresult *ret);
bool vmm_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *ret_prop, CUresult *ret);
/* Is it a number of ours, whether or not it still stands for anything? */
bool vmm_is_handle(CUmemGenericAllocationHandle handle);
/* One reference to the handle of what is placed at the address. */
bool vmm_retain(CUdeviceptr address, CUmemGenericAllocationHandle *ret_handle);
/*
 * What the driver knows it by, for a call that others learn of the memory by: it stays for good. *handle is replaced;
 * left as it is where it is not ours. type: of handle that it is exported as, 0: it is not. INVALID_VALUE: it was not made
 * for that; NOT_SUPPORTED: it has been mapped, and is in more than one piece.
 */
CUresult vmm_expose(CUmemGenericAllocationHandle *handle, unsigned type);

bool vmm_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
	     unsigned long long flags, CUresult *ret);
bool vmm_unmap(CUdeviceptr address, size_t bytes, CUresult *ret);
bool vmm_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t n, CUresult *ret);
bool vmm_get_access(unsigned long long *ret_flags, const CUmemLocation *location, CUdeviceptr address, CUresult *ret);

/* The mapping of ours that has the address in it: its row, whose key is where it begins. No driver call. */
bool vmm_find(CUdeviceptr address, struct ledger_row *ret_row);
/*
 * What the device of the current context may do with what is placed there; CUDA_SUCCESS, or what the driver says when it
 * is asked.
 */
CUresult vmm_access_of(const struct ledger_row *row, CUdeviceptr address, unsigned *ret_flags);
/* In the arena, but the driver's to answer for: reserved, and nothing of ours is placed there. */
bool vmm_is_drivers(CUdeviceptr address);

#endif
