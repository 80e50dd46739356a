// SPDX-License-Identifier: Apache-2.0
/*
 * top_screen_test.c: the screen of `spillway top` in a terminal of its own: it shows the process, obeys keys, lives
 * with any size, and gives the terminal back as it was, by whichever way it ends.
 *
 * ncurses writes what has changed alone. Ctrl-L makes it write everything, so that words stand in one piece.
 */
#include "test/test.h"
#include "test/unit/page_make.h"

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

#define REDRAW     "\f"
#define PATIENCE_S 60 /* a screen that is not there by then does not come */

static struct stats_page *page;
static struct termios before;
static pid_t tool;
static int terminal;
static char output[1 << 18];
static size_t n_output;

static void start(unsigned short rows, unsigned short columns, const char *name_of_terminal)
{
	const struct winsize size = {.ws_row = rows, .ws_col = columns};
	int ends[2];
	char pid[16], go;

	n_output = 0;
	output[0] = 0;
	assert_int_equal(pipe(ends), 0);
	tool = forkpty(&terminal, NULL, NULL, &size);
	assert_true(tool >= 0);
	snprintf(pid, sizeof(pid), "%d", (int)page->pid);
	if (!tool) {
		setenv("TERM", name_of_terminal, 1);
		setenv("LC_ALL", "C.UTF-8", 1);
		unsetenv("NO_COLOR");
		unsetenv("LINES");
		unsetenv("COLUMNS");
		if (read(ends[0], &go, 1) == 1)
			execl(TOOL, "spillway", "top", "--interval", "0.2", pid, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(tcgetattr(terminal, &before), 0);
	assert_int_equal(write(ends[1], "g", 1), 1);
	close(ends[0]);
	close(ends[1]);
}

/* What there is to read; false: the other side has closed it. */
static bool read_some(int wait_ms)
{
	struct pollfd wait = {.fd = terminal, .events = POLLIN};

	if (poll(&wait, 1, wait_ms) <= 0)
		return true;
	if (n_output > sizeof(output) - 65536) {
		memmove(output, output + n_output - 65536, 65536);
		n_output = 65536;
	}
	ssize_t n = read(terminal, output + n_output, 32768);
	n_output += n > 0 ? (size_t)n : 0;
	output[n_output] = 0;
	return n > 0;
}

static void must_show(const char *text)
{
	time_t until = time(NULL) + PATIENCE_S;

	while (!strstr(output, text) && read_some(100))
		if (time(NULL) > until)
			break;
	if (!strstr(output, text))
		fail_msg("\"%s\" is not shown; the last was:\n%s", text, output);
}

/* Press keys and have the screen drawn anew; what was shown before is forgotten. */
static void press(const char *keys)
{
	while (read_some(0) && poll(&(struct pollfd){.fd = terminal, .events = POLLIN}, 1, 0) > 0)
		;
	n_output = 0;
	output[0] = 0;
	assert_int_equal(write(terminal, keys, strlen(keys)), strlen(keys));
	assert_int_equal(write(terminal, REDRAW, 1), 1);
}

/* It ends, with that status, and the terminal is as it was. */
static void must_end(int status)
{
	struct termios after;
	time_t until = time(NULL) + PATIENCE_S;
	int got = 0;
	pid_t ended;

	while ((ended = waitpid(tool, &got, WNOHANG)) == 0 && time(NULL) < until)
		read_some(20);
	assert_int_equal(ended, tool);
	tool = 0;
	while (read_some(0) && poll(&(struct pollfd){.fd = terminal, .events = POLLIN}, 1, 0) > 0)
		;
	if (!WIFEXITED(got) || WEXITSTATUS(got) != status)
		fail_msg("status 0x%x; the last was:\n%s", (unsigned)got, output);
	if (tcgetattr(terminal, &after) == 0) {
		assert_int_equal(after.c_lflag, before.c_lflag);
		assert_int_equal(after.c_iflag, before.c_iflag);
		assert_int_equal(after.c_oflag, before.c_oflag);
	}
	/* Back on the other screen, with a cursor. */
	assert_non_null(strstr(output, "\033[?1049l"));
	assert_non_null(strstr(output, "\033[?25h"));
}

BEFORE_EACH
{
	page_make_begin();
	page = page_make(page_make_process());
	page_make_write(page, sizeof(*page));
}

AFTER_EACH
{
	if (tool > 0) {
		kill(tool, SIGKILL);
		waitpid(tool, NULL, 0);
	}
	tool = 0;
	close(terminal);
	free(page);
	page_make_end();
}

TEST(it_shows_the_process_and_ends_by_a_key)
{
	start(24, 80, "xterm-256color");
	must_show("Test GPU");
	press("");
	must_show("python3");
	must_show("host 5G");
	must_show("optimizer");
	press("q");
	must_end(0);
}

TEST(what_a_device_lends_is_in_its_bar_and_links_have_lines)
{
	page_make_lender(page);
	page_make_write(page, sizeof(*page));
	start(40, 120, "xterm-256color");
	must_show("Test GPU");
	press("");
	must_show("lent 3G");
	must_show("GPU 0 borrows of 1, link NVLink: in ");
	must_show("PEER");
	press("q");
	must_end(0);
}

TEST(what_processes_share_is_on_the_screen)
{
	page_make_account();
	start(40, 120, "xterm-256color");
	must_show("Test GPU");
	press("");
	must_show("GPU abcdefab, shared: 32.0 GiB in all");
	must_show("has it");
	must_show("waits ");
	must_show("60 of  75 %");
	must_show("optimizer");
	press("q");
	must_end(0);
}

TEST(keys_do_what_the_help_says)
{
	start(24, 100, "xterm-256color");
	must_show("Test GPU");
	press("h");
	must_show("this page");
	press("q");
	must_show("optimizer");
	press("p");
	must_show("PAUSED");
	press("p");
	must_show("every");
	press("+");
	must_show("every 0.5 s");
	press("sSr\033[B\033[A");
	must_show("optimizer");
	press("\n");
	must_show("spill.mode exact");
	/* Page by page: on which one it is depends on how many figures there are. */
	for (int i = 0; i < 8 && !strstr(output, "move_out_ns"); i++) {
		press("\033[6~");
		must_show("Esc: back");
	}
	must_show("move_out_ns");
	press("\033[F");
	press("\033");
	must_show("optimizer");
	press("q");
	must_end(0);
}

TEST(figures_go_on_while_it_runs)
{
	start(24, 80, "xterm-256color");
	must_show("Test GPU");
	page->live[PLACE_HOST] = 77 * GIB;
	page->device[0].live[PLACE_HOST] = 77 * GIB;
	/* As the library does it: in the file that is there. */
	page_make_write(page, sizeof(*page));
	must_show("77G");
	press("q");
	must_end(0);
}

TEST(any_size_will_do)
{
	static const unsigned short sizes[][2] = {{50, 200}, {24, 80}, {10, 40}, {3, 20}, {1, 1}, {2, 300}, {200, 5}};

	start(24, 80, "xterm-256color");
	must_show("Test GPU");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		const struct winsize size = {.ws_row = sizes[i][0], .ws_col = sizes[i][1]};

		assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
		press("hq\nq");
	}
	const struct winsize wide = {.ws_row = 30, .ws_col = 120};
	assert_int_equal(ioctl(terminal, TIOCSWINSZ, &wide), 0);
	press("");
	must_show("PINNED"); /* a column that only a wide one has */
	press("q");
	must_end(0);
}

TEST(a_signal_ends_it_as_well)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP};

	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		start(24, 80, "xterm-256color");
		must_show("Test GPU");
		assert_int_equal(kill(tool, signals[i]), 0);
		must_end(0);
		close(terminal);
	}
	start(24, 80, "xterm-256color");
	must_show("Test GPU");
	press("\003"); /* Ctrl-C */
	must_end(0);
}

TEST(a_terminal_without_colours_has_letters)
{
	start(24, 80, "vt100");
	must_show("Test GPU");
	press("");
	must_show("DDDD");
	press("q");
	time_t until = time(NULL) + PATIENCE_S;
	int got = -1;
	while (waitpid(tool, &got, WNOHANG) == 0 && time(NULL) < until)
		read_some(20);
	tool = 0;
	assert_int_equal(got, 0);
}

TEST(a_terminal_that_can_nothing_gets_text)
{
	start(24, 80, "dumb");
	must_show("spillway top, ");
	must_show("python3");
	assert_null(strchr(output, '\033'));
	assert_int_equal(kill(tool, SIGTERM), 0);
}
