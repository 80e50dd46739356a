// SPDX-License-Identifier: Apache-2.0
/*
 * The watcher of `spillway run`.
 */
#include "tools/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/user_dir.h"
#include "shim/stats/summary.h"
#include "tools/common/page.h"
#include "tools/common/view.h"

/* How long a slow reader of standard error is waited for, as by the library at exit. */
#define WATCHER_MS 1000

/* The program that is watched. */
struct watched {
	pid_t pid;
	uint64_t started; /* ticks, as in /proc/PID/stat; 0: any that is gone */
	int fd;           /* pidfd */
	/* The first process of it that had CUDA mapped and the library not; pid 0: none was seen. */
	struct {
		pid_t pid;
		char name[32];
	} without;
};

void watcher_print(const struct stats_page *page, uint64_t now, bool full)
{
	struct summary *summary = malloc(sizeof(*summary));

	if (!summary)
		return;
	if (full)
		summary_make(page, now, NULL, summary);
	else
		summary_make_short(page, now, summary);
	log_patience(WATCHER_MS);
	for (unsigned i = 0; i < summary->n; i++)
		log_line("%s", summary->line[i].text);
	free(summary);
}

/* A process that ended by exit() has printed its summary and removed its file. */
static void print_what_is_left(const struct watched *program, bool full)
{
	struct pages pages = {0};

	pages_read(&pages, geteuid());
	for (size_t i = 0; i < pages.n; i++) {
		const struct page *page = pages.page[i];

		if (!page->copy || page_is_strange(page) || page->own_pid != program->pid ||
		    page->copy->state == STATS_ENDED)
			continue;
		if (program->started ? page->started != program->started
				     : page->started == user_dir_process_started(program->pid))
			continue;
		if (page->copy->counter[STAT_allocations] + page->copy->counter[STAT_refused])
			watcher_print(page->copy, clock_now(), full);
	}
	pages_free(&pages);
}

void watcher_print_left(pid_t pid)
{
	print_what_is_left(&(struct watched){.pid = pid}, false);
}

/* ---- who has lost the library ---- */

/* How often the program and its children are looked at, ms: each time after twice as long. */
#define FIRST_LOOK_MS 2
#define MOST_LEVELS   16

/* The loader maps the library before CUDA; but what is mapped in the middle of a look may be missed by it. */
static bool lacks_library(pid_t pid)
{
	return view_maps(pid, "/libcuda.so") == 1 && view_maps(pid, "/libspillway.so") == 0;
}

static void name_process(pid_t pid, char *room, size_t bytes)
{
	size_t n;
	char *text = view_read(pid, "comm", bytes - 1, &n);

	snprintf(room, bytes, "%.*s", text ? (int)strcspn(text, "\n") : 1, text ? text : "?");
	for (char *at = room; *at; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	free(text);
}

/* Looks at the process and at what its main thread has started. */
static void look_for_loss(struct watched *program, pid_t pid, int level)
{
	char path[64];
	int child;

	if (program->without.pid || level > MOST_LEVELS)
		return;
	if (lacks_library(pid) && lacks_library(pid)) {
		program->without.pid = pid;
		name_process(pid, program->without.name, sizeof(program->without.name));
		return;
	}
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	FILE *children = fopen(path, "re");
	while (children && fscanf(children, "%d", &child) == 1)
		look_for_loss(program, child, level + 1);
	if (children)
		fclose(children);
}

/* Returns true once the program has ended. */
static bool wait_for_end(struct watched *program)
{
	struct pollfd end = {.fd = program->fd, .events = POLLIN};
	int n, ms = FIRST_LOOK_MS;

	while ((n = poll(&end, 1, program->without.pid ? -1 : ms)) == 0 || (n < 0 && errno == EINTR)) {
		look_for_loss(program, program->pid, 0);
		ms = ms < INT_MAX / 2 ? 2 * ms : ms;
	}
	return n > 0 && (end.revents & POLLIN);
}

static void say_loss(const struct watched *program)
{
	if (!program->without.pid)
		return;
	log_patience(WATCHER_MS);
	log_line("process %d (%s) used CUDA without the library: something below `spillway run` has taken it out of "
		 "LD_PRELOAD; that process ran as without Spillway",
		 (int)program->without.pid, program->without.name);
}

/* Nothing that the program or its starter holds stays open but standard error, whose reader gets the lines. */
static bool let_go(struct watched *program)
{
	/* One of the standard descriptors, where the starter had closed that: it is given another file below. */
	int fd = fcntl(program->fd, F_DUPFD_CLOEXEC, 3);
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(nothing, STDOUT_FILENO) < 0)
		return false;
	/* The pidfd becomes descriptor 3; all above it are closed. */
	if (fd != 3 && dup2(fd, 3) < 0)
		return false;
	program->fd = 3;
	return syscall(SYS_close_range, 4u, ~0u, 0u) == 0 && chdir("/") == 0;
}

__attribute__((noreturn)) static void watch(struct watched *program, bool full)
{
	sigset_t all;

	/* A terminal or batch system that signals all processes of the job must not end it before it has printed. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, "spillway-watch");
	if (let_go(program) && wait_for_end(program)) {
		print_what_is_left(program, full);
		say_loss(program);
	}
	_exit(0);
}

static bool adopts_orphans(void)
{
	int is_subreaper = 0;

	return getpid() == 1 || prctl(PR_GET_CHILD_SUBREAPER, &is_subreaper) != 0 || is_subreaper;
}

void watcher_start(bool full)
{
	struct watched program = {.pid = getpid(), .started = user_dir_process_started(getpid())};

	if (adopts_orphans() || !program.started)
		return;
	program.fd = (int)syscall(SYS_pidfd_open, program.pid, 0);
	if (program.fd < 0)
		return;
	pid_t starter = fork();
	if (starter == 0) {
		setsid();
		if (fork() == 0)
			watch(&program, full);
		_exit(0);
	}
	/* The program must not find a child that it did not make. */
	while (starter > 0 && waitpid(starter, NULL, 0) < 0 && errno == EINTR)
		;
	close(program.fd);
}
