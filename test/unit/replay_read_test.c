/*
 * Every kind of file becomes the same model, and no file, however it was cut or changed, does more than end the reading
 * with the line or event where that was.
 */
#include "policy/policy.h"
#include "test/unit/seed.h"
#include "test/unit/temporary.h"
#include "test/unit/trace_file.h"
#include "tools/replay/replay_model.h"
#include "tools/trace/trace_read.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cmocka.h>

#define MIB UINT64_C(1048576)
#define S   UINT64_C(1000000000)

static struct replay_model model;

static int teardown(void **state)
{
	(void)state;
	replay_model_free(&model);
	return 0;
}

static int read_bytes(const void *bytes, size_t n)
{
	temporary_save(bytes, n);
	replay_model_free(&model);
	return replay_model_read(&model, temporary);
}

static int read_text(const char *text)
{
	return read_bytes(text, strlen(text));
}

static void assert_wrong(const char *text, const char *why)
{
	assert_int_equal(read_text(text), -EINVAL);
	if (!strstr(model.problem, why))
		fail_msg("\"%s\" does not say \"%s\"", model.problem, why);
}

/* ---- text ---- */

static void text_is_read(void **state)
{
	(void)state;
	assert_int_equal(read_text("# a remark\nA 7 1048576\nA 9 4194304\nL ab12 7:0 9:200000\nF 7\nL ff\n"), 0);
	assert_int_equal(model.n_blocks, 2);
	assert_int_equal(model.n_events, 5);
	assert_int_equal(model.n_launches, 2);
	assert_int_equal(model.peak_bytes, 5 * MIB);
	assert_int_equal(model.blocks[1].order, 2);
	assert_int_equal(model.blocks[1].place, 3);
	assert_true(model.blocks[0].freed);
	assert_int_equal(model.submits[0].function, 0xab12);
	assert_int_equal(model.submits[0].n, 2);
	assert_int_equal(model.named[1].block, 1);
	assert_int_equal(model.named[1].offset, 2 * MIB);
	assert_int_equal(model.submits[1].n, 0);
	assert_int_equal(model.strange, 0);
	assert_false(model.timed);
}

static void what_does_not_fit_is_counted_and_passed_over(void **state)
{
	(void)state;
	/* Freed twice, named when freed, named beyond the end, made twice, the end of what never was. */
	assert_int_equal(read_text("A 1 100\nF 1\nF 1\nL 1 1:0\nA 2 100\nL 1 2:64\nA 2 50\nF 5\n"), 0);
	assert_int_equal(model.strange, 5);
	assert_int_equal(model.strange_at, 3);
	assert_int_equal(model.n_named, 0);
	assert_int_equal(model.n_blocks, 3);
}

static void wrong_text_names_its_line(void **state)
{
	(void)state;
	assert_wrong("A 1 100\nX\n", "line 2");
	assert_wrong("A 1\n", "line 1");
	assert_wrong("A 1 -5\n", "line 1");
	assert_wrong("A 1 0\n", "line 1");
	assert_wrong("A 1 99999999999999999999999\n", "line 1");
	assert_wrong("A 1 17592186044417\n", "line 1: no allocation has that many bytes");
	assert_wrong("A 1 100 5\n", "line 1");
	assert_wrong("A 1 100\nF x\n", "line 2");
	assert_wrong("A 1 100\nL 1 1:0 1\n", "line 2");
	assert_wrong("A 1 100\nL 1 1:zz\n", "line 2");
	assert_wrong("A 1 100\nL 1 1:0:\n", "line 2");
	assert_wrong("A 1 100\nL q\n", "line 2");
	assert_wrong("L 1\n", "no allocation");
	assert_wrong("", "empty");
	assert_wrong("hello\n", "no trace");
}

static void a_line_that_is_too_long_ends_the_reading(void **state)
{
	size_t n = 3 * MIB;
	char *text = malloc(n);
	(void)state;

	memset(text, '1', n);
	memcpy(text, "A 1 100\nL 1", 11);
	assert_int_equal(read_bytes(text, n), -EINVAL);
	assert_non_null(strstr(model.problem, "line 2: it is too long"));
	free(text);
}

