// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the period at which a job repeats, and how many steps the period has.
 */
#include "tools/replay/replay_job.h"
#include "tools/common/grow.h"

#include <stdlib.h>
#include <string.h>

#include "shim/plan/predict.h"

/* Returns the most frequent of n numbers, the larger one of equals; 0 is not counted. */
static uint64_t most_frequent(uint64_t *numbers, size_t n)
{
	uint64_t found = 0;
	size_t most = 0;

	qsort(numbers, n, sizeof(*numbers), by_number);
	for (size_t from = 0, to; from < n; from = to) {
		for (to = from + 1; to < n && numbers[to] == numbers[from]; to++)
			;
		if (numbers[from] && to - from >= most) {
			most = to - from;
			found = numbers[from];
		}
	}
	return found;
}

/*
 * Returns the distance to the past position that the prediction mostly matches in the second half of the job. A
 * distance of more than half of the job is not a step: a long job with differing steps may once have done almost the
 * same before, which says nothing about its steps.
 */
static uint64_t period_of(const struct job *job)
{
	struct predict *predict = predict_new();
	uint64_t period = 0, *back = malloc((job->n_launches + 1) * sizeof(*back));
	uint32_t *pieces = malloc(((size_t)job->n_pieces + 1) * sizeof(*pieces));
	size_t n = 0;

	for (size_t i = 0; predict && pieces && back && i < job->n_events; i++) {
		const struct job_event *event = &job->events[i];

		if (event->kind != JOB_LAUNCH || !event->n)
			continue;
		for (uint32_t k = 0; k < event->n; k++)
			pieces[k] = job->named[event->from + k].piece;
		predict_note(predict, event->function, pieces, event->n);
		back[n++] = predict_at(predict) != PREDICT_NONE ? predict_now(predict) - predict_at(predict) : 0;
	}
	for (size_t i = n / 2; i < n; i++)
		if (back[i] > n / 2)
			back[i] = 0;
	if (n)
		period = most_frequent(back + n / 2, n - n / 2);
	predict_free(predict);
	FREE_ALL(pieces, back);
	return period;
}

/*
 * Only submissions that name something are recorded. Returns how many submissions correspond to `noted` of those,
 * counted from the end.
 */
static uint64_t count_back(const struct job *job, uint64_t noted)
{
	uint64_t all = 0;

	for (size_t i = job->n_events; i-- > 0 && noted;)
		if (job->events[i].kind == JOB_LAUNCH) {
			all++;
			noted -= job->events[i].n != 0;
		}
	return all;
}

/*
 * ---- number of steps in a period ----
 *
 * A period may have several steps: free lists take turns, one batch in seven is different, an average is computed in
 * every tenth step. These steps do the same work, so nearly every function is called equally often in each of them,
 * and a function that is called once per step is called at even distances.
 *
 * The layers of a network look similar to steps. Two properties distinguish them. What a network does before and after
 * its layers is done once, so fewer functions can be shared out evenly. And layers use memory of their own, while a
 * step uses the memory of the step before.
 */
#define STEPS_MOST 64

struct call {
	uint64_t function, at; /* at: its position in the period */
	uint64_t place;        /* its position, not counting calls of functions that cannot be shared out evenly */
	const struct job_event *event;
};

struct seen {
	uint32_t part, times; /* the last part that named it, from 1; the number of parts that did */
};

struct parts {
	const struct job *job;
	struct call *calls; /* of one period, sorted by function */
	uint64_t period;
	const struct job_event *end; /* end of the period */
	struct seen *seen;           /* by piece */
};

static int by_function(const void *a, const void *b)
{
	const struct call *x = a, *y = b;

	return ORDER(x->function, y->function) ?: ORDER(x->at, y->at);
}

static int by_place(const void *a, const void *b)
{
	const struct call *x = a, *y = b;

	return (x->at > y->at) - (x->at < y->at);
}

/* Returns the end of the range of calls with the same function as the one at `from`. */
static uint64_t run_end(const struct parts *parts, uint64_t from)
{
	uint64_t to = from + 1;

	while (to < parts->period && parts->calls[to].function == parts->calls[from].function)
		to++;
	return to;
}

/*
 * Returns whether the longest distance between consecutive calls, around the period, is hardly longer than the
 * shortest.
 */
