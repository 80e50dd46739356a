/*
 * progress.h: one line on stderr that says how far long work has come; only where stderr is a terminal, and only when it
 * takes longer than a moment. Gone when the work is done.
 */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include <stdint.h>

/* what: "measuring the link". total 0: it is not known how much there is. One at a time. */
void progress_begin(const char *what, uint64_t total);
/* As often as one likes: it is printed ten times a second at most. */
void progress_at(uint64_t done);
void progress_end(void);

#endif
