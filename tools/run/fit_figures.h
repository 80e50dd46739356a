/*
 * fit_figures.h: the figures of the processes of one run, while it lasts and afterwards.
 *
 * A process that ends well removes its figures, so the library is asked to leave a copy (SPILLWAY_FIGURES, stats_file.c)
 * in a folder that only this user may enter. One that was killed leaves them where they were.
 */
#ifndef TOOLS_FIT_FIGURES_H
#define TOOLS_FIT_FIGURES_H

#include "policy/policy.h"
#include "tools/common/page.h"
#include "tools/run/fit_policy.h"

/* The program that was started: the process, and when it started, in ticks (/proc/PID/stat). */
struct fit_program {
	pid_t pid;
	uint64_t started;
};

/* Makes the folder, of mode 0700, and names it to the processes that this one starts. Returns false if it cannot. */
bool fit_folder_make(char ret_path[64]);
void fit_folder_remove(const char *path);

/* Adds up what the running processes of the run have: the program and what descends from it. */
struct fit_moment fit_figures_now(const struct fit_program *program);

/* What is left of a run that has ended. */
struct fit_rest {
	struct page
	    *page;    /* of the process that lost most; NULL: none used CUDA memory. The caller must page_free() it */
	uint64_t now; /* the end of that process, CLOCK_MONOTONIC */
	unsigned n;   /* processes */
};
/*
 * path: the folder; "": there is none. If the program was killed, it has not printed its summary: that is done here,
 * unless report is POLICY_REPORT_NONE.
 */
struct fit_rest fit_figures_rest(const char *path, const struct fit_program *program, enum policy_report report);

#endif
