// SPDX-License-Identifier: Apache-2.0
/*
 * The parent of a program under `spillway run --fit`.
 *
 * A process that ends well removes its figures, so the library is asked to leave a copy (SPILLWAY_FIGURES,
 * stats_file.c) in a folder that only this user may enter. One that was killed leaves them where they were.
 */
#include "tools/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/base/clock.h"
#include "shim/base/hostmem.h"
#include "shim/base/user_dir.h"
#include "shim/stats/summary.h"
#include "tools/common/new_file.h"
#include "tools/common/page.h"
#include "tools/common/policy_file.h"
#include "tools/common/tool.h"
#include "tools/common/view.h"
#include "tools/run/fit_policy.h"

/* How often a terminal is told. */
#define EVERY_NS UINT64_C(60000000000)

/* How many files of figures are looked at, and how many parents of a process. */
enum { MOST_FILES = 4096, MOST_PARENTS = 64 };

/* The program that was started: the process, and when it started, in ticks (/proc/PID/stat). */
struct fit_program {
	pid_t pid;
	uint64_t started;
};

/* ---- the folder ---- */

/* Makes the folder, of mode 0700, and names it to the processes that this one starts. Returns false if it cannot. */
static bool fit_folder_make(char ret_path[64])
{
	static const char *const places[] = {"/tmp", "/dev/shm"};
	char inner[80];

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(ret_path, 64, "%s/spillway-fit-XXXXXX", places[i]);
		if (!mkdtemp(ret_path))
			continue;
		snprintf(inner, sizeof(inner), "%s/spillway", ret_path);
		if (mkdir(inner, 0700) == 0 && setenv("SPILLWAY_FIGURES", ret_path, 1) == 0)
			return true;
		rmdir(inner);
		rmdir(ret_path);
	}
	*ret_path = 0;
	return false;
}

static void remove_file(const struct user_dir *folder, const char *name, void *argument)
{
	(void)argument;
	unlinkat(folder->fd, name, 0);
}

static void fit_folder_remove(const char *path)
{
	struct user_dir folder;

	if (!*path || user_dir_open_xdg(path, &folder) != 0)
		return;
	user_dir_each_file(&folder, STATS_TAIL, MOST_FILES, remove_file, NULL);
	user_dir_close(&folder, true);
	/* Not there any more unless a process that still runs has put something into it. */
	rmdir(path);
}

/* ---- the figures while it runs ---- */

/* Returns the parent of a process; 0 if it has ended. */
static pid_t parent_of(pid_t pid)
{
	size_t bytes;
	char *text = view_read(pid, "stat", 512, &bytes);
	/* "PID (NAME) STATE PARENT": the name may contain anything. */
	const char *name = text ? strrchr(text, ')') : NULL;
	int parent = 0;

	if (!name || sscanf(name + 1, " %*c %d", &parent) != 1)
		parent = 0;
	free(text);
	return parent;
}

static bool descends(pid_t pid, pid_t from)
{
	for (unsigned i = 0; i < MOST_PARENTS && pid > 1; i++, pid = parent_of(pid))
		if (pid == from)
			return true;
	return false;
}

/* Adds up what the running processes of the run have: the program and what descends from it. */
static struct fit_moment fit_figures_now(const struct fit_program *program)
{
	struct fit_moment moment = {0};
	struct pages pages = {0};

	pages_read(&pages, geteuid());
	for (size_t i = 0; i < pages.n; i++)
		if (pages.page[i]->copy && pages.page[i]->alive && pages.page[i]->pid > 0 &&
		    descends(pages.page[i]->pid, program->pid))
			fit_moment_add(&moment, pages.page[i]->copy, pages.page[i]->clock);
	pages_free(&pages);
	return moment;
}

/* ---- the figures afterwards ---- */

/* What is left of a run that has ended. */
struct fit_rest {
	struct page *page; /* of the process that lost most; NULL: none used CUDA memory. Is to be freed */
	uint64_t now;      /* the end of that process, CLOCK_MONOTONIC */
	unsigned n;        /* processes */
};

/* Returns when the process ended; it has ended by now. */
static uint64_t end_of(const struct page *page)
{
	uint64_t end = atomic_load(&page->copy->end_clock);

	return end > page->copy->start_clock ? end : page->clock;
}

static bool is_used(const struct page *page)
{
	return page->copy &&
	       atomic_load(&page->copy->counter[STAT_allocations]) + atomic_load(&page->copy->counter[STAT_refused]);
}

