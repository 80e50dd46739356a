// SPDX-License-Identifier: Apache-2.0
/*
 * real.h: the real driver functions, the only way out to the driver, and the seam that tests replace.
 *
 * REAL(cuMemCreate)(...) calls the driver's own function. Each slot starts as a stub that binds on its first call, so
 * that callers never test for NULL; a function that the driver lacks returns CUDA_ERROR_NOT_FOUND. Slots are only ever
 * written with the same value (idempotent atomic stores), so binding needs no lock: it may run inside the driver's own
 * constructor, under the loader's lock, on two threads at once (docs/facts.md, Reaching the driver).
 */
#ifndef SPILLWAY_REAL_H
#define SPILLWAY_REAL_H

#include "shim/driver/newer.h"

#include <stdbool.h>

/* Hooked rows first, in the order of hooks.def; the rows that the library only calls follow. */
enum hook_id {
#define HOOK_NAME(name) HOOK_##name,
#include "shim/driver/hooks.def"
	HOOK_COUNT,
	HOOK_LAST_HOOKED = HOOK_COUNT - 1,
#define USE_NAME(name) HOOK_##name,
#include "shim/driver/hooks.def"
	REAL_COUNT, /* must be last */
};

struct real {
#define HOOK_NAME(name) __typeof__(name) *name;
#define USE_NAME(name)  __typeof__(name) *name;
#include "shim/driver/hooks.def"
};

extern struct real real;

#define REAL(name) __atomic_load_n(&real.name, __ATOMIC_RELAXED)

/* Returns the C library's dlsym, behind the library's own, or NULL if the C library is unknown. */
typedef void *real_dlsym_function(void *handle, const char *name);
real_dlsym_function *real_dlsym(void);

/*
 * Fills the table from the libcuda.so.1 that the process has loaded; never loads one. Returns false if none is loaded
 * yet. Keeps a reference, so that a dlclose by the program cannot unload the functions.
 */
bool real_bind(void);

/* Returns the driver's name of a result, for messages. */
const char *real_error_name(CUresult result);

/* Returns true if the driver has this function. Binds if necessary. */
bool real_has(enum hook_id id);

/* Returns the real function of a row, or NULL if the driver does not have it. */
void *real_address(enum hook_id id);

/* Returns the hooked row whose real function has this address, or -1. */
int real_find(const void *address);
/* Returns true if the address is that of a function that is exempt, or that only the library calls (USE). */
bool real_is_exempt(const void *address);

/* Returns true if the address is in the driver's library. Queries the loader. */
bool real_in_driver(const void *address);

/* Returns true if the name is exactly that of a hooked row. */
bool real_is_hooked(const char *name);
/* Returns the name of a row, or "?" for any other number. */
const char *real_name(int id);
/* Returns true for the name of a hooked row, or its base (no _v2, _ptsz ...). For messages; walks the list. */
bool real_knows_name(const char *name);

/* ---- who got hold of the driver's functions ---- */

/*
 * Logs which objects obtained the driver's functions, and how, for `spillway doctor -- PROGRAM`, which
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
 * "other". OURS .. ELSEWHERE count the driver's functions that the object was linked to and that we hook: those that
 * lead to us, past us to a driver, nowhere yet, and to some other library. DLSYM is "ours", "past", or "-" where the
 * object has no dlsym; RUNTIME is the libcudart that it calls, or "-".
 */

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
