// SPDX-License-Identifier: Apache-2.0
/*
 * A gzipped trace is read as the plain one; cut or changed anywhere it does no more than end the reading; and what
 * unpacks to something else is not unpacked further than that is seen.
 */
#include "test/test.h"
#include "test/unit/seed.h"
#include "test/unit/temporary.h"
#include "test/unit/trace_file.h"
#include "tools/trace/trace_read.h"

#include <zlib.h>

#define HEAD_TEXT "version=1\nstart=1000\nclock=50\n"
#define EVENTS    5000

static struct trace_file file;
static struct trace trace;

BEFORE_EACH
{
	struct seed seed = {7}; /* always the same file */

	file = file_new(HEAD_TEXT);
	file_frame(&file, 1, 0);
	for (uint64_t i = 0; i < EVENTS; i++) {
		FILE_ADD(&file, made, i, i + 1, seed_below(&seed, 1 << 30) * 512, 4096);
		if (i % 1000 == 999)
			file_frame(&file, 1, i);
	}
	file_end_frame(&file);
}

AFTER_EACH
{
	file_free(&file);
	trace_free(&trace);
}

static int read_bytes(const void *bytes, size_t n)
{
	temporary_save(bytes, n);
	trace_free(&trace);
	return trace_read_file(temporary, &trace);
}

/* One gzip stream of these. Returns its bytes; *ret_packed is to be freed. */
static size_t pack(const void *bytes, size_t n, uint8_t **ret_packed)
{
	z_stream stream = {0};
	size_t room = n + n / 100 + 1000;

	*ret_packed = malloc(room);
	assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	stream.next_in = (Bytef *)(uintptr_t)bytes;
	stream.avail_in = (uInt)n;
	stream.next_out = *ret_packed;
	stream.avail_out = (uInt)room;
	assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
	deflateEnd(&stream);
	return room - stream.avail_out;
}

TEST(a_gzipped_trace_is_read_as_the_plain_one)
{
	uint8_t *packed;
	size_t n = pack(file.bytes, file.n, &packed);

	assert_int_equal(read_bytes(packed, n), 0);
	assert_true(trace.n_rows == EVENTS && trace.n_blocks == EVENTS && !trace.cut && !trace.damaged);
	assert_int_equal(trace.bytes, file.n);
	free(packed);
}

TEST(several_streams_behind_each_other_are_one_file)
{
	uint8_t *one, *two, *both;
	size_t n_one = pack(file.bytes, file.n / 3, &one),
	       n_two = pack(file.bytes + file.n / 3, file.n - file.n / 3, &two);

	both = malloc(n_one + n_two + 5);
	memcpy(both, one, n_one);
	memcpy(both + n_one, two, n_two);
	memset(both + n_one + n_two, 0, 5);
	assert_int_equal(read_bytes(both, n_one + n_two + 5), 0);
	assert_true(trace.n_rows == EVENTS && !trace.cut && !trace.damaged);
	free(one);
	free(two);
	free(both);
}

TEST(one_that_is_cut_gives_what_is_there)
{
	uint8_t *packed;
	size_t n = pack(file.bytes, file.n, &packed);

	for (size_t i = 0; i < n; i += 1 + n / 300) {
		int error = read_bytes(packed, i);

		assert_true(error ? error == -EINVAL : trace.cut && trace.n_rows < EVENTS + 1);
	}
	assert_int_equal(read_bytes(packed, n / 2), 0);
	assert_true(trace.n_rows > EVENTS / 4);
	free(packed);
}

TEST(one_that_is_changed_is_read_up_to_there)
{
	struct seed seed = seed_start("trace_unpack_test");
	uint8_t *packed;
	size_t n = pack(file.bytes, file.n, &packed);

	for (unsigned i = 0; i < 300; i++) {
		size_t at = seed_below(&seed, n);
		uint8_t bit = (uint8_t)(1 << seed_below(&seed, 8));

		packed[at] ^= bit;
		int error = read_bytes(packed, n);
		/* The ten bytes of gzip's head have flags that change nothing. */
		assert_true(error ? error == -EINVAL : at < 10 || trace.damaged || trace.cut);
		packed[at] ^= bit;
	}
	free(packed);
}

TEST(what_unpacks_to_no_trace_is_not_unpacked_further)
{
	size_t most = (size_t)256 << 20;
	void *zeros = calloc(1, most);
	uint8_t *packed;
	size_t n = pack(zeros, most, &packed);

	free(zeros);
	assert_int_equal(read_bytes(packed, n), -EINVAL);
	assert_non_null(strstr(trace.problem, "not a trace"));
	assert_true(trace.bytes < most / 16);
	assert_int_equal(read_bytes("\x1f\x8b", 2), -EINVAL);
	free(packed);
}

TEST(what_is_packed_otherwise_is_named)
{
	assert_int_equal(read_bytes("\x28\xb5\x2f\xfd and more", 13), -EINVAL);
	assert_non_null(strstr(trace.problem, "zstd -d"));
	assert_int_equal(read_bytes("\xfd"
				    "7zXZ\0",
				    6),
			 -EINVAL);
	assert_non_null(strstr(trace.problem, "xz -d"));
}

GROUP(temporary_make, temporary_remove)
