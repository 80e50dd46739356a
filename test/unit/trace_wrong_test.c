// SPDX-License-Identifier: Apache-2.0
/*
 * No file, however it was cut or changed, does more than end the reading of a trace: what comes before is kept, and
 * what is no trace at all is refused with a reason.
 */
#include "test/test.h"
#include "test/unit/seed.h"
#include "test/unit/trace_help.h"

#include <sys/stat.h>

/* A bit of everything, in several frames. Returns where each ends. */
static unsigned make_mixed(struct seed *seed, size_t *ends, unsigned n)
{
	for (unsigned frame = 0; frame < n; frame++) {
		file_frame(&file, frame % 3, 100 * frame);
		for (unsigned i = 0; i < 6; i++) {
			struct trace_named named[2] = {{4096 + 4096 * seed_below(seed, 4), 0}, {8192, 77}};
			uint64_t time = 100 * frame + i;

			FILE_ADD(&file, made, time, 10 * frame + i, 4096 * i, 4096);
			file_submit(&file, time, seed_below(seed, 3), named, 2);
			FILE_ADD(&file, freed, time, 10 * frame + i);
		}
		file_name(&file, TRACE_SITES, frame, "somewhere", 9);
		file_end_frame(&file);
		ends[frame] = file.n;
	}
	return 6 * 3 + 1;
}

TEST(a_file_cut_at_any_byte_gives_its_whole_frames)
{
	struct seed seed = seed_start(__func__);
	size_t ends[4], head = file.n;
	unsigned each = make_mixed(&seed, ends, 4);

	for (size_t cut = 0; cut <= file.n; cut++) {
		unsigned whole = 0;

		temporary_save(file.bytes, cut);
		int error = read_again();
		if (cut < head) {
			assert_int_equal(error, -EINVAL);
			assert_true(trace.problem[0]);
			continue;
		}
		for (whole = 0; whole < 4 && ends[whole] <= cut; whole++)
			;
		assert_int_equal(error, 0);
		assert_int_equal(trace.n_rows, whole * each);
		assert_false(trace.damaged);
		assert_int_equal(trace.cut, cut != head && (!whole || cut != ends[whole - 1]));
	}
}

TEST(a_file_changed_at_any_byte_keeps_what_comes_before)
{
	struct seed seed = seed_start(__func__);
	size_t ends[4], head = file.n;
	unsigned each = make_mixed(&seed, ends, 4);
	uint8_t *copy = malloc(file.n);

	for (size_t i = 0; i < file.n; i++) {
		unsigned whole;

		memcpy(copy, file.bytes, file.n);
		copy[i] ^= (uint8_t)(1 + seed_below(&seed, 255));
		temporary_save(copy, file.n);
		int error = read_again();
		if (i < head) /* all kinds of sense may be left */
			continue;
		for (whole = 0; ends[whole] <= i; whole++)
			;
		assert_int_equal(error, 0);
		/* Thread and time of a frame are not under its check. */
		size_t place = i - (whole ? ends[whole - 1] : head);
		if (place >= 12 && place < 24) {
			assert_int_equal(trace.n_rows, 4 * each);
			continue;
		}
		assert_int_equal(trace.n_rows, whole * each);
		/* The last frame's length alone may look like an end. */
		assert_true(trace.damaged || (whole == 3 && trace.cut && place >= 4 && place < 8));
		assert_true(!trace.damaged || trace.problem[0]);
	}
	free(copy);
}

/* A frame of its own, with a right check, around these events. */
static void put_frame(const uint8_t *events, uint32_t n)
{
	uint32_t words[4] = {TRACE_FRAME, n, trace_check(events, n), 1};
	uint64_t time = 5;

	file_put(&file, words, sizeof(words));
	file_put(&file, &time, sizeof(time));
	file_put(&file, events, n);
}

TEST(events_that_lie_end_the_reading_there)
{
	const struct {
		uint8_t bytes[16];
		uint32_t n;
	} wrong[] = {
	    {{TRACE_again, 0, 0}, 3},                                       /* of nothing */
	    {{TRACE_submit, 0, 0, 0, 3, 0, 0}, 7},                          /* addresses that are not there */
	    {{TRACE_submit, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 10}, /* very many */
	    {{TRACE_name, 0, 0, 0, 0x7f, 'a'}, 6},                          /* a text that is not there */
	    {{TRACE_KINDS, 0}, 2},
	    {{TRACE_freed, 0}, 2},
	};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		file_free(&file);
		setup(NULL);
		put_frame((uint8_t[]){TRACE_pop, 0, 0}, 3);
		put_frame(wrong[i].bytes, wrong[i].n);
		put_frame((uint8_t[]){TRACE_pop, 0, 0}, 3);
		assert_int_equal(save_and_read(), 0);
		assert_int_equal(trace.n_rows, 1);
		assert_true(trace.damaged && !trace.cut && trace.problem[0]);
	}
}

TEST(random_events_are_read_without_harm)
{
	struct seed seed = seed_start(__func__);

	for (unsigned round = 0; round < 2000; round++) {
		file_free(&file);
		setup(NULL);
		for (unsigned frame = 0; frame < 4; frame++) {
			uint8_t events[60];
			uint32_t n = (uint32_t)seed_below(&seed, sizeof(events));

			for (uint32_t i = 0; i < n; i++)
				events[i] = (uint8_t)seed_below(&seed, seed_below(&seed, 3) ? TRACE_KINDS : 256);
			put_frame(events, n);
		}
		assert_int_equal(save_and_read(), 0);
		for (size_t i = 0; i < trace.n_blocks; i++)
			trace_block_at(&trace, trace.blocks[i].address, trace.blocks[i].made);
	}
}

static void check_refused(int error, const char *word)
{
	assert_int_equal(read_again(), error);
	if (!strstr(trace.problem, word))
		fail_msg("'%s' does not say '%s'", trace.problem, word);
}

TEST(what_is_no_trace_is_refused_with_a_reason)
{
	char folder[] = "/tmp/trace_wrong_test_d.XXXXXX", pipe_path[64];

	temporary_save("", 0);
	check_refused(-EINVAL, "not a trace");
	temporary_save(TRACE_MAGIC "\xff\xff\xff\xff", 12);
	check_refused(-EINVAL, "head");
	const char *heads[] = {"version=2\n", "", "version=01x\n", "clock=1\n"};
	for (unsigned i = 0; i < 4; i++) {
		file_free(&file);
		file = file_new(heads[i]);
		file_save(&file, temporary);
		check_refused(-EINVAL, "version");
	}
	file_free(&file);
	file = file_new("version=1\nfields=4,x\n");
	file_save(&file, temporary);
	check_refused(-EINVAL, "fields");
	trace_free(&trace);
	assert_int_equal(trace_read_file("/nowhere/at/all", &trace), -ENOENT);
	trace_free(&trace);
	assert_non_null(mkdtemp(folder));
	assert_int_equal(trace_read_file(folder, &trace), -EINVAL);
	snprintf(pipe_path, sizeof(pipe_path), "%s/pipe", folder);
	assert_int_equal(mkfifo(pipe_path, 0600), 0);
	trace_free(&trace);
	assert_int_equal(trace_read_file(pipe_path, &trace), -EINVAL);
	unlink(pipe_path);
	rmdir(folder);
}

EACH_TEST(setup, teardown)

GROUP(temporary_make, temporary_remove)
