// SPDX-License-Identifier: Apache-2.0
/*
 * Log lines to standard error, without blocking the program or writing into its files.
 *
 * Standard error is the file that descriptor 2 was when the library was loaded, identified by device and inode. A
 * program may close it and open a data file, which gets the number 2: so before each line the file is compared, and
 * nothing is written if it differs. A log file that the program put there by dup2() or freopen() cannot be
 * distinguished from such a data file and gets nothing either. No duplicate is kept: it would hold open a pipe that a
 * daemon has closed.
 *
 * Nothing here waits for a reader: a pipe, socket or terminal without a reader must not stop the program at its next
 * launch. O_NONBLOCK cannot be set, since it affects every process that has the file open; so a pipe or terminal is
 * reopened for each line, and a socket is written with MSG_DONTWAIT. Lines for which there is no space are counted,
 * and the next line that is written reports their number.
 */
#include "shim/base/log.h"
#include "shim/base/base_state.h"
#include "shim/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 1024 /* below PIPE_BUF, so that a pipe takes all of a line or none of it */
#define NARROWEST  40   /* columns of a terminal for which lines are wrapped */
#define WRAP_BYTES 512  /* that wrapping adds to a line at most */

static struct log_state *const state = &base_state.log;

/* ---- which file it is ---- */

/*
 * Records the file. Inherited standard error is writable and has no FD_CLOEXEC; otherwise another constructor opened
 * the file before this one ran.
 */
void log_begin(void)
{
	struct stat status;
	int flags = fcntl(STDERR_FILENO, F_GETFL), own = fcntl(STDERR_FILENO, F_GETFD);
	bool open = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && own >= 0 && !(own & FD_CLOEXEC) &&
		    fstat(STDERR_FILENO, &status) == 0;

	if (open)
		state->standard_error = status;
	atomic_store(&state->is_open, open);
}

__attribute__((constructor)) static void know_at_load(void)
{
	int saved = errno;

	pthread_once(&state->once, log_begin);
	errno = saved;
}

static bool is_standard_error(int fd)
{
	const struct stat *known = &state->standard_error;
	struct stat status;

	return fstat(fd, &status) == 0 && status.st_dev == known->st_dev && status.st_rdev == known->st_rdev &&
	       status.st_ino == known->st_ino && (status.st_mode & S_IFMT) == (known->st_mode & S_IFMT);
}

/* ---- writing ---- */

enum written {
	WRITTEN,
	CUT,  /* written in part */
	FULL, /* not written: the write would have waited */
	GONE, /* not written: another file by now, no reader left, or an error */
};

static __thread bool met_epipe __attribute__((tls_model("initial-exec")));

static enum written result_of(ssize_t n, size_t bytes)
{
	met_epipe |= n < 0 && errno == EPIPE;
	if (n >= 0)
		return (size_t)n == bytes ? WRITTEN : CUT;
	return errno == EAGAIN || errno == EWOULDBLOCK ? FULL : GONE;
}

/* Writes to a pipe or terminal through a new descriptor, whose file cannot change between check and write. */
static enum written write_reopened(const char *text, size_t bytes)
{
	int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};

	if (fd >= 0) {
		enum written written = is_standard_error(fd) ? result_of(write(fd, text, bytes), bytes) : GONE;

		close(fd);
		return written;
	}
	if (errno == ENXIO) /* a pipe without a reader */
		return GONE;
	/* No /proc, or another user's pipe. Another writer may fill the space first; the write can block then. */
	if (poll(&ready, 1, 0) <= 0 || !(ready.revents & POLLOUT))
		return FULL;
	return result_of(write(STDERR_FILENO, text, bytes), bytes);
}

static enum written write_now(const char *text, size_t bytes)
{
	if (!is_standard_error(STDERR_FILENO))
		return GONE;
	if ((state->standard_error.st_mode & S_IFMT) == S_IFSOCK)
		return result_of(send(STDERR_FILENO, text, bytes, MSG_DONTWAIT | MSG_NOSIGNAL), bytes);
	if ((state->standard_error.st_mode & S_IFMT) == S_IFIFO ||
	    ((state->standard_error.st_mode & S_IFMT) == S_IFCHR && isatty(STDERR_FILENO)))
		return write_reopened(text, bytes);
	return result_of(write(STDERR_FILENO, text, bytes), bytes);
}

/* ---- limited waits at the end of the process ---- */

void log_patience(unsigned ms)
{
	atomic_store(&state->wait_until, clock_now() + ms * UINT64_C(1000000));
}

static enum written write_patiently(const char *text, size_t bytes)
{
	enum written written = write_now(text, bytes);

	while (written == FULL && atomic_load(&state->wait_until) && clock_now() < atomic_load(&state->wait_until)) {
		clock_sleep(2000000);
		written = write_now(text, bytes);
	}
	return written;
}

