/*
 * trace_internal.h: the parts of the trace reader:
 *
 *   trace_read.c    the file, its head, and the order of its rows
 *   trace_reader.c  what the others share: memory, texts, numbers
 *   trace_unpack.c  the file, where it is gzipped
 *   trace_events.c  its frames become rows
 *   trace_blocks.c  rows become blocks, and what happened to each
 *   trace_places.c  which block was at an address at a time
 */
#ifndef TOOLS_TRACE_INTERNAL_H
#define TOOLS_TRACE_INTERNAL_H

#include "tools/trace/trace_read.h"

/* A submit of the file: which of the different ones it is. */
struct submit {
	uint64_t function, device, n;
	const struct trace_named *named;
	uint32_t which;
};

/* While it is read. */
struct reader {
	struct trace *trace;
	size_t bytes; /* of the file */
	struct trace_shape shape;
	size_t rows_room;
	size_t names_room[TRACE_LISTS];
	struct submit *submits; /* of the file, by number */
	size_t n_submits, submits_room;
	uint32_t *table; /* of the different ones: number + 1 in submits; a power of two */
	size_t table_room;
	struct trace_named *named; /* scratch */
	size_t named_room;
	bool no_memory;
};

/* The first problem is the one that is kept. */
__attribute__((format(printf, 2, 3))) void reader_problem(struct trace *trace, const char *format, ...);
/* Is the file gzipped? Then it becomes what it unpacks to. 0 or a negative errno. */
bool reader_is_packed(const void *file, size_t bytes);
int reader_unpack(struct reader *reader);
/* Room for one more in an array. False: no memory, and the reader knows it. */
bool reader_room(struct reader *reader, void **array, size_t n, size_t *room, size_t each);
/* A number of the file, little-endian. */
uint64_t reader_fixed(const uint8_t *at, unsigned bytes);
/* A copy that goes with the trace, without what would move people's cursor. NULL: no memory. */
char *reader_text(struct trace *trace, const void *text, size_t bytes, bool lines);
/* The frame at this place of the file. Bytes of it, or 0: the reading ends here. */
size_t reader_frame(struct reader *reader, size_t place);

/* Memory that goes with the trace; NULL: there is none. Never moved, aligned for anything. */
void *trace_memory(struct trace *trace, size_t bytes);
void trace_memory_free(struct trace *trace);

/* Fill in blocks, and `which` of the rows that have to do with them. False: no memory. */
bool trace_make_blocks(struct trace *trace);

/* Over all blocks, once their lengths and ends are known. NULL: no memory. */
struct trace_places *trace_places_new(const struct trace_block *blocks, size_t n);
void trace_places_free(struct trace_places *places); /* accepts NULL */
uint32_t trace_places_at(const struct trace_places *places, const struct trace_block *blocks, uint64_t address,
			 uint64_t time);
/* The first address behind this one where some block begins or ends, at any time; UINT64_MAX: there is none. */
uint64_t trace_places_next(const struct trace_places *places, uint64_t address);

#endif
