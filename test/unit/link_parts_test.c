// SPDX-License-Identifier: Apache-2.0
/*
 * link_parts_test.c: which copies contend with changes of mappings, as the library measures it, and which pieces are
 * copied in parts for it. The driver is made up and time is virtual: it passes only while something takes time.
 */
#include "shim/base/clock.h"
#include "shim/driver/real.h"
#include "shim/mover/mover.h"
#include "test/test.h"

#define PIECE         (64 * MIB)
#define BYTES_PER_US  50000
#define CHANGE_NS     3000
#define ORDINAL       3
#define SLICE_NS      1000000 /* the most that a change waits for copies (docs/facts.md) */
#define READ_CLOCK_NS 20

enum { OUT = 1, IN = 2 }; /* bits of `contends` */

/* A stream of the driver; events hold the time when what stands before them is done. */
struct stream {
	uint64_t idle; /* ns: when its last copy ends */
	unsigned copies, small;
};

static struct {
	uint64_t now;
	struct stream streams[3]; /* by OUT, IN */
	unsigned contends;        /* ways whose copies a change of a mapping waits for */
	uint64_t change_ns;
	unsigned changes;
	unsigned mapped; /* mappings that exist */
	CUresult map_result;
	unsigned refused_unmaps; /* so many times yet */
	unsigned stops_after;    /* copies in, the next of which takes 10 s; 0: none does */
} driver;

static struct engine engine;

/* ---- time ---- */

uint64_t __wrap_clock_now(void);
void __wrap_clock_sleep(uint64_t ns);

uint64_t __wrap_clock_now(void)
{
	return driver.now += READ_CLOCK_NS;
}

void __wrap_clock_sleep(uint64_t ns)
{
	driver.now += ns;
}

/* ---- what is alive: all ---- */

unsigned __wrap_alive_ranges(struct engine *in, const struct migration *migration, struct live_range *ret);

unsigned __wrap_alive_ranges(struct engine *in, const struct migration *migration, struct live_range *ret)
{
	*ret = (struct live_range){.begin = 0, .end = migration_bytes(migration)};
	return 1;
}

/* ---- the driver ---- */

static struct stream *stream_at(CUstream stream)
{
	return (struct stream *)stream;
}

static uint64_t *event_at(CUevent event)
{
	return (uint64_t *)event;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle)
{
	struct stream *stream = stream_at(handle);

	assert_int_not_equal(to, 0);
	assert_int_not_equal(from, 0);
	stream->idle = (stream->idle > driver.now ? stream->idle : driver.now) + bytes * 1000 / BYTES_PER_US;
	stream->copies += bytes > MIB;
	stream->small += bytes <= MIB;
	if (driver.stops_after && stream == &driver.streams[IN] && stream->copies > driver.stops_after)
		stream->idle += 10000000000;
	return CUDA_SUCCESS;
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
	(void)stream, (void)address, (void)value, (void)flags;
	return CUDA_SUCCESS;
}

static CUresult query_stream(CUstream stream)
{
	driver.now += READ_CLOCK_NS;
	return stream_at(stream)->idle > driver.now ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags)
{
	if (stream_at(stream)->idle < *event_at(event))
		stream_at(stream)->idle = *event_at(event);
	return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *ret, unsigned flags)
{
	static uint64_t begun;

	*ret = (CUevent)&begun;
	return CUDA_SUCCESS;
}

static CUresult destroy_event(CUevent event)
{
	return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream)
{
	/* An event holds the time up to which the stream had work when it was recorded. */
	*event_at(event) = stream_at(stream)->idle;
	return CUDA_SUCCESS;
}

static CUresult query_event(CUevent event)
{
	driver.now += READ_CLOCK_NS;
	return *event_at(event) > driver.now ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags)
{
	(void)bytes, (void)alignment, (void)at, (void)flags;
	*ret = 1 << 30;
	return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr at, size_t bytes)
{
	(void)at, (void)bytes;
	assert_int_equal(driver.mapped, 0);
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		    unsigned long long flags)
{
	(void)at, (void)bytes, (void)offset, (void)handle, (void)flags;
	driver.mapped += driver.map_result == CUDA_SUCCESS;
	return driver.map_result;
}

