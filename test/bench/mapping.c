// SPDX-License-Identifier: Apache-2.0
/*
 * mapping: what a change of a mapping takes beside copies, and what it costs them. The copies are those of `link`'s
 * "vmm" pair, 64 MiB each; beside them a chunk of 64 MiB of device memory is mapped and unmapped, once in the time that
 * a copy takes. On NVIDIA's drivers the change is work of the engine that copies to the host; it has its turn when that
 * engine's stream waits for something, and else when a time slice is over. So copies to the host are also made in
 * parts: with nothing between them; with a wait for a word in host memory, which is 0 while a change is asked for (as
 * shim/mover/link.c does); and with a copy of 4 KiB onto itself. "kernel": a kernel of so many blocks copies to the
 * host instead of the engine, in parts of so many MiB: does a change wait until one of them ends? "remake": the chunk
 * is released and made anew each time, too, as when what comes in is not as long as what went out. "host": 32 or 128
 * MiB of host memory are mapped. "load": beside kernels that read and write device memory as fast as it goes.
 *
 * "fed": copies are given to the driver as the mover does it, two each way at a time, instead of all at once: then a
 * change beside copies to a device that lends waits, too. "by_lender": these copies are made by that device's engines,
 * in a context of its own; nothing that changes here has to wait for those.
 *
 *   mapping [ROUNDS [DEVICE]]
 *
 * With DEVICE memory of that device takes the place of the host's, as with spill.peers.
 *
 * Lines "name median least most unit" over the rounds: NAME_in and NAME_out in GB/s, NAME_map and NAME_unmap in us.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "test/bench/gpu.h"
#include "test/bench/mapping_kernels.h"

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

static const struct {
	const char *name;
	bool in, out, by_lender;
} fed_cases[] = {
    {"in_fed", true, false, false},      {"out_fed", false, true, false},      {"pair_fed", true, true, false},
    {"in_by_lender", true, false, true}, {"out_by_lender", false, true, true},
};

static CUdeviceptr device_in, device_out, host_in, host_out, window;
static CUmemGenericAllocationHandle chunk;
/* For us, and for the device that lends. */
static CUmemAccessDesc access_device[2] = {
    {{.type = CU_MEM_LOCATION_TYPE_DEVICE}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    {{.type = CU_MEM_LOCATION_TYPE_DEVICE}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
};
static unsigned n_access = 1;
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
static double spacing;                                               /* between two changes, ns */
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
	if (*id) {
		far = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = atoi(id)};
		access_device[1].location.id = far.id;
		n_access = 2;
	} else {
		CHECK(cuDeviceGetAttribute(&far.id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
	}
	if (far.id < 0)
		far.id = 0;
}

static CUdeviceptr mapped(CUmemLocation where)
{
	CUdeviceptr at;

	CHECK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	CHECK(cuMemMap(at, bytes, 0, make(where, bytes), 0));
	CHECK(cuMemSetAccess(at, bytes, access_device, n_access));
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

struct results {
	struct samples in, out, maps, unmaps;
};

static void print_results(const char *name, struct results *results)
{
	const struct {
		struct samples *samples;
		const char *what, *unit;
	} rows[] = {{&results->in, "in", "GB/s"},
		    {&results->out, "out", "GB/s"},
		    {&results->maps, "map", "us"},
		    {&results->unmaps, "unmap", "us"}};
	char line[64];

	for (unsigned i = 0; i < 4; i++) {
		snprintf(line, sizeof(line), "%s_%s", name, rows[i].what);
		print_samples(rows[i].samples, line, rows[i].unit);
	}
}

/* ---- changes ---- */

/* What is mapped and unmapped in the window, so many bytes of it. */
static void open_window(CUmemLocation where, size_t length)
{
	changed = length;
	CHECK(cuMemAddressReserve(&window, changed, 0, 0, 0));
	chunk = make(where, changed);
}

static void close_window(void)
{
	CHECK(cuMemRelease(chunk));
	CHECK(cuMemAddressFree(window, changed));
}

/* One change each way; us. */
static void change(bool remakes, struct results *results)
{
	if (remakes) {
		CHECK(cuMemRelease(chunk));
		chunk = make(near, changed);
	}
	double start = now();
	atomic_store(go, 0);
	CHECK(cuMemMap(window, changed, 0, chunk, 0));
	CHECK(cuMemSetAccess(window, changed, access_device, 1));
	atomic_store(go, 1);
	double middle = now();
	CHECK(cuMemUnmap(window, changed));
	sample(&results->maps, (middle - start) / 1e3);
	sample(&results->unmaps, (now() - middle) / 1e3);
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

/* ---- fed ---- */

enum { AT_A_TIME = 2 };

struct feed {
	CUstream stream;
	CUdeviceptr to, from;
	CUevent ended[AT_A_TIME];
	unsigned begun, done;
};

/* In the current context. */
static void feed_open(struct feed *feed, CUdeviceptr to, CUdeviceptr from)
{
	*feed = (struct feed){.to = to, .from = from};
	CHECK(cuStreamCreate(&feed->stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < AT_A_TIME; i++)
		CHECK(cuEventCreate(&feed->ended[i], CU_EVENT_DISABLE_TIMING));
}

static void feed_close(struct feed *feed)
{
	CHECK(cuStreamSynchronize(feed->stream));
	for (unsigned i = 0; i < AT_A_TIME; i++)
		CHECK(cuEventDestroy(feed->ended[i]));
	CHECK(cuStreamDestroy(feed->stream));
}

static void feed_on(struct feed *feed)
{
	while (feed->done < feed->begun && is_over(feed->ended[feed->done % AT_A_TIME]))
		feed->done++;
	while (feed->begun < feed->done + AT_A_TIME) {
		CHECK(cuMemcpyDtoDAsync(feed->to, feed->from, bytes, feed->stream));
		CHECK(cuEventRecord(feed->ended[feed->begun++ % AT_A_TIME], feed->stream));
	}
}

/* So many changes, with time for copies alone before each. */
static void change_beside(unsigned changes, struct feed *const feeds[], CUcontext theirs, struct results *results)
{
	CUcontext ours;

	CHECK(cuCtxGetCurrent(&ours));
	for (unsigned n = 0; n < changes; n++) {
		double until = now() + spacing;

		CHECK(cuCtxSetCurrent(theirs));
		do {
			for (unsigned i = 0; feeds[i]; i++)
				feed_on(feeds[i]);
		} while (now() < until);
		CHECK(cuCtxSetCurrent(ours));
		change(false, results);
	}
}

static void measure_fed(unsigned at, unsigned rounds, unsigned changes)
{
	struct results results = {.in.n = 0};
	struct feed in, out, *feeds[3] = {NULL};
	CUcontext ours, theirs;
	unsigned n = 0;

	CHECK(cuCtxGetCurrent(&ours));
	theirs = ours;
	if (fed_cases[at].by_lender)
		CHECK(cuDevicePrimaryCtxRetain(&theirs, far.id));
	CHECK(cuCtxSetCurrent(theirs));
	feed_open(&in, device_in, host_in);
	feed_open(&out, host_out, device_out);
	CHECK(cuCtxSetCurrent(ours));
	open_window(near, bytes);
	if (fed_cases[at].in)
		feeds[n++] = &in;
	if (fed_cases[at].out)
		feeds[n++] = &out;
	for (unsigned round = 0; round < rounds; round++) {
		unsigned before_in = in.done, before_out = out.done;
		double start = now();

		change_beside(changes, feeds, theirs, &results);
		double ns = now() - start;
		if (fed_cases[at].in)
			sample(&results.in, (double)(in.done - before_in) * (double)bytes / ns);
		if (fed_cases[at].out)
			sample(&results.out, (double)(out.done - before_out) * (double)bytes / ns);
	}
	CHECK(cuCtxSetCurrent(theirs));
	feed_close(&in);
	feed_close(&out);
	CHECK(cuCtxSetCurrent(ours));
	close_window();
	if (theirs != ours)
		CHECK(cuDevicePrimaryCtxRelease(far.id));
	print_results(fed_cases[at].name, &results);
}

/* ---- all at once ---- */

static void put_copies(unsigned at, unsigned copies)
{
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
}

static void measure(unsigned at, unsigned rounds, unsigned copies)
{
	struct results results = {.in.n = 0};

	CHECK(cuMemsetD32(host_out, 0, bytes / sizeof(uint32_t)));
	open_window(cases[at].host ? far : near, !cases[at].host ? bytes : simulated ? 4 * MIB : cases[at].host);
	for (unsigned round = 0; round < rounds; round++) {
		put_copies(at, copies);
		double next = now();
		for (unsigned n = 0; n < copies || !is_over(ended_in) || !is_over(ended_out); n++) {
			while (now() < next)
				;
			next += spacing;
			/* No more changes than copies. */
			if (cases[at].maps && n < copies)
				change(cases[at].remakes, &results);
		}
		if (cases[at].in)
			sample(&results.in, rate(ended_in, copies));
		if (cases[at].out)
			sample(&results.out, rate(ended_out, copies));
	}
	if (cases[at].between == KERNEL)
		check_copy();
	close_window();
	print_results(cases[at].name, &results);
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
	spacing = (double)bytes / (*lender ? NVLINK_RATE : PCIE_RATE);
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
	for (unsigned i = 0; i < sizeof(fed_cases) / sizeof(fed_cases[0]); i++)
		if (*lender || !fed_cases[i].by_lender)
			measure_fed(i, (unsigned)rounds, simulated ? 30 : 32);
	return 0;
}
