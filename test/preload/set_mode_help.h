/*
 * set_mode_help.h: what the tests of `spillway set` and spill.mode share: the tool as from another terminal, and what
 * it shows of this process.
 */
#ifndef PRELOAD_SET_MODE_HELP_H
#define PRELOAD_SET_MODE_HELP_H

#include "test/preload/suspend_help.h"

#define SAYS_ROOM 65536

/* All that a command says. Returns its exit status. */
int says(const char *command, char text[SAYS_ROOM]);
/* As tool_says(), of `spillway set [this process] SETTING`. */
bool set_says(const char *setting, int status, const char *words);
/* Is that the mode in which `spillway top` shows this process? And a number that it shows. */
bool shows_mode(const char *mode);
unsigned long shown_number(const char *name);

#endif
