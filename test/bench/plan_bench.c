/*
 * plan_bench.c: the planner on a recorded job. Prints, for each cut of the blocks and each distance of looking ahead,
 * bytes and simulated time of a step, beside Belady's rule, and the CPU time of planning. No CUDA.
 *
 *   plan_bench [trace.gz [launches of a step [ms of a step [transfers each way [us a transfer takes beside its bytes]]]]]
 */
#include "shim/plan/tensor_extents.h"
#include "shim/plan/plan.h"
#include "test/unit/plan_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LINK  50.85 /* GB/s of a pair of copies, each way (docs/facts.md, Moving memory) */
#define STEPS 4     /* measured, the last ones */
#define RUNS  5     /* of each; the least CPU time counts, for the machine has other things to do */

struct job {
	const char *path;
	uint32_t step;
	double step_ms, latency_us;
	unsigned in_flight;
};

static void run(const struct sim_trace *trace, const struct job *job, uint64_t budget, uint32_t ahead, uint64_t least)
{
	struct sim_setting setting = {
	    .budget_units = budget,
	    .ahead_units = ahead,
	    .in_flight = job->in_flight,
	    .launch_us = job->step_ms * 1000 / job->step,
	    .submit_us = 10,
	    .gb_per_s = LINK,
	    .latency_us = job->latency_us,
	    .run_ahead = 1000,
	    .from = trace->n_launches - STEPS * job->step,
	    .time_plan = true,
	};
	struct sim_result result;
	double plan_ns = 1e300;

	for (int i = 0; i < RUNS; i++) {
		if (!sim_run(trace, &setting, &result)) {
			printf("    ahead %4u MiB: stuck\n", ahead * 2);
			return;
		}
		plan_ns = result.plan_ns < plan_ns ? result.plan_ns : plan_ns;
	}
	printf("    ahead %4u MiB: in %6.2f, out %6.2f GB, %.2f x least, %6.1f ms; planning %4.0f us in %.0f calls; "
	       "%.0f fetches, %.0f %% foreseen\n",
	       ahead * 2, (double)result.bytes_in / STEPS / 1e9, (double)result.bytes_out / STEPS / 1e9,
	       (double)result.bytes_in / STEPS / (double)least, result.ms / STEPS, plan_ns / STEPS / 1e3,
	       (double)result.plan_calls / STEPS, (double)result.fetches / STEPS,
	       100.0 * result.foreseen / (STEPS * job->step));
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* One pointer: remembering its start and asking for its end, in 200 blocks of 256 MiB with 16 starts each. */
static void extents(void)
{
	struct tensor_extents *extents = tensor_extents_new();
	uint64_t random = 1, sum = 0;
	double least = 1e300;

	for (int i = 0; i < RUNS; i++) {
		double begin = seconds();

		for (int k = 0; k < 1000000; k++) {
			random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
			uint32_t block = (uint32_t)(random >> 40) % 200 * 128;
			uint64_t offset = (random >> 60) * 16 * SIM_UNIT / 2;

			tensor_extents_note(extents, block, 128 * SIM_UNIT, offset);
			sum += tensor_extents_end(extents, block, offset);
		}
		least = seconds() - begin < least ? seconds() - begin : least;
	}
	tensor_extents_free(extents);
	printf("a pointer's extent: %.0f ns (%llx)\n", least * 1e3, (unsigned long long)sum);
}

/* What a submission costs the planner of a program that never does the same again. */
static void aimless(void)
{
	enum { SUBMISSIONS = 20000, NAMES = 8, PIECES = 4000 };
	double least = 1e300;

	for (int run = 0; run < RUNS; run++) {
		struct plan *plan = plan_new(PLAN_BESIDE_KERNELS);
		uint64_t random = 1;
		double begin = seconds();

		for (int i = 0; i < SUBMISSIONS; i++) {
			uint32_t pieces[NAMES];

			for (int k = 0; k < NAMES; k++) {
				random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
				pieces[k] = (uint32_t)(random >> 40) % PIECES;
			}
			plan_note(plan, random >> 57, pieces, NAMES);
		}
		least = seconds() - begin < least ? seconds() - begin : least;
		plan_free(plan);
	}
	printf("a submission of a program without repetition: %.2f us\n", least / SUBMISSIONS * 1e6);
}

static bool cut(const struct job *job, uint32_t cap)
{
	static const double ratios[] = {1.25, 1.5, 2.0};
	static const uint32_t aheads[] = {32, 64, 128, 256, 512};
	struct sim_trace trace;

	if (!sim_load(&trace, job->path, cap) || trace.n_launches < STEPS * job->step)
		return false;
	uint32_t from = trace.n_launches - STEPS * job->step;
	if (cap)
		printf("pieces up to %u MiB", cap * 2);
	else
		printf("whole blocks");
	printf(", %.2f GiB, %.1f pieces a launch\n", (double)trace.need_units / 512,
	       (double)trace.n_pieces / trace.n_launches);
	for (int i = 0; i < 3; i++) {
		uint64_t budget = (uint64_t)((double)trace.need_units / ratios[i]);
		uint64_t reserve = 2 * job->in_flight * (cap ? cap : 16);
		uint64_t full = sim_belady(&trace, budget, from) / STEPS;
		uint64_t least = sim_belady(&trace, budget - reserve, from) / STEPS;

		printf(
		    "  ratio %.2f: Belady %.2f GB = %.0f ms; with %u MiB set aside for transfers %.2f GB = %.0f ms\n",
		    ratios[i], (double)full / 1e9, (double)full / LINK / 1e6, (unsigned)reserve * 2,
		    (double)least / 1e9, (double)least / LINK / 1e6);
		for (unsigned a = 0; a < sizeof(aheads) / sizeof(*aheads); a++)
			run(&trace, job, budget, aheads[a], least);
	}
	sim_unload(&trace);
	return true;
}

int main(int argc, char **argv)
{
	static const uint32_t caps[] = {4, 8, 16, 32, 0};
	struct job job = {
	    .path = argc > 1 ? argv[1] : TRACE,
	    .step = argc > 2 ? (uint32_t)atoi(argv[2]) : 1099,
	    .step_ms = argc > 3 ? atof(argv[3]) : 69.3,
	    .in_flight = argc > 4 ? (unsigned)atoi(argv[4]) : 6,
	    .latency_us = argc > 5 ? atof(argv[5]) : 100,
	};

	extents();
	aimless();
	for (unsigned c = 0; c < sizeof(caps) / sizeof(*caps); c++)
		if (!cut(&job, caps[c])) {
			fprintf(stderr, "%s: no trace of %d steps of %u launches\n", job.path, STEPS, job.step);
			return 1;
		}
	return 0;
}
