// SPDX-License-Identifier: Apache-2.0
/*
 * The link: two streams of the library in a context of the device, one each way, so that both copy engines work at
 * once; an event for each copy; and the word that copies wait for while the mover maps.
 */
#include "shim/mover/mover.h"

#include <string.h>

/*
 * On NVIDIA's drivers a change of a mapping is work for one of the copy engines (pte_contention_learn() finds which).
 * It runs when that engine's stream waits for something, and otherwise when a time slice of 1 ms is over, whatever the
 * size of the copies: each mapping beside such copies would take 1 ms, as long as copying 50 MiB. Therefore those
 * copies are made in parts, and after each part the stream waits for `go`, which is 0 while the mover is about to map
 * something that takes no longer than a part.
 *
 * What takes longer, mapping host memory, is mostly done in gaps. There the mover has so much to map that copies would
 * stand still for a fifth of the time. So in gaps each part is followed by a copy of some bytes within the device, onto
 * themselves, which another engine does, and a mapping can run meanwhile. They lie in the piece's memory of the device:
 * memory of the link's own would be beyond every budget. On the way in that is nobody's until the copy has ended. On
 * the way out it is the program's again when the move is taken back; so this is done in gaps alone, which do not end
 * before these copies (migrate_abandon).
 *
 * Copies to a peer, both ways, and all changes of mappings share one engine, which copies four times as many bytes in
 * the time of a part; so parts to peers are four times as long.
 *
 * Measured (H200, driver 580; test/bench/mapping.c): with parts of 16 MiB a mapping takes 0.17 ms, most of it until the
 * part is over, and one mapping for each 64 MiB leaves 47.6 GB/s in and 48.2 out, of 47.8 and 51.1 for a bare pair of
 * streams; with parts of 8 MiB 0.11 ms, 50.2 and 46.8. The copy after a part costs the link 17 us. Measured (two H200,
 * driver 580, 180 GB/s each way over NVLink): with parts of 16 MiB to the peer a step of a GPT took 158 ms, with 64 MiB
 * 106.
 */
#define PART         ((uint64_t)16 << 20)
#define PART_PEER    ((uint64_t)64 << 20)
#define BREATH_BYTES 4096

static bool link_pauses(const struct engine *engine)
{
	return engine->link.go && !engine->link.cannot_wait;
}

/* To be called only when no stream waits for the word any more. */
static void drop_go(struct engine *engine)
{
	if (engine->link.go)
		REAL(cuMemFreeHost)(engine->link.go);
	engine->link.go = NULL;
}

void link_let_go(struct engine *engine, bool go)
{
	if (engine->link.go && (go || !engine->link.in_gap))
		atomic_store(engine->link.go, go);
}

