// SPDX-License-Identifier: Apache-2.0
/*
 * child_alloc.h: for parts of tests that run in a child (core_in_child): the library started by its policy, allocations
 * that are good, and such as are refused.
 */
#ifndef SPILLWAY_TEST_CHILD_ALLOC_H
#define SPILLWAY_TEST_CHILD_ALLOC_H

#include "shim/lifecycle/lifecycle.h"
#include "test/core/core.h"

static void start(void)
{
	core_driver();
	CHECK(lifecycle_start() == STAGE_RUNNING);
}

static CUdeviceptr alloc(size_t bytes)
{
	CUdeviceptr address = 0;

	CHECK(cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS);
	core_fill(address, bytes, bytes);
	CHECK(core_is_filled(address, bytes, bytes));
	return address;
}

static bool is_refused(size_t bytes)
{
	CUdeviceptr address = 42;

	return cuMemAlloc_v2(&address, bytes) == CUDA_ERROR_OUT_OF_MEMORY && address == 42;
}

#endif
