/*
 * replay_limit.h: the least that a step of a simulated run (replay_run.h) can take, whatever its plan. Nothing is printed,
 * and neither clock nor GPU is used.
 *
 * A launch needs the bytes that it names: those have stayed on the device since they were used before, are copied there,
 * or are used where they are. What stays is never more than the budget has room for, so the rest is the least that is
 * copied or used elsewhere (belady_carry()): of tensors whose pieces a launch names as a whole, and of pieces about which
 * nobody reports. What of that the run has used elsewhere need not be copied; copies take the time of the link. In the
 * first step that counts, anything may be on the device already.
 */
#ifndef TOOLS_REPLAY_LIMIT_H
#define TOOLS_REPLAY_LIMIT_H

#include "tools/replay/replay_run.h"

struct replay_point {
	uint64_t budget;            /* of device memory */
	double bytes_in, bytes_out; /* moved per step; 0 if everything fits */
	uint64_t over;              /* submissions that name more than fits: the rest would be read over the link */
};

/*
 * Computes what a job that was cut for this budget moves by Belady's rule (evict first what is used farthest in the
 * future), with the pieces that the library moves: a reference and no bound, because pieces differ in size. Returns false
 * if memory runs out.
 */
bool replay_belady(const struct job *job, uint64_t budget, const struct replay_steps *steps,
		   struct replay_point *ret_point);

/*
 * Computes the limit of a run that has this result: the GPU's own time of a step, or that of the link, whichever is
 * longer, in ms. Returns false if memory runs out.
 */
bool replay_limit(const struct job *job, const struct run_setting *setting, const struct run_result *result,
		  double *ret_ms);

#endif
