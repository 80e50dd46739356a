/*
 * mapping: what a change of a mapping takes beside copies, and what it costs them. The copies are those of `link`'s
 * "vmm" pair, 64 MiB each; beside them a chunk of 64 MiB of device memory is mapped and unmapped, once in the time that
 * a copy takes. On NVIDIA's drivers the change is work of the engine that copies to the host; it has its turn when that
 * engine's stream waits for something, and else when a time slice is over. So copies to the host are also made in parts:
 * with nothing between them; with a wait for a word in host memory, which is 0 while a change is asked for (as
 * shim/spill/link.c does); and with a copy of 4 KiB onto itself. "kernel": a kernel of so many blocks copies to the host
 * instead of the engine, in parts of so many MiB: does a change wait until one of them ends? "remake": the chunk is
 * released and made anew each time, too, as when what comes in is not as long as what went out. "host": 32 or 128 MiB of
 * host memory are mapped. "load": beside kernels that read and write device memory as fast as it goes.
 *
 *   mapping [ROUNDS [DEVICE]]
 *
 * With DEVICE memory of that device takes the place of the host's, as with spill.peers.
 *
 * Lines "name median least most unit" over the rounds: NAME_in and NAME_out in GB/s, NAME_map and NAME_unmap in us.
 */
#define GPU_FUNCTIONS(F)                                                                                               \
	F(cuDeviceGetAttribute)                                                                                        \
	F(cuEventCreate)                                                                                               \
	F(cuEventRecord)                                                                                               \
	F(cuEventQuery)                                                                                                \
	F(cuEventElapsedTime)                                                                                          \
	F(cuStreamWaitEvent)                                                                                           \
	F(cuStreamWaitValue32)                                                                                         \
	F(cuMemcpyDtoH)                                                                                                \
	F(cuMemsetD32)                                                                                                 \
	F(cuMemHostAlloc)                                                                                              \
	F(cuMemcpyDtoDAsync)                                                                                           \
	F(cuMemAddressReserve)                                                                                         \
	F(cuMemAddressFree)                                                                                            \
	F(cuMemCreate)                                                                                                 \
	F(cuMemRelease)                                                                                                \
	F(cuMemMap)                                                                                                    \
	F(cuMemUnmap)                                                                                                  \
	F(cuMemSetAccess)                                                                                              \
	F(cuModuleLoadData)                                                                                            \
	F(cuModuleGetFunction)                                                                                         \
	F(cuLaunchKernel)

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "test/bench/gpu.h"
#include "test/sim/sim.h"

/* Adds 1 to a word of each 16 bytes of n times 16. */
static const char sweep_ptx[] = ".version 6.4\n"
				".target sm_75\n"
				".address_size 64\n"
				".visible .entry sweep(.param .u64 words, .param .u32 count) {\n"
				"  .reg .pred end; .reg .b32 i, step, n, t, b, x<4>; .reg .b64 at, here;\n"
				"  ld.param.u64 at, [words]; ld.param.u32 n, [count];\n"
				"  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mov.u32 step, %ntid.x;\n"
				"  mad.lo.u32 i, b, step, t; mov.u32 b, %nctaid.x; mul.lo.u32 step, step, b;\n"
				"next: setp.ge.u32 end, i, n; @end bra done;\n"
				"  mul.wide.u32 here, i, 16; add.u64 here, here, at;\n"
				"  ld.global.v4.u32 {x0, x1, x2, x3}, [here]; add.u32 x0, x0, 1;\n"
				"  st.global.v4.u32 [here], {x0, x1, x2, x3};\n"
				"  add.u32 i, i, step; bra next;\n"
				"done: ret; }\n";

/* n times 16 bytes from one address to another. */
static const char copy_ptx[] = ".version 6.4\n"
			       ".target sm_75\n"
			       ".address_size 64\n"
			       ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 count) {\n"
			       "  .reg .pred end; .reg .b32 i, step, n, t, b, x<4>; .reg .b64 src, dst, at;\n"
			       "  ld.param.u64 dst, [to]; ld.param.u64 src, [from]; ld.param.u32 n, [count];\n"
			       "  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mov.u32 step, %ntid.x;\n"
			       "  mad.lo.u32 i, b, step, t; mov.u32 b, %nctaid.x; mul.lo.u32 step, step, b;\n"
			       "next: setp.ge.u32 end, i, n; @end bra done;\n"
			       "  mul.wide.u32 at, i, 16; add.u64 at, at, src;\n"
			       "  ld.global.cs.v4.u32 {x0, x1, x2, x3}, [at];\n"
			       "  mul.wide.u32 at, i, 16; add.u64 at, at, dst;\n"
			       "  st.global.cs.v4.u32 [at], {x0, x1, x2, x3};\n"
			       "  add.u32 i, i, step; bra next;\n"
			       "done: ret; }\n";

static void sweep_body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	(void)args;
}

