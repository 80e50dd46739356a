// SPDX-License-Identifier: Apache-2.0
/*
 * faults_check: on a real GPU, does the library count the migrations of managed memory that CUPTI counts? The core of
 * the library is linked in, nothing is preloaded; CUPTI is loaded at run time, so no part of the toolkit is needed to
 * build.
 *
 *   faults_check [MIB]        64; never more than 256, and never more than an eighth of the device: a managed working
 *                             set that does not fit can wedge a GPU for everyone
 *
 * CUPTI_LIBRARY=path where libcupti.so is not found by itself. SPILLWAY_SET=faults=events compares the events, too.
 *
 * The memory is written by the CPU, changed by a kernel, read by the CPU, prefetched there and back, and changed again.
 * Bytes each way must be equal. Numbers of faults are printed side by side, for they are not the same thing: the driver
 * counts a GPU fault for each one that it serves, CUPTI has a record for each page with the number of groups of faults
 * on it; a CPU fault is a record with CUPTI, and one count with the driver.
 *
 * Exit status: 0 equal, 1 not, or a call failed, 77 no GPU, no CUPTI, or no managed memory that both sides may use.
 */
#include "shim/driver/real.h"
#include "shim/faults/faults.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/serve/serve.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
enum { SKIP = 77, MIB_MOST = 256, ROUNDS = 2 };

/* ---- CUPTI, as much of it as is needed ---- */

enum { UNIFIED_MEMORY_COUNTER = 25, PROCESS_SINGLE_DEVICE = 1, FLUSH_FORCED = 1 };
enum { COUNTS_IN = 1, COUNTS_OUT = 2, COUNTS_CPU = 3, COUNTS_GPU = 4 };
struct cupti_config {
	int scope, kind;
	uint32_t device, enable;
};
/* How every version of the record begins. */
struct cupti_record {
	int kind, counter;
	uint64_t value;
};
typedef void cupti_request(uint8_t **buffer, size_t *bytes, size_t *n_most);
typedef void cupti_complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid);

static struct {
	int (*register_callbacks)(cupti_request *request, cupti_complete *complete);
	int (*configure)(struct cupti_config *config, uint32_t n);
	int (*enable)(int kind);
	int (*flush)(uint32_t flag);
	int (*next)(uint8_t *buffer, size_t valid, struct cupti_record **record);
} cupti;

static struct {
	uint64_t bytes_in, bytes_out, cpu_records, gpu_records, gpu_groups;
} by_cupti;

static void *symbol(void *library, const char *name)
{
	void *address = dlsym(library, name);

	if (!address) {
		printf("faults_check: no %s\n", name);
		exit(1);
	}
	return address;
}

static bool open_cupti(void)
{
	const char *const names[] = {getenv("CUPTI_LIBRARY"), "libcupti.so.13", "libcupti.so.12", "libcupti.so"};
	void *library = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !library; i++)
		library = names[i] ? dlopen(names[i], RTLD_NOW) : NULL;
	if (!library)
		return false;
	cupti.register_callbacks = symbol(library, "cuptiActivityRegisterCallbacks");
	cupti.configure = symbol(library, "cuptiActivityConfigureUnifiedMemoryCounter");
	cupti.enable = symbol(library, "cuptiActivityEnable");
	cupti.flush = symbol(library, "cuptiActivityFlushAll");
	cupti.next = symbol(library, "cuptiActivityGetNextRecord");
	return true;
}

static void request(uint8_t **buffer, size_t *bytes, size_t *n_most)
{
	*bytes = 4 * MIB;
	*buffer = aligned_alloc(64, *bytes);
	*n_most = 0;
}

static void complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
	struct cupti_record *record = NULL;

	(void)context;
	(void)stream;
	(void)bytes;
	while (valid && !cupti.next(buffer, valid, &record)) {
		if (record->kind != UNIFIED_MEMORY_COUNTER)
			continue;
		by_cupti.bytes_in += record->counter == COUNTS_IN ? record->value : 0;
		by_cupti.bytes_out += record->counter == COUNTS_OUT ? record->value : 0;
		by_cupti.cpu_records += record->counter == COUNTS_CPU;
		by_cupti.gpu_records += record->counter == COUNTS_GPU;
		by_cupti.gpu_groups += record->counter == COUNTS_GPU ? record->value : 0;
	}
	free(buffer);
}

