// SPDX-License-Identifier: Apache-2.0
/* log_stats_test.c: what the library says and counts; and the order of its locks in debug builds. */
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>

#include "shim/base/lock.h"
#include "shim/base/log.h"
#include "shim/stats/stats.h"
#include "shim/base/status.h"
#include "test/test.h"

/* Lines go there from now on. Returns what back() takes. */
static int lines_to(int fd)
{
	int saved = dup(2);

	dup2(fd, 2);
	log_begin();
	return saved;
}

static void back(int saved)
{
	dup2(saved, 2);
	close(saved);
	log_begin();
}

/* Run say() with stderr going into buffer. */
static size_t heard(void (*say)(void), char *buffer, size_t room)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	int saved = lines_to(ends[1]);
	close(ends[1]);
	say();
	back(saved);
	ssize_t n = read(ends[0], buffer, room - 1);
	close(ends[0]);
	buffer[n > 0 ? n : 0] = 0;
	return n > 0 ? (size_t)n : 0;
}

static void say_short(void)
{
	errno = EXDEV;
	log_line("%d apples", 3);
	assert_int_equal(errno, EXDEV);
}

static void say_long(void)
{
	char text[4000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	log_line("%s", text);
}

static void say_often(void)
{
	for (int i = 0; i < 5; i++)
		log_once("once, at %d", i);
}

TEST(a_line_has_its_head_and_one_newline_and_leaves_errno)
{
	char text[8192];

	heard(say_short, text, sizeof(text));
	assert_string_equal(text, "spillway: 3 apples\n");
}

TEST(a_long_line_is_cut_and_still_ends)
{
	char text[8192];
	size_t n = heard(say_long, text, sizeof(text));

	assert_int_equal(n, 1023);
	assert_true(text[n - 1] == '\n' && strchr(text, '\n') == text + n - 1);
}

TEST(once_is_once)
{
	char text[8192];

	heard(say_often, text, sizeof(text));
	assert_string_equal(text, "spillway: once, at 0\n");
	assert_int_equal(heard(say_often, text, sizeof(text)), 0);
}

TEST(a_closed_stderr_is_no_matter)
{
	int saved = dup(2);

	close(2);
	errno = 0;
	log_line("into the void");
	assert_int_equal(errno, 0);
	dup2(saved, 2);
	close(saved);
}

/* ---- whose file it is ---- */

static char data[] = "/tmp/log_stats_test.XXXXXX";

static off_t data_bytes(void)
{
	struct stat status;

	return stat(data, &status) == 0 ? status.st_size : -1;
}

TEST(closed_at_the_start_it_stays_silent)
{
	int saved = dup(2), fd = mkstemp(data);

	assert_true(fd > 2);
	close(fd);
	close(2);
	log_begin();
	assert_int_equal(open(data, O_WRONLY), 2);
	log_line("into a data file");
	assert_int_equal(data_bytes(), 0);
	/* So it does when somebody opened that file before the library was loaded. */
	assert_int_equal(fcntl(2, F_SETFD, FD_CLOEXEC), 0);
	log_begin();
	log_line("into a data file");
	assert_int_equal(data_bytes(), 0);
	back(saved);
	unlink(data);
}

TEST(another_file_in_its_place_is_not_written_to)
{
	char text[256];
	int ends[2], saved = dup(2);

	strcpy(data, "/tmp/log_stats_test.XXXXXX");
	int fd = mkstemp(data);
	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], 2);
	log_begin();
	close(2);
	assert_int_equal(dup(fd), 2);
	log_line("into a data file");
	assert_int_equal(data_bytes(), 0);
	dup2(fd, 2);
	log_line("into a data file");
	assert_int_equal(data_bytes(), 0);
	/* Back in its place it is standard error again. What was not for it is not counted. */
	dup2(ends[1], 2);
	say_short();
	assert_int_equal(read(ends[0], text, sizeof(text)), 19);
	/* And we keep nothing open: with the program's last descriptor the file is at its end. */
	close(ends[1]);
	dup2(saved, 2);
	assert_int_equal(read(ends[0], text, sizeof(text)), 0);
	close(ends[0]);
	close(fd);
	close(saved);
	log_begin();
	unlink(data);
}

/* ---- a reader that does not read ---- */

static void fill(int fd)
{
	char some[512] = {0};
	int flags = fcntl(fd, F_GETFL);

	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	for (size_t n = sizeof(some); n; n /= 2)
		while (write(fd, some, n) > 0)
			;
	fcntl(fd, F_SETFL, flags);
}

