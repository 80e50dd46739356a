/*
 * Reads a plain or compressed file line by line.
 */
#include "tools/replay/replay_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

int lines_open(struct replay_lines *lines, const char *path)
{
	struct stat stat;
	int fd, error;

	*lines = (struct replay_lines){0};
	/* O_NONBLOCK: a FIFO without a writer must not block the tool. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	error = fstat(fd, &stat) ? errno : S_ISDIR(stat.st_mode) ? EISDIR : 0;
	lines->line = malloc(LINE_MOST + 2);
	if (lines->line)
		lines->line[0] = 0;
	lines->file = error || !lines->line ? NULL : gzdopen(fd, "rb");
	if (lines->file)
		return 0;
	close(fd);
	free(lines->line);
	return error ? -error : -ENOMEM;
}

void lines_close(struct replay_lines *lines)
{
	gzclose(lines->file);
	free(lines->line);
}

static char *lines_fail(struct replay_lines *lines, const char *why)
{
	lines->failed = true;
	snprintf(lines->why, sizeof(lines->why), "line %llu: %s", (unsigned long long)lines->number, why);
	return NULL;
}

char *lines_next(struct replay_lines *lines)
{
	int error = 0;

	if (lines->peeked) {
		lines->peeked = false;
		return lines->line;
	}
	if (lines->failed)
		return NULL;
	lines->number++;
	if (!gzgets(lines->file, lines->line, (int)LINE_MOST + 1)) {
		const char *why = gzerror(lines->file, &error);

		return error == Z_OK || error == Z_STREAM_END ? NULL : lines_fail(lines, why);
	}
	lines->n_peeked = strlen(lines->line);
	if (lines->n_peeked == LINE_MOST)
		return lines_fail(lines, "it is too long");
	/* gzgets() reads beyond a zero byte and does not report it. */
	if (!memchr(lines->line, '\n', lines->n_peeked) && !gzeof(lines->file))
		return lines_fail(lines, "this is no text");
	while (lines->n_peeked && strchr("\r\n", lines->line[lines->n_peeked - 1]))
		lines->line[--lines->n_peeked] = 0;
	/* zlib reports a truncated file only at its end. */
	gzerror(lines->file, &error);
	return error == Z_OK || error == Z_STREAM_END ? lines->line : lines_fail(lines, "the gzipped file is damaged");
}

const char *lines_peek(struct replay_lines *lines)
{
	const char *line = lines_next(lines);

	lines->peeked = line != NULL;
	return line;
}

bool number_take(char **at, int base, uint64_t *ret_number)
{
	uint64_t number = 0;
	char *c = *at;

	for (;; c++) {
		int digit = *c >= '0' && *c <= '9'   ? *c - '0'
			    : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10
			    : *c >= 'A' && *c <= 'F' ? *c - 'A' + 10
						     : base;

		if (digit >= base)
			break;
		if (number > (UINT64_MAX - (uint64_t)digit) / (uint64_t)base)
			return false;
		number = number * (uint64_t)base + (uint64_t)digit;
	}
	if (c == *at)
		return false;
	*at = c;
	*ret_number = number;
	return true;
}
