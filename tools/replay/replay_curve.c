/*
 * The curve of the least moves by budget, by Belady's rule (belady.h) on pieces.
 */
#include "tools/common/belady.h"
#include "tools/replay/replay_curve.h"

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

bool replay_curve(const struct replay_model *model, const struct policy *policy, const uint64_t *budgets, size_t n,
		  struct replay_point *ret_points)
{
	struct job_setting setting = {.policy = policy};
	struct replay_steps steps = {0};
	struct job *job = NULL;
	bool ok = model->n_launches != 0;

	for (size_t i = 0; i < n && ok; i++) {
		setting.budget = budgets[i];
		/* Most budgets cut the job in the same way, so that the job is reused. */
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