static bool is_even(const struct call *calls, uint64_t n, uint64_t period, bool by_places)
{
	uint64_t least = UINT64_MAX, most = 0;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t here = by_places ? calls[i].place : calls[i].at;
		uint64_t next = i + 1 < n ? by_places ? calls[i + 1].place : calls[i + 1].at
					  : (by_places ? calls[0].place : calls[0].at) + period;

		least = next - here < least ? next - here : least;
		most = next - here > most ? next - here : most;
	}
	return most <= least + least / 4;
}

struct shares {
	uint64_t functions, even_functions, even_calls;
};

/* Returns how much of the period can be shared out evenly among n steps. */
static struct shares share_out(const struct parts *parts, unsigned n)
{
	struct shares shares = {0};

	for (uint64_t from = 0, to; from < parts->period; from = to) {
		to = run_end(parts, from);
		shares.functions++;
		if ((to - from) % n)
			continue;
		shares.even_functions++;
		shares.even_calls += to - from;
	}
	return shares;
}

/* Numbers, in the order of their times, the calls of functions that n steps share evenly. */
static void number_places(const struct parts *parts, unsigned n)
{
	uint64_t place = 0;

	for (uint64_t from = 0, to; from < parts->period; from = to) {
		to = run_end(parts, from);
		for (uint64_t i = from; i < to; i++)
			parts->calls[i].place = (to - from) % n == 0;
	}
	qsort(parts->calls, parts->period, sizeof(*parts->calls), by_place);
	for (uint64_t i = 0; i < parts->period; i++) {
		bool counts = parts->calls[i].place;

		parts->calls[i].place = place;
		place += counts;
	}
	qsort(parts->calls, parts->period, sizeof(*parts->calls), by_function);
}

/*
 * Returns the first call of a function that is called once in each of n steps, at even distances; NULL if there is
 * none. Of several functions, the one that the whole job calls least often is chosen, because it is the least likely
 * to be called outside steps.
 */
static const struct call *find_marker(const struct parts *parts, unsigned n, uint64_t period, bool by_places)
{
	const struct call *found = NULL;
	uint64_t least = UINT64_MAX;

	for (uint64_t from = 0, to; from < parts->period; from = to) {
		uint64_t calls = 0;

		to = run_end(parts, from);
		if (to - from != n || !is_even(parts->calls + from, n, period, by_places))
			continue;
		for (size_t i = 0; i < parts->job->n_events; i++)
			calls += parts->job->events[i].kind == JOB_LAUNCH &&
				 parts->job->events[i].function == parts->calls[from].function;
		/* A function that the job calls once at its end does not begin a step. */
		if (calls * parts->period * 2 < parts->job->n_launches * n)
			continue;
		if (calls > least || (calls == least && parts->calls[from].at > found->at))
			continue;
		least = calls;
		found = &parts->calls[from];
	}
	return found;
}

/*
 * Returns whether at least half of the memory named between the first call of the marker and the end of the period is
 * named in most of its n parts. A part that begins in the middle of a layer shares memory only with its neighbours.
 */
static bool use_same_memory(const struct parts *parts, const struct call *marker, unsigned n)
{
	uint64_t all = 0, common = 0;
	uint32_t part = 0;

	memset(parts->seen, 0, parts->job->n_pieces * sizeof(*parts->seen));
	for (const struct job_event *event = marker->event; event < parts->end; event++) {
		if (event->kind != JOB_LAUNCH)
			continue;
		part += event->function == marker->function;
		for (uint32_t i = 0; i < event->n; i++) {
			uint32_t piece = parts->job->named[event->from + i].piece;
			struct seen *seen = &parts->seen[piece];

			if (seen->part == part)
				continue;
			all += seen->times ? 0 : parts->job->units[piece];
			seen->part = part;
			if (++seen->times == n / 2 + 1)
				common += parts->job->units[piece];
		}
	}
	return all && common * 2 >= all;
}

