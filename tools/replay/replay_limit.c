// SPDX-License-Identifier: Apache-2.0
/*
 * What a job moves by Belady's rule; and the limit of a run: what launches need for certain, and the least of it that
 * cannot have stayed on the device.
 */
#include "tools/replay/replay_run.h"
#include "tools/common/belady.h"
#include "tools/common/grow.h"

#include <stdlib.h>

/* ---- Belady's rule ---- */

/*
 * The items are the pieces, or, where births were recorded, the tensors, and those pieces of which nobody reports what
 * is alive (job.tensors).
 */
static struct belady_names names_of(const struct job *job, const struct job_event *event)
{
	if (job->model->n_births)
		return (struct belady_names){event->n_tensors ? job->tensors + event->tensors : NULL, event->n_tensors,
					     1};
	/* A recording in which no launch names anything has no such list. */
	const uint32_t *first = event->n ? &job->named[event->from].piece : NULL;

	return (struct belady_names){first, event->n, sizeof(*job->named) / sizeof(job->named->piece)};
}

static void look_ahead(struct belady *b, const struct job *job)
{
	uint32_t each = job->model->n_births ? 2 : 1;

	for (uint32_t piece = 0; piece < job->n_pieces; piece++)
		b->bytes[each * piece] = job->units[piece] * JOB_UNIT;
	for (size_t i = 0; i < job->n_tensors; i++)
		b->bytes[2 * i + 1] = job->tensor_bytes[i];
	for (size_t e = job->n_events; e-- > 0;)
		if (job->events[e].kind == JOB_LAUNCH)
			belady_look_ahead(b, names_of(job, &job->events[e]), (uint32_t)e);
}

static void curve_walk(struct belady *b, const struct job *job, const struct replay_steps *steps)
{
	uint32_t each = job->model->n_births ? 2 : 1;
	uint64_t launches = 0;

	for (size_t e = 0; e < job->n_events; e++) {
		const struct job_event *event = &job->events[e];

		b->outside += event->kind == JOB_CHARGE ? event->bytes : 0;
		b->outside -= event->kind == JOB_RELEASE ? event->bytes : 0;
		for (uint32_t i = 0; event->kind == JOB_GONE && i < event->n; i++)
			belady_forget(b, each * job->named[event->from + i].piece);
		if ((event->kind == JOB_DIED || event->kind == JOB_ENDED) && event->tensor != REPLAY_NONE)
			belady_forget(b, 2 * event->tensor + 1);
		if (event->kind != JOB_LAUNCH)
			continue;
		b->counts = launches++ >= steps->from;
		belady_submit(b, names_of(job, event), (uint32_t)e);
	}
}

bool replay_belady(const struct job *job, uint64_t budget, const struct replay_steps *steps,
		   struct replay_point *ret_point)
{
	struct belady b;
	size_t n = 0, items = job->n_pieces > job->n_tensors ? job->n_pieces : job->n_tensors;

	for (size_t e = 0; e < job->n_events; e++)
		n += job->events[e].kind == JOB_LAUNCH ? names_of(job, &job->events[e]).n : 0;
	bool ok = belady_start(&b, job->model->n_births ? 2 * items : items, n);
	if (ok) {
		look_ahead(&b, job);
		belady_rewind(&b, budget);
		curve_walk(&b, job, steps);
		*ret_point = (struct replay_point){.budget = budget,
						   .bytes_in = (double)b.in / steps->n,
						   .bytes_out = (double)b.out / steps->n,
						   .over = b.over};
	}
	belady_end(&b);
	return ok;
}

/* ---- the limit ---- */

/* What launches need, in their order: twice the number of a piece, or twice that of a tensor plus 1. */
struct needs {
	const struct job *job;
	uint32_t *items;
	uint32_t *n_of;   /* by launch */
	uint64_t *launch; /* by piece: the last one that named it, from 1 */
	size_t n, room;
};

static bool needs_add(struct needs *needs, uint32_t item, uint64_t launch)
{
	if (!grow(&needs->items, needs->n, &needs->room, sizeof(*needs->items)))
		return false;
	needs->items[needs->n++] = item;
	needs->n_of[launch - 1]++;
	return true;
}

/*
 * Returns whether the launch names all pieces of the tensor: in `exact` what lies before a pointer need not be there.
 */
static bool is_whole(const struct needs *needs, uint32_t tensor, uint64_t launch)
{
	const struct job *job = needs->job;
	uint64_t unit = job->tensor_begin[tensor] / JOB_UNIT,
		 last = (job->tensor_begin[tensor] + job->tensor_bytes[tensor] - 1) / JOB_UNIT;

	while (unit <= last) {
		uint32_t piece = unit < job->n_units ? job->piece_at[unit] : REPLAY_NONE;

		if (piece == REPLAY_NONE || needs->launch[piece] != launch)
			return false;
		unit = (uint64_t)job->unit_of[piece] + job->units[piece];
	}
	return true;
}

