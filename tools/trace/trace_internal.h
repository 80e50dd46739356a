/*
 * trace_internal.h: interfaces between the parts of the trace reader:
 *
 *   trace_read.c    reads the file, turns its frames into rows, and sorts these
 *   trace_blocks.c  turns rows into blocks with their history; finds the block at an address at a time
 */
#ifndef TOOLS_TRACE_INTERNAL_H
#define TOOLS_TRACE_INTERNAL_H

#include "tools/trace/trace_read.h"

/* Returns memory that lives as long as the trace, aligned for any type and never moved; NULL if memory runs out. */
void *trace_memory(struct trace *trace, size_t bytes);
void trace_memory_free(struct trace *trace);

/* Fills in the blocks, and `which` of the rows that refer to them. Returns false if memory runs out. */
bool trace_make_blocks(struct trace *trace);

void trace_places_free(struct trace_places *places); /* accepts NULL */

#endif
