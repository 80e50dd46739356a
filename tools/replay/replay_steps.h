/*
 * replay_steps.h: where a recorded job begins its work anew. `spillway replay` and `spillway report` both count steps by
 * this rule. Pure: nothing is printed, no clock, no GPU.
 */
#ifndef TOOLS_REPLAY_STEPS_H
#define TOOLS_REPLAY_STEPS_H

#include "tools/replay/replay_job.h"

/* The last steps of a job, which stand for all of them. */
struct replay_steps {
	uint64_t period; /* submissions of one step; 0: it does not repeat itself, and all of it counts as one step */
	uint64_t from;   /* submissions before the first that counts */
	double n;        /* steps that count */
	bool marked;     /* each step calls this function once: */
	uint64_t marker;
};

/*
 * Where the job repeats itself, by the library's own prediction, and so many of its last steps, as long as as many come
 * before them; more where only several steps together repeat themselves. No memory: as if it did not.
 */
#define REPLAY_STEPS 4
struct replay_steps replay_find_steps(const struct job *job, uint64_t most);
/* The same of a model, cut as if there were device memory for all of it: no policy and no budget changes them. False: no memory. */
bool replay_steps_of(const struct replay_model *model, uint32_t device, uint64_t most, struct replay_steps *ret_steps);
/* Does a step begin with this submission? launch: how many came before it. */
bool replay_step_begins(const struct replay_steps *steps, uint64_t launch, uint64_t function);
/* What a step took when it was recorded, without what is known of waits; ms; 0: the file has no times. */
double replay_step_ms(const struct job *job, const struct replay_steps *steps);

#endif
