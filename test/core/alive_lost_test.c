/*
 * alive_lost_test.c: what is dead if submissions were not seen, because the submission log was full, or because they were
 * made before the mover began to look; or if an event takes long to be written. There is no mover's thread: the test reads
 * the log itself.
 */
#include "shim/lifetimes/lifetimes_internal.h"
#include "shim/mover/mover_internal.h"
#include "shim/submit/submission.h"
#include "test/core/core.h"

static struct core_heap own;
static struct device device;
static struct engine *engine;
static struct heap_grant grant;

static void report(size_t offset, bool born)
{
	static uint64_t in_use;

	in_use += born ? 4 * MIB : -4 * MIB;
	lifetimes_tell(&(struct lifetimes_report){.address = grant.address + offset,
						  .bytes = 4 * MIB,
						  .born = born,
						  .reserved = 64 * MIB,
						  .allocated = in_use,
						  .reporter = &own});
}

static void submit(size_t offset)
{
	struct submission *use = submission_open(HOOK_cuLaunchKernel);

	assert_non_null(use);
	submission_name(use, grant.address + offset, 0);
	submission_close(use, admit(use));
}

static bool is_dead(size_t offset)
{
	const struct live_now late = {.done = UINT64_MAX, .unfinished = true};
	uint64_t begin = grant.address + offset - heap_arena(own.heap)->base;

	return live_map_is_dead(lifetimes_map(engine->lifetimes), begin, begin + 4 * MIB, late);
}

static void read_all(void)
{
	while (intake_read(engine))
		;
}

/* ---- another thread's event, which takes long to be written ---- */

static uint64_t place;
static bool ends_in_between; /* when it has been found to be incomplete, and before it is looked at once more */

static void other_begins(void)
{
	place = atomic_fetch_add(&engine->lifetimes->head, 1);
}

static void other_ends(void)
{
	struct lifetimes_record *record = &engine->lifetimes->ring[place % LIFETIMES_RING];

	/* The death of what was not born. */
	record->kind = LIFETIMES_DIED;
	record->begin = 60 * MIB;
	record->end = 61 * MIB;
	record->report = (struct live_report){0};
	record->position = 0;
	atomic_store_explicit(&record->sequence, place + 1, memory_order_release);
}

bool __real_lifetimes_is_read(const struct lifetimes *lifetimes, size_t position);
bool __wrap_lifetimes_is_read(const struct lifetimes *lifetimes, size_t position);
bool __wrap_lifetimes_is_read(const struct lifetimes *lifetimes, size_t position)
{
	if (ends_in_between)
		other_ends();
	ends_in_between = false;
	return __real_lifetimes_is_read(lifetimes, position);
}

static int open_heap(void **state)
{
	(void)state;
	core_driver();
	core_heap_open(&own, 128 * MIB, 128 * MIB, 0);
	lifetimes_asked(&own);
	assert_ok(heap_alloc(own.heap, 64 * MIB, CHUNK_MOVABLE, HEAP_DEVICE, &grant));
	report(0, true);
	report(4 * MIB, true);
	report(0, false);
	engine = mover_new(&device, own.heap, false);
	assert_non_null(engine);
	mover_keep(engine, POLICY_CONTENTS_ALIVE, true);
	/* Submissions that are made now are not seen; what they name has died before. */
	report(4 * MIB, false);
	report(16 * MIB, true);
	report(16 * MIB, false);
	assert_true(submission_add_arena(heap_arena(own.heap), &engine->channel));
	submission_set_tracking(true, true);
	return 0;
}

static void what_died_before_the_mover_looked_may_have_been_named(void **state)
{
	(void)state;
	other_begins();
	report(20 * MIB, true);
	report(20 * MIB, false);
	read_all();
	other_ends();
	read_all();
	assert_false(is_dead(20 * MIB));
	assert_false(is_dead(0));
	assert_false(is_dead(4 * MIB));
	assert_false(is_dead(16 * MIB));
	/* From now on all is seen. */
	report(0, true);
	report(0, false);
	read_all();
	assert_true(is_dead(0));
	submit(1 * MIB);
	read_all();
	assert_false(is_dead(0));
}

static void what_died_before_a_lost_submission_may_have_been_named(void **state)
{
	uint64_t lost = atomic_load(&engine->channel.tape.lost);

	(void)state;
	report(8 * MIB, true);
	submit(8 * MIB);
	read_all();
	/* One is born before, the other one not: both die behind what is read next. */
	submit(40 * MIB);
	report(12 * MIB, true);
	report(8 * MIB, false);
	report(12 * MIB, false);
	while (atomic_load(&engine->channel.tape.lost) == lost)
		submit(40 * MIB);
	submit(8 * MIB);
	submit(12 * MIB);
	assert_true(atomic_load(&engine->channel.tape.lost) > lost);
	read_all();
	assert_false(is_dead(8 * MIB));
	assert_false(is_dead(12 * MIB));
	report(12 * MIB, true);
	report(12 * MIB, false);
	read_all();
	assert_true(is_dead(12 * MIB));
}

/* The submission that names it is behind its death, wherever that is read. */
static void what_was_named_after_its_death_is_alive(void **state)
{
	(void)state;
	report(24 * MIB, true);
	read_all();
	other_begins();
	report(24 * MIB, false);
	submit(24 * MIB);
	ends_in_between = true;
	read_all();
	assert_false(ends_in_between);
	read_all();
	assert_false(is_dead(24 * MIB));
	report(24 * MIB, true);
	report(24 * MIB, false);
	read_all();
	assert_true(is_dead(24 * MIB));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_died_before_the_mover_looked_may_have_been_named),
	    cmocka_unit_test(what_died_before_a_lost_submission_may_have_been_named),
	    cmocka_unit_test(what_was_named_after_its_death_is_alive),
	};

	return cmocka_run_group_tests(tests, open_heap, NULL);
}
