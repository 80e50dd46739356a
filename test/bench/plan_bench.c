// SPDX-License-Identifier: Apache-2.0
/*
 * plan_bench.c: the scheduler and the plan on a recorded job. Prints, for each budget, bytes and simulated time of a
 * step, beside Belady's rule, and the CPU time of planning. No CUDA. It is linked so that each call of the plan's
 * functions from another file comes by here (--wrap).
 *
 *   plan_bench [trace.gz [launches of a step [ms of a step]]]
 */
#include "shim/plan/governor.h"
#include "shim/plan/plan.h"
#include "shim/plan/tensors.h"
#include "tools/replay/replay_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STEPS 4 /* measured, the last ones */
#define RUNS  5 /* of each; the least CPU time counts, for the machine has other things to do */

static double ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- the time of planning, of the whole run ---- */

static double plan_ns, clock_ns;
static uint64_t plan_calls;

static void plan_end(double begin)
{
	plan_ns += ns() - begin - clock_ns;
	plan_calls++;
}

/* What measuring itself costs. */
static void measure_clock(void)
{
	clock_ns = 1e9;
	for (int i = 0; i < 1000; i++) {
		double begin = ns(), cost = ns() - begin;

		clock_ns = cost < clock_ns ? cost : clock_ns;
	}
}

#define WRAP(type, name, parameters, arguments)                                                                        \
	type __real_##name parameters;                                                                                 \
	type __wrap_##name parameters;                                                                                 \
	type __wrap_##name parameters                                                                                  \
	{                                                                                                              \
		double begin = ns();                                                                                   \
		type result = __real_##name arguments;                                                                 \
                                                                                                                       \
		plan_end(begin);                                                                                       \
		return result;                                                                                         \
	}

WRAP(bool, plan_fetch, (struct plan * plan, uint64_t ahead, uint32_t *piece, uint64_t *when),
     (plan, ahead, piece, when))
WRAP(enum plan_answer, plan_victim,
     (struct plan * plan, uint64_t when, uint32_t units, plan_busy_function *busy, void *argument, uint32_t *piece),
     (plan, when, units, busy, argument, piece))

void __real_plan_note(struct plan *plan, uint64_t function, const uint32_t *pieces, unsigned n);
void __wrap_plan_note(struct plan *plan, uint64_t function, const uint32_t *pieces, unsigned n);
void __wrap_plan_note(struct plan *plan, uint64_t function, const uint32_t *pieces, unsigned n)
{
	double begin = ns();

	__real_plan_note(plan, function, pieces, n);
	plan_end(begin);
}

void __real_plan_set(struct plan *plan, uint32_t piece, uint32_t units, enum plan_place place);
void __wrap_plan_set(struct plan *plan, uint32_t piece, uint32_t units, enum plan_place place);
void __wrap_plan_set(struct plan *plan, uint32_t piece, uint32_t units, enum plan_place place)
{
	double begin = ns();

	__real_plan_set(plan, piece, units, place);
	plan_end(begin);
}

/* ---- whole jobs ---- */

struct bench {
	struct replay_model model;
	uint32_t step;
	double step_ms;
};

static bool run(const struct bench *bench, const struct job *job, uint64_t budget, const struct replay_steps *steps)
{
	struct run_setting setting = {.mode = POLICY_SPILL_FAST,
				      .budget = budget,
				      .host_budget = UINT64_C(1) << 40,
				      .costs = run_costs_default(),
				      .steps = *steps};
	uint64_t largest = job->most_units * JOB_UNIT;
	uint64_t aside = move_limits_reserve(budget, largest) + move_limits_under_way(budget, largest);
	struct replay_point full, least;
	struct run_result result;
	double best_ns = 1e300;

	setting.costs.launch_us = bench->step_ms * 1000 / bench->step;
	for (int i = 0; i < RUNS; i++) {
		plan_ns = 0;
		plan_calls = 0;
		run_job(job, &setting, &result);
		best_ns = plan_ns < best_ns ? plan_ns : best_ns;
	}
	if (result.end != RUN_DONE || !replay_belady(job, budget, steps, &full) ||
	    !replay_belady(job, budget - aside, steps, &least))
		return false;
	double all = (double)job->n_launches / bench->step;
	printf("  %6ju MiB: Belady %.2f GB, with %ju MiB set aside %.2f; in %.2f, out %.2f GB, %.2f x least, %.1f ms; "
	       "planning %.0f us in %.0f calls; %.0f %% foreseen\n",
	       (uintmax_t)(budget >> 20), full.bytes_in / 1e9, (uintmax_t)(aside >> 20), least.bytes_in / 1e9,
	       result.bytes_in / 1e9, result.bytes_out / 1e9, result.bytes_in / least.bytes_in, result.step_ms,
	       best_ns / all / 1e3, (double)plan_calls / all, 100 * result.foreseen / bench->step);
	return true;
}

