/*
 * python_layout.h: where CPython keeps frames, code objects and texts, for each version that is known: 3.9 to 3.14 on
 * machines with 64 bits, with the GIL. A build without the GIL keeps other fields, and is not known.
 *
 * From 3.13 on the interpreter itself says so, in the table _Py_DebugOffsets at the start of _PyRuntime. The offsets of
 * 3.9 to 3.12 are those of the headers of 3.9.18, 3.10.13, 3.11.7 and 3.12.1; they are part of the ABI of a version.
 *
 * No lock; pure.
 */
#ifndef SPILLWAY_PYTHON_LAYOUT_H
#define SPILLWAY_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a code object says which instruction is of which line (python_lines.h). */
enum python_lines_kind {
	PYTHON_LINES_LNOTAB,    /* 3.9: co_lnotab */
	PYTHON_LINES_LINETABLE, /* 3.10: co_linetable */
	PYTHON_LINES_LOCATIONS, /* from 3.11: co_linetable, with columns */
};

/* An offset that the version does not have. */
#define PYTHON_NONE 0xffff

/* Offsets in bytes. */
struct python_layout {
	enum python_lines_kind lines;
	/* PyThreadState: its innermost frame, or the _PyCFrame that points to it; its thread (pthread_self). */
	uint16_t thread_frame, cframe_frame, thread_id;
	/*
	 * A frame: the next outer one, its code object, what it executes, who owns it. What it executes is a pointer
	 * into the code from 3.11 on, before an int: the index of a byte (3.9) or of a unit of two bytes (3.10).
	 */
	uint16_t frame_back, frame_code, frame_instruction, frame_owner;
	/* PyCodeObject: path, name, first line, table of lines; the instructions (PYTHON_NONE before 3.11). */
	uint16_t code_file, code_name, code_first_line, code_lines, code_instructions;
	/* str: the head of a text that is ASCII only, behind which the characters are, and the head of any other. */
	uint16_t text_ascii_head, text_other_head;
};

/* Fixed in all of these versions: the type of an object; bytes objects; str objects. */
enum {
	PYTHON_TYPE = 8,
	PYTHON_BYTES_SIZE = 16,
	PYTHON_BYTES_HEAD = 32,
	PYTHON_TEXT_LENGTH = 16,
	PYTHON_TEXT_STATE = 32,
};

/* Frames of these owners and above belong to no code of Python (FRAME_OWNED_BY_CSTACK, _INTERPRETER). */
#define PYTHON_OWNER_NONE 3

/* Numbers of 8 bytes at the start of _PyRuntime that python_layout_find() needs. */
#define PYTHON_WORDS 81

/*
 * Returns false if the version is not known. version: as in Py_Version, or with zeroes below the minor number. words:
 * the start of _PyRuntime, used from 3.13 on; NULL if it cannot be read.
 */
bool python_layout_find(uint64_t version, const uint64_t words[PYTHON_WORDS], struct python_layout *ret_layout);

#endif