static void copy_body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	memcpy(*(void **)args[0], *(void **)args[1], (size_t) * (uint32_t *)args[2] * 16);
}

static const size_t sweep_params[] = {8, 4}, copy_params[] = {8, 8, 4};
static const struct sim_kernel kernels[] = {{"sweep", sweep_body, 2, sweep_params},
					    {"copy", copy_body, 3, copy_params}};
static const struct sim_module sweep_module = {SIM_MODULE_MAGIC, 2, kernels};

enum between { NOTHING, WAIT, BREATH, KERNEL };

static const struct {
	const char *name;
	bool in, out;
	size_t part; /* 0: whole */
	enum between between;
	bool maps, remakes, load;
	size_t host;     /* of host memory, so much is mapped; 0: device memory */
	unsigned blocks; /* of the kernel */
} cases[] = {
    {"quiet", false, false, 0, NOTHING, true, false, false, 0, 0},
    {"in", true, false, 0, NOTHING, true, false, false, 0, 0},
    {"out", false, true, 0, NOTHING, true, false, false, 0, 0},
    {"pair_bare", true, true, 0, NOTHING, false, false, false, 0, 0},
    {"pair", true, true, 0, NOTHING, true, false, false, 0, 0},
    {"parts_8_bare", true, true, 8 * MIB, NOTHING, false, false, false, 0, 0},
    {"wait_8_bare", true, true, 8 * MIB, WAIT, false, false, false, 0, 0},
    {"wait_16_bare", true, true, 16 * MIB, WAIT, false, false, false, 0, 0},
    {"wait_8", true, true, 8 * MIB, WAIT, true, false, false, 0, 0},
    {"wait_16", true, true, 16 * MIB, WAIT, true, false, false, 0, 0},
    {"wait_32", true, true, 32 * MIB, WAIT, true, false, false, 0, 0},
    {"wait_16_remake", true, true, 16 * MIB, WAIT, true, true, false, 0, 0},
    {"in_remake", true, false, 0, NOTHING, true, true, false, 0, 0},
    {"pair_load", true, true, 0, NOTHING, false, false, true, 0, 0},
    {"wait_16_load", true, true, 16 * MIB, WAIT, true, false, true, 0, 0},
    {"breath_8", true, true, 8 * MIB, BREATH, true, false, false, 0, 0},
    {"breath_16", true, true, 16 * MIB, BREATH, true, false, false, 0, 0},
    {"kernel16_64_out", false, true, 64 * MIB, KERNEL, false, false, false, 0, 16},
    {"kernel128_64_out", false, true, 64 * MIB, KERNEL, false, false, false, 0, 128},
    {"kernel16_64_bare", true, true, 64 * MIB, KERNEL, false, false, false, 0, 16},
    {"kernel128_64_bare", true, true, 64 * MIB, KERNEL, false, false, false, 0, 128},
    {"kernel128_4_bare", true, true, 4 * MIB, KERNEL, false, false, false, 0, 128},
    {"kernel128_1_bare", true, true, MIB, KERNEL, false, false, false, 0, 128},
    {"host_32", false, false, 0, NOTHING, true, false, false, 32 * MIB, 0},
    {"host_128", false, false, 0, NOTHING, true, false, false, 128 * MIB, 0},
    {"host_32_in", true, false, 0, NOTHING, true, false, false, 32 * MIB, 0},
    {"host_128_in", true, false, 0, NOTHING, true, false, false, 128 * MIB, 0},
    {"host_32_breath", true, true, 16 * MIB, BREATH, true, false, false, 32 * MIB, 0},
    {"host_128_breath", true, true, 16 * MIB, BREATH, true, false, false, 128 * MIB, 0},
    {"host_32_kernel16_64", true, true, 64 * MIB, KERNEL, true, false, false, 32 * MIB, 16},
    {"host_32_kernel128_64", true, true, 64 * MIB, KERNEL, true, false, false, 32 * MIB, 128},
    {"host_32_kernel128_4", true, true, 4 * MIB, KERNEL, true, false, false, 32 * MIB, 128},
    {"host_32_kernel16_1", true, true, MIB, KERNEL, true, false, false, 32 * MIB, 16},
    {"host_32_kernel128_1", true, true, MIB, KERNEL, true, false, false, 32 * MIB, 128},
    {"host_128_kernel128_1", true, true, MIB, KERNEL, true, false, false, 128 * MIB, 128},
};