static void a_zero_in_the_text_is_told(void **state)
{
	static const char text[] = "A 1 100\nA 2\0 100\nA 3 100\n";
	(void)state;

	assert_int_equal(read_bytes(text, sizeof(text) - 1), -EINVAL);
	assert_non_null(strstr(model.problem, "line 2: this is no text"));
}

static size_t gzipped(const char *text, uint8_t *room, size_t bytes)
{
	gzFile file = gzopen(temporary, "wb");

	assert_non_null(file);
	assert_int_equal(gzwrite(file, text, (unsigned)strlen(text)), (int)strlen(text));
	gzclose(file);
	int fd = open(temporary, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, room, bytes);
	close(fd);
	assert_true(n > 0);
	return (size_t)n;
}

static void gzipped_text_is_read_and_half_of_it_is_told(void **state)
{
	char *text = malloc(1 << 16);
	static uint8_t room[1 << 16];
	size_t at = 0;
	(void)state;

	for (unsigned i = 0; i < 1000; i++)
		at += (size_t)sprintf(text + at, "A %u %u\n", i, 1000 + i * 7919 % 10000);
	size_t n = gzipped(text, room, sizeof(room));
	assert_int_equal(read_bytes(room, n), 0);
	assert_int_equal(model.n_blocks, 1000);
	assert_int_equal(read_bytes(room, n / 2), -EINVAL);
	assert_non_null(strstr(model.problem, "cannot be read to its end"));
	free(text);
}

static void what_is_no_file_is_told(void **state)
{
	(void)state;
	replay_model_free(&model);
	assert_int_equal(replay_model_read(&model, "/nonexistent/trace"), -ENOENT);
	assert_int_equal(replay_model_read(&model, "/tmp"), -EISDIR);
	/* Nobody writes to it: that must not wait. */
	unlink(temporary);
	assert_int_equal(mkfifo(temporary, 0600), 0);
	assert_int_not_equal(replay_model_read(&model, temporary), 0);
	unlink(temporary);
}

/* ---- RMM ---- */

static void a_log_of_rmm_is_read(void **state)
{
	(void)state;
	assert_int_equal(read_text("Thread,Time,Action,Pointer,Size,Stream\n"
				   "140,11:22:33:000001,allocate,0x7f0000000000,2097152,0x0\n"
				   "140,11:22:33:000002,allocate,7F0000400000,1048576,0x0\r\n"
				   "140,11:22:33:000003,free,0x7f0000000000,2097152,0x0\n"
				   "140,11:22:33:000004,allocate failure,0,999,0x0\n"
				   "140,11:22:33:000005,allocate,0x7f0000000000,512,0x0\n"),
			 0);
	assert_int_equal(model.n_blocks, 3);
	assert_int_equal(model.n_launches, 0);
	assert_int_equal(model.peak_bytes, 3 * MIB);
	assert_int_equal(model.refused, 1);
	assert_int_equal(model.blocks[2].place, 6);
	assert_int_equal(model.strange, 0);
}

static void columns_may_stand_in_any_order(void **state)
{
	(void)state;
	assert_int_equal(read_text("\"Size\", \"Pointer\", \"Action\", \"Device\"\n100,0x10,\"allocate\",3\n"), 0);
	assert_int_equal(model.blocks[0].bytes, 100);
	assert_int_equal(model.blocks[0].device, 3);
}

static void ends_of_what_was_there_before_are_passed_over(void **state)
{
	(void)state;
	assert_int_equal(read_text("Action,Pointer,Size\nfree,10,5\nallocate,10,5\nallocate,10,6\n"), 0);
	assert_int_equal(model.strange, 2);
	assert_int_equal(model.peak_bytes, 6);
}

static void a_wrong_log_names_its_line(void **state)
{
	(void)state;
	assert_wrong("Action,Pointer,Size\nallocate,10\n", "line 2");
	assert_wrong("Action,Pointer,Size\nallocate,10,5,7\n", "line 2");
	assert_wrong("Action,Pointer,Size\ngrow,10,5\n", "line 2: the action");
	assert_wrong("Action,Pointer,Size\nallocate,xyz,5\n", "line 2: the pointer");
	assert_wrong("Action,Pointer,Size\nallocate,10,five\n", "line 2: the size");
	assert_wrong("Action,Pointer,Size\nallocate,10,99999999999999999999\n", "line 2: the size");
	assert_wrong("Action,Pointer,Size\nallocate,10,1099511627776000\n", "line 2: no allocation");
	assert_wrong("Action,Pointer,Size,Device\nallocate,10,5,63\n", "line 2: the device");
	assert_wrong("Action,Pointer,Size\n\n", "no allocation");
	assert_wrong("Action,Pointer,Size,,,,,,,,,,,,,,,,,,,\nallocate,1,1\n", "line 1");
}

