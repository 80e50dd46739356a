// SPDX-License-Identifier: Apache-2.0
/*
 * home.h: what must hold of memory that a program got from cuMemAlloc, that lives outside the heap by policy, and that
 * both sides reach at one address. In child processes (child.h).
 */
#ifndef PRELOAD_HOME_H
#define PRELOAD_HOME_H

#include "test/preload/child.h"

/* On a device of 64 MiB, with a policy and more settings. */
#define HOME_SETTINGS(policy, ...)                                                                                     \
	((const char *const[]){"SIM_FILL=0", "SIM_MEMORY=64MiB", "SPILLWAY_POLICY=" policy, ##__VA_ARGS__, NULL})
#define HOME_BUDGETS "SPILLWAY_SET=report.summary=no,device.budget=32MiB,host.budget=64MiB"

static inline unsigned *home_words(CUdeviceptr block)
{
	return (unsigned *)(uintptr_t)block;
}

/* Kernels, copies and the CPU see what each of them writes. */
void home_serves_both_sides(CUdeviceptr block, size_t bytes);
/* Copies from and to every other kind of memory, flat and in rows, and sets. */
void home_copies_and_sets(CUdeviceptr block, size_t bytes);
/* Attributes, range, what can be set and what is refused; for any address in it. */
void home_answers(CUdeviceptr block, size_t bytes, bool is_managed);
/*
 * Every way to free a block of that many bytes, and every wrong one. is_home: is it where such blocks should be?
 * Nothing is left of any.
 */
void home_frees(size_t bytes, bool (*is_home)(CUdeviceptr block));
#endif
