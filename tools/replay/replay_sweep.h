/*
 * replay_sweep.h: a model under several budgets, and which of them is worth taking. Between the command, which reads options
 * (replay.c) and prints (replay_print.c, replay_svg.c, replay_write.c), and one run (replay_run.h).
 */
#ifndef TOOLS_REPLAY_SWEEP_H
#define TOOLS_REPLAY_SWEEP_H

#include "tools/replay/replay_run.h"

#include <stdio.h>

/* What was asked for. */
struct replay_request {
	const char *path, *policy_name, *set, *svg, *write; /* NULL: not given */
	const struct policy *policy;
	enum policy_spill mode;  /* POLICY_SPILL_COUNT: not given, until replay.c has chosen one ... */
	const char *mode_source; /* ... for this reason, for people */
	uint64_t host_budget;    /* UINT64_MAX: as much as it takes */
	uint64_t steps;          /* that count, at most */
	double link;             /* GB/s */
	double step_ms;          /* 0: not given */
	uint32_t device;         /* REPLAY_NONE: not given */
	bool json;
	bool peers_left_out; /* other devices lend memory by the policy, or did when it was recorded */
	/* Of the device. Those in percent are of the peak, in hundredths. None: a sweep. */
	struct replay_budget {
		uint64_t bytes, percent;
	} budgets[64];
	unsigned n_budgets;
};

/* One budget. */
struct replay_answer {
	uint64_t budget;
	uint64_t outside; /* bytes that lie outside the heap with it */
	struct run_result run;
	double limit_ms; /* of a step: the GPU's time, or that of the least that must move; 0: not known */
	double least_in; /* bytes of a step, by Belady's rule */
	bool asked;      /* it is to be shown */
};

struct replay_sweep {
	const struct replay_model *model;
	const struct replay_request *request;
	struct replay_steps steps;
	uint64_t peak;    /* the most that was live at once on the device, as asked for */
	uint64_t held;    /* device bytes that all of it takes: what lies outside the heap, and the heap's chunks */
	uint64_t outside; /* of that not the heap's; with async.use: auto a budget may leave less of it there */
	uint64_t elsewhere;
	double full_ms;                /* a step with all of it in device memory; 0: not known */
	struct replay_answer *answers; /* largest budget first */
	unsigned n;
	size_t room;
	const struct replay_answer *best; /* the smallest within 10 % of full speed; NULL: none is known */
	struct job *job;                  /* of the budget asked last */
	unsigned planned, done;           /* runs, for progress */
};

/* How much slower than full speed is still as good. */
#define REPLAY_GOOD 1.10

/* False: no memory; TOOL_BROKEN. What cannot run is in the answers. */
bool sweep_run(struct replay_sweep *sweep, const struct replay_model *model, const struct replay_request *request);
void sweep_free(struct replay_sweep *sweep);
/* Why a run ended, with the event at which it did; "" when it did not. */
#define SWEEP_WHY_BYTES 640
const char *sweep_why(const struct replay_sweep *sweep, const struct replay_answer *answer, char *room);

/* ---- replay_options.c ---- */
/* OPTIONS_GO_ON, or the status to end with. */
int replay_options(int argc, char **argv, struct replay_request *ret_request);

/* ---- replay_print.c ---- */
void replay_print(const struct replay_sweep *sweep);
void replay_print_json(const struct replay_sweep *sweep);

/* ---- replay_svg.c, replay_write.c: to a file that is not there yet. TOOL_OK or TOOL_BROKEN, said why. ---- */
/* NULL: it cannot be, said why. */
FILE *replay_create(const char *path);
/* Of that file. Not good, or not all of it could be written: it is taken away again, so that its name is free. */
int replay_close(FILE *file, const char *path, bool good);
/* Said, before all the work is done. path may be NULL. */
bool replay_is_taken(const char *path);
int replay_svg(const struct replay_sweep *sweep);
int replay_write_policy(const struct replay_sweep *sweep);

#endif
