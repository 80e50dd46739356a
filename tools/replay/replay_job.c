// SPDX-License-Identifier: Apache-2.0
/*
 * Turns a model into a job in one pass. The place of a block is decided when it is made, with what is known then.
 * Names become pieces with the library's own estimate of where tensors end (tensors.h).
 */
#include "tools/replay/replay_cut.h"
#include "tools/common/grow.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- decisions of the policy ---- */

/*
 * Copies the name of the library that called the driver to room (PATH_MAX bytes): of "train.py:57 in forward
 * [libcublas.so.13]" it is in brackets, of "libmodel.so+0x123" and "libmodel.so:load+0x1c" at the beginning. Returns
 * NULL if the site does not say.
 */
static const char *library_in(const char *site, char *room)
{
	size_t n = strlen(site);
	const char *from = strstr(site, " ["), *end = strrchr(site, '+');

	if (from && n && site[n - 1] == ']') {
		from += 2;
		n = (size_t)(site + n - 1 - from);
	} else if (end && !strncmp(end, "+0x", 3)) {
		const char *symbol = memchr(site, ':', (size_t)(end - site));

		from = site;
		n = (size_t)((symbol ? symbol : end) - site);
	} else {
		return NULL;
	}
	snprintf(room, PATH_MAX, "%.*s", (int)n, from);
	return room;
}

/* Copies the site without that library to room (PATH_MAX bytes). Returns room. */
static const char *caller_in(const char *site, char *room)
{
	size_t n = strlen(site);
	const char *library = strstr(site, " [");

	if (library && site[n - 1] == ']')
		n = (size_t)(library - site);
	snprintf(room, PATH_MAX, "%.*s", (int)n, site);
	return room;
}

static struct policy_decision job_decide(struct building *b, const struct replay_block *block)
{
	const struct replay_model *model = b->job->model;
	uint64_t used = b->in_heap + b->outside;
	struct policy_request request = {
	    .bytes = block->bytes,
	    .api = (enum policy_api)block->api,
	    .device = (int)block->device,
	    .known = POLICY_NEED_ORDER | POLICY_NEED_LIVE | POLICY_NEED_FREE,
	    .order = block->order,
	    .live = b->live,
	    .device_free = used < b->setting->budget ? b->setting->budget - used : 0,
	};
	static const struct policy_decision heap = {
	    .rule = -1, .movable = true, .n_uses = 1, .uses = {POLICY_USE_HEAP}, .cap = POLICY_NO_CAP};

	if (!b->setting->policy)
		return heap;
	if (block->site != REPLAY_NONE) {
		request.library = library_in(model->texts[block->site], b->library);
		request.caller = caller_in(model->texts[block->site], b->caller);
	}
	struct policy_decision decision = policy_decide(b->setting->policy, &request);
	/*
	 * As in shim/serve/serve.c: in observe mode decisions are only counted, and the driver serves every
	 * allocation.
	 */
	if (policy_settings(b->setting->policy)->observe) {
		decision.uses[0] = POLICY_USE_DRIVER;
		decision.n_uses = 1;
		decision.cap = POLICY_NO_CAP;
	}
	return decision;
}

/*
 * Returns whether the driver's pool serves a stream-ordered allocation. With auto it serves what fits, and what fits
 * into memory that the pool had before; in a mode that moves memory, it serves nothing more after a
 * request that did not fit.
 */
static bool is_for_pools(struct building *b, uint64_t bytes)
{
	bool fits;

	switch (policy_settings(b->setting->policy)->async_use) {
	case POLICY_ASYNC_HEAP:
		return false;
	case POLICY_ASYNC_AUTO:
		fits =
		    b->in_heap + b->outside + bytes <= b->setting->budget || b->outside + bytes <= b->job->peak_outside;
		b->pools_closed |= !fits && b->setting->moves;
		return fits && !b->pools_closed;
	default:
		return true;
	}
}

/* Returns the use that serves the allocation: the first one of the policy's list that does not exceed its cap. */
static enum policy_use use_of(struct building *b, const struct replay_block *block,
			      const struct policy_decision *decision, unsigned *ret_at)
{
	bool over = decision->rule >= 0 && decision->cap != POLICY_NO_CAP &&
		    b->rule_live[decision->rule] + block->bytes > decision->cap;

	*ret_at = over && decision->n_uses > 1;
	if (over && decision->n_uses < 2)
		return POLICY_USE_DENY;
	enum policy_use use = (enum policy_use)decision->uses[*ret_at];
	if (replay_is_ordered(block) && use == POLICY_USE_HEAP && b->setting->policy && is_for_pools(b, block->bytes))
		return POLICY_USE_DRIVER;
	return use;
}

/* ---- one event ---- */

static void count_peak(struct building *b)
{
	struct job *job = b->job;

	job->peak_bytes = b->in_heap + b->outside > job->peak_bytes ? b->in_heap + b->outside : job->peak_bytes;
	job->peak_outside = b->outside > job->peak_outside ? b->outside : job->peak_outside;
}