/* Allocates the word. Without it copies do not pause for the mover, which costs time only. */
static void make_go(struct engine *engine)
{
	if (REAL(cuMemHostAlloc)((void **)&engine->link.go, sizeof(*engine->link.go),
				 CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS)
		return;
	atomic_store(engine->link.go, 1);
	if (REAL(cuMemHostGetDevicePointer_v2)(&engine->link.go_address, engine->link.go, 0) != CUDA_SUCCESS)
		drop_go(engine);
}

/*
 * Lets a change of a mapping run between two parts. device: the device side of the part, of which nothing beyond its
 * bytes need be mapped. may_write: nothing that runs uses it.
 */
static CUresult let_map(struct engine *engine, CUstream stream, CUdeviceptr device, uint64_t bytes, bool gap,
			bool may_write)
{
	CUresult result = CUDA_SUCCESS;

	if (link_pauses(engine))
		result = REAL(cuStreamWaitValue32_v2)(stream, engine->link.go_address, 1, CU_STREAM_WAIT_VALUE_GEQ);
	if (result == CUDA_ERROR_NOT_SUPPORTED) {
		log_once("streams cannot wait for values here; moving is slower for it");
		engine->link.cannot_wait = true;
		result = CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS && may_write && (gap || !link_pauses(engine)))
		result =
		    REAL(cuMemcpyDtoDAsync_v2)(device, device, bytes < BREATH_BYTES ? bytes : BREATH_BYTES, stream);
	return result;
}

/*
 * Returns how many bytes of the piece can be copied at once from byte `at` on, at most `most`, and their addresses in
 * the old memory and in the new: compound chunks consist of parts (shim/heap/chunk.h).
 */
static uint64_t link_part(const struct migration *migration, uint64_t at, uint64_t most, CUdeviceptr *ret_old,
			  CUdeviceptr *ret_new)
{
	uint64_t old_bytes, new_bytes;

	*ret_old = migration_at(migration, false, at, &old_bytes);
	*ret_new = migration_at(migration, true, at, &new_bytes);
	most = old_bytes < most ? old_bytes : most;
	return new_bytes < most ? new_bytes : most;
}

static CUresult link_copy_range(struct engine *engine, const struct migration *migration, CUstream stream, bool gap,
				const struct live_range *range)
{
	bool out = migration->to != CHUNK_DEVICE;
	enum chunk_place away = out ? migration->to : migration->from;
	bool in_parts = engine->contention.waits[away][out ? PTE_CONTENTION_OUT : PTE_CONTENTION_IN];
	uint64_t bytes = range->end - range->begin, most = !in_parts ? bytes : away == CHUNK_PEER ? PART_PEER : PART;
	CUresult result = CUDA_SUCCESS;

	for (uint64_t at = range->begin, part; at < range->end && result == CUDA_SUCCESS; at += part) {
		CUdeviceptr from, to;

		part = link_part(migration, at, range->end - at < most ? range->end - at : most, &from, &to);
		result = REAL(cuMemcpyDtoDAsync_v2)(to, from, part, stream);
		if (result == CUDA_SUCCESS && in_parts)
			result = let_map(engine, stream, out ? from : to, part, gap, gap || !out);
	}
	return result;
}

CUresult link_fill(struct engine *engine, const struct migration *migration)
{
	const struct live_range all = {0, migration_bytes(migration)};

	return link_copy_range(engine, migration, engine->link.stream_in, true, &all);
}

static CUresult poison(const struct migration *migration, CUstream stream)
{
	CUresult result = CUDA_SUCCESS;

	for (uint64_t at = 0, part; at < migration_bytes(migration) && result == CUDA_SUCCESS; at += part) {
		CUdeviceptr to = migration_at(migration, true, at, &part);

		result = REAL(cuMemsetD8Async)(to, ALIVE_POISON, part, stream);
	}
	return result;
}

bool link_open(struct engine *engine)
{
	unsigned flags = CU_STREAM_NON_BLOCKING;
	bool ok = true;

	if (engine->link.stream_in)
		return true;
	CUcontext context = context_any(engine->device->ordinal);
	if (!context)
		return false;
	/*
	 * The context is published first and checked second. The thread that ends it does both in the opposite order,
	 * so that one of the two sees the other.
	 */
	engine->link.context = context;
	if (context_any(engine->device->ordinal) != context || REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) {
		engine->link.context = NULL;
		return false;
	}
	ok = REAL(cuStreamCreate)(&engine->link.stream_out, flags) == CUDA_SUCCESS &&
	     REAL(cuStreamCreate)(&engine->link.stream_in, flags) == CUDA_SUCCESS;
	for (unsigned i = 0; i < MOVES && ok; i++)
		ok = REAL(cuEventCreate)(&engine->moves.out.at[i].event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
		     REAL(cuEventCreate)(&engine->moves.in.at[i].event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
	if (!ok)
		link_close(engine);
	else
		make_go(engine);
	return ok;
}

void link_close(struct engine *engine)
{
	if (!engine->link.context)
		return;
	for (unsigned i = 0; i < MOVES; i++) {
		if (engine->moves.out.at[i].event)
			REAL(cuEventDestroy_v2)(engine->moves.out.at[i].event);
		if (engine->moves.in.at[i].event)
			REAL(cuEventDestroy_v2)(engine->moves.in.at[i].event);
		engine->moves.out.at[i].event = engine->moves.in.at[i].event = NULL;
	}
	if (engine->link.stream_out)
		REAL(cuStreamDestroy_v2)(engine->link.stream_out);
	if (engine->link.stream_in)
		REAL(cuStreamDestroy_v2)(engine->link.stream_in);
	drop_go(engine);
	engine->link.stream_out = engine->link.stream_in = NULL;
	context_leave(true);
	engine->link.context = NULL; /* last: from here on the context may end at any time */
}

CUresult link_copy(struct engine *engine, struct move *move, bool gap)
{
	const struct migration *migration = &move->migration;
	CUstream stream = migration->to != CHUNK_DEVICE ? engine->link.stream_out : engine->link.stream_in;
	struct live_range alive[ALIVE_RANGES];
	unsigned n =
	    move->is_empty ? alive_skip(migration, migration_bytes(migration)) : alive_ranges(engine, migration, alive);
	CUresult result = CUDA_SUCCESS;

	move->copied = 0;
	if (engine->poisons && (n != 1 || alive[0].begin || alive[0].end != migration_bytes(migration)))
		result = poison(migration, stream);
	for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++) {
		move->copied += alive[i].end - alive[i].begin;
		result = link_copy_range(engine, migration, stream, gap, &alive[i]);
	}
	move->begun = clock_now();
	if (result == CUDA_SUCCESS)
		result = REAL(cuEventRecord)(move->event, stream);
	/*
	 * Without an event the end of the copy cannot be seen, and no part may be in flight when the chunks are reused.
	 */
	if (result != CUDA_SUCCESS && !link_settle(stream))
		engine_lost(engine, result);
	return result;
}

bool link_is_idle_by(CUstream stream, uint64_t until)
{
	CUresult result = REAL(cuStreamQuery)(stream);

	while (result == CUDA_ERROR_NOT_READY && clock_now() < until) {
		clock_sleep(10000);
		result = REAL(cuStreamQuery)(stream);
	}
	return result == CUDA_SUCCESS;
}

bool link_settle(CUstream stream)
{
	unsigned tries = 0;

	while (engine_tries(&tries))
		if (REAL(cuStreamSynchronize)(stream) == CUDA_SUCCESS)
			return true;
	return false;
}

/* ---- when to look again ---- */

/*
 * A copy of 64 MiB takes 1.3 ms, and one look at it costs up to 10 us where timers are expensive (virtual machines). So
 * the mover repeatedly sleeps through half of the remaining time that the next copy to end is expected to take. If that
 * time is over, or unknown, the naps become longer and longer.
 */
#define NAP_LEAST 10000u
#define NAP_MOST  200000u

static uint64_t expected_end(const struct queue *queue)
{
	const struct move *move = &queue->at[queue->head];
	uint64_t begun = move->begun > queue->ended ? move->begun : queue->ended;

	return queue->n && queue->unit_ns ? begun + move->copied / HEAP_UNIT * queue->unit_ns : 0;
}

uint64_t link_nap_ns(const struct engine *engine, unsigned tries)
{
	uint64_t now = clock_now(), out = expected_end(&engine->moves.out), in = expected_end(&engine->moves.in);
	uint64_t end = !out || (in && in < out) ? in : out;
	uint64_t ns = end > now ? (end - now) / 2 : NAP_LEAST * (1u + tries);

	return ns < NAP_LEAST ? NAP_LEAST : ns > NAP_MOST ? NAP_MOST : ns;
}

void link_ended(struct queue *queue, const struct move *move)
{
	uint64_t now = clock_now(), begun = move->begun > queue->ended ? move->begun : queue->ended;

	/* What copies little says nothing about the rate. */
	if (move->copied >= HEAP_UNIT) {
		uint64_t unit_ns = (now - begun) / (move->copied / HEAP_UNIT);

		queue->unit_ns = queue->unit_ns ? (3 * queue->unit_ns + unit_ns) / 4 : unit_ns;
	}
	queue->ended = now;
}

/* ---- which copies contend with changes of mappings ---- */

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
	const struct migration *migration;
	CUdeviceptr window; /* the device chunk is mapped here a second time, and unmapped */
	CUevent begun;
	uint64_t until;                   /* ns: end of the measurement */
	bool copies[PTE_CONTENTION_WAYS]; /* copies of the measurement may be in flight */
};

static bool remove_window(const struct bench *bench)
{
	uint64_t bytes = migration_bytes(bench->migration);

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
	uint64_t bytes = migration_bytes(bench->migration), start = clock_now();

	if (map_chunk(bench->window, bytes, bench->migration->handle) != CUDA_SUCCESS)
		return UINT64_MAX;
	CUresult result = map_allow(bench->window, bytes, 1ull << bench->engine->device->ordinal, true);
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
	uint64_t bytes = link_part(bench->migration, 0, COPY_MOST, &old, &new);

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
	qsort(ret_ns, TRIES, sizeof(ret_ns[0]), mover_by_number);
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

bool pte_contention_learn(struct engine *engine, struct move *move)
{
	const struct migration *migration = &move->migration;
	struct pte_contention *contention = &engine->contention;
	struct bench bench = {.engine = engine, .migration = migration, .until = clock_now() + LAST_NS};
	bool waits[PTE_CONTENTION_WAYS], again = false;

	if (migration->from != CHUNK_DEVICE || contention->pieces[migration->to] >= PIECES_MOST ||
	    move->copied < COPY_LEAST)
		return true;
	contention->pieces[migration->to]++;
	if (REAL(cuMemAddressReserve)(&bench.window, migration_bytes(migration), HEAP_UNIT, 0, 0) != CUDA_SUCCESS)
		return true;
	link_let_go(engine, true);
	if (REAL(cuEventCreate)(&bench.begun, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
		if (pte_contention_measure(&bench, waits, &again))
			memcpy(contention->waits[migration->to], waits, sizeof(waits));
		REAL(cuEventDestroy_v2)(bench.begun);
	}
	if (!again)
		contention->pieces[migration->to] = PIECES_MOST;
	REAL(cuMemAddressFree)(bench.window, migration_bytes(migration));
	bench.until = 0;
	for (enum pte_contention_way way = 0; way < PTE_CONTENTION_WAYS; way++)
		if (bench.copies[way])
			wait_for(&bench, way);
	if (!bench.copies[PTE_CONTENTION_IN] && !bench.copies[PTE_CONTENTION_OUT])
		return true;
	put_off(engine, move, &bench);
	return false;
}
