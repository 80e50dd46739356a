// SPDX-License-Identifier: Apache-2.0
/*
 * inflight_ticket_take_test.c: submissions with tickets, and a mover that takes away: who waits, and that nothing is
 * taken from what is inside the driver.
 */
#include "test/core/inflight_ticket_help.h"

/* ---- who waits ---- */

static atomic_bool admitted;

static void *submit_and_say(void *argument)
{
	CHECK(cuCtxSetCurrent(ticket_context) == CUDA_SUCCESS);
	struct submission *use = ticket_open(ticket_block);
	struct submission_stripe *stripe = admit(use);
	CHECK(submission_pins(use) == (block_state_pins(ticket_mark(ticket_block)) > 0));
	atomic_store(&admitted, true);
	submission_close(use, stripe);
	return NULL;
}

static bool somebody_waits(void)
{
	return atomic_load(&ticket_engine->channel.n_waiters) != 0 || atomic_load(&admitted);
}

static void raise_unmapped(void)
{
	/* As the mover does, which has been told of it and lets it be. */
	atomic_fetch_add(&ticket_mark(ticket_block)->unmapped, 1);
	CHECK(ticket_is_out_for(ticket_block, UINT64_MAX));
}

static void answer(void)
{
	lock_take(&ticket_engine->channel.lock);
	atomic_store(&ticket_mark(ticket_block)->unmapped, 0);
	for (struct waiter *waiter = ticket_engine->channel.waiters; waiter; waiter = waiter->next)
		waiter->answered = true;
	clock_wake_all(&ticket_engine->channel.answered);
	lock_drop(&ticket_engine->channel.lock);
}

/* Between its look and the driver; and while it waits what it waits for may come in. */
TEST(who_finds_that_something_was_unmapped_since_it_looked_waits)
{
	atomic_store(&admitted, false);
	log_then = raise_unmapped;
	pthread_t thread = test_thread(submit_and_say, NULL);
	assert_true(becomes(somebody_waits));
	assert_false(atomic_load(&admitted));
	assert_true(submission_is_quiet(CONTEXT_ALL_DEVICES));
	assert_false(ticket_is_out_for(ticket_block, completion_newest()));
	assert_int_equal(block_state_pins(ticket_mark(ticket_block)), 0);
	answer();
	pthread_join(thread, NULL);
	assert_true(atomic_load(&admitted));
	assert_int_equal(block_state_last(ticket_mark(ticket_block)), completion_newest());
}

/* It has seen it in time, and takes no ticket. */
TEST(who_waits_has_no_ticket)
{
	atomic_store(&admitted, false);
	atomic_store(&ticket_mark(ticket_block)->unmapped, 1);
	pthread_t thread = test_thread(submit_and_say, NULL);
	assert_true(becomes(somebody_waits));
	assert_false(atomic_load(&admitted));
	assert_false(ticket_is_out_for(ticket_block, completion_newest()));
	answer();
	pthread_join(thread, NULL);
	assert_int_equal(block_state_last(ticket_mark(ticket_block)), completion_newest());
}

static bool block_is_claimed(void)
{
	return ticket_is_out_for(ticket_block, UINT64_MAX) || atomic_load(&admitted);
}

TEST(at_the_gate_a_ticket_stays_out)
{
	atomic_store(&admitted, false);
	gate_drain();
	assert_true(gate_close());
	pthread_t thread = test_thread(submit_and_say, NULL);
	assert_true(becomes(block_is_claimed));
	assert_false(atomic_load(&admitted));
	gate_open();
	pthread_join(thread, NULL);
	assert_true(atomic_load(&admitted));
	assert_false(ticket_is_out_for(ticket_block, completion_newest()));
}

/* ---- the mover takes away ---- */

