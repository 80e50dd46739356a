// SPDX-License-Identifier: Apache-2.0
/*
 * tools_common_test.c: what the commands of the tool share: the table of options, the writer of JSON, arrays that grow
 * and the map from numbers to numbers; and memory that runs out in the last two.
 */
#include "test/test.h"
#include "test/unit/failing_alloc.h"
#include "tools/common/grow.h"
#include "tools/common/json.h"
#include "tools/common/options.h"
#include "tools/common/tool.h"
#include "tools/common/wrap.h"

#include <sys/ioctl.h>
#include <sys/mman.h>

#include <getopt.h>

FIXTURE(fail_no_more)
{
	fail_every = n_allocations = 0;
}

EACH_TEST(fail_no_more, fail_no_more)

/* ---- what is printed ---- */

/* stdout and stderr between catch_begin() and catch_end(). */
static char out[4096], err[4096];
static int kept[2], caught[2];

static void catch_begin(void)
{
	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		caught[i] = memfd_create("caught", MFD_CLOEXEC);
		kept[i] = dup(1 + i);
		assert_true(caught[i] >= 0 && kept[i] >= 0 && dup2(caught[i], 1 + i) == 1 + i);
	}
}

static void catch_end(void)
{
	char *const text[2] = {out, err};

	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		dup2(kept[i], 1 + i);
		close(kept[i]);
		ssize_t n = pread(caught[i], text[i], sizeof(out) - 1, 0);
		close(caught[i]);
		assert_true(n >= 0);
		text[i][n] = 0;
	}
}

/* ---- options ---- */

struct request {
	bool all;
	const char *name;
	int code; /* of the last option that was read by read_number() */
	long number;
	bool absent;
};

static bool read_number(void *to, int code, const char *text, char *why)
{
	struct request *request = to;
	char *end;

	request->code = code;
	request->absent = !text;
	if (!text)
		return true;
	request->number = strtol(text, &end, 10);
	if (!*end)
		return true;
	if (code == 7)
		strcpy(why, "that is no number");
	else
		tool_say("said by the reader");
	return false;
}

static void print_more(void)
{
	fputs(" (more)", stdout);
}

static void print_end(void)
{
	puts("the end");
}

static const struct option_row rows[] = {
    OPTION_FLAG("all", request, all, "everything"),
    {.name = "name",
     .value = "TEXT",
     .help = "a name\non two lines",
     .at = offsetof(struct request, name),
     .letter = 'n'},
    {.name = "count",
     .value = "N",
     .help = "a number",
     .more = print_more,
     .read = read_number,
     .code = 7,
     .letter = 'c'},
    OPTION_READ("maybe", "[=N]", read_number, 8, "with or without"),
    {.name = "quick", .help = "a flag with a letter", .at = offsetof(struct request, all), .letter = 'q'},
    OPTION_READ("a-very-long-option", "VALUE", read_number, 9, "its help stands behind it"),
};

static struct options options = {
    .command = "probe",
    .head = "usage: spillway probe\n",
    .tail = "tail\n",
    .more = print_end,
    .rows = rows,
    .n = sizeof(rows) / sizeof(rows[0]),
    .column = 18,
};

static struct request request;

/* Up to seven arguments. */
static int read_options(const char *first, ...)
{
	char *argv[10] = {(char *)"probe"};
	int argc = 1;
	va_list list;

	va_start(list, first);
	for (const char *at = first; at; at = va_arg(list, const char *))
		argv[argc++] = (char *)at;
	va_end(list);
	request = (struct request){0};
	catch_begin();
	int status = options_read(&options, argc, argv, &request);
	catch_end();
	return status;
}

TEST(options_of_each_kind_fill_the_request)
{
	assert_int_equal(read_options(NULL), OPTIONS_GO_ON);
	assert_int_equal(optind, 1);
	assert_false(request.all);
	assert_null(request.name);
	assert_int_equal(read_options("--all", "--name", "x", "--count=5", "rest", NULL), OPTIONS_GO_ON);
	assert_int_equal(optind, 5);
	assert_true(request.all);
	assert_string_equal(request.name, "x");
	assert_int_equal(request.number, 5);
	assert_int_equal(request.code, 7);
	assert_int_equal(read_options("--maybe=6", NULL), OPTIONS_GO_ON);
	assert_true(request.number == 6 && request.code == 8 && !request.absent);
	assert_int_equal(read_options("--maybe", "6", NULL), OPTIONS_GO_ON);
	assert_true(request.number == 0 && request.code == 8 && request.absent);
	/* Letters, alone and several together, the value behind or beside. */
	assert_int_equal(read_options("-qc4", "-n", "y", NULL), OPTIONS_GO_ON);
	assert_true(request.all && request.number == 4);
	assert_string_equal(request.name, "y");
	/* The last one counts; an option after -- is none. */
	assert_int_equal(read_options("--name", "a", "--name", "b", "--", "--all", NULL), OPTIONS_GO_ON);
	assert_string_equal(request.name, "b");
	assert_false(request.all);
	assert_int_equal(optind, 6);
	/* The value of one may look like another. */
	assert_int_equal(read_options("--name", "--all", NULL), OPTIONS_GO_ON);
	assert_string_equal(request.name, "--all");
	assert_false(request.all);
	assert_string_equal(out, "");
	assert_string_equal(err, "");
}