/* ---- lines ---- */

static bool log_put(const char *text, size_t bytes)
{
	enum written written = WRITTEN;

	if (atomic_exchange(&state->was_cut, false))
		written = write_patiently("\n", 1);
	if (written == FULL)
		atomic_store(&state->was_cut, true);
	else
		written = write_patiently(text, bytes);
	if (written == CUT)
		atomic_store(&state->was_cut, true);
	return written != FULL && written != CUT;
}

static void put_line(const char *line, size_t bytes)
{
	unsigned lost = atomic_exchange(&state->n_lost, 0);
	char text[128];

	if (lost) {
		int n = snprintf(text, sizeof(text), "spillway: %u line%s not written: nobody read standard error\n",
				 lost, lost == 1 ? " was" : "s were");
		if (!log_put(text, (size_t)n)) {
			atomic_fetch_add(&state->n_lost, lost + 1);
			return;
		}
	}
	if (!log_put(line, bytes))
		atomic_fetch_add(&state->n_lost, 1);
}

/*
 * Writes without SIGPIPE: a standard error whose reader has ended (| head) must not end the job. The signal goes to the
 * writing thread; while blocked it stays pending, and is consumed here if it was not pending before.
 */
static void put_quietly(const char *line, size_t bytes)
{
	const struct timespec now = {0};
	sigset_t pipe_signal, before, pending;
	int cancel;

	sigemptyset(&pipe_signal);
	sigaddset(&pipe_signal, SIGPIPE);
	sigpending(&pending);
	/* The writes are cancellation points; a thread must not end here with locks of the library held. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
	met_epipe = false;
	put_line(line, bytes);
	if (met_epipe && !sigismember(&pending, SIGPIPE))
		while (sigtimedwait(&pipe_signal, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_setcancelstate(cancel, NULL);
}

/* Returns 0 if standard error is no terminal, or one whose width is not known. */
static unsigned terminal_width(void)
{
	struct winsize size;

	if ((state->standard_error.st_mode & S_IFMT) != S_IFCHR || ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0)
		return 0;
	return size.ws_col < NARROWEST ? 0 : size.ws_col;
}

/*
 * Wraps the line at blanks, as far as there is room. Further lines begin below the first word behind the head. Returns
 * the new length.
 */
static size_t wrap_line(char *line, size_t bytes, size_t n_head, size_t room, unsigned width)
{
	size_t indent = n_head + strspn(line + n_head, " "), column = indent, blank = 0;

	for (size_t i = indent; i < bytes; i++) {
		if (line[i] == ' ')
			blank = i;
		column += ((unsigned char)line[i] & 0xc0) != 0x80; /* a character of UTF-8 has one column */
		if (column <= width || !blank || bytes + indent > room)
			continue;
		memmove(line + blank + 1 + indent, line + blank + 1, bytes - blank - 1);
		line[blank] = '\n';
		memset(line + blank + 1, ' ', indent);
		bytes += indent;
		column = indent;
		i = blank + indent;
		blank = 0;
	}
	return bytes;
}

void log_line(const char *format, ...)
{
	static const char head[] = "spillway: ";
	const size_t n_head = sizeof(head) - 1;
	char line[LINE_BYTES + WRAP_BYTES];
	int saved = errno;
	va_list list;

	/* Another library's constructor may come here before ours has run. */
	pthread_once(&state->once, log_begin);
	if (!atomic_load(&state->is_open))
		goto out;
	memcpy(line, head, n_head);
	va_start(list, format);
	int n = vsnprintf(line + n_head, LINE_BYTES - n_head - 1, format, list);
	va_end(list);
	if (n < 0)
		n = 0;
	size_t bytes = n_head + (size_t)n;
	if (bytes > LINE_BYTES - 2)
		bytes = LINE_BYTES - 2;
	unsigned width = terminal_width();
	if (width)
		bytes = wrap_line(line, bytes, n_head, sizeof(line) - 1, width);
	line[bytes++] = '\n';
	put_quietly(line, bytes);
out:
	errno = saved;
}

void log_text(const char *text, size_t bytes)
{
	static const char head[] = "spillway: ";
	const size_t n_head = sizeof(head) - 1;
	char line[LINE_BYTES];
	int saved = errno;

	if (bytes > sizeof(line) - n_head - 1)
		bytes = sizeof(line) - n_head - 1;
	memcpy(line, head, n_head);
	memcpy(line + n_head, text, bytes);
	line[n_head + bytes] = '\n';
	if (atomic_load(&state->is_open))
		put_quietly(line, n_head + bytes + 1);
	errno = saved;
}

char *log_bytes(char *buffer, size_t room, unsigned long long bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	unsigned unit = 0;

	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	snprintf(buffer, room, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return buffer;
}