static CUdeviceptr device_in, device_out, host_in, host_out, window;
static CUmemGenericAllocationHandle chunk;
static CUmemAccessDesc access_device = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static CUfunction sweep, copy;
static CUdeviceptr swept;
static CUstream stream_in, stream_out, stream_load;
static CUevent begun, ended_in, ended_out;
static _Atomic uint32_t *go;
#define PATTERN 0x5eed5eedu
/* As many changes are tried as copies at these rates: GB/s, of H200. */
#define PCIE_RATE   50
#define NVLINK_RATE 180
static size_t bytes = 64 * MIB, changed;                             /* of copies; of what is mapped */
static double pause;                                                 /* between two changes, ns */
static CUmemLocation far = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}; /* where what moves out lies */
static const CUmemLocation near = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

static CUmemGenericAllocationHandle make(CUmemLocation where, size_t length)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = where};
	CUmemGenericAllocationHandle handle;

	CHECK(cuMemCreate(&handle, length, &prop, 0));
	return handle;
}

/* ID: "": the host memory next to the device. */
static void choose_far(const char *id)
{
	if (*id)
		far = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = atoi(id)};
	else
		CHECK(cuDeviceGetAttribute(&far.id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
	if (far.id < 0)
		far.id = 0;
}

static CUdeviceptr mapped(CUmemLocation where)
{
	CUdeviceptr at;

	CHECK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	CHECK(cuMemMap(at, bytes, 0, make(where, bytes), 0));
	CHECK(cuMemSetAccess(at, bytes, &access_device, 1));
	return at;
}

static void copy_by_kernel(size_t at, size_t part, unsigned blocks)
{
	CUdeviceptr to = host_out + at, from = device_out + at;
	uint32_t n = (uint32_t)(part / 16);
	void *args[] = {&to, &from, &n};

	CHECK(cuLaunchKernel(copy, blocks, 1, 1, 256, 1, 1, 0, stream_out, args, NULL));
}

/* A kernel that copies something else would be measured for nothing. */
static void check_copy(void)
{
	uint32_t first, last;

	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH(&first, host_out, sizeof(first)));
	CHECK(cuMemcpyDtoH(&last, host_out + bytes - sizeof(last), sizeof(last)));
	if (first != PATTERN || last != PATTERN) {
		fprintf(stderr, "mapping: the kernel copies wrongly\n");
		exit(1);
	}
}

static void copy_out(size_t part, enum between between, unsigned blocks)
{
	if (!part || part > bytes)
		part = bytes;
	for (size_t at = 0; at < bytes; at += part) {
		if (between == KERNEL) {
			copy_by_kernel(at, part, blocks);
			continue;
		}
		CHECK(cuMemcpyDtoDAsync(host_out + at, device_out + at, part, stream_out));
		if (between == WAIT)
			CHECK(cuStreamWaitValue32(stream_out, (CUdeviceptr)(uintptr_t)go, 1, CU_STREAM_WAIT_VALUE_GEQ));
		if (between == BREATH)
			CHECK(cuMemcpyDtoDAsync(device_out, device_out, 4096, stream_out));
	}
}

/* One change each way; us. */
static void change(unsigned at, struct samples *maps, struct samples *unmaps)
{
	if (cases[at].remakes) {
		CHECK(cuMemRelease(chunk));
		chunk = make(near, changed);
	}
	double start = now();
	atomic_store(go, 0);
	CHECK(cuMemMap(window, changed, 0, chunk, 0));
	CHECK(cuMemSetAccess(window, changed, &access_device, 1));
	atomic_store(go, 1);
	double middle = now();
	CHECK(cuMemUnmap(window, changed));
	sample(maps, (middle - start) / 1e3);
	sample(unmaps, (now() - middle) / 1e3);
}

/* Longer than the copies; a sweep takes some 0.1 ms. */
#define SWEEPS      800
#define SWEPT_BYTES (256 * MIB)