/* Lines go to ends[1], which is full, until all of it is read at ends[0]. Closes both. */
static void does_not_wait(int ends[2])
{
	static char text[1 << 20];
	size_t n = 0;

	alarm(60); /* or this test would never end */
	fill(ends[1]);
	int saved = lines_to(ends[1]);
	for (int i = 0; i < 3; i++)
		say_short();
	log_patience(20);
	say_short();
	log_patience(0);
	assert_false(fcntl(2, F_GETFL) & O_NONBLOCK); /* it is everybody's */
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	while (read(ends[0], text, sizeof(text)) > 0)
		;
	say_short();
	for (ssize_t some; (some = read(ends[0], text + n, sizeof(text) - 1 - n)) > 0;)
		n += (size_t)some;
	text[n] = 0;
	back(saved);
	alarm(0);
	close(ends[0]);
	close(ends[1]);
	assert_string_equal(text, "spillway: 4 lines were not written: nobody read standard error\n"
				  "spillway: 3 apples\n");
}

TEST(a_full_pipe_is_not_waited_for)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	does_not_wait(ends);
}

TEST(a_full_socket_is_not_waited_for)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	does_not_wait(ends);
}

/* Returns a terminal, and in ret_master what reads what is written to it. */
static int terminal_open(int *ret_master)
{
	*ret_master = posix_openpt(O_RDWR | O_NOCTTY);
	if (*ret_master < 0 || grantpt(*ret_master) || unlockpt(*ret_master))
		skip();
	int terminal = open(ptsname(*ret_master), O_RDWR | O_NOCTTY);
	assert_true(terminal >= 0);
	return terminal;
}

static void say_what_is_wide(void)
{
	log_line("SPILLING BEGINS: the device budget of 600.0 MiB is full, 92.0 MiB went to host memory; memory moves "
		 "over the link to where it is used, which takes time");
	log_line("  cost: \xc3\xa4\xc3\xb6\xc3\xbc fill the line, whose end is here and not beyond, column 80 or below "
		 "of it");
	log_line("/a/word/that/is/wider/than/the/terminal/itself/is/not/cut/because/somebody/may/want/to/copy/it it");
}

TEST(a_wide_line_is_wrapped_on_a_terminal)
{
	static const char wrapped[] =
	    "spillway: SPILLING BEGINS: the device budget of 600.0 MiB is full, 92.0 MiB went\r\n"
	    "          to host memory; memory moves over the link to where it is used, which\r\n"
	    "          takes time\r\n"
	    "spillway:   cost: \xc3\xa4\xc3\xb6\xc3\xbc fill the line, whose end is here and not beyond, column 80\r\n"
	    "            or below of it\r\n"
	    "spillway: "
	    "/a/word/that/is/wider/than/the/terminal/itself/is/not/cut/because/somebody/may/want/to/copy/it\r\n"
	    "          it\r\n";
	struct winsize size = {.ws_row = 24, .ws_col = 80};
	int master, terminal = terminal_open(&master);
	char text[2048];
	size_t n = 0;
	ssize_t got;

	assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
	int saved = lines_to(terminal);
	alarm(60);
	say_what_is_wide();
	while (n < strlen(wrapped) && (got = read(master, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	back(saved);
	alarm(0);
	text[n] = 0;
	assert_string_equal(text, wrapped);
	close(terminal);
	close(master);
	/* Elsewhere it is searched and cut by line. */
	heard(say_what_is_wide, text, sizeof(text));
	assert_non_null(
	    strstr(text, "went to host memory; memory moves over the link to where it is used, which takes time\n"));
}

/* As by Ctrl-S. */
TEST(a_stopped_terminal_is_not_waited_for)
{
	int master, terminal = terminal_open(&master);
	char text[256];

	alarm(60);
	int saved = lines_to(terminal);
	assert_int_equal(tcflow(terminal, TCOOFF), 0);
	say_short();
	assert_int_equal(tcflow(terminal, TCOON), 0);
	say_short();
	ssize_t n = read(master, text, sizeof(text) - 1);
	back(saved);
	alarm(0);
	text[n > 0 ? n : 0] = 0;
	assert_non_null(strstr(text, "1 line was not written"));
	close(terminal);
	close(master);
}

TEST(bytes_are_written_for_people)
{
	char text[32];

	assert_string_equal(log_bytes(text, sizeof(text), 0), "0 B");
	assert_string_equal(log_bytes(text, sizeof(text), 1023), "1023 B");
	assert_string_equal(log_bytes(text, sizeof(text), 1536), "1.5 KiB");
	assert_string_equal(log_bytes(text, sizeof(text), 12ull << 30), "12.0 GiB");
	assert_string_equal(log_bytes(text, sizeof(text), 5000ull << 40), "5000.0 TiB");
}

static void *count_calls(void *argument)
{
	for (int i = 0; i < 1000; i++)
		stats_call(HOOK_cuMemAlloc_v2);
	return NULL;
}

static uint64_t calls_of(enum hook_id id)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < STATS_STRIPES; i++)
		sum += atomic_load(&stats_stripes[i].calls[id]);
	return sum;
}

TEST(calls_of_all_threads_are_added_up)
{
	pthread_t threads[20]; /* more than stripes */

	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_calls, NULL), 0);
	for (unsigned i = 0; i < 20; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(calls_of(HOOK_cuMemAlloc_v2), 20000);
	assert_int_equal(calls_of(HOOK_cuMemFree_v2), 0);
}

