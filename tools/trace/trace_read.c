/*
 * Reads a trace file and its head, and sorts its rows by time.
 */
#include "tools/trace/trace_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	HEAD = 12,           /* bytes before the text of the head */
	HEAD_MOST = 1 << 20, /* maximum bytes of the text of a head */
};

/* ---- the file and its head ---- */

static int read_all(struct reader *reader, int fd, size_t bytes)
{
	struct trace *trace = reader->trace;

	trace->file = malloc(bytes + 1);
	if (!trace->file)
		return -ENOMEM;
	/* A file that is still written may have grown since; the additional bytes are not read. */
	while (reader->bytes < bytes) {
		ssize_t n = read(fd, trace->file + reader->bytes, bytes - reader->bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		reader->bytes += (size_t)n;
	}
	trace->bytes = reader->bytes;
	return 0;
}

static int read_file(struct reader *reader, const char *path)
{
	/* Without O_NONBLOCK, open() would wait for a writer of a pipe. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;

	if (fd < 0) {
		int error = -errno;

		reader_problem(reader->trace, "cannot be opened: %s", strerror(-error));
		return error;
	}
	int error = fstat(fd, &status) ? -errno : 0;
	if (!error && !S_ISREG(status.st_mode)) {
		reader_problem(reader->trace, "is not a regular file");
		error = -EINVAL;
	}
	if (!error)
		error = read_all(reader, fd, (size_t)status.st_size);
	close(fd);
	if (!error && reader_is_packed(reader->trace->file, reader->bytes))
		error = reader_unpack(reader);
	if (error && error != -ENOMEM)
		reader_problem(reader->trace, "cannot be read: %s", strerror(-error));
	return error;
}

const char *trace_value(const struct trace *trace, const char *key, char *room, size_t bytes)
{
	size_t n = strlen(key);

	if (bytes)
		room[0] = 0;
	for (const char *line = trace->head; line && *line;) {
		const char *end = strchrnul(line, '\n');

		if (!strncmp(line, key, n) && line[n] == '=') {
			snprintf(room, bytes, "%.*s", (int)(end - line - n - 1), line + n + 1);
			return room;
		}
		line = *end ? end + 1 : end;
	}
	return room;
}

static uint64_t number_of(const struct trace *trace, const char *key)
{
	char room[32], *end;
	const char *value = trace_value(trace, key, room, sizeof(room));

	errno = 0;
	uint64_t number = strtoull(value, &end, 10);
	return errno || *end || *value < '0' || *value > '9' ? 0 : number;
}

/* A file of another version lists how many fields its events have; a file without that list has this version's. */
static int read_shape(struct reader *reader)
{
	const char *fields = strstr(reader->trace->head, "\nfields=");

	trace_shape_own(&reader->shape);
	if (!fields && !strncmp(reader->trace->head, "fields=", 7))
		fields = reader->trace->head - 1;
	if (!fields || trace_shape_read(fields + 8, &reader->shape))
		return 0;
	reader_problem(reader->trace, "its head does not say how long its events are (fields)");
	return -EINVAL;
}

/* Returns the program that compressed the file, if it is one whose format is not supported. */
static const char *packed_by(const uint8_t *file, size_t bytes)
{
	static const struct {
		const char *program, *magic;
	} packers[] = {
	    {"zstd", "\x28\xb5\x2f\xfd"}, {"xz", "\xfd\x37zXZ"}, {"bzip2", "BZh"}, {"lz4", "\x04\x22\x4d\x18"}};

	for (size_t i = 0; i < sizeof(packers) / sizeof(packers[0]); i++)
		if (bytes > strlen(packers[i].magic) && !memcmp(file, packers[i].magic, strlen(packers[i].magic)))
			return packers[i].program;
	return NULL;
}

/* Fills in the problem of a file of another version. */
static void explain_version(struct trace *trace)
{
	char version[32], *end;

	trace_value(trace, "version", version, sizeof(version));
	uint64_t number = strtoull(version, &end, 10);
	bool known = *version >= '0' && *version <= '9' && !*end;
	const char *advice = !known                   ? ""
			     : number < TRACE_VERSION ? ": read it with the older spillway that wrote it"
						      : ": read it with the newer spillway that wrote it";

	reader_problem(trace, "is of version %.20s; this reader knows version %d%s", *version ? version : "?",
		       TRACE_VERSION, advice);
}

static int read_head(struct reader *reader)
{
	struct trace *trace = reader->trace;
	const uint8_t *file = (const uint8_t *)trace->file;

	const char *packer = packed_by(file, reader->bytes);
	if (packer) {
		reader_problem(trace, "is compressed; unpack it first: %s -d FILE", packer);
		return -EINVAL;
	}
	if (reader->bytes < HEAD || memcmp(file, TRACE_MAGIC, 8)) {
		reader_problem(trace, "is not a trace of Spillway; `spillway run --trace FILE` makes one");
		return -EINVAL;
	}
	uint64_t bytes = reader_fixed(file + 8, 4);
	if (bytes > HEAD_MOST || bytes > reader->bytes - HEAD) {
		reader_problem(trace, "its head is not whole");
		return -EINVAL;
	}
	trace->head = reader_text(trace, file + HEAD, bytes, true);
	if (!trace->head)
		return -ENOMEM;
	if (number_of(trace, "version") != TRACE_VERSION) {
		explain_version(trace);
		return -EINVAL;
	}
	trace->start = number_of(trace, "start");
	trace->clock = number_of(trace, "clock");
	int error = read_shape(reader);
	trace->tells_peers =
	    !error && reader->shape.n > TRACE_lent && reader->shape.fields[TRACE_move] >= trace_n_fields(TRACE_move);
	trace->tells_uncopied =
	    !error && reader->shape.n > TRACE_moved && reader->shape.fields[TRACE_moved] >= trace_n_fields(TRACE_moved);
	return error;
}

/* ---- order ---- */

struct order {
	uint64_t time;
	uint32_t row;
};

static int by_time(const void *a, const void *b)
{
	const struct order *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

/* Moves each row to its place along the cycles of the permutation: order[i].row is where the row for place i is now. */
static void read_permute(struct trace_row *rows, struct order *order, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct trace_row held = rows[i];
		size_t to = i;

		while (order[to].row != i) {
			size_t from = order[to].row;

			rows[to] = rows[from];
			order[to].row = (uint32_t)to;
			to = from;
		}
		rows[to] = held;
		order[to].row = (uint32_t)to;
	}
}

static bool sort_rows(struct trace *trace)
{
	struct order *order = malloc((trace->n_rows + 1) * sizeof(*order));
	bool sorted = true;

	if (!order)
		return false;
	for (size_t i = 0; i < trace->n_rows; i++) {
		order[i] = (struct order){trace->rows[i].event.time, (uint32_t)i};
		sorted &= !i || order[i - 1].time <= order[i].time;
	}
	if (!sorted) {
		qsort(order, trace->n_rows, sizeof(*order), by_time);
		read_permute(trace->rows, order, trace->n_rows);
	}
	free(order);
	if (trace->n_rows) {
		trace->first = trace->rows[0].event.time;
		trace->last = trace->rows[trace->n_rows - 1].event.time;
	}
	return true;
}

/* ---- all of it ---- */

static int read_whole(struct reader *reader, const char *path)
{
	struct trace *trace = reader->trace;
	int error = read_file(reader, path);

	if (!error)
		error = read_head(reader);
	if (error)
		return error;
	size_t at = HEAD + reader_fixed((const uint8_t *)trace->file + 8, 4), bytes = 1;
	for (; at < reader->bytes && bytes; at += bytes)
		bytes = reader_frame(reader, at);
	return !reader->no_memory && sort_rows(trace) && trace_make_blocks(trace) ? 0 : -ENOMEM;
}

int trace_read_file(const char *path, struct trace *ret_trace)
{
	struct reader reader = {.trace = ret_trace};

	*ret_trace = (struct trace){.path = strdup(path)};
	int error = ret_trace->path ? read_whole(&reader, path) : -ENOMEM;
	if (error == -ENOMEM)
		reader_problem(ret_trace, "is too large for the memory there is");
	free(reader.submits);
	number_map_free(&reader.by_hash);
	free(reader.named);
	return error;
}

void trace_free(struct trace *trace)
{
	trace_memory_free(trace);
	for (unsigned list = 0; list < TRACE_LISTS; list++)
		free(trace->names[list]);
	trace_places_free(trace->places);
	free(trace->rows);
	free(trace->blocks);
	free(trace->file);
	free(trace->path);
	*trace = (struct trace){0};
}

const char *trace_text(const struct trace *trace, enum trace_list list, uint64_t number)
{
	return list < TRACE_LISTS && number < trace->n_names[list] && trace->names[list][number]
		   ? trace->names[list][number]
		   : "?";
}
