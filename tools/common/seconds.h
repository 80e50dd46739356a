// SPDX-License-Identifier: Apache-2.0
/*
 * seconds.h: reads times of the command line and waits between rounds, for commands that repeat something.
 */
#ifndef TOOLS_SECONDS_H
#define TOOLS_SECONDS_H

#include <stdbool.h>

/* Reads a time from 0.1 to 3600 seconds, such as "2" or "0.5". Returns false if the text is none. */
bool seconds_read(const char *text, double *ret_seconds);
#define SECONDS_RANGE "give seconds, 0.1 to 3600"

/* From now on the signal no longer ends the tool, but its rounds: seconds_enough() returns true once it has come. */
void seconds_end_by(int signal);
bool seconds_enough(void);

/*
 * Waits until `seconds` after the end of the last call, so that rounds keep their pace whatever each takes. Returns at
 * once when a signal ends the rounds.
 */
void seconds_sleep(double seconds);
/* CLOCK_MONOTONIC. */
double seconds_now(void);

#endif
