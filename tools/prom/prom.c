// SPDX-License-Identifier: Apache-2.0
/*
 * prom.c: `spillway prom`. Writes the figures of all running processes in the text format of Prometheus, as a file for
 * the textfile collector of its node exporter.
 *
 * The collector may read at any time, so the file is written under a temporary name, synced to the disk and renamed.
 * The collector's user must be able to read it: mode 0644. Therefore it contains the names of programs but no command
 * lines, whose arguments may be secret; nor does it contain sites, or more buckets than a monitoring system should
 * store.
 */
#include "tools/prom/prom.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/common/options.h"
#include "tools/common/seconds.h"
#include "tools/commands.h"
#include "tools/common/tool.h"

struct wish {
	const char *path; /* "-": standard output */
	bool list;
	double interval; /* seconds; 0: write once */
};

/* ---- the file ---- */

struct target {
	int folder;
	char name[NAME_MAX + 1], temporary[NAME_MAX + 1];
};

/* Prints the error. */
static bool prom_fails(const char *path, const char *what)
{
	return tool_fails("%s: %s: %s", policy_quoted(path), what, strerror(errno));
}

static bool open_target(const char *path, struct target *ret_target)
{
	char folder[PATH_MAX], name[PATH_MAX];

	if (strlen(path) >= sizeof(folder)) {
		errno = ENAMETOOLONG;
		return prom_fails(path, "cannot be written");
	}
	strcpy(folder, path);
	strcpy(name, path);
	const char *base = basename(name);
	if (!strcmp(base, ".") || !strcmp(base, "..") || !strcmp(base, "/") || path[strlen(path) - 1] == '/')
		return tool_fails("%s is a folder; name a file in it, spillway.prom say", policy_quoted(path));
	/* The temporary name does not end in .prom, so that the collector does not read it. */
	if ((size_t)snprintf(ret_target->temporary, sizeof(ret_target->temporary), ".%s.%d", base, (int)getpid()) >=
	    sizeof(ret_target->temporary)) {
		errno = ENAMETOOLONG;
		return prom_fails(path, "cannot be written");
	}
	snprintf(ret_target->name, sizeof(ret_target->name), "%.255s", base);
	ret_target->folder = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ret_target->folder >= 0 || prom_fails(path, "its folder cannot be opened");
}

/* Only a regular file, or none, may be replaced: a link or a device of that name would be a mistake or an attack. */
static bool may_replace(const struct target *target, const char *path)
{
	struct stat status;

	if (fstatat(target->folder, target->name, &status, AT_SYMLINK_NOFOLLOW) != 0 || S_ISREG(status.st_mode))
		return true;
	return tool_fails("%s is %s; it is left as it is: give the name of a file", policy_quoted(path),
			  S_ISLNK(status.st_mode)   ? "a symbolic link"
			  : S_ISDIR(status.st_mode) ? "a folder"
						    : "no regular file");
}

static bool fill_and_rename(const struct target *target, int fd, const char *path, const struct figures *figures)
{
	FILE *out = fdopen(fd, "w");

	if (!out) {
		close(fd);
		return prom_fails(path, "cannot be written");
	}
	prom_print(out, figures);
	bool good = fflush(out) == 0 && !ferror(out) && fchmod(fd, 0644) == 0 && fsync(fd) == 0;
	if (fclose(out) != 0 || !good)
		return prom_fails(path, "cannot be written");
	if (!may_replace(target, path))
		return false;
	return renameat(target->folder, target->temporary, target->folder, target->name) == 0 ||
	       prom_fails(path, "cannot be replaced");
}

