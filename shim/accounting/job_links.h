/*
 * job_links.h: which other processes are of one job with this one (plan/gpu_job.h), because it has opened memory or an
 * event of theirs. Handles are opaque: who has given one out publishes its number in the accounts of its GPUs
 * (gpu_account.h), where who has opened it finds whose it is. A file descriptor has no bytes that are the same in both
 * processes; but the open file that it stands for is the same, however it is sent. So who exports memory by one makes
 * itself the owner of that file (F_SETOWN), whom who imports it asks for. To the driver that means nothing, and no
 * signal is sent, as long as nobody sets O_ASYNC. Measured (H100, driver 580.159): all exported descriptors are of the
 * one inode of /dev/nvidiactl, so fstat() tells nothing; each has an open file of its own, without an owner; the owner
 * set there is found behind SCM_RIGHTS, and memory and pools with one are imported as without. Locking: none.
 */
#ifndef SPILLWAY_JOB_LINKS_H
#define SPILLWAY_JOB_LINKS_H

#include "shim/plan/gpu_job.h"

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Returns the number of the job of that name, or, if it is empty, of the job that a launcher says this process is of;
 * 0: none. The number of a policy's name is not that of a launcher's ranks.
 */
uint64_t job_links_name(const char *name);

/* This process has given out, or opened, a handle of so many bytes. Any thread may call these. */
void job_links_gave(const void *handle, size_t bytes);
void job_links_took(const void *handle, size_t bytes);
/* The same of memory and pools that are exported. handle: as the driver has written it, or has got it. Keep errno. */
void job_links_exported(const void *handle, CUmemAllocationHandleType type);
void job_links_imported(const void *handle, CUmemAllocationHandleType type);

/* ---- on the control thread ---- */

/*
 * Finds whose the handles are that were opened, for 10 seconds each. own: the number of this process. Says once if
 * memory was imported of which that cannot be known.
 */
void job_links_find(uint64_t own, uint64_t now);
/* Adds the numbers that were found to the claim. */
void job_links_put(struct gpu_job_claim *claim);
/* Stores the handles that were given out last. */
void job_links_given(uint64_t ret_given[GPU_JOB_GIVEN]);

/* In the child of a fork: it has opened and given out nothing. Async-signal-safe. */
void job_links_child(void);

#endif
