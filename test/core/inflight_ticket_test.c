// SPDX-License-Identifier: Apache-2.0
/*
 * inflight_ticket_test.c: submissions that have a ticket instead of holding what they name: until when the mover counts
 * their blocks as used, and who has none.
 */
#include "test/core/inflight_ticket_help.h"

/* ---- what the tests replace ---- */

static void (*while_heard)(void);

bool __real_inflight_hear_oldest(struct inflight *claims);
bool __wrap_inflight_hear_oldest(struct inflight *claims);
bool __wrap_inflight_hear_oldest(struct inflight *claims)
{
	bool is_heard = __real_inflight_hear_oldest(claims);

	if (while_heard)
		while_heard();
	return is_heard;
}

/* Held by its mark alone, by a submission that is inside the driver: let go of with its number. */
static void assert_it_holds(struct submission *use)
{
	struct submission_stripe *stripe = admit(use);

	CHECK(block_state_pins(ticket_mark(ticket_block)) > 0);
	CHECK(!ticket_is_out_for(ticket_block, UINT64_MAX));
	submission_close(use, stripe);
	CHECK(block_state_pins(ticket_mark(ticket_block)) == 0);
	CHECK(block_state_last(ticket_mark(ticket_block)) == completion_newest());
	CHECK(!ticket_is_out_for(ticket_block, UINT64_MAX));
}

static void assert_it_has_a_ticket(struct submission *use)
{
	uint64_t before = block_state_last(ticket_mark(ticket_block));
	struct submission_stripe *stripe = admit(use);

	CHECK(block_state_pins(ticket_mark(ticket_block)) == 0);
	CHECK(ticket_is_out_for(ticket_block, UINT64_MAX));
	submission_close(use, stripe);
	CHECK(block_state_last(ticket_mark(ticket_block)) == before);
	CHECK(!ticket_is_out_for(ticket_block, UINT64_MAX));
}

static void in_a_thread(void *(*run)(void *argument))
{
	test_beside(run, NULL);
}

static void *submit_once(void *argument)
{
	CHECK(cuCtxSetCurrent(ticket_context) == CUDA_SUCCESS);
	ticket_submit(ticket_block);
	return NULL;
}

/* ---- what a ticket says ---- */

TEST(a_block_is_used_from_the_record_on_until_the_submission_is_done)
{
	ticket_submit(ticket_block); /* names it for the first time: now there is a place */
	struct submission *use = ticket_open(ticket_block);
	struct submission_stripe *stripe = admit(use);
	assert_int_equal(block_state_pins(ticket_mark(ticket_block)), 0);
	assert_false(submission_pins(use));
	assert_true(ticket_is_out_for(ticket_block, UINT64_MAX));
	assert_false(ticket_is_out_for(ticket_other, UINT64_MAX));
	submission_close(use, stripe);
	uint64_t number = completion_newest();
	assert_true(ticket_is_out_for(ticket_block, number - 1));
	assert_false(ticket_is_out_for(ticket_block, number));
	assert_int_equal(block_state_last(ticket_mark(ticket_block)), 0);
}

TEST(a_number_is_its_own_however_late_it_is_heard)
{
	uint64_t number = ticket_submit(ticket_block);
	for (unsigned i = 1; i < INFLIGHT_TICKET_NUMBERS; i++)
		ticket_submit(ticket_other);
	assert_true(ticket_is_out_for(ticket_block, number - 1));
	assert_false(ticket_is_out_for(ticket_block, number));
	assert_true(ticket_is_out_for(ticket_other, completion_newest() - 1));
	/* Later than that it is one that is not lower, up to the latest. */
	number = ticket_submit(ticket_block);
	for (unsigned i = 0; i < INFLIGHT_TICKET_NUMBERS + 9; i++)
		ticket_submit(ticket_other);
	assert_true(ticket_is_out_for(ticket_block, number));
	assert_false(ticket_is_out_for(ticket_block, completion_newest()));
}

