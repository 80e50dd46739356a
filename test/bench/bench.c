// SPDX-License-Identifier: Apache-2.0
/*
 * bench: what calls into the driver cost. Run once as is and once under Spillway; scripts/bench.sh does both in turn
 * and makes the table. One binary for the simulated GPU and a real one: the driver is whichever libcuda.so.1 the loader
 * finds, and its functions are taken by dlsym, as programs without a runtime library take them.
 *
 *   bench GROUP...                          launch, alloc, stream, live, query, submit, memory: measure these
 *   bench use                               initialise, allocate, free: the process whose start is timed
 *   bench spawn COUNT [NAME=value...] PROGRAM [ARGUMENT...]   run that COUNT times and time it from outside
 *
 * Each result is a line "name median least most unit". A value that could not be measured has no line.
 */
#include <errno.h>

#include "test/bench/gpu.h"
#include "test/sim/sim.h"
#include "test/bench/spawn.h"
#include "test/bench/symbol.h"

/* The driver's own cuLaunchKernel, past any library in front; NULL when that is the function we have anyway. */
static __typeof__(cuLaunchKernel) *bare_launch, *linked_launch; /* NULL: nobody is in front of it */
/*
 * What a program gets that is linked with the driver; this one is not, so it is there when a library in front has it.
 */
#pragma weak cuLaunchKernel

static CUstream stream;
static struct samples samples; /* of what is measured just now */

static void find_launches(void)
{
	*(void **)&bare_launch = symbol_of(driver_library, GPU_TEXT(cuLaunchKernel));
	linked_launch = cuLaunchKernel;
	if (bare_launch == driver.cuLaunchKernel)
		bare_launch = NULL;
}

/* The most that one measurement may take: a quarter of what is free. */
static size_t memory_share(void)
{
	size_t available, total;

	CHECK(cuMemGetInfo(&available, &total));
	return available / 4;
}

/* An empty kernel, for a real GPU and for the simulated one. Its first parameter is an address, as real ones are. */
static const char empty_ptx[] = ".version 6.4\n"
				".target sm_75\n"
				".address_size 64\n"
				".visible .entry empty(.param .u64 address, .param .u64 n) { ret; }\n";

static void empty_body(const struct sim_launch *launch, void **args) {}

SIM_MODULE(empty_module, SIM_KERNEL("empty", empty_body, 8, 8));

/* Few enough launches between two waits that the queue (about a thousand) never fills: a full one would be timed. */
#define LAUNCHES 256

static double launches(__typeof__(cuLaunchKernel) *launch, CUfunction empty, CUdeviceptr block)
{
	size_t n = 1;
	void *args[] = {&block, &n};
	double start = now();

	for (unsigned i = 0; i < LAUNCHES; i++)
		check("cuLaunchKernel", launch(empty, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
	double each = (now() - start) / LAUNCHES;
	CHECK(cuStreamSynchronize(stream));
	return each;
}

/* What one launch takes more than another: batches of both in turn, each order as often, the median difference. */
static void measure_added(const char *name, __typeof__(cuLaunchKernel) *launch, __typeof__(cuLaunchKernel) *bare,
			  CUfunction empty, CUdeviceptr block, unsigned batches)
{
	for (unsigned i = 0; i < batches; i++) {
		double first = launches(i % 2 ? launch : bare, empty, block);
		double second = launches(i % 2 ? bare : launch, empty, block);

		sample(&samples, i % 2 ? first - second : second - first);
	}
	print_samples(&samples, name, "ns");
}

static void measure_launch(void)
{
	unsigned batches = simulated ? 60 : 400;
	CUmodule module;
	CUfunction empty;
	CUdeviceptr block;

	CHECK(cuModuleLoadData(&module, simulated ? (const void *)&empty_module : empty_ptx));
	CHECK(cuModuleGetFunction(&empty, module, "empty"));
	CHECK(cuMemAlloc(&block, 8 * MIB));
	for (unsigned i = 0; i < 4; i++)
		launches(driver.cuLaunchKernel, empty, block); /* to warm up */
	for (unsigned i = 0; i < batches; i++)
		sample(&samples, launches(driver.cuLaunchKernel, empty, block));
	print_samples(&samples, "launch", "ns");
	if (bare_launch)
		measure_added("launch_added", driver.cuLaunchKernel, bare_launch, empty, block, batches);
	if (linked_launch)
		measure_added("linked_launch_added", linked_launch, bare_launch ? bare_launch : driver.cuLaunchKernel,
			      empty, block, batches);
	CHECK(cuMemFree(block));
}

/* The time of a pair of an allocation and a free, the device being idle. false: there is not that much memory. */
static bool pair(size_t bytes)
{
	CUdeviceptr block;
	double start = now();

	if (driver.cuMemAlloc(&block, bytes) != CUDA_SUCCESS)
		return false;
	CHECK(cuMemFree(block));
	sample(&samples, now() - start);
	return true;
}

static void measure_alloc(void)
{
	static const struct {
		const char *name;
		size_t bytes;
		unsigned times;
	} sizes[] = {{"alloc_4KiB", 4 * KIB, 1000}, {"alloc_64KiB", 64 * KIB, 1000}, {"alloc_1MiB", MIB, 1000},
		     {"alloc_2MiB", 2 * MIB, 500},  {"alloc_64MiB", 64 * MIB, 300},  {"alloc_1GiB", GIB, 100}};

	unsigned share = simulated ? 20 : 1; /* the simulation fills new memory with garbage, which takes a while */

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		CUdeviceptr neighbour;

		if (sizes[i].bytes > memory_share())
			continue;
		/*
		 * The driver, too, serves small sizes from pages it keeps while anything on them is alive: be fair to
		 * it.
		 */
		CHECK(cuMemAlloc(&neighbour, 512));
		for (unsigned k = 0; k < 5; k++)
			pair(sizes[i].bytes);
		samples.n = 0;
		CHECK(cuCtxSynchronize());
		for (unsigned k = 0; k < sizes[i].times / share && pair(sizes[i].bytes); k++)
			;
		print_samples(&samples, sizes[i].name, "ns");
		CHECK(cuMemFree(neighbour));
	}
}

static size_t small_size(unsigned i)
{
	return 512 + (size_t)(i * 2654435761u >> 21) % 3585; /* 512 B to 4 KiB */
}

/* Private memory of this process, in KiB; 0 when the kernel does not say. */
static double private_kib(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	double kib = 0, part;

	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Private_Dirty: %lf", &part) == 1)
			kib += part;
	fclose(file);
	return kib;
}

static void CUDA_CB sleep_there(void *ns)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)(uintptr_t)ns}, NULL);
}

