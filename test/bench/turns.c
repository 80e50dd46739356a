// SPDX-License-Identifier: Apache-2.0
/*
 * turns: what it takes to give the memory of one GPU from one process to another. Two processes, each with a context of
 * its own on the first device; the memory of one goes out to pinned host memory while that of the other comes in.
 *
 *   turns [ROUNDS [MIB]]
 *
 * Device memory is in chunks of 16, 32, 64 and 128 MiB (an eighth of that on the simulated GPU), which are made and
 * released as it comes and goes, since only what is released is there for the other process. Host memory is pinned
 * once, in chunks of 128 MiB, which stay mapped at aliases. Who comes in is never ahead of what has been released by
 * more than the room, 256 MiB. MIB: what moves each way; default: 14.4 GiB, but not more than half of what is free on
 * the device, or an eighth of what is available on the host.
 *
 * Each result is a line "name median least most unit" over the switches, or over the chunks. "both": both at once;
 * "alone": first all out, then all in. Of each, with the chunks' size: "switch", from the first copy to the last one;
 * "out" and "in", the rate of each process from its own start to its own end, with the changes of mappings in it; and
 * what a chunk costs meanwhile: "unmap", "release", "create", "map" (with the access). What came in is compared with
 * what went out. Rounds end early after 35 s, so that all of it ends within a minute also on a slow link.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/bench/gpu.h"

#define MOST_CHUNKS 8192
#define AT_A_TIME   4 /* copies out that are on their way; each is released before the next one goes */
#define HOST_CHUNK  (128 * MIB)
#define MARKED      (2 * MIB) /* each of so many bytes gets a word of its own, at its beginning and its end */
#define WANTED      ((size_t)14746 * MIB) /* 14.4 GiB */
#define ROUNDS_NS   35e9

enum mode { BOTH, ALONE, MODES };
static const char *const mode_names[MODES] = {"both", "alone"};
static const size_t chunk_sizes[] = {16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB};
#define SIZES (sizeof(chunk_sizes) / sizeof(chunk_sizes[0]))

struct results {
	struct samples whole, out, in, unmap, release, create, map;
};

/* Of both processes and the one that prints. */
static struct shared {
	_Atomic unsigned arrived, passed; /* at the barrier: processes; times that all were there */
	_Atomic bool failed;              /* one of the processes has ended */
	_Atomic size_t released;          /* bytes, of this switch */
	_Atomic bool goes_on;
	size_t bytes[2]; /* what each process can move */
	double begun[2], ended[2];
	bool simulated;
	struct results results[MODES][SIZES];
} * shared;

static unsigned self; /* 0 or 1; 0 holds the memory at first */
static size_t bytes, room;
static CUdeviceptr device, host;
static CUmemGenericAllocationHandle handles[MOST_CHUNKS];
static CUevent events[AT_A_TIME];
static CUstream stream;
static uint32_t mark;

/* ---- two processes ---- */

/* Gives the other process the processor; ends this one if the other has ended. */
static void wait_a_little(void)
{
	if (atomic_load(&shared->failed))
		exit(1);
	sched_yield();
}

static void meet(void)
{
	unsigned passed = atomic_load(&shared->passed);

	if (atomic_fetch_add(&shared->arrived, 1) == 1) {
		atomic_store(&shared->arrived, 0);
		atomic_fetch_add(&shared->passed, 1);
	}
	while (atomic_load(&shared->passed) == passed)
		wait_a_little();
}

/* ---- memory ---- */

static const CUmemLocation on_device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

static CUmemGenericAllocationHandle make(CUmemLocation where, size_t length)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = where};
	CUmemGenericAllocationHandle handle;

	CHECK(cuMemCreate(&handle, length, &prop, 0));
	return handle;
}