TEST(options_behind_an_argument_are_those_of_a_program)
{
	assert_int_equal(read_options("rest", "--all", NULL), OPTIONS_GO_ON);
	assert_true(request.all);
	options.program = true;
	assert_int_equal(read_options("--name", "x", "rest", "--all", "--strange", NULL), OPTIONS_GO_ON);
	options.program = false;
	assert_false(request.all);
	assert_int_equal(optind, 3);
}

TEST(a_wrong_option_is_named)
{
	static const struct {
		const char *first, *second, *says;
	} wrong[] = {
	    {"--strange", NULL, "spillway: unknown option \"--strange\"; `spillway probe --help` lists them\n"},
	    {"--strange=5", NULL, "spillway: unknown option \"--strange=5\"; `spillway probe --help` lists them\n"},
	    {"-z", NULL, "spillway: unknown option \"-z\"; `spillway probe --help` lists them\n"},
	    {"-qz", NULL, "spillway: unknown option \"-qz\"; `spillway probe --help` lists them\n"},
	    {"-zq", NULL, "spillway: unknown option \"-zq\"; `spillway probe --help` lists them\n"},
	    {"--all", "-zq", "spillway: unknown option \"-zq\"; `spillway probe --help` lists them\n"},
	    {"--all=5", NULL, "spillway: unknown option \"--all=5\"; `spillway probe --help` lists them\n"},
	    {"--name", NULL, "spillway: \"--name\" needs a value; `spillway probe --help` gives an example\n"},
	    {"-n", NULL, "spillway: \"-n\" needs a value; `spillway probe --help` gives an example\n"},
	    {"--count", "five", "spillway: --count: that is no number\n"},
	    {"--a-very-long-option", "five", "spillway: said by the reader\n"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(read_options(wrong[i].first, wrong[i].second, NULL), TOOL_BAD);
		assert_string_equal(err, wrong[i].says);
		assert_string_equal(out, "");
	}
}

TEST(the_help_is_made_of_the_table)
{
	static const char help[] = "usage: spillway probe\n"
				   "\noptions:\n"
				   "  --all           everything\n"
				   "  --name TEXT     a name\n"
				   "                  on two lines\n"
				   "  --count N       a number (more)\n"
				   "  --maybe[=N]     with or without\n"
				   "  --quick         a flag with a letter\n"
				   "  --a-very-long-option VALUE its help stands behind it\n"
				   "\ntail\n"
				   "the end\n";

	assert_int_equal(read_options("--help", "--strange", NULL), TOOL_OK);
	assert_string_equal(out, help);
	assert_string_equal(err, "");
	assert_int_equal(read_options("--all", "-h", NULL), TOOL_OK);
	assert_string_equal(out, help);
	/* What is wrong before it counts. */
	assert_int_equal(read_options("--strange", "--help", NULL), TOOL_BAD);
	assert_string_equal(out, "");
}

/* ---- JSON ---- */

TEST(the_writer_keeps_account_of_commas)
{
	struct json json = JSON_WRITER;

	catch_begin();
	json_open(&json, NULL, '{');
	json_number(&json, "a", UINT64_MAX);
	json_open(&json, "list", '[');
	json_number(&json, NULL, 1);
	json_text(&json, NULL, "x");
	json_open(&json, NULL, '{');
	json_close(&json, '}');
	json_open(&json, NULL, '[');
	json_close(&json, ']');
	json_truth(&json, NULL, true);
	json_close(&json, ']');
	json_truth(&json, "no", false);
	json_number_or_null(&json, "n", 5, false);
	json_real_or_null(&json, "i", -5, 0, true);
	json_real_or_null(&json, "j", -5, 0, false);
	json_real_or_null(&json, "r", 1.0 / 3, 3, true);
	json_real_or_null(&json, "s", 1.0 / 3, 3, false);
	json_text(&json, "t", NULL);
	json_next(&json, "own");
	fputs("[]", stdout);
	json_close(&json, '}');
	catch_end();
	assert_string_equal(out,
			    "{\"a\": 18446744073709551615, \"list\": [1, \"x\", {}, [], true], \"no\": false, \"n\": "
			    "null, \"i\": -5, \"j\": null, \"r\": 0.333, \"s\": null, \"t\": null, \"own\": []}");
}

TEST(lines_are_broken_where_the_caller_says)
{
	struct json json = {.comma = ",", .line = "\n "};

	catch_begin();
	json_open(&json, NULL, '{');
	json_number(&json, "a", 1);
	json_number(&json, "b", 2);
	json_open(&json, "c", '[');
	json_break(&json, "\n");
	json_number(&json, NULL, 3);
	json_break(&json, "\n");
	json_number(&json, NULL, 4);
	json_close(&json, ']');
	json_close(&json, '}');
	catch_end();
	assert_string_equal(out, "{\n \"a\": 1,\n \"b\": 2,\n \"c\": [\n3,\n4]}");
}

TEST(texts_are_escaped)
{
	static const struct {
		const char *text, *plain, *script; /* script NULL: as plain */
	} texts[] = {
	    {"", "\"\"", NULL},
	    {"a\"b\\c/d", "\"a\\\"b\\\\c/d\"", NULL},
	    {"\n\t\x01\x1f\x7f", "\"\\u000a\\u0009\\u0001\\u001f\\u007f\"", NULL},
	    {"</script>&", "\"</script>&\"", "\"\\u003c/script\\u003e\\u0026\""},
	    {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf",
	     "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf\"", NULL},
	    /* No UTF-8: alone, cut off, overlong, a surrogate, beyond the last character. */
	    {"\x80", "\"\\ufffd\"", NULL},
	    {"\xff", "\"\\ufffd\"", NULL},
	    {"\xc3", "\"\\ufffd\"", NULL},
	    {"\xe2\x82", "\"\\ufffd\\ufffd\"", NULL},
	    {"\xc3(", "\"\\ufffd(\"", NULL},
	    {"\xc0\xaf", "\"\\ufffd\\ufffd\"", NULL},
	    {"\xe0\x9f\xbf", "\"\\ufffd\\ufffd\\ufffd\"", NULL},
	    {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"", NULL},
	    {"\xf0\x8f\xbf\xbf", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"", NULL},
	    {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"", NULL},
	    {"\xf5\x80\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"", NULL},
	};
	struct json script = JSON_WRITER;

	script.script = true;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		catch_begin();
		json_quoted(texts[i].text, false);
		catch_end();
		assert_string_equal(out, texts[i].plain);
		catch_begin();
		script.going = false;
		json_text(&script, NULL, texts[i].text);
		catch_end();
		assert_string_equal(out, texts[i].script ? texts[i].script : texts[i].plain);
	}
	catch_begin();
	json_quoted(NULL, true);
	catch_end();
	assert_string_equal(out, "null");
}

/* Keys that differ in the highest bits alone, in the lowest alone, and in both. */
static uint64_t key_of(uint64_t i)
{
	return i % 3 == 0 ? i : i % 3 == 1 ? i << 44 : i * UINT64_C(0x100000001);
}

/* ---- lines of the screen ---- */

/* A text that begins in that column becomes these lines, all but the first of which are indented so far. */
static void wraps(const char *text, int column, int indent, const char *lines)
{
	catch_begin();
	wrap_print(text, column, indent);
	catch_end();
	assert_string_equal(out, lines);
}

TEST(words_are_wrapped_at_80_columns)
{
	char text[2000] = "", expected[4000];

	assert_int_equal(wrap_width(), 80); /* the caught output is no terminal */
	/* 8 words of 9 columns and the spaces between them are 79 columns; a ninth has no room. */
	for (int i = 0; i < 9; i++)
		strcat(text, i ? " ninechars" : "ninechars");
	snprintf(expected, sizeof(expected), "%.79s\n    ninechars\n", text);
	wraps(text, 0, 4, expected);
	/* What stands before it on the line counts. */
	wraps("ninechars more", 70, 2, "ninechars\n  more\n");
	wraps("ninechars more", 72, 2, "\n  ninechars more\n");
}

TEST(a_wider_terminal_is_used)
{
	static const int widths[][2] = {{120, 120}, {60, 80}, {80, 80}, {400, 200}, {0, 80}};
	int master = posix_openpt(O_RDWR | O_NOCTTY), old = dup(STDOUT_FILENO), terminal;

	assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
	assert_true(terminal >= 0 && old >= 0);
	for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
		struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)widths[i][0]};

		assert_int_equal(ioctl(master, TIOCSWINSZ, &size), 0);
		fflush(stdout);
		dup2(terminal, STDOUT_FILENO);
		int width = wrap_width();
		dup2(old, STDOUT_FILENO);
		assert_int_equal(width, widths[i][1]);
	}
	close(old);
	close(terminal);
	close(master);
}

