// SPDX-License-Identifier: Apache-2.0
/*
 * sim_managed.h: managed memory: where its pages are, and what the driver tells about their way. Under sim.lock but for
 * sim_managed_fault.
 */
#ifndef SIM_MANAGED_H
#define SIM_MANAGED_H

#include "sim_internal.h"

struct sim_block;

/* ---- sim_managed.c, sim_advise.c: managed memory, its pages, and what a program may say and ask about them ---- */

#define SIM_PAGE ((size_t)64 << 10)
/* Bits of where a page is: the CPU, or a device. */
#define SIM_ON_CPU       1u
#define SIM_ON_DEVICE(d) (2u << (d))

struct sim_page {
	unsigned on;                       /* where it is, SIM_ON_*; 0: nowhere yet. More than one: read-duplicated */
	unsigned remote;                   /* devices that have it mapped where it is, over the link */
	unsigned accessed_by;              /* CU_MEM_ADVISE_SET_ACCESSED_BY */
	bool read_mostly;                  /* CU_MEM_ADVISE_SET_READ_MOSTLY */
	bool dirty;                        /* written by a device since it came there */
	unsigned returns;                  /* times that a fault of a device brought it from elsewhere */
	CUmemLocation preferred, prefetch; /* type INVALID: none */
	struct sim_page *older[SIM_DEVICES_MAX], *newer[SIM_DEVICES_MAX]; /* of what is on the device, by arrival */
	uintptr_t address;
};
bool sim_managed_open(void); /* with the window */
static inline bool sim_in_managed(uintptr_t address)
{
	return address - (uintptr_t)sim.managed < sim.managed_part;
}
CUresult sim_managed_make(struct sim_block *block, size_t bytes);
void sim_managed_drop(struct sim_block *block);
/* Evict until what is allocated on the device and what is managed there fit together. False: nothing left to evict. */
bool sim_managed_fit(int device, size_t more);
/* An address in a device's view of managed memory, or in its own. */
bool sim_managed_view(uintptr_t address, uintptr_t *ret_address, int *ret_device);
/* A device touched a page it has not mapped so; lock not held. access: 0 reads, 1 writes, -1 nobody knows: then a fault
 * where the page is was a write. False: no memory there. */
bool sim_managed_fault(uintptr_t address, int device, int access);
/* The CPU is about to read or write, in a call of the driver. */
void sim_managed_touch(uintptr_t start, size_t bytes, bool write);
void sim_managed_prefetch(struct sim_page *page, const CUmemLocation *to);
/* Read-duplicated copies become one, where it is preferred if there is one. */
void sim_managed_collapse(struct sim_page *page);
void sim_managed_unmap(struct sim_page *page, int device); /* what it has mapped over the link */
/* The pages of a range; NULL when it is not inside one managed block. */
struct sim_page *sim_managed_pages(uintptr_t address, size_t bytes, size_t *ret_n);

/* ---- sim_uvm.c: what the driver tells about them; lock held. where: SIM_ON_CPU or a device's bit ---- */

enum sim_uvm_counter { SIM_UVM_IN = 0, SIM_UVM_OUT = 1, SIM_UVM_CPU_FAULTS = 2, SIM_UVM_GPU_FAULTS = 9 };
enum { SIM_UVM_DUPLICATE = 7, SIM_UVM_THRASHING = 10 };               /* types of regions */
enum { SIM_UVM_ASKED = 1, SIM_UVM_TOUCHED = 2, SIM_UVM_EVICTED = 4 }; /* causes of migrations */
void sim_uvm_count(enum sim_uvm_counter counter, unsigned where, uint64_t amount);
void sim_uvm_fault(unsigned where, uintptr_t address, bool write);
void sim_uvm_migration(unsigned from, unsigned to, uintptr_t address, size_t bytes, unsigned cause);
void sim_uvm_eviction(unsigned from, uintptr_t out, uintptr_t in, size_t bytes);
void sim_uvm_region(unsigned type, unsigned where, uintptr_t address, size_t bytes);

#endif