/* ---- traces ---- */

static struct trace_file a_trace(void)
{
	struct trace_file file =
	    file_new("version=1\nstart=1000\nclock=0\ncommand=/opt/bin/train.py --fast 3\nrank=3\n");
	const struct trace_named one[] = {{0x20000200, 0}}, two[] = {{0x20000000, 0}, {0x30000400, 4096}};

	file_frame(&file, 0, S);
	file_name(&file, TRACE_SITES, 1, "libtorch_cuda.so+0x12", 21);
	FILE_ADD(&file, made, S, 5, 0x20000000, 4 * MIB, POLICY_API_MALLOC, 0, 0, 0, 1, 0);
	FILE_ADD(&file, made, S, 6, 0x30000000, 8 * MIB, POLICY_API_ASYNC, 1, 0, 0, 0, 0);
	FILE_ADD(&file, refused, S, 1, 0, 0, 0, 0, 2);
	file_submit(&file, S + 10, 77, one, 1);
	file_submit(&file, S + 20, 78, two, 2);
	FILE_ADD(&file, wait, S + 30, 0, 100, 0);
	FILE_ADD(&file, gap, S + 40, 0, 60, 0, 0, 0);
	file_submit(&file, S + 140, 77, one, 1);
	FILE_ADD(&file, freed, S + 150, 5);
	FILE_ADD(&file, made, S + 160, 7, 0x20000000, 2 * MIB, POLICY_API_MALLOC, 0, 0, 0, 0, 0);
	file_submit(&file, S + 170, 77, one, 1);
	FILE_ADD(&file, end, S + 200, 0);
	return file;
}

static void a_trace_is_read(void **state)
{
	struct trace_file file = a_trace();
	(void)state;

	file_save(&file, temporary);
	file_free(&file);
	assert_int_equal(replay_model_read(&model, temporary), 0);
	assert_true(model.timed);
	assert_int_equal(model.n_blocks, 3);
	assert_int_equal(model.n_launches, 4);
	assert_int_equal(model.refused, 1);
	assert_int_equal(model.peak_bytes, 12 * MIB);
	assert_string_equal(model.texts[model.blocks[0].site], "libtorch_cuda.so+0x12");
	assert_int_equal(model.blocks[1].site, REPLAY_NONE);
	assert_int_equal(model.blocks[1].device, 1);
	assert_int_equal(model.blocks[1].api, POLICY_API_ASYNC);
	assert_string_equal(model.process, "train.py");
	assert_string_equal(model.arguments, "--fast 3");
	assert_int_equal(model.rank, 3);
	assert_int_equal(model.named[1].block, 0);
	assert_int_equal(model.named[2].block, 1);
	assert_int_equal(model.named[2].offset, 0x400);
	assert_int_equal(model.named[2].bytes, 4096);
}

static void a_trace_of_a_job_that_spilled_says_so(void **state)
{
	(void)state;
	for (unsigned how = 0; how < 3; how++) {
		struct trace_file file = a_trace();

		file_frame(&file, 0, 2 * S);
		if (how == 1)
			FILE_ADD(&file, made, 2 * S, 9, 0x40000000, 4 * MIB, POLICY_API_MALLOC, 0, 0, 0, 0, 2 * MIB);
		if (how == 2)
			FILE_ADD(&file, move, 2 * S, 1, 0, 0x20000000, 2 * MIB, 1, TRACE_WHY_ROOM);
		file_save(&file, temporary);
		file_free(&file);
		replay_model_free(&model);
		assert_int_equal(replay_model_read(&model, temporary), 0);
		assert_int_equal(model.spilled, how != 0);
	}
}

