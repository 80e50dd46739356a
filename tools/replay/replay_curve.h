/*
 * replay_curve.h: the least that a recorded job would move at each budget, by Belady's rule (evict first what is used
 * farthest in the future) on the recorded submissions, with the pieces that the library moves. The result is a
 * reference and no bound, because pieces differ in size. Nothing is printed, and neither clock nor GPU is used.
 *
 * Usage:
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
	double bytes_in, bytes_out; /* moved per step; 0 if everything fits */
	uint64_t over;              /* submissions that name more than fits: the rest would be read over the link */
};

/* Computes one point, for a job that was cut for this budget. Returns false if memory runs out. */
bool replay_belady(const struct job *job, uint64_t budget, const struct replay_steps *steps,
		   struct replay_point *ret_point);
/*
 * Computes the curve: a point for each budget, in their order. policy: NULL stands for one in which everything is heap
 * memory. Returns false if the model has no submissions (it then has no curve) or memory runs out; ret_points may then
 * be partly filled.
 */
bool replay_curve(const struct replay_model *model, const struct policy *policy, const uint64_t *budgets, size_t n,
		  struct replay_point *ret_points);

#endif