/* Returns the call with which a step begins if the period has n steps; otherwise NULL. */
static const struct call *are_steps(const struct parts *parts, unsigned n)
{
	struct shares shares = share_out(parts, n);
	const struct call *marker;

	if (shares.even_functions * 10 >= shares.functions * 9) {
		marker = find_marker(parts, n, parts->period, false);
		if (marker)
			return marker;
	}
	/*
	 * Some steps do more than others, for example when they print: the additional calls are not counted in the
	 * distances.
	 */
	if (shares.even_functions * 4 < shares.functions * 3 || shares.even_calls * 10 < parts->period * 9)
		return NULL;
	number_places(parts, n);
	marker = find_marker(parts, n, shares.even_calls, true);
	return marker && use_same_memory(parts, marker, n) ? marker : NULL;
}

/*
 * Collects the calls of one period that ends `behind` submissions before the end of the job. Returns false if there
 * are not enough submissions.
 */
static bool take_calls(struct parts *parts, uint64_t behind)
{
	uint64_t n = parts->period;

	for (size_t i = parts->job->n_events; n && i-- > 0;) {
		const struct job_event *event = &parts->job->events[i];

		if (event->kind != JOB_LAUNCH)
			continue;
		parts->end = behind ? event : parts->end;
		if (behind) {
			behind--;
			continue;
		}
		n--;
		parts->calls[n] = (struct call){.function = event->function, .at = n, .event = event};
	}
	qsort(parts->calls, (size_t)parts->period, sizeof(*parts->calls), by_function);
	return !n;
}

/*
 * Returns the number of steps in a period, and what each begins with. Work at the end of a job, such as a last
 * evaluation, belongs to no period. So several periods are examined, each ending a quarter of a period earlier than
 * the one before, and the one with the most steps decides.
 */
static unsigned steps_in(const struct job *job, uint64_t period, struct replay_steps *steps)
{
	struct parts parts = {.job = job, .period = period};
	unsigned most = 0;

	parts.calls = malloc((size_t)period * sizeof(*parts.calls));
	parts.seen = malloc(((size_t)job->n_pieces + 1) * sizeof(*parts.seen));
	for (unsigned quarter = 0; parts.calls && parts.seen && quarter <= 4; quarter++) {
		const struct call *marker = NULL;
		unsigned found = STEPS_MOST;

		parts.end = job->events + job->n_events;
		if (!take_calls(&parts, quarter * period / 4))
			break;
		while (found > most && !(marker = are_steps(&parts, found)))
			found--;
		if (!marker)
			continue;
		most = found;
		steps->marked = true;
		steps->marker = marker->function;
	}
	FREE_ALL(parts.calls, parts.seen);
	return most ? most : 1;
}

struct replay_steps replay_find_steps(const struct job *job, uint64_t most)
{
	struct replay_steps steps = {.n = 1};
	uint64_t period = count_back(job, period_of(job)), half = job->n_launches / 2;

	if (!period || job->n_launches < 2 * period)
		return steps;
	unsigned in_one = steps_in(job, period, &steps);
	uint64_t wanted = in_one < most ? most / in_one : 1;
	uint64_t n = half / period < 1 ? 1 : half / period > wanted ? wanted : half / period;
	steps.period = period / in_one;
	steps.n = (double)(n * in_one);
	steps.from = job->n_launches - n * period;
	return steps;
}

bool replay_steps_of(const struct replay_model *model, uint32_t device, uint64_t most, struct replay_steps *ret_steps)
{
	struct job *job = job_new(model, &(struct job_setting){.budget = UINT64_C(1) << 50, .device = device});

	if (!job)
		return false;
	*ret_steps = replay_find_steps(job, most);
	job_free(job);
	return true;
}

bool replay_step_begins(const struct replay_steps *steps, uint64_t launch, uint64_t function)
{
	if (!steps->period)
		return false;
	if (steps->marked)
		return function == steps->marker;
	return launch % steps->period == steps->from % steps->period;
}

double replay_step_ms(const struct job *job, const struct replay_steps *steps)
{
	const struct replay_model *model = job->model;
	uint64_t launches = 0, first = 0, last = 0;

	if (model->spilled || !job->n_launches)
		return 0;
	for (size_t i = 0; i < job->n_events; i++)
		if (job->events[i].kind == JOB_LAUNCH) {
			last = model->events[job->events[i].event].time;
			if (launches++ <= steps->from)
				first = last;
		}
	/* The distance from the first submission that counts to the last one is one submission less than the steps. */
	double n = (double)(launches - steps->from);
	return n < 2 ? 0 : (double)(last - first) / 1e6 * n / (n - 1) / steps->n;
}