static void a_trace_of_a_job_that_borrowed_says_so(void **state)
{
	(void)state;
	for (unsigned how = 0; how < 5; how++) {
		struct trace_file file = a_trace();

		file_frame(&file, 0, 2 * S);
		FILE_ADD(&file, made, 2 * S, 9, 0x40000000, 4 * MIB, POLICY_API_MALLOC, 0, 0, 0, 0, 2 * MIB);
		if (how == 1)
			FILE_ADD(&file, lent, 2 * S, 9, 1, MIB);
		if (how > 1)
			FILE_ADD(&file, move, 2 * S, 1, 0, 0x20000000, 2 * MIB, how != 3, TRACE_WHY_ROOM,
				 how == 4 ? 0 : 2, how == 4 ? 2 : 0);
		file_save(&file, temporary);
		file_free(&file);
		replay_model_free(&model);
		assert_int_equal(replay_model_read(&model, temporary), 0);
		assert_int_equal(model.peers, how != 0);
		assert_true(model.spilled);
	}
}

static void the_same_address_is_another_block_later(void **state)
{
	struct trace_file file = a_trace();
	const struct replay_event *last = NULL;
	(void)state;

	file_save(&file, temporary);
	file_free(&file);
	assert_int_equal(replay_model_read(&model, temporary), 0);
	for (size_t i = 0; i < model.n_events; i++)
		last = model.events[i].kind == REPLAY_SUBMIT ? &model.events[i] : last;
	const struct replay_submit *submit = &model.submits[last->which];
	assert_int_equal(model.named[submit->first].block, 2);
	/* The first and the third submission are one. */
	assert_int_equal(model.n_submits, 3);
}

static void any_change_of_a_trace_does_no_more_than_end_the_reading(void **state)
{
	struct trace_file file = a_trace();
	struct seed seed = seed_start(__func__);
	uint8_t *copy = malloc(file.n + 1024);
	(void)state;

	file_save(&file, temporary); /* ends the last frame */
	for (unsigned round = 0; round < 400; round++) {
		size_t n = file.n;

		memcpy(copy, file.bytes, n);
		for (uint64_t k = seed_below(&seed, 4); k; k--)
			copy[seed_below(&seed, n)] = (uint8_t)seed_next(&seed);
		if (seed_below(&seed, 3) == 0)
			n = seed_below(&seed, n);
		if (read_bytes(copy, n))
			assert_true(model.problem[0]);
	}
	free(copy);
	file_free(&file);
}

static void any_change_of_a_text_does_no_more_than_end_the_reading(void **state)
{
	static const char *const good[] = {"A 1 4096\nA 2 8192\nL ab 1:0 2:400\nF 1\nL ab 2:0\n",
					   "Thread,Time,Action,Pointer,Size,Stream\n1,2,allocate,0x10,77,0\n"
					   "1,3,free,0x10,77,0\n"};
	struct seed seed = seed_start(__func__);
	char copy[256];
	(void)state;

	for (unsigned round = 0; round < 2000; round++) {
		const char *text = good[round % 2];
		size_t n = strlen(text);

		memcpy(copy, text, n);
		for (uint64_t k = seed_below(&seed, 4); k; k--)
			copy[seed_below(&seed, n)] = "AFL 019:,\n\rx\0\xff\""[seed_below(&seed, 16)];
		if (seed_below(&seed, 3) == 0)
			n = seed_below(&seed, n);
		if (read_bytes(copy, n))
			assert_true(model.problem[0]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_teardown(name, teardown)
	    TEST(text_is_read),
	    TEST(what_does_not_fit_is_counted_and_passed_over),
	    TEST(wrong_text_names_its_line),
	    TEST(a_line_that_is_too_long_ends_the_reading),
	    TEST(a_zero_in_the_text_is_told),
	    TEST(gzipped_text_is_read_and_half_of_it_is_told),
	    TEST(what_is_no_file_is_told),
	    TEST(a_log_of_rmm_is_read),
	    TEST(columns_may_stand_in_any_order),
	    TEST(ends_of_what_was_there_before_are_passed_over),
	    TEST(a_wrong_log_names_its_line),
	    TEST(a_trace_is_read),
	    TEST(a_trace_of_a_job_that_spilled_says_so),
	    TEST(a_trace_of_a_job_that_borrowed_says_so),
	    TEST(the_same_address_is_another_block_later),
	    TEST(any_change_of_a_trace_does_no_more_than_end_the_reading),
	    TEST(any_change_of_a_text_does_no_more_than_end_the_reading),
	};
	return cmocka_run_group_tests(tests, temporary_make, temporary_remove);
}
