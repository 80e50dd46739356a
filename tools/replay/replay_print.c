// SPDX-License-Identifier: Apache-2.0
/*
 * Prints the results: what was read, a line for each budget, the curve, and the verdict. Unknown values are n/a.
 */
#include "tools/common/units.h"
#include "tools/replay/replay_sweep.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "policy/text.h"
#include "tools/common/json.h"

static double percent_of(const struct replay_sweep *sweep, uint64_t budget)
{
	return sweep->peak ? (double)budget / (double)sweep->peak * 100 : 0;
}

static bool has_time(const struct replay_sweep *sweep, const struct replay_answer *answer)
{
	return sweep->full_ms > 0 && answer->run.end == RUN_DONE;
}

/* ---- what was read ---- */

/* Returns whether it has times, but of steps for which memory was short. */
static bool was_short(const struct replay_sweep *sweep)
{
	return sweep->model->n_launches && sweep->model->spilled && !(sweep->request->step_ms > 0);
}

static void print_head(const struct replay_sweep *sweep)
{
	const struct replay_model *model = sweep->model;
	char name[128];
	const char *slash = strrchr(sweep->request->path, '/');

	policy_printable(slash ? slash + 1 : sweep->request->path, name, sizeof(name));
	printf("%s: trace, %zu allocations, %zu submissions", name, model->n_blocks, model->n_launches);
	if (sweep->steps.period)
		printf(", a step is %" PRIu64 " of them", sweep->steps.period);
	else if (model->n_launches)
		printf(", which do not repeat themselves: all of them are one step here");
	if (model->n_births)
		printf("\n%zu births of tensors: what is dead moves without a copy; in and out are what is copied",
		       model->n_births);
	printf("\npeak %s asked for", text_bytes(sweep->peak));
	printf(", which takes %s of device memory", text_bytes(sweep->held));
	if (sweep->outside)
		printf(", up to %s of it outside the heap", text_bytes(sweep->outside));
	if (sweep->full_ms > 0)
		printf("; a step takes %.1f ms with all of it there (%s)", sweep->full_ms,
		       sweep->request->step_ms > 0 ? "as given" : "as recorded");
	printf("\n");
	if (sweep->elsewhere)
		printf("%" PRIu64 " allocations are managed or system memory by policy: in none of the figures\n",
		       sweep->elsewhere);
	printf("mode %s (%s)", policy_spill_name(sweep->request->mode), sweep->request->mode_source);
	if (model->n_launches)
		printf(", link %.1f GB/s each way", sweep->request->link);
	printf("\n");
}

/* ---- the table ---- */

static void print_ms(double ms, bool known)
{
	if (known)
		printf("  %9.1f", ms);
	else
		printf("  %9s", "n/a");
}

static void print_line(const struct replay_sweep *sweep, const struct replay_answer *answer)
{
	const struct run_result *run = &answer->run;
	bool timed = has_time(sweep, answer);

	printf("%10s %5.1f %%", text_bytes(answer->budget), percent_of(sweep, answer->budget));
	if (run->end != RUN_DONE) {
		printf("  cannot run\n");
		return;
	}
	print_ms(run->step_ms, timed);
	print_ms(answer->limit_ms, timed);
	if (timed)
		printf("  %5.0f %%", sweep->full_ms / run->step_ms * 100);
	else
		printf("  %7s", "n/a");
	if (!sweep->model->n_launches)
		printf("  %10s  %10s", "n/a", "n/a");
	else
		printf("  %10s  %10s", text_bytes((uint64_t)(run->bytes_in + 0.5)),
		       text_bytes((uint64_t)(run->bytes_out + 0.5)));
	printf("  %10s%s%s\n", text_bytes(run->peak_host), run->stays ? "  does not move: that would be slower" : "",
	       answer->budget < answer->outside ? "  less than what lies outside the heap" : "");
}

