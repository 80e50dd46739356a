/*
 * A recorded training job through the encoder: how many bytes a launch takes in the file, and that the file
 * says what the record did. Launches that pass few pointers are promised to take few bytes; what those take that pass
 * hundreds depends on how often they come again, and is printed. Launches are 63 us apart, as they were, give or take a half; a frame holds 50 ms.
 */
#include "test/unit/seed.h"
#include "test/unit/trace_file.h"
#include "tools/trace/trace_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { MOST_BLOCKS = 4096, MOST_NAMES = 4096, FEW = 4, APART_NS = 63000, FRAME_NS = 50000000 };
#define ARENA UINT64_C(0x200000000000)

static struct trace_file file;
static uint64_t address[MOST_BLOCKS], end = ARENA;
static struct trace_named names[MOST_NAMES];

/* Of launches with few pointers, and of all. */
static struct {
	uint64_t n, bytes;
} few, all;

struct launch {
	uint64_t function, n;
	struct trace_named *named;
};
static struct launch *launches;

static void add_block(const char *line)
{
	unsigned long id, bytes;

	assert_int_equal(sscanf(line, "A %lu %lu", &id, &bytes), 2);
	assert_true(id < MOST_BLOCKS);
	address[id] = end;
	/* Never the same address again: differences are larger than in a heap. */
	end += (bytes + (2 << 20) - 1) >> 21 << 21;
}

static struct launch parse(char *line)
{
	struct launch launch = {0};
	int used = 0;

	assert_int_equal(sscanf(line, "L %lx%n", &launch.function, &used), 1);
	for (char *at = line + used;; at += used, launch.n++) {
		unsigned long id, offset;

		if (sscanf(at, " %lu:%lx%n", &id, &offset, &used) != 2)
			break;
		assert_true(id < MOST_BLOCKS && launch.n < MOST_NAMES);
		names[launch.n] = (struct trace_named){(address[id] + offset) / TRACE_UNIT * TRACE_UNIT, 0};
	}
	launch.named = malloc((launch.n + 1) * sizeof(*launch.named));
	assert_non_null(launch.named);
	memcpy(launch.named, names, launch.n * sizeof(*names));
	return launch;
}

/* A new frame each 50 ms, whose own bytes are the launches', too. */
static void write_launch(const struct launch *launch, uint64_t time)
{
	static uint64_t frame_ends;
	size_t before = 0, after;

	if (time >= frame_ends) {
		file_frame(&file, 1, time);
		frame_ends = time + FRAME_NS;
	} else {
		trace_frame_end(file.writer, &before);
	}
	assert_true(file_submit(&file, time, launch->function, launch->named, launch->n));
	trace_frame_end(file.writer, &after);
	all.n++;
	all.bytes += after - before;
	if (launch->n <= FEW) {
		few.n++;
		few.bytes += after - before;
	}
}

static void write_job(struct seed *seed)
{
	FILE *record = popen("gzip -dc '" TRACE "'", "r");
	size_t room = 0, n = 0;
	char *line = NULL;
	uint64_t time = 1;

	assert_non_null(record);
	while (getline(&line, &room, record) > 0) {
		if (line[0] == 'A')
			add_block(line);
		if (line[0] != 'L')
			continue;
		launches = realloc(launches, (n + 1) * sizeof(*launches));
		assert_non_null(launches);
		launches[n] = parse(line);
		time += APART_NS / 2 + seed_below(seed, APART_NS);
		write_launch(&launches[n++], time);
	}
	free(line);
	assert_int_equal(pclose(record), 0);
}

static void a_launch_with_few_pointers_takes_at_most_24_bytes_on_average(void **state)
{
	struct seed seed = seed_start(__func__);
	char path[] = "/tmp/trace_size_test.XXXXXX";
	int fd = mkstemp(path);
	struct trace trace;
	(void)state;

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
	for (size_t i = 0; i < trace.n_rows; i++) {
		const struct trace_event *event = &trace.rows[i].event;

		assert_true(event->kind == TRACE_submit && event->submit.function == launches[i].function &&
			    event->submit.n == launches[i].n);
		assert_false(event->submit.n &&
			     memcmp(event->named, launches[i].named, event->submit.n * sizeof(*event->named)));
		free(launches[i].named);
	}
	free(launches);
	trace_free(&trace);
	file_free(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_launch_with_few_pointers_takes_at_most_24_bytes_on_average)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
