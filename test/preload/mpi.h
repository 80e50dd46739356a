// SPDX-License-Identifier: Apache-2.0
/*
 * mpi.h: what a CUDA-aware MPI does with the pointers it is handed, for two processes of one machine. The calls are
 * those that Open MPI (its accelerator and shared-memory parts) and UCX (cuda_copy, cuda_ipc) make, from what is
 * publicly known of them; none of their code. It knows nothing of Spillway:
 *
 *   whose is it     cuPointerGetAttributes, several at once, on every pointer, host memory too; then
 *                   cuMemGetAddressRange, and SYNC_MEMOPS on the whole of it
 *   one copy        cuIpcGetMemHandle of the base, kept by buffer id, and an event of the sender; the other side keeps
 *                   what it has opened, and closes the oldest
 *   two copies      where either side refuses: pieces through shared memory that both have registered
 *
 * Messages are moved by a thread of its own, which has no context but the one of the pointer at hand.
 */
#ifndef PRELOAD_MPI_H
#define PRELOAD_MPI_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

enum { MPI_TAGS = 24 }; /* messages under way to either side, each of its own tag */

/* What either side has seen; the same words as the counters of MPI libraries. */
struct mpi_counts {
	unsigned one_copy, two_copies, host; /* messages that came */
	unsigned gave, gave_not;             /* answers of cuIpcGetMemHandle */
	unsigned opened, opened_not;         /* and of cuIpcOpenMemHandle */
	unsigned capable;                    /* blocks that say they are for legacy IPC */
	unsigned retained;                   /* that are memory of cuMemMap */
};

/* Before the fork, before the driver is used. */
void mpi_share(void);
/* Rank 0 or 1, with its device's context current. */
void mpi_start(int rank);
struct mpi_counts mpi_counts(void);
void mpi_end(void); /* nothing is under way */

struct mpi_request;
/* Memory of any kind. The program leaves it alone until mpi_wait(), which frees the request. */
struct mpi_request *mpi_send(const void *from, size_t bytes, unsigned tag);
struct mpi_request *mpi_receive(void *to, size_t bytes, unsigned tag);
void mpi_wait(struct mpi_request *request);

/*
 * n words become the sums of both sides', added by the CPU; by a kernel, with memory of the device of its own. Tag 0.
 */
void mpi_sum(void *words, size_t n);
void mpi_sum_on_device(CUdeviceptr words, size_t n);

#endif
