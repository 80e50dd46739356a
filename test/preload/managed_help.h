// SPDX-License-Identifier: Apache-2.0
/*
 * managed_help.h: what the tests of managed memory by policy on several GPUs share. Four GPUs of 64 MiB: the first two
 * are wired, or none, or all. All but run_part() in child processes (child.h); a CHECK that fails ends them.
 */
#ifndef PRELOAD_MANAGED_HELP_H
#define PRELOAD_MANAGED_HELP_H

#include "test/preload/folder.h"
#include "test/preload/home.h"

enum { N = 4 };
#define BYTES MIB /* the least that this policy makes managed */
#define ON(d) (2u << (d))
#define QUIET "SPILLWAY_SET=report.summary=no,device.budget=32MiB,host.budget=64MiB"
#define SETTINGS(peers, more)                                                                                          \
	((const char *const[]){runtime, "SIM_DEVICES=4", "SIM_PEERS=" peers, "SIM_FILL=0", "SIM_MEMORY=64MiB",         \
			       "SPILLWAY_POLICY=managed", QUIET more, NULL})

extern CUcontext contexts[N];

/* This part of a test, in a process of its own. */
void run_part(const char *const *settings, void (*part)(void));
/* Every GPU's context; the first one's is current. */
void start_gpus(void);
void on_gpu(int device);
/* It is managed by the policy, or of the heap when it is small. That GPU is current after it, as after fill_on(). */
CUdeviceptr new_on(int device, size_t bytes);
/* The first BYTES of it, by a kernel of that GPU. */
void fill_on(int device, CUdeviceptr block, unsigned value);
/* For kernels of every GPU, for copies, and for the CPU. The last one is current after it. */
void holds_everywhere(CUdeviceptr block, unsigned value);
/* Nothing is left on any. */
void end_gpus(void);
/* What the driver says of BYTES from there. */
int range_attribute(CUdeviceptr block, CUmem_range_attribute which);

#endif
