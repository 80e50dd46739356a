/*
 * What the program's allocator reports, while a job is cut: follows what is alive, so that a pointer means the tensor that
 * it lies in, as for the mover (shim/mover/intake.c), and numbers the tensors for Belady's rule (replay_limit.c).
 *
 * The ranges of live_map.h do not depend on what has completed; only whether a death counts already does. So the
 * simulated run has the same ranges at the same place of the job, and what launches bring back to life is found here.
 */
#include "tools/replay/replay_cut.h"
#include "shim/plan/plan.h"
#include "tools/common/grow.h"

#include <string.h>

static const struct live_report no_report;

bool parts_begin(struct building *b)
{
	const struct replay_model *model = b->job->model;
	uint64_t units = 0;

	if (!model->n_births)
		return true;
	/* Each block has at most units of its own, and a slab has those of its first block. */
	for (size_t i = 0; i < model->n_blocks; i++)
		units += model->blocks[i].bytes / JOB_UNIT + 1;
	b->map = live_map_new((units < PLAN_PIECES ? units : PLAN_PIECES) * JOB_UNIT);
	return b->map != NULL;
}

/* ---- tensors ---- */

/* Gives a range that has come to life its number. */
static bool tensor_new(struct building *b, struct live_range range)
{
	struct job *job = b->job;

	if (job->n_tensors >= UINT32_MAX / 4 ||
	    !grow(&job->tensor_bytes, job->n_tensors, &b->room_tensors, sizeof(*job->tensor_bytes)) ||
	    !grow(&job->tensor_begin, job->n_tensors, &b->room_tensor_begins, sizeof(*job->tensor_begin)) ||
	    !grow(&b->tensor_stamp, job->n_tensors, &b->room_tensor_stamps, sizeof(*b->tensor_stamp)))
		return false;
	job->tensor_bytes[job->n_tensors] = range.end - range.begin;
	job->tensor_begin[job->n_tensors] = range.begin;
	b->tensor_stamp[job->n_tensors] = 0;
	return number_map_set(&b->tensor_from, range.begin, ++job->n_tensors);
}

/* Returns the tensor that begins here and forgets it; REPLAY_NONE: none is known. */
static bool tensor_end(struct building *b, uint64_t begin, uint32_t *ret_tensor)
{
	uint64_t number;

	*ret_tensor = REPLAY_NONE;
	if (!number_map_get(&b->tensor_from, begin, &number) || !number)
		return true;
	*ret_tensor = (uint32_t)number - 1;
	return number_map_set(&b->tensor_from, begin, 0);
}

static bool add_named(struct building *b, uint32_t what, struct job_event *launch)
{
	struct job *job = b->job;

	if (!grow(&job->tensors, job->n_tensors_named, &b->room_tensors_named, sizeof(*job->tensors)))
		return false;
	job->tensors[job->n_tensors_named++] = what;
	launch->n_tensors++;
	return true;
}

/* The launch names this range. */
static bool tensor_name(struct building *b, struct live_range range, struct job_event *launch)
{
	uint64_t number;
	/* What was brought to life with all that was dead behind it is less when it is named again. */
	bool known = number_map_get(&b->tensor_from, range.begin, &number) && number &&
		     b->job->tensor_bytes[number - 1] == range.end - range.begin;

	if (!known && !tensor_new(b, range))
		return false;
	if (!number_map_get(&b->tensor_from, range.begin, &number) || b->tensor_stamp[number - 1] == b->launches)
		return true;
	b->tensor_stamp[number - 1] = b->launches;
	return add_named(b, 2 * (uint32_t)(number - 1) + 1, launch);
}

/* ---- what is reported ---- */

/* All tensors in these bytes end: others take their place, or they are not an allocator's any more. */
static bool end_all(struct building *b, uint64_t begin, uint64_t end, struct job_event event)
{
	struct live_range range;

	event.kind = JOB_ENDED;
	for (uint64_t at = begin; at < end; at = range.end) {
		if (!live_map_find(b->map, at, &range)) {
			range.end = (at / JOB_UNIT + 1) * JOB_UNIT;
			continue;
		}
		if (!tensor_end(b, range.begin, &event.tensor))
			return false;
		event.from = range.begin;
		event.bytes = range.end - range.begin;
		if (event.tensor != REPLAY_NONE && !cut_add_event(b, &event))
			return false;
	}
	return true;
}

static bool doubt_all(struct building *b, struct job_event event)
{
	if (!end_all(b, 0, b->job->n_units * JOB_UNIT, event))
		return false;
	event.kind = JOB_ALL_DOUBTED;
	live_map_distrust_reported(b->map);
	return cut_add_event(b, &event);
}

