/*
 * library.h: finds libspillway.so.
 */
#ifndef TOOLS_LIBRARY_H
#define TOOLS_LIBRARY_H

#include <stdbool.h>
#include <limits.h>

/* Returns the folder of the tool's file. Returns false, after an error on stderr, if it cannot be found out. */
bool library_tool_folder(char ret_path[PATH_MAX]);

/*
 * Finds the absolute path of the library: `given` if it is set, otherwise the first one found beside the tool, in
 * ../lib, ../lib64 and ../lib/<multiarch>. Returns false if it does not exist or is not usable, after an error on
 * stderr that lists the places searched.
 */
bool library_find(const char *given, char ret_path[PATH_MAX]);

/*
 * Finds the library for LD_AUDIT, which lies beside `library`. Returns false if it does not, after an error on stderr.
 */
bool library_find_audit(const char *library, char ret_path[PATH_MAX]);

/* Returns whether the file is libspillway.so, judged by the symbols that it defines. The file is read, not loaded. */
bool library_is_ours(const char *path);

#endif
