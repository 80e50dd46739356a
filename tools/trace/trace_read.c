/*
 * Reads a trace file and its head, unpacks it if it is compressed, and sorts its rows by time.
 */
#include "tools/trace/trace_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/*
 * Unpacks a trace that was compressed with gzip, in one stream or several consecutive ones. It is unpacked in memory,
 * and its contents are not trusted: if the first bytes are no trace, unpacking stops, and it never exceeds
 * UNPACKED_MOST, which a job takes months to write.
 */

#define UNPACKED_MOST ((size_t)4 << 30)
#define STEP          ((size_t)1 << 20)

struct unpacking {
	z_stream stream;
	uint8_t *to;
	size_t n, room;
};

static bool has_room(struct unpacking *unpacking)
{
	if (unpacking->n < unpacking->room)
		return true;
	size_t room = unpacking->room ? 2 * unpacking->room : STEP;
	void *to = room > UNPACKED_MOST ? NULL : realloc(unpacking->to, room);
	if (!to)
		return false;
	unpacking->to = to;
	unpacking->room = room;
	return true;
}

/* Calls inflate() once and returns its status. *at: how much of the file has been read. */
static int unpack_some(struct unpacking *unpacking, const uint8_t *from, size_t bytes, size_t *at)
{
	z_stream *stream = &unpacking->stream;
	size_t in = bytes - *at < STEP ? bytes - *at : STEP;
	size_t out = unpacking->room - unpacking->n < STEP ? unpacking->room - unpacking->n : STEP;

	stream->next_in =
	    (Bytef *)(uintptr_t)(from + *at); /* zlib does not write to its input, although the type is not const */
	stream->avail_in = (uInt)in;
	stream->next_out = unpacking->to + unpacking->n;
	stream->avail_out = (uInt)out;
	int status = inflate(stream, Z_NO_FLUSH);
	*at += in - stream->avail_in;
	unpacking->n += out - stream->avail_out;
	return status;
}

static bool is_trace(const struct unpacking *unpacking)
{
	size_t n = unpacking->n < strlen(TRACE_MAGIC) ? unpacking->n : strlen(TRACE_MAGIC);

	return !memcmp(unpacking->to, TRACE_MAGIC, n);
}

/* Returns whether the file is compressed with gzip. */
static bool reader_is_packed(const void *file, size_t bytes)
{
	return bytes >= 2 && !memcmp(file, "\x1f\x8b", 2);
}

/*
 * Unpacks to the end of what can be unpacked. Returns 0 or a negative errno; a file that is cut or damaged is unpacked
 * up to there.
 */
static int unpack_all(struct reader *reader, struct unpacking *unpacking)
{
	const uint8_t *from = (const uint8_t *)reader->trace->file;
	int status = Z_OK;
	size_t at = 0;

	while (at < reader->bytes || status == Z_OK) {
		if (!has_room(unpacking))
			return -ENOMEM;
		status = unpack_some(unpacking, from, reader->bytes, &at);
		if (status == Z_MEM_ERROR)
			return -ENOMEM;
		if (!is_trace(unpacking) || status == Z_DATA_ERROR || status == Z_NEED_DICT)
			break;
		/* The input is used up and no output is left. */
		if (status == Z_BUF_ERROR)
			break;
		/* A stream may be followed by another, or by zero padding of a tape. */
		if (status == Z_STREAM_END &&
		    (!reader_is_packed(from + at, reader->bytes - at) || inflateReset(&unpacking->stream) != Z_OK))
			break;
	}
	if (status == Z_BUF_ERROR)
		reader->trace->cut = true;
	else if (status != Z_STREAM_END && is_trace(unpacking)) {
		reader->trace->damaged = true;
		reader_problem(reader->trace, "its gzip data is wrong at byte %zu", at);
	}
	return 0;
}

/* Replaces a compressed file with its contents. Returns 0 or a negative errno. */
static int reader_unpack(struct reader *reader)
{
	struct unpacking unpacking = {0};

	/* 15: the largest window; 16: expect gzip's head and checksum. */
	if (inflateInit2(&unpacking.stream, 15 + 16) != Z_OK)
		return -ENOMEM;
	int error = unpack_all(reader, &unpacking);
	inflateEnd(&unpacking.stream);
	if (error) {
		free(unpacking.to);
		return error;
	}
	free(reader->trace->file);
	reader->trace->file = (char *)unpacking.to;
	reader->trace->bytes = reader->bytes = unpacking.n;
	return 0;
}

/*
 * Reads a trace file and its head, and sorts its rows by time.
 */

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
	    !error && reader->shape.n > TRACE_lent && reader->shape.fields[TRACE_move] >= trace_kinds[TRACE_move].n;
	trace->tells_uncopied =
	    !error && reader->shape.n > TRACE_moved && reader->shape.fields[TRACE_moved] >= trace_kinds[TRACE_moved].n;
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
