/*
 * replay_read.h: what the readers of replay's files share: lines, of a plain file or a gzipped one. Inside of
 * replay_model.c, replay_text.c, replay_rmm.c and replay_trace.c.
 */
#ifndef TOOLS_REPLAY_READ_H
#define TOOLS_REPLAY_READ_H

#include "tools/common/number_map.h"
#include "tools/replay/replay_model.h"

/* A launch may name some thousand addresses; no line of anything we read is longer. */
#define LINE_MOST ((size_t)1 << 20)

struct replay_lines {
	void *file; /* gzFile */
	char *line;
	uint64_t number; /* of the line last read, from 1 */
	size_t n_peeked; /* bytes that are known of it; without the line end */
	bool peeked, failed;
	char why[96]; /* it failed */
};

/* 0 or a negative errno. */
int lines_open(struct replay_lines *lines, const char *path);
void lines_close(struct replay_lines *lines);
/* The next line without its end, until the next call; NULL: there is none, or failed. */
char *lines_next(struct replay_lines *lines);
/* The next line, which stays the next. */
const char *lines_peek(struct replay_lines *lines);

bool text_is_head(const char *line);
int text_read(struct replay_model *model, struct replay_lines *lines);
bool rmm_is_head(const char *line);
int rmm_read(struct replay_model *model, struct replay_lines *lines);

/* What is known once all is read. 0, or -EINVAL. */
int replay_model_finish(struct replay_model *model);

/* An unsigned number in this base, all of it digits, below 2^64. *at is moved behind it. False: there is none. */
bool number_take(char **at, int base, uint64_t *ret_number);

/* From numbers of the file to blocks that are alive. Returns REPLAY_NONE if it is not there. */
static inline uint32_t map_find(const struct number_map *map, uint64_t key)
{
	uint64_t block;

	return number_map_get(map, key, &block) ? (uint32_t)block : REPLAY_NONE;
}

#endif
