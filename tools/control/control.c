// SPDX-License-Identifier: Apache-2.0
/*
 * control.c: `spillway suspend`, `spillway resume`, `spillway set` and `spillway list`. control_request.c of the
 * library defines the requests and replies.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/text.h"
#include "shim/base/clock.h"
#include "shim/base/rank.h"
#include "shim/base/user_dir.h"
#include "shim/serve/control.h"
#include "tools/commands.h"
#include "tools/common/grow.h"
#include "tools/common/options.h"
#include "tools/common/process.h"
#include "tools/common/shared.h"
#include "tools/common/tool.h"
#include "tools/common/units.h"
#include "tools/common/view.h"

enum {
	PATIENCE_MS = 3000, /* after this time the user is informed of the wait; a suspension may take longer */
	LIST_MS =
	    1000, /* time for the replies of all processes together; a process that is being suspended replies later */
	ENVIRONMENT_MOST = 1 << 21, /* bytes; the kernel takes no more than a quarter of the stack's 8 MiB */
};

struct request {
	const char *job; /* NULL: processes are named */
};

struct verb {
	const char *name, *request, *done, *moved;
	const char *state; /* of a process that has done it, as it says itself */
	struct option_row job;
	const char *head, *tail; /* of the help */
};

#define VERB(name, done, moved, state, text)                                                                           \
	{                                                                                                              \
		name, name "\n", done, moved, state,                                                                   \
		    OPTION_TEXT("job", "NAME", request, job,                                                           \
				"all processes of this job on this machine, or none: if one cannot be " done           \
				", the others are as\nthey were. NAME is SPILLWAY_JOB, or the id that Slurm, MPI, "    \
				"torchrun or Ray give it"),                                                            \
		    "usage: spillway " name " PID|ID...\n       spillway " name " --job NAME\n\n" text                 \
		    "\n`spillway list` shows the processes that can be asked, with both.\n",                           \
		    "Exit status: 0 all are " done ", 1 one could not be, 2 wrong usage: nothing was done.\n\n"        \
		    "examples:\n  spillway " name " 4711\n  spillway " name " --job 218305\n"                          \
	}

static const struct verb suspend_verb =
    VERB("suspend", "suspended", "of device memory given back", "suspended",
	 "Takes the GPU's memory from running processes for a while: each stops submitting work, all of its\n"
	 "memory that can move goes to the host, and device memory goes back to the driver. The processes do not\n"
	 "end; `spillway resume` lets them go on where they were. They must run under Spillway, as this user, with\n"
	 "spill.mode exact (the default) or fast.\n");
static const struct verb resume_verb = VERB("resume", "resumed", "to come back as it is used", "running",
					    "Lets processes go on that `spillway suspend` has stopped. Their memory "
					    "comes back to the GPU as it is used.\n");

/* Returns the version that a reply names; 1 if it names none. Requests are of version 1 and need not name it. */
static unsigned version_of(const char *reply)
{
	const char *says = strstr(reply, CONTROL_SAYS_VERSION);
	unsigned version = 1;

	if (says && strncmp(reply, "error ", 6) != 0 &&
	    sscanf(says + strlen(CONTROL_SAYS_VERSION), "%9u", &version) != 1)
		version = 0;
	return version;
}

/* Says why a reply reports no success. */
static void explain_reply(const struct verb *verb, const char *who, const char *reply)
{
	unsigned version = version_of(reply);

	if (version != CONTROL_VERSION)
		tool_say("process %s: its library answers in version %u, and this tool knows version %d: use the %s "
			 "spillway; `spillway top` shows whether it is %s",
			 who, version, CONTROL_VERSION, version < CONTROL_VERSION ? "older" : "newer", verb->done);
	else if (strncmp(reply, "error ", 6) == 0)
		tool_say("process %s: not %s: %s", who, verb->done, reply + 6);
	else
		tool_say("process %s: its answer is not understood: %s", who, reply);
}

/* Sends a request to the process. Returns where its reply will come, or -1, having said why it could not be asked. */
static int ask(const struct verb *verb, const struct process_name *name, const char *request)
{
	int fd = process_connect(name);

	if (fd >= 0 && process_send(fd, request))
		return fd;
	if (fd >= 0)
		close(fd);
	process_explain(name, verb->name);
	return -1;
}

/* Waits for the reply to what was asked, and closes fd. Returns false, having said why, if there is none. */
static bool hear(const struct process_name *name, int fd, char reply[PROCESS_REPLY])
{
	int got = process_receive(fd, PATIENCE_MS, reply);

	if (got == 0) {
		tool_say("process %s is not done yet; waiting for it", process_named(name));
		got = process_receive(fd, -1, reply);
	}
	if (got <= 0)
		tool_say("process %s ended, or closed the connection, before it answered", process_named(name));
	close(fd);
	return got > 0;
}

