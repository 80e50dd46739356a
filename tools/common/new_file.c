// SPDX-License-Identifier: Apache-2.0
/*
 * Files that must not exist yet.
 */
#include "tools/common/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/common/tool.h"

static void say_taken(const char *path)
{
	tool_say("%s is there already, and is not overwritten; name another file", policy_quoted(path));
}

bool new_file_is_taken(const char *path)
{
	struct stat there;

	if (!path || lstat(path, &there))
		return false;
	say_taken(path);
	return true;
}

FILE *new_file_create(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (file)
		return file;
	if (fd < 0 && errno == EEXIST)
		say_taken(path);
	else
		tool_say("%s cannot be made: %s", policy_quoted(path), strerror(errno));
	if (fd >= 0)
		close(fd);
	return NULL;
}

int new_file_close(FILE *file, const char *path, bool good)
{
	errno = 0;
	good = fflush(file) == 0 && !ferror(file) && good;
	int error = errno;
	if (fclose(file) == 0 && good)
		return TOOL_OK;
	tool_say("%s could not be written%s%s", policy_quoted(path), error ? ": " : "", error ? strerror(error) : "");
	unlink(path);
	return TOOL_BROKEN;
}

/* The writer of JSON prints to standard output, which is the file meanwhile. */
static bool print_into(FILE *file, void (*print)(const void *what), const void *what)
{
	int before = dup(STDOUT_FILENO);
	bool good = before >= 0 && fflush(stdout) == 0 && dup2(fileno(file), STDOUT_FILENO) >= 0;

	if (good) {
		print(what);
		good = fflush(stdout) == 0 && !ferror(stdout);
	}
	if (before >= 0) {
		dup2(before, STDOUT_FILENO);
		close(before);
	}
	return good && fchmod(fileno(file), 0644) == 0;
}

int new_file_print(const char *path, void (*print)(const void *what), const void *what)
{
	FILE *file = new_file_create(path);

	return file ? new_file_close(file, path, print_into(file, print, what)) : TOOL_BROKEN;
}
