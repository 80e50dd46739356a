// SPDX-License-Identifier: Apache-2.0
/*
 * link: how fast memory moves between host and device when nothing else does, which is what the step engine's figures
 * are measured against. Copies one way alone, and a pair of them, one each way at once, on two non-blocking streams.
 *
 *   link [ROUNDS [COPIES [DEVICE]]]
 *
 * "pinned": cuMemHostAlloc memory and cuMemAlloc memory, as ordinary programs copy. "vmm": handles of host memory and
 * of device memory, both mapped at GPU addresses and copied by cuMemcpyDtoDAsync, as the spill engine copies. Each
 * result is a line "name median least most unit" over the rounds; "pair" counts the bytes one way until both ways are
 * done, "pair_in" and "pair_out" each until it is done itself. "wide": over 3 GiB each way, all of it in turn. With
 * DEVICE, "lent" alone: memory of that device takes the place of the host's, as with spill.peers.
 */
#include <errno.h>

#include "test/bench/gpu.h"

/*
 * Chunks in turn, so that no copy meets what a cache still holds of the one before. "wide": so many that neither the
 * host's last cache nor the GPU's tables of translations hold what a job of some gigabytes uses in turn.
 */
enum { RING = 6, WIDE = 48 };
static unsigned ring = RING;
static bool wide;

enum kind { PINNED, VMM, LENT, KINDS };
enum way { IN, OUT, WAYS }; /* in: host to device */

static const char *const kind_names[KINDS] = {"pinned", "vmm", "lent"};

/* One buffer at each end, for each place of the ring and each way. */
static struct buffers {
	CUdeviceptr device[WIDE], host[WIDE];
} buffers[WAYS];

static int lender;
static CUstream streams[WAYS];
static CUevent begun, ended[WAYS];

static CUdeviceptr mapped(size_t bytes, CUmemLocation location)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	CHECK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	CHECK(cuMemCreate(&handle, bytes, &prop, 0));
	CHECK(cuMemMap(at, bytes, 0, handle, 0));
	CHECK(cuMemSetAccess(at, bytes, &access, 1));
	CHECK(cuMemRelease(handle));
	return at;
}

static void unmapped(CUdeviceptr at, size_t bytes)
{
	CHECK(cuMemUnmap(at, bytes));
	CHECK(cuMemAddressFree(at, bytes));
}

static CUmemLocation host_location(void)
{
	int node = 0;

	CHECK(cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node > 0 ? node : 0};
}

static CUmemLocation lender_location(void)
{
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = lender};
}

static void buffers_init(enum kind kind, size_t bytes)
{
	struct samples pinning = {.n = 0};
	char name[64];

	for (unsigned i = 0; i < WAYS * ring; i++) {
		struct buffers *b = &buffers[i / ring];
		double start;
		void *host;

		if (kind == PINNED) {
			CHECK(cuMemAlloc(&b->device[i % ring], bytes));
			start = now();
			CHECK(cuMemHostAlloc(&host, bytes, 0));
			b->host[i % ring] = (CUdeviceptr)(uintptr_t)host;
		} else {
			b->device[i % ring] = mapped(bytes, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE});
			start = now();
			b->host[i % ring] = mapped(bytes, kind == LENT ? lender_location() : host_location());
		}
		sample(&pinning, (now() - start) / 1e6 / ((double)bytes / (1024 * (double)MIB)));
	}
	snprintf(name, sizeof(name), "%s%s_pinning_%zu", kind_names[kind], wide ? "_wide" : "", bytes / MIB);
	print_samples(&pinning, name, "ms/GiB");
}

static void buffers_fini(enum kind kind, size_t bytes)
{
	for (unsigned i = 0; i < WAYS * ring; i++) {
		struct buffers *b = &buffers[i / ring];

		if (kind == PINNED) {
			CHECK(cuMemFreeHost((void *)(uintptr_t)b->host[i % ring]));
			CHECK(cuMemFree(b->device[i % ring]));
		} else {
			unmapped(b->host[i % ring], bytes);
			unmapped(b->device[i % ring], bytes);
		}
	}
}

static void copy(enum kind kind, enum way way, unsigned i, size_t bytes)
{
	CUdeviceptr device = buffers[way].device[i % ring], host = buffers[way].host[i % ring];

	if (kind != PINNED)
		CHECK(cuMemcpyDtoDAsync(way == IN ? device : host, way == IN ? host : device, bytes, streams[way]));
	else if (way == IN)
		CHECK(cuMemcpyHtoDAsync(device, (void *)(uintptr_t)host, bytes, streams[way]));
	else
		CHECK(cuMemcpyDtoHAsync((void *)(uintptr_t)host, device, bytes, streams[way]));
}

