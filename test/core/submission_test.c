// SPDX-License-Identifier: Apache-2.0
/*
 * submission_test.c: submissions: several launches at once, without memory for their names, read before tracking began;
 * what they hold, and when. submission.c is called as the entry points do, on the simulated driver's streams.
 */
#include "test/core/completion_help.h"
#include "test/core/log_help.h"

#include "shim/base/log.h"
#include "shim/mover/mover.h"
#include "shim/submit/submit_body.h"
#include "shim/submit/submission.h"

static CUcontext context;

/* ---- what the tests replace ---- */

static __thread bool no_memory;

void *__real_realloc(void *at, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes)
{
	return no_memory ? NULL : __real_realloc(at, bytes);
}

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
	return no_memory ? NULL : __real_calloc(n, bytes);
}

static uint64_t clock_ahead; /* ns that the core's clock is ahead of time */

uint64_t __real_clock_now(void);
uint64_t __wrap_clock_now(void);
uint64_t __wrap_clock_now(void)
{
	return __real_clock_now() + clock_ahead;
}

/* ---- submissions ---- */

static struct core_heap own_heap;
static struct device device;
static struct engine *engine, *later;
static CUdeviceptr block;

/* Everything that is submitted holds what it names, and has no ticket (inflight_ticket_test.c). */
static void track_and_hold(void)
{
	submission_set_tracking(true, true);
	submission_ask_to_pin();
}

static void with_an_engine(void)
{
	core_heap_open(&own_heap, 64 * MIB, 64 * MIB, 0);
	engine = core_engine(&own_heap, &device, false);
	atomic_store(&mover_state.spill.engines[device.ordinal], engine);
	assert_true(submission_add_arena(heap_arena(own_heap.heap), &engine->channel));
	arena_mark(heap_arena(own_heap.heap), 0, 4, 1, 0, 0);
	block = arena_address(heap_arena(own_heap.heap), 0);
	track_and_hold();
}

static struct block_state *block_mark(void)
{
	return &heap_arena(own_heap.heap)->block_states[0];
}

/* Makes the submission; returns how many hold everything while it is inside the driver. */
static unsigned everything_held_by(struct submission *use)
{
	struct submission_stripe *stripe = admit(use);
	unsigned n = block_state_pins(&engine->channel.everything);

	submission_close(use, stripe);
	return n;
}

TEST(launches_on_several_streams_are_done_when_all_are)
{
	CUstream one = stream_new(), two = stream_new();
	unsigned *word = word_new();
	void *params[] = {NULL};
	CUDA_LAUNCH_PARAMS list[2] = {{.hStream = one, .kernelParams = params},
				      {.hStream = two, .kernelParams = params}};

	struct submission *use = submission_open(HOOK_cuLaunchCooperativeKernelMultiDevice);
	assert_non_null(use);
	operands_cuLaunchCooperativeKernelMultiDevice(use, list, 2, 0);
	submission_name(use, block, 0);
	struct submission_stripe *stripe = admit(use);
	stream_work(one, word);
	stream_hold(two, word);
	submission_close(use, stripe);
	assert_ok(cuStreamSynchronize(one));
	uint64_t last = block_state_last(block_mark());
	assert_int_equal(last, completion_newest());
	for (int i = 0; i < 10; i++)
		assert_true(done_ask() < last);
	word_release(word);
}

static atomic_bool admitted;

static void *submit_without_memory(void *argument)
{
	CUstream stream = argument;

	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	no_memory = true;
	struct submission *use = submission_open(HOOK_cuMemsetD8Async);
	if (use)
		operands_cuMemsetD8Async(use, block, 1, 4096, stream);
	struct submission_stripe *stripe = admit(use);
	atomic_store(&admitted, true);
	CHECK(block_state_pins(&engine->channel.everything) == 1);
	submission_close(use, stripe);
	no_memory = false;
	return NULL;
}

static bool somebody_waits(void)
{
	return atomic_load(&engine->channel.n_waiters) != 0 || atomic_load(&admitted);
}

/* Some piece of some block is in transit. */
TEST(a_submission_without_memory_waits_until_nothing_is_unmapped)
{
	CUstream stream = stream_new();

	atomic_store(&engine->channel.everything.unmapped, 1);
	pthread_t thread = test_thread(submit_without_memory, stream);
	assert_true(becomes(somebody_waits));
	assert_false(atomic_load(&admitted));
	assert_int_equal(atomic_load(&engine->channel.everything.waits), 1);
	lock_take(&engine->channel.lock);
	assert_true(engine->channel.waiters && engine->channel.waiters->unknown);
	atomic_store(&engine->channel.everything.unmapped, 0);
	engine->channel.waiters->answered = true;
	clock_wake_all(&engine->channel.answered);
	lock_drop(&engine->channel.lock);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&admitted));
	assert_int_equal(block_state_pins(&engine->channel.everything), 0);
	assert_int_equal(atomic_load(&engine->channel.everything.waits), 0);
	assert_int_equal(block_state_last(&engine->channel.everything), completion_newest());
}

