/*
 * python_process.h: the Python interpreter of this process, if it has one, and where in the program the calling thread
 * is. See python_frames.h for what is read and why that is allowed. Any thread may close it at any time.
 *
 * Memory is read by process_vm_readv() of the process itself, so a wrong address is an error and no fault.
 */
#ifndef SPILLWAY_PYTHON_PROCESS_H
#define SPILLWAY_PYTHON_PROCESS_H

#include "shim/base/python_frames.h"

/*
 * Looks for the interpreter among the objects that are loaded. The first call decides; an interpreter that is loaded
 * later is not found, and one that the program closes is not there any more. Locking: the caller must hold no lock: the
 * loader's is taken.
 */
void python_process_bind(void);
/* Returns true if there is one, known or not. */
bool python_process_is_here(void);
/*
 * Names where the calling thread is, as python_frames_find(). Takes neither a lock nor the GIL. Of an interpreter that
 * is not known, or where memory cannot be read, it says so, once.
 */
enum python_found python_process_name(char *room, char *callers);

#endif