TEST(a_gauge_remembers_its_peak)
{
	stats_live_add(0, PLACE_PINNED, 10);
	stats_live_add(0, PLACE_PINNED, 20);
	stats_live_sub(0, PLACE_PINNED, 25);
	stats_live_add(0, PLACE_PINNED, 1);
	assert_int_equal(stats_live(PLACE_PINNED), 6);
	assert_int_equal(stats_peak(PLACE_PINNED), 30);
}

TEST(unknown_names_are_kept_once_each_and_a_few_at_most)
{
	char buffer[600], name[100];

	assert_string_equal(stats_unknown_names(buffer, sizeof(buffer)), "");
	stats_unknown("cuBrandNew");
	stats_unknown("cuBrandNew");
	assert_string_equal(stats_unknown_names(buffer, sizeof(buffer)), "cuBrandNew");
	assert_int_equal(stats_get(STAT_unknown_names), 1);
	stats_unknown("cuOther");
	assert_string_equal(stats_unknown_names(buffer, sizeof(buffer)), "cuBrandNew cuOther");
	assert_int_equal(stats_get(STAT_unknown_names), 2);
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "cuNewer%d%060d", i, 0); /* longer than is kept */
		stats_unknown(name);
	}
	assert_true(stats_get(STAT_unknown_names) >= 8);
	assert_true(strlen(stats_unknown_names(buffer, sizeof(buffer))) < sizeof(buffer));
	/* In a buffer too small it ends early, always terminated. */
	assert_true(strlen(stats_unknown_names(buffer, 20)) < 20);
}

TEST(a_status_keeps_what_the_driver_said)
{
	assert_int_equal(status_of(CUDA_SUCCESS), SW_OK);
	assert_int_equal(status_of(CUDA_ERROR_ILLEGAL_ADDRESS), SW_DRIVER);
	assert_int_equal(status_result(SW_DRIVER), CUDA_ERROR_ILLEGAL_ADDRESS);
	static const CUresult same[] = {CUDA_SUCCESS,
					CUDA_ERROR_OUT_OF_MEMORY,
					CUDA_ERROR_INVALID_VALUE,
					CUDA_ERROR_NOT_SUPPORTED,
					CUDA_ERROR_INVALID_CONTEXT,
					CUDA_ERROR_DEINITIALIZED};
	for (unsigned i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		assert_int_equal(status_result(status_of(same[i])), same[i]);
	for (int i = 0; i < SW_STATUS_COUNT; i++)
		assert_true(status_text((enum sw_status)i)[0]);
}

static struct lock outer = LOCK_INIT(LOCK_CAPTURE), inner = LOCK_INIT(LOCK_HEAP);

/* Does act() abort? Tried in a child. */
static bool aborts(void (*act)(void))
{
	int status;
	pid_t child = fork();

	if (!child) {
		close(2);
		act();
		_exit(0);
	}
	waitpid(child, &status, 0);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void right_order(void)
{
	lock_take(&outer);
	lock_take(&inner);
	lock_assert_held(LOCK_HEAP);
	lock_drop(&inner);
	lock_drop(&outer);
	lock_take(&inner);
	lock_drop(&inner);
}

static void wrong_order(void)
{
	lock_take(&inner);
	lock_take(&outer);
}

static void not_held(void)
{
	lock_take(&outer);
	lock_assert_held(LOCK_HEAP);
}

TEST(debug_builds_stop_at_a_wrong_order_of_locks)
{
	assert_false(aborts(right_order));
#ifdef SPILLWAY_DEBUG
	assert_true(aborts(wrong_order));
	assert_true(aborts(not_held));
#else
	assert_false(aborts(wrong_order));
	assert_false(aborts(not_held));
#endif
}
