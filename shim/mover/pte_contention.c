/*
 * Which copies contend with changes of mappings. NVIDIA's driver changes page tables with one of the copy engines, and
 * which one differs from machine to machine. Making the wrong copies in parts costs a GPT job at 1.5 a tenth of its
 * speed in `fast` and a ninth in `exact`. So it is measured, once for each place that memory is evicted to, with a
 * piece that has just been evicted: nothing reads or writes it then, and because both its chunks hold the same
 * contents, it can be copied to and fro.
 *
 * Measured (H200s with the same driver, test/bench/mapping.c): a single H200 in a machine uses the engine that copies
 * to the host (a change takes 0.56 ms beside such copies, 0.03 beside those to the device), those of a pair use the
 * other one (0.03 and 0.56).
 */
#include "shim/driver/real.h"
#include "shim/heap/chunk.h"
#include "shim/mover/mover_internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * Copies are queued for about the length of an engine's time slice, 1 ms. Short pieces end too soon for that. Measured
 * (H200): a change that has to wait takes 0.4 to 0.9 ms then, one that has not 0.03 to 0.1.
 */
#define QUEUED_NS   1000000
#define QUEUED_MOST 256
#define COPY_MOST   ((uint64_t)32 << 20)
#define COPY_LEAST  ((uint64_t)4 << 20)
#define TRIES       5
/* A change waits for copies if most changes take more than TIMES as long beside them, plus MORE_NS. */
#define TIMES   3
#define MORE_NS 100000
/*
 * If all changes take longer than this even without the library's copies, the program's copies are in the way. Then
 * another piece is tried, up to PIECES_MOST pieces.
 */
#define QUIET_MOST_NS 300000
#define PIECES_MOST   8
/* The measurement is given up after this time. On a link of 50 GB/s it takes 25 ms. */
#define LAST_NS 100000000
/* The most tries to unmap the second mapping. If it stays, its memory stays in use as long as the process lives. */
#define UNMAPS 50

struct bench {
	const struct engine *engine;
	const struct migration *transit;
	CUdeviceptr window; /* the device chunk is mapped here a second time, and unmapped */
	CUevent begun;
	uint64_t until;          /* ns: end of the measurement */
	bool copies[PTE_CONTENTION_WAYS]; /* copies of the measurement may be in flight */
};

static bool remove_window(const struct bench *bench)
{
	uint64_t bytes = migration_bytes(bench->transit);

	for (unsigned i = 0; i < UNMAPS; i++) {
		if (map_remove(bench->window, bytes) == CUDA_SUCCESS)
			return true;
		clock_sleep(100000);
	}
	return false;
}

/* Returns how long one change of a mapping takes, in ns, or UINT64_MAX if the driver refused. */
static uint64_t pte_contention_change(const struct bench *bench)
{
	uint64_t bytes = migration_bytes(bench->transit), start = clock_now();

	if (map_chunk(bench->window, bytes, bench->transit->handle) != CUDA_SUCCESS)
		return UINT64_MAX;
	CUresult result = map_allow(bench->window, bytes, bench->engine->device->ordinal, 0);
	uint64_t ns = clock_now() - start;
	return remove_window(bench) && result == CUDA_SUCCESS ? ns : UINT64_MAX;
}

/* ---- copies ---- */

static CUstream stream_of(const struct bench *bench, enum pte_contention_way way)
{
	return way == PTE_CONTENTION_OUT ? bench->engine->link.stream_out : bench->engine->link.stream_in;
}

static CUresult pte_contention_copy(struct bench *bench, enum pte_contention_way way)
{
	bool out = way == PTE_CONTENTION_OUT;
	CUdeviceptr old, new;
	uint64_t bytes = link_part(bench->transit, 0, COPY_MOST, &old, &new);

	bench->copies[way] = true;
	return REAL(cuMemcpyDtoDAsync_v2)(out ? new : old, out ? old : new, bytes, stream_of(bench, way));
}

/*
 * The wait is bounded, because a program's stream that shares a hardware queue with the link may be held until the
 * mover answers a waiting submission.
 */
static bool wait_for(struct bench *bench, enum pte_contention_way way)
{
	bool idle = link_is_idle_by(stream_of(bench, way), bench->until);

	bench->copies[way] &= !idle;
	return idle;
}

/* Queues n copies and returns when the first has ended; the others usually have not. */
static bool pte_contention_begin(struct bench *bench, enum pte_contention_way way, unsigned n)
{
	CUresult result = CUDA_SUCCESS;

	for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++) {
		result = pte_contention_copy(bench, way);
		if (i == 0 && result == CUDA_SUCCESS)
			result = REAL(cuEventRecord)(bench->begun, stream_of(bench, way));
	}
	if (n && result == CUDA_SUCCESS)
		do
			result = REAL(cuEventQuery)(bench->begun);
		while (result == CUDA_ERROR_NOT_READY && clock_now() < bench->until);
	return result == CUDA_SUCCESS;
}

/*
 * Returns how many copies take about a time slice; 0: refused. The first copy is not timed, because it may take longer.
 */