/* Returns whether a lost more than b; where both lost the same, whether it held more. */
static bool lost_more(const struct page *a, const struct page *b)
{
	double of_a = summary_lost(a->copy, end_of(a)), of_b = summary_lost(b->copy, end_of(b));

	if (of_a < of_b || of_a > of_b)
		return of_a > of_b;
	return atomic_load(&a->copy->backend[0].figure[FIGURE_peak]) >
	       atomic_load(&b->copy->backend[0].figure[FIGURE_peak]);
}

/* Takes over the page, or frees it. */
static void take_page(struct fit_rest *rest, struct page *page)
{
	bool used = page && is_used(page);

	rest->n += used;
	if (!used || (rest->page && !lost_more(page, rest->page))) {
		page_free(page);
		return;
	}
	page_free(rest->page);
	rest->page = page;
	rest->now = end_of(page);
}

static void take_file(const struct user_dir *folder, const char *name, void *argument)
{
	take_page(argument, page_read(folder, name, geteuid()));
}

/*
 * path: the folder; "": there is none. If the program was killed, it has not printed its summary: that is done here,
 * unless report is POLICY_REPORT_NONE.
 */
static struct fit_rest fit_figures_rest(const char *path, const struct fit_program *program, enum policy_report report)
{
	struct fit_rest rest = {0};
	struct pages pages = {0};
	struct user_dir folder;

	if (*path && user_dir_open_xdg(path, &folder) == 0) {
		user_dir_each_file(&folder, STATS_TAIL, MOST_FILES, take_file, &rest);
		user_dir_close(&folder, false);
	}
	pages_read(&pages, geteuid());
	for (size_t i = 0; i < pages.n; i++) {
		struct page *page = pages.page[i];

		/* The program was killed and has left it. */
		if (!page->copy || page_is_strange(page) || page->own_pid != program->pid ||
		    page->started != program->started || page->copy->state == STATS_ENDED || !is_used(page))
			continue;
		if (report != POLICY_REPORT_NONE)
			watcher_print(page->copy, clock_now(), report == POLICY_REPORT_FULL);
		take_page(&rest, page);
		pages.page[i] = NULL;
	}
	pages_free(&pages);
	return rest;
}

/* ---- the parent ---- */

struct fit {
	const struct fit_request *request;
	struct fit_program program;
	char folder[64]; /* "": none */
	int signals;     /* signalfd */
	sigset_t before; /* the signals that were blocked when the tool began */
	bool on_terminal;
	struct fit_moment last;
	uint64_t last_ns; /* CLOCK_MONOTONIC */
	int status;       /* as waitpid() gives it */
};

/* ---- start ---- */

/* All but those that an error of this process itself raises. */
static bool take_signals(struct fit *fit)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
	sigset_t all;

	sigfillset(&all);
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		sigdelset(&all, own[i]);
	fit->signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	return fit->signals >= 0 && sigprocmask(SIG_BLOCK, &all, &fit->before) == 0;
}

/* In the child. told: is closed by the exec, or gets the exit status. */
__attribute__((noreturn)) static void become_program(const struct fit *fit, pid_t parent, int told)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(TOOL_BROKEN);
	sigprocmask(SIG_SETMASK, &fit->before, NULL);
	unsigned char status = (unsigned char)fit->request->start(fit->request->program);
	while (write(told, &status, 1) < 0 && errno == EINTR)
		;
	_exit(status);
}

/* Returns TOOL_OK once the program runs; else the exit status. */
static int start_program(struct fit *fit)
{
	pid_t parent = getpid();
	unsigned char status;
	int ends[2];
	ssize_t n;

	fflush(NULL);
	if (!take_signals(fit) || pipe2(ends, O_CLOEXEC) != 0 || (fit->program.pid = fork()) < 0)
		return tool_broken("the program cannot be started: %s", strerror(errno));
	if (fit->program.pid == 0)
		become_program(fit, parent, ends[1]);
	fit->program.started = user_dir_process_started(fit->program.pid);
	close(ends[1]);
	while ((n = read(ends[0], &status, 1)) < 0 && errno == EINTR)
		;
	close(ends[0]);
	if (n != 1)
		return TOOL_OK;
	waitpid(fit->program.pid, &fit->status, 0);
	return status;
}

/* ---- while it runs ---- */

static void say_line(struct fit *fit)
{
	struct fit_moment now = fit_figures_now(&fit->program);
	uint64_t now_ns = clock_now();
	char line[FIT_LINE];

	fit_line(&now, &fit->last, (double)(now_ns - fit->last_ns) / 1e9, line);
	tool_say("fit: %s", line);
	fit->last = now;
	fit->last_ns = now_ns;
}

/*
 * Looks at the program after it has changed its state. Where it was stopped, as by Ctrl-Z, this process stops, too, so
 * that the shell sees it. Returns false once the program has ended.
 */
