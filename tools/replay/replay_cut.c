// SPDX-License-Identifier: Apache-2.0
/*
 * Pieces and address space of blocks. Freed address space is reused by the next block of the same length, as the heap
 * reuses warm blocks. Allocations of at most 1 MiB share pieces of one unit, by size class.
 */
#include "tools/common/grow.h"
#include "tools/replay/replay_cut.h"
#include "shim/plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* A submission can name some thousand pieces. This limit, 2 GiB of names, exceeds any recorded job. */
#define NAMED_MOST ((uint64_t)1 << 28)

bool cut_add_event(struct building *b, const struct job_event *event)
{
	if (!grow(&b->job->events, b->job->n_events, &b->room_events, sizeof(*b->job->events)))
		return false;
	b->job->events[b->job->n_events++] = *event;
	return true;
}

bool cut_add_named(struct building *b, uint32_t piece, uint64_t bytes)
{
	if (b->job->n_named == NAMED_MOST ||
	    !grow(&b->job->named, b->job->n_named, &b->room_named, sizeof(*b->job->named)))
		return false;
	b->job->named[b->job->n_named++] = (struct job_named){piece, bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX};
	return true;
}

/* ---- address space and pieces ---- */

uint32_t job_most_units(const struct job_setting *setting)
{
	uint64_t units = setting->budget / PIECE_SHARE / JOB_UNIT,
		 most = setting->fast ? FAST_PIECE / JOB_UNIT : CHUNK_MOST;

	if (setting->policy) {
		struct policy_size chunk = policy_settings(setting->policy)->heap_chunk;

		if (chunk.kind == POLICY_SIZE_BYTES)
			return (uint32_t)(chunk.value / JOB_UNIT);
	}
	return units > most ? (uint32_t)most : units < PIECE_LEAST ? PIECE_LEAST : (uint32_t)units;
}

static bool add_piece(struct building *b, uint32_t units)
{
	struct job *job = b->job;
	size_t room = b->room_pieces;

	if (job->n_pieces >= PLAN_PIECES)
		return false;
	if (job->n_pieces == room) {
		size_t r1 = room, r2 = room, r3 = room;

		if (!grow(&job->units, room, &r1, sizeof(*job->units)) ||
		    !grow(&job->block_of, room, &r2, sizeof(*job->block_of)) ||
		    !grow(&job->unit_of, room, &r3, sizeof(*job->unit_of)) ||
		    !grow(&b->stamp, room, &b->room_pieces, sizeof(*b->stamp)))
			return false;
		memset(b->stamp + room, 0, (b->room_pieces - room) * sizeof(*b->stamp));
	}
	job->units[job->n_pieces++] = units;
	return true;
}

/* Gives new pieces their address space, if there is any left. */
static bool cut_take_space(struct building *b, uint32_t units, struct life *life)
{
	struct job *job = b->job;

	life->unit = job->n_units + units <= PLAN_PIECES ? job->n_units : REPLAY_NONE;
	for (uint32_t piece = life->first; piece < life->first + life->n; piece++) {
		job->unit_of[piece] = life->unit == REPLAY_NONE ? REPLAY_NONE : job->n_units;
		for (uint32_t i = 0; life->unit != REPLAY_NONE && i < job->units[piece]; i++) {
			if (!grow(&job->piece_at, job->n_units, &b->room_units, sizeof(*job->piece_at)))
				return false;
			job->piece_at[job->n_units++] = piece;
		}
	}
	return true;
}

/* Takes pieces for that many units: a freed range of that length, otherwise new ones. */
bool cut_take(struct building *b, uint32_t units, struct life *life)
{
	struct job *job = b->job;
	uint32_t most = b->setting->whole ? units : job->most_units;

	for (uint32_t *at = &b->hole_of[units % HOLES]; *at != REPLAY_NONE; at = &b->holes[*at].next) {
		const struct hole *hole = &b->holes[*at];

		if (hole->units != units)
			continue;
		life->first = hole->first;
		life->n = hole->n;
		life->unit = hole->unit;
		*at = hole->next;
		goto taken;
	}
	life->first = job->n_pieces;
	for (uint32_t left = units; left; left -= left < most ? left : most)
		if (!add_piece(b, left < most ? left : most))
			return false;
	life->n = job->n_pieces - life->first;
	if (!cut_take_space(b, units, life))
		return false;
taken:
	life->units = units;
	for (uint32_t i = 0; i < life->n; i++)
		job->block_of[life->first + i] = b->n_lives;
	b->n_lives++;
	return true;
}