/* It looks at the log once more, at the last moment. */
TEST(nothing_is_taken_from_what_was_submitted_a_moment_ago)
{
	ticket_engine->progress.done = completion_newest();
	assert_false(ticket_is_out_for(ticket_block, ticket_engine->progress.done));
	assert_false(piece_is_busy(ticket_engine, ticket_unit(ticket_block), false));
	struct submission *use = ticket_open(ticket_block);
	struct submission_stripe *stripe = admit(use);
	assert_false(piece_is_busy(ticket_engine, ticket_unit(ticket_block), false));
	assert_int_equal(migrate_begin(ticket_engine, ticket_unit(ticket_block), CHUNK_HOST, false), MIGRATE_BUSY);
	assert_true(piece_is_busy(ticket_engine, ticket_unit(ticket_block), false));
	assert_int_equal(atomic_load(&ticket_mark(ticket_block)->unmapped), 0);
	submission_close(use, stripe);
	assert_int_equal(migrate_begin(ticket_engine, ticket_unit(ticket_block), CHUNK_HOST, false), MIGRATE_BUSY);
	core_fill(ticket_block, HEAP_UNIT, 7);
	assert_true(core_is_filled(ticket_block, HEAP_UNIT, 7));
	ticket_empty_log();
	/* Nor while somebody is just saying what it names. */
	ticket_engine->progress.done = completion_newest();
	assert_false(ticket_is_out_for(ticket_block, ticket_engine->progress.done));
	size_t at = atomic_fetch_add(&ticket_engine->channel.log.head, 2);
	assert_int_equal(migrate_begin(ticket_engine, ticket_unit(ticket_block), CHUNK_HOST, false), MIGRATE_BUSY);
	atomic_store(&ticket_engine->channel.log.words[at % SUBMISSION_LOG_WORDS], 1);
	ticket_empty_log();
}

enum { ROUNDS = 30000 };

static atomic_bool is_over;
static atomic_uint inside, n_taken;
static atomic_bool is_taken;

/* Inside the driver nothing that it names is taken from it. */
static void *submit_again_and_again(void *argument)
{
	CHECK(cuCtxSetCurrent(ticket_context) == CUDA_SUCCESS);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct submission *use = ticket_open(ticket_block);
		struct submission_stripe *stripe = admit(use);
		atomic_fetch_add(&inside, 1);
		for (unsigned look = 0; look < 20; look++)
			CHECK(!atomic_load(&is_taken));
		atomic_fetch_sub(&inside, 1);
		submission_close(use, stripe);
		if (i % 8 == 0)
			sched_yield();
	}
	return NULL;
}

/* As take_away() does, where the GPU is done as soon as the driver is. */
static void *take_again_and_again(void *argument)
{
	while (!atomic_load(&is_over)) {
		atomic_fetch_add(&ticket_mark(ticket_block)->unmapped, 1);
		if (engine_hears_all(ticket_engine) && !block_state_pins(ticket_mark(ticket_block)) &&
		    !inflight_has(ticket_engine->inflight, ticket_unit(ticket_block), UINT64_MAX)) {
			atomic_store(&is_taken, true);
			for (unsigned look = 0; look < 20; look++)
				CHECK(!atomic_load(&inside));
			atomic_store(&is_taken, false);
			atomic_fetch_add(&n_taken, 1);
		}
		atomic_fetch_sub(&ticket_mark(ticket_block)->unmapped, 1);
		ticket_empty_log();
		for (unsigned i = 0; i < 200; i++)
			atomic_load(&is_over);
	}
	return NULL;
}

TEST(nobody_is_inside_with_what_was_taken)
{
	pthread_t threads[2], mover;

	/* Nobody answers who waits: it asks again at once. */
	atomic_store(&ticket_engine->channel.dead, true);
	assert_int_equal(pthread_create(&mover, NULL, take_again_and_again, NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, submit_again_and_again, NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&is_over, true);
	pthread_join(mover, NULL);
	assert_true(atomic_load(&n_taken) > 100);
	atomic_store(&ticket_engine->channel.dead, false);
}

GROUP(ticket_set_up, ticket_tear_down)
