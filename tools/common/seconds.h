/*
 * seconds.h: reads times of the command line and waits between rounds, for commands that repeat something.
 */
#ifndef TOOLS_SECONDS_H
#define TOOLS_SECONDS_H

#include <signal.h>
#include <stdbool.h>

/* Reads a time from 0.1 to 3600 seconds, such as "2" or "0.5". Returns false if the text is none. */
bool seconds_read(const char *text, double *ret_seconds);
#define SECONDS_RANGE "give seconds, 0.1 to 3600"

/*
 * Waits until `seconds` after the end of the last call, so that rounds keep their pace whatever each takes. Returns at
 * once when a signal handler sets *enough.
 */
void seconds_sleep(double seconds, const volatile sig_atomic_t *enough);

#endif
