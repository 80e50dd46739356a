/*
 * The parent of a program under `spillway run --fit`.
 */
#include "tools/run/fit.h"

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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/hostmem.h"
#include "shim/base/user_dir.h"
#include "tools/common/new_file.h"
#include "tools/common/policy_file.h"
#include "tools/common/tool.h"
#include "tools/run/fit_figures.h"

/* How often a terminal is told, ms. */
#define EVERY_MS 60000

struct fit {
	const struct fit_request *request;
	struct fit_program program;
	char folder[64]; /* "": none */
	int signals;     /* signalfd */
	sigset_t before; /* the signals that were blocked when the tool began */
	bool on_terminal;
	struct fit_moment last;
	long last_ms;
	int status; /* as waitpid() gives it */
};

static long fit_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

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
	unsigned char status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(TOOL_BROKEN);
	sigprocmask(SIG_SETMASK, &fit->before, NULL);
	status = (unsigned char)fit->request->start(fit->request->program);
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
	if (!take_signals(fit) || pipe2(ends, O_CLOEXEC) != 0 || (fit->program.pid = fork()) < 0) {
		tool_say("the program cannot be started: %s", strerror(errno));
		return TOOL_BROKEN;
	}
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

static void say_line(struct fit *fit, long now_ms)
{
	struct fit_moment now = fit_figures_now(&fit->program);
	char line[FIT_LINE];

	fit_line(&now, &fit->last, (double)(now_ms - fit->last_ms) / 1e3, line);
	tool_say("fit: %s", line);
	fit->last = now;
	fit->last_ms = now_ms;
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
		long left = fit->last_ms + EVERY_MS - fit_now_ms();
		int n = fit->on_terminal && left <= 0 ? 0 : poll(&signals, 1, fit->on_terminal ? (int)left : -1);

		if (n == 0)
			say_line(fit, fit_now_ms());
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
	fit.last_ms = fit_now_ms();
	wait_for_program(&fit);
	written = finish(&fit);
	fit_folder_remove(fit.folder);
	status = end_as(&fit);
	return status ? status : written;
}
