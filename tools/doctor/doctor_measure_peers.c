/*
 * doctor_measure_peers.c: measures copies from each device to each other one. Only two devices at a time have access
 * to each other, if they can, so that no platform limit is exceeded. If they cannot, the driver copies through the
 * host, and the rate of that is measured.
 */
#include <stdlib.h>

#include "tools/doctor/doctor_measure.h"

#define BLOCK ((size_t)64 << 20)

enum {
	ALL_MS = 2000, /* time for all pairs together, if no link is slower than expected */
	SAMPLES = 5,   /* maximum number of samples of one direction; at least one is taken, whatever its time */
	AT_ONCE = 2,   /* copies in one sample */
};

/* One device with a block as source and target of copies. context NULL: not measured. */
struct side {
	CUcontext context;
	CUdeviceptr block;
	CUstream stream;
};

static CUresult set_up(struct side *side)
{
	CUresult result = MEASURE(cuCtxSetCurrent)(side->context);

	if (!result)
		result = MEASURE(cuMemAlloc)(&side->block, BLOCK);
	return result ? result : MEASURE(cuStreamCreate)(&side->stream, CU_STREAM_NON_BLOCKING);
}

static void tear_down(const struct side *side)
{
	if (!side->context || MEASURE(cuCtxSetCurrent)(side->context))
		return;
	if (side->stream)
		MEASURE(cuStreamDestroy)(side->stream);
	if (side->block)
		MEASURE(cuMemFree)(side->block);
}

/* Enables or disables one device's access to the memory of the other. */
static CUresult measure_peers_reach(const struct side *one, const struct side *other, bool enable)
{
	CUresult result = MEASURE(cuCtxSetCurrent)(one->context);

	if (!result)
		result = enable ? MEASURE(cuCtxEnablePeerAccess)(other->context, 0)
				: MEASURE(cuCtxDisablePeerAccess)(other->context);
	return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : result;
}

static CUresult measure_peers_sample(const struct side *from, const struct side *to, double *ret_seconds)
{
	double start = measure_seconds();
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < AT_ONCE && !result; i++)
		result =
		    MEASURE(cuMemcpyPeerAsync)(to->block, to->context, from->block, from->context, BLOCK, from->stream);
	CUresult end = MEASURE(cuStreamSynchronize)(from->stream);
	*ret_seconds = measure_seconds() - start;
	return result ? result : end;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns the median of some samples; the first copies are only a warm-up. */
static CUresult rate_of(const struct side *from, const struct side *to, double for_seconds, double *ret_rate)
{
	double taken[SAMPLES] = {0}, warm, start = measure_seconds();
	CUresult result = MEASURE(cuCtxSetCurrent)(from->context);
	int n = 0;

	if (!result)
		result = measure_peers_sample(from, to, &warm);
	while (!result && n < SAMPLES && (!n || measure_seconds() - start < for_seconds))
		result = measure_peers_sample(from, to, &taken[n++]);
	if (result)
		return result;
	qsort(taken, (size_t)n, sizeof(*taken), by_value);
	if (taken[n / 2] > 0)
		*ret_rate = AT_ONCE * (double)BLOCK / taken[n / 2];
	return CUDA_SUCCESS;
}

/* Measures both directions between two devices. */
static void measure_pair(struct doctor_cuda *cuda, const struct side *sides, int a, int b, double for_seconds)
{
	bool ab = cuda->devices[a].peers >> b & 1, ba = cuda->devices[b].peers >> a & 1;
	struct doctor_link *to_b = &cuda->devices[a].links[b], *to_a = &cuda->devices[b].links[a];
	CUresult opened_ab = ab ? measure_peers_reach(&sides[a], &sides[b], true) : CUDA_SUCCESS;
	CUresult opened_ba = ba ? measure_peers_reach(&sides[b], &sides[a], true) : CUDA_SUCCESS;

	/* If access cannot be enabled although it should, the rate would be that of another path. */
	to_b->error = to_a->error = (int)(opened_ab ? opened_ab : opened_ba);
	if (!to_b->error) {
		to_b->error = (int)rate_of(&sides[a], &sides[b], for_seconds, &to_b->rate);
		to_a->error = (int)rate_of(&sides[b], &sides[a], for_seconds, &to_a->rate);
	}
	if (ab && !opened_ab)
		measure_peers_reach(&sides[a], &sides[b], false);
	if (ba && !opened_ba)
		measure_peers_reach(&sides[b], &sides[a], false);
}

static void fail_all(struct doctor_cuda *cuda, int device, int n, CUresult result)
{
	for (int i = 0; i < n; i++)
		if (i != device)
			cuda->devices[device].links[i].error = cuda->devices[i].links[device].error = (int)result;
}

void measure_peers(struct doctor_cuda *cuda, const CUcontext *contexts, double at_most_seconds)
{
	int n = cuda->n_devices < DOCTOR_LINKED ? cuda->n_devices : DOCTOR_LINKED;
	struct side sides[DOCTOR_LINKED] = {0};
	double start = measure_seconds();

	if (n < 2)
		return;
	for (int i = 0; i < n; i++) {
		sides[i].context = contexts[i];
		CUresult result = sides[i].context ? set_up(&sides[i]) : CUDA_SUCCESS;

		if (!result)
			continue;
		fail_all(cuda, i, n, result);
		tear_down(&sides[i]);
		sides[i].context = NULL;
	}
	for (int a = 0; a < n; a++)
		for (int b = a + 1; b < n; b++) {
			if (!sides[a].context || !sides[b].context)
				continue;
			if (measure_seconds() - start < at_most_seconds)
				measure_pair(cuda, sides, a, b, ALL_MS / 1000.0 / (n * (n - 1)));
			else
				cuda->devices[a].links[b].error = cuda->devices[b].links[a].error = DOCTOR_LINK_LATE;
		}
	for (int i = 0; i < n; i++)
		tear_down(&sides[i]);
}
