/*
 * The watcher of `spillway run`.
 */
#include "tools/run/watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/log.h"
#include "shim/base/user_dir.h"
#include "shim/stats/summary.h"
#include "tools/common/page.h"

/* How long a slow reader of standard error is waited for, as by the library at exit. */
#define WATCHER_MS 1000

/* The program that is watched. */
struct watched {
	pid_t pid;
	uint64_t started; /* ticks, as in /proc/PID/stat; 0: any that is gone */
	int fd;           /* pidfd */
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
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
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
			watcher_print(page->copy, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec, full);
	}
	pages_free(&pages);
}

void watcher_print_left(pid_t pid)
{
	print_what_is_left(&(struct watched){.pid = pid}, false);
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
	struct pollfd end = {.events = POLLIN};
	sigset_t all;

	/* A terminal or batch system that signals all processes of the job must not end it before it has printed. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, "spillway-watch");
	if (let_go(program)) {
		end.fd = program->fd;
		while (poll(&end, 1, -1) < 0 && errno == EINTR)
			;
		if (end.revents & POLLIN)
			print_what_is_left(program, full);
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