/*
 * A submission was read for another reason, with an engine that does not move yet, and enters the driver after tracking
 * was switched on: the mover has not seen it, and what it has named may be a part.
 */
TEST(what_was_read_before_tracking_began_may_touch_anything)
{
	submission_set_tracking(false, false);
	struct submission *use = submission_open(HOOK_cuMemsetD8Async);
	assert_non_null(use);
	track_and_hold();
	assert_int_equal(everything_held_by(use), 1);
	assert_int_equal(block_state_pins(&engine->channel.everything), 0);
	assert_int_equal(block_state_last(&engine->channel.everything), completion_newest());
	/* From now on it is what it names that counts. */
	assert_int_equal(everything_held_by(submission_open(HOOK_cuMemsetD8Async)), 0);
}

/* ---- holding ---- */

/* As where memory moves in gaps alone. */
static void hold_no_more(void)
{
	submission_set_tracking(false, false);
	submission_set_tracking(true, false);
}

static struct submission *open_naming_block(void)
{
	struct submission *use = submission_open(HOOK_cuMemsetD8Async);

	assert_non_null(use);
	submission_name(use, block, 0);
	submission_name(use, block + 4096, 0);
	return use;
}

/*
 * A submission was read while memory moved in gaps alone, and enters the driver when it moves beside submissions: of
 * what it names, only the blocks that its addresses are in were listed.
 */
TEST(what_was_read_before_memory_moved_beside_it_may_touch_anything)
{
	submission_set_tracking(false, false);
	submission_set_tracking(true, false);
	assert_false(submission_is_beside());
	struct submission *use = open_naming_block();
	submission_set_beside(true);
	assert_true(submission_is_beside());
	assert_int_equal(everything_held_by(use), 1);
	assert_int_equal(block_state_pins(&engine->channel.everything), 0);
	/* The same if it was opened while memory did so before, but perhaps read in between. */
	use = open_naming_block();
	submission_set_beside(false);
	submission_set_beside(true);
	assert_int_equal(everything_held_by(use), 1);
	/* And if memory of another device is the next that moves so. */
	use = open_naming_block();
	submission_set_beside(true);
	assert_int_equal(everything_held_by(use), 1);
	/* From now on it is what it names that counts. */
	assert_int_equal(everything_held_by(open_naming_block()), 0);
	/* In gaps alone, nothing that was read is too little. */
	use = open_naming_block();
	submission_set_beside(false);
	assert_int_equal(everything_held_by(use), 0);
	assert_true(becomes(all_is_done));
	/* Where nothing is tracked it means nothing. */
	submission_set_tracking(false, false);
	submission_set_beside(true);
	assert_false(submission_is_watched());
	track_and_hold();
}

TEST(blocks_are_held_when_that_is_asked_for)
{
	uint64_t before = block_state_last(block_mark());

	hold_no_more();
	struct submission *use = open_naming_block();
	struct submission_stripe *stripe = admit(use);
	assert_int_equal(block_state_pins(block_mark()), 0);
	submission_close(use, stripe);
	assert_true(block_state_last(block_mark()) == before);
	/* From the moment on that it is: also what has been read already, but is not inside the driver. */
	use = open_naming_block();
	assert_true(submission_ask_to_pin());
	assert_false(submission_ask_to_pin());
	stripe = admit(use);
	assert_true(block_state_pins(block_mark()) > 0);
	submission_close(use, stripe);
	assert_int_equal(block_state_pins(block_mark()), 0);
	assert_int_equal(block_state_last(block_mark()), completion_newest());
}

static void ask_to_hold(void)
{
	submission_ask_to_pin();
}

/* It is asked for when a submission has seen that it is not, and is not inside the driver yet. */
TEST(who_enters_the_driver_after_it_was_asked_for_holds)
{
	hold_no_more();
	struct submission *use = open_naming_block();
	log_then = ask_to_hold;
	atomic_store(&block_mark()->discarded, 1);
	struct submission_stripe *stripe = admit(use);
	assert_true(block_state_pins(block_mark()) > 0);
	assert_true(atomic_load(&block_mark()->discarded) == 0);
	submission_close(use, stripe);
	assert_int_equal(block_state_pins(block_mark()), 0);
	assert_int_equal(block_state_last(block_mark()), completion_newest());
}

/* More than can be counted; a graph may name so many. */
enum { MANY_NAMES = 70000 };