/*
 * Stream-ordered allocations and frees as a framework makes them that keeps no cache: the stream far behind, steps of
 * 256 allocations of 16 sizes from 128 KiB to 2 MiB, then as many frees in the opposite order. The first round, which
 * is not timed, makes what the next ones use again.
 */
static void measure_stream(void)
{
	enum { LIVE = 256, SIZES = 16, STEPS = 8, ROUNDS = 5 };
	CUdeviceptr live[LIVE];

	for (unsigned round = 0; round <= ROUNDS; round++) {
		CHECK(cuLaunchHostFunc(stream, sleep_there, (void *)(uintptr_t)200000000));
		double start = now();
		for (unsigned step = 0; step < STEPS; step++) {
			for (unsigned i = 0; i < LIVE; i++)
				CHECK(cuMemAllocAsync(&live[i], (i * 5 % SIZES + 1) * 128 * KIB, stream));
			for (unsigned i = LIVE; i-- > 0;)
				CHECK(cuMemFreeAsync(live[i], stream));
		}
		if (round)
			sample(&samples, (now() - start) / (STEPS * LIVE));
		CHECK(cuStreamSynchronize(stream));
	}
	print_samples(&samples, "stream_pair", "ns");
}

/* Is one more allocation dearer when many are alive? */
static void measure_live(void)
{
	enum { FEW = 100, MANY = 100000, PAIRS = 1000 };
	CUdeviceptr *live = calloc(MANY, sizeof(*live));
	unsigned n = 0;

	if (!live)
		return;
	memset(live, 1, MANY * sizeof(*live)); /* our own pages are not to be counted below */
	for (; n < FEW; n++)
		CHECK(cuMemAlloc(&live[n], small_size(n)));
	for (unsigned i = 0; i < PAIRS && pair(small_size(i)); i++)
		;
	print_samples(&samples, "live_100", "ns");

	double before = private_kib();
	while (n < MANY && driver.cuMemAlloc(&live[n], small_size(n)) == CUDA_SUCCESS)
		n++;
	if (n == MANY) {
		double each = (private_kib() - before) * 1024 / (MANY - FEW);

		for (unsigned i = 0; i < PAIRS && pair(small_size(i)); i++)
			;
		print_samples(&samples, "live_100000", "ns");
		print_line("live_memory", each, each, each, "B");
	} else {
		fprintf(stderr, "bench: only %u allocations fit, live_100000 is not measured\n", n);
	}
	for (unsigned i = 0; i < n; i++)
		CHECK(cuMemFree(live[i]));
	free(live);
}

static void query_one(CUpointer_attribute attribute, CUdeviceptr address)
{
	CUdeviceptr answer; /* the largest of the answers asked for */

	CHECK(cuPointerGetAttribute(&answer, attribute, address));
}

static void query_several(CUpointer_attribute unused, CUdeviceptr address)
{
	CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_IS_MANAGED};
	uint64_t answers[4];
	void *places[4] = {&answers[0], &answers[1], &answers[2], &answers[3]};

	CHECK(cuPointerGetAttributes(4, attributes, places, address));
}

