// SPDX-License-Identifier: Apache-2.0
/*
 * spillway.h: for programs that know of Spillway. Nothing has to be linked: the functions are there when the program
 * runs under libspillway.so (`spillway run`, LD_PRELOAD) and absent when it does not. Two ways to ask:
 *
 * 1. Weak references, which is how this header declares them. The address is NULL without Spillway:
 *
 *        #include <spillway.h>
 *        if (spillway_suspend && spillway_suspend() == 0)
 *                ... the GPU is somebody else's now ...
 *
 *    The code must be compiled as position-independent (-fPIC or -fPIE, the default of most compilers of today): in
 *    other code the linker settles weak references for good, to NULL, when the program is linked.
 *
 * 2. dlsym(RTLD_DEFAULT, "spillway_suspend"), in any program and from any language.
 *
 * All may be called from any thread, but not from a callback of the driver (cuLaunchHostFunc and the like). Functions
 * that return int return 0 or a negative errno value, and leave errno as it is.
 */
#ifndef SPILLWAY_H
#define SPILLWAY_H

#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library itself defines what others refer to. */
#ifndef SPILLWAY_API
#define SPILLWAY_API __attribute__((weak))
#endif

/*
 * Give the GPU's memory back for a while. From now on every call that submits work to the GPU waits, on whichever
 * thread; all memory that can move goes to the host; device memory goes back to the driver. Returns when that is done.
 * What runs on the host goes on; addresses and contents stay as they are. Suspended already: 0.
 *
 *   -ENOMEM   the host budget does not hold it
 *   -EBUSY    no safe point came in time: a stream capture is open, or the GPU does not become idle
 *   -ENOTSUP  there is nothing that could move: no memory of this process is in the heap, spill.mode is off or static,
 *             or Spillway is switched off
 *   -EIO      the driver failed, or does not take memory back that it was to have; stderr says how
 *
 * After any of them nothing is suspended. The thread that called must not submit work before some other thread, or
 * `spillway resume PID`, has called spillway_resume(); nor allocate more than host memory and device hold beside what
 * has left: that waits, too.
 */
SPILLWAY_API int spillway_suspend(void);

/*
 * Let submissions go on; memory comes back to the GPU as it is used. Not suspended: 0. -ENOTSUP, -EIO as above.
 * -ENOMEM: neither the GPU nor the system has memory for what the program's allocator keeps and does not use; the
 * process stays suspended, and the call can be repeated. If it shares GPUs (device.total), it takes back its share of
 * them meanwhile, as far as others do not use it; two seconds after the latest call it gives that up again.
 */
SPILLWAY_API int spillway_resume(void);

/* The version of the library, as `spillway --version` prints it; constant, never NULL. */
SPILLWAY_API const char *spillway_version(void);

/*
 * Say the summary on standard error now, as at the end of the process: for programs that are ended by a signal or by
 * _exit(), where nobody is asked. The figures themselves can be read from outside at any time (`spillway top`). As
 * often as the program likes, from any thread, not from a signal handler. 0; -ENOTSUP: nothing was allocated under
 * Spillway.
 */
SPILLWAY_API int spillway_checkpoint_stats(void);

/* ---- budgets ---- */

/*
 * What the heap of a device (by its ordinal) may take and what is in use of it, in bytes; memory that is kept for the
 * next allocation is not in use. The host budget is one for the process, and so is what is used of it. The device's
 * counts what the driver gave the program past the heap, too, and can therefore be exceeded. Any pointer may be NULL.
 *
 * Before the first allocation on the device the budget is only what it would be if all of it were free.
 *
 *   -ENODEV   no such device, or the driver has not been initialised
 *   -ENOTSUP  Spillway is switched off
 */
SPILLWAY_API int spillway_budget(int device, uint64_t *device_bytes, uint64_t *host_bytes, uint64_t *device_used,
				 uint64_t *host_used);

/* ---- one block of memory ---- */

/*
 * An allocation of the program, named by any address in it. All of these answer
 *
 *   -ENOENT   nothing that is known lies at this address
 *   -ENOTSUP  Spillway is switched off; or, but for spillway_where(), the block is not in the heap; or, to pin, unpin,
 *             prefer and grow, it has memory only where it was used (place: on-use)
 *
 * A block that is freed by another thread meanwhile may give either answer; no harm is done.
 */
enum spillway_backend {
	SPILLWAY_HEAP = 1, /* the heap: the functions below can do something for it */
	SPILLWAY_DRIVER,   /* device memory that the driver gave: by rule, or because the heap could not */
	SPILLWAY_MANAGED,  /* managed memory: the driver moves it; where it is now is not known */
	SPILLWAY_SYSTEM,   /* pages of the process, by rule: on the host if registered, else as managed memory */
	SPILLWAY_POOL,     /* cuMemAllocAsync and the like */
	SPILLWAY_PINNED,   /* host memory that the program pinned */
};