/* One of another thread came later and was back sooner. */
TEST(of_two_that_use_a_block_the_later_one_counts)
{
	struct submission *use = ticket_open(ticket_block);
	struct submission_stripe *stripe = admit(use);
	in_a_thread(submit_once);
	uint64_t sooner = completion_newest();
	submission_close(use, stripe);
	assert_true(completion_newest() > sooner);
	assert_true(ticket_is_out_for(ticket_block, sooner));
	assert_false(ticket_is_out_for(ticket_block, completion_newest()));
}

/* The first one was heard while it was out, and is back when the second one is heard. */
TEST(one_after_another_each_is_out_for_its_own_blocks)
{
	struct submission *use = ticket_open(ticket_block);
	struct submission_stripe *stripe = admit(use);
	assert_true(ticket_is_out_for(ticket_block, UINT64_MAX));
	submission_close(use, stripe);
	uint64_t number = completion_newest();
	use = ticket_open(ticket_other);
	stripe = admit(use);
	assert_true(ticket_is_out_for(ticket_other, UINT64_MAX));
	assert_false(ticket_is_out_for(ticket_block, number));
	submission_close(use, stripe);
	assert_false(ticket_is_out_for(ticket_other, completion_newest()));
}

/* Also where what came later was not submitted. */
TEST(a_number_that_is_asked_for_late_is_not_lower)
{
	struct inflight_ticket_place *place = inflight_ticket_take_place();
	struct inflight_ticket ticket = inflight_ticket_take(place);
	uint64_t number = 0;

	assert_false(inflight_ticket_is_back(ticket, &number));
	inflight_ticket_give_back(place, 100);
	for (unsigned i = 0; i < INFLIGHT_TICKET_NUMBERS; i++) {
		assert_true(inflight_ticket_is_back(ticket, &number));
		assert_true(number == 100);
		inflight_ticket_take(place);
		inflight_ticket_give_back(place, i % 2 ? 0 : 101);
	}
	assert_true(inflight_ticket_is_back(ticket, &number));
	assert_true(number == 101);
	inflight_ticket_give_place(place);
}

/* The mover's reader comes when it has been heard already, or not; and the log is its own. */
TEST(what_is_taken_off_the_log_has_been_heard)
{
	ticket_empty_log();
	struct submission *use = ticket_open(ticket_block);
	struct submission_stripe *stripe = admit(use);
	ticket_empty_log();
	assert_true(inflight_has(ticket_engine->inflight, ticket_unit(ticket_block), UINT64_MAX));
	submission_close(use, stripe);
	assert_false(ticket_is_out_for(ticket_block, completion_newest()));
}

static void submit_block(void)
{
	while_heard = NULL;
	ticket_submit(ticket_block);
}

/* It is there a moment after the mover has looked: it stays on the log until that has heard it. */
TEST(what_has_not_been_heard_stays_on_the_log)
{
	struct named named;
	uint64_t function;
	unsigned n;

	ticket_empty_log();
	uint64_t before = completion_newest();
	while_heard = submit_block;
	assert_false(engine_read_log(ticket_engine, &function, &named, 1, &n));
	assert_true(ticket_is_out_for(ticket_block, before));
	assert_true(engine_read_log(ticket_engine, &function, &named, 1, &n));
	assert_true(named.address == ticket_block && n == 1);
}

TEST(nobody_can_tell_while_a_record_is_being_written)
{
	ticket_empty_log();
	size_t at = atomic_fetch_add(&ticket_engine->channel.log.head, 3);
	uint64_t number = ticket_submit(ticket_block);
	assert_false(engine_hears_all(ticket_engine));
	assert_false(inflight_has(ticket_engine->inflight, ticket_unit(ticket_block), number - 1));
	atomic_store(&ticket_engine->channel.log.words[(at + 1) % SUBMISSION_LOG_WORDS], 7);
	atomic_store(&ticket_engine->channel.log.words[(at + 2) % SUBMISSION_LOG_WORDS], ticket_other);
	atomic_store(&ticket_engine->channel.log.words[at % SUBMISSION_LOG_WORDS], 2);
	assert_true(engine_hears_all(ticket_engine));
	assert_true(inflight_has(ticket_engine->inflight, ticket_unit(ticket_block), number - 1));
}

/* ---- who has none ---- */

