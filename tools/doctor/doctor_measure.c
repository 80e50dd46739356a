/*
 * doctor_measure.c: measures the link to each device with copies of pinned memory (to the device, to the host, and both
 * at once), then the links between devices. Runs in the child of doctor_cuda.c, which has one thread. Pieces are as large
 * as those that Spillway moves; the measurement uses little memory and time.
 *
 * Only two devices at a time have access to each other, if they can, so that no platform limit is exceeded. If they
 * cannot, the driver copies through the host, and the rate of that is measured.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "shim/base/clock.h"
#include "tools/doctor/doctor_cuda.h"

#define PIECE ((size_t)32 << 20)
/* With less free memory than this, the measurement could disturb other programs. */
#define FREE_LEAST (4 * PIECE)

enum {
	ALL_MS = 600, /* time for the copies of all devices in one direction */
	ONE_MS = 80,  /* maximum time for one direction of one device */
	PEER_MS = 20, /* for one direction between two devices */
	AT_ONCE = 4,  /* copies submitted before waiting for them: a round */
};

#define FUNCTIONS(ROW)                                                                                                 \
	ROW(cuDevicePrimaryCtxRetain)                                                                                  \
	ROW(cuDevicePrimaryCtxRelease)                                                                                 \
	ROW(cuCtxSetCurrent)                                                                                           \
	ROW(cuCtxEnablePeerAccess)                                                                                     \
	ROW(cuCtxDisablePeerAccess)                                                                                    \
	ROW(cuMemGetInfo)                                                                                              \
	ROW(cuMemAlloc)                                                                                                \
	ROW(cuMemFree)                                                                                                 \
	ROW(cuMemHostAlloc)                                                                                            \
	ROW(cuMemFreeHost)                                                                                             \
	ROW(cuStreamCreate)                                                                                            \
	ROW(cuStreamDestroy)                                                                                           \
	ROW(cuStreamSynchronize)                                                                                       \
	ROW(cuMemcpyHtoDAsync)                                                                                         \
	ROW(cuMemcpyDtoHAsync)                                                                                         \
	ROW(cuMemcpyPeerAsync)

/* cuMemAlloc and others are macros for their newest versions, here and where a member is called. */
static struct {
#define ROW(name) __typeof__(&name) name;
	FUNCTIONS(ROW)
#undef ROW
} driver;

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

static const struct {
	const char *name;
	void *member;
} functions[] = {
#define ROW(name) {TEXT(name), &driver.name},
    FUNCTIONS(ROW)
#undef ROW
};

/* Returns the name of a function that the driver does not have; NULL if it has all. */
static const char *find_functions(void *library)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *function = dlsym(library, functions[i].name);

		if (!function)
			return functions[i].name;
		memcpy(functions[i].member, &function, sizeof(function));
	}
	return NULL;
}

/*
 * One device with what is copied from and to. context NULL: it is not measured. All is kept until everything is measured,
 * because creating a context takes longer than the copies.
 */
struct side {
	CUcontext context;
	CUdeviceptr block[2];
	CUstream in, out;
};
static struct side sides[DOCTOR_DEVICES];

static void close_side(int ordinal)
{
	struct side *side = &sides[ordinal];

	if (!side->context)
		return;
	driver.cuCtxSetCurrent(side->context);
	if (side->in)
		driver.cuStreamDestroy(side->in);
	if (side->out)
		driver.cuStreamDestroy(side->out);
	for (int i = 0; i < 2; i++)
		if (side->block[i])
			driver.cuMemFree(side->block[i]);
	driver.cuDevicePrimaryCtxRelease(ordinal);
	*side = (struct side){0};
}

/* Returns whether the device can be measured; records why if not. */
static bool open_side(int ordinal, struct doctor_gpu *gpu)
{
	struct side *side = &sides[ordinal];
	size_t free = 0, total = 0;
	CUresult result = driver.cuDevicePrimaryCtxRetain(&side->context, ordinal);

	if (result) {
		side->context = NULL;
		snprintf(gpu->measure_error, sizeof(gpu->measure_error), "no context: error %d", (int)result);
		return false;
	}
	result = driver.cuCtxSetCurrent(side->context);
	if (!result)
		result = driver.cuMemGetInfo(&free, &total);
	gpu->free = free;
	if (!result && free < FREE_LEAST) {
		snprintf(gpu->measure_error, sizeof(gpu->measure_error), "less than %zu MiB of its memory are free",
			 FREE_LEAST >> 20);
		close_side(ordinal);
		return false;
	}
	for (int i = 0; i < 2 && !result; i++)
		result = driver.cuMemAlloc(&side->block[i], PIECE);
	if (!result)
		result = driver.cuStreamCreate(&side->in, CU_STREAM_NON_BLOCKING);
	if (!result)
		result = driver.cuStreamCreate(&side->out, CU_STREAM_NON_BLOCKING);
	if (!result)
		return true;
	snprintf(gpu->measure_error, sizeof(gpu->measure_error), "the driver answered error %d", (int)result);
	close_side(ordinal);
	return false;
}

/* What is copied at once between a device and host memory (NULL: not in this direction), or to another device. */
struct flow {
	const struct side *side;
	void *in, *out;
	const struct side *to;
};

