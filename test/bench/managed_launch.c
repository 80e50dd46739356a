// SPDX-License-Identifier: Apache-2.0
/*
 * managed_launch.c: what a launch costs while managed memory that is on the heap (match: {api: managed}, use: heap) is
 * the CPU's, on the simulated GPU: ns a launch, the least of many rounds. The launches are refused for their grid, so
 * that what is in front of the driver is a large part of them.
 *
 *   LD_PRELOAD=libspillway.so SPILLWAY_POLICY=managed-to-heap managed_launch
 */
#include "test/sim/sim.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BLOCKS   1000
#define ROUNDS   200
#define LAUNCHES 2000

static CUfunction function;

static void must(CUresult result)
{
	if (result != CUDA_SUCCESS)
		exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	(void)args;
}

static const size_t params_bytes[] = {8, 8, 4};
static const struct sim_kernel kernel = {"empty", body, 3, params_bytes};
static const struct sim_module image = {SIM_MODULE_MAGIC, 1, &kernel};

static void measure(const char *name, CUdeviceptr first, CUdeviceptr second)
{
	double least = 1e9;
	unsigned n = 5;
	void *params[] = {&first, &second, &n};

	for (int round = 0; round < ROUNDS; round++) {
		double begin = now(), took;

		for (int i = 0; i < LAUNCHES; i++)
			cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
		took = (now() - begin) / LAUNCHES;
		least = took < least ? took : least;
	}
	printf("%s %.1f ns\n", name, least);
}

int main(void)
{
	static CUdeviceptr block[BLOCKS];
	CUcontext context;
	CUdeviceptr a, b, between[2];
	CUmodule module;

	must(cuInit(0));
	must(cuDevicePrimaryCtxRetain(&context, 0));
	must(cuCtxSetCurrent(context));
	must(cuModuleLoadData(&module, &image));
	must(cuModuleGetFunction(&function, module, "empty"));
	must(cuMemAlloc(&a, 1 << 22));
	must(cuMemAlloc(&b, 1 << 22));
	measure("managed_launch_none", a, b);
	for (int i = 0; i < BLOCKS; i++) {
		must(cuMemAllocManaged(&block[i], 1 << 20, CU_MEM_ATTACH_GLOBAL));
		*(char *)block[i] = 1;
		if (i == BLOCKS / 3 || i == BLOCKS / 2)
			must(cuMemAlloc(&between[i == BLOCKS / 2], 1 << 22));
	}
	measure("managed_launch_cpus", a, b);
	measure("managed_launch_between", between[0], a);
	measure("managed_launch_both_between", between[0], between[1] + 1024);
	for (int i = 0; i < BLOCKS; i++)
		must(cuMemFree(block[i]));
	must(cuMemAllocManaged(&block[0], 1 << 22, CU_MEM_ATTACH_GLOBAL));
	must(cuMemsetD8(block[0], 0, 1 << 22));
	measure("managed_launch_gpus", a, b);
	return 0;
}