static bool goes_on(struct fit *fit)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
		/* As process 1 of a container this one is the parent of all whose own has ended. */
		if (pid != fit->program.pid)
			continue;
		fit->status = status;
		if (!WIFSTOPPED(status))
			return false;
		raise(SIGSTOP);
		kill(fit->program.pid, SIGCONT);
	}
	return pid == 0 || errno == EINTR;
}

/* Returns false once the program has ended. */
static bool pass_signals(struct fit *fit)
{
	struct signalfd_siginfo info;
	bool lives = true;

	while (lives && read(fit->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			lives = goes_on(fit);
		/* What the kernel sends for a terminal, it sends to the program as well. */
		else if (info.ssi_code <= 0)
			kill(fit->program.pid, (int)info.ssi_signo);
	}
	return lives;
}

static void wait_for_program(struct fit *fit)
{
	struct pollfd signals = {.fd = fit->signals, .events = POLLIN};
	bool lives = goes_on(fit);

	while (lives) {
		uint64_t now = clock_now(), next = fit->last_ns + EVERY_NS;
		int left = next > now ? (int)((next - now + 999999) / 1000000) : 0;
		int n = poll(&signals, 1, fit->on_terminal ? left : -1);

		if (n == 0)
			say_line(fit);
		else if (n > 0)
			lives = pass_signals(fit);
		else
			lives = errno == EINTR;
	}
}

/* ---- afterwards ---- */

static void say_policy(const char *text)
{
	tool_say("the policy that this run speaks for:");
	while (*text) {
		size_t n = strcspn(text, "\n");

		tool_say("  %.*s", (int)n, text);
		text += n + (text[n] == '\n');
	}
}

static int write_text(const char *path, const char *text)
{
	FILE *file = new_file_create(path);

	if (!file)
		return TOOL_BROKEN;
	if (new_file_close(file, path, fputs(text, file) >= 0) != TOOL_OK)
		return TOOL_BROKEN;
	return policy_file_check(path);
}

/* Returns TOOL_OK, or TOOL_BROKEN if a policy was to be written and was not. */
static int say_and_write(const struct fit_request *request, const struct fit_rest *rest)
{
	char program[PAGE_PROGRAM];
	struct fit_facts facts = {.page = rest->page->copy,
				  .program = page_program(rest->page, program),
				  .now = rest->now,
				  .set = request->set,
				  .n_processes = rest->n,
				  .host_memory = hostmem_read("").total};
	size_t bytes = 0;
	char *text = NULL;
	FILE *file = open_memstream(&text, &bytes);
	bool good = file && fit_policy_put(file, &facts);
	int status = TOOL_BROKEN;

	good = file && fclose(file) == 0 && good;
	if (good) {
		say_policy(text);
		status = request->write ? write_text(request->write, text) : TOOL_OK;
	} else {
		tool_say("no policy is made: --set has characters that no policy can contain, or there is no memory");
	}
	if (good && request->write && status == TOOL_OK)
		tool_say("it is in %s: spillway run --policy %s -- ...", request->write, request->write);
	free(text);
	return status;
}

static int finish(struct fit *fit)
{
	const struct fit_request *request = fit->request;
	struct fit_rest rest = fit_figures_rest(fit->folder, &fit->program, request->report);
	int status = request->write ? TOOL_BROKEN : TOOL_OK;

	if (rest.page)
		status = say_and_write(request, &rest);
	else
		tool_say("no process of this run has left figures of CUDA memory: there is no policy to write");
	page_free(rest.page);
	return status;
}

/* Ends as the program has ended. */
static int end_as(const struct fit *fit)
{
	const struct rlimit none = {0, 0};
	sigset_t one;

	if (WIFEXITED(fit->status))
		return WEXITSTATUS(fit->status);
	/* The program has left a core file where one was wanted. */
	setrlimit(RLIMIT_CORE, &none);
	fflush(NULL);
	sigemptyset(&one);
	sigaddset(&one, WTERMSIG(fit->status));
	signal(WTERMSIG(fit->status), SIG_DFL);
	raise(WTERMSIG(fit->status));
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	return 128 + WTERMSIG(fit->status);
}

int fit_run(const struct fit_request *request)
{
	struct fit fit = {.request = request, .on_terminal = isatty(STDERR_FILENO)};
	int status, written;

	if (!fit_folder_make(fit.folder))
		tool_say(
		    "no folder for the figures can be made: %s; there will be a policy only if the program is killed",
		    strerror(errno));
	status = start_program(&fit);
	if (status != TOOL_OK) {
		fit_folder_remove(fit.folder);
		return status;
	}
	fit.last_ns = clock_now();
	wait_for_program(&fit);
	written = finish(&fit);
	fit_folder_remove(fit.folder);
	status = end_as(&fit);
	return status ? status : written;
}
