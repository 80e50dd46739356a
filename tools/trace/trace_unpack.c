/*
 * Unpacks a trace that was compressed with gzip, in one stream or several consecutive ones. It is unpacked in memory,
 * and its contents are not trusted: if the first bytes are no trace, unpacking stops, and it never exceeds
 * UNPACKED_MOST, which a job takes months to write.
 */
#include "tools/trace/trace_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

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

bool reader_is_packed(const void *file, size_t bytes)
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

int reader_unpack(struct reader *reader)
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
