/*
 * caller_name.h: names the object that contains a code address of the program. Locking: queries the loader, whose lock
 * is taken by glibc before 2.35; the caller must hold no lock that can be taken under the loader's.
 */
#ifndef SPILLWAY_CALLER_NAME_H
#define SPILLWAY_CALLER_NAME_H

#include <stddef.h>

/*
 * Looks up what glibc offers. May be called repeatedly. Locking: the caller must hold no lock: the loader's may be
 * needed.
 */
void caller_name_bind(void);
/* Returns the path of the object that contains the address, or NULL. The text is valid while that object is loaded. */
const char *caller_name_library(const void *address);
/* Returns where that object is mapped, which no other one has while it is loaded, or NULL. */
const void *caller_name_object(const void *address);
/*
 * Writes "libtorch_cuda.so+0x1234" to room, or "libmodel.so:load_weights+0x1c" if the object exports the function that
 * contains the address, or "" if the object is not known. Returns room. May take 1 ms.
 */
char *caller_name_text(const void *address, char *room, size_t bytes);

#endif