bool parts_event(struct building *b, const struct replay_event *reported, uint32_t at)
{
	static const enum job_kind kinds[] = {[REPLAY_KEPT] = JOB_KEPT,
					      [REPLAY_BORN] = JOB_BORN,
					      [REPLAY_DIED] = JOB_DIED,
					      [REPLAY_DOUBTED] = JOB_DOUBTED};
	const struct replay_part *part = &b->job->model->parts[reported->which];
	struct job_event event = {.kind = kinds[reported->kind],
				  .block = REPLAY_NONE,
				  .event = at,
				  .rule = -1,
				  .thread = reported->thread,
				  .tensor = REPLAY_NONE};

	if (!b->map)
		return true;
	if (part->block == REPLAY_NONE)
		return part->offset != b->setting->device || doubt_all(b, event);
	const struct life *life = &b->lives[part->block];
	if (life->use != POLICY_USE_HEAP || life->slab != REPLAY_NONE || life->unit == REPLAY_NONE)
		return true;
	uint64_t begin = life->unit * JOB_UNIT + part->offset, end = begin + part->bytes;

	switch (event.kind) {
	case JOB_KEPT:
	case JOB_DOUBTED:
		begin = begin / JOB_UNIT * JOB_UNIT;
		end = (end + JOB_UNIT - 1) / JOB_UNIT * JOB_UNIT;
		if (!end_all(b, begin, end, event))
			return false;
		if (event.kind == JOB_KEPT)
			live_map_report(b->map, begin, end);
		else
			live_map_distrust(b->map, begin, end);
		break;
	case JOB_BORN:
		if (!end_all(b, begin, end, event))
			return false;
		if (!live_map_birth(b->map, begin, end, no_report))
			return false;
		if (live_map_is_reported(b->map, begin) && !tensor_new(b, (struct live_range){begin, end}))
			return false;
		break;
	default:
		live_map_death(b->map, begin, end, no_report);
		if (!tensor_end(b, begin, &event.tensor))
			return false;
	}
	event.from = begin;
	event.bytes = end - begin;
	return cut_add_event(b, &event);
}

bool parts_gone(struct building *b, const struct life *life, const struct job_event *like)
{
	uint64_t begin = life->unit * JOB_UNIT, end = begin + life->units * JOB_UNIT;

	if (!b->map || life->unit == REPLAY_NONE)
		return true;
	struct job_event event = {.block = REPLAY_NONE, .event = like->event, .rule = -1};
	if (!end_all(b, begin, end, event))
		return false;
	live_map_forget(b->map, begin, end);
	return true;
}

/* ---- names ---- */

bool parts_name(struct building *b, const struct life *life, uint64_t offset, uint64_t bytes, struct job_event *launch,
		struct live_range *ret_first, bool *ret_known)
{
	uint64_t begin = life->unit * JOB_UNIT, at = begin + offset, end = at + (bytes ? bytes : 1);
	uint64_t all = begin + life->units * JOB_UNIT;
	struct live_range range;
	bool revived;

	*ret_known = false;
	if (!b->map || life->slab != REPLAY_NONE || life->unit == REPLAY_NONE)
		return true;
	*ret_known = live_map_find(b->map, at, ret_first);
	if (*ret_known) {
		ret_first->begin = (ret_first->begin > begin ? ret_first->begin : begin) - begin;
		ret_first->end = (ret_first->end < all ? ret_first->end : all) - begin;
	}
	while (at < end && at < all) {
		if (!live_map_name(b->map, at, &range, &revived)) {
			at = (at / JOB_UNIT + 1) * JOB_UNIT;
			continue;
		}
		struct job_event event = {.kind = JOB_REVIVED,
					  .from = at,
					  .bytes = range.end - at,
					  .block = REPLAY_NONE,
					  .event = launch->event,
					  .rule = -1,
					  .tensor = REPLAY_NONE};
		if ((revived && !cut_add_event(b, &event)) || !tensor_name(b, range, launch))
			return false;
		at = range.end;
	}
	return true;
}

static bool is_reported(const struct building *b, uint32_t piece)
{
	uint32_t unit = b->job->unit_of[piece], end = unit + b->job->units[piece];

	for (; unit < end; unit++)
		if (live_map_is_reported(b->map, unit * JOB_UNIT))
			return true;
	return false;
}

bool parts_name_rest(struct building *b, struct job_event *launch)
{
	const struct job *job = b->job;

	for (uint32_t i = 0; b->map && i < launch->n; i++) {
		uint32_t piece = job->named[launch->from + i].piece;

		if ((job->unit_of[piece] == REPLAY_NONE || !is_reported(b, piece)) && !add_named(b, 2 * piece, launch))
			return false;
	}
	return true;
}

void parts_end(struct building *b)
{
	live_map_free(b->map);
	number_map_free(&b->tensor_from);
}
