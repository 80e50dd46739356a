// SPDX-License-Identifier: Apache-2.0
/*
 * replay_sweep.h: runs a model under several budgets and finds the best of them. It stands between the command, which
 * reads options (replay.c) and prints (replay_print.c), and a single run (replay_run.h).
 */
#ifndef TOOLS_REPLAY_SWEEP_H
#define TOOLS_REPLAY_SWEEP_H

#include "tools/replay/replay_run.h"

/* The options of the command. */
struct replay_request {
	const char *path, *policy_name, *set; /* NULL: not given */
	const struct policy *policy;
	enum policy_spill mode;  /* POLICY_SPILL_COUNT: not given, until replay.c has chosen one */
	const char *mode_source; /* why that mode was chosen, for people */
	uint64_t host_budget;    /* UINT64_MAX: no limit */
	uint64_t steps;          /* maximum number of steps that count */
	double link;             /* GB/s */
	double step_ms;          /* 0: not given */
	uint32_t device;         /* REPLAY_NONE: not given */
	bool json;
	bool peers_left_out; /* other devices lend memory according to the policy, or did while recording */
	/* Budgets of the device; percent: hundredths of a percent of the peak. If there are none, a sweep is made. */
	struct replay_budget {
		uint64_t bytes, percent;
	} budgets[64];
	unsigned n_budgets;
};

/* The result for one budget. */
struct replay_answer {
	uint64_t budget;
	uint64_t outside; /* bytes outside the heap at this budget */
	struct run_result run;
	double limit_ms; /* the least that a step takes; 0: not known */
	double least_in; /* bytes fetched per step by Belady's rule */
	bool asked;      /* the user asked for it: it is shown */
};

struct replay_sweep {
	const struct replay_model *model;
	const struct replay_request *request;
	struct replay_steps steps;
	uint64_t peak;    /* maximum of bytes live at once on the device, as requested */
	uint64_t held;    /* device bytes of the whole job: memory outside the heap, and the heap's chunks */
	uint64_t outside; /* the part outside the heap; with async.use: auto, a budget may leave less of it there */
	uint64_t elsewhere;
	double full_ms;                /* a step with everything in device memory; 0: not known */
	struct replay_answer *answers; /* the largest budget first */
	unsigned n;
	size_t room;
	const struct replay_answer *best; /* the smallest budget within 10 % of full speed; NULL: not known */
	struct job *job;                  /* the job of the budget run last */
	unsigned planned, done;           /* number of runs, for progress */
};

/* A step of up to this multiple of full speed counts as good. */
#define REPLAY_GOOD 1.10

/*
 * Runs the sweep. Returns false if memory runs out; the command must then end with TOOL_BROKEN. Runs that fail are
 * reported in the answers.
 */
bool sweep_run(struct replay_sweep *sweep, const struct replay_model *model, const struct replay_request *request);
void sweep_free(struct replay_sweep *sweep);
/* Describes why a run ended, with the event at which it did; "" if it did not. */
#define SWEEP_WHY_BYTES 640
const char *sweep_why(const struct replay_sweep *sweep, const struct replay_answer *answer, char *room);

/* ---- replay_print.c ---- */
void replay_print(const struct replay_sweep *sweep);
void replay_print_json(const struct replay_sweep *sweep);

#endif
