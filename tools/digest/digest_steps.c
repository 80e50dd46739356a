/*
 * Finds steps by the rule of `spillway replay` (replay_steps.h), so that both commands count the same steps.
 */
#include "tools/digest/digest_part.h"
#include "tools/common/grow.h"

#include "tools/replay/replay_model.h"
#include "tools/replay/replay_steps.h"

#include <errno.h>
#include <stdlib.h>

struct finder {
	struct digest *digest;
	const struct replay_model *model;
	size_t room;
};

static bool steps_add(struct finder *finder, const struct digest_step *step)
{
	struct digest *digest = finder->digest;

	if (!grow(&digest->steps, digest->n_steps, &finder->room, sizeof(*digest->steps)))
		return false;
	digest->steps[digest->n_steps++] = *step;
	return true;
}

/* Finds the steps of one device. A step ends where the next one begins; the duration of the last one is not known. */
static bool find_on(struct finder *finder, uint32_t device)
{
	const struct trace *trace = finder->digest->trace;
	size_t first = finder->digest->n_steps;
	struct replay_steps steps;
	uint64_t launch = 0;

	if (!replay_steps_of(finder->model, device, REPLAY_STEPS, &steps))
		return false;
	for (size_t i = 0; steps.period && i < trace->n_rows; i++) {
		const struct trace_event *event = &trace->rows[i].event;
		struct digest_step step = {.device = device};

		if (event->kind != TRACE_submit)
			continue;
		step.time = digest_since(finder->digest, event->time);
		if (event->submit.device == device && replay_step_begins(&steps, launch, event->submit.function)) {
			if (finder->digest->n_steps > first) {
				struct digest_step *before = &finder->digest->steps[finder->digest->n_steps - 1];

				before->ns = step.time - before->time;
			}
			if (!steps_add(finder, &step))
				return false;
		}
		if (event->submit.device == device && finder->digest->n_steps > first)
			finder->digest->steps[finder->digest->n_steps - 1].submissions++;
		launch++;
	}
	return true;
}

static int by_time(const void *a, const void *b)
{
	const struct digest_step *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return (x->device > y->device) - (x->device < y->device);
}

bool digest_steps_find(struct digest *digest)
{
	struct replay_model model;
	struct finder finder = {.digest = digest, .model = &model};
	bool good = true;
	int status;

	if (!digest->n_events[TRACE_submit] || !digest->trace->n_blocks)
		return true;
	status = replay_model_take(&model, digest->trace);
	for (uint32_t device = 0; !status && good && device < REPLAY_DEVICES; device++)
		if (digest->devices[device].seen)
			good = find_on(&finder, device);
	/* A trace without allocations that can be simulated has no steps; this is not a failure. */
	good &= status != -ENOMEM;
	replay_model_free(&model);
	if (digest->n_steps)
		qsort(digest->steps, digest->n_steps, sizeof(*digest->steps), by_time);
	return good;
}
