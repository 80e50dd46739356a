/*
 * A pass from behind finds for each name the next one of the same piece; a pass from the front keeps what is on the device
 * in a heap by next use, whose stale entries are dropped when they come up. First uses bring nothing in: nothing was
 * written yet. What is freed leaves without a copy.
 */
#include "tools/replay/replay_curve.h"

#include <stdlib.h>
#include <string.h>

#define NEVER UINT32_MAX

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