static void map(CUdeviceptr at, size_t length, CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access = {.location = on_device, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	CHECK(cuMemMap(at, length, 0, handle, 0));
	CHECK(cuMemSetAccess(at, length, &access, 1));
}

/* The last chunk may be smaller. */
static size_t length_at(size_t at, size_t chunk)
{
	return bytes - at < chunk ? bytes - at : chunk;
}

static void pin_host(void)
{
	CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
	int node = 0;

	CHECK(cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
	where.id = node > 0 ? node : 0;
	CHECK(cuMemAddressReserve(&host, bytes, 0, 0, 0));
	for (size_t at = 0; at < bytes; at += HOST_CHUNK) {
		CUmemGenericAllocationHandle handle = make(where, length_at(at, HOST_CHUNK));

		map(host + at, length_at(at, HOST_CHUNK), handle);
		CHECK(cuMemRelease(handle));
	}
}

/* The words that change with each switch. */
static void put_marks(void)
{
	mark += 0x10001;
	for (size_t at = 0; at < bytes; at += MARKED) {
		CHECK(cuMemsetD32(device + at, mark ^ (uint32_t)(at / MARKED), 1));
		CHECK(cuMemsetD32(device + at + MARKED - 4, mark ^ (uint32_t)(at / MARKED), 1));
	}
	CHECK(cuCtxSynchronize());
}

static void check_marks(void)
{
	uint32_t word[2];

	for (size_t at = 0; at < bytes; at += MARKED) {
		uint32_t right = mark ^ (uint32_t)(at / MARKED);

		CHECK(cuMemcpyDtoH(&word[0], device + at, 4));
		CHECK(cuMemcpyDtoH(&word[1], device + at + MARKED - 4, 4));
		if (word[0] != right || word[1] != right) {
			fprintf(stderr, "turns: process %u: what came in at %zu MiB is not what went out\n", self,
				at / MIB);
			exit(1);
		}
	}
}

/* ---- a switch ---- */

static void release(size_t at, size_t chunk, struct results *results)
{
	double start = now();

	CHECK(cuMemUnmap(device + at, length_at(at, chunk)));
	double middle = now();
	CHECK(cuMemRelease(handles[at / chunk]));
	if (results) {
		sample(&results->unmap, (middle - start) / 1e3);
		sample(&results->release, (now() - middle) / 1e3);
	}
	atomic_fetch_add(&shared->released, length_at(at, chunk));
}

static void obtain(size_t at, size_t chunk, struct results *results)
{
	double start = now();

	handles[at / chunk] = make(on_device, length_at(at, chunk));
	double middle = now();
	map(device + at, length_at(at, chunk), handles[at / chunk]);
	if (results) {
		sample(&results->create, (middle - start) / 1e3);
		sample(&results->map, (now() - middle) / 1e3);
	}
}

static void go_out(size_t chunk, struct results *results)
{
	size_t begun = 0, done = 0;

	while (done < bytes) {
		for (; begun < bytes && begun < done + AT_A_TIME * chunk; begun += chunk) {
			CHECK(cuMemcpyDtoDAsync(host + begun, device + begun, length_at(begun, chunk), stream));
			CHECK(cuEventRecord(events[begun / chunk % AT_A_TIME], stream));
		}
		CHECK(cuEventSynchronize(events[done / chunk % AT_A_TIME]));
		release(done, chunk, results);
		done += chunk;
	}
}

static void come_in(size_t chunk, struct results *results)
{
	for (size_t at = 0; at < bytes; at += chunk) {
		while (at + length_at(at, chunk) > atomic_load(&shared->released) + room)
			wait_a_little();
		obtain(at, chunk, results);
		CHECK(cuMemcpyDtoDAsync(device + at, host + at, length_at(at, chunk), stream));
	}
	CHECK(cuStreamSynchronize(stream));
}

static void put_results(struct results *results, unsigned leaving)
{
	double out = shared->ended[leaving] - shared->begun[leaving];
	double in = shared->ended[!leaving] - shared->begun[!leaving];
	double first =
	    shared->begun[leaving] < shared->begun[!leaving] ? shared->begun[leaving] : shared->begun[!leaving];
	double last =
	    shared->ended[leaving] > shared->ended[!leaving] ? shared->ended[leaving] : shared->ended[!leaving];

	sample(&results->whole, (last - first) / 1e6);
	sample(&results->out, (double)bytes / out);
	sample(&results->in, (double)bytes / in);
}

static void switch_to(unsigned coming, enum mode mode, size_t chunk, struct results *results)
{
	bool comes = self == coming;

	if (!comes)
		put_marks();
	if (self == 0)
		atomic_store(&shared->released, 0);
	meet();
	if (comes && mode == ALONE)
		meet();
	shared->begun[self] = now();
	if (comes)
		come_in(chunk, results);
	else
		go_out(chunk, results);
	shared->ended[self] = now();
	if (!comes && mode == ALONE)
		meet();
	meet();
	if (comes && mark)
		check_marks();
	if (self == 0)
		put_results(results, !coming);
	meet();
}

/* An even number of switches, so that process 0 has the memory at the end again. */
static void measure(unsigned rounds, enum mode mode, unsigned size, size_t chunk, double until)
{
	struct results *results = &shared->results[mode][size];

	for (unsigned round = 0; round < rounds; round++) {
		if (self == 0)
			atomic_store(&shared->goes_on, round == 0 || now() < until);
		meet();
		if (!atomic_load(&shared->goes_on))
			break;
		switch_to(1, mode, chunk, results);
		switch_to(0, mode, chunk, results);
	}
}

/* ---- the whole ---- */

static size_t host_available(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	unsigned long long kib = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return (size_t)kib * KIB;
}

static size_t choose_bytes(size_t asked)
{
	size_t free_bytes, total, most = simulated ? 64 * MIB : WANTED;

	CHECK(cuMemGetInfo(&free_bytes, &total));
	if (asked)
		most = asked;
	else if (most > host_available() / 8)
		most = host_available() / 8;
	if (most > free_bytes / 2)
		most = free_bytes / 2;
	return most - most % MARKED;
}

static void take_part(unsigned rounds, size_t asked)
{
	gpu_open();
	shared->simulated = simulated;
	shared->bytes[self] = choose_bytes(asked);
	meet();
	bytes = shared->bytes[0] < shared->bytes[1] ? shared->bytes[0] : shared->bytes[1];
	room = simulated ? 32 * MIB : 256 * MIB;
	if (!bytes || bytes / (2 * MIB) > MOST_CHUNKS) {
		fprintf(stderr, "turns: cannot move %zu MiB\n", bytes / MIB);
		exit(1);
	}
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < AT_A_TIME; i++)
		CHECK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	CHECK(cuMemAddressReserve(&device, bytes, 0, 0, 0));
	pin_host();
	meet();
	double until = now() + ROUNDS_NS;
	for (unsigned size = 0; size < SIZES; size++) {
		size_t chunk = simulated ? chunk_sizes[size] / 8 : chunk_sizes[size];

		for (size_t at = 0; self == 0 && at < bytes; at += chunk)
			obtain(at, chunk, NULL);
		for (unsigned mode = 0; mode < MODES; mode++)
			measure(rounds, mode, size, chunk, until);
		for (size_t at = 0; self == 0 && at < bytes; at += chunk)
			release(at, chunk, NULL);
	}
}

static void print_results(void)
{
	print_line("turns_bytes", (double)shared->bytes[0] / MIB, (double)shared->bytes[0] / MIB,
		   (double)shared->bytes[1] / MIB, "MiB");
	for (unsigned size = 0; size < SIZES; size++) {
		for (unsigned mode = 0; mode < MODES; mode++) {
			struct results *results = &shared->results[mode][size];
			const struct {
				struct samples *samples;
				const char *what, *unit;
			} rows[] = {{&results->whole, "switch", "ms"},    {&results->out, "out", "GB/s"},
				    {&results->in, "in", "GB/s"},         {&results->unmap, "unmap", "us"},
				    {&results->release, "release", "us"}, {&results->create, "create", "us"},
				    {&results->map, "map", "us"}};
			size_t chunk = chunk_sizes[size] / (shared->simulated ? 8 : 1);

			for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
				char name[64];

				snprintf(name, sizeof(name), "turns_%s_%zu_%s", mode_names[mode], chunk / MIB,
					 rows[i].what);
				print_samples(rows[i].samples, name, rows[i].unit);
			}
		}
	}
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 3, result = 0, status;
	long asked = argc > 2 ? atol(argv[2]) : 0;

	if (rounds < 1 || rounds > 100 || asked < 0) {
		fprintf(stderr, "usage: turns [ROUNDS [MIB]]\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	/* CUDA does not survive a fork: the driver is opened behind it. */
	for (self = 0; self < 2; self++) {
		pid_t child = fork();

		if (child < 0) {
			atomic_store(&shared->failed, true);
			return 1;
		}
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			take_part((unsigned)rounds, (size_t)asked * MIB);
			exit(0);
		}
	}
	while (wait(&status) > 0) {
		int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;

		if (code)
			atomic_store(&shared->failed, true);
		if (code && !result)
			result = code;
	}
	if (!result)
		print_results();
	return result;
}