static void measure_query(void)
{
	enum { TIMES = 300, BATCH = 50 };
	static const struct {
		const char *name;
		void (*query)(CUpointer_attribute attribute, CUdeviceptr address);
		CUpointer_attribute attribute;
	} queries[] = {{"query_type", query_one, CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
		       {"query_range", query_one, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR},
		       {"query_four", query_several, CU_POINTER_ATTRIBUTE_MEMORY_TYPE}};
	CUdeviceptr block;

	CHECK(cuMemAlloc(&block, 8 * MIB));
	for (unsigned q = 0; q < sizeof(queries) / sizeof(queries[0]); q++) {
		for (unsigned i = 0; i < TIMES; i++) {
			double start = now();

			for (unsigned k = 0; k < BATCH; k++)
				queries[q].query(queries[q].attribute, block + MIB);
			sample(&samples, (now() - start) / BATCH);
		}
		print_samples(&samples, queries[q].name, "ns");
	}
	CHECK(cuMemFree(block));
}

/*
 * CPU time that the calling thread spends in the call that submits work on a large block; the work is waited for
 * outside. Only a block of many chunks can show what chunks cost, hence 1 GiB.
 */
static double clock_cost(void)
{
	double start = nanoseconds(CLOCK_THREAD_CPUTIME_ID);

	for (unsigned i = 0; i < 1000; i++)
		nanoseconds(CLOCK_THREAD_CPUTIME_ID);
	return (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start) / 1001;
}

static void measure_submit(void)
{
	size_t bytes = simulated ? 64 * MIB : GIB;
	unsigned times = simulated ? 10 : 40;
	double cost = clock_cost(), start;
	CUdeviceptr to, from;
	void *host;

	if (bytes > memory_share())
		return;
	CHECK(cuMemAlloc(&to, bytes));
	CHECK(cuMemAlloc(&from, bytes));
	CHECK(cuMemHostAlloc(&host, bytes, 0));
	memset(host, 1, bytes);

#define TIME(name, call)                                                                                               \
	do {                                                                                                           \
		for (unsigned i = 0; i < times + 2; i++) {                                                             \
			start = nanoseconds(CLOCK_THREAD_CPUTIME_ID);                                                  \
			CHECK(call);                                                                                   \
			if (i >= 2)                                                                                    \
				sample(&samples, nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start - cost);                 \
			CHECK(cuStreamSynchronize(stream));                                                            \
		}                                                                                                      \
		print_samples(&samples, name, "ns");                                                                   \
	} while (0)
	TIME("submit_set", cuMemsetD8Async(from, 1, bytes, stream));
	TIME("submit_DtoD", cuMemcpyDtoDAsync(to, from, bytes, stream));
	TIME("submit_HtoD", cuMemcpyHtoDAsync(to, host, bytes, stream));
#undef TIME

	CHECK(cuMemFreeHost(host));
	CHECK(cuMemFree(from));
	CHECK(cuMemFree(to));
}

/* Host memory of the process with a large heap. What Spillway adds is the difference between two runs of this. */
static void measure_memory(void)
{
	size_t each = 64 * MIB, share = memory_share() * 3, most = simulated ? 2 * GIB : 32 * GIB, n;
	size_t bytes = share < most ? share : most;
	CUdeviceptr *blocks = calloc(bytes / each + 1, sizeof(*blocks));

	for (n = 0; blocks && (n + 1) * each <= bytes; n++)
		if (driver.cuMemAlloc(&blocks[n], each) != CUDA_SUCCESS)
			break;
	double kib = private_kib();
	if (kib > 0) {
		print_line("memory", kib, kib, kib, "KiB");
		print_line("memory_heap", (double)(n * each) / KIB, (double)(n * each) / KIB, (double)(n * each) / KIB,
			   "KiB");
	}
	while (blocks && n-- > 0)
		CHECK(cuMemFree(blocks[n]));
	free(blocks);
}

/* The process whose start-up is measured from outside. */
static double opened; /* ns that finding the driver's functions took */

/* What of the start of a process a library in front has its hands in: names looked up, and the first allocation. */
static void use(void)
{
	CUdeviceptr block;
	double start = now();

	CHECK(cuMemAlloc(&block, MIB));
	CHECK(cuMemFree(block));
	double took = (opened + now() - start) / 1e3;
	print_line("start_parts", took, took, took, "us");
}

static const struct {
	const char *name;
	void (*measure)(void);
} groups[] = {
    {"launch", measure_launch}, {"alloc", measure_alloc},   {"stream", measure_stream}, {"live", measure_live},
    {"query", measure_query},   {"submit", measure_submit}, {"memory", measure_memory}, {"use", use}};

static void run_group(const char *name)
{
	for (unsigned i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (!strcmp(groups[i].name, name)) {
			groups[i].measure();
			return;
		}
	fprintf(stderr, "bench: no group '%s'\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "spawn")) {
		measure_spawn(argc - 2, argv + 2);
		return 0;
	}
	if (argc < 2) {
		fprintf(stderr, "usage: bench launch|alloc|stream|live|query|submit|memory...\n");
		return 2;
	}
	double start = now();
	gpu_open_driver();
	find_launches();
	opened = now() - start;
	gpu_open_context();
	if (strcmp(argv[1], "use") != 0)
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 1; i < argc; i++)
		run_group(argv[i]);
	return 0;
}
