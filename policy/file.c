/* Reads a policy file into memory, with an explanation for the user if it cannot be read. */
#include "policy/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Our texts for errors: strerror() depends on the locale and does not say what to do. */
static const struct cause {
	int number;
	const char *text;
} causes[] = {
    {ENOENT, "there is no such file; write the path of one, or the name of a built-in policy"},
    {ENOTDIR, "a part of the path is not a folder; write the path of a file"},
    {EACCES, "it may not be read; allow reading with chmod, or write another path"},
    {ELOOP, "its links go round in a circle; write the path of a file"},
    {ENAMETOOLONG, "the path is too long; write a shorter one"},
    {EMFILE, "too many files are open in this process; close some or raise the limit with ulimit -n"},
};

static char *file_fail(int number, char *ret_why)
{
	for (size_t i = 0; i < sizeof(causes) / sizeof(*causes); i++) {
		if (causes[i].number != number)
			continue;
		snprintf(ret_why, POLICY_MAX_WHY, "%s", causes[i].text);
		return NULL;
	}
	snprintf(ret_why, POLICY_MAX_WHY, "it cannot be read (errno %d); write the path of another file", number);
	return NULL;
}

static char *fail_too_large(char *ret_why)
{
	snprintf(ret_why, POLICY_MAX_WHY,
		 "it is larger than 1 MiB, so it is hardly a policy; write the path of a smaller file");
	return NULL;
}

/* The file may shrink or grow while it is read, so only its end counts, not its size. */
static char *read_all(int fd, size_t *ret_bytes, char *ret_why)
{
	char *text = malloc(POLICY_MAX_FILE + 1);
	size_t bytes = 0;

	if (!text)
		return file_fail(ENOMEM, ret_why);
	for (;;) {
		ssize_t n = read(fd, text + bytes, POLICY_MAX_FILE + 1 - bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int number = errno;

			free(text);
			return file_fail(number, ret_why);
		}
		if (n == 0)
			break;
		bytes += (size_t)n;
		if (bytes > POLICY_MAX_FILE) {
			free(text);
			return fail_too_large(ret_why);
		}
	}
	*ret_bytes = bytes;
	return text;
}

int policy_file_open(int folder, const char *path)
{
	/* O_NONBLOCK: opening a FIFO without a writer would hang the user's process in its first allocation. */
	return openat(folder, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

char *policy_file_read(const char *path, size_t *ret_bytes, char *ret_why)
{
	return policy_file_read_open(policy_file_open(AT_FDCWD, path), ret_bytes, ret_why);
}

char *policy_file_read_open(int fd, size_t *ret_bytes, char *ret_why)
{
	struct stat status;
	char *text = NULL;

	if (fd < 0)
		return file_fail(errno, ret_why);
	if (fstat(fd, &status) != 0)
		file_fail(errno, ret_why);
	else if (!S_ISREG(status.st_mode))
		snprintf(ret_why, POLICY_MAX_WHY, "it is %s, not a regular file; write the path of a file",
			 S_ISDIR(status.st_mode)    ? "a folder"
			 : S_ISFIFO(status.st_mode) ? "a pipe"
						    : "a device or a socket");
	else if (status.st_size > POLICY_MAX_FILE)
		fail_too_large(ret_why);
	else
		text = read_all(fd, ret_bytes, ret_why);
	close(fd);
	return text;
}
