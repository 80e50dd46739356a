/*
 * Helpers of the trace reader: memory that lives as long as the trace, texts and numbers.
 */
#include "tools/trace/trace_internal.h"
#include "tools/common/grow.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_BLOCK = 1 << 20 };

struct trace_memory {
	struct trace_memory *next;
	size_t used, room;
	/* followed by `room` bytes */
};

void reader_problem(struct trace *trace, const char *format, ...)
{
	va_list arguments;

	if (trace->problem[0])
		return;
	va_start(arguments, format);
	vsnprintf(trace->problem, sizeof(trace->problem), format, arguments);
	va_end(arguments);
}

void *trace_memory(struct trace *trace, size_t bytes)
{
	struct trace_memory *memory = trace->memory;

	if (bytes > SIZE_MAX / 2)
		return NULL;
	bytes = (bytes + 15) & ~(size_t)15;
	if (!memory || memory->room - memory->used < bytes) {
		size_t room = bytes > MEMORY_BLOCK ? bytes : MEMORY_BLOCK;

		memory = malloc(sizeof(*memory) + 16 + room);
		if (!memory)
			return NULL;
		*memory = (struct trace_memory){trace->memory, 0, room};
		trace->memory = memory;
	}
	uint8_t *first = (uint8_t *)(memory + 1);
	first += -(uintptr_t)first & 15;
	memory->used += bytes;
	return first + memory->used - bytes;
}

bool reader_room(struct reader *reader, void **array, size_t n, size_t *room, size_t each)
{
	bool done = grow(array, n, room, each);

	reader->no_memory |= !done;
	return done;
}

uint64_t reader_fixed(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << 8 * i;
	return value;
}

char *reader_text(struct trace *trace, const void *text, size_t bytes, bool lines)
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

void trace_memory_free(struct trace *trace)
{
	for (struct trace_memory *memory = trace->memory, *next; memory; memory = next) {
		next = memory->next;
		free(memory);
	}
}