bool cut_give(struct building *b, const struct life *life)
{
	if (!grow(&b->holes, b->n_holes, &b->room_holes, sizeof(*b->holes)))
		return false;
	uint32_t *first = &b->hole_of[life->units % HOLES];
	b->holes[b->n_holes] = (struct hole){life->units, life->first, life->n, life->unit, *first};
	*first = (uint32_t)b->n_holes++;
	if (life->unit != REPLAY_NONE)
		tensor_extents_forget(b->extents, life->unit);
	return true;
}

bool cut_add_pieces(struct building *b, const struct life *life, const struct job_event *like)
{
	struct job_event event = *like;

	event.from = b->job->n_named;
	event.n = life->n;
	for (uint32_t i = 0; i < life->n; i++)
		if (!cut_add_named(b, life->first + i, 0))
			return false;
	return cut_add_event(b, &event);
}

/* ---- small blocks ---- */

/* Size classes: multiples of 512 bytes up to 4 KiB, then four for each doubling. */
static unsigned class_of(uint64_t bytes, uint32_t *ret_bytes)
{
	uint64_t step = 512, size = 512;
	unsigned class = 0;

	while (size < bytes) {
		if (size >= 8 * step)
			step *= 2;
		size += step;
		class ++;
	}
	*ret_bytes = (uint32_t)size;
	return class < CLASSES ? class : CLASSES - 1;
}

bool cut_take_small(struct building *b, uint64_t bytes, struct life *life, const struct job_event *like)
{
	uint32_t slot;
	unsigned class = class_of(bytes, &slot);

	if (b->partial[class] == REPLAY_NONE) {
		if (!grow(&b->slabs, b->n_slabs, &b->room_slabs, sizeof(*b->slabs)) || !cut_take(b, 1, life) ||
		    !cut_add_pieces(b, life, like))
			return false;
		b->in_heap += JOB_UNIT;
		b->slabs[b->n_slabs] = (struct slab){.piece = life->first,
						     .unit = life->unit,
						     .room = (uint32_t)(JOB_UNIT / slot),
						     .next = REPLAY_NONE,
						     .class = (uint8_t) class};
		b->partial[class] = (uint32_t)b->n_slabs++;
	}
	struct slab *slab = &b->slabs[b->partial[class]];
	*life = (struct life){.first = slab->piece, .n = 1, .unit = REPLAY_NONE, .units = 1, .slab = b->partial[class]};
	if (++slab->used == slab->room)
		b->partial[class] = slab->next;
	return true;
}

bool cut_give_small(struct building *b, const struct life *life, const struct job_event *like)
{
	struct slab *slab = &b->slabs[life->slab];

	if (slab->used-- == slab->room) {
		slab->next = b->partial[slab->class];
		b->partial[slab->class] = life->slab;
	}
	/* An empty slab is kept for its class if it is the first of the class's list, as in the heap. */
	if (slab->used || b->partial[slab->class] == life->slab)
		return true;
	for (uint32_t *at = &b->partial[slab->class]; *at != REPLAY_NONE; at = &b->slabs[*at].next)
		if (*at == life->slab) {
			struct life whole = {.first = slab->piece, .n = 1, .unit = slab->unit, .units = 1};
			struct job_event event = *like;

			*at = slab->next;
			event.kind = JOB_GONE;
			b->in_heap -= JOB_UNIT;
			return cut_add_pieces(b, &whole, &event) && cut_give(b, &whole);
		}
	return true;
}

/*
 * What the program's allocator reports, while a job is cut: follows what is alive, so that a pointer means the tensor
 * that it lies in, as for the mover (shim/mover/intake.c), and numbers the tensors for Belady's rule (replay_limit.c).
 *
 * The ranges of live_map.h do not depend on what has completed; only whether a death counts already does. So the
 * simulated run has the same ranges at the same place of the job, and what launches bring back to life is found here.
 */

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
		if (!end_all(b, begin, end, event) || !live_map_birth(b->map, begin, end, no_report) ||
		    (live_map_is_reported(b->map, begin) && !tensor_new(b, (struct live_range){begin, end})))
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