/* A change is work of a copy engine: it runs when the time slice of the copies on it is over. */
static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *desc, size_t n)
{
	uint64_t waits = 0;

	(void)at, (void)bytes;
	if (n != 1 || desc->location.id != ORDINAL || desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned way = OUT; way <= IN; way++)
		if (driver.contends & way && driver.streams[way].idle > driver.now + waits)
			waits = driver.streams[way].idle - driver.now;
	driver.now += (waits < SLICE_NS ? waits : SLICE_NS) + driver.change_ns;
	driver.changes++;
	return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes)
{
	(void)at, (void)bytes;
	if (driver.refused_unmaps && driver.refused_unmaps--)
		return CUDA_ERROR_UNKNOWN;
	driver.mapped--;
	return CUDA_SUCCESS;
}

/* ---- a move whose copy has ended ---- */

static _Atomic uint32_t go = 1;
static struct device device = {.ordinal = ORDINAL};
static uint64_t event;
static struct move move;

FIXTURE(set_up)
{
	memset(&driver, 0, sizeof(driver));
	driver.now = 1000000;
	driver.change_ns = CHANGE_NS;
	real.cuMemcpyDtoDAsync_v2 = copy;
	real.cuStreamWaitValue32_v2 = wait_value;
	real.cuStreamQuery = query_stream;
	real.cuStreamWaitEvent = wait_event;
	real.cuEventCreate = create_event;
	real.cuEventDestroy_v2 = destroy_event;
	real.cuEventRecord = record;
	real.cuEventQuery = query_event;
	real.cuMemAddressReserve = reserve;
	real.cuMemAddressFree = release;
	real.cuMemMap = map;
	real.cuMemSetAccess = set_access;
	real.cuMemUnmap = unmap;
	memset(&engine, 0, sizeof(engine));
	engine.device = &device;
	engine.link.stream_out = (CUstream)&driver.streams[OUT];
	engine.link.stream_in = (CUstream)&driver.streams[IN];
	engine.link.go = &go;
	engine.contention.waits[CHUNK_HOST][PTE_CONTENTION_OUT] = true;
	event = 0;
}

EACH_TEST(set_up, NULL)

static struct move *evicted(enum chunk_place to, uint64_t bytes)
{
	move = (struct move){.migration = {.from = CHUNK_DEVICE,
					   .to = to,
					   .units = (unsigned)(bytes / HEAP_UNIT),
					   .alias = 1ull << 32,
					   .spare_alias = 1ull << 33,
					   .handle = 1},
			     .event = (CUevent)&event,
			     .copied = bytes};
	return &move;
}

/* How many copies a piece is made of, that way, to or from this place. */
static unsigned copies_of_a_piece(enum chunk_place away, uint64_t bytes, unsigned way, bool gap)
{
	struct move *one = evicted(away, bytes);
	struct stream *stream = &driver.streams[way];

	if (way == IN) {
		one->migration.to = CHUNK_DEVICE;
		one->migration.from = away;
	}
	stream->copies = stream->small = 0;
	assert_int_equal(link_copy(&engine, one, gap), CUDA_SUCCESS);
	assert_int_equal(one->copied, bytes);
	if (gap)
		assert_int_equal(stream->small, stream->copies > 1 ? stream->copies : 0);
	else
		assert_int_equal(stream->small, 0);
	return stream->copies;
}

enum { WHOLE = 1, PARTS = 4 /* of 16 MiB */ };

/* ---- the tests ---- */

TEST(copies_that_contend_are_made_in_parts)
{
	static const struct {
		unsigned contends, out, in;
	} rows[] = {{0, WHOLE, WHOLE}, {OUT, PARTS, WHOLE}, {IN, WHOLE, PARTS}, {OUT | IN, PARTS, PARTS}};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		set_up(state);
		driver.contends = rows[i].contends;
		assert_true(pte_contention_learn(&engine, evicted(CHUNK_HOST, PIECE)));
		assert_int_equal(copies_of_a_piece(CHUNK_HOST, PIECE, OUT, false), rows[i].out);
		assert_int_equal(copies_of_a_piece(CHUNK_HOST, PIECE, IN, false), rows[i].in);
		/* In a gap a small copy between the parts lets a change run meanwhile. */
		assert_int_equal(copies_of_a_piece(CHUNK_HOST, PIECE, OUT, true), rows[i].out);
		assert_int_equal(driver.mapped, 0);
	}
}

