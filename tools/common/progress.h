// SPDX-License-Identifier: Apache-2.0
/*
 * progress.h: a progress line on stderr for long work. It is shown only if stderr is a terminal and the work takes
 * longer than a moment, and is erased at the end.
 */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include <stdint.h>

/* what: such as "measuring the link". total: 0 if the amount is not known. Only one progress line may be active. */
void progress_begin(const char *what, uint64_t total);
/* May be called at any rate: the line is printed at most ten times a second. */
void progress_at(uint64_t done);
void progress_end(void);

#endif
