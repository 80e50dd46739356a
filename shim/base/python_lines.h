/*
 * python_lines.h: which line an instruction of Python is of, by the table of its code object. Pure: the table is read
 * piece by piece through python_memory, and what it says is never believed further than it reaches.
 *
 * No lock.
 */
#ifndef SPILLWAY_PYTHON_LINES_H
#define SPILLWAY_PYTHON_LINES_H

#include "shim/base/python_layout.h"

/* How memory is read. Tests have one of their own. */
struct python_memory {
	/* Reads up to `bytes` bytes. Returns how many could be read from the start on; 0: none. Must not fault. */
	size_t (*read)(void *context, uint64_t address, void *room, size_t bytes);
	void *context;
};

/* Of a longer table only the beginning is read. A table has about 3 bytes for each expression of the function. */
#define PYTHON_LINES_MOST (256u << 10)

/*
 * Returns the line of the instruction at this offset, in bytes, or 0 if it has none, or if the table does not reach so
 * far. table, bytes: address and size of the table. first: line of the code object (co_firstlineno).
 */
unsigned python_lines_find(const struct python_memory *memory, enum python_lines_kind kind, uint64_t table,
			   size_t bytes, unsigned first, uint64_t offset);

#endif
