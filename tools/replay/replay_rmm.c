/*
 * Reads the log of RMM's logging resource: CSV whose first line names the columns. Action, Pointer and Size are
 * required, in any order; Thread, Time and Stream are ignored. torch_snapshot.py writes the same format with an
 * additional column Device.
 */
#include "tools/replay/replay_read.h"

#include <string.h>
#include <strings.h>

#include "policy/policy.h"

#define COLUMNS_MOST 16

enum column {
	COLUMN_ACTION,
	COLUMN_POINTER,
	COLUMN_SIZE,
	COLUMN_DEVICE, /* only of torch_snapshot.py; RMM writes a log for each device */
	COLUMNS,
};

static const char *const names[COLUMNS] = {"Action", "Pointer", "Size", "Device"};

/*
 * Splits a line at its commas, in place; quotes around a field and blanks are dropped. Returns the number of fields;
 * -1 if there are too many.
 */
static int rmm_cut(char *line, char *fields[COLUMNS_MOST])
{
	int n = 0;

	for (char *next = line; next;) {
		char *at = next;

		if (n == COLUMNS_MOST)
			return -1;
		next = strchr(at, ',');
		if (next)
			*next++ = 0;
		at += strspn(at, " \"\t");
		for (size_t i = strlen(at); i && strchr(" \"\t", at[i - 1]);)
			at[--i] = 0;
		fields[n++] = at;
	}
	return n;
}

bool rmm_is_head(const char *line)
{
	return strcasestr(line, "Action") && strcasestr(line, "Pointer") && strcasestr(line, "Size") &&
	       strchr(line, ',');
}

struct rmm {
	struct replay_model *model;
	struct replay_lines *lines;
	struct number_map map;
	int column[COLUMNS], n_columns;
};

static int rmm_wrong(struct rmm *rmm, const char *what)
{
	return replay_wrong(rmm->model, "line %llu: %s", (unsigned long long)rmm->lines->number, what);
}

static int read_head(struct rmm *rmm)
{
	char *fields[COLUMNS_MOST];
	int n = rmm_cut(lines_next(rmm->lines), fields);

	for (int c = 0; c < COLUMNS; c++) {
		rmm->column[c] = -1;
		for (int i = 0; i < n; i++)
			if (strcasecmp(fields[i], names[c]) == 0)
				rmm->column[c] = i;
		if (rmm->column[c] < 0 && c != COLUMN_DEVICE)
			return rmm_wrong(rmm, "the columns Action, Pointer and Size are needed");
	}
	rmm->n_columns = n;
	return 0;
}

/* Pointers are hexadecimal, with or without 0x. */
static bool read_pointer(char *text, uint64_t *ret_pointer)
{
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		text += 2;
	return number_take(&text, 16, ret_pointer) && !*text;
}

static int rmm_end(struct rmm *rmm, uint64_t pointer)
{
	uint32_t block = map_find(&rmm->map, pointer);

	/* The block was made before the log began. */
	if (block == REPLAY_NONE || rmm->model->blocks[block].freed) {
		replay_strange(rmm->model, rmm->lines->number);
		return 0;
	}
	return replay_add_end(rmm->model, block, 0) ? 0 : -1;
}

static int rmm_begin(struct rmm *rmm, uint64_t pointer, uint64_t bytes, uint32_t device)
{
	struct replay_block block = {
	    .bytes = bytes,
	    .place = rmm->lines->number,
	    .device = device,
	    .api = POLICY_API_MALLOC,
	    .site = REPLAY_NONE,
	};
	uint32_t which = map_find(&rmm->map, pointer);

	if (bytes > REPLAY_BYTES_MOST)
		return rmm_wrong(rmm, "no allocation has that many bytes");
	if (!bytes)
		return 0;
	/* A second block at the same address: the free of the first one is missing. */
	if (which != REPLAY_NONE && !rmm->model->blocks[which].freed) {
		replay_strange(rmm->model, rmm->lines->number);
		if (!replay_add_end(rmm->model, which, 0))
			return -1;
	}
	return replay_add_block(rmm->model, &block, 0, &which) && number_map_set(&rmm->map, pointer, which) ? 0 : -1;
}

static int read_line(struct rmm *rmm, char *line)
{
	char *fields[COLUMNS_MOST], *size, *device;
	uint64_t pointer = 0, bytes = 0, ordinal = 0;
	int n = rmm_cut(line, fields);

	if (n < 0 || n > rmm->n_columns || n <= rmm->column[COLUMN_ACTION] || n <= rmm->column[COLUMN_POINTER] ||
	    n <= rmm->column[COLUMN_SIZE])
		return rmm_wrong(rmm, "it has not the columns of the head");
	const char *action = fields[rmm->column[COLUMN_ACTION]];
	if (strcasecmp(action, "allocate failure") == 0) {
		rmm->model->refused++;
		return 0;
	}
	bool made = strcasecmp(action, "allocate") == 0;
	if (!made && strcasecmp(action, "free") != 0 && strcasecmp(action, "deallocate") != 0)
		return rmm_wrong(rmm, "the action is none of allocate, free and allocate failure");
	if (!read_pointer(fields[rmm->column[COLUMN_POINTER]], &pointer))
		return rmm_wrong(rmm, "the pointer is no hexadecimal number");
	size = fields[rmm->column[COLUMN_SIZE]];
	if (!number_take(&size, 10, &bytes) || *size)
		return rmm_wrong(rmm, "the size is no number");
	device = rmm->column[COLUMN_DEVICE] >= 0 && rmm->column[COLUMN_DEVICE] < n ? fields[rmm->column[COLUMN_DEVICE]]
										   : NULL;
	if (device && (!number_take(&device, 10, &ordinal) || *device || ordinal >= REPLAY_DEVICES))
		return rmm_wrong(rmm, "the device is no number from 0 to 62");
	return made ? rmm_begin(rmm, pointer, bytes, (uint32_t)ordinal) : rmm_end(rmm, pointer);
}

int rmm_read(struct replay_model *model, struct replay_lines *lines)
{
	struct rmm rmm = {.model = model, .lines = lines};
	int status = read_head(&rmm);
	char *line;

	model->kind = "log of allocations";
	while (!status && (line = lines_next(lines)))
		if (*line)
			status = read_line(&rmm, line);
	number_map_free(&rmm.map);
	return status;
}
