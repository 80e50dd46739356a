/*
 * Which socket belongs to a process? Names are no proof: process ids differ between PID namespaces and come again. The
 * kernel knows who listens (SO_PEERCRED), in the ids of whoever asks, so every socket of the folder is asked. That also
 * finds the stale ones, which are removed on the way.
 *
 * A process may have had another XDG_RUNTIME_DIR than the tool has (ssh, cron, a batch system), or another /tmp (a
 * container). So the folders are looked at that the tool would use, and those that the process sees.
 */
#include "tools/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "policy/text.h"
#include "shim/rundir.h"
#include "tools/tool.h"

enum {
	CONNECT_MS = 1000,    /* for a socket with several callers in front of us */
	MOST_SOCKETS = 10000, /* of one folder; a user with more processes has other worries */
	MOST_ENVIRONMENT = 1 << 20,
};

/* ---- sockets ---- */

struct search {
	process_visit *visit;
	void *argument;
};

static void look(const struct rundir *folder, const char *name, void *argument)
{
	const struct search *search = argument;
	int fd = rundir_connect(folder, name, CONNECT_MS);
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	if (fd == -ECONNREFUSED)
		rundir_remove_stale(folder, name);
	if (fd < 0)
		return;
	/* 0: a process of another PID namespace, which has no id here. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid > 0 && peer.uid == geteuid())
		search->visit(peer.pid, fd, search->argument);
	else
		close(fd);
}

static void search_folder(int error, struct rundir *folder, const struct search *search)
{
	if (error)
		return;
	rundir_each(folder, MOST_SOCKETS, look, (void *)search);
	rundir_close(folder, false);
}

static void search_own(const struct search *search)
{
	const char *xdg = getenv("XDG_RUNTIME_DIR");
	struct rundir folder;
	char usual[64];

	snprintf(usual, sizeof(usual), "/run/user/%u", (unsigned)geteuid());
	search_folder(rundir_open_xdg(xdg, &folder), &folder, search);
	if (!xdg || strcmp(xdg, usual) != 0)
		search_folder(rundir_open_xdg(usual, &folder), &folder, search);
	search_folder(rundir_open_tmp(rundir_fallback, &folder), &folder, search);
}

/* What a file of /proc/PID holds, as a text. NULL: it cannot be read. The caller frees it. */
static char *read_file(pid_t pid, const char *file, size_t most, size_t *ret_bytes)
{
	char path[64], *text = malloc(most + 1);
	size_t at = 0;
	ssize_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && text && at < most && (n = read(fd, text + at, most - at)) > 0)
		at += (size_t)n;
	if (fd >= 0)
		close(fd);
	if (fd < 0 || !text || n < 0) {
		free(text);
		return NULL;
	}
	text[at] = 0;
	*ret_bytes = at;
	return text;
}

static void search_theirs(pid_t pid, const struct search *search)
{
	static const char key[] = "XDG_RUNTIME_DIR=/";
	char path[PATH_MAX];
	struct rundir folder;
	size_t bytes;
	char *environment = read_file(pid, "environ", MOST_ENVIRONMENT, &bytes);

	for (size_t at = 0; environment && at < bytes; at += strlen(environment + at) + 1) {
		if (strncmp(environment + at, key, sizeof(key) - 1) != 0)
			continue;
		if ((size_t)snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid,
				     environment + at + sizeof(key) - 2) < sizeof(path))
			search_folder(rundir_open_xdg(path, &folder), &folder, search);
	}
	free(environment);
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, rundir_fallback);
	search_folder(rundir_open_tmp(path, &folder), &folder, search);
}

struct wanted {
	pid_t pid;
	int fd;
};

static void take_wanted(pid_t pid, int fd, void *argument)
{
	struct wanted *wanted = argument;

	if (pid == wanted->pid && wanted->fd < 0)
		wanted->fd = fd;
	else
		close(fd);
}

int process_connect(pid_t pid)
{
	struct wanted wanted = {pid, -1};
	const struct search search = {take_wanted, &wanted};

	search_own(&search);
	if (wanted.fd < 0)
		search_theirs(pid, &search);
	return wanted.fd;
}

void process_each(process_visit *visit, void *argument)
{
	search_own(&(const struct search){visit, argument});
}

/* ---- /proc ---- */

/* The effective user of a process. False: it cannot be told. */
static bool owner_of(pid_t pid, uid_t *ret_owner)
{
	size_t bytes;
	char *text = read_file(pid, "status", 4096, &bytes);
	const char *line = text ? strstr(text, "\nUid:") : NULL;
	unsigned effective;
	bool known = line && sscanf(line, "\nUid: %*u %u", &effective) == 1;

	if (known)
		*ret_owner = effective;
	free(text);
	return known;
}

/* Is libspillway.so mapped? 1, 0, or -1 where that cannot be read. */
static int has_library(pid_t pid)
{
	char path[64], *line = NULL;
	size_t room = 0;
	int found = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *maps = fopen(path, "re");
	if (!maps)
		return -1;
	while (!found && getline(&line, &room, maps) > 0)
		found = strstr(line, "/libspillway.so") != NULL;
	free(line);
	fclose(maps);
	return found;
}

void process_explain(pid_t pid, const char *verb)
{
	uid_t owner;

	if (kill(pid, 0) != 0 && errno == ESRCH) {
		tool_say("there is no process %d", (int)pid);
		return;
	}
	if (owner_of(pid, &owner) && owner != geteuid()) {
		const struct passwd *user = getpwuid(owner);
		char number[32];

		snprintf(number, sizeof(number), "#%u", (unsigned)owner);
		tool_say("process %d is another user's; only its owner may do this: sudo -u %s spillway %s %d",
			 (int)pid, user ? user->pw_name : number, verb, (int)pid);
		return;
	}
	switch (has_library(pid)) {
	case 0:
		tool_say("process %d does not run under Spillway; `spillway run` starts a program so", (int)pid);
		break;
	case 1:
		tool_say("process %d runs under Spillway, but has no control socket: it has not used GPU memory yet, "
			 "or its policy says \"control: no\"",
			 (int)pid);
		break;
	default:
		tool_say("process %d has no control socket: it does not run under Spillway, has not used GPU memory "
			 "yet, or its policy says \"control: no\"",
			 (int)pid);
	}
}

void process_command(pid_t pid, char ret_command[PROCESS_COMMAND])
{
	size_t bytes = 0;
	char *text = read_file(pid, "cmdline", PROCESS_COMMAND - 1, &bytes);

	if (bytes && !text[bytes - 1])
		bytes--;
	for (size_t i = 0; i < bytes; i++)
		if (!text[i])
			text[i] = ' ';
	policy_printable(bytes ? text : "?", ret_command, PROCESS_COMMAND);
	free(text);
}

/* ---- talking ---- */

bool process_send(int fd, const char *request)
{
	ssize_t sent;

	do
		sent = send(fd, request, strlen(request), MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent == (ssize_t)strlen(request);
}

int process_receive(int fd, int wait_ms, char ret_reply[PROCESS_REPLY])
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	char buffer[PROCESS_REPLY];
	int n;

	do
		n = poll(&wait, 1, wait_ms);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return 0;
	ssize_t bytes = n > 0 ? recv(fd, buffer, sizeof(buffer) - 1, MSG_DONTWAIT) : -1;
	if (bytes <= 0)
		return -1;
	buffer[bytes] = 0;
	buffer[strcspn(buffer, "\n")] = 0;
	policy_printable(buffer, ret_reply, PROCESS_REPLY);
	return 1;
}