TEST(a_word_longer_than_a_line_is_cut)
{
	char text[200], expected[200];

	memset(text, 'x', 170);
	text[170] = 0;
	snprintf(expected, sizeof(expected), "%.80s\n  %.78s\n  %.12s\n", text, text, text);
	wraps(text, 0, 2, expected);
	/* Characters count, not bytes, and none is cut. */
	for (int i = 0; i < 81; i++)
		memcpy(text + 2 * i, "\xc3\xa9", 2);
	text[162] = 0;
	snprintf(expected, sizeof(expected), "%.160s\n\xc3\xa9\n", text);
	wraps(text, 0, 0, expected);
	assert_int_equal(wrap_columns(text, 7), 4);
}

TEST(an_array_grows_and_keeps_what_is_in_it)
{
	uint64_t *array = NULL;
	size_t room = 0;

	for (size_t n = 0; n < 5000; n++) {
		assert_true(grow(&array, n, &room, sizeof(*array)));
		assert_true(room > n);
		array[n] = n * 7;
	}
	for (size_t n = 0; n < 5000; n++)
		assert_int_equal(array[n], n * 7);
	/* With room nothing happens, and a jump is made at once. */
	uint64_t *before = array;
	assert_true(grow(&array, room - 1, &room, sizeof(*array)));
	assert_ptr_equal(array, before);
	assert_true(grow(&array, 100000, &room, sizeof(*array)));
	assert_true(room > 100000 && array[4999] == 4999 * 7);
	free(array);
}

