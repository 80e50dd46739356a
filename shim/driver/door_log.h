/*
 * door_log.h: logs which objects obtained the driver's functions, and how, for `spillway doctor -- PROGRAM`, which
 * names a file in SPILLWAY_DOORS. Without that variable a lookup of a name only checks a flag. Calls of functions are
 * not affected.
 *
 * The file must exist and be a regular one; every process that has loaded the library appends lines, each with one
 * write(2). Fields are separated by tabs:
 *
 *   PID start EXECUTABLE                             the library was loaded
 *   PID look DOOR RESULT NAME OBJECT                 OBJECT asked for NAME by DOOR: "dlsym" or "cuGetProcAddress"
 *   PID object OURS PAST UNBOUND ELSEWHERE DLSYM RUNTIME OBJECT   of each loaded object, at the first request and exit
 *   PID mapped PATH                                  then, too: code of a library that is in a namespace of its own
 *   PID end                                          the process has ended by exit()
 *
 * RESULT is "ours", "driver" (we do not hook it), "copy" (of a second libcuda), "none" (there is no such function) or
 * "other". OURS .. ELSEWHERE count
 * the driver's functions that the object was linked to and that we hook: those that lead to us, past us to a driver,
 * nowhere yet, and to some other library. DLSYM is "ours", "past", or "-" where the object has no dlsym; RUNTIME is
 * the libcudart that it calls, or "-".
 */
#ifndef SPILLWAY_DOOR_LOG_H
#define SPILLWAY_DOOR_LOG_H

#include <stdbool.h>

enum door { DOOR_DLSYM, DOOR_PROC };

/* Returns true if the log is requested. Reads the environment once. */
bool door_log_wanted(void);

/* Records that `caller` looked up `name` and got `address`. Only if door_log_wanted(). Preserves errno. */
void door_log_note(enum door door, const char *name, const void *address, const void *caller);

/* Called when the library is loaded, when it is first used, and when the process ends. */
void door_log_begin(void);
void door_log_scan(void);
void door_log_end(void);

#endif
