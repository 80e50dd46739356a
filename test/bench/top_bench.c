// SPDX-License-Identifier: Apache-2.0
/*
 * top_bench [PROCESSES [SECONDS]]: what `spillway top` costs. Its screen runs in a terminal of 120 x 40, once a second,
 * over so many processes whose figures change all the time; at the end the kernel says how much of a core it took. Then
 * the same for one process, so that what a process adds is seen. Needs no CUDA.
 */
#include "test/unit/page_make.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 120 };

static double clock_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static pid_t start(const pid_t *pids, unsigned n, int *ret_terminal)
{
	const struct winsize size = {.ws_row = 40, .ws_col = 120};
	char numbers[MOST][16], *argv[MOST + 3] = {"spillway", "top"};

	for (unsigned i = 0; i < n; i++) {
		snprintf(numbers[i], sizeof(numbers[i]), "%d", (int)pids[i]);
		argv[2 + i] = numbers[i];
	}
	pid_t tool = forkpty(ret_terminal, NULL, NULL, &size);
	if (!tool) {
		setenv("TERM", "xterm-256color", 1);
		setenv("LC_ALL", "C.UTF-8", 1);
		execv(TOOL, argv);
		_exit(127);
	}
	return tool;
}

/* Bytes it wrote to the terminal meanwhile. */
static size_t drain(int terminal, double until)
{
	char room[16384];
	size_t bytes = 0;

	for (double left; (left = until - clock_now()) > 0;) {
		struct pollfd wait = {.fd = terminal, .events = POLLIN};

		if (poll(&wait, 1, (int)(left * 1000) + 1) <= 0)
			continue;
		ssize_t n = read(terminal, room, sizeof(room));
		if (n <= 0)
			break;
		bytes += (size_t)n;
	}
	return bytes;
}

static void measure(unsigned n, unsigned seconds)
{
	struct stats_page *pages[MOST];
	pid_t pids[MOST];
	struct rusage used;
	int terminal, status;
	size_t bytes = 0;

	page_make_begin();
	for (unsigned i = 0; i < n; i++) {
		pids[i] = page_make_process();
		pages[i] = page_make(pids[i]);
		page_make_write(pages[i], sizeof(*pages[i]));
	}
	double begun = clock_now();
	pid_t tool = start(pids, n, &terminal);
	for (unsigned second = 0; second < seconds; second++) {
		bytes += drain(terminal, begun + second + 1);
		for (unsigned i = 0; i < n; i++) {
			page_make_grow(pages[i], 1 + (second + i) % 5);
			page_make_write(pages[i], sizeof(*pages[i]));
		}
	}
	kill(tool, SIGTERM);
	drain(terminal, clock_now() + 0.2);
	wait4(tool, &status, 0, &used);
	double time = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
		      (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
	printf(
	    "top_%u %.2f %% of a core at 1 Hz (%.0f ms in %u s, start included; %zu KiB at most; %zu bytes a second to "
	    "the terminal)%s\n",
	    n, time / seconds * 100, time * 1000, seconds, (size_t)used.ru_maxrss, bytes / seconds,
	    WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : " FAILED");
	close(terminal);
	for (unsigned i = 0; i < n; i++)
		free(pages[i]);
	page_make_end();
}

int main(int argc, char **argv)
{
	unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : 64, seconds = argc > 2 ? (unsigned)atoi(argv[2]) : 20;

	if (n < 1 || n > MOST || seconds < 1) {
		fprintf(stderr, "usage: top_bench [PROCESSES (1 to %d) [SECONDS]]\n", MOST);
		return 2;
	}
	measure(1, seconds);
	measure(n, seconds);
	return 0;
}
