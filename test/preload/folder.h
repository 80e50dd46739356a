// SPDX-License-Identifier: Apache-2.0
/*
 * folder.h: a folder of the test's own, where its child processes (child.h) have what the library keeps of a user:
 * figures, sockets, and what several processes share.
 */
#ifndef PRELOAD_FOLDER_H
#define PRELOAD_FOLDER_H

extern char folder[64];
extern char runtime[96]; /* the setting by which children find it */

/* Before and after each test. Nothing but the library's files may be left in it. */
int folder_make(void **state);
int folder_remove(void **state);

/* For a whole group of tests: children find it in the environment that they inherit. With folder_remove() behind it. */
int folder_make_for_all(void **state);

/* How many of the library's files have this in their name; ret_path, if not NULL: the last one of them. */
unsigned folder_files(const char *part, char ret_path[256]);
/* Remove them all, with the library's folder. */
void folder_clear(void);

#endif
