/*
 * exit_summary.h: writes the summary to the log when the process ends.
 */
#ifndef SPILLWAY_EXIT_SUMMARY_H
#define SPILLWAY_EXIT_SUMMARY_H

/* Writes the summary; at any time in STAGE_RUNNING. Locking: tries SUMMARY; does nothing if another thread holds it. */
void exit_summary_print(void);
/* At exit: writes the summary if the policy asks for it and anything was allocated or refused. */
void exit_summary_end(void);

#endif
