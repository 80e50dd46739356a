// SPDX-License-Identifier: Apache-2.0
/*
 * python.h: names the place in a Python program that its own thread is at: "train.py:57 in forward". Reads the
 * frames of a thread without the GIL and without a reference.
 *
 * That is correct for the thread that calls, and for no other: while it is inside a function of C, no thread changes
 * its frames, and they keep their code objects alive, with or without the GIL. Nothing of Python is called.
 * Every read goes through python_memory, which must not fault; lengths and depth are limited, and each object must have
 * the type that is expected there. What is not as expected ends the search.
 *
 * No lock. All but the last part, the interpreter of this process, is pure.
 */
#ifndef SPILLWAY_PYTHON_H
#define SPILLWAY_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- where CPython keeps what is read ---- */

/*
 * Frames, code objects and texts, for each version that is known: 3.9 to 3.14 on machines with 64 bits, with the GIL. A
 * build without the GIL keeps other fields, and is not known.
 *
 * From 3.13 on the interpreter itself says so, in the table _Py_DebugOffsets at the start of _PyRuntime. The offsets of
 * 3.9 to 3.12 are those of the headers of 3.9.18, 3.10.13, 3.11.7 and 3.12.1; they are part of the ABI of a version.
 */

/* How a code object says which instruction is of which line (python_lines_find()). */
enum python_lines_kind {
	PYTHON_LINES_LNOTAB,    /* 3.9: co_lnotab */
	PYTHON_LINES_LINETABLE, /* 3.10: co_linetable */
	PYTHON_LINES_LOCATIONS, /* from 3.11: co_linetable, with columns */
};

/* An offset that the version does not have. */
#define PYTHON_NONE 0xffff

#define PYTHON_OFFSETS 14

/* Offsets in bytes. */
struct python_layout {
	enum python_lines_kind lines;
	union {
		struct {
			/* PyThreadState: its innermost frame, or the _PyCFrame that points to it; pthread_self(). */
			uint16_t thread_frame, cframe_frame, thread_id;
			/*
			 * A frame: the next outer one, its code object, what it executes, who owns it. What it executes
			 * is a pointer into the code from 3.11 on, before an int: the index of a byte (3.9) or of a
			 * unit of two bytes (3.10).
			 */
			uint16_t frame_back, frame_code, frame_instruction, frame_owner;
			/* PyCodeObject: path, name, first line, table of lines; instructions (none before 3.11). */
			uint16_t code_file, code_name, code_first_line, code_lines, code_instructions;
			/* str: the head before the characters of a text that is ASCII only, and of any other. */
			uint16_t text_ascii_head, text_other_head;
		};
		uint16_t offset[PYTHON_OFFSETS]; /* all of them, in this order */
	};
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

/* ---- lines of a code object ---- */

/*
 * The table is read piece by piece through python_memory, and what it says is never believed further than it reaches.
 */

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

/* ---- frames ---- */

/* An interpreter: its layout, how to read it, and the addresses of its types of code, str and bytes objects. */
struct python {
	struct python_layout layout;
	struct python_memory memory;
	uint64_t code_type, text_type, bytes_type;
};

enum python_found {
	PYTHON_NO_FRAMES,  /* the thread runs no Python, or its frames cannot be read */
	PYTHON_NOT_NAMED,  /* all frames that were read are of the standard library or of a framework */
	PYTHON_OF_PACKAGE, /* named, by the innermost frame of an installed package, no framework, or "<string>" */
	PYTHON_OF_USER,    /* named, by the innermost frame of a file that is not installed */
};

/* Room for a name. Of longer ones the end is cut off. */
#define PYTHON_NAME 160

/* What stands between the names of callers, their number at most, and room for them. */
#define PYTHON_CALLED_BY    " < "
#define PYTHON_CALLERS_MOST 7
#define PYTHON_CALLERS      ((PYTHON_CALLERS_MOST + 1) * (PYTHON_NAME + sizeof(PYTHON_CALLED_BY)))
#define PYTHON_FURTHER      "..." /* in place of those that are not known: more than that many, or not readable */

/*
 * Writes the name of the innermost frame of the user's own files to room (PYTHON_NAME bytes), or "". A file is not the
 * user's if it is in site-packages or dist-packages, in the standard library, or made by torch.compile(), or if it is
 * no file at all ("<frozen runpy>"), except what was typed ("<stdin>", "<ipython-...>").
 *
 * callers: NULL, or PYTHON_CALLERS bytes for the names of the next frames of the user's files, from the inside out:
 * what called it; "" if there is none. Where they are not all there, PYTHON_FURTHER is the last.
 *
 * thread: PyThreadState of the calling thread; self: its pthread_self(). A thread state of another thread has no
 * frames. 0 is no thread state.
 */
enum python_found python_frames_find(const struct python *python, uint64_t thread, uint64_t self, char *room,
				     char *callers);

/* ---- the interpreter of this process ---- */

/*
 * The Python interpreter of this process, if it has one, and where in the program the calling thread is. Any thread may
 * close the interpreter at any time. Memory is read by process_vm_readv() of the process itself, so a wrong address is
 * an error and no fault.
 */

/*
 * Looks for the interpreter among the objects that are loaded. The first call decides; an interpreter that is loaded
 * later is not found, and one that the program closes is not there any more. Locking: the caller must hold no lock: the
 * loader's is taken.
 */
void python_process_bind(void);
/* Reads memory of this process, as python_memory does; context is not used. */
size_t python_read_own(void *context, uint64_t address, void *room, size_t bytes);
/* Returns true if there is one, known or not. */
bool python_process_is_here(void);
/*
 * Names where the calling thread is, as python_frames_find(). Takes neither a lock nor the GIL. Of an interpreter that
 * is not known, or where memory cannot be read, it says so, once.
 */
enum python_found python_process_name(char *room, char *callers);

#endif
