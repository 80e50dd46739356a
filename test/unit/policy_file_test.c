// SPDX-License-Identifier: Apache-2.0
/*
 * policy_file_test.c: policies in files that will not be read, and what messages look like when names in them are long,
 * foreign or many. The linker sends fstat and read through here (-Wl,--wrap).
 */
#include <sys/stat.h>

#include "policy/model.h"
#include "policy/parse.h"
#include "test/test.h"

int __real_fstat(int fd, struct stat *status);
int __wrap_fstat(int fd, struct stat *status);
ssize_t __real_read(int fd, void *to, size_t bytes);
ssize_t __wrap_read(int fd, void *to, size_t bytes);

/* What the next calls come to: an errno, or 0. A file that grows: this many bytes more than it has said. */
static int fstat_fails, read_fails;
static size_t grows;

int __wrap_fstat(int fd, struct stat *status)
{
	if (!fstat_fails)
		return __real_fstat(fd, status);
	errno = fstat_fails;
	return -1;
}

ssize_t __wrap_read(int fd, void *to, size_t bytes)
{
	size_t more = grows < bytes ? grows : bytes;

	if (read_fails) {
		errno = read_fails;
		/* A signal comes once. */
		read_fails = read_fails == EINTR ? 0 : read_fails;
		return -1;
	}
	if (!more)
		return __real_read(fd, to, bytes);
	memset(to, '#', more);
	grows -= more;
	return (ssize_t)more;
}

static char path[] = "/tmp/policy_file_test.XXXXXX.yaml";

/* Of a good file under these conditions: the only problem, or "". */
static const char *problem(const char *name)
{
	static char text[700];
	struct policy_errors errors;
	struct policy *policy = policy_read(name, NULL, &errors);

	assert_int_equal(policy != NULL, errors.n == 0);
	assert_true(errors.n <= 1);
	snprintf(text, sizeof(text), "%s", errors.n ? errors.kept[0].text : "");
	policy_free(policy);
	policy_errors_free(&errors);
	return text;
}

TEST(a_file_that_cannot_be_read_is_said_so)
{
	assert_string_equal(problem(path), "");
	fstat_fails = EIO;
	assert_string_equal(problem(path), "it cannot be read (errno 5); write the path of another file");
	fstat_fails = 0;
	read_fails = EIO;
	assert_string_equal(problem(path), "it cannot be read (errno 5); write the path of another file");
	read_fails = EACCES;
	assert_string_equal(problem(path), "it may not be read; allow reading with chmod, or write another path");
	read_fails = EINTR;
	assert_string_equal(problem(path), "");
	assert_int_equal(read_fails, 0);
}

TEST(a_file_that_grows_while_it_is_read_is_bounded_all_the_same)
{
	grows = 2 << 20;
	assert_string_equal(problem(path),
			    "it is larger than 1 MiB, so it is hardly a policy; write the path of a smaller file");
	grows = 0;
}

TEST(of_a_long_path_the_end_is_shown)
{
	char name[600] = "/tmp/";
	struct policy_errors errors;

	memset(name + 5, 'a', 300);
	strcpy(name + 305, "/the-end.yaml");
	assert_null(policy_read(name, NULL, &errors));
	assert_int_equal(strncmp(errors.kept[0].file, "...aaa", 6), 0);
	assert_string_equal(errors.kept[0].file + strlen(errors.kept[0].file) - 13, "/the-end.yaml");
	policy_errors_free(&errors);
}

/* The text of the only error of a policy that is one setting. */
static const char *of_setting(const char *set)
{
	static char text[700];
	struct policy_errors errors;

	assert_null(policy_read("heap", set, &errors));
	assert_int_equal(errors.n, 1);
	snprintf(text, sizeof(text), "%s", errors.kept[0].text);
	policy_errors_free(&errors);
	return text;
}

TEST(foreign_names_are_shown_as_they_are_and_broken_ones_are_not)
{
	assert_non_null(strstr(of_setting("\xc3\xbc=1"), "\"\xc3\xbc\""));
	assert_non_null(strstr(of_setting("\xe2\x82\xac=1"), "\"\xe2\x82\xac\""));
	assert_non_null(strstr(of_setting("\xf0\x9f\x98\x80=1"), "\"\xf0\x9f\x98\x80\""));
	assert_null(strstr(of_setting("\xe2\x82=1"), "\xe2"));
	assert_null(strstr(of_setting("\xff=1"), "\xff"));
	assert_null(strstr(of_setting("\xc2\x9b=1"), "\xc2\x9b"));
	/* Nothing is like a name of that length. */
	char name[300];
	memset(name, 'd', 298);
	strcpy(name + 298, "=");
	assert_null(strstr(of_setting(name), "did you mean"));
}

/* Up to the last byte that a name may have it is a good one. */
TEST(names_and_patterns_may_have_all_their_bytes)
{
	char text[800], name[65], pattern[256];
	struct policy_errors errors;

	memset(name, 'n', 64);
	memset(pattern, 'p', 255);
	name[64] = pattern[255] = '\0';
	snprintf(text, sizeof(text), "rules:\n- {name: %s, match.thread: %s, use: heap}\n", name, pattern);
	struct policy *policy = policy_read_text("p.yaml", text, strlen(text), NULL, &errors);
	assert_int_equal(errors.n, 0);
	assert_string_equal(policy_rule_name(policy, 0), name);
	policy_free(policy);
	policy_errors_free(&errors);
}

/* 100 are kept; errors drive warnings out, the first of a file before the last. */
TEST(of_many_problems_errors_and_the_first_are_kept)
{
	struct policy_errors errors = {0};
	char buffer[8];

	for (unsigned line = 101; line <= 200; line++)
		policy_warning_add(&errors, "a", (struct policy_place){line, 1}, "warning");
	policy_warning_add(&errors, "a", (struct policy_place){300, 1}, "too late");
	assert_int_equal(errors.kept[99].line, 200);
	policy_warning_add(&errors, "a", (struct policy_place){50, 1}, "early");
	assert_int_equal(errors.kept[0].line, 50);
	assert_int_equal(errors.kept[99].line, 199);
	for (unsigned line = 401; line <= 500; line++)
		policy_error_add(&errors, "a", (struct policy_place){line, 1}, "error");
	assert_false(errors.kept[0].warning);
	policy_warning_add(&errors, "a", (struct policy_place){1, 1}, "no more");
	policy_error_add(&errors, "a", (struct policy_place){600, 1}, "too late");
	assert_int_equal(errors.kept[0].line, 401);
	assert_int_equal(errors.kept[99].line, 500);
	policy_error_add(&errors, "a", (struct policy_place){2, 1}, "early");
	assert_int_equal(errors.kept[0].line, 2);
	assert_int_equal(errors.n_kept, 100);
	assert_int_equal(errors.n, 205);
	assert_int_equal(errors.n_errors, 102);
	strcpy(buffer, "old");
	assert_string_equal(policy_error_format(&errors.kept[0], buffer, 0), "old");
	assert_string_equal(policy_error_format(&errors.kept[0], buffer, sizeof(buffer)), "a:2:1: ");
	policy_errors_free(&errors);
}

int main(void)
{
	int fd = mkstemps(path, 5);

	if (fd < 0 || write(fd, "version: 1\n", 11) != 11)
		return 1;
	close(fd);
	int failed = test_run();
	unlink(path);
	return failed;
}
