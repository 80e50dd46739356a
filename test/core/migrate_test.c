/*
 * migrate_test.c: moves that are taken back. There is no mover's thread: the test calls its parts itself. Where copies
 * of the simulated GPU pause, the test decides when they go on.
 */
#include "shim/heap/heap_internal.h"
#include "shim/mover/mover_internal.h"
#include "test/core/core.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>

#define BYTES (2 * MIB)

static struct core_heap own;
static struct device device;
static struct engine *engine;
static struct engine *engines[8]; /* they live as long as the process; known here, or the leak checker counts them */
static unsigned n_engines;
static struct heap_grant grant;

static uint32_t piece_of(void)
{
	return arena_unit(heap_arena(own.heap), grant.address);
}

static int begin(void **state)
{
	(void)state;
	core_heap_open(&own, 64 * MIB, 64 * MIB, 0);
	engine = mover_new(&device, own.heap, false);
	assert_non_null(engine);
	assert_true(n_engines < sizeof(engines) / sizeof(*engines));
	engines[n_engines++] = engine;
	assert_ok(heap_alloc(own.heap, BYTES, CHUNK_MOVABLE, HEAP_DEVICE, &grant));
	assert_true(link_open(engine));
	return 0;
}

static int end(void **state)
{
	(void)state;
	link_close(engine);
	heap_free(own.heap, grant.block, grant.address);
	core_heap_close(&own);
	return 0;
}

/* ---- a move that is taken back ---- */

/* Pauses of copies, so far, and up to which one they go on. */
static _Atomic unsigned n_pauses, n_passed;

static void stand_still(unsigned us)
{
	unsigned n = ++n_pauses;

	(void)us;
	while (n > n_passed)
		sched_yield();
}

/* Copies of SIM_PIECE pause between two pieces, and those onto themselves before they write what they have read. */
#define PAUSES (unsigned)(BYTES / (64 << 10) - 1)

/*
 * The piece leaves, in a gap or beside what runs where streams cannot wait for values. What copies there are for mappings
 * after each part, onto themselves, have read when this returns, and not written.
 */
static void leave(bool gap)
{
	core_fill(grant.address, BYTES, 1);
	engine->link.cannot_wait = engine->turns.waits[CHUNK_HOST][PTE_CONTENTION_OUT] = true;
	assert_ok(heap_make_host_spare(own.heap, BYTES / HEAP_UNIT));
	n_pauses = 0;
	n_passed = PAUSES;
	sim_pauses(stand_still);
	sim_switch("PIECE_US", 200);
	assert_int_equal(migrate_begin(engine, piece_of(), CHUNK_HOST, gap), MIGRATE_BEGUN);
	while (n_pauses <= PAUSES && cuEventQuery(engine->moves.out.at[0].event) == CUDA_ERROR_NOT_READY)
		sched_yield();
}

static void must_have_what_is_written_now(void)
{
	sim_switch("PIECE_US", 0);
	core_fill(grant.address, BYTES, 2);
	n_passed = UINT_MAX;
	assert_ok(cuStreamSynchronize(engine->link.stream_out));
	while (engine->moves.out.n)
		migrate_finish(engine);
	sim_pauses(NULL);
	assert_int_equal(sim_where(grant.address), 'D');
	assert_true(core_is_filled(grant.address, BYTES, 2));
}

static void what_is_written_after_a_move_was_taken_back_is_there(void **state)
{
	(void)state;
	leave(false);
	assert_true(migrate_take_back(engine));
	must_have_what_is_written_now();
}

static _Atomic bool opened;

static void *let_copies_go(void *argument)
{
	const unsigned long *before = argument;

	while (sim_calls("cuStreamSynchronize") == *before && !opened)
		sched_yield();
	n_passed = UINT_MAX;
	return NULL;
}

/* A gap that is given up opens after this. */
static void what_is_written_after_a_move_in_a_gap_was_given_up_is_there(void **state)
{
	unsigned long before = sim_calls("cuStreamSynchronize");
	pthread_t thread;

	(void)state;
	leave(true);
	assert_ok(pthread_create(&thread, NULL, let_copies_go, &before));
	migrate_abandon(engine);
	must_have_what_is_written_now();
	opened = true;
	assert_ok(pthread_join(thread, NULL));
}

static int start(void **state)
{
	(void)state;
	core_driver();
	core_context();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_is_written_after_a_move_was_taken_back_is_there, begin, end),
	    cmocka_unit_test_setup_teardown(what_is_written_after_a_move_in_a_gap_was_given_up_is_there, begin, end),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
