// SPDX-License-Identifier: Apache-2.0
/*
 * faults_help.h: what the tests of page faults share. Each part runs in a process of its own (core_in_child), because
 * counting starts once for a process; so CHECK, not cmocka's assertions.
 */
#ifndef SPILLWAY_TEST_FAULTS_HELP_H
#define SPILLWAY_TEST_FAULTS_HELP_H

#include "test/core/core.h"

#include "shim/faults/faults.h"
#include "test/unit/seed.h"

#define PAGE ((size_t)64 << 10) /* of the simulated GPU */

/* Driver, library and kernels, on devices of 1 MiB: 16 pages. */
void faults_help_start(void);
/* Managed memory that the program makes. */
CUdeviceptr faults_help_managed(size_t bytes);
/* A kernel of the current context writes or reads all of it, and is waited for. */
void faults_help_write(CUdeviceptr at, size_t bytes);
void faults_help_read(CUdeviceptr at, size_t bytes);
/* The CPU reads it, in a call of the driver. */
void faults_help_cpu(CUdeviceptr at, size_t bytes);
void faults_help_prefetch(CUdeviceptr at, size_t bytes, CUdevice device);
void faults_help_advise(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUdevice device);
/* Some of all of it, in an order that only the seed gives. */
void faults_help_mix(CUdeviceptr at, size_t bytes, unsigned steps, struct seed *seed);

/* What is read of the process is what the model has counted; so is that of device 0, if that is the only one. */
int faults_help_check_equal(void); /* 0, as a part returns it */
/* Nothing is measured: of no device, and not of the process. */
void faults_help_check_none(void);
bool faults_help_source_has(const char *part);

#endif