TEST(each_place_is_measured_by_itself)
{
	driver.contends = OUT | IN;
	assert_true(pte_contention_learn(&engine, evicted(CHUNK_HOST, PIECE)));
	driver.contends = 0;
	assert_true(pte_contention_learn(&engine, evicted(CHUNK_PEER, PIECE)));
	assert_true(engine.contention.waits[CHUNK_HOST][PTE_CONTENTION_IN]);
	assert_true(engine.contention.waits[CHUNK_HOST][PTE_CONTENTION_OUT]);
	assert_false(engine.contention.waits[CHUNK_PEER][PTE_CONTENTION_IN]);
	assert_false(engine.contention.waits[CHUNK_PEER][PTE_CONTENTION_OUT]);
}

TEST(parts_to_a_peer_are_four_times_as_long)
{
	driver.contends = OUT;
	assert_true(pte_contention_learn(&engine, evicted(CHUNK_PEER, PIECE)));
	assert_true(engine.contention.waits[CHUNK_PEER][PTE_CONTENTION_OUT]);
	assert_int_equal(copies_of_a_piece(CHUNK_PEER, 2 * PIECE, OUT, true), 2);
}

TEST(it_is_measured_once)
{
	assert_true(pte_contention_learn(&engine, evicted(CHUNK_HOST, PIECE)));
	unsigned changes = driver.changes;
	assert_int_not_equal(changes, 0);
	assert_true(pte_contention_learn(&engine, evicted(CHUNK_HOST, PIECE)));
	assert_int_equal(driver.changes, changes);
}

/* What the program copies makes every change slow: nothing is learnt from this piece, and at most eight are tried. */
TEST(a_program_in_the_way_is_tried_again)
{
	driver.change_ns = 400000;
	for (unsigned i = 0; i < 3; i++)
		assert_true(pte_contention_learn(&engine, evicted(CHUNK_HOST, PIECE)));
	assert_true(engine.contention.waits[CHUNK_HOST][PTE_CONTENTION_OUT]);
	driver.change_ns = CHANGE_NS;
	driver.contends = IN;
	assert_true(pte_contention_learn(&engine, evicted(CHUNK_HOST, PIECE)));
	assert_true(engine.contention.waits[CHUNK_HOST][PTE_CONTENTION_IN]);
	assert_false(engine.contention.waits[CHUNK_HOST][PTE_CONTENTION_OUT]);
}

TEST(what_cannot_be_measured_keeps_its_value)
{
	driver.contends = IN;
	/* A short piece, one that went nowhere, and a driver that refuses. */
	assert_true(pte_contention_learn(&engine, evicted(CHUNK_HOST, 2 * MIB)));
	struct move *in = evicted(CHUNK_HOST, PIECE);
	in->migration.from = CHUNK_HOST, in->migration.to = CHUNK_DEVICE;
	assert_true(pte_contention_learn(&engine, in));
	assert_int_equal(driver.changes, 0);
	driver.map_result = CUDA_ERROR_OUT_OF_MEMORY;
	assert_true(pte_contention_learn(&engine, evicted(CHUNK_HOST, PIECE)));
	assert_true(engine.contention.waits[CHUNK_HOST][PTE_CONTENTION_OUT]);
	assert_false(engine.contention.waits[CHUNK_HOST][PTE_CONTENTION_IN]);
}

TEST(a_mapping_that_goes_at_the_second_try_is_measured)
{
	driver.contends = OUT | IN;
	driver.refused_unmaps = 3;
	assert_true(pte_contention_learn(&engine, evicted(CHUNK_HOST, PIECE)));
	assert_int_equal(driver.mapped, 0);
	assert_true(engine.contention.waits[CHUNK_HOST][PTE_CONTENTION_IN]);
}

/* A stream that stands still: the measurement is given up after 100 ms, and the move ends behind its copies. */
TEST(copies_that_do_not_end_are_left_behind_the_move)
{
	driver.stops_after = 2;
	assert_false(pte_contention_learn(&engine, evicted(CHUNK_HOST, PIECE)));
	assert_true(event >= driver.streams[IN].idle);
	assert_true(driver.now < 200000000);
	assert_true(move.is_measured);
}