static bool needs_of_launch(struct needs *needs, const struct job_event *event, uint64_t launch)
{
	const struct job *job = needs->job;
	bool all = !job->model->n_births;

	for (uint32_t i = 0; i < event->n; i++) {
		uint32_t piece = job->named[event->from + i].piece;

		needs->launch[piece] = launch;
		if (all && !needs_add(needs, 2 * piece, launch))
			return false;
	}
	for (uint32_t i = 0; i < event->n_tensors; i++) {
		uint32_t item = job->tensors[event->tensors + i];

		if ((item % 2 == 0 || is_whole(needs, item / 2, launch)) && !needs_add(needs, item, launch))
			return false;
	}
	return true;
}

static bool needs_find(struct needs *needs, const struct job *job)
{
	uint64_t launches = 0;

	*needs = (struct needs){.job = job,
				.n_of = calloc(job->n_launches + 1, sizeof(*needs->n_of)),
				.launch = calloc((size_t)job->n_pieces + 1, sizeof(*needs->launch))};
	for (size_t e = 0; e < job->n_events; e++)
		if (!needs->n_of || !needs->launch ||
		    (job->events[e].kind == JOB_LAUNCH && !needs_of_launch(needs, &job->events[e], ++launches)))
			return false;
	return true;
}

/* Pieces whose contents end here: they are freed, or an allocator reports from now on what of them is alive. */
static void limit_forget(struct belady *b, const struct job *job, const struct job_event *event,
			 void (*forget)(struct belady *b, uint32_t item))
{
	for (uint32_t i = 0; event->kind == JOB_GONE && i < event->n; i++)
		forget(b, 2 * job->named[event->from + i].piece);
	for (uint64_t unit = event->from / JOB_UNIT;
	     event->kind == JOB_KEPT && unit < (event->from + event->bytes) / JOB_UNIT; unit++)
		forget(b, 2 * job->piece_at[unit]);
}

static void limit_look_ahead(struct belady *b, const struct needs *needs)
{
	const struct job *job = needs->job;
	uint64_t launch = job->n_launches;
	size_t at = needs->n;

	for (uint32_t piece = 0; piece < job->n_pieces; piece++)
		b->bytes[2 * piece] = job->units[piece] * JOB_UNIT;
	for (size_t i = 0; i < job->n_tensors; i++)
		b->bytes[2 * i + 1] = job->tensor_bytes[i];
	for (size_t e = job->n_events; e-- > 0;) {
		limit_forget(b, job, &job->events[e], belady_forget_ahead);
		if (job->events[e].kind != JOB_LAUNCH)
			continue;
		at -= needs->n_of[--launch];
		belady_look_ahead(b, (struct belady_names){needs->items + at, needs->n_of[launch], 1}, (uint32_t)e);
	}
}

/*
 * room: the most that can be on the device. What is there may stay when memory outside the heap grows, but nothing is
 * added to it beyond the budget.
 */
static void limit_walk(struct belady *b, const struct needs *needs, uint64_t budget, uint64_t from)
{
	const struct job *job = needs->job;
	uint64_t launch = 0, heap = 0, room = 0;
	size_t at = 0;

	for (size_t e = 0; e < job->n_events; e++) {
		const struct job_event *event = &job->events[e];

		b->outside += event->kind == JOB_CHARGE ? event->bytes : 0;
		b->outside -= event->kind == JOB_RELEASE ? event->bytes : 0;
		for (uint32_t i = 0; (event->kind == JOB_NEW || event->kind == JOB_GONE) && i < event->n; i++) {
			uint64_t bytes = job->units[job->named[event->from + i].piece] * JOB_UNIT;

			heap += event->kind == JOB_NEW ? bytes : -bytes;
		}
		room = b->outside < budget && budget - b->outside > room ? budget - b->outside : room;
		room = room < heap ? room : heap;
		limit_forget(b, job, event, belady_forget);
		if (event->kind != JOB_LAUNCH)
			continue;
		b->counts = launch >= from;
		b->budget = b->counts || launch + 1 == from ? room : UINT64_MAX;
		belady_carry(b, (struct belady_names){needs->items + at, needs->n_of[launch], 1});
		at += needs->n_of[launch++];
	}
}

bool replay_limit(const struct job *job, const struct run_setting *setting, const struct run_result *result,
		  double *ret_ms)
{
	const struct replay_steps *steps = &setting->steps;
	size_t items = 2 * (job->n_pieces > job->n_tensors ? job->n_pieces : job->n_tensors);
	struct needs needs;
	struct belady b = {0};
	bool ok = needs_find(&needs, job) && belady_start(&b, items, needs.n);

	if (ok) {
		limit_look_ahead(&b, &needs);
		belady_rewind(&b, UINT64_MAX);
		limit_walk(&b, &needs, setting->budget, steps->from);
		double least = (double)b.in / steps->n;
		double link = (least - result->bytes_there) / (setting->costs.gb_per_s * 1e6);
		double own = setting->costs.launch_us / 1e3 * (double)(job->n_launches - steps->from) / steps->n;
		*ret_ms = link > own ? link : own;
	}
	belady_end(&b);
	FREE_ALL(needs.items, needs.n_of, needs.launch);
	return ok;
}
