// SPDX-License-Identifier: Apache-2.0
#include "test/core/faults_help.h"

static CUfunction fill, look;

static void fill_body(const struct sim_launch *launch, void **args)
{
	for (size_t i = 0; i < *(size_t *)args[1]; i++)
		(*(uint32_t **)args[0])[i] = (uint32_t)i;
}

static void look_body(const struct sim_launch *launch, void **args)
{
	for (size_t i = 0; i < *(size_t *)args[1]; i++)
		(void)__atomic_load_n(*(uint32_t **)args[0] + i, __ATOMIC_RELAXED);
}

SIM_MODULE(image, SIM_KERNEL("fill", fill_body, 8, 8), SIM_KERNEL("look", look_body, 8, 8));

void faults_help_start(void)
{
	static const char *const settings[] = {"SIM_MEMORY=1MiB", NULL};
	CUmodule module;

	core_start(settings);
	CHECK(cuModuleLoadData(&module, &image) == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&fill, module, "fill") == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&look, module, "look") == CUDA_SUCCESS);
}

CUdeviceptr faults_help_managed(size_t bytes)
{
	CUdeviceptr at;

	CHECK(cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
	return at;
}

static void launch(CUfunction function, CUdeviceptr at, size_t bytes)
{
	size_t n = bytes / 4;
	void *args[] = {&at, &n};

	CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL) == CUDA_SUCCESS);
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

void faults_help_write(CUdeviceptr at, size_t bytes)
{
	launch(fill, at, bytes);
}

void faults_help_read(CUdeviceptr at, size_t bytes)
{
	launch(look, at, bytes);
}

void faults_help_cpu(CUdeviceptr at, size_t bytes)
{
	void *out;

	/* Device memory would evict what is managed: to pinned memory, by a copy from what is given as host memory. */
	CHECK(REAL(cuMemHostAlloc)(&out, bytes, 0) == CUDA_SUCCESS);
	CHECK(REAL(cuMemcpyHtoD_v2)((CUdeviceptr)out, (void *)at, bytes) == CUDA_SUCCESS);
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
	CHECK(REAL(cuMemFreeHost)(out) == CUDA_SUCCESS);
}

void faults_help_prefetch(CUdeviceptr at, size_t bytes, CUdevice device)
{
	CHECK(REAL(cuMemPrefetchAsync)(at, bytes, device, NULL) == CUDA_SUCCESS);
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

void faults_help_advise(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUdevice device)
{
	CHECK(REAL(cuMemAdvise)(at, bytes, advice, device) == CUDA_SUCCESS);
}

void faults_help_mix(CUdeviceptr at, size_t bytes, unsigned steps, struct seed *seed)
{
	for (unsigned i = 0; i < steps; i++) {
		size_t from = seed_below(seed, bytes / PAGE), n = 1 + seed_below(seed, 8);
		CUdeviceptr part = at + from * PAGE;
		size_t room = n < bytes / PAGE - from ? n * PAGE : bytes - from * PAGE;

		switch (seed_below(seed, 5)) {
		case 0:
			faults_help_write(part, room);
			break;
		case 1:
			faults_help_read(part, room);
			break;
		case 2:
			faults_help_cpu(part, room);
			break;
		case 3:
			faults_help_prefetch(part, room, seed_below(seed, 2) ? 0 : CU_DEVICE_CPU);
			break;
		default:
			faults_help_advise(
			    part, room,
			    seed_below(seed, 2) ? CU_MEM_ADVISE_SET_READ_MOSTLY : CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0);
			break;
		}
	}
}

static void check_numbers(int device)
{
	struct sim_managed model = sim_managed();
	uint64_t seen[FAULT_COUNT];

	faults_read(device, seen);
	if (seen[FAULT_GPU] != model.gpu_faults || seen[FAULT_CPU] != model.cpu_faults ||
	    seen[FAULT_IN_BYTES] != model.bytes_in || seen[FAULT_OUT_BYTES] != model.bytes_out)
		printf("read %ld %ld %ld %ld, the model has %ld %ld %ld %ld\n", (long)seen[FAULT_GPU],
		       (long)seen[FAULT_CPU], (long)seen[FAULT_IN_BYTES], (long)seen[FAULT_OUT_BYTES],
		       (long)model.gpu_faults, (long)model.cpu_faults, (long)model.bytes_in, (long)model.bytes_out);
	CHECK(seen[FAULT_GPU] == model.gpu_faults && seen[FAULT_CPU] == model.cpu_faults);
	CHECK(seen[FAULT_IN_BYTES] == model.bytes_in && seen[FAULT_OUT_BYTES] == model.bytes_out);
}

int faults_help_check_equal(void)
{
	int n = 0;

	CHECK(cuDeviceGetCount(&n) == CUDA_SUCCESS);
	check_numbers(-1);
	if (n == 1)
		check_numbers(0);
	return 0;
}

void faults_help_check_none(void)
{
	uint64_t seen[FAULT_COUNT];

	for (int device = -2; device < 4; device++) {
		faults_read(device, seen);
		for (int i = 0; i < FAULT_COUNT; i++)
			CHECK(seen[i] == STATS_NA);
	}
}

bool faults_help_source_has(const char *part)
{
	char line[STATS_LINE];

	faults_source(line, sizeof(line));
	CHECK(!strchr(line, '\n'));
	if (!strstr(line, part))
		printf("\"%s\" is not in \"%s\"\n", part, line);
	return strstr(line, part) != NULL;
}
