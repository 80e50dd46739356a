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
	/* Not held up by a FIFO that nobody writes to. */
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

static char *fail(struct replay_lines *lines, const char *why)
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

		return error == Z_OK || error == Z_STREAM_END ? NULL : fail(lines, why);
	}
	lines->n_peeked = strlen(lines->line);
	if (lines->n_peeked == LINE_MOST)
		return fail(lines, "it is too long");
	/* gzgets() does not stop at a zero, and does not say that there was one. */
	if (!memchr(lines->line, '\n', lines->n_peeked) && !gzeof(lines->file))
		return fail(lines, "this is no text");
	while (lines->n_peeked && strchr("\r\n", lines->line[lines->n_peeked - 1]))
		lines->line[--lines->n_peeked] = 0;
	/* A file that was cut short in the middle is told at its end. */
	gzerror(lines->file, &error);
	return error == Z_OK || error == Z_STREAM_END ? lines->line : fail(lines, "the gzipped file is damaged");
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

/* ---- numbers of the file to blocks ---- */

static size_t slot_of(const struct replay_map *map, uint64_t key)
{
	size_t slot = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (map->size - 1);

	while (map->slots[slot].block != REPLAY_NONE && map->slots[slot].key != key)
		slot = (slot + 1) & (map->size - 1);
	return slot;
}

uint32_t map_find(const struct replay_map *map, uint64_t key)
{
	return map->size ? map->slots[slot_of(map, key)].block : REPLAY_NONE;
}

static bool map_grow(struct replay_map *map)
{
	struct replay_map wider = {.size = map->size ? 2 * map->size : 1024, .n = map->n};

	wider.slots = calloc(wider.size, sizeof(*wider.slots));
	if (!wider.slots)
		return false;
	for (size_t i = 0; i < wider.size; i++)
		wider.slots[i].block = REPLAY_NONE;
	for (size_t i = 0; i < map->size; i++)
		if (map->slots[i].block != REPLAY_NONE)
			wider.slots[slot_of(&wider, map->slots[i].key)] = map->slots[i];
	free(map->slots);
	*map = wider;
	return true;
}

bool map_put(struct replay_map *map, uint64_t key, uint32_t block)
{
	if (2 * map->n >= map->size && !map_grow(map))
		return false;
	size_t slot = slot_of(map, key);
	map->n += map->slots[slot].block == REPLAY_NONE;
	map->slots[slot].key = key;
	map->slots[slot].block = block;
	return true;
}

void map_free(struct replay_map *map)
{
	free(map->slots);
}
