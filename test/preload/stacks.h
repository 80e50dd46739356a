// SPDX-License-Identifier: Apache-2.0
/*
 * stacks.h: what the threads of a program did when its alarm ended it.
 */
#ifndef PRELOAD_STACKS_H
#define PRELOAD_STACKS_H

/*
 * From now on SIGALRM writes the stacks of all threads to stderr before it ends the process, as it would without this.
 * A frame reads file(+offset): addr2line -f -e file offset gives the line. Does nothing under the thread sanitizer.
 */
void stacks_on_alarm(void);

#endif
