// SPDX-License-Identifier: Apache-2.0
/*
 * The format of a trace: what is written is read again, to the number; and nothing that a file may hold makes the
 * reader read outside of it.
 */
#include "shim/trace/trace_code.h"
#include "test/test.h"
#include "test/unit/failing_alloc.h"
#include "test/unit/seed.h"

enum { HEAD = 24, MOST = 64, EVENTS = 400 };
#define IS_NEW UINT32_MAX

/* An event with memory of its own. */
struct made {
	struct trace_event event;
	struct trace_named named[MOST];
	char text[40];
};

static struct trace_writer *writer;

static int setup(void **state)
{
	fail_every = 0;
	writer = trace_writer_new();
	return writer ? 0 : -1;
}

FIXTURE(teardown)
{
	fail_every = 0;
	trace_writer_free(writer);
}

static uint64_t any(struct seed *seed)
{
	return seed_next(seed) >> seed_below(seed, 64);
}

static void make(struct seed *seed, uint32_t kind, struct made *made)
{
	memset(made, 0, sizeof(*made));
	made->event.kind = kind;
	made->event.time = any(seed);
	for (unsigned i = 0; i < trace_kinds[kind].n; i++)
		made->event.field[i] = any(seed);
	if (kind == TRACE_submit) {
		made->event.submit.n = seed_below(seed, MOST + 1);
		made->event.named = made->named;
		for (unsigned i = 0; i < MOST; i++)
			made->named[i] = (struct trace_named){any(seed) / TRACE_UNIT * TRACE_UNIT,
							      seed_below(seed, 2) ? any(seed) : 0};
	}
	if (kind == TRACE_name) {
		made->event.text_bytes = seed_below(seed, sizeof(made->text));
		made->event.text = made->text;
		for (unsigned i = 0; i < made->event.text_bytes; i++)
			made->text[i] = (char)seed_next(seed);
	}
}

/* Reads an event of a file of this version. */
static bool read_event(const uint8_t *frame, size_t bytes, size_t *at, uint64_t *before, struct trace_named *named,
		       size_t most, struct trace_event *ret_event)
{
	struct trace_shape own;

	trace_shape_own(&own);
	return trace_event_read(&own, frame, bytes, at, before, named, most, ret_event);
}

static void check_same(const struct trace_event *got, const struct trace_event *want)
{
	assert_int_equal(got->kind, want->kind);
	assert_true(got->time == want->time);
	assert_memory_equal(got->field, want->field, sizeof(got->field));
	if (got->kind == TRACE_submit)
		for (uint64_t i = 0; i < got->submit.n; i++)
			assert_true(got->named[i].address == want->named[i].address &&
				    got->named[i].bytes == want->named[i].bytes);
	assert_true(got->text_bytes == want->text_bytes);
	assert_true(!got->text_bytes || !memcmp(got->text, want->text, got->text_bytes));
}

/* The frame's events in memory of their own size, so that a sanitizer sees a byte too far. */
static uint8_t *take_events(uint32_t thread, uint64_t time, size_t *ret_bytes)
{
	size_t bytes;
	const uint8_t *frame = trace_frame_end(writer, &bytes);
	uint32_t word;
	uint64_t at;

	assert_non_null(frame);
	assert_true(bytes > HEAD);
	memcpy(&word, frame, 4);
	assert_int_equal(word, TRACE_FRAME);
	memcpy(&word, frame + 4, 4);
	assert_int_equal(word, bytes - HEAD);
	memcpy(&word, frame + 8, 4);
	assert_int_equal(word, trace_check(frame + HEAD, bytes - HEAD));
	memcpy(&word, frame + 12, 4);
	assert_int_equal(word, thread);
	memcpy(&at, frame + 16, 8);
	assert_true(at == time);
	uint8_t *events = malloc(bytes - HEAD);
	assert_non_null(events);
	memcpy(events, frame + HEAD, bytes - HEAD);
	*ret_bytes = bytes - HEAD;
	return events;
}

