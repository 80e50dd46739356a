// SPDX-License-Identifier: Apache-2.0
/*
 * sim.h: what a test may ask of the simulated GPU beyond the driver API. Exported by the simulated libcuda.so.1 beside
 * the cu* functions; a test links it or finds these by dlsym. The head of sim_device.c describes the model.
 *
 * Settings come from the environment once, at the first call into the driver:
 *   SIM_DEVICES=1              number of devices
 *   SIM_MEMORY=256MiB          device memory of each
 *   SIM_UUID=                  letters that their UUIDs begin with: those of other processes are other GPUs
 *   SIM_HOST_MEMORY=1GiB       what cuMemCreate for HOST / HOST_NUMA and cuMemHostAlloc may take together
 *   SIM_VMM=1, SIM_HOST_VMM=1  0 switches the attribute off and makes the calls CUDA_ERROR_NOT_SUPPORTED
 *   SIM_DELAY_US=0             every piece of work starts at least this much later; SIM_SEED adds a random share
 *   SIM_RUN=1                  0: launches of kernels do nothing at all, to time what stands in front of the driver
 *   SIM_FAULT_MS=0             an illegal access shows so much later, and other streams go on until then
 *   SIM_DECOMPRESS=0           1: the devices can decompress (CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK)
 *   SIM_POOL_WASTE=0           of what a pool keeps for reuse, so many per cent are of no use to the next allocation
 *   SIM_PIECE_US=0             every 64 KiB of a copy or a set take this much longer; others run in between
 *   SIM_PIN_US=0               every 2 MiB of host memory take cuMemCreate so much longer; others run meanwhile
 *   SIM_MAP_WAITS=0            cuMemSetAccess waits for the copy under way to a device (1), to the host (2), either (3)
 *   SIM_FAIL=name:n:code       the n-th call (from 1) of that entry point returns that CUresult; comma-separated
 *   SIM_FAIL_THREAD=name:n     of the calls of threads of that name one in n fails, by SIM_SEED, for no memory or no reason
 *                  =name:n:ms  and then nothing can be mapped by such a thread for up to so long
 *   SIM_STREAM_VALUES=1        0: streams cannot write values and wait for them
 *   SIM_LOG=path               the call log, one line a call: thread, name, result, and why when the model refused
 *   SIM_REPORT=path            at exit: calls, broken rules, and leaks by origin, one line each
 *   SIM_FILL=1                 0 leaves new physical memory zero instead of 0xA5 (up to 64 MiB a piece)
 *   SIM_LARGE=1                0: no large pages for it; where most of it is never touched that takes less time
 *   SIM_WINDOW=512GiB          address space for device addresses; with several devices a quarter of it
 *   SIM_CONCURRENT_MANAGED=1   0: managed memory is device memory, allocated at once; no faults, no advice, no prefetch
 *   SIM_PAGEABLE=0             1: the device reaches all memory of the process (HMM, ATS); its faults are not modelled
 *   SIM_DRIVER=580.159.03      the driver's version; with SIM_UVM_DRIVER and SIM_UVM in the head of sim_uvm.c
 *   SIM_PEERS=all              which devices reach each other's memory: all, none, or pairs like 0-1,2-3, both ways each
 *   SIM_PCIE=none              which of those links are PCIe: no native atomics, performance rank 1 instead of 0
 *   SIM_MAX_PEERS=8            how many other devices the contexts of one device may have enabled (sim_peer.c)
 *   SIM_REUSE=0                1: the handle of the stream, or context, that ended last is given to the next one made
 *   SIM_DEAD_HANDLES=0         1: using a stream or an event that was destroyed breaks no rule; what a test does itself
 *   SIM_SAME_POINTER=1         0: registered memory has another address on the device (which leads nowhere)
 */
#ifndef SPILLWAY_SIM_H
#define SPILLWAY_SIM_H

#include "shim/driver/newer.h"
#include "test/libc.h"

/* Of the driver, but in no header that is read here: a copy that hooks.def does not know, and an exempt call. */
CUresult CUDAAPI cuBrandNewCopyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult CUDAAPI cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);

/* The n-th call from now (1 = the next) of the named entry point fails with error, once. n = 0 removes it. */
void sim_fail(const char *name, unsigned n, CUresult error);
/* And the call after that with another error. */
void sim_fail_next(const char *name, unsigned n, CUresult error, CUresult next);
/* And the next so many calls of another one after that fail, too. */
void sim_fail_then(const char *name, unsigned n, CUresult error, const char *then, unsigned times);
/* As sim_fail, for the n-th call from now of any entry point that allocates, maps, frees or unmaps (the VMM calls,
 * cuMemAlloc*, cuMemFree*, cuMemAddress*, cuMemHostAlloc...). */
void sim_fail_any(unsigned n, CUresult error);
bool sim_fail_pending(void); /* has an ordered failure not happened yet? */

/* Calls of an entry point so far, whatever their result. */
unsigned long sim_calls(const char *name);
bool sim_is_stream(CUstream stream); /* made, and not destroyed */

/* What is alive in the model now. */
struct sim_live {
	size_t device_bytes, host_bytes; /* physical, by handles and by cuMemAlloc; pinned host */
	size_t allocations;              /* cuMemAlloc*, cuMemHostAlloc* blocks */
	size_t handles, mappings, reservations, arrays;
};
struct sim_live sim_live(void);
/*
 * What several processes have of device 0 as if it were one: in memory that they share, where each has a place of its
 * own. The sum is taken whenever one gets more.
 */
