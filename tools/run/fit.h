/*
 * fit.h: `spillway run --fit`: stays the parent of the program, says once a minute what is spilled and what that costs,
 * and ends with the policy that it would now write.
 */
#ifndef TOOLS_FIT_H
#define TOOLS_FIT_H

#include "policy/policy.h"

/* The command line, as far as it concerns --fit. */
struct fit_request {
	const char *set;   /* what the user set, as --set has it; NULL: nothing */
	const char *write; /* where to write the policy; NULL: nowhere */
	enum policy_report report;
	int (*start)(char **program); /* replaces the process by the program; returns the exit status if it cannot */
	char **program;
};

/*
 * Runs the program to its end. Returns its exit status; if it ended by a signal, this process ends by the same one.
 * Signals that others send to this process are passed on; those of the terminal reach the program by themselves. If this
 * process is killed, so is the program, as if it were the program.
 */
int fit_run(const struct fit_request *request);

#endif