static bool start_cupti(void)
{
	struct cupti_config configs[4];

	for (int i = 0; i < 4; i++)
		configs[i] = (struct cupti_config){PROCESS_SINGLE_DEVICE, COUNTS_IN + i, 0, 1};
	return !cupti.register_callbacks(request, complete) && !cupti.configure(configs, 4) &&
	       !cupti.enable(UNIFIED_MEMORY_COUNTER);
}

/* ---- the GPU ---- */

#define MUST(call)                                                                                                     \
	do {                                                                                                           \
		CUresult must_result = (call);                                                                         \
		if (must_result != CUDA_SUCCESS) {                                                                     \
			printf("faults_check: %s: %s\n", #call, real_error_name(must_result));                         \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* Word i becomes word i + 1, for all n words, by however many threads there are. */
static const char ptx[] = ".version 6.0\n"
			  ".target sm_60\n"
			  ".address_size 64\n"
			  ".visible .entry add_one(.param .u64 at, .param .u64 n)\n"
			  "{\n"
			  "  .reg .pred %p;\n"
			  "  .reg .b32 %r<5>;\n"
			  "  .reg .b64 %d<7>;\n"
			  "  ld.param.u64 %d0, [at];\n"
			  "  ld.param.u64 %d1, [n];\n"
			  "  mov.u32 %r0, %ctaid.x;\n"
			  "  mov.u32 %r1, %ntid.x;\n"
			  "  mov.u32 %r2, %tid.x;\n"
			  "  mov.u32 %r3, %nctaid.x;\n"
			  "  mad.wide.u32 %d2, %r0, %r1, 0;\n"
			  "  cvt.u64.u32 %d3, %r2;\n"
			  "  add.u64 %d2, %d2, %d3;\n"
			  "  mul.wide.u32 %d4, %r3, %r1;\n"
			  "again:\n"
			  "  setp.ge.u64 %p, %d2, %d1;\n"
			  "  @%p bra done;\n"
			  "  shl.b64 %d5, %d2, 2;\n"
			  "  add.u64 %d6, %d0, %d5;\n"
			  "  ld.global.u32 %r4, [%d6];\n"
			  "  add.u32 %r4, %r4, 1;\n"
			  "  st.global.u32 [%d6], %r4;\n"
			  "  add.u64 %d2, %d2, %d4;\n"
			  "  bra again;\n"
			  "done:\n"
			  "  ret;\n"
			  "}\n";

static struct {
	CUresult (*init)(unsigned flags);
	CUresult (*retain)(CUcontext *context, CUdevice device);
	CUresult (*set_current)(CUcontext context);
	CUresult (*load)(CUmodule *module, const void *image);
	CUresult (*get_function)(CUfunction *function, CUmodule module, const char *name);
} driver;

/* False: there is no GPU here that can do it. */
static bool open_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	int concurrent = 0;

	if (!library || !real_bind())
		return false;
	driver.init = symbol(library, "cuInit");
	driver.retain = symbol(library, "cuDevicePrimaryCtxRetain");
	driver.set_current = symbol(library, "cuCtxSetCurrent");
	driver.load = symbol(library, "cuModuleLoadData");
	driver.get_function = symbol(library, "cuModuleGetFunction");
	return driver.init(0) == CUDA_SUCCESS &&
	       REAL(cuDeviceGetAttribute)(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0) ==
		   CUDA_SUCCESS &&
	       concurrent;
}

static void add_one(CUfunction function, CUdeviceptr at, size_t n)
{
	uint64_t words = n;
	void *args[] = {&at, &words};

	MUST(REAL(cuLaunchKernel)(function, 256, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
	MUST(REAL(cuCtxSynchronize)());
}

static bool holds(const volatile uint32_t *words, size_t n, uint32_t more)
{
	for (size_t i = 0; i < n; i++)
		if (words[i] != (uint32_t)i + more)
			return false;
	return true;
}

/* Everything that moves pages. */
static bool use(CUfunction function, CUdeviceptr at, size_t bytes)
{
	volatile uint32_t *words = (uint32_t *)(uintptr_t)at;
	size_t n = bytes / 4;
	bool right = true;

	for (size_t i = 0; i < n; i++)
		words[i] = (uint32_t)i;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		add_one(function, at, n);
		right = right && holds(words, n, 2 * round + 1);
		MUST(REAL(cuMemPrefetchAsync)(at, bytes, 0, NULL));
		MUST(REAL(cuCtxSynchronize)());
		add_one(function, at, n);
		MUST(REAL(cuMemPrefetchAsync)(at, bytes, CU_DEVICE_CPU, NULL));
		MUST(REAL(cuCtxSynchronize)());
		right = right && holds(words, n, 2 * round + 2);
	}
	return right;
}

/* ---- side by side ---- */

static bool row(const char *name, uint64_t ours, uint64_t theirs, bool must_be_equal)
{
	char text[32] = "n/a";

	if (ours != STATS_NA)
		snprintf(text, sizeof(text), "%llu", (unsigned long long)ours);
	bool good = !must_be_equal || (ours == theirs && ours);
	printf("  %-34s %14s %14llu%s\n", name, text, (unsigned long long)theirs, good ? "" : "  NOT EQUAL");
	return good;
}

/* Of all events, under the lock of the queue. */
static struct {
	uint64_t bytes_in, bytes_out, gpu_faults, cpu_faults;
} events;

static void count_event(const struct fault_event *event)
{
	events.gpu_faults += event->kind == FAULT_OF_GPU;
	events.cpu_faults += event->kind == FAULT_OF_CPU;
	if (event->kind == FAULT_MIGRATION && event->from == FAULT_HOST)
		events.bytes_in += event->bytes;
	if (event->kind == FAULT_MIGRATION && event->device == FAULT_HOST)
		events.bytes_out += event->bytes;
}

static bool compare(void)
{
	uint64_t seen[FAULT_COUNT];
	char line[STATS_LINE];

	faults_read(0, seen);
	printf("source: %s\n  %-34s %14s %14s\n", faults_source(line, sizeof(line)), "", "counted", "CUPTI");
	bool good = row("bytes to the device", seen[FAULT_IN_BYTES], by_cupti.bytes_in, true);
	good &= row("bytes to the host", seen[FAULT_OUT_BYTES], by_cupti.bytes_out, true);
	row("GPU faults / records", seen[FAULT_GPU], by_cupti.gpu_records, false);
	row("GPU faults / groups in records", seen[FAULT_GPU], by_cupti.gpu_groups, false);
	row("CPU faults / records", seen[FAULT_CPU], by_cupti.cpu_records, false);
	faults_poll();
	if (!atomic_load(&faults_queue_on))
		return good;
	row("events: bytes to the device", events.bytes_in, by_cupti.bytes_in, false);
	row("events: bytes to the host", events.bytes_out, by_cupti.bytes_out, false);
	row("events: GPU faults / groups", events.gpu_faults, by_cupti.gpu_groups, false);
	row("events: CPU faults / records", events.cpu_faults, by_cupti.cpu_records, false);
	return good;
}

int main(int argc, char **argv)
{
	size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 64, total = 0;
	CUdeviceptr at;
	CUcontext context;
	CUmodule module;
	CUfunction function;

	if (argc > 2 || !mib || mib > MIB_MOST) {
		printf("usage: faults_check [MIB]: 1 to %d\n", MIB_MOST);
		return 2;
	}
	if (!open_driver() || !open_cupti()) {
		printf("faults_check: no GPU with concurrent managed memory, or no libcupti: not checked\n");
		return SKIP;
	}
	if (!start_cupti()) {
		printf("faults_check: CUPTI refuses to count (does a profiler hold it?): not checked\n");
		return SKIP;
	}
	MUST(driver.retain(&context, 0));
	MUST(driver.set_current(context));
	MUST(REAL(cuDeviceTotalMem_v2)(&total, 0));
	if (mib * MIB > total / 8) {
		printf("faults_check: %zu MiB are too much for this device\n", mib);
		return 2;
	}
	MUST(driver.load(&module, ptx));
	MUST(driver.get_function(&function, module, "add_one"));
	if (lifecycle_start() != STAGE_RUNNING) {
		printf("faults_check: the policy is not good\n");
		return 1;
	}
	faults_listen(count_event); /* the library listens itself until then */
	MUST(typed_alloc_managed(&at, mib * MIB, CU_MEM_ATTACH_GLOBAL, NULL));
	bool right = use(function, at, mib * MIB);
	cupti.flush(FLUSH_FORCED);
	if (!right)
		printf("faults_check: the contents are WRONG\n");
	bool equal = compare();
	MUST(REAL(cuMemFree_v2)(at));
	return right && equal ? 0 : 1;
}