/* So many copies on each stream asked for; ret_gb_s: the rate of each way, from the common start to its own end. */
static void round_of(enum kind kind, bool in, bool out, unsigned copies, size_t bytes, double ret_gb_s[WAYS])
{
	bool ways[WAYS] = {in, out};

	CHECK(cuCtxSynchronize());
	CHECK(cuEventRecord(begun, streams[in ? IN : OUT]));
	if (in && out)
		CHECK(cuStreamWaitEvent(streams[OUT], begun, 0));
	for (unsigned i = 0; i < copies; i++)
		for (unsigned way = 0; way < WAYS; way++)
			if (ways[way])
				copy(kind, way, i, bytes);
	for (unsigned way = 0; way < WAYS; way++) {
		float ms;

		if (!ways[way])
			continue;
		CHECK(cuEventRecord(ended[way], streams[way]));
		CHECK(cuEventSynchronize(ended[way]));
		CHECK(cuEventElapsedTime(&ms, begun, ended[way]));
		ret_gb_s[way] = (double)copies * (double)bytes / ((double)ms * 1e6);
	}
}

static void measure(enum kind kind, size_t bytes, unsigned rounds, unsigned copies)
{
	static const struct {
		const char *name;
		bool in, out;
	} cases[] = {{"in", true, false}, {"out", false, true}, {"pair", true, true}};
	struct samples rates[WAYS] = {0}, both = {0};
	char name[64];

	for (unsigned c = 0; c < 3; c++) {
		for (unsigned i = 0; i < rounds + 1; i++) {
			double gb_s[WAYS] = {1e9, 1e9};

			round_of(kind, cases[c].in, cases[c].out, copies, bytes, gb_s);
			if (i == 0)
				continue; /* to warm up */
			sample(&rates[IN], gb_s[IN]);
			sample(&rates[OUT], gb_s[OUT]);
			sample(&both, gb_s[IN] < gb_s[OUT] ? gb_s[IN] : gb_s[OUT]);
		}
		snprintf(name, sizeof(name), "%s%s_%s_%zu", kind_names[kind], wide ? "_wide" : "", cases[c].name,
			 bytes / MIB);
		print_samples(&both, name, "GB/s");
		for (unsigned way = 0; way < WAYS; way++) {
			snprintf(name, sizeof(name), "%s%s_pair_%s_%zu", kind_names[kind], wide ? "_wide" : "",
				 cases[way].name, bytes / MIB);
			if (cases[c].in && cases[c].out)
				print_samples(&rates[way], name, "GB/s");
			rates[way].n = 0;
		}
	}
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 7, copies = argc > 2 ? atoi(argv[2]) : 0;
	size_t sizes[] = {32 * MIB, 64 * MIB};

	lender = argc > 3 ? atoi(argv[3]) : 0;
	if (rounds < 1 || rounds > MOST_SAMPLES || copies < 0 || lender < 0) {
		fprintf(stderr, "usage: link [ROUNDS [COPIES [DEVICE]]]\n");
		return 2;
	}
	gpu_open();
	for (unsigned way = 0; way < WAYS; way++) {
		CHECK(cuStreamCreate(&streams[way], CU_STREAM_NON_BLOCKING));
		CHECK(cuEventCreate(&ended[way], 0));
	}
	CHECK(cuEventCreate(&begun, 0));
	for (unsigned s = 0; s < 2; s++) {
		size_t bytes = simulated ? sizes[s] / 16 : sizes[s];

		for (unsigned kind = lender ? LENT : PINNED; kind < (lender ? KINDS : LENT); kind++) {
			buffers_init(kind, bytes);
			measure(kind, bytes, (unsigned)rounds,
				copies ? (unsigned)copies : (unsigned)(2048 * MIB / sizes[s]));
			buffers_fini(kind, bytes);
		}
	}
	if (lender)
		return 0;
	wide = true;
	ring = simulated ? RING : WIDE;
	buffers_init(VMM, simulated ? 2 * MIB : 64 * MIB);
	measure(VMM, simulated ? 2 * MIB : 64 * MIB, (unsigned)rounds, copies ? (unsigned)copies : 2 * WIDE);
	buffers_fini(VMM, simulated ? 2 * MIB : 64 * MIB);
	return 0;
}
