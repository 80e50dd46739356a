/*
 * Pieces and address space of blocks. Freed address space is reused by the next block of the same length, as the heap
 * reuses warm blocks. Allocations of at most 1 MiB share pieces of one unit, by size class.
 */
#include "tools/replay/replay_cut.h"
#include "tools/common/grow.h"

#include <stdlib.h>
#include <string.h>

#include "shim/plan/plan.h"

/* Must equal shim/heap/block_build.c and chunk.h. */
#define PIECE_SHARE 32
#define PIECE_LEAST 2
#define PIECE_MOST  64
/* Must equal FAST_PIECE of shim/device/device_beside.c, in units. */
#define FAST_PIECE 24
/* A line of a file can name some thousand pieces. This limit, 2 GiB of names, exceeds any recorded job. */
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
	uint64_t units = setting->budget / PIECE_SHARE / JOB_UNIT, most = setting->fast ? FAST_PIECE : PIECE_MOST;

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

/* Size classes: four for each doubling, from 512 bytes on. */
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