static CUresult round_of(const struct flow *flow)
{
	const struct side *side = flow->side, *to = flow->to;
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < AT_ONCE && !result; i++) {
		if (flow->in)
			result = driver.cuMemcpyHtoDAsync(side->block[0], flow->in, PIECE, side->in);
		if (flow->out && !result)
			result = driver.cuMemcpyDtoHAsync(flow->out, side->block[1], PIECE, side->out);
		if (to)
			result = driver.cuMemcpyPeerAsync(to->block[0], to->context, side->block[0], side->context,
							  PIECE, side->in);
	}
	CUresult end_in = driver.cuStreamSynchronize(side->in), end_out = driver.cuStreamSynchronize(side->out);
	return result ? result : end_in ? end_in : end_out;
}

/* Measures bytes per second, all directions added. The first round is only a warm-up; at least one more is made. */
static CUresult rate_of(const struct flow *flow, double for_ms, double *ret_rate)
{
	CUresult result = driver.cuCtxSetCurrent(flow->side->context);
	uint64_t start, end;
	double rounds = 0;

	if (!result)
		result = round_of(flow);
	start = end = clock_now();
	while (!result && (double)(end - start) < for_ms * 1e6) {
		result = round_of(flow);
		rounds++;
		end = clock_now();
	}
	if (!result && end > start)
		*ret_rate = rounds * AT_ONCE * (double)PIECE * (!!flow->in + !!flow->out + !!flow->to) * 1e9 /
			    (double)(end - start);
	return result;
}

static void measure_device(const struct side *side, struct doctor_gpu *gpu, double for_ms)
{
	void *host[2] = {0};
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < 2 && !result; i++) {
		result = driver.cuMemHostAlloc(&host[i], PIECE, 0);
		if (!result)
			memset(host[i], 0, PIECE);
	}
	if (!result)
		result = rate_of(&(struct flow){.side = side, .in = host[0]}, for_ms, &gpu->to_device);
	if (!result)
		result = rate_of(&(struct flow){.side = side, .out = host[1]}, for_ms, &gpu->to_host);
	if (!result)
		result = rate_of(&(struct flow){.side = side, .in = host[0], .out = host[1]}, for_ms, &gpu->both);
	for (int i = 0; i < 2; i++)
		if (host[i])
			driver.cuMemFreeHost(host[i]);
	if (result)
		snprintf(gpu->measure_error, sizeof(gpu->measure_error), "the driver answered error %d", (int)result);
}

void doctor_measure(void *library, struct doctor_cuda *cuda)
{
	int n = cuda->n_devices < DOCTOR_DEVICES ? cuda->n_devices : DOCTOR_DEVICES;
	const char *lacking = find_functions(library);

	for (int i = 0; i < n; i++) {
		struct doctor_gpu *gpu = &cuda->devices[i];

		if (lacking)
			snprintf(gpu->measure_error, sizeof(gpu->measure_error), "the driver has no %s", lacking);
		else if (open_side(i, gpu))
			measure_device(&sides[i], gpu, ALL_MS / n < ONE_MS ? ALL_MS / n : ONE_MS);
	}
}

/* ---- between devices ---- */

/* Enables or disables one device's access to the memory of the other, if it can have any. */
static CUresult give_access(const struct doctor_cuda *cuda, int one, int other, bool enable)
{
	CUresult result;

	if (!(cuda->devices[one].peers >> other & 1))
		return CUDA_SUCCESS;
	result = driver.cuCtxSetCurrent(sides[one].context);
	if (!result)
		result = enable ? driver.cuCtxEnablePeerAccess(sides[other].context, 0)
				: driver.cuCtxDisablePeerAccess(sides[other].context);
	return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : result;
}

static void measure_pair(struct doctor_cuda *cuda, int a, int b)
{
	struct doctor_link *to_b = &cuda->devices[a].links[b], *to_a = &cuda->devices[b].links[a];
	CUresult ab = give_access(cuda, a, b, true), ba = give_access(cuda, b, a, true);

	/* If access cannot be enabled although it should, the rate would be that of another path. */
	to_b->error = to_a->error = (int)(ab ? ab : ba);
	if (!to_b->error) {
		to_b->error = (int)rate_of(&(struct flow){.side = &sides[a], .to = &sides[b]}, PEER_MS, &to_b->rate);
		to_a->error = (int)rate_of(&(struct flow){.side = &sides[b], .to = &sides[a]}, PEER_MS, &to_a->rate);
	}
	if (!ab)
		give_access(cuda, a, b, false);
	if (!ba)
		give_access(cuda, b, a, false);
}

void doctor_measure_links(double at_most_seconds, struct doctor_cuda *cuda)
{
	int n = cuda->n_devices < DOCTOR_LINKED ? cuda->n_devices : DOCTOR_LINKED;
	uint64_t start = clock_now();

	for (int a = 0; a < n; a++)
		for (int b = a + 1; b < n; b++) {
			if (!sides[a].context || !sides[b].context)
				continue;
			if ((double)(clock_now() - start) < at_most_seconds * 1e9)
				measure_pair(cuda, a, b);
			else
				cuda->devices[a].links[b].error = cuda->devices[b].links[a].error = DOCTOR_LINK_LATE;
		}
	for (int i = 0; i < DOCTOR_DEVICES; i++)
		close_side(i);
}
