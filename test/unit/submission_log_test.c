// SPDX-License-Identifier: Apache-2.0
/*
 * What threads write on the tape arrives, each record whole, those of one thread in their order; and what finds no room
 * is lost alone.
 */
#include "shim/submit/channel.h"
#include "test/test.h"

enum { WRITERS = 4, EACH = 100000, MOST = 40 };

static struct submission_log tape;

/* What record `i` of a writer holds follows from the two. */
static unsigned length_of(unsigned writer, uint64_t i)
{
	return (unsigned)((i * 7 + writer) % MOST);
}

/* Of every other name the extent is known. */
static uint64_t bytes_of(uint64_t i, unsigned k)
{
	return (i + k) % 2 ? i + 1 : 0;
}

static void write_one(unsigned writer, uint64_t i)
{
	struct named named[MOST];
	unsigned n = length_of(writer, i);

	for (unsigned k = 0; k < n; k++)
		named[k] = (struct named){writer * 1000 + k, bytes_of(i, k)};
	submission_log_write(&tape, (uint64_t)writer << 32 | i, named, n, (struct inflight_ticket){0});
}

/* The next record of each writer is its next; lost ones are skipped, and counted. */
static bool read_one(uint64_t next[WRITERS], uint64_t *skipped)
{
	struct named named[MOST];
	uint64_t function;
	unsigned n;

	if (!submission_log_read(&tape, &function, named, MOST, &n))
		return false;
	unsigned writer = (unsigned)(function >> 32);
	uint64_t i = function & UINT32_MAX;
	assert_true(writer < WRITERS && i >= next[writer] && i < EACH);
	*skipped += i - next[writer];
	next[writer] = i + 1;
	assert_int_equal(n, length_of(writer, i));
	for (unsigned k = 0; k < n; k++)
		if (named[k].address != writer * 1000 + k || named[k].bytes != bytes_of(i, k))
			fail_msg("record %llu of %u, name %u", (unsigned long long)i, writer, k);
	return true;
}

/* Never so far ahead of the reader that something is lost. */
static void *writer(void *argument)
{
	unsigned number = (unsigned)(uintptr_t)argument;

	for (uint64_t i = 0; i < EACH; i++) {
		UNTIL(atomic_load(&tape.head) - atomic_load(&tape.tail) <= SUBMISSION_LOG_WORDS / 2);
		write_one(number, i);
	}
	return NULL;
}

/* With the extents of its names, and no more of them than are asked for. */
TEST(a_record_may_be_looked_at_before_it_is_read)
{
	struct named named[3] = {{1, 2}, {3, 0}, {5, 6}}, out[3] = {{0}};
	size_t at = submission_log_begin(&tape);
	struct inflight_ticket ticket;
	uint64_t function;
	unsigned n;

	submission_log_write(&tape, 9, named, 3, (struct inflight_ticket){0});
	submission_log_write(&tape, 10, named, 3, (struct inflight_ticket){INFLIGHT_TICKET_PLACES, UINT32_MAX});
	submission_log_write(&tape, 11, named + 1, 1, (struct inflight_ticket){0});
	assert_true(submission_log_look(&tape, &at, &ticket, out, 2, &n));
	assert_true(!ticket.place && n == 3 && out[0].address == 1 && out[0].bytes == 2);
	assert_true(out[1].address == 3 && !out[1].bytes && !out[2].address);
	assert_true(submission_log_look(&tape, &at, &ticket, out, 3, &n));
	assert_true(ticket.place == INFLIGHT_TICKET_PLACES && ticket.serial == UINT32_MAX);
	assert_true(n == 3 && out[2].address == 5);
	assert_true(submission_log_look(&tape, &at, &ticket, out, 3, &n));
	assert_true(n == 1 && out[0].address == 3 && !out[0].bytes);
	assert_false(submission_log_look(&tape, &at, &ticket, out, 3, &n));
	assert_true(at == submission_log_end(&tape));
	for (unsigned i = 9; i <= 11; i++) {
		assert_true(submission_log_read(&tape, &function, out, 3, &n));
		assert_true(function == i && (i == 11 ? n == 1 : n == 3 && out[2].address == 5 && out[2].bytes == 6));
	}
	assert_true(submission_log_begin(&tape) == at);
}

/* Where it ends, the oldest record begins. */
TEST(a_full_tape_is_looked_at_once)
{
	struct named named = {1, 0}, out;
	size_t at = submission_log_begin(&tape);
	struct inflight_ticket ticket;
	uint64_t function;
	unsigned n, written = 0, seen = 0;

	while (submission_log_write(&tape, 1, NULL, 0, (struct inflight_ticket){1, written}))
		written++;
	assert_int_equal(written, SUBMISSION_LOG_WORDS / 2);
	while (submission_log_look(&tape, &at, &ticket, &out, 1, &n))
		assert_int_equal(ticket.serial, seen++);
	assert_int_equal(seen, written);
	while (submission_log_read(&tape, &function, &out, 1, &n))
		;
	assert_true(submission_log_write(&tape, 1, &named, 1, (struct inflight_ticket){2, 3}));
	assert_true(submission_log_look(&tape, &at, &ticket, &out, 1, &n));
	assert_true(ticket.place == 2 && n == 1 && out.address == 1);
	assert_true(submission_log_read(&tape, &function, &out, 1, &n));
}

TEST(names_that_nobody_asks_for_are_dropped)
{
	struct named named[3] = {{1, 2}, {3, 4}, {5, 6}}, out[2] = {{0}};
	uint64_t function;
	unsigned n;

	submission_log_write(&tape, 9, named, 3, (struct inflight_ticket){0});
	submission_log_write(&tape, 10, NULL, 0, (struct inflight_ticket){0});
	assert_true(submission_log_read(&tape, &function, out, 1, &n));
	assert_true(function == 9 && n == 1 && out[0].address == 1 && out[0].bytes == 2 && !out[1].address);
	assert_true(submission_log_read(&tape, &function, out, 1, &n));
	assert_true(function == 10 && n == 0);
	assert_false(submission_log_read(&tape, &function, out, 1, &n));
}

TEST(a_full_tape_loses_what_comes_and_goes_on_when_there_is_room)
{
	uint64_t next[WRITERS] = {0}, skipped = 0, before = tape.lost, written = 0, read = 0;

	while (tape.lost == before)
		write_one(1, written++);
	while (read_one(next, &skipped))
		read++;
	assert_int_equal(read, written - 1);
	assert_int_equal(skipped, 0);
	/* Round and round. */
	for (unsigned i = 0; i < 60000; i++) {
		write_one(1, written++);
		assert_true(read_one(next, &skipped));
	}
	assert_int_equal(skipped, 1);
	assert_int_equal(tape.lost - before, 1);
}

TEST(records_of_many_threads_arrive_whole_and_in_order)
{
	uint64_t next[WRITERS] = {0}, skipped = 0, before = tape.lost;
	pthread_t threads[WRITERS];

	for (uintptr_t i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, writer, (void *)i), 0);
	for (uint64_t seen = 0; seen + (tape.lost - before) < WRITERS * EACH;) {
		if (read_one(next, &skipped))
			seen++;
		else
			sched_yield();
	}
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	assert_false(read_one(next, &skipped));
	assert_int_equal(skipped, 0);
	assert_int_equal(tape.lost, before);
}

int main(void)
{
	if (!submission_log_init(&tape))
		return 1;
	return test_run();
}