static void *submit_at_the_gate(void *argument)
{
	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	struct submission *use = submission_open(HOOK_cuMemsetD8Async);
	CHECK(use);
	for (unsigned i = 0; i < MANY_NAMES; i++)
		submission_name(use, block + i, 0);
	struct submission_stripe *stripe = admit(use);
	atomic_store(&admitted, true);
	submission_close(use, stripe);
	return NULL;
}

static bool block_is_held(void)
{
	return block_state_pins(block_mark()) != 0 || atomic_load(&admitted);
}

/* A gap takes nothing from who waits for it to end. */
TEST(who_waits_at_the_gate_holds_what_it_names)
{
	hold_no_more();
	atomic_store(&admitted, false);
	gate_drain();
	assert_true(gate_close());
	pthread_t thread = test_thread(submit_at_the_gate, NULL);
	assert_true(becomes(block_is_held));
	assert_int_equal(block_state_pins(block_mark()), 1);
	assert_false(atomic_load(&admitted));
	gate_open();
	pthread_join(thread, NULL);
	assert_int_equal(block_state_pins(block_mark()), 0);
	assert_int_equal(block_state_last(block_mark()), completion_newest());
	track_and_hold();
}

/* A submission that names the address discards in its stream. */
static bool is_discarded_in(CUstream stream, CUdeviceptr address)
{
	struct arena *arena = heap_arena(own_heap.heap);
	struct submission *use = submission_open(HOOK_cuMemsetD8Async);

	assert_non_null(use);
	submission_stream(use, stream, false);
	submission_name(use, address, 0);
	struct submission_stripe *stripe = admit(use);
	spill_discard_behind(&device, address, 2 * MIB, stream, false, submission_pins(use));
	bool is_so = atomic_load(&arena->block_states[arena_unit(arena, address)].discarded) != 0;
	submission_close(use, stripe);
	return is_so;
}

/*
 * A discard in a stream's order needs to know who else names the block. Where nothing was held nobody does, so what was
 * submitted then must be done first; and at the first time somebody may be inside the driver who holds nothing.
 */
TEST(a_discard_waits_for_what_held_nothing)
{
	CUstream one = stream_new(), two = stream_new();
	unsigned *word = word_new();
	struct arena *arena = heap_arena(own_heap.heap);
	CUdeviceptr other = block + 4 * HEAP_UNIT;

	arena_mark(arena, 4, 4, 5, 0, 0);
	hold_no_more();
	/* Somebody is inside the driver, and has no number yet. */
	atomic_fetch_add(&submission_stripes[SUBMISSION_STRIPES - 1].inside, 1);
	for (int i = 0; i < 5; i++)
		assert_false(is_discarded_in(one, block));
	atomic_fetch_sub(&submission_stripes[SUBMISSION_STRIPES - 1].inside, 1);
	hold_no_more();
	struct submission *use = open_naming_block();
	submission_name(use, other, 0);
	submission_stream(use, two, false);
	struct submission_stripe *stripe = admit(use);
	stream_hold(two, word);
	submission_close(use, stripe);
	for (int i = 0; i < 5; i++)
		assert_false(is_discarded_in(one, block));
	assert_false(is_discarded_in(one, other));
	word_release(word);
	assert_ok(cuStreamSynchronize(two));
	assert_true(becomes(all_is_done));
	assert_true(is_discarded_in(one, block) && is_discarded_in(one, other));
	/* Who names it from then on takes that away. */
	use = open_naming_block();
	submission_stream(use, two, false);
	stripe = admit(use);
	assert_true(atomic_load(&block_mark()->discarded) == 0);
	submission_close(use, stripe);
}

/* It asked for holding itself, and another one's hold is not its own. */
TEST(a_discard_that_holds_nothing_is_none)
{
	CUstream one = stream_new();

	hold_no_more();
	struct submission *use = open_naming_block();
	struct submission_stripe *stripe = admit(use);
	assert_false(submission_pins(use));
	block_state_pin(block_mark());
	for (int i = 0; i < 5; i++)
		spill_discard_behind(&device, block, 2 * MIB, one, false, submission_pins(use));
	assert_true(atomic_load(&block_mark()->discarded) == 0);
	block_state_unpin(block_mark());
	submission_close(use, stripe);
}

/* Somebody is inside the driver at all times, but it is not the same one. */
TEST(a_discard_does_not_wait_for_a_moment_of_rest)
{
	struct submission_stripe *a = &submission_stripes[SUBMISSION_STRIPES - 1],
				 *b = &submission_stripes[SUBMISSION_STRIPES - 2];
	CUstream one = stream_new();

	hold_no_more();
	atomic_fetch_add(&a->inside, 1);
	for (int i = 0; i < 3; i++)
		assert_false(is_discarded_in(one, block));
	atomic_fetch_add(&b->inside, 1);
	atomic_fetch_sub(&a->inside, 1);
	assert_false(is_discarded_in(one, block));
	assert_true(becomes(all_is_done));
	assert_true(is_discarded_in(one, block));
	atomic_fetch_sub(&b->inside, 1);
}

