// SPDX-License-Identifier: Apache-2.0
/*
 * log_help.h: a moment that a test can stand in: what a submission wrote for the mover is there, and it is not inside
 * the driver yet. For programs that are linked with --wrap=submission_log_write.
 */
#ifndef SPILLWAY_TEST_LOG_HELP_H
#define SPILLWAY_TEST_LOG_HELP_H

/* Called once, by the next submission, if set. */
extern void (*log_then)(void);

#endif
