// SPDX-License-Identifier: Apache-2.0
/*
 * mpi_internal.h: what the files of mpi.h share: mpi.c, the messages; mpi_memory.c, what is asked of the driver about
 * the memory in them, and the handles that are kept. All of it is the progress thread's once it runs.
 */
#ifndef PRELOAD_MPI_INTERNAL_H
#define PRELOAD_MPI_INTERNAL_H

#include "test/preload/mpi.h"

/* This side: set when it starts. */
extern CUcontext mpi_own;
extern CUdevice mpi_device;
extern struct mpi_counts mpi_seen; /* not looked at by others until mpi_wait() */

/* What is known of a pointer. */
struct mpi_pointer {
	bool on_device;
	CUcontext context;
	CUdeviceptr base;
	unsigned long long buffer;
};

struct mpi_pointer mpi_look_at(CUdeviceptr at);
/* Of one on the device, with its context current. */
void mpi_look_closer(struct mpi_pointer *pointer, CUdeviceptr at, size_t bytes);

/* A handle that was given, or what became of asking for one. */
struct mpi_given {
	unsigned long long buffer;
	CUipcMemHandle handle;
	bool refused;
};
const struct mpi_given *mpi_give(const struct mpi_pointer *pointer);

/* What was opened. Who has done with it is a user less. */
struct mpi_opened {
	CUipcMemHandle handle;
	CUdeviceptr at;
	unsigned users;
	unsigned long turn;
};
/* NULL: the driver refuses, or there is no room. */
struct mpi_opened *mpi_open(const CUipcMemHandle *handle);
/* It is device memory, whatever it is made of. */
void mpi_look_at_opened(CUdeviceptr at, size_t offset, size_t bytes);
void mpi_close_all(void);

#endif
