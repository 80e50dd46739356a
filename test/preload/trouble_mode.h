// SPDX-License-Identifier: Apache-2.0
/*
 * trouble_mode.h: spill.mode changes while the program runs (trouble.h).
 */
#ifndef PRELOAD_TROUBLE_MODE_H
#define PRELOAD_TROUBLE_MODE_H

/* Has a thread ask for the other mode, after so many microseconds; once, if it is busy still. First for fast. */
void trouble_mode_change(unsigned us);
/*
 * Returns what was wrong about the answers, or NULL. If TROUBLE_MODES_LEAST is set in the environment, fewer changes to
 * either mode than that are wrong.
 */
const char *trouble_mode_end(void);

#endif
