/*
 * caller_name.h: what lies at an address of the program's code. Asks the loader, so under no lock that the loader's may be
 * taken before; where glibc can (2.35), without taking that.
 */
#ifndef SPILLWAY_CALLER_NAME_H
#define SPILLWAY_CALLER_NAME_H

#include <stddef.h>

/* Find out what glibc can. Under no lock: the loader's may be needed. Any number of times. */
void caller_name_bind(void);
/* Path of the object that has the address; NULL: not known. Lasts as long as that object is loaded. */
const char *caller_name_library(const void *address);
/* "libtorch_cuda.so+0x1234" into room; "" where it is not known. */
char *caller_name_text(const void *address, char *room, size_t bytes);

#endif
