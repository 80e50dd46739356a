/*
 * The link: two streams of the library in a context of the device, one each way, so that both copy engines work at
 * once; an event for each copy; and the word that copies wait for while the mover maps.
 */
#include "shim/context/context.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/mover/mover_internal.h"
#include "shim/stats/stats.h"

/*
 * On NVIDIA's drivers a change of a mapping is work for one of the copy engines (pte_contention.c measures which one).
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

static CUresult wait_to_go(struct engine *engine, CUstream stream)
{
	if (!link_pauses(engine))
		return CUDA_SUCCESS;
	CUresult result = REAL(cuStreamWaitValue32_v2)(stream, engine->link.go_address, 1, CU_STREAM_WAIT_VALUE_GEQ);
	if (result != CUDA_ERROR_NOT_SUPPORTED)
		return result;
	log_once("streams cannot wait for values here; moving is slower for it");
	engine->link.cannot_wait = true;
	return CUDA_SUCCESS;
}

/*
 * Lets a change of a mapping run between two parts. device: the device side of the part, of which nothing beyond its
 * bytes need be mapped. may_write: nothing that runs uses it.
 */
static CUresult let_map(struct engine *engine, CUstream stream, CUdeviceptr device, uint64_t bytes, bool gap,
			bool may_write)
{
	CUresult result = wait_to_go(engine, stream);

	if (result == CUDA_SUCCESS && may_write && (gap || !link_pauses(engine)))
		result =
		    REAL(cuMemcpyDtoDAsync_v2)(device, device, bytes < BREATH_BYTES ? bytes : BREATH_BYTES, stream);
	return result;
}

uint64_t link_part(const struct migration *transit, uint64_t at, uint64_t most, CUdeviceptr *ret_old,
		   CUdeviceptr *ret_new)
{
	uint64_t old_bytes, new_bytes;

	*ret_old = migration_at(transit, false, at, &old_bytes);
	*ret_new = migration_at(transit, true, at, &new_bytes);
	most = old_bytes < most ? old_bytes : most;
	return new_bytes < most ? new_bytes : most;
}

static CUresult link_copy_range(struct engine *engine, const struct migration *transit, CUstream stream, bool gap,
				const struct live_range *range)
{
	bool out = transit->to != CHUNK_DEVICE;
	enum chunk_place away = out ? transit->to : transit->from;
	bool in_parts = engine->turns.waits[away][out ? PTE_CONTENTION_OUT : PTE_CONTENTION_IN];
	uint64_t bytes = range->end - range->begin, most = !in_parts ? bytes : away == CHUNK_PEER ? PART_PEER : PART;
	CUresult result = CUDA_SUCCESS;

	for (uint64_t at = range->begin, part; at < range->end && result == CUDA_SUCCESS; at += part) {
		CUdeviceptr from, to;

		part = link_part(transit, at, range->end - at < most ? range->end - at : most, &from, &to);
		result = REAL(cuMemcpyDtoDAsync_v2)(to, from, part, stream);
		if (result == CUDA_SUCCESS && in_parts)
			result = let_map(engine, stream, out ? from : to, part, gap, gap || !out);
	}
	return result;
}

CUresult link_fill(struct engine *engine, const struct migration *transit)
{
	const struct live_range all = {0, migration_bytes(transit)};

	return link_copy_range(engine, transit, engine->link.stream_in, true, &all);
}

static CUresult poison(const struct migration *transit, CUstream stream)
{
	CUresult result = CUDA_SUCCESS;

	for (uint64_t at = 0, part; at < migration_bytes(transit) && result == CUDA_SUCCESS; at += part) {
		CUdeviceptr to = migration_at(transit, true, at, &part);

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
	const struct migration *transit = &move->transit;
	CUstream stream = transit->to != CHUNK_DEVICE ? engine->link.stream_out : engine->link.stream_in;
	struct live_range alive[ALIVE_RANGES];
	unsigned n = move->is_empty ? alive_skip(transit) : alive_ranges(engine, transit, alive);
	CUresult result = CUDA_SUCCESS;

	move->copied = 0;
	if (engine->poisons && !alive_is_all(transit, alive, n))
		result = poison(transit, stream);
	for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++) {
		move->copied += alive[i].end - alive[i].begin;
		result = link_copy_range(engine, transit, stream, gap, &alive[i]);
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
