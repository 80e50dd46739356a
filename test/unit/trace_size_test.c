// SPDX-License-Identifier: Apache-2.0
/*
 * A recorded training job through the encoder: how many bytes a launch takes in the file, and that the file
 * says what the record did. Launches that pass few pointers are promised to take few bytes; what those take that pass
 * hundreds depends on how often they come again, and is printed. Launches are 63 us apart, as they were, give or take a
 * half; a frame holds 50 ms.
 */
#include "test/test.h"
#include "test/unit/seed.h"
#include "test/unit/trace_file.h"
#include "tools/trace/trace_read.h"

enum { FEW = 4, APART_NS = 63000, FRAME_NS = 50000000 };

static struct trace_file file;
static struct trace record;

/* Of launches with few pointers, and of all. */
static struct {
	uint64_t n, bytes;
} few, all;

/* A new frame each 50 ms, whose own bytes are the launches', too. */
static void write_launch(const struct trace_event *launch, uint64_t time)
{
	static uint64_t frame_ends;
	size_t before = 0, after;

	if (time >= frame_ends) {
		file_frame(&file, 1, time);
		frame_ends = time + FRAME_NS;
	} else {
		trace_frame_end(file.writer, &before);
	}
	assert_true(file_submit(&file, time, launch->submit.function, launch->named, launch->submit.n));
	trace_frame_end(file.writer, &after);
	all.n++;
	all.bytes += after - before;
	if (launch->submit.n <= FEW) {
		few.n++;
		few.bytes += after - before;
	}
}

static void write_job(struct seed *seed)
{
	uint64_t time = 1;

	assert_int_equal(trace_read_file(TRACE, &record), 0);
	for (size_t i = 0; i < record.n_rows; i++) {
		if (record.rows[i].event.kind != TRACE_submit)
			continue;
		time += APART_NS / 2 + seed_below(seed, APART_NS);
		write_launch(&record.rows[i].event, time);
	}
}

TEST(a_launch_with_few_pointers_takes_at_most_24_bytes_on_average)
{
	struct seed seed = seed_start(__func__);
	char path[] = "/tmp/trace_size_test.XXXXXX";
	int fd = mkstemp(path);
	struct trace trace;

	file = file_new("version=1\n");
	write_job(&seed);
	assert_true(fd >= 0);
	close(fd);
	file_save(&file, path);
	printf("%lu launches: %.2f bytes each; %lu with at most %d pointers: %.2f\n", all.n,
	       (double)all.bytes / (double)all.n, few.n, FEW, (double)few.bytes / (double)few.n);
	assert_true(few.n > 4000 && few.bytes <= 24 * few.n);

	assert_int_equal(trace_read_file(path, &trace), 0);
	unlink(path);
	assert_true(!trace.damaged && !trace.cut);
	assert_int_equal(trace.n_rows, all.n);
	for (size_t i = 0, k = 0; i < trace.n_rows; i++, k++) {
		const struct trace_event *event = &trace.rows[i].event, *launch;

		while (record.rows[k].event.kind != TRACE_submit)
			k++;
		launch = &record.rows[k].event;
		assert_true(event->kind == TRACE_submit && event->submit.function == launch->submit.function &&
			    event->submit.n == launch->submit.n);
		assert_false(event->submit.n &&
			     memcmp(event->named, launch->named, event->submit.n * sizeof(*event->named)));
	}
	trace_free(&record);
	trace_free(&trace);
	file_free(&file);
}
