/*
 * doctor_measure.c: measures the link to each device with copies of pinned memory: to the device, to the host, and
 * both at once. Pieces are as large as those that Spillway moves; the measurement uses little memory and time.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor_measure.h"

#define PIECE ((size_t)32 << 20)
/* With less free memory than this, the measurement could disturb other programs. */
#define FREE_LEAST (4 * PIECE)

enum {
	ALL_MS = 1800, /* time for the copies of all devices together */
	ONE_MS = 80,   /* maximum time for one direction of one device */
	AT_ONCE = 2,   /* copies submitted before waiting for them */
};

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name) /* cuMemAlloc is a macro for its newest version */

static const char *const names[MEASURE_N_FUNCTIONS] = {
#define ROW(name) TEXT(name),
    MEASURE_FUNCTIONS(ROW)
#undef ROW
};

struct bench {
	CUstream in, out;
	CUdeviceptr device[2];
	void *host[2];
};

static CUresult set_up(struct bench *bench)
{
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < 2 && !result; i++) {
		result = MEASURE(cuMemAlloc)(&bench->device[i], PIECE);
		if (!result)
			result = MEASURE(cuMemHostAlloc)(&bench->host[i], PIECE, 0);
		if (!result)
			memset(bench->host[i], 0, PIECE);
	}
	if (!result)
		result = MEASURE(cuStreamCreate)(&bench->in, CU_STREAM_NON_BLOCKING);
	return result ? result : MEASURE(cuStreamCreate)(&bench->out, CU_STREAM_NON_BLOCKING);
}

static void tear_down(struct bench *bench)
{
	if (bench->in)
		MEASURE(cuStreamDestroy)(bench->in);
	if (bench->out)
		MEASURE(cuStreamDestroy)(bench->out);
	for (int i = 0; i < 2; i++) {
		if (bench->device[i])
			MEASURE(cuMemFree)(bench->device[i]);
		if (bench->host[i])
			MEASURE(cuMemFreeHost)(bench->host[i]);
	}
}

/* Submits some copies in each wanted direction and waits for them. */
static CUresult round_of(const struct bench *bench, int in, int out)
{
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < AT_ONCE && !result; i++) {
		if (in)
			result = MEASURE(cuMemcpyHtoDAsync)(bench->device[0], bench->host[0], PIECE, bench->in);
		if (out && !result)
			result = MEASURE(cuMemcpyDtoHAsync)(bench->host[1], bench->device[1], PIECE, bench->out);
	}
	CUresult end_in = MEASURE(cuStreamSynchronize)(bench->in), end_out = MEASURE(cuStreamSynchronize)(bench->out);
	return result ? result : end_in ? end_in : end_out;
}

/* Returns bytes per second, both directions added. The first round is only a warm-up. */
static CUresult rate_of(const struct bench *bench, int in, int out, double for_seconds, double *ret_rate)
{
	CUresult result = round_of(bench, in, out);
	double start = measure_seconds(), end = start;
	size_t bytes = 0;

	while (!result && end - start < for_seconds) {
		result = round_of(bench, in, out);
		bytes += AT_ONCE * PIECE * (size_t)(in + out);
		end = measure_seconds();
	}
	if (!result && end > start)
		*ret_rate = (double)bytes / (end - start);
	return result;
}

static CUresult measure_here(struct doctor_gpu *gpu, double for_seconds)
{
	struct bench bench = {0};
	CUresult result = set_up(&bench);

	if (!result)
		result = rate_of(&bench, 1, 0, for_seconds, &gpu->to_device);
	if (!result)
		result = rate_of(&bench, 0, 1, for_seconds, &gpu->to_host);
	if (!result)
		result = rate_of(&bench, 1, 1, for_seconds, &gpu->both);
	tear_down(&bench);
	return result;
}

/*
 * Returns a context of the device, with memory for the copies; NULL if nothing can be measured on it, and records why.
 */
static CUcontext open_device(int ordinal, struct doctor_gpu *gpu)
{
	size_t free = 0, total = 0;
	CUcontext context;
	CUresult result = MEASURE(cuDevicePrimaryCtxRetain)(&context, ordinal);

	if (result) {
		snprintf(gpu->measure_error, sizeof(gpu->measure_error), "no context: error %d", (int)result);
		return NULL;
	}
	result = MEASURE(cuCtxSetCurrent)(context);
	if (!result)
		result = MEASURE(cuMemGetInfo)(&free, &total);
	gpu->free = free;
	if (!result && free >= FREE_LEAST)
		return context;
	if (result)
		snprintf(gpu->measure_error, sizeof(gpu->measure_error), "the driver answered error %d", (int)result);
	else
		snprintf(gpu->measure_error, sizeof(gpu->measure_error), "less than %zu MiB of its memory are free",
			 FREE_LEAST >> 20);
	MEASURE(cuDevicePrimaryCtxRelease)(ordinal);
	return NULL;
}

static void measure_device(CUcontext context, struct doctor_gpu *gpu, double for_seconds)
{
	CUresult result = MEASURE(cuCtxSetCurrent)(context);

	if (!result)
		result = measure_here(gpu, for_seconds);
	if (result)
		snprintf(gpu->measure_error, sizeof(gpu->measure_error), "the driver answered error %d", (int)result);
}

static bool find_functions(void *driver, struct doctor_cuda *cuda, int n)
{
	for (int i = 0; i < MEASURE_N_FUNCTIONS; i++) {
		measure_functions[i] = dlsym(driver, names[i]);
		for (int d = 0; d < n && !measure_functions[i]; d++)
			snprintf(cuda->devices[d].measure_error, sizeof(cuda->devices[d].measure_error),
				 "the driver has no %s", names[i]);
		if (!measure_functions[i])
			return false;
	}
	return true;
}

/*
 * Contexts are kept until everything is measured, because creating one takes longer than the copies. NULL: not
 * measured.
 */
static CUcontext contexts[DOCTOR_DEVICES];

void doctor_measure(void *driver, struct doctor_cuda *cuda)
{
	int n = cuda->n_devices < DOCTOR_DEVICES ? cuda->n_devices : DOCTOR_DEVICES;
	double share = (double)ALL_MS / 3 / (n ? n : 1);

	if (!find_functions(driver, cuda, n))
		return;
	for (int i = 0; i < n; i++) {
		contexts[i] = open_device(i, &cuda->devices[i]);
		if (contexts[i])
			measure_device(contexts[i], &cuda->devices[i], (share < ONE_MS ? share : ONE_MS) / 1000);
	}
}

void doctor_measure_links(double at_most_seconds, struct doctor_cuda *cuda)
{
	measure_peers(cuda, contexts, at_most_seconds);
	for (int i = 0; i < DOCTOR_DEVICES; i++)
		if (contexts[i])
			MEASURE(cuDevicePrimaryCtxRelease)(i);
}