TEST(nobody_is_asked_to_hold_when_nothing_is_tracked)
{
	submission_set_tracking(false, false);
	assert_true(submission_ask_to_pin());
	assert_false(submission_is_watched());
	track_and_hold();
	assert_false(submission_ask_to_pin());
}

/* What was named in another device's heap before its engine was there was not heard. */
TEST(what_was_read_before_an_engine_came_may_touch_anything)
{
	static struct core_heap other_heap;
	static struct device other_device = {.ordinal = 1};

	core_heap_open(&other_heap, 64 * MIB, 64 * MIB, 0);
	later = mover_new(&other_device, other_heap.heap, false);
	assert_non_null(later);
	struct submission *use = open_naming_block();
	assert_true(submission_add_arena(heap_arena(other_heap.heap), &later->channel));
	struct submission_stripe *stripe = admit(use);
	assert_int_equal(block_state_pins(&engine->channel.everything), 1);
	assert_int_equal(block_state_pins(&later->channel.everything), 1);
	assert_int_equal(block_state_pins(block_mark()), 1);
	submission_close(use, stripe);
	assert_int_equal(block_state_pins(&engine->channel.everything), 0);
	assert_int_equal(block_state_pins(&later->channel.everything), 0);
	assert_int_equal(block_state_pins(block_mark()), 0);
	/* From now on it is what it names that counts. */
	use = open_naming_block();
	stripe = admit(use);
	assert_int_equal(block_state_pins(&later->channel.everything), 0);
	submission_close(use, stripe);
}

TEST(an_engine_hears_of_what_names_its_memory_alone)
{
	uint64_t function;
	struct named named;
	unsigned n;

	while (engine_read_log(engine, &function, &named, 1, &n))
		;
	while (engine_read_log(later, &function, &named, 1, &n))
		;
	struct submission *use = open_naming_block();
	submission_close(use, admit(use));
	assert_true(becomes(all_is_done));
	assert_true(engine_read_log(engine, &function, &named, 1, &n));
	assert_false(engine_read_log(later, &function, &named, 1, &n));
}

/* Nobody asks when it is done, so no event is recorded for it. */
TEST(what_is_traced_and_no_more_has_no_number)
{
	uint64_t before = completion_newest();

	submission_set_tracking(false, false);
	submission_set_trace(true);
	struct submission *use = submission_open(HOOK_cuMemsetD8Async);
	submission_close(use, admit(use));
	assert_true(completion_newest() == before);
	submission_set_trace(false);
	track_and_hold();
}

/* What engine_lost() says. */
static void lost(char text[4096])
{
	FILE *file = tmpfile();
	int before = dup(STDERR_FILENO);

	dup2(fileno(file), STDERR_FILENO);
	log_begin();
	engine_lost(engine, CUDA_ERROR_ILLEGAL_ADDRESS);
	dup2(before, STDERR_FILENO);
	log_begin();
	close(before);
	rewind(file);
	text[fread(text, 1, 4095, file)] = 0;
	fclose(file);
}

/* The mover notices the death of a context a moment later. These are the last: the engine is dead afterwards. */
TEST(a_stop_names_what_has_arrived_since_the_mover_looked)
{
	char text[4096];

	engine->deferred.n = 1;
	engine->deferred.at[0].migration = (struct migration){.block_unit = 0, .units = 4, .to = CHUNK_HOST};
	fault_report_note(engine);
	engine->deferred.n = 0;
	fault_report_note(engine);
	lost(text);
	assert_non_null(strstr(text, "FAST MODE STOPPED THE JOB"));
	assert_non_null(strstr(text, "8.0 MiB just gone to the host"));
}

/* The mover may have been busy with something else for seconds: pinning memory. */
TEST(a_stop_that_is_noticed_late_is_told_all_the_same)
{
	char text[4096];

	atomic_store(&engine->channel.dead, false);
	engine->deferred.n = 1;
	fault_report_note(engine);
	engine->deferred.n = 0;
	clock_ahead = 5000000000;
	lost(text);
	clock_ahead = 0;
	assert_non_null(strstr(text, "FAST MODE STOPPED THE JOB"));
	assert_non_null(strstr(text, "8.0 MiB just gone to the host"));
	/* What was in transit long before that is not meant. */
	atomic_store(&engine->channel.dead, false);
	clock_ahead = 5000000000;
	fault_report_note(engine);
	lost(text);
	clock_ahead = 0;
	assert_null(strstr(text, "FAST MODE STOPPED THE JOB"));
}

EACH_TEST(NULL, completion_check)

BEFORE_ALL
{
	core_driver();
	context = core_context();
	with_an_engine();
}
