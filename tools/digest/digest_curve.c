// SPDX-License-Identifier: Apache-2.0
/*
 * The steps of the program, and what it would move with less device memory.
 */
#include "tools/common/belady.h"
#include "tools/common/grow.h"
#include "tools/digest/digest_part.h"
#include "tools/replay/replay_model.h"
#include "tools/replay/replay_job.h"
#include "policy/policy.h"

#include <errno.h>
#include <stdlib.h>

/*
 * Finds steps by the rule of `spillway replay` (replay_steps.c), so that both commands count the same steps.
 */

/* Finds the steps of one device. A step ends where the next one begins; the duration of the last one is not known. */
static bool find_on(struct digest *digest, const struct replay_model *model, uint32_t device)
{
	const struct trace *trace = digest->trace;
	struct digest_step *before = NULL;
	struct replay_steps steps;
	uint64_t launch = 0;

	if (!replay_steps_of(model, device, REPLAY_STEPS, &steps))
		return false;
	for (size_t i = 0; steps.period && i < trace->n_rows; i++) {
		const struct trace_event *event = &trace->rows[i].event;
		uint64_t time = digest_since(digest, event->time);

		if (event->kind != TRACE_submit)
			continue;
		if (event->submit.device == device && replay_step_begins(&steps, launch, event->submit.function)) {
			if (before)
				before->ns = time - before->time;
			before = &digest->steps[digest->n_steps++];
			*before = (struct digest_step){.device = device, .time = time};
		}
		if (event->submit.device == device && before)
			before->submissions++;
		launch++;
	}
	return true;
}

static int by_time(const void *a, const void *b)
{
	const struct digest_step *x = a, *y = b;

	return ORDER(x->time, y->time) ?: ORDER(x->device, y->device);
}

bool digest_steps_find(struct digest *digest)
{
	struct replay_model model;

	if (!digest->n_events[TRACE_submit] || !digest->trace->n_blocks)
		return true;
	/* Each submission begins a step of its device at most. */
	digest->steps = calloc((size_t)digest->n_events[TRACE_submit], sizeof(*digest->steps));
	bool good = digest->steps != NULL;
	int status = replay_model_take(&model, digest->trace);
	for (uint32_t device = 0; !status && good && device < REPLAY_DEVICES; device++)
		if (digest->devices[device].seen)
			good = find_on(digest, &model, device);
	/* A trace without allocations that can be simulated has no steps; this is not a failure. */
	good &= status != -ENOMEM;
	replay_model_free(&model);
	if (good)
		qsort(digest->steps, digest->n_steps, sizeof(*digest->steps), by_time);
	return good;
}

/*
 * The least moves by budget: Belady's rule on whole blocks (belady.h). It is a reference and no bound: blocks differ
 * in size, and moving parts of them may need less.
 *
 * Long traces repeat. If there are more than MOST_USES uses, only the last ones are simulated, and the first half of
 * these only fills the device.
 */

#define MOST_USES 600000

struct curve {
	const struct trace *trace;
	size_t from, count_from; /* rows: the start of the simulation and of counting */
	struct belady belady;
};

static struct belady_names names_of(const struct trace_row *row)
{
	return (struct belady_names){row->blocks, row->n_blocks, 1};
}

static bool is_end(const struct curve *curve, const struct trace_row *row)
{
	return row->event.kind == TRACE_freed && row->which < curve->trace->n_blocks;
}

static void curve_run(struct curve *curve, struct digest_point *point)
{
	struct belady *b = &curve->belady;

	belady_rewind(b, point->budget);
	for (size_t i = curve->from; i < curve->trace->n_rows; i++) {
		const struct trace_row *row = &curve->trace->rows[i];

		b->counts = i >= curve->count_from;
		if (is_end(curve, row))
			belady_forget(b, row->which);
		else if (row->event.kind == TRACE_submit)
			belady_submit(b, names_of(row), (uint32_t)(i - curve->from));
	}
	point->bytes_in = b->in + b->missed;
	point->bytes_out = b->out;
	point->over = b->over;
}

/* Finds the last uses, and the next use after each. Returns false if memory runs out. */
static bool find_next(struct curve *curve)
{
	const struct trace *trace = curve->trace;
	uint64_t n = 0, ops = 0;

	for (curve->from = trace->n_rows; curve->from > 0; curve->from--) {
		const struct trace_row *row = &trace->rows[curve->from - 1];

		if (row->event.kind == TRACE_submit && n + row->n_blocks > MOST_USES)
			break;
		n += row->n_blocks;
		ops += row->event.kind == TRACE_submit || is_end(curve, row);
	}
	/* If not all uses are taken, the first half of what happens fills the device. */
	curve->count_from = curve->from;
	for (uint64_t left = curve->from ? ops / 2 : 0; left; curve->count_from++)
		left -= trace->rows[curve->count_from].event.kind == TRACE_submit ||
			is_end(curve, &trace->rows[curve->count_from]);
	if (!belady_start(&curve->belady, trace->n_blocks, n))
		return false;
	curve->belady.spares = true;
	for (size_t i = 0; i < trace->n_blocks; i++)
		curve->belady.bytes[i] = trace->blocks[i].bytes;
	for (size_t i = trace->n_rows; i-- > curve->from;)
		if (trace->rows[i].event.kind == TRACE_submit)
			belady_look_ahead(&curve->belady, names_of(&trace->rows[i]), (uint32_t)(i - curve->from));
	return true;
}

/* Counts the submissions that are counted, and their time. */
static void curve_measure(const struct curve *curve, struct digest *digest)
{
	const struct trace *trace = curve->trace;

	for (size_t i = curve->count_from; i < trace->n_rows; i++)
		if (trace->rows[i].event.kind == TRACE_submit && !digest->curve_submits++)
			digest->curve_ns = digest->run_ns - digest_since(digest, trace->rows[i].event.time);
	for (size_t i = 0; i < digest->n_steps; i++)
		digest->curve_steps += digest->steps[i].device == digest->steps[0].device &&
				       digest->steps[i].time + digest->curve_ns >= digest->run_ns;
}

bool digest_curve_make(struct digest *digest, digest_progress *progress)
{
	struct curve curve = {.trace = digest->trace};
	bool good = find_next(&curve);

	if (good && curve.belady.n_uses) {
		curve_measure(&curve, digest);
		for (unsigned i = 0; i < DIGEST_CURVE; i++) {
			struct digest_point *point = &digest->curve[i];

			point->percent = 100 - 5 * i;
			point->budget = digest->peak / 100 * point->percent + digest->peak % 100 * point->percent / 100;
			curve_run(&curve, point);
			if (progress)
				progress("what-if", i + 1, DIGEST_CURVE);
		}
		digest->n_curve = DIGEST_CURVE;
	}
	belady_end(&curve.belady);
	return good;
}
