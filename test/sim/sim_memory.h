// SPDX-License-Identifier: Apache-2.0
/*
 * sim_memory.h: memory that is not managed: physical memory and where devices see it, the VMM calls' mappings, blocks
 * of cuMemAlloc and kin, pools, arrays. Under sim.lock, as everything of sim_internal.h. Bytes and addresses are the
 * program's; a block is owned by the table of its file until it is dropped.
 */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include "sim_work.h"

/* ---- sim_physical.c: window, physical memory ---- */

struct sim_physical {
	off_t offset; /* in its file */
	off_t parked; /* where its page tables are parked */
	size_t bytes;
	int device;    /* -1: host */
	int file;      /* of its own, so that it can leave the process; 0: the common one */
	bool borrowed; /* it came from another process, where it counts */
	char *tables;  /* where its page tables are: in one of the views, or parked; NULL: it has none that can move */
	int access;    /* that they allow, SIM_READ or SIM_READWRITE */
};
enum { SIM_NONE = 0, SIM_READ = 1, SIM_READWRITE = 3 }; /* as CUmemAccess_flags */

bool sim_window_open(void);
static inline bool sim_in_window(uintptr_t address)
{
	return address - (uintptr_t)sim.window < sim.half;
}
/*
 * Takes physical memory, contents garbage, with a file of its own if it is to leave the process;
 * CUDA_ERROR_OUT_OF_MEMORY over the device's or the host's capacity.
 */
CUresult sim_physical_take(struct sim_physical *ret_physical, size_t bytes, int device, bool own);
void sim_physical_give(struct sim_physical *physical);
#define SIM_FILE_NAME "sim physical "
/* Whatever access the mappings of it have. */
bool sim_physical_read(const struct sim_physical *physical, size_t offset, void *ret_bytes, size_t bytes);
/* Where a device sees an address of the window. */
static inline char *sim_view(uintptr_t address, int device)
{
	return (char *)address + (1 + (size_t)device) * sim.half;
}
/* Let a device see physical memory at an address, with that access; SIM_NONE hides it. */
bool sim_alias_map(int device, uintptr_t address, struct sim_physical *physical, int access);
void sim_alias_unmap(uintptr_t address, struct sim_physical *physical); /* from all devices */

/* ---- sim_memory.c: virtual memory management ---- */

/* Free addresses of the window; kept in the same table as the program's reservations. 0: none left. */
struct sim_range *sim_addresses_take(size_t bytes, size_t alignment, uintptr_t hint);
void sim_addresses_give(struct sim_range *range);

struct sim_handle {
	struct sim_handle *next;
	CUmemAllocationProp prop;
	struct sim_physical physical;
	unsigned references, mappings;
	unsigned long long id;
	struct sim_origin origin;
};
struct sim_mapping {
	struct sim_range range;
	struct sim_handle *handle;
	unsigned char access[SIM_DEVICES_MAX];
	bool host_access;
	unsigned long long id;
	struct sim_origin origin;
};
struct sim_mapping *sim_mapping_at(uintptr_t address);
const struct sim_range *sim_reservation_of(const struct sim_mapping *mapping);
/* The mappings that make up exactly this range, as an index and a count; 0 when they do not. */
size_t sim_whole_mappings(uintptr_t address, size_t bytes, size_t *ret_first);
struct sim_mapping *sim_mapping_nth(size_t index); /* in the order of their addresses */
struct sim_handle *sim_handle_new(const CUmemAllocationProp *prop, const struct sim_physical *physical);
/* NULL: there is none, or it was released and is no longer mapped. */
struct sim_handle *sim_handle_of(CUmemGenericAllocationHandle id);
size_t sim_memory_live(struct sim_live *live, FILE *out);

/* ---- sim_access.c: who may touch what is mapped ---- */

/* May work of this context touch all of these bytes? */
bool sim_accessible(uintptr_t address, size_t bytes, CUcontext context, bool write);

/* ---- sim_alloc.c, sim_pool.c: blocks ---- */

enum sim_kind { SIM_BLOCK_DEVICE, SIM_BLOCK_ASYNC, SIM_BLOCK_MANAGED, SIM_BLOCK_HOST, SIM_BLOCK_REGISTERED };
struct sim_slab;
struct sim_page;
struct sim_block {
	struct sim_range range; /* what the program asked for */
	enum sim_kind kind;
	CUcontext context;
	int device;
	unsigned flags;
	bool freeing; /* cuMemFreeAsync was submitted */
	struct sim_slab *slab;
	struct sim_backing *backing; /* its own; of a small block the slab has one */
	/* Of a managed block: */
	struct sim_range *addresses;
	struct sim_physical physical;
	struct sim_page *pages;
	CUmemoryPool pool;
	struct sim_after ready; /* of a pool's block: its allocation has happened in stream order */
	struct sim_block *next_unready;
	struct sim_graph_memory *graph; /* of an allocation node: not to be dropped by frees */
	bool sync_memops;
	unsigned long long id;
	struct sim_origin origin;
};
struct CUmemPoolHandle_st {
	CUmemoryPool next;
	bool alive, destroyed, is_default;
	int device;
	cuuint64_t threshold;
	size_t used, used_high, reserved, reserved_high;
	size_t most; /* 0: no limit */
	int reuse[3];
	unsigned char access[SIM_DEVICES_MAX]; /* of devices other than its own */
};
struct sim_block *sim_block_at(uintptr_t address); /* device, async and managed blocks, and host ones */
unsigned long long sim_next_id(void);
/* Make and drop the memory of a device block; counted by the caller for async ones (pool). */
CUresult sim_block_make(struct sim_block **ret_block, size_t bytes, int device, enum sim_kind kind);
void sim_block_drop(struct sim_block *block);
/* Returns the access of the context to a block that is not managed: SIM_NONE, SIM_READ or SIM_READWRITE. */
int sim_block_access(const struct sim_block *block, CUcontext context);
void sim_alloc_views(void); /* peer access has changed: let devices see, or no longer see, blocks of others */
void sim_pool_trim(void);   /* at synchronisation points: reserved falls to the threshold */
void sim_pool_block_gone(struct sim_block *block);
/* Before the work of a stream runs: breaks a rule if nothing orders it behind the allocation of what it names. */
void sim_pool_touched(CUstream stream, const struct sim_work *work);
void sim_alloc_forget_context(CUcontext context);
size_t sim_alloc_live(struct sim_live *live, FILE *out);

/* ---- sim_array.c ---- */

void sim_arrays_forget_context(CUcontext context);
size_t sim_arrays_live(struct sim_live *live, FILE *out);
/* Where its texels lie in the model, level by level as arrays of their own: rows without gaps. */
struct sim_texels {
	uintptr_t start;
	size_t row, height, depth; /* row: bytes */
	int device;
};
bool sim_array_texels(CUarray handle, struct sim_texels *ret_texels);

#endif
