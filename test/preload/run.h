// SPDX-License-Identifier: Apache-2.0
/*
 * run.h: start a program under the preloaded library from a test that is not, and look at what came of it. Nothing of
 * the test's own SPILLWAY_* and SIM_* settings reaches the program; its working directory, HOME and XDG_RUNTIME_DIR are
 * one new empty folder.
 */
#ifndef PRELOAD_RUN_H
#define PRELOAD_RUN_H

#include "test/libc.h"

struct outcome {
	int status; /* exit status, or 128 + the signal that ended it */
	char *out, *err;
	char *
	    files; /* names of what the program left in its folder but for its control socket and figures, one a line */
	unsigned n_figures; /* files of figures that it left (stats_page.h) */
};

/* SPILL_MODE of this test, "static" where there is none; whether memory moves in it. */
const char *run_mode(void);
bool run_moves(void);

/* argv and settings ("A=b", may be NULL) end with NULL. "LD_PRELOAD=" among the settings runs without the library. */
struct outcome run(const char *const argv[], const char *const settings[]);
void run_free(struct outcome *outcome);

/* The same for tests of one program after the other: the outcome of the last one. run_end() is for after each test. */
extern struct outcome ran;
void run_here(const char *const argv[], const char *const settings[]);
int run_end(void **state);

/* So many lines of stderr contain these words. */
struct said {
	size_t n;
	const char *words;
};
/*
 * Fails, and shows what came of it, unless the status is that, stdout that (NULL: anything), no file is left but so
 * many of figures, and stderr says what is listed, which ends with one without words. Then frees the outcome.
 */
void run_says(struct outcome outcome, int status, const char *out, unsigned n_figures, const struct said *said);
#define SAYS(outcome, status, out, n_figures, ...)                                                                     \
	run_says(outcome, status, out, n_figures, (const struct said[]){__VA_ARGS__, {0}})

/* How many lines; how many that contain text. */
size_t run_lines(const char *output);
size_t run_lines_with(const char *output, const char *text);

#define RUN(settings, ...)      run((const char *const[]){__VA_ARGS__, NULL}, settings)
#define RUN_HERE(settings, ...) run_here((const char *const[]){__VA_ARGS__, NULL}, settings)
#define SET(...)                ((const char *const[]){__VA_ARGS__, NULL})

#endif
