/*
 * version_test.c: what processes under Spillway show of themselves and what they write is read by the `spillway` of another
 * version, too: an older one and a newer one. Each reader says in one line what it found and which side is older, and takes
 * no number from it. The data are those of the real writers, with the version exchanged, and the size where it differs.
 *
 * The library's side of it: quota_file_test.c (the shared file).
 */
#include "test/slow.h"
#include "test/unit/page_make.h"
#include "test/unit/temporary.h"
#include "test/unit/trace_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

#include <cmocka.h>

static char said[1 << 16]; /* stdout and stderr of the last tool() */
static int status;

static void tool(const char *arguments, ...) __attribute__((format(printf, 1, 2)));
static void tool(const char *arguments, ...)
{
	char line[512];
	va_list list;
	int n = snprintf(line, sizeof(line), "exec timeout %d %s ", 20 * TEST_SLOWNESS, TOOL);

	va_start(list, arguments);
	vsnprintf(line + n, sizeof(line) - (size_t)n, arguments, list);
	va_end(list);
	strcat(line, " 2>&1");
	FILE *pipe = popen(line, "r");
	assert_non_null(pipe);
	said[fread(said, 1, sizeof(said) - 1, pipe)] = 0;
	int ended = pclose(pipe);
	assert_true(WIFEXITED(ended));
	status = WEXITSTATUS(ended);
}

static void has(const char *text)
{
	if (!strstr(said, text))
		fail_msg("\"%s\" is not in: %s", text, said);
}

static void has_not(const char *text)
{
	if (strstr(said, text))
		fail_msg("\"%s\" is in: %s", text, said);
}

static int begin(void **state)
{
	(void)state;
	page_make_begin();
	return 0;
}

static int end(void **state)
{
	(void)state;
	page_make_end();
	return 0;
}

/* ---- the page of figures ---- */

static void show_page(uint64_t version, size_t bytes)
{
	struct stats_page *whole = page_make(getpid());
	struct stats_page *page = calloc(1, 2 * sizeof(*page));

	assert_non_null(page);
	memcpy((void *)page, (const void *)whole, sizeof(*page));
	page->version = version;
	page->bytes = bytes;
	page_make_write(page, bytes);
	free(page);
	free(whole);
}

static void pages_of_other_versions_are_said_to_be(void **state)
{
	static const struct {
		int version;
		size_t bytes;
		const char *row;
	} other[] = {
	    {STATS_VERSION + 1, sizeof(struct stats_page), "use the newer spillway"},
	    {STATS_VERSION + 1, sizeof(struct stats_page) + STATS_ALIGN, "use the newer spillway"},
	    {STATS_VERSION - 1, sizeof(struct stats_page), "use the older spillway"},
	    {STATS_VERSION - 1, sizeof(struct stats_page) - STATS_ALIGN, "use the older spillway"},
	    {STATS_VERSION - 1, 4096, "use the older spillway"},
	};
	char row[128];

	(void)state;
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		show_page((uint64_t)other[i].version, other[i].bytes);
		tool("top --once %d", (int)getpid());
		assert_int_equal(status, 0);
		snprintf(row, sizeof(row), "(its figures are of version %d; this tool knows version %d: %s)\n",
			 other[i].version, STATS_VERSION, other[i].row);
		has(row);
		has_not("train.py");
		tool("top --once --json %d", (int)getpid());
		snprintf(row, sizeof(row), "\"version\": %d", other[i].version);
		has("\"state\": \"other version\"");
		has(row);
		has_not("train.py");
	}
}

/* The size is a part of the version: within one the page does not grow, and one that did would be read wrongly. */
static void a_page_of_this_version_and_another_size_is_broken(void **state)
{
	(void)state;
	show_page(STATS_VERSION, sizeof(struct stats_page) + STATS_ALIGN);
	tool("top --once %d", (int)getpid());
	assert_int_equal(status, 0);
	has("(its file is broken: its size is ");
	has_not("train.py");
}

/* ---- the trace ---- */

static void save_trace(const char *version, const char *more)
{
	char head[512];

	snprintf(head, sizeof(head), "%s\nstart=1000\nclock=50\nmode=exact\n%s", version, more);
	struct trace_file file = file_new(head);
	file_frame(&file, 1, 100);
	FILE_ADD(&file, made, 100, 1, 4096, 4096);
	file_save(&file, temporary);
	file_free(&file);
}

static void traces_of_other_versions_are_said_to_be(void **state)
{
	static const struct {
		const char *version, *says;
	} other[] = {
	    {"version=2",
	     "is of version 2; this reader knows version 1: read it with the newer spillway that wrote it\n"},
	    {"version=0",
	     "is of version 0; this reader knows version 1: read it with the older spillway that wrote it\n"},
	    {"version=99999999999999999999",
	     "this reader knows version 1: read it with the newer spillway that wrote it\n"},
	    {"version=1.5", "is of version 1.5; this reader knows version 1\n"},
	    {"version=-1", "is of version -1; this reader knows version 1\n"},
	    {"version=", "is of version ?; this reader knows version 1\n"},
	    {"host=a", "is of version ?; this reader knows version 1\n"},
	};

	(void)state;
	assert_int_equal(TRACE_VERSION, 1);
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		save_trace(other[i].version, "");
		tool("report %s", temporary);
		assert_int_equal(status, 2);
		has(other[i].says);
		assert_ptr_equal(strchr(said, '\n') + 1, strchr(said, 0));
		tool("replay %s", temporary);
		assert_int_equal(status, 2);
		has(other[i].says);
		assert_ptr_equal(strchr(said, '\n') + 1, strchr(said, 0));
	}
	save_trace("version=1", "");
	tool("report %s", temporary);
	assert_int_equal(status, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
	    TEST(pages_of_other_versions_are_said_to_be),
	    TEST(a_page_of_this_version_and_another_size_is_broken),
	    TEST(traces_of_other_versions_are_said_to_be),
	};
	return cmocka_run_group_tests(tests, temporary_make, temporary_remove);
}
