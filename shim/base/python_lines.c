/*
 * The tables of lines of CPython 3.9 to 3.14. See python_lines.h.
 */
#include "shim/base/python_lines.h"

/* A table that is read forward, a piece at a time. */
struct reader {
	const struct python_memory *memory;
	uint64_t at; /* of the next piece */
	size_t left; /* bytes behind the piece */
	size_t n, next;
	unsigned char piece[256];
};

/* Returns the next byte without taking it, or -1 at the end. */
static int peek(struct reader *reader)
{
	if (reader->next == reader->n) {
		size_t want = reader->left < sizeof(reader->piece) ? reader->left : sizeof(reader->piece);

		if (!want)
			return -1;
		size_t n = reader->memory->read(reader->memory->context, reader->at, reader->piece, want);
		reader->at += n;
		reader->left = n ? reader->left - n : 0;
		reader->n = n;
		reader->next = 0;
		if (!n)
			return -1;
	}
	return reader->piece[reader->next];
}

static int take(struct reader *reader)
{
	int byte = peek(reader);

	if (byte >= 0)
		reader->next++;
	return byte;
}

/* The result, which is a line only if it can be one. */
static unsigned line_of(int64_t line)
{
	return line > 0 && line <= INT32_MAX ? (unsigned)line : 0;
}

/* 3.9: pairs of (bytes of instructions, lines); the line counts from the end of the bytes on. */
static unsigned lnotab(struct reader *reader, int64_t line, uint64_t offset)
{
	uint64_t at = 0;

	for (;;) {
		int bytes = take(reader), lines = take(reader);

		if (lines < 0 || at + (unsigned)bytes > offset)
			return line_of(line);
		at += (unsigned)bytes;
		line += (int8_t)lines;
	}
}

/* 3.10: pairs of (bytes of instructions, lines); the line is that of these bytes. -128: they have none. */
static unsigned linetable(struct reader *reader, int64_t line, uint64_t offset)
{
	uint64_t at = 0;

	for (;;) {
		int bytes = take(reader), lines = take(reader);

		if (lines < 0)
			return 0;
		at += (unsigned)bytes;
		if ((int8_t)lines != -128)
			line += (int8_t)lines;
		if (at > offset)
			return (int8_t)lines == -128 ? 0 : line_of(line);
	}
}

/* A number of 6 bits a byte, the lowest first; bit 6 says that another byte follows. */
static int64_t variable(struct reader *reader)
{
	uint64_t value = 0;
	unsigned shift = 0;
	int byte;

	do {
		byte = take(reader);
		if (byte < 0)
			return 0;
		if (shift < 36)
			value |= (uint64_t)(byte & 63) << shift;
		shift += 6;
	} while (byte & 64);
	/* The lowest bit is the sign. */
	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/*
 * From 3.11: entries of a first byte with bit 7 set (kind, and number of units of two bytes less 1) and bytes without
 * it, of which only the first number, of some kinds, is about lines.
 */
static unsigned locations(struct reader *reader, int64_t line, uint64_t offset)
{
	enum { ONE_LINE = 10, NO_COLUMNS = 13, LONG, NONE };
	uint64_t at = 0;

	for (;;) {
		int head = take(reader);

		if (head < 0x80)
			return 0; /* the end, or no table of this kind */
		unsigned kind = (unsigned)head >> 3 & 15;
		if (kind >= ONE_LINE && kind < NO_COLUMNS)
			line += kind - ONE_LINE;
		else if (kind == NO_COLUMNS || kind == LONG)
			line += variable(reader);
		at += 2 * (((unsigned)head & 7) + 1);
		if (at > offset)
			return kind == NONE ? 0 : line_of(line);
		for (int byte = peek(reader); byte >= 0 && byte < 0x80; byte = peek(reader))
			take(reader);
	}
}

unsigned python_lines_find(const struct python_memory *memory, enum python_lines_kind kind, uint64_t table,
			   size_t bytes, unsigned first, uint64_t offset)
{
	struct reader reader = {
	    .memory = memory, .at = table, .left = bytes < PYTHON_LINES_MOST ? bytes : PYTHON_LINES_MOST};

	switch (kind) {
	case PYTHON_LINES_LNOTAB:
		return lnotab(&reader, first, offset);
	case PYTHON_LINES_LINETABLE:
		return linetable(&reader, first, offset);
	default:
		return locations(&reader, first, offset);
	}
}