#define SIM_TOGETHER 64
struct sim_together {
	_Atomic size_t now[SIM_TOGETHER], most;
};
void sim_together(struct sim_together *all, unsigned place);
/* Print one line for each live object with its origin (call number and entry point); returns how many. */
size_t sim_leaks(FILE *out);
/*
 * Rules of the model that were broken so far (each also has a line in the log). Using a stream, an event or a context
 * that was destroyed, or ended with its context, is one. Handles of events are always given out anew, the last one
 * first.
 */
unsigned long sim_broken_rules(void);

/* Read device memory behind its address with no checks but mapping; false when any byte is unmapped. */
bool sim_peek(CUdeviceptr address, void *ret_bytes, size_t bytes);
/* Is the 2 MiB page of this address mapped, and where is it? 'D' device, 'H' host, 0 unmapped. */
char sim_where(CUdeviceptr address);
/* Hold all work of all streams where it stands / let it go on. Nests not. */
void sim_hold(void);
void sim_release(void);
/* The same by the n-th call from now of the named entry point; and is it held? */
void sim_hold_at(const char *name, unsigned n);
bool sim_is_held(void);
/*
 * The n-th call from now of the named entry point stands still before it has done anything, until it is told to go on:
 * as a thread that the system does not run between a library's look and its call, or a driver that waits. Others go on.
 * How many stand still so? sim_go_on() lets all of them go, and takes back what was ordered and has not happened.
 */
void sim_stall_at(const char *name, unsigned n);
unsigned sim_stalled(void);
void sim_go_on(void);
/* Switches of the model, as in the environment, for tests that change them in mid-run: VMM, HOST_VMM, MEMORY, REUSE,
 * HOST_MEMORY, WINDOW, DELAY_US, PIECE_US, PIN_US, FAULT_MS, MAP_WAITS, POOL_WASTE, DECOMPRESS, FILL, LARGE, RUN,
 * STREAM_VALUES, PAGEABLE, CONCURRENT_MANAGED, DEAD_HANDLES, SAME_POINTER. */
void sim_switch(const char *name, size_t value);
/* The pauses of SIM_PIECE_US are no sleeps but calls of this, by any thread: for programs with a clock of their own. */
void sim_pauses(void (*pass)(unsigned us));

/*
 * Managed memory since the start, pages of 64 KiB (sim_managed.c). The CPU's faults are those of calls that read or
 * write through host pointers: what the program does by itself is not seen.
 */
struct sim_managed {
	unsigned long gpu_faults, cpu_faults, evictions;
	size_t bytes_in, bytes_out; /* to devices, from them */
	size_t resident;            /* on devices now */
	unsigned long thrashing;    /* times a page came to a device by a fault for the third time, sixth, ... */
	unsigned long duplicates;   /* pages that a read has put beside another copy */
};
struct sim_managed sim_managed(void);
/* The same of one device; faults of the CPU and duplicates are nobody's. */
struct sim_managed sim_managed_of(int device);
/*
 * The stand-in for the driver's device for tools (sim_uvm.c): how many files of it were opened ever, trackers that are
 * open now, the descriptor of one (-1: none); write where nothing belongs in the pages of all counters.
 */
unsigned sim_uvm_opened(void);
unsigned sim_uvm_trackers(void);
int sim_uvm_descriptor(void);
void sim_uvm_scribble(void);
/* What is in a slot of the first page of counters; UINT64_MAX without one. */
uint64_t sim_uvm_slot(unsigned slot);
/* An entry of 64 bytes into every queue, whatever it says; how far the driver claims to have written. */
void sim_uvm_send(const void *entry);
void sim_uvm_put(uint32_t put);
/* Where a page of managed memory is: bit 0 the CPU, bit 1 + d device d; 0: nowhere yet, or not managed. */
unsigned sim_managed_where(CUdeviceptr address);
bool sim_managed_is_dirty(CUdeviceptr address);

/*
 * Kernels are C functions. A "module image" for cuModuleLoadData / cuLibraryLoadData is a struct sim_module.
 * The body gets the launch's arguments as cuLaunchKernel's kernelParams do: args[i] points to a copy of the i-th
 * parameter. A parameter that holds an address of device memory is handed over translated, so that the body may use it
 * as a plain pointer; an address that the body itself reads from device memory goes through sim_pointer().
 */
struct sim_launch {
	unsigned grid[3], block[3], shared_bytes;
};
struct sim_kernel {
	const char *name;
	void (*body)(const struct sim_launch *launch, void **args);
	unsigned n_params;
	const size_t *param_bytes;
};
#define SIM_MODULE_MAGIC 0x314d4953u /* "SIM1" */
struct sim_module {
	unsigned magic, n_kernels;
	const struct sim_kernel *kernels;
};
/* A kernel with the bytes of each of its parameters; a module, which a program loads by its address, with its kernels. */
#define SIM_BYTES(...) ((const size_t[]){__VA_ARGS__})
#define SIM_KERNEL(name, body, ...)                                                                                    \
	{                                                                                                              \
		name, body, sizeof(SIM_BYTES(__VA_ARGS__)) / sizeof(size_t), SIM_BYTES(__VA_ARGS__)                    \
	}
#define SIM_MODULE(module, ...)                                                                                        \
	static const struct sim_kernel module##_kernels[] = {__VA_ARGS__};                                             \
	static const struct sim_module module = {                                                                      \
	    SIM_MODULE_MAGIC, sizeof(module##_kernels) / sizeof(module##_kernels[0]), module##_kernels}
void *sim_pointer(CUdeviceptr address);
/*
 * By a kernel: its assertion does not hold. It ends, and its context dies of CUDA_ERROR_ASSERT. As in every dead
 * context the calls that need one fail from then on; those that make, map, unmap and release physical memory go on
 * working, as they do on an H200 (driver 580, after an illegal address).
 */
void sim_assert_fails(void) __attribute__((noreturn));

#endif
