/*
 * seconds.h: times of the command line, and waiting. For commands that do something again and again.
 */
#ifndef TOOLS_SECONDS_H
#define TOOLS_SECONDS_H

#include <signal.h>
#include <stdbool.h>

/* "2", "0.5"; 0.1 to 3600. False: it is none. */
bool seconds_read(const char *text, double *ret_seconds);
#define SECONDS_RANGE "give seconds, 0.1 to 3600"

/*
 * Wait until so long after the last call returned, so that rounds keep their pace whatever each costs. Ends at once when
 * *enough is set by a signal.
 */
void seconds_sleep(double seconds, const volatile sig_atomic_t *enough);

#endif