TEST(an_array_without_memory_stays_as_it_was)
{
	uint32_t *array = NULL;
	size_t room = 0;

	fail_every = 1;
	assert_false(grow(&array, 0, &room, sizeof(*array)));
	assert_null(array);
	assert_int_equal(room, 0);
	fail_every = 0;
	assert_true(grow(&array, 0, &room, sizeof(*array)));
	size_t first = room;
	uint32_t *before = array;
	for (size_t i = 0; i < room; i++)
		array[i] = (uint32_t)i;
	fail_every = 1;
	assert_false(grow(&array, room, &room, sizeof(*array)));
	assert_true(array == before && room == first);
	/* More bytes than there are addresses are refused without being asked for. */
	fail_every = n_allocations = 0;
	assert_false(grow(&array, room, &room, SIZE_MAX / 2));
	assert_true(array == before && room == first && array[room - 1] == room - 1);
	assert_true(grow(&array, room, &room, sizeof(*array)));
	assert_true(room > first && array[first - 1] == first - 1);
	free(array);
}

TEST(the_map_finds_what_was_put_in)
{
	struct number_map map = {0};
	uint64_t value = 77;

	assert_false(number_map_get(&map, 0, &value));
	for (uint64_t i = 0; i < 10000; i++)
		assert_true(number_map_set(&map, key_of(i), i + 1));
	assert_true(number_map_set(&map, UINT64_MAX, 5));
	assert_int_equal(map.n, 10001);
	for (uint64_t i = 0; i < 10000; i++)
		assert_true(number_map_get(&map, key_of(i), &value) && value == i + 1);
	assert_true(number_map_get(&map, UINT64_MAX, &value) && value == 5);
	value = 77;
	assert_false(number_map_get(&map, UINT64_MAX - 1, &value));
	assert_int_equal(value, 77);
	/* A value is replaced, and that is no further key. */
	assert_true(number_map_set(&map, 0, UINT64_MAX));
	assert_int_equal(map.n, 10001);
	assert_true(number_map_get(&map, 0, &value) && value == UINT64_MAX);
	number_map_free(&map);
	assert_false(number_map_get(&map, 0, &value));
	assert_true(number_map_set(&map, 9, 10));
	assert_true(number_map_get(&map, 9, &value) && value == 10 && map.n == 1);
	number_map_free(&map);
}

TEST(the_map_without_memory_keeps_what_it_has)
{
	struct number_map map = {0};
	uint64_t value, n = 0;

	fail_every = 1;
	assert_false(number_map_set(&map, 1, 2));
	assert_int_equal(map.n, 0);
	assert_false(number_map_get(&map, 1, &value));
	fail_every = 0;
	assert_true(number_map_set(&map, n, n));
	n++;
	fail_every = 1;
	while (number_map_set(&map, n, n))
		n++;
	assert_int_equal(map.n, n);
	assert_true(n < map.room);
	assert_false(number_map_get(&map, n, &value));
	for (uint64_t i = 0; i < n; i++)
		assert_true(number_map_get(&map, i, &value) && value == i);
	fail_every = 0;
	assert_true(number_map_set(&map, n, n));
	for (uint64_t i = 0; i <= n; i++)
		assert_true(number_map_get(&map, i, &value) && value == i);
	number_map_free(&map);
}
