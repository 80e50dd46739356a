// SPDX-License-Identifier: Apache-2.0
/*
 * fake_torch.h: a caching allocator that behaves like PyTorch's, in two libraries of its own (libc10.so, fake_c10.c,
 * and libc10_cuda.so, fake_torch.c), which programs open locally, as Python does. It keeps segments of each device from
 * cuMemAlloc, cuts them into blocks, and reports each block that is born or dies.
 *
 *   - Segments are asked for by way of a library that is called as the CUDA runtime is (site_runtime.c).
 *   - Small requests share segments of 2 MiB, larger ones those of 8 MiB, the largest have one each: PyTorch's numbers,
 *     the last two divided by 2.5.
 *   - A block belongs to a stream and to a pool. It is used again for the same stream as soon as it is free; if another
 *     stream was recorded for it, only once that stream has passed what it had to do at the free. Its death is reported
 *     at the free in any case.
 *   - With expandable segments, a segment is reserved address space that handles of the program's own (cuMemCreate) are
 *     mapped into as it grows: of 2 MiB for small requests. So a block may cover any number of handles.
 *   - Pool 0 is everybody's. A private pool has segments of its own, or parts of a slab that was given with it. While a
 *     thread uses a private pool, its requests go there.
 *
 * Locking: one lock for each device, under which it calls the driver and reports, as PyTorch does.
 */
#ifndef PRELOAD_FAKE_TORCH_H
#define PRELOAD_FAKE_TORCH_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_TORCH_REPORT _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define FAKE_TORCH_CUDA   1
#define FAKE_TORCH_UNIT   ((size_t)512) /* sizes are multiples of this */

/* c10::Device */
struct fake_device {
	int8_t type, index;
};

/* What libc10.so was called with. */
struct fake_report {
	void *address;
	int64_t bytes;
	size_t allocated, reserved;
	struct fake_device device;
};
struct fake_reports {
	unsigned long n;
	struct fake_report last;
};

/*
 * An allocator of the program's, which a pool has its segments from (torch.cuda.MemPool). allocate() returns 0 if it
 * cannot.
 */
struct fake_plug {
	CUdeviceptr (*allocate)(size_t bytes);
	void (*release)(CUdeviceptr address);
};

struct fake_torch;

struct fake_torch_functions {
	/* The allocator of a device, whose context must be current. */
	struct fake_torch *(*open)(int device);
	/* Returns 0 if there is no memory. *ret_bytes, unless NULL: the block's size, as reported. */
	CUdeviceptr (*allocate)(struct fake_torch *torch, size_t bytes, CUstream stream, size_t *ret_bytes);
	void (*release)(struct fake_torch *torch, CUdeviceptr address);
	/* The stream uses the block, too. */
	void (*record_stream)(struct fake_torch *torch, CUdeviceptr address, CUstream stream);
	/* Gives the driver back every segment in which nothing is in use, but for those of private pools. */
	void (*empty_cache)(struct fake_torch *torch);
	/* A new private pool. slab: where its segments are cut from, `bytes` from there; 0: from the driver. */
	unsigned (*new_pool)(struct fake_torch *torch, CUdeviceptr slab, size_t bytes);
	/*
	 * Nothing of the pool is in use any more: its segments go with those of pool 0, or back to the slab at once.
	 * What used a slab must be done.
	 */
	void (*drop_pool)(struct fake_torch *torch, unsigned pool);
	/* The thread's requests go to this pool from now on; 0: everybody's. capture: its stream captures. */
	void (*use_pool)(struct fake_torch *torch, unsigned pool, bool capture);
	/*
	 * As setCheckpointPoolState does: frees all that is in use in the pool, and allocates the same again at once.
	 * The caller must see to it that nothing is submitted meanwhile. between, unless NULL: called when all is free.
	 */
	void (*checkpoint)(struct fake_torch *torch, unsigned pool, void (*between)(void));
	size_t (*reserved)(struct fake_torch *torch);
	/*
	 * Segments that are made from now on are expandable, those of large requests with handles of so many bytes, a
	 * multiple of 2 MiB.
	 */
	void (*expand)(struct fake_torch *torch, size_t handle);
	/*
	 * Memory that is got from the driver from now on, but in a capture, is filled with this word before it is used;
	 * 0: not.
	 */
	void (*fill)(struct fake_torch *torch, unsigned word);
	/* Does the block in use that begins here hold just that? */
	bool (*is_filled)(struct fake_torch *torch, CUdeviceptr address);
	/* Is this where a block begins that is not in use? Only a block that may be used again counts. */
	bool (*is_free)(struct fake_torch *torch, CUdeviceptr address);
	/* The private pool, which is not used yet, has its segments from there. */
	void (*plug_pool)(struct fake_torch *torch, unsigned pool, struct fake_plug plug);
};

/* ---- fake_torch_open.c ---- */

/* Opens both libraries, once. */
const struct fake_torch_functions *fake_torch_open(void);
struct fake_reports fake_torch_reports(void);

#endif
