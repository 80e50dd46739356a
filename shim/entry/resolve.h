/*
 * resolve.h: the second and third door: an address the real resolver gave becomes ours if it is a hooked row's.
 */
#ifndef SPILLWAY_RESOLVE_H
#define SPILLWAY_RESOLVE_H

#include "shim/driver/real.h"

/*
 * Called by dlsym.c, with the C library's dlsym, for names that begin "cu" and a capital letter. Everything else must
 * not come here: for RTLD_NEXT the C library looks at who called it. caller: where dlsym returns to.
 */
void *resolve_dlsym(real_dlsym_function *c_dlsym, void *handle, const char *name, const void *caller);

/* Is this exactly the name of a hooked row? */
bool resolve_is_hooked(const char *name);

/* The address to hand out for what the real resolver answered. name: for counting what we do not know. */
void *resolve_substitute(const char *name, void *address);

#endif
