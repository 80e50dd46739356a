/*
 * Whose what moves and is waited for is, in the digest of a trace that has births: the lines' at which the tensors were
 * born. And that a trace without them counts for allocations, as ever.
 */
#include "test/unit/temporary.h"
#include "test/unit/trace_file.h"
#include "tools/digest/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define MIB UINT64_C(1048576)
#define MS  UINT64_C(1000000)
#define AT  UINT64_C(0x7f0000000000)
#define T0  (1000 * MS)

static struct trace trace;
static struct digest digest;

/* Site 2 and 3 are one line, called from two places. A block of 64 MiB that site 1 has asked for. */
static struct trace_file file_begin(void)
{
	static const char *const names[] = {"job.py:3 in f", "job.py:4 in g", "job.py:4 in g"};
	struct trace_file file = file_new("version=1\nstart=1\nclock=1\n");

	file_frame(&file, 0, T0);
	for (uint64_t i = 0; i < 3; i++)
		trace_frame_add(file.writer, &(struct trace_event){.kind = TRACE_name,
								   .time = T0,
								   .field = {TRACE_SITES, i + 1},
								   .text = names[i],
								   .text_bytes = strlen(names[i])});
	FILE_ADD(&file, made, T0, 1, AT, 64 * MIB, 0, 0, 0, 0, 1, 0);
	FILE_ADD(&file, kept, T0, 0, AT, 64 * MIB);
	return file;
}

static void read_back(struct trace_file *file)
{
	FILE_ADD(file, end, T0 + 1000 * MS, 0);
	file_save(file, temporary);
	file_free(file);
	assert_int_equal(trace_read_file(temporary, &trace), 0);
	assert_int_equal(digest_make(&trace, NULL, &digest), 0);
}

static void done(void)
{
	digest_free(&digest);
	trace_free(&trace);
}

static const struct digest_group *group_of(enum digest_by by, uint64_t number)
{
	static const struct digest_group nothing;

	for (size_t i = 0; i < digest.tables[by].n; i++)
		if (digest.tables[by].groups[i].number == number)
			return &digest.tables[by].groups[i];
	return &nothing;
}

/* All of the block moves, from `at` ms on for 50 ms. */
static void move(struct trace_file *file, uint64_t number, uint64_t at, bool out)
{
	FILE_ADD(file, move, T0 + at * MS, number, 0, AT, 64 * MIB, out, out ? TRACE_WHY_ROOM : TRACE_WHY_WAITED, 0, 0);
	FILE_ADD(file, moved, T0 + (at + 50) * MS, number, 0, 0);
}

/* 16, 32 and 8 MiB of the sites; 8 MiB hold nothing. */
static void add_births(struct trace_file *file, bool known)
{
	FILE_ADD(file, born, T0 + MS, 0, AT, 16 * MIB, known ? 1 : 0);
	FILE_ADD(file, born, T0 + MS, 0, AT + 16 * MIB, 32 * MIB, known ? 2 : 0);
	FILE_ADD(file, born, T0 + MS, 0, AT + 48 * MIB, 8 * MIB, known ? 3 : 0);
}

