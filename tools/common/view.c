// SPDX-License-Identifier: Apache-2.0
/*
 * Reads namespaces and process ids from /proc, and finds the folders of users.
 */
#include "tools/common/view.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/text.h"

enum {
	MOST_VIEWS = 256,     /* other mount namespaces */
	VIEWS_READINGS = 10,  /* readings for which the list of mount namespaces is reused */
	STATUS_BYTES = 4096,  /* of /proc/PID/status; NSpid is within the first two kilobytes */
	MOST_STRANGERS = 4096 /* processes of other PID namespaces */
};

/* Returns the number of a namespace of a process; 0 if it is not known. */
static uint64_t namespace_of(const char *process, const char *kind)
{
	struct stat status;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%.32s/ns/%s", process, kind);
	return stat(path, &status) == 0 ? status.st_ino : 0;
}

/* Calls visit() for each process, until it returns false. */
static void each_process(bool (*visit)(const char *process, uint64_t own), uint64_t own)
{
	DIR *dir = opendir("/proc");

	for (struct dirent *entry; dir && (entry = readdir(dir));)
		if (policy_is_digit(entry->d_name[0]) && !visit(entry->d_name, own))
			break;
	if (dir)
		closedir(dir);
}

/* ---- mount namespaces ---- */

static struct {
	struct {
		pid_t pid; /* a process in it */
		uint64_t id;
	} view[MOST_VIEWS];
	unsigned n;
	unsigned age; /* readings since the list was built */
} views;

static bool add_view(const char *process, uint64_t own)
{
	uint64_t id = namespace_of(process, "mnt");
	bool known = !id || id == own;

	for (unsigned i = 0; i < views.n; i++)
		known |= views.view[i].id == id;
	if (known)
		return true;
	views.view[views.n].pid = (pid_t)strtol(process, NULL, 10);
	views.view[views.n++].id = id;
	return views.n < MOST_VIEWS;
}

void view_each(view_visit *visit, void *argument)
{
	char path[64];

	if (views.age++ % VIEWS_READINGS == 0) {
		views.n = 0;
		each_process(add_view, namespace_of("self", "mnt"));
	}
	for (unsigned i = 0; i < views.n; i++) {
		snprintf(path, sizeof(path), "/proc/%d/root", (int)views.view[i].pid);
		visit(path, views.view[i].pid, argument);
	}
}

/* ---- folders ---- */

/* Searches the folder `name` in parent (a path) if only its owner can write to it. */
static void look_at(const char *parent, const char *name, uid_t owner, struct folders *search)
{
	struct stat status;
	char path[PATH_MAX];

	if (!search->other_view && search->only != (uid_t)-1 && owner != search->only)
		return;
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", parent, name) >= sizeof(path))
		return;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return;
	bool known = fstat(fd, &status) == 0, wanted = true;
	if (known && search->other_view) {
		owner = status.st_uid;
		wanted = (geteuid() == 0 || owner == geteuid()) && (search->only == (uid_t)-1 || owner == search->only);
	}
	if (wanted && known && status.st_uid == owner && (status.st_mode & 0077) == 0)
		search->visit(&(struct user_dir){.fd = fd}, owner, search->argument);
	else
		search->n_refused += wanted;
	close(fd);
}

/* ---- folders of one mount namespace; root: the prefix of their paths ---- */

uid_t view_user(const char *text)
{
	char *end;

	if (!policy_is_digit(*text))
		return (uid_t)-1;
	errno = 0;
	unsigned long user = strtoul(text, &end, 10);
	return errno || *end || user >= (uid_t)-1 ? (uid_t)-1 : (uid_t)user;
}

/*
 * Searches every folder in `parent` whose name is prefix and a user id. below: a folder in it to search instead; NULL
 * for itself.
 */
static void look_at_all_users(const char *parent, const char *prefix, const char *below, struct folders *search)
{
	DIR *dir = opendir(parent);

	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		char path[PATH_MAX];

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		uid_t user = view_user(entry->d_name + strlen(prefix));
		if (user == (uid_t)-1)
			continue;
		if (!below)
			look_at(parent, entry->d_name, user, search);
		else if ((size_t)snprintf(path, sizeof(path), "%s/%s", parent, entry->d_name) < sizeof(path))
			look_at(path, below, user, search);
	}
	if (dir)
		closedir(dir);
}