static bool job_made(struct building *b, uint32_t which, uint32_t at)
{
	const struct replay_block *block = &b->job->model->blocks[which];
	struct policy_decision decision = job_decide(b, block);
	unsigned choice;
	enum policy_use use = use_of(b, block, &decision, &choice);
	uint64_t units = (block->bytes + JOB_UNIT - 1) / JOB_UNIT;
	struct life *life = &b->lives[which];
	struct job_event event = {.kind = JOB_NEW,
				  .block = which,
				  .event = at,
				  .bytes = block->bytes,
				  .place = (uint8_t)decision.place,
				  .movable = decision.movable,
				  .rule = (int16_t)decision.rule};

	*life = (struct life){.slab = REPLAY_NONE, .use = (uint8_t)use, .rule = choice ? -1 : (int16_t)decision.rule};
	switch (use) {
	case POLICY_USE_HEAP:
		if (block->bytes <= SMALL_MOST) {
			if (!cut_take_small(b, block->bytes, life, &event))
				return false;
		} else {
			if (!cut_take(b, (uint32_t)units, life) || !cut_add_pieces(b, life, &event))
				return false;
			b->in_heap += units * JOB_UNIT;
		}
		life->use = POLICY_USE_HEAP;
		life->rule = choice ? -1 : (int16_t)decision.rule;
		break;
	case POLICY_USE_DRIVER:
		/* The program's own managed and pinned memory is not device memory. */
		if (block->api == POLICY_API_MANAGED || block->api == POLICY_API_HOST)
			return true;
		event.kind = JOB_CHARGE;
		b->outside += block->bytes;
		if (!cut_add_event(b, &event))
			return false;
		break;
	case POLICY_USE_DENY:
		event.kind = JOB_DENIED;
		return cut_add_event(b, &event);
	default:
		b->job->elsewhere++;
	}
	b->live += block->bytes;
	if (life->rule >= 0)
		b->rule_live[life->rule] += block->bytes;
	count_peak(b);
	return true;
}

static bool job_freed(struct building *b, uint32_t which, uint32_t at)
{
	const struct replay_block *block = &b->job->model->blocks[which];
	const struct life *life = &b->lives[which];
	struct job_event event = {.kind = JOB_GONE, .block = which, .event = at, .bytes = block->bytes, .rule = -1};
	bool counted = life->use != POLICY_USE_DENY;

	if (life->use == POLICY_USE_HEAP && life->slab != REPLAY_NONE) {
		if (!cut_give_small(b, life, &event))
			return false;
	} else if (life->use == POLICY_USE_HEAP) {
		b->in_heap -= life->units * JOB_UNIT;
		if (!parts_gone(b, life, &event) || !cut_add_pieces(b, life, &event) || !cut_give(b, life))
			return false;
	} else if (life->use == POLICY_USE_DRIVER) {
		counted = block->api != POLICY_API_MANAGED && block->api != POLICY_API_HOST;
		event.kind = JOB_RELEASE;
		b->outside -= counted ? block->bytes : 0;
		if (counted && !cut_add_event(b, &event))
			return false;
	}
	if (counted) {
		b->live -= block->bytes;
		if (life->rule >= 0)
			b->rule_live[life->rule] -= block->bytes;
	}
	return true;
}

/*
 * Names the bytes from `from` to `end` of a block: adds its pieces that were not named yet, and increases the bytes of
 * the others.
 */
static bool name_bytes(struct building *b, const struct life *life, uint64_t from, uint64_t end, uint64_t sure)
{
	struct job *job = b->job;
	uint64_t at = 0;

	for (uint32_t piece = life->first; piece < life->first + life->n && at < end; piece++) {
		uint64_t bytes = job->units[piece] * JOB_UNIT, low = from > at ? from : at;
		uint64_t high = sure < at + bytes ? sure : at + bytes, named = high > low ? high - low : 0;

		at += bytes;
		if (at <= from)
			continue;
		if (b->stamp[piece].launch == b->launches) {
			struct job_named *before = &job->named[b->stamp[piece].place];

			before->bytes =
			    before->bytes + named < bytes ? before->bytes + (uint32_t)named : (uint32_t)bytes;
			continue;
		}
		b->stamp[piece] = (struct stamp){b->launches, job->n_named};
		if (!cut_add_named(b, piece, named))
			return false;
	}
	return true;
}

static bool job_name(struct building *b, const struct replay_named *named, struct job_event *launch)
{
	const struct replay_block *block = &b->job->model->blocks[named->block];
	const struct life *life = &b->lives[named->block];
	uint64_t all = life->units * JOB_UNIT, begin = named->offset, end, sure;
	struct live_range alive;
	bool known;

	if (life->use != POLICY_USE_HEAP)
		return true;
	if (!parts_name(b, life, named->offset, named->bytes, launch, &alive, &known))
		return false;
	if (life->slab != REPLAY_NONE)
		return name_bytes(b, life, 0, 1, block->bytes);
	if (named->bytes)
		end = sure = named->bytes < all - named->offset ? named->offset + named->bytes : all;
	else if (life->unit == REPLAY_NONE)
		end = sure = all;
	else if (known) {
		/* As in shim/mover/intake.c: in `fast` a small block is named as a whole. */
		bool whole = b->setting->fast && all <= tensor_extents_whole(b->setting->budget);

		begin = whole ? 0 : b->setting->fast ? alive.begin : named->offset;
		sure = alive.end;
		end = whole ? all : sure;
	} else {
		sure = tensor_extents_end(b->extents, life->unit, named->offset);
		end = all > tensor_extents_whole(b->setting->budget) ? sure : all;
	}
	return name_bytes(b, life, begin, end, sure < block->bytes ? sure : block->bytes);
}