static void what_moves_is_of_the_lines_of_its_tensors(void **state)
{
	struct trace_file file = file_begin();

	(void)state;
	add_births(&file, true);
	move(&file, 1, 10, true);
	FILE_ADD(&file, wait, T0 + 100 * MS, 0, 56 * MS, 0);
	move(&file, 2, 100, false);
	read_back(&file);
	const struct digest_group *f = group_of(DIGEST_BY_SITE, 1), *g = group_of(DIGEST_BY_SITE, 2);
	assert_true(f->bytes_out == 24 * MIB && f->bytes_in == 24 * MIB); /* with what holds nothing */
	assert_true(g->bytes_out == 40 * MIB && g->bytes_in == 40 * MIB);
	assert_true(f->wait_ns == 16 * MS && g->wait_ns == 40 * MS);
	assert_true(!f->moves_out && g->moves_out == 1 && !f->moves_in && g->moves_in == 1);
	assert_true(f->allocations == 1 && f->peak == 64 * MIB && !g->allocations && !g->peak);
	assert_true(f->tensors == 1 && f->tensor_bytes == 16 * MIB && g->tensors == 2 && g->tensor_bytes == 40 * MIB);
	assert_int_equal(group_of(DIGEST_BY_CALLS, 2)->bytes_in, 32 * MIB);
	assert_int_equal(group_of(DIGEST_BY_CALLS, 3)->bytes_in, 8 * MIB);
	assert_int_equal(group_of(DIGEST_BY_CALLS, 3)->wait_ns, 8 * MS);
	/* Other tables are about allocations. */
	assert_int_equal(group_of(DIGEST_BY_RULE, 0)->bytes_in, 64 * MIB);
	assert_int_equal(digest.total.bytes_in, 64 * MIB);
	assert_true(digest.total.tensors == 3 && digest.total.tensor_bytes == 56 * MIB);
	assert_int_equal(digest.tables[DIGEST_BY_SITE].groups[0].number, 2); /* it costs most */
	assert_non_null(strstr(digest.costs[0].evidence,
			       "40.0 ms of it for tensors of site \"job.py:4 in g\", of which 40.0 MiB were brought in"));
	assert_non_null(strstr(digest.advice[0], "Tensors of site \"job.py:4 in g\" cause 62"));
	done();
}

static void a_range_that_is_born_again_is_of_the_new_line(void **state)
{
	struct trace_file file = file_begin();

	(void)state;
	add_births(&file, true);
	FILE_ADD(&file, died, T0 + 2 * MS, 0, AT + 16 * MIB, 32 * MIB);
	move(&file, 1, 10, true);
	FILE_ADD(&file, born, T0 + 70 * MS, 0, AT + 16 * MIB, 32 * MIB, 1);
	move(&file, 2, 100, false);
	read_back(&file);
	/* On the way out it was dead, and of nobody's tensors. */
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->bytes_out, 56 * MIB);
	assert_int_equal(group_of(DIGEST_BY_SITE, 2)->bytes_out, 8 * MIB);
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->bytes_in, 56 * MIB);
	assert_int_equal(group_of(DIGEST_BY_SITE, 2)->bytes_in, 8 * MIB);
	done();
}

static void without_sites_of_births_it_is_of_the_allocation(void **state)
{
	struct trace_file file = file_begin();

	(void)state;
	add_births(&file, false);
	move(&file, 1, 10, true);
	read_back(&file);
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->bytes_out, 64 * MIB);
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->moves_out, 1);
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->tensors, 0);
	assert_int_equal(digest.total.tensors, 3);
	assert_int_equal(digest.tables[DIGEST_BY_SITE].n, 1);
	assert_int_equal(digest.n_shares, 0);
	done();
}

/* Numbers that no file of ours has. */
static void absurd_sites_are_no_sites(void **state)
{
	struct trace_file file = file_begin();

	(void)state;
	FILE_ADD(&file, born, T0 + MS, 0, AT, 16 * MIB, 65537);
	FILE_ADD(&file, born, T0 + MS, 0, AT + 16 * MIB, 16 * MIB, UINT64_MAX);
	FILE_ADD(&file, born, T0 + MS, 0, AT, UINT64_MAX, 1);
	move(&file, 1, 10, true);
	read_back(&file);
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->bytes_out, 64 * MIB);
	assert_int_equal(digest.n_shares, 0);
	done();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_moves_is_of_the_lines_of_its_tensors),
	    cmocka_unit_test(a_range_that_is_born_again_is_of_the_new_line),
	    cmocka_unit_test(without_sites_of_births_it_is_of_the_allocation),
	    cmocka_unit_test(absurd_sites_are_no_sites),
	};

	return cmocka_run_group_tests(tests, temporary_make, temporary_remove);
}