TEST_WITH(every_kind_is_read_as_it_was_written, setup, teardown)
{
	struct seed seed = seed_start(__func__);
	static struct made made[EVENTS];

	trace_frame_begin(writer, 7, 1000);
	for (unsigned i = 0; i < EVENTS; i++) {
		uint32_t kind = i < TRACE_KINDS ? i : (uint32_t)seed_below(&seed, TRACE_KINDS);

		make(&seed, kind, &made[i]);
		made[i].event.thread = 7;
		assert_true(trace_frame_add(writer, &made[i].event));
	}
	size_t bytes, at = 0;
	uint8_t *events = take_events(7, 1000, &bytes);
	uint64_t before = 1000;
	for (unsigned i = 0; i < EVENTS; i++) {
		struct trace_named named[MOST];
		struct trace_event got;

		assert_true(read_event(events, bytes, &at, &before, named, MOST, &got));
		check_same(&got, &made[i].event);
	}
	struct trace_event none;
	assert_true(at == bytes);
	assert_false(read_event(events, bytes, &at, &before, NULL, 0, &none));
	free(events);
}

static bool add_submit(uint64_t function, uint64_t device, const struct trace_named *named, uint64_t n)
{
	struct trace_event event = {.kind = TRACE_submit, .named = named};

	event.submit.function = function;
	event.submit.device = device;
	event.submit.n = n;
	return trace_frame_add(writer, &event);
}

/* The frame holds submits and agains of just these kinds, the agains of these. */
static void check_submits(const uint32_t *want, unsigned n)
{
	size_t bytes, at = 0;
	uint8_t *events = take_events(0, 0, &bytes);
	uint64_t before = 0;

	for (unsigned i = 0; i < n; i++) {
		struct trace_named named[2];
		struct trace_event event;

		assert_true(read_event(events, bytes, &at, &before, named, 2, &event));
		assert_int_equal(event.kind, want[i] == IS_NEW ? TRACE_submit : TRACE_again);
		if (want[i] != IS_NEW)
			assert_int_equal(event.again.earlier, want[i]);
	}
	assert_true(at == bytes);
	free(events);
}

TEST_WITH(what_is_submitted_again_takes_one_number, setup, teardown)
{
	const struct trace_named a[2] = {{1 << 20, 0}, {4 << 20, 512}}, b[2] = {{1 << 20, 0}, {4 << 20, 513}};

	trace_frame_begin(writer, 0, 0);
	assert_true(add_submit(1, 0, a, 2));
	assert_true(add_submit(2, 0, a, 2)); /* another function */
	assert_true(add_submit(1, 0, a, 2));
	assert_true(add_submit(1, 1, a, 2)); /* another device */
	assert_true(add_submit(1, 0, a, 1)); /* fewer names */
	assert_true(add_submit(1, 0, b, 2)); /* another length */
	assert_true(add_submit(2, 0, a, 2));
	check_submits((uint32_t[]){IS_NEW, IS_NEW, 0, IS_NEW, IS_NEW, IS_NEW, 1}, 7);
	/* Numbers go on in the next frame. */
	trace_frame_begin(writer, 0, 0);
	assert_true(add_submit(1, 0, b, 2));
	assert_true(add_submit(3, 0, b, 2));
	assert_true(add_submit(3, 0, b, 2));
	check_submits((uint32_t[]){4, IS_NEW, 5}, 3);
}

/* However many there are: memory stays within its limit, and an `again` is never about anything else. */
TEST_WITH(a_full_table_forgets_and_never_confuses, setup, teardown)
{
	enum { DIFFERENT = 700000 };
	uint64_t n_submits = 0, n_again = 0;
	uint64_t *functions = malloc(2 * DIFFERENT * sizeof(*functions));

	assert_non_null(functions);
	for (uint64_t i = 0; i < 2 * DIFFERENT; i++) {
		/* Forward, then back from the end, so that what is remembered is met. */
		uint64_t function = i < DIFFERENT ? i : 2 * DIFFERENT - 1 - i, before = 0;
		const struct trace_named named = {function * TRACE_UNIT, 0};
		struct trace_named got;
		struct trace_event event;
		size_t at = HEAD, bytes;

		trace_frame_begin(writer, 0, 0);
		assert_true(add_submit(function, 0, &named, 1));
		const uint8_t *frame = trace_frame_end(writer, &bytes);
		assert_true(read_event(frame, bytes, &at, &before, &got, 1, &event));
		if (event.kind == TRACE_submit) {
			assert_true(event.submit.function == function);
			functions[n_submits++] = function;
			continue;
		}
		assert_true(event.again.earlier < n_submits);
		assert_true(functions[event.again.earlier] == function);
		n_again++;
	}
	assert_true(n_again > DIFFERENT / 4 && n_again < DIFFERENT);
	free(functions);
}

