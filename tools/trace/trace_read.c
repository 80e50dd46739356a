// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a trace file and its head, unpacks it if it is compressed, turns its frames into rows, and sorts these by time.
 */
#include "tools/trace/trace_read.h"
#include "tools/common/grow.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* A submission of the file; `which` is its number among the different ones. */
struct submit {
	uint64_t function, device, n;
	const struct trace_named *named;
	uint32_t which;
};

/* State while a trace is read. */
struct reader {
	struct trace *trace;
	size_t bytes; /* size of the file */
	struct trace_shape shape;
	size_t rows_room;
	size_t names_room[TRACE_LISTS];
	struct submit *submits; /* by number in the file */
	size_t n_submits, submits_room;
	struct number_map by_hash; /* of the different ones: index in submits */
	struct trace_named *named; /* scratch */
	size_t named_room;
	bool no_memory;
};

/* ---- texts and numbers ---- */

/* Only the first problem is kept. */
__attribute__((format(printf, 2, 3))) static void reader_problem(struct trace *trace, const char *format, ...)
{
	va_list arguments;

	if (trace->problem[0])
		return;
	va_start(arguments, format);
	vsnprintf(trace->problem, sizeof(trace->problem), format, arguments);
	va_end(arguments);
}

/* Makes room for one more element in an array. Returns false, and sets no_memory, if memory runs out. */
static bool reader_room(struct reader *reader, void **array, size_t n, size_t *room, size_t each)
{
	bool done = grow(array, n, room, each);

	reader->no_memory |= !done;
	return done;
}

/* Returns a little-endian number of the file. */
static uint64_t reader_fixed(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << 8 * i;
	return value;
}

/*
 * Returns a copy that lives as long as the trace, without characters that move a terminal's cursor; NULL if memory
 * runs out. lines: keep line ends.
 */
static char *reader_text(struct trace *trace, const void *text, size_t bytes, bool lines)
{
	char *copy = trace_memory(trace, bytes + 1);

	if (!copy)
		return NULL;
	memcpy(copy, text, bytes);
	copy[bytes] = 0;
	for (size_t i = 0; i < bytes; i++)
		if (((unsigned char)copy[i] < 0x20 || copy[i] == 0x7f) && !(lines && copy[i] == '\n'))
			copy[i] = '?';
	return copy;
}

/*
 * ---- frames ---- Frames are read in the order of the file, and each event becomes a row at once. Rows of submissions
 * with the same addresses share one copy of them; submissions that the file repeats by number are looked up by that
 * number.
 */

enum {
	FRAME_HEAD = 24,      /* bytes before the events */
	NAMES_MOST = 1 << 20, /* limit of the numbers of names */
	SEARCHES = 16,        /* attempts to find a frame after one whose length exceeds the file */
};

/* ---- submissions: each different one once ---- */

static uint64_t hash_submit(const struct submit *submit)
{
	uint64_t hash = (submit->function << 8 ^ submit->device) * UINT64_C(0x9fb21c651e98df25);

	for (uint64_t i = 0; i < submit->n; i++) {
		hash = (hash ^ hash >> 32 ^ submit->named[i].address) * UINT64_C(0x9fb21c651e98df25);
		hash = (hash ^ hash >> 32 ^ submit->named[i].bytes) * UINT64_C(0x9fb21c651e98df25);
	}
	return hash;
}

static bool is_same(const struct submit *a, const struct submit *b)
{
	return a->function == b->function && a->device == b->device && a->n == b->n &&
	       (!a->n || !memcmp(a->named, b->named, a->n * sizeof(*a->named)));
}

