/*
 * preload.h: builds the LD_PRELOAD of a program to start.
 */
#ifndef TOOLS_PRELOAD_H
#define TOOLS_PRELOAD_H

/*
 * Joins with ':' the library and the entries of `existing` (may be NULL) that are not the same library. Returns NULL
 * if memory runs out; the caller must free the result.
 */
char *preload_join(const char *library, const char *existing);

#endif