TEST_WITH(a_frame_cut_at_any_byte_gives_the_events_before, setup, teardown)
{
	struct seed seed = seed_start(__func__);
	static struct made made[60];
	static size_t ends[60];

	trace_frame_begin(writer, 0, 0);
	for (unsigned i = 0; i < 60; i++) {
		size_t bytes;

		make(&seed, i % TRACE_KINDS, &made[i]);
		assert_true(trace_frame_add(writer, &made[i].event));
		trace_frame_end(writer, &bytes);
		ends[i] = bytes - HEAD;
	}
	size_t bytes;
	uint8_t *events = take_events(0, 0, &bytes);
	for (size_t cut = 0; cut < bytes; cut++) {
		uint8_t *copy = malloc(cut ? cut : 1);
		struct trace_named named[MOST];
		struct trace_event got;
		size_t at = 0;
		uint64_t before = 0;
		unsigned n = 0;

		assert_non_null(copy);
		memcpy(copy, events, cut);
		for (; read_event(copy, cut, &at, &before, named, MOST, &got); n++)
			check_same(&got, &made[n].event);
		/* Where it stopped is the end of the last whole one. */
		assert_true(at == (n ? ends[n - 1] : 0));
		assert_true(ends[n] > cut);
		free(copy);
	}
	free(events);
}

TEST(garbage_is_refused_or_read_within_its_bounds)
{
	struct seed seed = seed_start(__func__);

	for (unsigned round = 0; round < 20000; round++) {
		size_t bytes = seed_below(&seed, 80), at = 0, last = 0;
		uint8_t *copy = malloc(bytes ? bytes : 1);
		struct trace_named named[4];
		struct trace_event got;
		uint64_t before = 0;

		assert_non_null(copy);
		for (size_t i = 0; i < bytes; i++)
			copy[i] = (uint8_t)(seed_below(&seed, 3) ? seed_below(&seed, TRACE_KINDS) : seed_next(&seed));
		while (read_event(copy, bytes, &at, &before, named, 4, &got)) {
			assert_true(at > last && at <= bytes);
			last = at;
			if (got.kind == TRACE_name)
				assert_true((const uint8_t *)got.text + got.text_bytes <= copy + bytes);
		}
		assert_true(at == last);
		free(copy);
	}
}

TEST(numbers_too_long_and_counts_too_large_are_damage)
{
	const struct {
		size_t n;
		uint8_t bytes[24];
	} wrong[] = {
	    {12, {TRACE_freed, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02}}, /* more than 64 bits */
	    {13, {TRACE_freed, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}},
	    {6, {TRACE_submit, 0, 1, 0, 2, 4}},                          /* two addresses, one is there */
	    {12, {TRACE_submit, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x7f}}, /* very many */
	    {6, {TRACE_name, 0, 0, 0, 2, 'a'}},
	    {2, {TRACE_KINDS, 0}},
	    {1, {TRACE_freed}},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct trace_named named[4];
		struct trace_event got;
		uint64_t before = 5;
		size_t at = 0;

		assert_false(read_event(wrong[i].bytes, wrong[i].n, &at, &before, named, 4, &got));
		assert_true(at == 0 && before == 5);
	}
}

TEST_WITH(names_beyond_the_room_are_counted_and_skipped, setup, teardown)
{
	struct trace_named named[5] = {{512, 0}, {1024, 7}, {0, 0}, {4096, 1}, {512, 0}}, got[3] = {{0}};
	struct trace_event event;
	size_t bytes, at = 0;
	uint64_t before = 0;

	trace_frame_begin(writer, 0, 0);
	assert_true(add_submit(3, 0, named, 5));
	assert_true(add_submit(4, 0, named, 1));
	uint8_t *events = take_events(0, 0, &bytes);
	assert_true(read_event(events, bytes, &at, &before, got, 2, &event));
	assert_int_equal(event.submit.n, 5);
	assert_true(got[1].address == 1024 && got[1].bytes == 7 && !got[2].address);
	assert_true(read_event(events, bytes, &at, &before, got, 2, &event));
	assert_true(event.submit.function == 4 && at == bytes);
	free(events);
}