static bool job_launched(struct building *b, const struct replay_event *launched, uint32_t at)
{
	uint32_t which = launched->which;
	struct job *job = b->job;
	const struct replay_submit *submit = &job->model->submits[which];
	const struct replay_named *named = job->model->named + submit->first;
	struct job_event event = {.kind = JOB_LAUNCH,
				  .from = job->n_named,
				  .function = submit->function,
				  .block = REPLAY_NONE,
				  .event = at,
				  .thread = launched->thread,
				  .tensors = job->n_tensors_named};

	b->launches++;
	for (uint32_t i = 0; i < submit->n; i++) {
		const struct life *life = &b->lives[named[i].block];

		if (life->use == POLICY_USE_HEAP && life->slab == REPLAY_NONE && life->unit != REPLAY_NONE)
			tensor_extents_note(b->extents, life->unit, life->units * JOB_UNIT, named[i].offset);
	}
	for (uint32_t i = 0; i < submit->n; i++)
		if (!job_name(b, &named[i], &event))
			return false;
	event.n = (uint32_t)(job->n_named - event.from);
	if (!parts_name_rest(b, &event))
		return false;
	if (event.n)
		tensor_extents_submitted(b->extents, TENSOR_EXTENTS_AGE);
	/* Most submissions name the same as the last time, so that one list is shared. */
	if (event.n && b->last[which].n == event.n &&
	    !memcmp(job->named + b->last[which].from, job->named + event.from, event.n * sizeof(*job->named))) {
		job->n_named = event.from;
		event.from = b->last[which].from;
	}
	b->last[which].from = event.from;
	b->last[which].n = event.n;
	job->n_launches++;
	return cut_add_event(b, &event);
}

/* ---- all of it ---- */

static bool job_build(struct building *b)
{
	const struct replay_model *model = b->job->model;

	for (size_t i = 0; i < model->n_events; i++) {
		const struct replay_event *event = &model->events[i];
		bool made = event->kind == REPLAY_MADE, freed = event->kind == REPLAY_FREED;
		bool ours = (made || freed) && model->blocks[event->which].device == b->setting->device;
		bool ok = true;

		if (event->kind == REPLAY_SUBMIT)
			ok = job_launched(b, event, (uint32_t)i);
		else if (event->kind >= REPLAY_KEPT)
			ok = parts_event(b, event, (uint32_t)i);
		else if (ours && made)
			ok = job_made(b, event->which, (uint32_t)i);
		else if (ours)
			ok = job_freed(b, event->which, (uint32_t)i);
		if (!ok)
			return false;
	}
	return true;
}

struct job *job_new(const struct replay_model *model, const struct job_setting *setting)
{
	struct job *job = calloc(1, sizeof(*job));
	size_t n_rules = setting->policy ? policy_n_rules(setting->policy) : 0;
	struct building b = {
	    .job = job,
	    .setting = setting,
	    .extents = tensor_extents_new(),
	    .lives = calloc(model->n_blocks, sizeof(*b.lives)),
	    .hole_of = malloc(HOLES * sizeof(*b.hole_of)),
	    .rule_live = calloc(n_rules + 1, sizeof(*b.rule_live)),
	    .last = calloc(model->n_submits + 1, sizeof(*b.last)),
	    .library = malloc(PATH_MAX),
	    .caller = malloc(PATH_MAX),
	};
	bool ok = job && b.extents && b.lives && b.hole_of && b.rule_live && b.last && b.library && b.caller;

	if (ok) {
		job->model = model;
		job->most_units = job_most_units(setting);
		for (unsigned i = 0; i < HOLES; i++)
			b.hole_of[i] = REPLAY_NONE;
		for (unsigned i = 0; i < CLASSES; i++)
			b.partial[i] = REPLAY_NONE;
		for (size_t i = 0; i < model->n_blocks; i++)
			b.lives[i].use = POLICY_USE_DENY;
		ok = parts_begin(&b) && job_build(&b);
	}
	parts_end(&b);
	tensor_extents_free(b.extents);
	FREE_ALL(b.lives, b.holes, b.hole_of, b.slabs, b.stamp, b.tensor_stamp, b.rule_live, b.last, b.library,
		 b.caller);
	if (job)
		job->n_lives = b.n_lives;
	if (ok)
		return job;
	job_free(job);
	return NULL;
}

void job_free(struct job *job)
{
	if (!job)
		return;
	FREE_ALL(job->events, job->named, job->units, job->block_of, job->unit_of, job->piece_at, job->tensors,
		 job->tensor_bytes, job->tensor_begin, job);
}
