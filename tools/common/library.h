/*
 * library.h: where is libspillway.so?
 */
#ifndef TOOLS_LIBRARY_H
#define TOOLS_LIBRARY_H

#include <stdbool.h>
#include <limits.h>

/*
 * The absolute path of the library: that of given, else the first found beside the tool, in ../lib, ../lib64 and
 * ../lib/<multiarch>. False: it is not there or not usable, which has been said on stderr with the places looked at.
 */
bool library_find(const char *given, char ret_path[PATH_MAX]);

/* The library for LD_AUDIT, which lies beside that one. False: it does not, and that has been said. */
bool library_find_audit(const char *library, char ret_path[PATH_MAX]);

/* Is it libspillway.so, by the names that it defines? It is read, not loaded. */
bool library_is_ours(const char *path);

#endif
