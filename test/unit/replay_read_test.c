// SPDX-License-Identifier: Apache-2.0
/*
 * A trace becomes a model, and no file, however it was cut or changed, does more than end the reading.
 */
#include "policy/policy.h"
#include "test/test.h"
#include "test/unit/seed.h"
#include "test/unit/temporary.h"
#include "test/unit/trace_file.h"
#include "tools/replay/replay_model.h"
#include "tools/trace/trace_read.h"

#include <sys/stat.h>

#define S UINT64_C(1000000000)

static struct replay_model model;

AFTER_EACH
{
	replay_model_free(&model);
}

static int read_bytes(const void *bytes, size_t n)
{
	temporary_save(bytes, n);
	replay_model_free(&model);
	return replay_model_read(&model, temporary);
}

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

static void read_it(struct trace_file *file)
{
	file_save(file, temporary);
	file_free(file);
	replay_model_free(&model);
	assert_int_equal(replay_model_read(&model, temporary), 0);
}

TEST(what_does_not_fit_is_counted_and_passed_over)
{
	struct trace_file file = file_new("version=1\nclock=0\n");

	/* No bytes, freed twice, the end of what never was. */
	file_frame(&file, 0, S);
	FILE_ADD(&file, made, S, 1, 0x10000000, 100, POLICY_API_MALLOC);
	FILE_ADD(&file, made, S, 2, 0x20000000, 0, POLICY_API_MALLOC);
	FILE_ADD(&file, freed, S + 1, 1);
	FILE_ADD(&file, freed, S + 2, 1);
	FILE_ADD(&file, freed, S + 3, 77);
	read_it(&file);
	assert_int_equal(model.strange, 3);
	assert_int_equal(model.strange_at, 2);
	assert_int_equal(model.n_blocks, 1);
	assert_true(model.blocks[0].freed);
}

TEST(what_is_no_file_is_told)
{
	replay_model_free(&model);
	assert_int_equal(replay_model_read(&model, "/nonexistent/trace"), -ENOENT);
	assert_int_equal(replay_model_read(&model, "/tmp"), -EINVAL);
	/* Nobody writes to it: that must not wait. */
	unlink(temporary);
	assert_int_equal(mkfifo(temporary, 0600), 0);
	assert_int_not_equal(replay_model_read(&model, temporary), 0);
	unlink(temporary);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(read_bytes("hello\n", i * 6), -EINVAL);
		assert_true(model.problem[0]);
	}
}

TEST(a_trace_is_read)
{
	struct trace_file file = a_trace();

	read_it(&file);
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

TEST(a_trace_of_a_job_that_spilled_says_so)
{
	for (unsigned how = 0; how < 3; how++) {
		struct trace_file file = a_trace();

		file_frame(&file, 0, 2 * S);
		if (how == 1)
			FILE_ADD(&file, made, 2 * S, 9, 0x40000000, 4 * MIB, POLICY_API_MALLOC, 0, 0, 0, 0, 2 * MIB);
		if (how == 2)
			FILE_ADD(&file, move, 2 * S, 1, 0, 0x20000000, 2 * MIB, 1, TRACE_WHY_ROOM);
		read_it(&file);
		assert_int_equal(model.spilled, how != 0);
	}
}

TEST(a_trace_of_a_job_that_borrowed_says_so)
{
	for (unsigned how = 0; how < 5; how++) {
		struct trace_file file = a_trace();

		file_frame(&file, 0, 2 * S);
		FILE_ADD(&file, made, 2 * S, 9, 0x40000000, 4 * MIB, POLICY_API_MALLOC, 0, 0, 0, 0, 2 * MIB);
		if (how == 1)
			FILE_ADD(&file, lent, 2 * S, 9, 1, MIB);
		if (how > 1)
			FILE_ADD(&file, move, 2 * S, 1, 0, 0x20000000, 2 * MIB, how != 3, TRACE_WHY_ROOM,
				 how == 4 ? 0 : 2, how == 4 ? 2 : 0);
		read_it(&file);
		assert_int_equal(model.peers, how != 0);
		assert_true(model.spilled);
	}
}

TEST(the_same_address_is_another_block_later)
{
	struct trace_file file = a_trace();
	const struct replay_event *last = NULL;

	read_it(&file);
	for (size_t i = 0; i < model.n_events; i++)
		last = model.events[i].kind == REPLAY_SUBMIT ? &model.events[i] : last;
	const struct replay_submit *submit = &model.submits[last->which];
	assert_int_equal(model.named[submit->first].block, 2);
	/* The first and the third submission are one. */
	assert_int_equal(model.n_submits, 3);
}

TEST(any_change_of_a_trace_does_no_more_than_end_the_reading)
{
	struct trace_file file = a_trace();
	struct seed seed = seed_start(__func__);
	uint8_t *copy = malloc(file.n + 1024);

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

GROUP(temporary_make, temporary_remove)
