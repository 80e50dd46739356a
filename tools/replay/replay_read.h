/*
 * replay_read.h: reads lines of a plain or compressed file, and helps the readers of replay's file formats. Internal
 * to replay_model.c, replay_text.c, replay_rmm.c and replay_trace.c.
 */
#ifndef TOOLS_REPLAY_READ_H
#define TOOLS_REPLAY_READ_H

#include "tools/common/number_map.h"
#include "tools/replay/replay_model.h"

/* A launch may name some thousand addresses; no line of any supported file is longer. */
#define LINE_MOST ((size_t)1 << 20)

struct replay_lines {
	void *file; /* gzFile */
	char *line;
	uint64_t number; /* of the last line read, from 1 */
	size_t n_peeked; /* length of the peeked line, without the line end */
	bool peeked, failed;
	char why[96]; /* why reading failed; "" if it did not */
};

/* Returns 0 or a negative errno. */
int lines_open(struct replay_lines *lines, const char *path);
void lines_close(struct replay_lines *lines);
/* Returns the next line without its end, valid until the next call; NULL at the end of the file or after a failure. */
char *lines_next(struct replay_lines *lines);
/* Returns the next line without consuming it. */
const char *lines_peek(struct replay_lines *lines);

bool text_is_head(const char *line);
int text_read(struct replay_model *model, struct replay_lines *lines);
bool rmm_is_head(const char *line);
int rmm_read(struct replay_model *model, struct replay_lines *lines);

/* Computes what depends on the whole file. Returns 0 or -EINVAL. */
int replay_model_finish(struct replay_model *model);

/* Reads an unsigned number below 2^64 in this base and moves *at behind it. Returns false if there is none. */
bool number_take(char **at, int base, uint64_t *ret_number);

/* Maps a number of the file to the live block. Returns REPLAY_NONE if there is none. */
static inline uint32_t map_find(const struct number_map *map, uint64_t key)
{
	uint64_t block;

	return number_map_get(map, key, &block) ? (uint32_t)block : REPLAY_NONE;
}

#endif
