/*
 * A pass from behind finds for each name the next one of the same piece; a pass from the front keeps what is on the device
 * in a heap by next use, whose stale entries are dropped when they come up. First uses bring nothing in: nothing was
 * written yet. What is freed leaves without a copy.
 */
#include "tools/replay_curve.h"

#include <stdlib.h>
#include <string.h>

#include "shim/spill/predict.h"

#define NEVER UINT32_MAX

/* ---- steps ---- */

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

/* ---- Belady ---- */

struct entry {
	uint32_t next, piece;
};

struct belady {
	const struct job *job;
	uint32_t *next;   /* by name, in the order of the events */
	uint32_t *use;    /* by piece: the event that names it next; NEVER */
	uint8_t *here;    /* by piece */
	uint8_t *written; /* by piece: there is something to bring in */
	uint32_t *stamp;  /* by piece: the event that named it last, plus 1 */
	struct entry *heap;
	size_t n_heap, room_heap;
	uint64_t used, outside; /* bytes */
	uint64_t in, out, over;
	bool counts;
};

static void push(struct belady *b, struct entry entry)
{
	size_t i = b->n_heap++;

	for (; i && b->heap[(i - 1) / 2].next < entry.next; i = (i - 1) / 2)
		b->heap[i] = b->heap[(i - 1) / 2];
	b->heap[i] = entry;
}

static struct entry pop(struct belady *b)
{
	struct entry top = b->heap[0], last = b->heap[--b->n_heap];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < b->n_heap) {
		if (child + 1 < b->n_heap && b->heap[child + 1].next > b->heap[child].next)
			child++;
		if (b->heap[child].next <= last.next)
			break;
		b->heap[i] = b->heap[child];
		i = child;
	}
	b->heap[i] = last;
	return top;
}

static uint64_t bytes_of(const struct belady *b, uint32_t piece)
{
	return b->job->units[piece] * JOB_UNIT;
}

static bool make_room(struct belady *b, uint64_t budget, uint64_t bytes, uint32_t event)
{
	while (b->used + b->outside + bytes > budget && b->n_heap) {
		struct entry entry = pop(b);

		if (!b->here[entry.piece] || b->use[entry.piece] != entry.next || b->stamp[entry.piece] == event + 1)
			continue;
		b->here[entry.piece] = false;
		b->used -= bytes_of(b, entry.piece);
		if (b->counts && b->written[entry.piece])
			b->out += bytes_of(b, entry.piece);
	}
	return b->used + b->outside + bytes <= budget;
}

static void launch(struct belady *b, uint64_t budget, uint32_t at, const uint32_t *next)
{
	const struct job_event *event = &b->job->events[at];
	const struct job_named *named = b->job->named + event->from;
	bool fits = true;

	for (uint32_t i = 0; i < event->n; i++)
		b->stamp[named[i].piece] = at + 1;
	for (uint32_t i = 0; i < event->n; i++) {
		uint32_t piece = named[i].piece;

		if (b->here[piece])
			continue;
		b->here[piece] = make_room(b, budget, bytes_of(b, piece), at);
		fits &= b->here[piece];
		b->used += b->here[piece] ? bytes_of(b, piece) : 0;
		if (b->counts && b->here[piece] && b->written[piece])
			b->in += bytes_of(b, piece);
	}
	b->over += b->counts && !fits;
	for (uint32_t i = 0; i < event->n; i++) {
		uint32_t piece = named[i].piece;

		b->written[piece] = true;
		b->use[piece] = next[i];
		if (b->here[piece])
			push(b, (struct entry){next[i], piece});
	}
}

static void forget(struct belady *b, const struct job_event *event)
{
	for (uint32_t i = 0; i < event->n; i++) {
		uint32_t piece = b->job->named[event->from + i].piece;

		b->used -= b->here[piece] ? bytes_of(b, piece) : 0;
		b->here[piece] = b->written[piece] = false;
	}
}

/* The next event that names each piece, for all names from behind. */
static void look_ahead(struct belady *b, size_t n)
{
	const struct job *job = b->job;

	for (size_t e = job->n_events; e-- > 0;) {
		const struct job_event *event = &job->events[e];

		if (event->kind != JOB_LAUNCH)
			continue;
		n -= event->n;
		for (uint32_t i = 0; i < event->n; i++)
			b->next[n + i] = b->use[job->named[event->from + i].piece];
		for (uint32_t i = 0; i < event->n; i++)
			b->use[job->named[event->from + i].piece] = (uint32_t)e;
	}
}

static void walk(struct belady *b, uint64_t budget, const struct replay_steps *steps)
{
	uint64_t launches = 0;
	size_t n = 0;

	for (size_t e = 0; e < b->job->n_events; e++) {
		const struct job_event *event = &b->job->events[e];

		b->outside += event->kind == JOB_CHARGE ? event->bytes : 0;
		b->outside -= event->kind == JOB_RELEASE ? event->bytes : 0;
		if (event->kind == JOB_GONE)
			forget(b, event);
		if (event->kind != JOB_LAUNCH)
			continue;
		b->counts = launches++ >= steps->from;
		launch(b, budget, (uint32_t)e, b->next + n);
		n += event->n;
	}
}

bool replay_belady(const struct job *job, uint64_t budget, const struct replay_steps *steps,
		   struct replay_point *ret_point)
{
	size_t n = 0, n_pieces = (size_t)job->n_pieces + 1;

	for (size_t e = 0; e < job->n_events; e++)
		n += job->events[e].kind == JOB_LAUNCH ? job->events[e].n : 0;
	struct belady b = {
	    .job = job,
	    .next = malloc((n + 1) * sizeof(*b.next)),
	    .use = malloc(n_pieces * sizeof(*b.use)),
	    .here = calloc(n_pieces, 1),
	    .written = calloc(n_pieces, 1),
	    .stamp = calloc(n_pieces, sizeof(*b.stamp)),
	    .heap = malloc((n + 1) * sizeof(*b.heap)), /* each name is pushed once */
	};
	bool ok = b.next && b.use && b.here && b.written && b.stamp && b.heap;

	if (ok) {
		memset(b.use, 0xff, n_pieces * sizeof(*b.use));
		look_ahead(&b, n);
		walk(&b, budget, steps);
		*ret_point = (struct replay_point){.budget = budget,
						   .bytes_in = (double)b.in / steps->n,
						   .bytes_out = (double)b.out / steps->n,
						   .over = b.over};
	}
	free(b.next);
	free(b.use);
	free(b.here);
	free(b.written);
	free(b.stamp);
	free(b.heap);
	return ok;
}

bool replay_curve(const struct replay_model *model, const struct policy *policy, const uint64_t *budgets, size_t n,
		  struct replay_point *ret_points)
{
	struct job_setting setting = {.policy = policy};
	struct replay_steps steps = {0};
	struct job *job = NULL;
	bool ok = model->n_launches != 0;

	for (size_t i = 0; i < n && ok; i++) {
		setting.budget = budgets[i];
		/* Most budgets cut alike. */
		if (job && (job->most_units != job_most_units(&setting) ||
			    (policy && policy_needs(policy) & POLICY_NEED_FREE))) {
			job_free(job);
			job = NULL;
		}
		if (!job) {
			job = job_new(model, &setting);
			ok = job != NULL;
			if (ok)
				steps = replay_find_steps(job, REPLAY_STEPS);
		}
		ok = ok && replay_belady(job, budgets[i], &steps, &ret_points[i]);
	}
	job_free(job);
	return ok;
}
