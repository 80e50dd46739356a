// SPDX-License-Identifier: Apache-2.0
/*
 * pressure: what a launch costs more with the spill engine watching. Batches of empty kernels with ten pointers each,
 * by way of whoever stands in front of the driver and past them in turn, in one process: before the heap is under
 * pressure, and after allocations that nobody uses have filled the device budget. What the kernels name stays on the
 * device, so nothing has to move for them.
 *
 *   pressure [HOT BLOCK_MIB COLD_MIB]      HOT blocks that are named (64 of 8 MiB), COLD_MIB of others (1024)
 *
 * The policy is the caller's: the hot blocks have to fit device.budget, both together must not.
 * Each result is a line "name median least most unit":
 *   added_free            more than the bare launch, no pressure
 *   added_same            under pressure, the same ten blocks in each launch
 *   added_turn            under pressure, ten of all hot blocks in turn, as steps of training name them
 *   launch_bare, launch_turn    the launches themselves
 * With SPILLWAY_TRACE set all of them have what tracing a launch costs in them: run it with and without.
 * Without anyone in front there is launch_bare alone.
 */
#include <errno.h>
#include <link.h>

#include "test/bench/gpu.h"
#include "test/sim/sim.h"
#include "test/bench/symbol.h"

enum { POINTERS = 10, MOST_BLOCKS = 4096 };

static const char empty_ptx[] =
    ".version 6.4\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e,\n"
    "                      .param .u64 f, .param .u64 g, .param .u64 h, .param .u64 i, .param .u64 j) { ret; }\n";

static void empty_body(const struct sim_launch *launch, void **args) {}

SIM_MODULE(empty_module, SIM_KERNEL("empty", empty_body, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8));

static CUstream stream;
static CUfunction empty;
static CUdeviceptr hot[MOST_BLOCKS];
static unsigned n_hot;

/* Few enough launches between two waits that the queue (about a thousand) never fills: a full one would be timed. */
#define LAUNCHES 256

/* The time of one launch. stride 0: the same blocks each time; else launch i begins at block i * stride. */
static double batch(__typeof__(cuLaunchKernel) *launch, unsigned stride)
{
	CUdeviceptr pointers[POINTERS];
	void *args[POINTERS];

	for (unsigned k = 0; k < POINTERS; k++)
		args[k] = &pointers[k];
	double start = now();
	for (unsigned i = 0; i < LAUNCHES; i++) {
		for (unsigned k = 0; k < POINTERS; k++)
			pointers[k] = hot[(i * stride + k) % n_hot] + k * 4096;
		check("cuLaunchKernel", launch(empty, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
	}
	double each = (now() - start) / LAUNCHES;
	CHECK(cuStreamSynchronize(stream));
	return each;
}

/* Batches with and without whoever stands in front, each order as often, the median difference. */
static void measure(__typeof__(cuLaunchKernel) *bare, unsigned stride, unsigned batches, const char *name)
{
	static struct samples added;

	for (unsigned i = 0; i < 8 + batches; i++) {
		double first = batch(i % 2 ? driver.cuLaunchKernel : bare, stride);
		double second = batch(i % 2 ? bare : driver.cuLaunchKernel, stride);

		if (i >= 8) /* to warm up */
			sample(&added, i % 2 ? first - second : second - first);
	}
	print_samples(&added, name, "ns");
}

static void measure_alone(__typeof__(cuLaunchKernel) *launch, unsigned batches, const char *name)
{
	static struct samples each;

	for (unsigned i = 0; i < 4 + batches; i++) {
		double took = batch(launch, POINTERS);

		if (i >= 4)
			sample(&each, took);
	}
	print_samples(&each, name, "ns");
}

/* Fill the device budget and more with blocks that nobody names again. */
static void make_pressure(size_t cold_mib, size_t block_mib)
{
	for (size_t i = 0; i < cold_mib / block_mib; i++) {
		CUdeviceptr block;

		CHECK(cuMemAlloc(&block, block_mib * MIB));
		CHECK(cuMemsetD8(block, 1, block_mib * MIB));
	}
	CHECK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 64,
		      mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 8;
	unsigned long cold = argc > 3 ? strtoul(argv[3], NULL, 10) : 1024;
	__typeof__(cuLaunchKernel) *bare;
	CUmodule module;

	if (count < POINTERS || count > MOST_BLOCKS || !mib || (argc != 1 && argc != 4)) {
		fprintf(stderr, "usage: pressure [HOT BLOCK_MIB COLD_MIB]: HOT from 10 to 4096\n");
		return 2;
	}
	gpu_open();
	unsigned batches = simulated ? 20 : 300;
	*(void **)&bare = symbol_of(driver_library, GPU_TEXT(cuLaunchKernel));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuModuleLoadData(&module, simulated ? (const void *)&empty_module : empty_ptx));
	CHECK(cuModuleGetFunction(&empty, module, "empty"));
	for (; n_hot < count; n_hot++)
		CHECK(cuMemAlloc(&hot[n_hot], mib * MIB));

	measure_alone(bare ? bare : driver.cuLaunchKernel, batches, "launch_bare");
	if (!bare || bare == driver.cuLaunchKernel)
		return 0;
	measure(bare, POINTERS, batches, "added_free");
	make_pressure(cold, mib);
	measure_alone(driver.cuLaunchKernel, batches, "launch_turn");
	measure(bare, 0, batches, "added_same");
	measure(bare, POINTERS, batches, "added_turn");
	return 0;
}