static void print_table(const struct replay_sweep *sweep)
{
	printf("\n%10s %7s  %9s  %9s  %7s  %10s  %10s  %10s\n", "budget", "of peak", "step, ms", "limit, ms", "speed",
	       "in / step", "out / step", "host, most");
	for (unsigned i = 0; i < sweep->n; i++)
		if (sweep->answers[i].asked || &sweep->answers[i] == sweep->best)
			print_line(sweep, &sweep->answers[i]);
}

/* ---- the curve ---- */

#define PLOT_WIDTH  60
#define PLOT_HEIGHT 12

struct plot {
	char at[PLOT_HEIGHT][PLOT_WIDTH + 1];
	double least, most; /* budgets */
	double top;         /* ms */
};

static void print_put(struct plot *plot, double budget, double ms, char what)
{
	double x = plot->most > plot->least ? (budget - plot->least) / (plot->most - plot->least) : 0.5;
	int column = (int)(x * (PLOT_WIDTH - 1) + 0.5), row = (int)(ms / plot->top * (PLOT_HEIGHT - 1) + 0.5);

	if (row < PLOT_HEIGHT)
		plot->at[PLOT_HEIGHT - 1 - row][column] = what;
}

static void print_plot(const struct replay_sweep *sweep)
{
	struct plot plot = {.least = 1e300};
	unsigned n = 0;

	for (unsigned i = 0; i < sweep->n; i++) {
		const struct replay_answer *answer = &sweep->answers[i];

		if (!has_time(sweep, answer))
			continue;
		n++;
		plot.least = (double)answer->budget < plot.least ? (double)answer->budget : plot.least;
		plot.most = (double)answer->budget > plot.most ? (double)answer->budget : plot.most;
		plot.top = answer->run.step_ms > plot.top ? answer->run.step_ms : plot.top;
	}
	if (n < 2)
		return;
	memset(plot.at, ' ', sizeof(plot.at));
	for (unsigned i = 0; i < sweep->n; i++)
		if (has_time(sweep, &sweep->answers[i]))
			print_put(&plot, (double)sweep->answers[i].budget, sweep->answers[i].limit_ms, '.');
	for (unsigned i = 0; i < sweep->n; i++)
		if (has_time(sweep, &sweep->answers[i]))
			print_put(&plot, (double)sweep->answers[i].budget, sweep->answers[i].run.step_ms, '*');
	printf("\n  ms a step: * predicted, . limit\n");
	for (int row = 0; row < PLOT_HEIGHT; row++) {
		int end = PLOT_WIDTH;

		while (end && plot.at[row][end - 1] == ' ')
			end--;
		if (row % 3 == 2)
			printf("%9.0f |%.*s\n", plot.top * (PLOT_HEIGHT - 1 - row) / (PLOT_HEIGHT - 1), end,
			       plot.at[row]);
		else
			printf("%9s |%.*s\n", "", end, plot.at[row]);
	}
	printf("%9s +", "");
	for (int i = 0; i < PLOT_WIDTH; i++)
		putchar('-');
	printf("\n%11s%-*s%-*s%s\n", "", PLOT_WIDTH / 2 - 8, text_bytes((uint64_t)(plot.least + 0.5)),
	       PLOT_WIDTH / 2 - 2, "device budget", text_bytes((uint64_t)(plot.most + 0.5)));
}

/* ---- the verdict ---- */

static void print_verdict(const struct replay_sweep *sweep)
{
	const struct replay_answer *best = sweep->best;

	printf("\n");
	if (!sweep->model->n_launches)
		printf("This trace knows allocations only: what fits can be said, how long a step takes cannot.\n");
	else if (was_short(sweep))
		printf("This trace was recorded with memory on the host, so its times are not those of full speed: say "
		       "--step-time, what\na step takes with all of it in device memory.\n");
	else if (!(sweep->full_ms > 0))
		printf(
		    "This trace has no times: say --step-time, what a step takes with all of it in device memory.\n");
	else if (best && best->budget < sweep->held)
		printf(
		    "%s (%.0f %% of the peak) is the smallest budget within %.0f %% of full speed: %.1f ms a step, %s "
		    "on the host.\n",
		    text_bytes(best->budget), percent_of(sweep, best->budget), (REPLAY_GOOD - 1) * 100,
		    best->run.step_ms, text_bytes(best->run.peak_host));
	else if (best)
		printf("No budget below what all of it takes is within %.0f %% of full speed.\n",
		       (REPLAY_GOOD - 1) * 100);
	else
		printf("No budget that was tried is within %.0f %% of full speed.\n", (REPLAY_GOOD - 1) * 100);
	if (sweep->full_ms > 0)
		printf("The limit is the GPU's own time, or that of the link for the least that must be copied in. How "
		       "good\n"
		       "predictions are: spillway-replay(1), PREDICTIONS.\n");
}

