/*
 * watcher.h: prints the summary of a program that ended without printing it: by a signal, or by _exit(). And names a
 * process of it that was seen with CUDA and without the library.
 *
 * The library installs no signal handler: a program must not see one that it did not install, and a handler may do next
 * to nothing. But the figures lie in a file that outlives the process (stats_page.h), so a process outside can print
 * them. `spillway run` starts it before the program takes its place.
 */
#ifndef TOOLS_WATCHER_H
#define TOOLS_WATCHER_H

#include "shim/stats/stats_page.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * Starts a process that waits until this one, whatever program it has become by then, has ended. If that has used CUDA
 * memory and left its figures, the process prints the summary to standard error; full: with all figures. It is no child
 * of this process, is in a session of its own, and of its files it keeps standard error only. Nothing is started where
 * the program would become its parent (process 1, a subreaper), or where the kernel cannot wait for a process that is no
 * child (before Linux 5.3).
 */
void watcher_start(bool full);

/* Prints the summary of a process that has ended without printing it, if it has left figures. */
void watcher_print_left(pid_t pid);

/* Prints the summary of a process with these figures to standard error; waits for a slow reader, but not for long. */
void watcher_print(const struct stats_page *page, uint64_t now, bool full);

#endif
