/*
 * trace_internal.h: interfaces between the parts of the trace reader:
 *
 *   trace_read.c    reads the file and its head, and sorts the rows
 *   trace_reader.c  shared helpers: memory, texts, numbers
 *   trace_unpack.c  unpacks a file compressed with gzip
 *   trace_events.c  turns frames into rows
 *   trace_blocks.c  turns rows into blocks with their history
 *   trace_places.c  finds the block at an address at a time
 */
#ifndef TOOLS_TRACE_INTERNAL_H
#define TOOLS_TRACE_INTERNAL_H

#include "tools/common/number_map.h"
#include "tools/trace/trace_read.h"

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

/* Only the first problem is kept. */
__attribute__((format(printf, 2, 3))) void reader_problem(struct trace *trace, const char *format, ...);
/*
 * reader_is_packed() returns whether the file is compressed with gzip; reader_unpack() then replaces it with its
 * contents. Returns 0 or a negative errno.
 */
bool reader_is_packed(const void *file, size_t bytes);
int reader_unpack(struct reader *reader);
/* Makes room for one more element in an array. Returns false, and sets no_memory, if memory runs out. */
bool reader_room(struct reader *reader, void **array, size_t n, size_t *room, size_t each);
/* Returns a little-endian number of the file. */
uint64_t reader_fixed(const uint8_t *at, unsigned bytes);
/*
 * Returns a copy that lives as long as the trace, without characters that move a terminal's cursor; NULL if memory
 * runs out. lines: keep line ends.
 */
char *reader_text(struct trace *trace, const void *text, size_t bytes, bool lines);
/* Reads the frame at this offset of the file. Returns its length in bytes, or 0 if the reading must end here. */
size_t reader_frame(struct reader *reader, size_t place);

/* Returns memory that lives as long as the trace, aligned for any type and never moved; NULL if memory runs out. */
void *trace_memory(struct trace *trace, size_t bytes);
void trace_memory_free(struct trace *trace);

/* Fills in the blocks, and `which` of the rows that refer to them. Returns false if memory runs out. */
bool trace_make_blocks(struct trace *trace);

/* Builds the index of all blocks; their lengths and ends must be known. Returns NULL if memory runs out. */
struct trace_places *trace_places_new(const struct trace_block *blocks, size_t n);
void trace_places_free(struct trace_places *places); /* accepts NULL */
uint32_t trace_places_at(const struct trace_places *places, const struct trace_block *blocks, uint64_t address,
			 uint64_t time);
/* Returns the first address after this one where any block begins or ends, at any time; UINT64_MAX if there is none. */
uint64_t trace_places_next(const struct trace_places *places, uint64_t address);

#endif
