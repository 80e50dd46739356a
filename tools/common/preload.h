/*
 * preload.h: the LD_PRELOAD of the program to start.
 */
#ifndef TOOLS_PRELOAD_H
#define TOOLS_PRELOAD_H

/*
 * The library first, then what existing (may be NULL) holds, ':' between, without the entries that are the library again.
 * The caller frees the result; NULL: no memory.
 */
char *preload_join(const char *library, const char *existing);

#endif
