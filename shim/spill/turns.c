/*
 * Which copies a change of a mapping waits for. NVIDIA's driver changes page tables with one of the copy engines, and
 * which one differs from machine to machine: of H200s with the same driver those alone in a machine use the one that
 * copies to the host (0.56 ms a change beside such copies, 0.03 beside those to the device), those of a pair the other
 * (0.03 and 0.56), and neither beside copies to the other GPU over NVLink (test/bench/mapping.c). Cutting the wrong
 * copies into parts costs a GPT job at 1.5 a tenth of its speed in `fast` and a fourteenth in `exact`. So it is measured,
 * once for each place that memory goes to, with the first piece that has come out: nobody reads or writes it then, and as
 * both its chunks hold the same, it can be copied to and fro.
 */
#include "shim/heap/map.h"
#include "shim/real.h"
#include "shim/spill/inside.h"

#include <stdlib.h>
#include <string.h>

/* Copies are queued for about as long as an engine's time slice is: a change that has to wait takes most of that. */
#define QUEUED_NS   1000000
#define QUEUED_MOST 256
#define COPY_MOST   ((uint64_t)32 << 20) /* copies of other lengths may be another engine's work */
#define TRIES       7 /* odd: what most of them took counts, for anything may come between one and its end */
/* A change waits for copies if it takes so many times as long beside them, and so much more. */
#define TIMES   3
#define MORE_NS 100000

struct bench {
	const struct engine *engine;
	const struct transit *transit;
	CUdeviceptr window; /* the device chunk is mapped here a second time, and unmapped */
	CUevent begun;
};

/* ns; UINT64_MAX: refused. */
static uint64_t change(const struct bench *bench)
{
	uint64_t bytes = transit_bytes(bench->transit), start = clock_now();

	if (map_chunk(bench->window, bytes, bench->transit->handle) != CUDA_SUCCESS)
		return UINT64_MAX;
	CUresult result = map_allow(bench->window, bytes, bench->engine->device->ordinal, 0);
	uint64_t ns = clock_now() - start;
	if (map_remove(bench->window, bytes) != CUDA_SUCCESS || result != CUDA_SUCCESS)
		return UINT64_MAX;
	return ns;
}

static CUstream stream_of(const struct bench *bench, enum turns_way way)
{
	return way == TURNS_OUT ? bench->engine->stream_out : bench->engine->stream_in;
}

static CUresult copy(const struct bench *bench, enum turns_way way)
{
	const struct transit *transit = bench->transit;
	CUdeviceptr from = way == TURNS_OUT ? transit->alias : transit->spare_alias;
	CUdeviceptr to = way == TURNS_OUT ? transit->spare_alias : transit->alias;
	uint64_t bytes = transit_bytes(transit);

	return REAL(cuMemcpyDtoDAsync_v2)(to, from, bytes < COPY_MOST ? bytes : COPY_MOST, stream_of(bench, way));
}

static CUresult wait_for(const struct bench *bench, enum turns_way way)
{
	return REAL(cuStreamSynchronize)(stream_of(bench, way));
}

/* Copies, of which the first has ended on return; the others have not, as a rule. */
static CUresult begin(const struct bench *bench, enum turns_way way, unsigned n)
{
	CUresult result = CUDA_SUCCESS;

	for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++) {
		result = copy(bench, way);
		if (i == 0 && result == CUDA_SUCCESS)
			result = REAL(cuEventRecord)(bench->begun, stream_of(bench, way));
	}
	while (n && result == CUDA_SUCCESS) {
		result = REAL(cuEventQuery)(bench->begun);
		if (result != CUDA_ERROR_NOT_READY)
			break;
		result = CUDA_SUCCESS;
	}
	return result;
}

/* How many copies are about a time slice; 0: refused. */
static unsigned slice_of(const struct bench *bench, enum turns_way way)
{
	uint64_t start = clock_now();

	if (copy(bench, way) != CUDA_SUCCESS || wait_for(bench, way) != CUDA_SUCCESS)
		return 0;
	uint64_t n = QUEUED_NS / (clock_now() - start + 1) + 2;
	return n < QUEUED_MOST ? (unsigned)n : QUEUED_MOST;
}

static int by_length(const void *one, const void *two)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)two;

	return (a > b) - (a < b);
}

/* The median of what changes take beside n copies each, ns; UINT64_MAX: refused. */
static uint64_t beside(const struct bench *bench, enum turns_way way, unsigned n)
{
	uint64_t ns[TRIES];

	for (unsigned i = 0; i < TRIES; i++) {
		ns[i] = begin(bench, way, n) == CUDA_SUCCESS ? change(bench) : UINT64_MAX;
		if (wait_for(bench, way) != CUDA_SUCCESS || ns[i] == UINT64_MAX)
			return UINT64_MAX;
	}
	qsort(ns, TRIES, sizeof(ns[0]), by_length);
	return ns[TRIES / 2];
}

static bool measure(const struct bench *bench, bool ret_waits[TURNS_WAYS])
{
	if (wait_for(bench, TURNS_IN) != CUDA_SUCCESS || wait_for(bench, TURNS_OUT) != CUDA_SUCCESS)
		return false;
	uint64_t quiet = beside(bench, TURNS_IN, 0);
	if (quiet == UINT64_MAX)
		return false;
	for (enum turns_way way = 0; way < TURNS_WAYS; way++) {
		unsigned n = slice_of(bench, way);
		uint64_t ns = n ? beside(bench, way, n) : UINT64_MAX;

		if (ns == UINT64_MAX)
			return false;
		ret_waits[way] = ns > TIMES * quiet + MORE_NS;
	}
	return true;
}

void turns_init(struct turns *turns)
{
	*turns = (struct turns){.waits[CHUNK_HOST][TURNS_OUT] = true};
}

void turns_learn(struct engine *engine, const struct transit *transit)
{
	struct turns *turns = &engine->turns;
	struct bench bench = {.engine = engine, .transit = transit};
	bool waits[TURNS_WAYS];

	if (turns->known[transit->to])
		return;
	turns->known[transit->to] = true;
	if (REAL(cuMemAddressReserve)(&bench.window, transit_bytes(transit), HEAP_UNIT, 0, 0) != CUDA_SUCCESS)
		return;
	link_let_go(engine, true);
	if (REAL(cuEventCreate)(&bench.begun, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
		if (measure(&bench, waits))
			memcpy(turns->waits[transit->to], waits, sizeof(waits));
		REAL(cuEventDestroy_v2)(bench.begun);
	}
	/* An address that cannot be unmapped is lost; there is plenty. */
	REAL(cuMemAddressFree)(bench.window, transit_bytes(transit));
}
