/*
 * Reads the older text trace: "A id bytes" is an allocation, "F id" its free, "L function id:offset ..." a submission
 * with the addresses that it names. Functions and offsets are hexadecimal. Lines that begin with # are ignored.
 */
#include "tools/replay/replay_read.h"

#include <string.h>

#include "policy/policy.h"

bool text_is_head(const char *line)
{
	return (strchr("AFL", line[0]) && line[0] && line[1] == ' ') || line[0] == '#';
}

static int text_wrong(struct replay_model *model, const struct replay_lines *lines, const char *what)
{
	return replay_wrong(model, "line %llu: %s", (unsigned long long)lines->number, what);
}

static bool text_skip(char **at, char what)
{
	if (**at != what)
		return false;
	++*at;
	return true;
}

static int read_block(struct replay_model *model, const struct replay_lines *lines, struct number_map *map, char *at)
{
	struct replay_block block = {.place = lines->number, .api = POLICY_API_MALLOC, .site = REPLAY_NONE};
	uint64_t id;
	uint32_t which, before;

	if (!number_take(&at, 10, &id) || !text_skip(&at, ' ') || !number_take(&at, 10, &block.bytes) || *at)
		return text_wrong(model, lines, "\"A id bytes\" was expected");
	if (!block.bytes || block.bytes > REPLAY_BYTES_MOST)
		return text_wrong(model, lines, "no allocation has that many bytes");
	before = map_find(map, id);
	if (before != REPLAY_NONE && !model->blocks[before].freed) {
		replay_strange(model, lines->number);
		if (!replay_add_end(model, before, 0))
			return -1;
	}
	return replay_add_block(model, &block, 0, &which) && number_map_set(map, id, which) ? 0 : -1;
}

static int read_end(struct replay_model *model, const struct replay_lines *lines, const struct number_map *map,
		    char *at)
{
	uint64_t id;
	uint32_t block;

	if (!number_take(&at, 10, &id) || *at)
		return text_wrong(model, lines, "\"F id\" was expected");
	block = map_find(map, id);
	if (block == REPLAY_NONE || model->blocks[block].freed) {
		replay_strange(model, lines->number);
		return 0;
	}
	return replay_add_end(model, block, 0) ? 0 : -1;
}

static int read_launch(struct replay_model *model, const struct replay_lines *lines, const struct number_map *map,
		       char *at)
{
	uint64_t function, id;
	uint32_t submit;

	if (!number_take(&at, 16, &function))
		return text_wrong(model, lines, "\"L function id:offset ...\" was expected");
	while (text_skip(&at, ' ')) {
		struct replay_named named = {0};

		if (!*at)
			break;
		if (!number_take(&at, 10, &id) || !text_skip(&at, ':') || !number_take(&at, 16, &named.offset))
			return text_wrong(model, lines, "\"id:offset\" was expected");
		named.block = map_find(map, id);
		if (named.block == REPLAY_NONE || model->blocks[named.block].freed ||
		    named.offset >= model->blocks[named.block].bytes)
			replay_strange(model, lines->number);
		else if (!replay_add_named(model, &named))
			return -1;
	}
	if (*at)
		return text_wrong(model, lines, "\"id:offset\" was expected");
	return replay_add_submit(model, function, &submit) && replay_add_launch(model, submit, 0) ? 0 : -1;
}

int text_read(struct replay_model *model, struct replay_lines *lines)
{
	struct number_map map = {0};
	int status = 0;
	char *line;

	model->kind = "text trace";
	while (!status && (line = lines_next(lines))) {
		if (line[0] == '#' || !line[0])
			continue;
		if (line[1] != ' ')
			status = text_wrong(model, lines, "it does not begin with \"A \", \"F \" or \"L \"");
		else if (line[0] == 'A')
			status = read_block(model, lines, &map, line + 2);
		else if (line[0] == 'F')
			status = read_end(model, lines, &map, line + 2);
		else if (line[0] == 'L')
			status = read_launch(model, lines, &map, line + 2);
		else
			status = text_wrong(model, lines, "it does not begin with \"A \", \"F \" or \"L \"");
	}
	number_map_free(&map);
	return status;
}