static bool write_file(const struct target *target, const char *path, const struct figures *figures)
{
	if (!may_replace(target, path))
		return false;
	/* Left by a killed process that had the same process id. */
	unlinkat(target->folder, target->temporary, 0);
	int fd = openat(target->folder, target->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return prom_fails(path, "no file can be made beside it");
	if (fill_and_rename(target, fd, path, figures))
		return true;
	unlinkat(target->folder, target->temporary, 0);
	return false;
}

/* ---- the command ---- */

static bool write_one(const struct wish *wish, const struct target *target, struct figures *figures)
{
	static const struct figures_choice everybody = {.only = (uid_t)-1};

	if (!figures_read(figures, &everybody))
		return tool_fails("no memory for the figures of all processes");
	if (target)
		return write_file(target, wish->path, figures);
	prom_print(stdout, figures);
	return fflush(stdout) == 0;
}

static int write_all(const struct wish *wish, const struct target *target)
{
	struct figures figures = {0};
	bool good;

	if (wish->interval > 0) {
		seconds_end_by(SIGINT);
		seconds_end_by(SIGTERM);
	}
	do {
		good = write_one(wish, target, &figures);
		if (good && wish->interval > 0)
			seconds_sleep(wish->interval);
	} while (good && wish->interval > 0 && !seconds_enough());
	figures_free(&figures);
	/* The file would no longer be updated. */
	if (target && wish->interval > 0 && good)
		unlinkat(target->folder, target->name, 0);
	return good ? TOOL_OK : TOOL_BROKEN;
}

static bool read_interval(void *argument, int code, const char *text, char *why)
{
	struct wish *wish = argument;

	(void)code;
	(void)why;
	if (seconds_read(text, &wish->interval))
		return true;
	return tool_fails("%s is no interval; %s", policy_quoted(text), SECONDS_RANGE);
}

static const struct option_row rows[] = {
    OPTION_READ("interval", "SECONDS", read_interval, 0,
		"again and again (0.1 to 3600), until SIGTERM or SIGINT; then FILE is removed"),
    OPTION_FLAG("list", wish, list, "the name, unit and meaning of every figure"),
};

static const struct options options = {
    .command = "prom",
    OPTION_ROWS(rows),
    .column = 22,
    .head =
	"usage: spillway prom [option...] FILE\n"
	"       spillway prom --list\n\n"
	"Writes the figures of all running processes under Spillway to FILE, for the textfile collector of\n"
	"Prometheus' node exporter: to a new file beside it, which then takes its place, mode 0644, so that the\n"
	"collector never reads half of it. FILE should end in .prom; - is standard output. Root sees the processes\n"
	"of all users. It shows names of programs, but none of their arguments.\n",
    .tail = "Exit status: 0, also when there is no process; 1 FILE could not be written; 2 wrong usage.\n\n"
	    "examples:\n"
	    "  spillway prom /var/lib/prometheus/node-exporter/spillway.prom\n"
	    "  spillway prom --interval 15 /var/lib/prometheus/node-exporter/spillway.prom\n",
};

/* Returns OPTIONS_GO_ON, or the exit status. */
static int read_wish(int argc, char **argv, struct wish *wish)
{
	int status = options_read(&options, argc, argv, wish);

	if (status != OPTIONS_GO_ON)
		return status;
	if (wish->list && wish->interval > 0)
		return tool_bad("--list is printed once; leave --interval away");
	if (argc - optind != !wish->list || (!wish->list && !*argv[optind]))
		return tool_bad(wish->list
				    ? "`spillway prom --list` takes no file"
				    : "one file is needed; write `spillway prom FILE`, or - for standard output");
	wish->path = argv[optind];
	return OPTIONS_GO_ON;
}

int tool_prom(int argc, char **argv)
{
	struct wish wish = {0};
	struct target target;
	int status = read_wish(argc, argv, &wish);

	if (status >= 0)
		return status;
	if (wish.list) {
		prom_print_list(stdout);
		return TOOL_OK;
	}
	if (!strcmp(wish.path, "-"))
		return write_all(&wish, NULL);
	if (!open_target(wish.path, &target))
		return TOOL_BROKEN;
	size_t length = strlen(target.name);
	if (length < 6 || strcmp(target.name + length - 5, ".prom") != 0)
		tool_say("the collector reads files alone whose names end in .prom; %s does not", target.name);
	status = write_all(&wish, &target);
	close(target.folder);
	return status;
}