static bool cut(struct bench *bench, bool whole)
{
	static const double ratios[] = {1.25, 1.5, 2.0};
	struct job_setting setting = {.budget = UINT64_C(1) << 50, .fast = true, .whole = whole};
	struct replay_steps steps = {.period = bench->step, .n = STEPS};
	struct job *job = job_new(&bench->model, &setting);
	bool good = job && job->n_launches > (uint64_t)STEPS * bench->step;

	if (good) {
		steps.from = job->n_launches - (uint64_t)STEPS * bench->step;
		printf("%s, %.2f GiB, %.1f pieces a launch\n", whole ? "whole blocks" : "pieces of up to 32 MiB",
		       (double)job->peak_bytes / (1 << 30), (double)job->n_named / (double)job->n_launches);
	}
	uint64_t peak = good ? job->peak_bytes : 0;
	for (int i = 0; i < 3 && good; i++) {
		setting.budget = (uint64_t)((double)peak / ratios[i]);
		job_free(job);
		job = job_new(&bench->model, &setting);
		good = job && run(bench, job, setting.budget, &steps);
	}
	job_free(job);
	return good;
}

/* ---- single calls ---- */

/* One pointer: remembering its start and asking for its end, in 200 blocks of 256 MiB with 16 starts each. */
static void extents(void)
{
	struct tensor_extents *extents = tensor_extents_new();
	uint64_t random = 1, sum = 0;
	double least = 1e300;

	for (int i = 0; i < RUNS; i++) {
		double begin = ns();

		for (int k = 0; k < 1000000; k++) {
			random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
			uint32_t block = (uint32_t)(random >> 40) % 200 * 128;
			uint64_t offset = (random >> 60) * 16 * PLAN_UNIT / 2;

			tensor_extents_note(extents, block, 128 * PLAN_UNIT, offset);
			sum += tensor_extents_end(extents, block, offset);
		}
		least = ns() - begin < least ? ns() - begin : least;
	}
	tensor_extents_free(extents);
	printf("a pointer's extent: %.0f ns (%llx)\n", least / 1e6, (unsigned long long)sum);
}

/* What a submission costs the planner of a program that never does the same again. */
static void aimless(void)
{
	enum { SUBMISSIONS = 20000, NAMES = 8, PIECES = 4000 };
	double least = 1e300;

	for (int i = 0; i < RUNS; i++) {
		struct plan *plan = plan_new(PLAN_BESIDE_KERNELS);
		uint64_t random = 1;

		plan_ns = 0;
		for (int submission = 0; submission < SUBMISSIONS; submission++) {
			uint32_t pieces[NAMES];

			for (int k = 0; k < NAMES; k++) {
				random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
				pieces[k] = (uint32_t)(random >> 40) % PIECES;
			}
			plan_note(plan, random >> 57, pieces, NAMES);
		}
		least = plan_ns < least ? plan_ns : least;
		plan_free(plan);
	}
	printf("a submission of a program without repetition: %.2f us\n", least / SUBMISSIONS / 1e3);
}

int main(int argc, char **argv)
{
	struct bench bench = {
	    .step = argc > 2 ? (uint32_t)atoi(argv[2]) : 1099,
	    .step_ms = argc > 3 ? atof(argv[3]) : 69.3,
	};
	const char *path = argc > 1 ? argv[1] : TRACE;

	measure_clock();
	extents();
	aimless();
	bool good = replay_model_read(&bench.model, path) == 0 && cut(&bench, false) && cut(&bench, true);
	if (!good)
		fprintf(stderr, "%s: no trace of %d steps of %u launches\n", path, STEPS, bench.step);
	replay_model_free(&bench.model);
	return !good;
}
