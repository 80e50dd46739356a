// SPDX-License-Identifier: Apache-2.0
/*
 * trace_help.h: what the tests of traces share: a program that is run here (run.h) and leaves a file, and what its
 * reader makes of that.
 */
#ifndef PRELOAD_TRACE_HELP_H
#define PRELOAD_TRACE_HELP_H

#include "test/preload/run.h"
#include "test/test.h"
#include "tools/trace/trace_read.h"

extern char trace_folder[32], trace_path[64], trace_setting[96]; /* the file, and the setting by which it is made */
extern struct trace trace;

/* All of main(): in a folder of its own. */
int trace_main(void);
/* After each test. */
int trace_teardown(void **state);
/* A number behind a word that begins a line of the text. */
unsigned long trace_told(const char *text, const char *word);

#endif