static unsigned slice_of(struct bench *bench, enum pte_contention_way way)
{
	if (pte_contention_copy(bench, way) != CUDA_SUCCESS || !wait_for(bench, way))
		return 0;
	uint64_t start = clock_now();
	if (pte_contention_copy(bench, way) != CUDA_SUCCESS || !wait_for(bench, way))
		return 0;
	uint64_t n = QUEUED_NS / (clock_now() - start + 1) + 2;
	return n < QUEUED_MOST ? (unsigned)n : QUEUED_MOST;
}

/* ---- what changes take ---- */

static int by_length(const void *one, const void *two)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)two;

	return (a > b) - (a < b);
}

/*
 * Returns in ret_ns how long changes take beside n copies each, in ns, sorted with the shortest first. Returns false if
 * the driver refused or it took too long.
 */
static bool pte_contention_beside(struct bench *bench, enum pte_contention_way way, unsigned n, uint64_t ret_ns[TRIES])
{
	for (unsigned i = 0; i < TRIES; i++) {
		ret_ns[i] = pte_contention_begin(bench, way, n) ? pte_contention_change(bench) : UINT64_MAX;
		if (ret_ns[i] == UINT64_MAX || !wait_for(bench, way))
			return false;
	}
	qsort(ret_ns, TRIES, sizeof(ret_ns[0]), by_length);
	return true;
}

/*
 * Measures both ways, one after the other: on return, at most one way has copies in flight, of those that write either
 * chunk. *ret_again: the program was in the way. Returns false without a result.
 */
static bool pte_contention_measure(struct bench *bench, bool ret_waits[PTE_CONTENTION_WAYS], bool *ret_again)
{
	uint64_t quiet[TRIES], ns[TRIES];

	if (!wait_for(bench, PTE_CONTENTION_IN) || !wait_for(bench, PTE_CONTENTION_OUT) ||
	    !pte_contention_beside(bench, PTE_CONTENTION_IN, 0, quiet))
		return false;
	*ret_again = quiet[0] > QUIET_MOST_NS;
	for (enum pte_contention_way way = 0; way < PTE_CONTENTION_WAYS && !*ret_again; way++) {
		unsigned n = slice_of(bench, way);

		if (!n || !pte_contention_beside(bench, way, n, ns))
			return false;
		ret_waits[way] = ns[TRIES / 2] > TIMES * quiet[0] + MORE_NS;
	}
	return !*ret_again;
}

/*
 * Records the move's event behind all copies that were begun here. Beside copies out the move can be taken back like
 * any other.
 */
static void put_off(struct engine *engine, struct move *move, const struct bench *bench)
{
	CUresult result = REAL(cuEventRecord)(move->event, engine->link.stream_in);

	move->is_measured = bench->copies[PTE_CONTENTION_IN];
	if (result == CUDA_SUCCESS)
		result = REAL(cuStreamWaitEvent)(engine->link.stream_out, move->event, 0);
	if (result == CUDA_SUCCESS)
		result = REAL(cuEventRecord)(move->event, engine->link.stream_out);
	/* Without the event the end of the copies cannot be seen. */
	if (result != CUDA_SUCCESS && (!link_settle(engine->link.stream_in) || !link_settle(engine->link.stream_out)))
		engine_lost(engine, result);
}

void pte_contention_init(struct pte_contention *turns)
{
	*turns = (struct pte_contention){.waits[CHUNK_HOST][PTE_CONTENTION_OUT] = true};
}

bool pte_contention_learn(struct engine *engine, struct move *move)
{
	const struct migration *transit = &move->transit;
	struct pte_contention *turns = &engine->turns;
	struct bench bench = {.engine = engine, .transit = transit, .until = clock_now() + LAST_NS};
	bool waits[PTE_CONTENTION_WAYS], again = false;

	if (transit->from != CHUNK_DEVICE || turns->pieces[transit->to] >= PIECES_MOST || move->copied < COPY_LEAST)
		return true;
	turns->pieces[transit->to]++;
	if (REAL(cuMemAddressReserve)(&bench.window, migration_bytes(transit), HEAP_UNIT, 0, 0) != CUDA_SUCCESS)
		return true;
	link_let_go(engine, true);
	if (REAL(cuEventCreate)(&bench.begun, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
		if (pte_contention_measure(&bench, waits, &again))
			memcpy(turns->waits[transit->to], waits, sizeof(waits));
		REAL(cuEventDestroy_v2)(bench.begun);
	}
	if (!again)
		turns->pieces[transit->to] = PIECES_MOST;
	REAL(cuMemAddressFree)(bench.window, migration_bytes(transit));
	bench.until = 0;
	for (enum pte_contention_way way = 0; way < PTE_CONTENTION_WAYS; way++)
		if (bench.copies[way])
			wait_for(&bench, way);
	if (!bench.copies[PTE_CONTENTION_IN] && !bench.copies[PTE_CONTENTION_OUT])
		return true;
	put_off(engine, move, &bench);
	return false;
}
