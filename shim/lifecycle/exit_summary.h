/*
 * exit_summary.h: what is written to the log when the process ends.
 */
#ifndef SPILLWAY_EXIT_SUMMARY_H
#define SPILLWAY_EXIT_SUMMARY_H

/* Writes it, at any time in STAGE_RUNNING. Does nothing while another thread is in here. */
void exit_summary_print(void);
/* At exit: writes it if the policy wants it and anything was allocated or refused. */
void exit_summary_end(void);

#endif
