/*
 * real.h: the real driver functions, the only way out to the driver, and the seam that tests replace.
 *
 * REAL(cuMemCreate)(...) calls the driver's own function. Each slot starts as a stub that binds on its first call, so
 * that callers never test for NULL; what the driver does not have answers CUDA_ERROR_NOT_FOUND. Slots are only ever
 * written with the same value (idempotent atomic stores), so binding needs no lock: it may run inside the driver's own
 * constructor, under the loader's lock, on two threads at once (docs/facts.md, Reaching the driver).
 */
#ifndef SPILLWAY_REAL_H
#define SPILLWAY_REAL_H

#include <cuda.h>
#include <stdbool.h>

/* Hooked rows first, in the order of hooks.def; the rows we only use follow. */
enum hook_id {
#define HOOK(name, params, args) HOOK_##name,
#include "shim/driver/hooks.def"
	HOOK_COUNT,
	HOOK_LAST_HOOKED = HOOK_COUNT - 1,
#define HOOK_USE(name, params, args) HOOK_##name,
#include "shim/driver/hooks.def"
	REAL_COUNT, /* must be last */
};

struct real {
#define HOOK(name, params, args) CUresult(CUDAAPI *name) params;
#include "shim/driver/hooks.def"
#define HOOK_USE(name, params, args) CUresult(CUDAAPI *name) params;
#include "shim/driver/hooks.def"
};

extern struct real real;

#define REAL(name) __atomic_load_n(&real.name, __ATOMIC_RELAXED)

/* The C library's own dlsym, found past ours; NULL when the C library is not one we know. */
typedef void *real_dlsym_function(void *handle, const char *name);
real_dlsym_function *real_dlsym(void);

/*
 * Fill the table from the libcuda.so.1 this process has already loaded; never loads one. False when there is none yet.
 * Keeps a reference, so that a dlclose by the program cannot unload what we point to.
 */
bool real_bind(void);

/* The driver's name of a result, for messages. */
const char *real_error_name(CUresult result);

/* Does the driver have this function? Binds if need be. */
bool real_has(enum hook_id id);

/* The real function of a row; NULL when the driver does not have it. */
void *real_address(enum hook_id id);

/* Which hooked row's real function is this? -1: none. */
int real_find(const void *address);
/* Is this one of the functions exempt.def names? */
bool real_is_exempt(const void *address);

/* Does this address lie in the driver's library? Asks the loader. */
bool real_in_driver(const void *address);

/* The name of a row, "?" for anything else. */
const char *real_name(int id);
/* Is this a name, or the base of one (no _v2, _ptsz ...), of a hooked row? For messages; walks the list. */
bool real_knows_name(const char *name);

#endif
