/*
 * The file of a trace: expands its name, creates it, composes its head, and writes to it.
 */
#include "policy/policy.h"
#include "shim/base/rank.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/trace/trace_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How many further names are tried if the name exists already. */
#define TRIES 1000

/* ---- the name ---- */

static const char *value_of(char letter, char room[256])
{
	room[0] = 0;
	switch (letter) {
	case 'p':
		snprintf(room, 256, "%d", (int)getpid());
		return room;
	case 'h':
		if (gethostname(room, 255) == 0)
			room[255] = 0;
		return room;
	case 'e':
		return program_invocation_short_name;
	case 'r':
		return rank_text() ? rank_text() : "0";
	case '%':
		return "%";
	default:
		return NULL;
	}
}

/* Replaces '/' in values, so that a value never adds a folder to the path. */
static bool trace_file_append(char *name, size_t bytes, size_t *at, const char *text, size_t n, bool is_value)
{
	if (n >= bytes - *at)
		return false;
	for (size_t i = 0; i < n; i++)
		name[*at + i] = is_value && text[i] == '/' ? '_' : text[i];
	*at += n;
	name[*at] = 0;
	return true;
}

bool file_expand(const char *pattern, char *ret_name, size_t bytes, bool *ret_unique)
{
	char room[256];
	size_t at = 0;

	*ret_unique = false;
	ret_name[0] = 0;
	while (*pattern) {
		const char *value = *pattern == '%' && pattern[1] ? value_of(pattern[1], room) : NULL;

		*ret_unique |= value && pattern[1] == 'p';
		if (!trace_file_append(ret_name, bytes, &at, value ? value : pattern, value ? strlen(value) : 1,
				       value != NULL))
			return false;
		pattern += value ? 2 : 1;
	}
	return at > 0;
}

/* ---- the file ---- */

static int trace_file_make(struct trace_file *file)
{
	struct stat status;

	file->fd = open(file->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file->fd < 0)
		return errno;
	/* If the program has closed standard input, output or error, its later output must not reach the trace. */
	if (file->fd <= STDERR_FILENO) {
		int low = file->fd;

		file->fd = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		int error = errno;
		close(low);
		if (file->fd < 0) {
			unlink(file->name);
			return error;
		}
	}
	if (fstat(file->fd, &status) == 0) {
		file->device = status.st_dev;
		file->inode = status.st_ino;
	}
	return 0;
}

/*
 * If the name exists already, appends the process ID, and then further numbers: other ranks and child processes of one
 * command use the same pattern.
 */
int file_make(struct trace_file *file, const char *pattern)
{
	bool unique;

	file->fd = -1;
	/* Leaves room for the suffix. */
	if (!file_expand(pattern, file->name, sizeof(file->name) - 32, &unique))
		return ENAMETOOLONG;
	size_t n = strlen(file->name);
	int error = trace_file_make(file);
	for (unsigned i = unique; error == EEXIST && i < TRIES; i++) {
		if (unique)
			snprintf(file->name + n, 32, ".%u", i);
		else
			snprintf(file->name + n, 32, i ? ".%d.%u" : ".%d", (int)getpid(), i);
		error = trace_file_make(file);
	}
	return error;
}

static bool is_ours(const struct trace_file *file)
{
	struct stat status;

	return file->fd >= 0 && fstat(file->fd, &status) == 0 && status.st_dev == file->device &&
	       status.st_ino == file->inode;
}

int file_write(const struct trace_file *file, const void *bytes, size_t n)
{
	const char *at = bytes;

	if (!is_ours(file))
		return EBADF;
	while (n) {
		ssize_t written = write(file->fd, at, n);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return written ? errno : ENOSPC;
		at += written;
		n -= (size_t)written;
	}
	return 0;
}

void file_close(struct trace_file *file)
{
	if (is_ours(file))
		close(file->fd);
	file->fd = -1;
}

/* ---- the head ---- */

struct text {
	char *at;
	size_t left; /* bytes, with the terminating zero */
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	int n = vsnprintf(text->at, text->left, format, arguments);
	va_end(arguments);
	if (n < 0 || (size_t)n >= text->left) {
		*text->at = 0; /* a line is added whole or not at all */
		return;
	}
	text->at += n;
	text->left -= (size_t)n;
}

/* Adds the command line, its words separated by blanks, cut if it is long. Control characters become '?'. */
static void add_command(struct text *text)
{
	char command[2048];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, command, sizeof(command) - 1) : 0;

	if (fd >= 0)
		close(fd);
	for (ssize_t i = 0; i < n; i++)
		if (!command[i])
			command[i] = i + 1 < n ? ' ' : 0;
		else if ((unsigned char)command[i] < 0x20)
			command[i] = '?';
	command[n > 0 ? n : 0] = 0;
	add(text, "command=%s\n", command);
}

static void add_device(const struct trace_source_device *device, void *argument)
{
	add(argument, "%d:%llu ", device->ordinal, (unsigned long long)device->total);
}

static void add_name(const struct trace_source_device *device, void *argument)
{
	if (device->ordinal < STATS_DEVICES)
		add(argument, "gpu%d=%s\n", device->ordinal, stats.device[device->ordinal].name);
}

void file_head(const struct policy *policy, const struct trace_sources *sources, char *ret_text, size_t bytes)
{
	struct text text = {ret_text, bytes};
	char host[256] = "", job[RANK_JOB_BYTES];

	gethostname(host, sizeof(host) - 1);
	add(&text, "version=%d\nstart=%llu\nclock=%llu\n", TRACE_VERSION, (unsigned long long)clock_wall(),
	    (unsigned long long)clock_now());
	add(&text, "pid=%d\nhost=%s\n", (int)getpid(), host);
	if (rank_text())
		add(&text, "rank=%s\n", rank_text());
	if (rank_local())
		add(&text, "local_rank=%s\n", rank_local());
	if (rank_world())
		add(&text, "ranks=%s\n", rank_world());
	if (*rank_job(job))
		add(&text, "job=%s\n", job);
	add_command(&text);
	add(&text, "spillway=%s\n", SPILLWAY_VERSION);
	if (policy)
		add(&text, "policy=%s\npolicy_hash=%s\nmode=%s\n", policy_name(policy), policy_hash(policy),
		    policy_spill_name(process_spill_mode()));
	add(&text, "devices=");
	sources->each_device(add_device, &text);
	add(&text, "\n");
	sources->each_device(add_name, &text);
}
