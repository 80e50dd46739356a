/*
 * resolve.h: dlsym and cuGetProcAddress, the second and third way that calls reach the library: if the real resolver
 * returns the address of a hooked row, the program gets our body instead.
 */
#ifndef SPILLWAY_RESOLVE_H
#define SPILLWAY_RESOLVE_H

#include "shim/driver/real.h"

/*
 * Looks up a driver name for dlsym.c, by the C library's dlsym. The name must begin with "cu" and a capital letter.
 * dlsym.c must pass every other name on itself, because for RTLD_NEXT the C library looks at the caller's return
 * address. caller: where dlsym returns to, for the log of lookups.
 */
void *resolve_dlsym(real_dlsym_function *c_dlsym, void *handle, const char *name, const void *caller);

/* Returns true if the name is exactly that of a hooked row. */
bool resolve_is_hooked(const char *name);

/*
 * Returns the address to hand out for what the real resolver returned. name: for counting names that the list
 * does not have.
 */
void *resolve_substitute(const char *name, void *address);

#endif