/* Returns whether a process that was asked has done it; closes fd. */
static bool hear_one(const struct verb *verb, const struct process_name *name, int fd)
{
	const char *who = process_named(name);
	char reply[PROCESS_REPLY];
	unsigned long long bytes;

	if (!hear(name, fd, reply))
		return false;
	if (version_of(reply) != CONTROL_VERSION || sscanf(reply, "ok %llu", &bytes) != 1) {
		explain_reply(verb, who, reply);
		return false;
	}
	printf("process %s: %s, %s %s\n", who, verb->done, text_bytes(bytes), verb->moved);
	return true;
}

/* Returns whether the process has done what was asked. */
static bool ask_one(const struct verb *verb, const struct process_name *name)
{
	int fd = ask(verb, name, verb->request);

	return fd >= 0 && hear_one(verb, name, fd);
}

/* ---- jobs ---- */

struct environment {
	const char *text; /* variables, each terminated; one more byte 0 at the end */
	size_t bytes;
};

static const char *variable(const char *name, void *argument)
{
	const struct environment *environment = argument;
	size_t length = strlen(name);

	for (const char *at = environment->text; at < environment->text + environment->bytes; at += strlen(at) + 1)
		if (!strncmp(at, name, length) && at[length] == '=')
			return at + length + 1;
	return NULL;
}

/*
 * Returns whether the process is of this job, by the environment that it was started with (shim/base/rank.h), which the
 * user who owns a process may read. pid: 0: it cannot be seen, so that is not known.
 */
static bool job_has(pid_t pid, const char *job)
{
	char found[RANK_JOB_BYTES] = "";
	struct environment environment = {0};
	char *text = pid ? view_read(pid, "environ", ENVIRONMENT_MOST, &environment.bytes) : NULL;

	if (!text)
		return false;
	environment.text = text;
	rank_job_of(variable, &environment, found);
	free(text);
	return !strcmp(found, job);
}

/* ---- the processes that can be asked ---- */

struct entry {
	struct process_found process;
	int fd;             /* where it was asked for its state; -1: it could not be */
	bool already, done; /* what was to be done: before, and now */
};

struct list {
	const char *job; /* NULL: all processes */
	struct entry *entry;
	size_t n, room;
	bool failed; /* no memory */
};

/* All requests are sent before the first reply is awaited, so that all together take as long as the slowest. */
static void list_add(const struct process_found *found, int fd, void *argument)
{
	struct list *list = argument;

	if (list->job && !job_has(found->pid, list->job))
		goto drop;
	for (size_t i = 0; i < list->n; i++) {
		const struct process_found *known = &list->entry[i].process;

		/* A visible process has one socket. */
		if ((known->device == found->device && known->inode == found->inode) ||
		    (known->pid && known->pid == found->pid))
			goto drop;
	}
	if (!grow(&list->entry, list->n, &list->room, sizeof(*list->entry))) {
		list->failed = true;
		goto drop;
	}
	list->entry[list->n] = (struct entry){.process = *found, .fd = fd};
	if (process_send(fd, "status\n")) {
		list->n++;
		return;
	}
	list->entry[list->n++].fd = -1;
drop:
	close(fd);
}

/* Waits for the state of a process until then, and closes the connection. Returns false if the process has ended. */
static bool hear_state(struct entry *entry, uint64_t end, char ret_state[16])
{
	char reply[PROCESS_REPLY];
	uint64_t now = clock_now();
	int got = entry->fd < 0 ? -1 : process_receive(entry->fd, now < end ? (int)((end - now) / 1000000) : 0, reply);

	if (entry->fd >= 0)
		close(entry->fd);
	entry->fd = -1;
	strcpy(ret_state, got == 0 ? "busy" : "?");
	if (got > 0 && version_of(reply) != CONTROL_VERSION)
		snprintf(ret_state, 16, "v%u", version_of(reply));
	else if (got > 0)
		sscanf(reply, "ok %*u %15s", ret_state);
	return got >= 0;
}

/* All are asked before the first answer is awaited: a rank whose GPU waits for one that stands still could not stop. */
static bool ask_members(const struct verb *verb, struct list *list)
{
	uint64_t end = clock_now() + LIST_MS * UINT64_C(1000000);
	char state[16];
	bool good = true;

	for (size_t i = 0; i < list->n; i++)
		list->entry[i].already = hear_state(&list->entry[i], end, state) && strcmp(state, verb->state) == 0;
	for (size_t i = 0; i < list->n; i++)
		list->entry[i].fd = ask(verb, &(struct process_name){.pid = list->entry[i].process.pid}, verb->request);
	for (size_t i = 0; i < list->n; i++) {
		const struct process_name name = {.pid = list->entry[i].process.pid};

		if (list->entry[i].fd >= 0)
			list->entry[i].done = hear_one(verb, &name, list->entry[i].fd);
		good &= list->entry[i].done;
	}
	return good;
}