/* event->named is scratch memory before the call and belongs to the trace after it. */
static bool keep_submit(struct reader *reader, struct trace_row *row)
{
	struct trace_event *event = &row->event;
	struct submit submit = {event->submit.function, event->submit.device, event->submit.n, reader->named, 0};

	if (!reader_room(reader, (void **)&reader->submits, reader->n_submits, &reader->submits_room, sizeof(submit)))
		return false;
	uint64_t hash = hash_submit(&submit), same;
	/*
	 * Different ones with the same hash, which a file may be made to have, are not found again; that is no error.
	 */
	if (number_map_get(&reader->by_hash, hash, &same) && is_same(&reader->submits[same], &submit)) {
		submit = reader->submits[same];
	} else {
		struct trace_named *named = trace_memory(reader->trace, submit.n * sizeof(*named));

		reader->no_memory |= !named || !number_map_set(&reader->by_hash, hash, reader->n_submits);
		if (reader->no_memory)
			return false;
		if (submit.n)
			memcpy(named, reader->named, submit.n * sizeof(*named));
		submit.named = named;
		submit.which = reader->trace->n_submits++;
	}
	reader->submits[reader->n_submits++] = submit;
	event->named = submit.named;
	row->which = submit.which;
	return true;
}

/* Returns false if no submission has that number. */
static bool repeat_submit(const struct reader *reader, struct trace_row *row)
{
	struct trace_event *event = &row->event;

	if (event->again.earlier >= reader->n_submits)
		return false;
	const struct submit *submit = &reader->submits[event->again.earlier];
	event->kind = TRACE_submit;
	event->submit.function = submit->function;
	event->submit.device = submit->device;
	event->submit.n = submit->n;
	event->named = submit->named;
	row->which = submit->which;
	return true;
}

/* ---- events ---- */

/* Lists and numbers out of range come from another version or are damaged; they are ignored. */
static bool keep_name(struct reader *reader, const struct trace_event *event)
{
	struct trace *trace = reader->trace;
	uint64_t list = event->name.list, number = event->name.number;

	if (list >= TRACE_LISTS || number >= NAMES_MOST)
		return true;
	while (number >= reader->names_room[list])
		if (!reader_room(reader, (void **)&trace->names[list], reader->names_room[list],
				 &reader->names_room[list], sizeof(*trace->names[list])))
			return false;
	for (; trace->n_names[list] <= number; trace->n_names[list]++)
		trace->names[list][trace->n_names[list]] = NULL;
	trace->names[list][number] = reader_text(trace, event->text, event->text_bytes, false);
	reader->no_memory |= !trace->names[list][number];
	return !reader->no_memory;
}

/* Returns false if the reading must end here. */
static bool keep_event(struct reader *reader, const struct trace_event *event)
{
	struct trace *trace = reader->trace;

	if (event->kind >= TRACE_KINDS)
		return true;
	if (trace->n_rows >= TRACE_NONE - 1) {
		reader_problem(trace, "has more events than this reader can number");
		trace->damaged = true;
		return false;
	}
	if (!reader_room(reader, (void **)&trace->rows, trace->n_rows, &reader->rows_room, sizeof(*trace->rows)))
		return false;
	struct trace_row *row = &trace->rows[trace->n_rows];
	*row = (struct trace_row){.event = *event, .which = TRACE_NONE};
	if (event->kind != TRACE_submit)
		row->event.named = NULL;
	if (event->kind == TRACE_submit && !keep_submit(reader, row))
		return false;
	if (event->kind == TRACE_again && !repeat_submit(reader, row)) {
		reader_problem(trace, "event %zu repeats submission %" PRIu64 ", which is not there", trace->n_rows,
			       event->again.earlier);
		trace->damaged = true;
		return false;
	}
	if (event->kind == TRACE_name && !keep_name(reader, event))
		return false;
	if (event->kind == TRACE_lost)
		trace->n_lost += event->lost.n;
	trace->ended |= event->kind == TRACE_end;
	trace->n_rows++;
	return true;
}

/* Makes room for the addresses of a submission. */
static bool make_named_room(struct reader *reader, uint64_t n)
{
	while (n > reader->named_room)
		if (!reader_room(reader, (void **)&reader->named, reader->named_room, &reader->named_room,
				 sizeof(*reader->named)))
			return false;
	return true;
}

