/*
 * python_frames.h: names the place in a Python program that its own thread is at: "train.py:57 in forward". Reads the
 * frames of a thread without the GIL and without a reference.
 *
 * That is correct for the thread that calls, and for no other: while it is inside a function of C, no thread changes
 * its frames, and they keep their code objects alive, with or without the GIL. Nothing of Python is called.
 * Every read goes through python_memory, which must not fault; lengths and depth are limited, and each object must have
 * the type that is expected there. What is not as expected ends the search.
 *
 * No lock; pure.
 */
#ifndef SPILLWAY_PYTHON_FRAMES_H
#define SPILLWAY_PYTHON_FRAMES_H

#include "shim/base/python_lines.h"

/* An interpreter: its layout, how to read it, and the addresses of its types of code, str and bytes objects. */
struct python {
	struct python_layout layout;
	struct python_memory memory;
	uint64_t code_type, text_type, bytes_type;
};

enum python_found {
	PYTHON_NO_FRAMES, /* the thread runs no Python, or its frames cannot be read */
	PYTHON_NOT_NAMED, /* all frames that were read are of the standard library or of a framework */
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
 * callers: NULL, or PYTHON_CALLERS bytes for the names of the next frames of the user's files, from the inside out: what
 * called it; "" if there is none. Where they are not all there, PYTHON_FURTHER is the last.
 *
 * thread: PyThreadState of the calling thread; self: its pthread_self(). A thread state of another thread has no
 * frames. 0 is no thread state.
 */
enum python_found python_frames_find(const struct python *python, uint64_t thread, uint64_t self, char *room,
				     char *callers);

#endif