struct spillway_place {
	enum spillway_backend backend;
	uint64_t bytes; /* as the program asked */
	uint64_t bytes_on_device;
	uint64_t bytes_on_host; /* or on another device that lends memory (spill.peers) */
	int movable;            /* 1: it may move at any time, so the two figures above are of this moment */
};

/*
 * Where does this memory live? *place is written on success alone. What is not used yet of an allocation with place:
 * on-use lives nowhere.
 */
SPILLWAY_API int spillway_where(const void *address, struct spillway_place *place);

/*
 * It stays where it is now, on the device or on the host, until spillway_unpin() has been called as often, or it is
 * freed. If it is on its way just now, that is waited for. Blocks of up to 1 MiB share memory with others, which stay
 * with it. A suspended process keeps it on the device.
 *
 *   -EBUSY   it is on its way and did not arrive in a second; it is not pinned
 *   -EINVAL  spillway_unpin(): it is not pinned by spillway_pin()
 */
SPILLWAY_API int spillway_pin(const void *address);
SPILLWAY_API int spillway_unpin(const void *address);

/*
 * The block should live on the host: what is there stays, the rest leaves at the next chance (`fast`: when nothing uses
 * it; `exact`: when the GPU is stopped for a move anyway), and nothing comes back in until it is freed. What lies on
 * another device that lends memory leaves it for the host, too, by way of the GPU. Kernels read it over the link. Where
 * the host budget has no room for it, it stays where it is, or moves as before, until there is some.
 *
 *   -ENOTSUP  also: nothing moves (spill.mode is off or static), the block must stay where it is by rule or because
 *             others know where it is, or it is one of up to 1 MiB, which share memory with others
 */
SPILLWAY_API int spillway_prefer_host(const void *address);

/*
 * The block becomes new_bytes long where it is: its address and contents stay, nothing is copied; what is added is
 * undefined, as in a new allocation. Less than it is long already: nothing changes. To make room for growth the blocks
 * behind it must be gone.
 *
 *   -ENOMEM  the addresses behind it are in use, or the budgets or the cap of its rule hold no more; nothing has
 *            changed
 */
SPILLWAY_API int spillway_grow(const void *address, uint64_t new_bytes);

/*
 * The contents of these bytes are no longer needed: what is wholly discarded of what moves as one (2 to 128 MiB)
 * changes places without being copied. They are undefined from now on, until something that is given to the driver
 * after this names the block: as an argument of a kernel, copy or graph; or until a part of the block is born
 * (spillway_born). A kernel that finds the address in memory alone names nothing; do not discard what such a kernel
 * writes next, unless it is born before. What was given to the driver before goes on undisturbed.
 *
 *   -EINVAL  the bytes reach beyond the end of the block
 */
SPILLWAY_API int spillway_discard(const void *address, uint64_t bytes);

/*
 * For a program that cuts large blocks into parts itself, as PyTorch's allocator does (PyTorch need not call this):
 * the part begins to be used, and holds nothing yet. With the first birth in a block the library follows what is in
 * it: all of it has contents, until spillway_discard() is called for a part with the same address and bytes that was
 * born. From then on the part is dead, wherever it begins and ends: it is not copied when something moves, as soon as
 * the calling thread has submitted something and all that was given to the driver before is done. The program must
 * not use it before it is born again; a submission that names an address in it keeps what is written, as a rule. What
 * is born is not copied to the device for the first submission to use it, if nothing else runs.
 *
 * In a block with place: on-use, which has memory only where it was used, a birth also says how far a pointer reaches:
 * a kernel that gets one uses the part, in steps of 512 bytes, and no memory is taken for the rest of the block. A
 * pointer where nothing is born may mean all of the block.
 *
 * A part that overlaps others takes their place. But for that, it has no effect, and all keeps its contents, in blocks
 * of up to 1 MiB, in memory that the program maps itself, in blocks of which PyTorch reports, in those that a graph has
 * named or in which a part was born or discarded while a stream capture was open, and after a graph that cannot be
 * read.
 *
 *   -EINVAL  the bytes reach beyond the end of the block
 */
SPILLWAY_API int spillway_born(const void *address, uint64_t bytes);

/* ---- allocators for frameworks ---- */

/*
 * As cuMemAlloc and cuMemFree, in the primary context of the device, in the forms that two frameworks ask for:
 * PyTorch's CUDAPluggableAllocator and CuPy's CFunctionAllocator. NULL: out of memory, or no such device. Freeing
 * returns at once; the memory is used again when everything the device was given before is done, on whichever stream.
 * `stream` and `param` are not looked at.
 */
SPILLWAY_API void *spillway_torch_alloc(ssize_t size, int device, void *stream);
SPILLWAY_API void spillway_torch_free(void *ptr, ssize_t size, int device, void *stream);
SPILLWAY_API void *spillway_cupy_malloc(void *param, size_t size, int device);
SPILLWAY_API void spillway_cupy_free(void *param, void *ptr, int device);

#ifdef __cplusplus
}
#endif

#endif
