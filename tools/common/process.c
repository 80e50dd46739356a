// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the control socket of a process. Process ids in names are no proof: they differ between PID namespaces and are
 * reused. The kernel knows which process listens (SO_PEERCRED), in the ids of the PID namespace of the caller, so the
 * tool connects to every socket of the folder. That also finds stale sockets, which are removed. The kernel reports id
 * 0 for a process that is not visible here, such as one in a container that shares a folder with the tool. Such a
 * process is identified by the identity in the socket's name.
 *
 * A process may have had another XDG_RUNTIME_DIR than the tool (ssh, cron, a batch system), or another /tmp (a
 * container). So the tool searches the folders that it would use itself and those that the process sees.
 */
#include "tools/common/process.h"

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
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "policy/text.h"
#include "shim/base/user_dir.h"
#include "tools/common/tool.h"
#include "tools/common/view.h"

enum {
	CONNECT_MS = 1000,    /* for a socket with several callers waiting before this one */
	MOST_SOCKETS = 10000, /* in one folder; a limit beyond any real use */
	MOST_ENVIRONMENT = 1 << 20,
};

/* ---- sockets ---- */

struct search {
	process_visit *visit;
	void *argument;
	const int *wanted; /* it is over when this is a descriptor; NULL: all are visited */
};

static void process_look(const struct user_dir *folder, const char *name, void *argument)
{
	const struct search *search = argument;
	struct process_found found = {0};
	const char *from = strchr(name, '-');
	struct ucred peer;
	struct stat status;
	socklen_t bytes = sizeof(peer);

	/* A process waits for a request no longer than we may wait for others. */
	if (search->wanted && *search->wanted >= 0)
		return;
	/* "PID-ID.ctl"; the names of an older release have no identity. */
	if (from && !identity_read(from + 1, strchrnul(from, '.'), &found.identity))
		found.identity = 0;
	int fd = user_dir_connect(folder, name, CONNECT_MS);
	if (fd == -ECONNREFUSED)
		user_dir_remove_stale(folder, name);
	if (fd < 0)
		return;
	if (fstatat(folder->fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
		found.device = status.st_dev;
		found.inode = status.st_ino;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid() &&
	    (peer.pid > 0 || found.identity)) {
		found.pid = peer.pid;
		search->visit(&found, fd, search->argument);
	} else {
		close(fd);
	}
}

static void search_folder(int error, struct user_dir *folder, const struct search *search)
{
	if (error)
		return;
	user_dir_each_file(folder, USER_DIR_SOCKET, MOST_SOCKETS, process_look, (void *)search);
	user_dir_close(folder, false);
}

static void search_usual(const struct user_dir *folder, uid_t owner, void *argument)
{
	(void)owner;
	user_dir_each_file(folder, USER_DIR_SOCKET, MOST_SOCKETS, process_look, argument);
}

static void search_theirs(pid_t pid, const struct search *search)
{
	static const char key[] = "XDG_RUNTIME_DIR=/";
	char path[PATH_MAX];
	struct user_dir folder;
	size_t bytes;
	char *environment = view_read(pid, "environ", MOST_ENVIRONMENT, &bytes);

	for (size_t at = 0; environment && at < bytes; at += strlen(environment + at) + 1) {
		if (strncmp(environment + at, key, sizeof(key) - 1) != 0)
			continue;
		if ((size_t)snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid,
				     environment + at + sizeof(key) - 2) < sizeof(path))
			search_folder(user_dir_open_xdg(path, &folder), &folder, search);
	}
	free(environment);
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, user_dir_fallback);
	search_folder(user_dir_open_tmp(path, &folder), &folder, search);
}

static void search_view(const char *root, pid_t pid, void *argument)
{
	(void)root;
	search_theirs(pid, argument);
}

struct wanted {
	const struct process_name *name;
	int fd;
};

static void take_wanted(const struct process_found *found, int fd, void *argument)
{
	struct wanted *wanted = argument;
	const struct process_name *name = wanted->name;

	if (name->identity ? found->identity == name->identity : found->pid == name->pid)
		wanted->fd = fd;
	else
		close(fd);
}

int process_connect(const struct process_name *name)
{
	struct wanted wanted = {name, -1};
	struct search search = {take_wanted, &wanted, &wanted.fd};
	struct folders folders = {.only = geteuid(), .visit = search_usual, .argument = &search};

	folders_own(&folders);
	if (wanted.fd < 0 && name->pid)
		search_theirs(name->pid, &search);
	if (wanted.fd < 0)
		view_each(search_view, &search);
	if (wanted.fd < 0)
		folders_of_views(&folders);
	return wanted.fd;
}

void process_each(process_visit *visit, void *argument)
{
	struct search search = {visit, argument, NULL};
	struct folders folders = {.only = geteuid(), .visit = search_usual, .argument = &search};

	folders_own(&folders);
	view_each(search_view, &search);
	folders_of_views(&folders);
}

/* ---- names ---- */

bool process_read_name(const char *text, struct process_name *ret_name)
{
	char *end;

	*ret_name = (struct process_name){0};
	if (identity_read(text, strchr(text, 0), &ret_name->identity))
		return ret_name->identity != 0;
	if (!policy_is_digit(*text))
		return false;
	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno || *end || value <= 0 || value > INT_MAX)
		return false;
	ret_name->pid = (pid_t)value;
	return true;
}

const char *process_show_name(const struct process_name *name, char room[PROCESS_NAME])
{
	if (name->identity)
		return identity_text(name->identity, room);
	snprintf(room, PROCESS_NAME, "%d", (int)name->pid);
	return room;
}

/* ---- /proc ---- */

/* Finds the effective user of a process. Returns false if it is not known. */
static bool owner_of(pid_t pid, uid_t *ret_owner)
{
	size_t bytes;
	char *text = view_read(pid, "status", 4096, &bytes);
	const char *line = text ? strstr(text, "\nUid:") : NULL;
	unsigned effective;
	bool known = line && sscanf(line, "\nUid: %*u %u", &effective) == 1;

	if (known)
		*ret_owner = effective;
	free(text);
	return known;
}

void process_explain(const struct process_name *name, const char *verb)
{
	pid_t pid = name->pid;
	uid_t owner;

	if (name->identity) {
		tool_say("no process with the id %s can be asked; `spillway list` shows those that can",
			 process_named(name));
		return;
	}
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
	switch (view_maps(pid, "/libspillway.so")) {
	case 0:
		tool_say("process %d does not run under Spillway; `spillway run` starts a program so", (int)pid);
		break;
	case 1:
		tool_say("process %d runs under Spillway, but has no control socket: it has not used GPU memory yet, "
			 "its policy says \"control: no\", or it has closed the socket",
			 (int)pid);
		break;
	default:
		tool_say("process %d has no control socket: it does not run under Spillway, has not used GPU memory "
			 "yet, its policy says \"control: no\", or it has closed the socket",
			 (int)pid);
	}
}

void process_command(pid_t pid, char ret_command[PROCESS_COMMAND])
{
	size_t bytes = 0;
	char *text = pid ? view_read(pid, "cmdline", PROCESS_COMMAND - 1, &bytes) : NULL;

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
	return TEMP_FAILURE_RETRY(send(fd, request, strlen(request), MSG_NOSIGNAL)) == (ssize_t)strlen(request);
}

int process_receive(int fd, int wait_ms, char ret_reply[PROCESS_REPLY])
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	char buffer[PROCESS_REPLY];
	int n = TEMP_FAILURE_RETRY(poll(&wait, 1, wait_ms));

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