static void put_load(void)
{
	uint32_t n = (uint32_t)(SWEPT_BYTES / 16);
	void *args[] = {&swept, &n};

	for (unsigned i = 0; i < (simulated ? 3 : SWEEPS); i++)
		CHECK(cuLaunchKernel(sweep, 1056, 1, 1, 256, 1, 1, 0, stream_load, args, NULL));
}

static bool is_over(CUevent event)
{
	return driver.cuEventQuery(event) == CUDA_SUCCESS;
}

static double rate(CUevent end, unsigned copies)
{
	float ms;

	CHECK(cuEventElapsedTime(&ms, begun, end));
	return (double)copies * (double)bytes / ((double)ms * 1e6);
}

static void measure(unsigned at, unsigned rounds, unsigned copies)
{
	struct samples in = {0}, out = {0}, maps = {0}, unmaps = {0};
	char name[64];

	changed = !cases[at].host ? bytes : simulated ? 4 * MIB : cases[at].host;
	CHECK(cuMemsetD32(host_out, 0, bytes / sizeof(uint32_t)));
	CHECK(cuMemAddressReserve(&window, changed, 0, 0, 0));
	chunk = make(cases[at].host ? far : near, changed);
	for (unsigned round = 0; round < rounds; round++) {
		CHECK(cuCtxSynchronize());
		if (cases[at].load)
			put_load();
		CHECK(cuEventRecord(begun, stream_in));
		CHECK(cuStreamWaitEvent(stream_out, begun, 0));
		for (unsigned i = 0; i < copies; i++) {
			if (cases[at].in)
				CHECK(cuMemcpyDtoDAsync(device_in, host_in, bytes, stream_in));
			if (cases[at].out)
				copy_out(cases[at].part, cases[at].between, cases[at].blocks);
		}
		CHECK(cuEventRecord(ended_in, stream_in));
		CHECK(cuEventRecord(ended_out, stream_out));
		double next = now();
		for (unsigned n = 0; n < copies || !is_over(ended_in) || !is_over(ended_out); n++) {
			while (now() < next)
				;
			next += pause;
			/* No more changes than copies. */
			if (cases[at].maps && n < copies)
				change(at, &maps, &unmaps);
		}
		if (cases[at].in)
			sample(&in, rate(ended_in, copies));
		if (cases[at].out)
			sample(&out, rate(ended_out, copies));
	}
	if (cases[at].between == KERNEL)
		check_copy();
	CHECK(cuMemRelease(chunk));
	CHECK(cuMemAddressFree(window, changed));
	struct {
		struct samples *samples;
		const char *what, *unit;
	} results[] = {{&in, "in", "GB/s"}, {&out, "out", "GB/s"}, {&maps, "map", "us"}, {&unmaps, "unmap", "us"}};
	for (unsigned i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "%s_%s", cases[at].name, results[i].what);
		if (results[i].samples->n)
			print_samples(results[i].samples, name, results[i].unit);
	}
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 7;
	const char *lender = argc > 2 ? argv[2] : "";
	CUmodule module;
	void *word;

	if (rounds < 1 || rounds > 100) {
		fprintf(stderr, "usage: mapping [ROUNDS [DEVICE]]\n");
		return 2;
	}
	gpu_open();
	if (simulated)
		bytes = 4 * MIB;
	choose_far(lender);
	pause = (double)bytes / (*lender ? NVLINK_RATE : PCIE_RATE);
	CHECK(cuStreamCreate(&stream_in, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&stream_out, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&stream_load, CU_STREAM_NON_BLOCKING));
	CHECK(cuModuleLoadData(&module, simulated ? (const void *)&sweep_module : sweep_ptx));
	CHECK(cuModuleGetFunction(&sweep, module, "sweep"));
	CHECK(cuModuleLoadData(&module, simulated ? (const void *)&sweep_module : copy_ptx));
	CHECK(cuModuleGetFunction(&copy, module, "copy"));
	CHECK(cuMemAlloc(&swept, simulated ? MIB : SWEPT_BYTES));
	CHECK(cuEventCreate(&begun, 0));
	CHECK(cuEventCreate(&ended_in, 0));
	CHECK(cuEventCreate(&ended_out, 0));
	CHECK(cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	go = word;
	atomic_store(go, 1);
	device_in = mapped(near);
	device_out = mapped(near);
	host_in = mapped(far);
	host_out = mapped(far);
	CHECK(cuMemsetD32(device_out, PATTERN, bytes / sizeof(uint32_t)));
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		measure(i, (unsigned)rounds, simulated ? 3 : 32);
	return 0;
}