static void fill_the_log(void)
{
	static struct named many[1000];

	while (submission_log_write(&ticket_engine->channel.log, 1, many, 1000, (struct inflight_ticket){0}))
		;
	while (submission_log_write(&ticket_engine->channel.log, 1, many, 1, (struct inflight_ticket){0}))
		;
}

TEST(what_finds_no_room_in_the_log_holds_its_blocks)
{
	fill_the_log();
	assert_it_holds(ticket_open(ticket_block));
	/* Of a mover that has ended nobody need be afraid. */
	atomic_store(&ticket_engine->channel.dead, true);
	struct submission *use = ticket_open(ticket_block);
	struct submission_stripe *stripe = admit(use);
	assert_int_equal(block_state_pins(ticket_mark(ticket_block)), 0);
	submission_close(use, stripe);
	atomic_store(&ticket_engine->channel.dead, false);
	ticket_empty_log();
	assert_it_has_a_ticket(ticket_open(ticket_block));
}

TEST(what_names_too_much_holds_its_blocks)
{
	for (unsigned extra = 0; extra < 2; extra++) {
		struct submission *use = submission_open(HOOK_cuMemsetD8Async);

		for (unsigned i = 0; i < INFLIGHT_TICKET_NAMES + extra; i++)
			submission_name(use, ticket_block + i, 0);
		if (extra)
			assert_it_holds(use);
		else
			assert_it_has_a_ticket(use);
	}
}

TEST(what_may_touch_anything_holds_everything)
{
	struct submission *use = ticket_open(ticket_block);
	submission_unknown(use);
	struct submission_stripe *stripe = admit(use);
	assert_int_equal(block_state_pins(&ticket_engine->channel.everything), 1);
	submission_close(use, stripe);
	assert_int_equal(block_state_last(&ticket_engine->channel.everything), completion_newest());
}

static void *submit_holding(void *argument)
{
	CHECK(cuCtxSetCurrent(ticket_context) == CUDA_SUCCESS);
	assert_it_holds(ticket_open(ticket_block));
	return NULL;
}

static void *submit_with_ticket(void *argument)
{
	CHECK(cuCtxSetCurrent(ticket_context) == CUDA_SUCCESS);
	assert_it_has_a_ticket(ticket_open(ticket_block));
	return NULL;
}

TEST(a_thread_that_finds_no_place_holds_its_blocks)
{
	struct inflight_ticket_place *places[INFLIGHT_TICKET_PLACES + 1];
	unsigned n = 0;

	while ((places[n] = inflight_ticket_take_place()))
		n++;
	assert_true(n > 0);
	in_a_thread(submit_holding);
	while (n)
		inflight_ticket_give_place(places[--n]);
	/* One of many that were there one after another. */
	for (unsigned i = 0; i < 2 * INFLIGHT_TICKET_PLACES; i++)
		in_a_thread(submit_with_ticket);
}

static void ask_to_hold(void)
{
	submission_ask_to_pin();
}

static void track(bool beside)
{
	submission_set_tracking(false, false);
	submission_set_tracking(true, beside);
}

/* It has a ticket, and is to hold besides. */
TEST(who_enters_the_driver_after_it_was_asked_for_holds)
{
	log_then = ask_to_hold;
	struct submission *use = ticket_open(ticket_block);
	struct submission_stripe *stripe = admit(use);
	assert_true(submission_pins(use));
	assert_true(block_state_pins(ticket_mark(ticket_block)) > 0);
	submission_close(use, stripe);
	assert_int_equal(block_state_last(ticket_mark(ticket_block)), completion_newest());
	assert_false(ticket_is_out_for(ticket_block, completion_newest()));
	track(true);
	assert_it_has_a_ticket(ticket_open(ticket_block));
}

static void start_to_move_beside(void)
{
	submission_set_tracking(true, true);
}

TEST(who_enters_the_driver_after_moving_beside_it_began_holds)
{
	track(false);
	log_then = start_to_move_beside;
	struct submission *use = ticket_open(ticket_block);
	struct submission_stripe *stripe = admit(use);
	assert_true(block_state_pins(ticket_mark(ticket_block)) > 0);
	submission_close(use, stripe);
}

GROUP(ticket_set_up, ticket_tear_down)
