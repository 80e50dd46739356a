// SPDX-License-Identifier: Apache-2.0
#include "test/preload/vmm_help.h"
#include "test/test.h"

/* ---- processes ---- */

CHILD_FRAME(child_start, vmm_end)

static const char *setting_of(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value && *value ? value : otherwise;
}

const char *vmm_mode(void)
{
	return setting_of("SPILL_MODE", "native");
}

const char *vmm_spill(void)
{
	return setting_of("VMM_SPILL", "no");
}

static void run_in(int (*run)(const char *const *settings, void (*part)(void)), const char *setting, const char *set,
		   void (*part)(void))
{
	bool native = !strcmp(vmm_mode(), "native");
	char text[256];
	const char *settings[] = {"SIM_MEMORY=128MiB", "SIM_DEVICES=2", text, setting, NULL};

	snprintf(text, sizeof(text),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=%zuMiB,host.budget=%zuMiB,vmm.spill=%s,report.summary=no%s",
		 native ? "static" : vmm_mode(), VMM_BUDGET / MIB, VMM_HOST / MIB, vmm_spill(), set);
	assert_int_equal(run(settings, part), 0);
}

void vmm_run_with(const char *setting, const char *set, void (*part)(void))
{
	run_in(child_run, setting, set, part);
}

void vmm_run_bare(void (*part)(void))
{
	run_in(child_run_bare, "SIM_FILL=0", "", part);
}

void vmm_run(void (*part)(void))
{
	vmm_run_with("SIM_FILL=0", "", part);
}

void vmm_end(void)
{
	enum { PIECES = 8 };
	handle_id handle[PIECES];

	MUST(cu.cuCtxSynchronize());
	for (int i = 0; i < PIECES; i++)
		handle[i] = vmm_create(0, VMM_ALL / 12 / GRANULE * GRANULE);
	for (int i = 0; i < PIECES; i++)
		MUST(cu.cuMemRelease(handle[i]));
	CHECK(sim_broken_rules() == 0);
	if (!strcmp(vmm_mode(), "native")) {
		struct sim_live live = sim_live();

		CHECK(!live.handles && !live.mappings && !live.reservations);
	}
}

/* ---- memory ---- */

handle_id vmm_create(int device, size_t bytes)
{
	const CUmemAllocationProp prop = form_memory(device);
	handle_id handle;

	MUST(cu.cuMemCreate(&handle, bytes, &prop, 0));
	return handle;
}

CUdeviceptr vmm_reserve(size_t bytes)
{
	CUdeviceptr at;

	MUST(cu.cuMemAddressReserve(&at, bytes, 0, 0, 0));
	CHECK(at && at % GRANULE == 0);
	return at;
}

CUresult vmm_access(CUdeviceptr at, size_t bytes, int device, CUmemAccess_flags flags)
{
	const CUmemAccessDesc desc = form_access(device, flags);

	return cu.cuMemSetAccess(at, bytes, &desc, 1);
}

CUmemAccess_flags vmm_access_of(CUdeviceptr at, int device)
{
	const CUmemLocation location = form_location(device);
	unsigned long long flags = 77;

	MUST(cuMemGetAccess(&flags, &location, at));
	return (CUmemAccess_flags)flags;
}

void vmm_map(CUdeviceptr at, size_t bytes, handle_id handle)
{
	MUST(cu.cuMemMap(at, bytes, 0, handle, 0));
	MUST(vmm_access(at, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

void vmm_map_new(CUdeviceptr at, size_t bytes)
{
	handle_id handle = vmm_create(0, bytes);

	vmm_map(at, bytes, handle);
	MUST(cu.cuMemRelease(handle));
}

void vmm_unmap(CUdeviceptr at, size_t bytes)
{
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemUnmap(at, bytes));
}

void vmm_unmap_and_free(CUdeviceptr at, size_t bytes, size_t reserved)
{
	vmm_unmap(at, bytes);
	MUST(cu.cuMemAddressFree(at, reserved));
}

void vmm_press(void)
{
	enum { BLOCKS = 6, ROUNDS = 8 };
	const size_t bytes = VMM_BUDGET / 4;
	CUdeviceptr block[BLOCKS];
	int n = 0;

	/* As many as there is room for: the program itself holds some. */
	while (n < BLOCKS && cu.cuMemAlloc_v2(&block[n], bytes) == CUDA_SUCCESS)
		n++;
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < n; i++)
			vmm_count(NULL, block[i], (unsigned)(round * BLOCKS + i), bytes / 4);
		MUST(cu.cuCtxSynchronize());
	}
	for (int i = 0; i < n; i++) {
		CHECK(vmm_counts(block[i], (unsigned)((ROUNDS - 1) * BLOCKS + i), bytes / 4));
		MUST(cu.cuMemFree_v2(block[i]));
	}
}

/* ---- words ---- */

static void count_body(const struct sim_launch *launch, void **args)
{
	unsigned *at = *(unsigned **)args[0], value = *(unsigned *)args[1];
	size_t n = *(size_t *)args[2];

	for (size_t i = 0; i < n; i++)
		at[i] = value + (unsigned)i;
}

SIM_MODULE(image, SIM_KERNEL("count", count_body, sizeof(CUdeviceptr), sizeof(unsigned), sizeof(size_t)));

CUfunction vmm_kernel(void)
{
	static __thread CUfunction function;
	static __thread CUcontext of;

	CUcontext context = driver_current();
	if (function && of == context)
		return function;
	function = driver_function(&image, "count");
	of = context;
	return function;
}

void vmm_count(CUstream stream, CUdeviceptr at, unsigned value, size_t n)
{
	void *params[] = {&at, &value, &n};

	MUST(cu.cuLaunchKernel(vmm_kernel(), 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static unsigned *counted(unsigned value, size_t n)
{
	unsigned *words = malloc(n * sizeof(*words));

	for (size_t i = 0; i < n; i++)
		words[i] = value + (unsigned)i;
	return words;
}

void vmm_write(CUdeviceptr at, unsigned value, size_t n)
{
	unsigned *words = counted(value, n);

	MUST(cu.cuMemcpyHtoD_v2(at, words, n * sizeof(*words)));
	free(words);
}

bool vmm_counts(CUdeviceptr at, unsigned value, size_t n)
{
	unsigned *words = counted(value, n), *got = calloc(n, sizeof(*got));

	MUST(cu.cuMemcpyDtoH_v2(got, at, n * sizeof(*got)));
	bool same = !memcmp(words, got, n * sizeof(*got));
	for (size_t i = 0; i < n && !same; i++) {
		if (words[i] == got[i])
			continue;
		printf("word %zu at %#llx is %#x, not %#x\n", i, at, got[i], words[i]);
		break;
	}
	free(words);
	free(got);
	return same;
}

/* Handles of unequal vmm_sizes, one behind the other. */
const size_t vmm_sizes[VMM_SIZES] = {2 * MIB, 6 * MIB, 2 * MIB, 10 * MIB, 4 * MIB, 2 * MIB, 14 * MIB, 8 * MIB};

CUdeviceptr vmm_segment(void)
{
	CUdeviceptr at = vmm_reserve(64 * MIB), next = at;

	for (int i = 0; i < VMM_SIZES; next += vmm_sizes[i++])
		vmm_map_new(next, vmm_sizes[i]);
	CHECK(next == at + VMM_MIB * MIB);
	return at;
}

void vmm_segment_drop(CUdeviceptr at)
{
	vmm_unmap_and_free(at, VMM_MIB * MIB, 64 * MIB);
}