/*
 * All processes of the job do as asked, or none: if one refuses, those that have done so are asked to undo it. Between
 * the first and the last they differ for as long as the copies take.
 */
static int ask_job(const struct verb *verb, const struct verb *back, const char *job)
{
	struct list list = {.job = job};

	process_each(list_add, &list);
	if (list.failed || !list.n) {
		if (list.failed)
			tool_say("no memory");
		else
			tool_say("no process of this user here is of the job %s and has used GPU memory under Spillway",
				 policy_quoted(job));
		free(list.entry);
		return TOOL_BROKEN;
	}
	bool good = ask_members(verb, &list);
	for (size_t i = 0; !good && i < list.n; i++)
		if (list.entry[i].done && !list.entry[i].already)
			ask_one(back, &(struct process_name){.pid = list.entry[i].process.pid});
	if (good)
		printf("job %s: %zu process%s %s\n", job, list.n, list.n == 1 ? "" : "es", verb->done);
	else
		tool_say("job %s: not %s: of its %zu processes one could not be; the others are as they were",
			 policy_quoted(job), verb->done, list.n);
	free(list.entry);
	return good ? TOOL_OK : TOOL_BROKEN;
}

/* Returns whether all of them are names of processes; prints the first that is none. */
static bool are_names(char **texts, int n)
{
	struct process_name name;

	for (int i = 0; i < n; i++)
		if (!process_read_name(texts[i], &name))
			return tool_fails("%s is no process id; `spillway list` shows them", policy_quoted(texts[i]));
	return true;
}

static int ask_all(const struct verb *verb, const struct verb *back, int argc, char **argv)
{
	const struct options options = {
	    .command = verb->name, .rows = &verb->job, .n = 1, .column = 14, .head = verb->head, .tail = verb->tail};
	struct request request = {0};
	struct process_name name;
	int status = options_read(&options, argc, argv, &request);
	bool good = true;

	if (status != OPTIONS_GO_ON)
		return status;
	if (request.job) {
		if (optind == argc && *request.job)
			return ask_job(verb, back, request.job);
		return tool_bad("--job takes one name, and nothing else; write `spillway %s --job NAME`", verb->name);
	}
	if (optind == argc)
		return tool_bad("no process given; write `spillway %s PID...`, `spillway list` shows them", verb->name);
	if (!are_names(argv + optind, argc - optind))
		return TOOL_BAD;
	for (int i = optind; i < argc; i++)
		good &= process_read_name(argv[i], &name) && ask_one(verb, &name);
	return good ? TOOL_OK : TOOL_BROKEN;
}

int tool_suspend(int argc, char **argv)
{
	return ask_all(&suspend_verb, &resume_verb, argc, argv);
}

int tool_resume(int argc, char **argv)
{
	return ask_all(&resume_verb, &suspend_verb, argc, argv);
}

/* ---- set ---- */

enum { MOST_SETTING = 48 }; /* bytes of KEY=VALUE: a request has 64 (serve/control.c) */

static const struct verb set_verb = {.name = "set", .done = "changed"};

static const struct options set_options = {
    .command = "set",
    .head = "usage: spillway set PID|ID KEY=VALUE...\n\n"
	    "Changes settings of a running process. device.budget and host.budget, to a size or a percentage: what is\n"
	    "above a smaller device budget leaves the GPU before the command ends, and goes back to the driver for\n"
	    "others to use; the process goes on. spill.mode, to exact or fast: it is stopped for a moment. Where\n"
	    "processes take turns, share.weight: the part of the time that it gets, from now on. `spillway list`\n"
	    "shows the processes.\n",
    .tail = "Exit status: 0 all is done, 1 something could not be changed, or some memory cannot leave; 2 wrong\n"
	    "usage: nothing was done.\n\n"
	    "example:\n"
	    "  spillway set 4711 device.budget=20GiB\n",
};

/* Returns whether the process has changed the setting, and nothing is above it. */
static bool set_one(const struct process_name *name, const char *setting)
{
	const char *who = process_named(name);
	char reply[PROCESS_REPLY], request[MOST_SETTING + 8];
	unsigned long long bytes, ms, above;

	snprintf(request, sizeof(request), "set %s\n", setting);
	int fd = ask(&set_verb, name, request);
	if (fd < 0 || !hear(name, fd, reply))
		return false;
	if (version_of(reply) != CONTROL_VERSION || sscanf(reply, "ok %llu %llu %llu", &bytes, &ms, &above) != 3) {
		explain_reply(&set_verb, who, reply);
		return false;
	}
	if (!strstr(setting, "budget"))
		printf("process %s: %s\n", who, setting);
	else
		printf("process %s: %s, %s left in %.2f s\n", who, setting, text_bytes(bytes), (double)ms / 1e3);
	if (above)
		tool_say("process %s: %s are above it still: they cannot move, or no safe point came in time", who,
			 text_bytes(above));
	return !above;
}