/*
 * Searches spillway-UID in a folder like /tmp: the tool's own user, for root all users. In another mount namespace the
 * user may have any number.
 */
static void look_below(const char *root, const char *folder, struct folders *search)
{
	char path[PATH_MAX], name[32];

	snprintf(path, sizeof(path), "%s%s", root, folder);
	if (geteuid() == 0 || search->other_view) {
		look_at_all_users(path, "spillway-", NULL, search);
		return;
	}
	snprintf(name, sizeof(name), "spillway-%u", (unsigned)geteuid());
	look_at(path, name, geteuid(), search);
}

static void look_everywhere(const char *root, struct folders *search)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/run/user", root);
	if (geteuid() == 0 || search->other_view) {
		look_at_all_users(path, "", "spillway", search);
	} else {
		snprintf(path, sizeof(path), "%s/run/user/%u", root, (unsigned)geteuid());
		look_at(path, "spillway", geteuid(), search);
	}
	look_below(root, user_dir_memory, search);
	look_below(root, user_dir_fallback, search);
}

void folders_own(struct folders *folders)
{
	const char *xdg = getenv("XDG_RUNTIME_DIR");

	if (xdg && xdg[0] == '/')
		look_at(xdg, "spillway", geteuid(), folders);
	look_everywhere("", folders);
}

static void look_at_view(const char *root, pid_t pid, void *argument)
{
	(void)pid;
	look_everywhere(root, argument);
}

void folders_of_views(struct folders *folders)
{
	folders->other_view = true;
	view_each(look_at_view, folders);
}

/* ---- processes ---- */

char *view_read(pid_t pid, const char *file, size_t most, size_t *ret_bytes)
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

int view_maps(pid_t pid, const char *part)
{
	char path[64], *line = NULL;
	size_t room = 0;
	int found = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *maps = fopen(path, "re");
	if (!maps)
		return -1;
	while (!found && getline(&line, &room, maps) > 0)
		found = strstr(line, part) != NULL;
	free(line);
	fclose(maps);
	return found;
}

static struct {
	struct {
		pid_t pid, inside; /* in the tool's PID namespace, and in its own */
		uint64_t space;
	} process[MOST_STRANGERS];
	unsigned n;
} strangers;

uint64_t view_own_space(void)
{
	return namespace_of("self", "pid");
}

/*
 * Reads "NSpid:\t4711\t1", which lists the process's id in each PID namespace from the tool's down to its own. Returns
 * the last; 0 if it is not known.
 */
static pid_t id_inside(pid_t pid)
{
	size_t bytes;
	char *text = view_read(pid, "status", STATUS_BYTES, &bytes), *line = text ? strstr(text, "\nNSpid:") : NULL;
	const char *last = NULL;

	if (line) {
		line[1 + strcspn(line + 1, "\n")] = 0;
		last = strrchr(line, '\t');
	}
	pid_t inside = last ? (pid_t)strtol(last + 1, NULL, 10) : 0;
	free(text);
	return inside;
}

static bool add_stranger(const char *process, uint64_t own)
{
	uint64_t space = namespace_of(process, "pid");
	pid_t pid = (pid_t)strtol(process, NULL, 10);

	if (!space || space == own)
		return true;
	strangers.process[strangers.n].pid = pid;
	strangers.process[strangers.n].inside = id_inside(pid);
	strangers.process[strangers.n++].space = space;
	return strangers.n < MOST_STRANGERS;
}

pid_t view_process(uint64_t space, pid_t pid, bool fresh)
{
	if (fresh) {
		strangers.n = 0;
		each_process(add_stranger, view_own_space());
	}
	for (unsigned i = 0; i < strangers.n; i++)
		if (strangers.process[i].space == space && strangers.process[i].inside == pid)
			return strangers.process[i].pid;
	return 0;
}