static bool read_events(struct reader *reader, const uint8_t *events, size_t bytes, uint32_t thread, uint64_t time)
{
	struct trace_event event;
	size_t at = 0, first = 0;
	uint64_t before = time;

	while (trace_event_read(&reader->shape, events, bytes, &at, &time, reader->named, reader->named_room, &event)) {
		event.thread = thread;
		if (event.kind == TRACE_submit && event.submit.n > reader->named_room) {
			if (!make_named_room(reader, event.submit.n))
				return false;
			/* Read the event again, with enough room. */
			at = first;
			time = before;
			continue;
		}
		if (!keep_event(reader, &event))
			return false;
		first = at;
		before = time;
	}
	if (at == bytes)
		return true;
	reader_problem(reader->trace, "event %zu is not well formed", reader->trace->n_rows);
	reader->trace->damaged = true;
	return false;
}

/*
 * Returns whether this is the last frame. A frame that is longer than the rest of the file was cut when the process
 * ended, or its length is wrong; in the latter case whole frames follow it.
 */
static bool is_last(const uint8_t *at, size_t left)
{
	const uint8_t magic[4] = {'F', 'R', 'A', 'M'}, *end = at + left;

	at++;
	for (unsigned i = 0; i < SEARCHES; i++) {
		at = memmem(at, (size_t)(end - at), magic, sizeof(magic));
		if (!at || end - at < FRAME_HEAD)
			return true;
		size_t bytes = reader_fixed(at + 4, 4);
		if (bytes <= (size_t)(end - at) - FRAME_HEAD &&
		    reader_fixed(at + 8, 4) == trace_check(at + FRAME_HEAD, bytes))
			return false;
		at++;
	}
	return true;
}

/* Reads the frame at this offset of the file. Returns its length in bytes, or 0 if the reading must end here. */
static size_t reader_frame(struct reader *reader, size_t place)
{
	struct trace *trace = reader->trace;
	const uint8_t *at = (const uint8_t *)trace->file + place;
	size_t left = reader->bytes - place;

	if (left < FRAME_HEAD || FRAME_HEAD + reader_fixed(at + 4, 4) > left) {
		trace->cut = left < FRAME_HEAD || (reader_fixed(at, 4) == TRACE_FRAME && is_last(at, left));
		trace->damaged = !trace->cut;
		if (trace->damaged)
			reader_problem(trace, "what is at byte %zu is not a frame", place);
		return 0;
	}
	size_t bytes = reader_fixed(at + 4, 4);
	if (reader_fixed(at, 4) != TRACE_FRAME || reader_fixed(at + 8, 4) != trace_check(at + FRAME_HEAD, bytes)) {
		trace->damaged = true;
		reader_problem(trace, "the frame at byte %zu is not as it was written", place);
		return 0;
	}
	if (!read_events(reader, at + FRAME_HEAD, bytes, (uint32_t)reader_fixed(at + 12, 4), reader_fixed(at + 16, 8)))
		return 0;
	return FRAME_HEAD + bytes;
}

/* ---- the file ---- */

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
		ssize_t n = TEMP_FAILURE_RETRY(read(fd, trace->file + reader->bytes, bytes - reader->bytes));

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
	error = error ?: read_all(reader, fd, (size_t)status.st_size);
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

bool trace_number(const struct trace *trace, const char *key, uint64_t *ret_number)
{
	char room[32], *end;
	const char *value = trace_value(trace, key, room, sizeof(room));

	errno = 0;
	*ret_number = strtoull(value, &end, 10);
	bool known = !errno && !*end && *value >= '0' && *value <= '9';
	*ret_number = known ? *ret_number : 0;
	return known;
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
	/* A number that is too large is of a newer version, too. */
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
	uint64_t version;
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
	if (!trace_number(trace, "version", &version) || version != TRACE_VERSION) {
		explain_version(trace);
		return -EINVAL;
	}
	trace_number(trace, "start", &trace->start);
	trace_number(trace, "clock", &trace->clock);
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

	return ORDER(x->time, y->time) ?: ORDER(x->row, y->row);
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
	int error = read_file(reader, path) ?: read_head(reader);

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
	FREE_ALL(trace->rows, trace->blocks, trace->file, trace->path);
	*trace = (struct trace){0};
}

const char *trace_text(const struct trace *trace, enum trace_list list, uint64_t number)
{
	return list < TRACE_LISTS && number < trace->n_names[list] && trace->names[list][number]
		   ? trace->names[list][number]
		   : "?";
}
