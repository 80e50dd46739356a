/*
 * replay_steps.h: finds the steps of a recorded job, the periods at which its work repeats. `spillway replay` and
 * `spillway report` both count steps by this rule. Nothing is printed, and neither clock nor GPU is used.
 */
#ifndef TOOLS_REPLAY_STEPS_H
#define TOOLS_REPLAY_STEPS_H

#include "tools/replay/replay_job.h"

/* The last steps of a job, which represent all of them. */
struct replay_steps {
	uint64_t period; /* submissions of one step; 0: the job does not repeat, and all of it counts as one step */
	uint64_t from;   /* submissions before the first one that counts */
	double n;        /* number of steps that count */
	bool marked;     /* each step calls this function once: */
	uint64_t marker;
};

/*
 * Finds where the job repeats, by the library's own prediction. The last `most` steps count, as long as at least as
 * many precede them; more steps count if only several of them together repeat. If memory runs out, the job is treated
 * as one that does not repeat.
 */
#define REPLAY_STEPS 4
struct replay_steps replay_find_steps(const struct job *job, uint64_t most);
/*
 * Finds the steps of a model, cut as if all of it fitted into device memory: neither policy nor budget changes the
 * steps. Returns false if memory runs out.
 */
bool replay_steps_of(const struct replay_model *model, uint32_t device, uint64_t most, struct replay_steps *ret_steps);
/* Returns whether a step begins with this submission. launch: the number of submissions before it. */
bool replay_step_begins(const struct replay_steps *steps, uint64_t launch, uint64_t function);
/*
 * Returns the duration of a step with all memory on the device, in ms. 0: the trace has no times, or was recorded with
 * memory on the host: steps took longer for it, and what of them is waits and what is work cannot be told apart, because
 * the GPU works while a submission waits.
 */
double replay_step_ms(const struct job *job, const struct replay_steps *steps);

#endif