int tool_set(int argc, char **argv)
{
	struct process_name name;
	int status = options_read(&set_options, argc, argv, NULL), first = optind;
	bool good = true;

	if (status != OPTIONS_GO_ON)
		return status;
	if (first == argc)
		return tool_bad("no process given; write `spillway set PID KEY=VALUE`, `spillway list` shows them");
	if (!are_names(argv + first, 1))
		return TOOL_BAD;
	if (first + 1 == argc)
		return tool_bad("nothing to change; write KEY=VALUE, as in device.budget=20GiB");
	for (int i = first + 1; i < argc; i++) {
		if (!strchr(argv[i], '=') || strlen(argv[i]) > MOST_SETTING || strchr(argv[i], ' '))
			return tool_bad("%s is not KEY=VALUE, as in device.budget=20GiB", policy_quoted(argv[i]));
	}
	process_read_name(argv[first], &name);
	for (int i = first + 1; i < argc; i++)
		good &= set_one(&name, argv[i]);
	return good ? TOOL_OK : TOOL_BROKEN;
}

/* ---- list ---- */

static int by_pid(const void *a, const void *b)
{
	const struct process_found *left = &((const struct entry *)a)->process;
	const struct process_found *right = &((const struct entry *)b)->process;

	return ORDER(left->pid, right->pid) ?: ORDER(left->identity, right->identity);
}

/* Returns false if the process has ended. */
static bool print_one(struct entry *entry, uint64_t end, bool head)
{
	char command[PROCESS_COMMAND], state[16], pid[16] = "-", identity[IDENTITY_TEXT] = "-";

	if (!hear_state(entry, end, state))
		return false;
	process_command(entry->process.pid, command);
	if (entry->process.pid)
		snprintf(pid, sizeof(pid), "%d", (int)entry->process.pid);
	if (entry->process.identity)
		identity_text(entry->process.identity, identity);
	if (head)
		printf("%7s  %-9s  %-*s  %s\n", "PID", "STATE", IDENTITY_DIGITS, "ID", "COMMAND");
	printf("%7s  %-9s  %-*s  %s\n", pid, state, IDENTITY_DIGITS, identity, command);
	return true;
}

static const struct option_row list_rows[] = {
    OPTION_TEXT("job", "NAME", request, job, "those of this job alone, as for `spillway suspend`"),
};

static const struct options list_options = {
    .command = "list",
    .rows = list_rows,
    .n = 1,
    .column = 14,
    .head = "usage: spillway list [--job NAME]\n\n"
	    "Shows the processes of this user that run under Spillway and have used GPU memory: process id, state,\n"
	    "id and command. States: running; waiting, it is not its turn; suspended; busy, it is being suspended\n"
	    "or resumed, or is stopped;\n"
	    "v2 and the like, its library answers in a version that this tool does not know. The id is unique on the\n"
	    "machine. The process id is the one here: in a container a process has another one, and one that is not\n"
	    "seen from here has none (-).\n"
	    "Of a GPU that processes share (device.total), a table follows: what each of them may have, holds on the\n"
	    "GPU, needs, and cannot move, and since when it has submitted nothing.\n",
    .tail = "Exit status: 0, also when there is none; 2 wrong usage.\n\n"
	    "example:\n"
	    "  spillway list\n",
};

int tool_list(int argc, char **argv)
{
	struct request request = {0};
	int status = options_read(&list_options, argc, argv, &request);
	bool any = false;

	if (status != OPTIONS_GO_ON)
		return status;
	if (optind < argc)
		return tool_bad("`spillway list` takes no argument but --job NAME, and was given %s",
				policy_quoted(argv[optind]));
	struct list list = {.job = request.job};
	process_each(list_add, &list);
	uint64_t end = clock_now() + LIST_MS * UINT64_C(1000000);
	if (list.n)
		qsort(list.entry, list.n, sizeof(*list.entry), by_pid);
	for (size_t i = 0; i < list.n; i++)
		any |= print_one(&list.entry[i], end, !any);
	free(list.entry);
	if (any && !list.job)
		shared_print(stdout);
	if (!any)
		tool_say("no process of this user %sruns under Spillway and has used GPU memory",
			 list.job ? "and of that job " : "");
	return TOOL_OK;
}