TEST_WITH(without_memory_a_frame_stays_as_it_was, setup, teardown)
{
	struct seed seed = seed_start(__func__);
	struct trace_event event = {.kind = TRACE_name, .time = 1};
	char *text = calloc(1, 100000);
	size_t before, after;

	event.text = text;
	event.text_bytes = 100;
	trace_frame_begin(writer, 0, 0);
	assert_true(trace_frame_add(writer, &event));
	trace_frame_end(writer, &before);
	fail_every = 1;
	event.text_bytes = 100000;
	assert_false(trace_frame_add(writer, &event));
	/* The table cannot grow: it forgets, and goes on. */
	for (unsigned i = 0; i < 200; i++) {
		trace_frame_begin(writer, 0, 0);
		assert_true(add_submit(seed_next(&seed), 0, NULL, 0));
	}
	fail_every = 0;
	trace_frame_begin(writer, 0, 0);
	event.text_bytes = 100;
	assert_true(trace_frame_add(writer, &event));
	trace_frame_end(writer, &after);
	assert_true(before == after);
	free(text);
}

TEST(a_head_tells_how_many_fields_each_kind_has)
{
	char room[512], text[] = "version=1\npid=2\n";
	struct trace_shape shape, own;
	uint32_t bytes;

	assert_int_equal(trace_head(text, room, 40), 0);
	size_t n = trace_head(text, room, sizeof(room));
	assert_true(n > 12 && n < sizeof(room));
	assert_memory_equal(room, TRACE_MAGIC, 8);
	memcpy(&bytes, room + 8, 4);
	assert_int_equal(bytes, n - 12);
	assert_int_equal(trace_head(text, room, n - 1), 0);
	room[n] = 0;
	assert_int_equal(strncmp(room + 12, text, strlen(text)), 0);
	assert_true(trace_shape_read(strstr(room + 12, "fields=") + 7, &shape));
	trace_shape_own(&own);
	assert_memory_equal(&shape, &own, sizeof(own));
	assert_false(trace_shape_read("", &shape));
	assert_false(trace_shape_read("1,", &shape));
	assert_false(trace_shape_read("1,256", &shape));
	assert_false(trace_shape_read("1;2", &shape));
	assert_false(trace_shape_read(",1", &shape));
	assert_memory_equal(&shape, &own, sizeof(own));
}

/* A kind has one more number, and there is one more kind: both are stepped over. */
TEST(events_of_a_newer_version_are_read_and_skipped)
{
	const uint8_t events[] = {TRACE_freed, 2, 9, 77, TRACE_KINDS, 2, 1, 2, TRACE_freed, 2, 10, 78};
	struct trace_event event;
	struct trace_shape shape;
	uint64_t before = 0;
	size_t at = 0;

	trace_shape_own(&shape);
	shape.fields[TRACE_freed] = 2;
	shape.fields[shape.n++] = 2;
	assert_true(trace_event_read(&shape, events, sizeof(events), &at, &before, NULL, 0, &event));
	assert_true(event.kind == TRACE_freed && event.freed.id == 9 && event.time == 1);
	assert_true(trace_event_read(&shape, events, sizeof(events), &at, &before, NULL, 0, &event));
	assert_true(event.kind == TRACE_KINDS && event.field[1] == 2);
	assert_true(trace_event_read(&shape, events, sizeof(events), &at, &before, NULL, 0, &event));
	assert_true(event.kind == TRACE_freed && event.freed.id == 10 && event.time == 3);
	assert_true(at == sizeof(events));
	/* An older one: what it lacks is 0. */
	at = before = 0;
	shape.fields[TRACE_freed] = 0;
	assert_true(trace_event_read(&shape, events, 2, &at, &before, NULL, 0, &event));
	assert_true(event.freed.id == 0);
}

TEST(every_kind_says_what_it_is)
{
	assert_string_equal(trace_kinds[TRACE_made].name, "made");
	assert_string_equal(trace_kinds[TRACE_ask].fields, "bytes, api, device, site");
	assert_int_equal(trace_kinds[TRACE_made].n, 9);
	for (unsigned kind = 0; kind < TRACE_KINDS; kind++) {
		unsigned commas = 0;

		for (const char *at = trace_kinds[kind].fields; *at; at++)
			commas += *at == ',';
		assert_int_equal(commas + 1, trace_kinds[kind].n);
		assert_true(trace_kinds[kind].n <= TRACE_FIELDS);
		assert_true(*trace_kinds[kind].text);
	}
}
