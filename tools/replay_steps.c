#include "tools/replay_steps.h"

#include <stdlib.h>

#include "shim/spill/predict.h"

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The most frequent of n numbers, the larger of equals; 0 is none of them. */
static uint64_t most_frequent(uint64_t *numbers, size_t n)
{
	uint64_t found = 0;
	size_t most = 0;

	qsort(numbers, n, sizeof(*numbers), by_size);
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
 * How far back the program stands in its past, most of the time in its second half. What repeats itself after more than
 * half of all is no step: that a long job whose steps differ has once done almost the same before tells nothing of them.
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
	free(pieces);
	free(back);
	return period;
}

/* Only submissions that name something are noted: how many submissions are so many of those, counted from the end? */
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
 * ---- how many steps a period is ----
 *
 * What comes again may be several steps: free lists take turns, or one batch in seven is different. They are the same
 * work, so almost every function is called as often in each, and one that is called once in each comes at even distances.
 * (The layers of a network are no steps: what it does before and behind them, it does once.)
 */
#define STEPS_MOST 64

struct call {
	uint64_t function, at;
};

static int by_function(const void *a, const void *b)
{
	const struct call *x = a, *y = b;

	if (x->function != y->function)
		return x->function < y->function ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

/* Is the longest way from one of these calls to the next, round the period, hardly longer than the shortest? */
static bool is_even(const struct call *calls, size_t n, uint64_t period)
{
	uint64_t least = UINT64_MAX, most = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t way = i + 1 < n ? calls[i + 1].at - calls[i].at : calls[0].at + period - calls[i].at;

		least = way < least ? way : least;
		most = way > most ? way : most;
	}
	return most <= least + least / 4;
}

/* Calls in order of their functions: are they those of n steps? */
static bool are_steps(const struct call *calls, uint64_t period, unsigned n)
{
	uint64_t functions = 0, fit = 0;
	bool even = false;

	for (size_t from = 0, to; from < period; from = to) {
		for (to = from + 1; to < period && calls[to].function == calls[from].function; to++)
			;
		functions++;
		fit += (to - from) % n == 0;
		even = even || (to - from == n && is_even(calls + from, n, period));
	}
	return even && fit * 10 >= functions * 9;
}

static unsigned steps_in(const struct job *job, uint64_t period)
{
	struct call *calls = malloc((size_t)period * sizeof(*calls));
	uint64_t n = period;
	unsigned found = 1;

	for (size_t i = job->n_events; calls && n && i-- > 0;)
		if (job->events[i].kind == JOB_LAUNCH) {
			n--;
			calls[n] = (struct call){job->events[i].function, n};
		}
	if (calls && !n) {
		qsort(calls, (size_t)period, sizeof(*calls), by_function);
		for (found = STEPS_MOST; found > 1 && !are_steps(calls, period, found); found--)
			;
	}
	free(calls);
	return found;
}

struct replay_steps replay_find_steps(const struct job *job, uint64_t most)
{
	struct replay_steps steps = {.n = 1};
	uint64_t period = count_back(job, period_of(job)), half = job->n_launches / 2;

	if (!period || job->n_launches < 2 * period)
		return steps;
	unsigned in_one = steps_in(job, period);
	uint64_t wanted = in_one < most ? most / in_one : 1;
	uint64_t n = half / period < 1 ? 1 : half / period > wanted ? wanted : half / period;
	steps.period = period / in_one;
	steps.n = (double)(n * in_one);
	steps.from = job->n_launches - n * period;
	return steps;
}

double replay_step_ms(const struct job *job, const struct replay_steps *steps)
{
	const struct replay_model *model = job->model;
	uint64_t launches = 0, first = 0, last = 0;

	if (!model->timed || !job->n_launches)
		return 0;
	for (size_t i = 0; i < job->n_events; i++)
		if (job->events[i].kind == JOB_LAUNCH) {
			last = model->events[job->events[i].event].time;
			if (launches++ <= steps->from)
				first = last;
		}
	/* From the first submission that counts to the last of all is one submission less than the steps. */
	double n = (double)(launches - steps->from);
	return n < 2 ? 0 : (double)(last - first) / 1e6 * n / (n - 1) / steps->n;
}