void replay_print(const struct replay_sweep *sweep)
{
	print_head(sweep);
	print_table(sweep);
	print_plot(sweep);
	print_verdict(sweep);
}

/* ---- JSON ---- */

static void put_real(struct json *json, const char *name, double value, bool known)
{
	json_real_or_null(json, name, value, 3, known);
}

static void put_answer(struct json *json, const struct replay_sweep *sweep, const struct replay_answer *answer)
{
	const struct run_result *run = &answer->run;
	bool runs = run->end == RUN_DONE, timed = has_time(sweep, answer), moved = runs && sweep->model->n_launches;
	char why[SWEEP_WHY_BYTES];

	json_open(json, NULL, '{');
	json_number(json, "budget", answer->budget);
	json_truth(json, "runs", runs);
	put_real(json, "step_ms", run->step_ms, timed);
	put_real(json, "limit_ms", answer->limit_ms, timed);
	put_real(json, "bytes_in", run->bytes_in, moved);
	put_real(json, "bytes_out", run->bytes_out, moved);
	put_real(json, "dead_bytes_in", run->dead_in, moved);
	put_real(json, "dead_bytes_out", run->dead_out, moved);
	put_real(json, "least_bytes_in", answer->least_in, moved);
	put_real(json, "bytes_over_link", run->bytes_link, moved);
	put_real(json, "gaps", run->gaps, moved);
	json_truth(json, "stays", run->stays);
	json_number(json, "peak_device", run->peak_device);
	json_number(json, "peak_host", run->peak_host);
	json_text(json, "problem", runs ? NULL : sweep_why(sweep, answer, why));
	json_close(json, '}');
}

void replay_print_json(const struct replay_sweep *sweep)
{
	const struct replay_request *request = sweep->request;
	const struct replay_model *model = sweep->model;
	struct json writer = JSON_WRITER, *json = &writer;

	json_open(json, NULL, '{');
	json_number(json, "schema", 1);
	json_text(json, "trace", request->path);
	json_text(json, "kind", "trace");
	JSON_NUMBERS(json, {"allocations", model->n_blocks}, {"submissions", model->n_launches},
		     {"births", model->n_births},
		     {"submissions_a_step", sweep->steps.period ? sweep->steps.period : JSON_UNKNOWN});
	JSON_TEXTS(json, {"mode", policy_spill_name(request->mode)},
		   {"mode_recorded", model->mode < POLICY_SPILL_COUNT ? policy_spill_name(model->mode) : NULL});
	JSON_NUMBERS(json, {"peak", sweep->peak}, {"peak_in_chunks", sweep->held},
		     {"peak_outside_heap", sweep->outside});
	put_real(json, "link_gb_per_s", request->link, true);
	put_real(json, "full_speed_ms", sweep->full_ms, sweep->full_ms > 0);
	json_truth(json, "full_speed_is_at_most", was_short(sweep));
	json_truth(json, "peers_left_out", request->peers_left_out);
	json_number_or_null(json, "best_budget", sweep->best ? sweep->best->budget : 0, sweep->best != NULL);
	json_open(json, "budgets", '[');
	for (unsigned i = 0; i < sweep->n; i++) {
		json_break(json, "\n ");
		put_answer(json, sweep, &sweep->answers[i]);
	}
	json_close(json, ']');
	json_close(json, '}');
	putchar('\n');
}
