/*
 * replay_curve.h: what a recorded job would cost by budget at best: Belady's rule (what is used farthest in the future
 * leaves first) on the recorded submissions, with the pieces that the library moves. A reference and no bound: pieces
 * differ in size. Pure: nothing is printed, no clock, no GPU.
 *
 * What is needed to use it:
 *   struct replay_model model;
 *   replay_model_take(&model, &trace)               (or replay_model_read())
 *   replay_curve(&model, NULL, budgets, n, points)
 *   replay_model_free(&model)
 */
#ifndef TOOLS_REPLAY_CURVE_H
#define TOOLS_REPLAY_CURVE_H

#include "tools/replay/replay_steps.h"

struct replay_point {
	uint64_t budget;            /* of device memory */
	double bytes_in, bytes_out; /* moved in a step; 0 where everything fits */
	uint64_t over;              /* submissions that name more than fits: the rest would be read over the link */
};

/* One budget of a job that was cut for it. False without memory. */
bool replay_belady(const struct job *job, uint64_t budget, const struct replay_steps *steps,
		   struct replay_point *ret_point);
/*
 * The curve: a point for each budget, in their order. policy: NULL for one in which everything is heap memory.
 * A model without submissions has no curve. False: that, or no memory; ret_points are then unchanged or partly filled.
 */
bool replay_curve(const struct replay_model *model, const struct policy *policy, const uint64_t *budgets, size_t n,
		  struct replay_point *ret_points);

#endif
