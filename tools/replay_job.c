/*
 * One pass over the model. Where a block lives is decided when it is made, with what is known then; names become pieces
 * with the library's own guess of where tensors end (extent.h).
 */
#include "tools/replay_job.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "shim/spill/extent.h"
#include "shim/spill/plan.h"

/* As in shim/heap/block.c, chunk.h and small.h, and choose.c. */
#define PIECE_SHARE 32
#define PIECE_LEAST 2
#define PIECE_MOST  64
#define SMALL_MOST  ((uint64_t)1 << 20)
#define WHOLE_BYTES ((uint64_t)128 << 20)
#define CLASSES     40

/* A block of the model, while it lives. */
struct life {
	uint32_t first, n; /* its pieces; small: the slab's one */
	uint32_t unit;     /* first unit of its address space, for extents; REPLAY_NONE: none was left */
	uint32_t units;
	uint32_t slab; /* REPLAY_NONE: it is none */
	uint8_t use;   /* enum policy_use; POLICY_USE_DENY: it never was */
	int16_t rule;
};

/* Freed address space, by length: what the next block of that length gets. */
struct hole {
	uint32_t units, first, n, unit, next;
};

struct slab {
	uint32_t piece, unit, used, room, next;
	uint8_t class;
};

struct building {
	struct job *job;
	const struct job_setting *setting;
	struct extents *extents;
	struct life *lives;
	struct hole *holes;
	size_t n_holes, room_holes;
	uint32_t *hole_of; /* by length, modulo HOLES: the first of a list */
	struct slab *slabs;
	size_t n_slabs, room_slabs;
	uint32_t partial[CLASSES];
	uint32_t n_units; /* of address space given out */
	uint32_t n_lives; /* for block_of */
	size_t room_events, room_named, room_pieces;
	struct stamp {
		uint64_t launch, place; /* the launch that named it last, from 1, and where in named */
	} * stamp;                      /* by piece */
	uint64_t in_heap, outside, live;
	uint64_t *rule_live; /* by rule */
	struct {
		uint64_t from;
		uint32_t n;
	} * last; /* by submission of the model: what it named the last time */
	uint64_t launches;
	char *library; /* scratch */
};

#define HOLES 4096

static bool more(void *array_p, size_t n, size_t *room, size_t each)
{
	void *array, *longer;
	size_t want = *room ? 2 * *room : 1024;

	if (n < *room)
		return true;
	memcpy(&array, array_p, sizeof(array));
	longer = reallocarray(array, want, each);
	if (!longer)
		return false;
	memcpy(array_p, &longer, sizeof(longer));
	*room = want;
	return true;
}

static bool add_event(struct building *b, const struct job_event *event)
{
	if (!more(&b->job->events, b->job->n_events, &b->room_events, sizeof(*b->job->events)))
		return false;
	b->job->events[b->job->n_events++] = *event;
	return true;
}

static bool add_named(struct building *b, uint32_t piece, uint64_t bytes)
{
	if (!more(&b->job->named, b->job->n_named, &b->room_named, sizeof(*b->job->named)))
		return false;
	b->job->named[b->job->n_named++] = (struct job_named){piece, bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX};
	return true;
}

/* ---- address space and pieces ---- */

uint32_t job_most_units(const struct job_setting *setting)
{
	uint64_t units = setting->budget / PIECE_SHARE / JOB_UNIT;

	if (setting->policy) {
		struct policy_size chunk = policy_heap_chunk(setting->policy);

		if (chunk.kind == POLICY_SIZE_BYTES)
			return (uint32_t)(chunk.value / JOB_UNIT);
	}
	return units > PIECE_MOST ? PIECE_MOST : units < PIECE_LEAST ? PIECE_LEAST : (uint32_t)units;
}

static bool add_piece(struct building *b, uint32_t units)
{
	struct job *job = b->job;
	size_t room = b->room_pieces;

	if (job->n_pieces >= PLAN_PIECES)
		return false;
	if (job->n_pieces == room) {
		size_t r1 = room, r2 = room;

		if (!more(&job->units, room, &r1, sizeof(*job->units)) ||
		    !more(&job->block_of, room, &r2, sizeof(*job->block_of)) ||
		    !more(&b->stamp, room, &b->room_pieces, sizeof(*b->stamp)))
			return false;
		memset(b->stamp + room, 0, (b->room_pieces - room) * sizeof(*b->stamp));
	}
	job->units[job->n_pieces++] = units;
	return true;
}

/* Pieces for that many units: of a hole of that length, else new ones. */
static bool take_pieces(struct building *b, uint32_t units, struct life *life)
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
	life->unit = b->n_units + units <= PLAN_PIECES ? b->n_units : REPLAY_NONE;
	if (life->unit != REPLAY_NONE)
		b->n_units += units;
taken:
	life->units = units;
	for (uint32_t i = 0; i < life->n; i++)
		job->block_of[life->first + i] = b->n_lives;
	b->n_lives++;
	return true;
}

static bool give_pieces(struct building *b, const struct life *life)
{
	if (!more(&b->holes, b->n_holes, &b->room_holes, sizeof(*b->holes)))
		return false;
	uint32_t *first = &b->hole_of[life->units % HOLES];
	b->holes[b->n_holes] = (struct hole){life->units, life->first, life->n, life->unit, *first};
	*first = (uint32_t)b->n_holes++;
	if (life->unit != REPLAY_NONE)
		extent_forget(b->extents, life->unit);
	return true;
}

static bool add_new(struct building *b, const struct life *life, const struct job_event *like)
{
	struct job_event event = *like;

	event.from = b->job->n_named;
	event.n = life->n;
	for (uint32_t i = 0; i < life->n; i++)
		if (!add_named(b, life->first + i, 0))
			return false;
	return add_event(b, &event);
}

/* ---- small ones ---- */

/* Four steps to each doubling, from 512 bytes on. */
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

static bool take_small(struct building *b, uint64_t bytes, struct life *life, const struct job_event *like)
{
	uint32_t slot;
	unsigned class = class_of(bytes, &slot);

	if (b->partial[class] == REPLAY_NONE) {
		if (!more(&b->slabs, b->n_slabs, &b->room_slabs, sizeof(*b->slabs)) || !take_pieces(b, 1, life) ||
		    !add_new(b, life, like))
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

static bool give_small(struct building *b, const struct life *life, const struct job_event *like)
{
	struct slab *slab = &b->slabs[life->slab];

	if (slab->used-- == slab->room) {
		slab->next = b->partial[slab->class];
		b->partial[slab->class] = life->slab;
	}
	/* One that is empty is kept for its class, as the heap does, unless it is not the first. */
	if (slab->used || b->partial[slab->class] == life->slab)
		return true;
	for (uint32_t *at = &b->partial[slab->class]; *at != REPLAY_NONE; at = &b->slabs[*at].next)
		if (*at == life->slab) {
			struct life whole = {.first = slab->piece, .n = 1, .unit = slab->unit, .units = 1};
			struct job_event event = *like;

			*at = slab->next;
			event.kind = JOB_GONE;
			b->in_heap -= JOB_UNIT;
			return add_new(b, &whole, &event) && give_pieces(b, &whole);
		}
	return true;
}

/* ---- what the policy says ---- */

static struct policy_decision decide(struct building *b, const struct replay_block *block)
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
	if (block->site != REPLAY_NONE) { /* "library.so+0x123" */
		const char *site = model->texts[block->site], *end = strrchr(site, '+');
		size_t n = end ? (size_t)(end - site) : strlen(site);

		n = n < PATH_MAX ? n : PATH_MAX - 1;
		memcpy(b->library, site, n);
		b->library[n] = 0;
		request.library = b->library;
	}
	return policy_decide(b->setting->policy, &request);
}

/* The use that serves it, of those that are to be tried: the first that is not over its cap. */
static enum policy_use use_of(struct building *b, const struct replay_block *block,
			      const struct policy_decision *decision, unsigned *ret_at)
{
	bool over = decision->rule >= 0 && decision->cap != POLICY_NO_CAP &&
		    b->rule_live[decision->rule] + block->bytes > decision->cap;

	*ret_at = over && decision->n_uses > 1;
	if (over && decision->n_uses < 2)
		return POLICY_USE_DENY;
	enum policy_use use = (enum policy_use)decision->uses[*ret_at];
	/* Stream-ordered memory stays in the driver's pools unless the policy says otherwise. */
	bool ordered = block->api == POLICY_API_ASYNC || block->api == POLICY_API_POOL;
	if (ordered && use == POLICY_USE_HEAP && b->setting->policy &&
	    policy_async_use(b->setting->policy) != POLICY_USE_HEAP)
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

static bool made(struct building *b, uint32_t which, uint32_t at)
{
	const struct replay_block *block = &b->job->model->blocks[which];
	struct policy_decision decision = decide(b, block);
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
			if (!take_small(b, block->bytes, life, &event))
				return false;
		} else {
			if (!take_pieces(b, (uint32_t)units, life) || !add_new(b, life, &event))
				return false;
			life->slab = REPLAY_NONE;
			b->in_heap += units * JOB_UNIT;
		}
		life->use = POLICY_USE_HEAP;
		life->rule = choice ? -1 : (int16_t)decision.rule;
		break;
	case POLICY_USE_DRIVER:
		/* The program's own managed and pinned memory is no device memory. */
		if (block->api == POLICY_API_MANAGED || block->api == POLICY_API_HOST)
			return true;
		event.kind = JOB_CHARGE;
		b->outside += block->bytes;
		if (!add_event(b, &event))
			return false;
		break;
	case POLICY_USE_DENY:
		event.kind = JOB_DENIED;
		return add_event(b, &event);
	default:
		b->job->elsewhere++;
	}
	b->live += block->bytes;
	if (life->rule >= 0)
		b->rule_live[life->rule] += block->bytes;
	count_peak(b);
	return true;
}

static bool freed(struct building *b, uint32_t which, uint32_t at)
{
	const struct replay_block *block = &b->job->model->blocks[which];
	const struct life *life = &b->lives[which];
	struct job_event event = {.kind = JOB_GONE, .block = which, .event = at, .bytes = block->bytes, .rule = -1};
	bool counted = life->use != POLICY_USE_DENY;

	if (life->use == POLICY_USE_HEAP && life->slab != REPLAY_NONE) {
		if (!give_small(b, life, &event))
			return false;
	} else if (life->use == POLICY_USE_HEAP) {
		b->in_heap -= life->units * JOB_UNIT;
		if (!add_new(b, life, &event) || !give_pieces(b, life))
			return false;
	} else if (life->use == POLICY_USE_DRIVER) {
		counted = block->api != POLICY_API_MANAGED && block->api != POLICY_API_HOST;
		event.kind = JOB_RELEASE;
		b->outside -= counted ? block->bytes : 0;
		if (counted && !add_event(b, &event))
			return false;
	}
	if (counted) {
		b->live -= block->bytes;
		if (life->rule >= 0)
			b->rule_live[life->rule] -= block->bytes;
	}
	return true;
}

/* Bytes from ... end of a block are named: pieces that were not yet are added, and the others' bytes grow. */
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
		if (!add_named(b, piece, named))
			return false;
	}
	return true;
}

static bool name(struct building *b, const struct replay_named *named)
{
	const struct replay_block *block = &b->job->model->blocks[named->block];
	const struct life *life = &b->lives[named->block];
	uint64_t all = life->units * JOB_UNIT, end, sure;

	if (life->use != POLICY_USE_HEAP)
		return true;
	if (life->slab != REPLAY_NONE)
		return name_bytes(b, life, 0, 1, block->bytes);
	if (named->bytes)
		end = sure = named->bytes < all - named->offset ? named->offset + named->bytes : all;
	else if (life->unit == REPLAY_NONE)
		end = sure = all;
	else {
		sure = extent_end(b->extents, life->unit, named->offset);
		end = all > WHOLE_BYTES ? sure : all;
	}
	return name_bytes(b, life, named->offset, end, sure < block->bytes ? sure : block->bytes);
}

static bool launched(struct building *b, uint32_t which, uint32_t at)
{
	struct job *job = b->job;
	const struct replay_submit *submit = &job->model->submits[which];
	const struct replay_named *named = job->model->named + submit->first;
	struct job_event event = {
	    .kind = JOB_LAUNCH, .from = job->n_named, .function = submit->function, .block = REPLAY_NONE, .event = at};

	if (b->launches++ % EXTENT_AGE == 0)
		extent_age(b->extents);
	for (uint32_t i = 0; i < submit->n; i++) {
		const struct life *life = &b->lives[named[i].block];

		if (life->use == POLICY_USE_HEAP && life->slab == REPLAY_NONE && life->unit != REPLAY_NONE)
			extent_note(b->extents, life->unit, life->units * JOB_UNIT, named[i].offset);
	}
	for (uint32_t i = 0; i < submit->n; i++)
		if (!name(b, &named[i]))
			return false;
	event.n = (uint32_t)(job->n_named - event.from);
	/* Most name again what they named the last time: one list is enough. */
	if (event.n && b->last[which].n == event.n &&
	    !memcmp(job->named + b->last[which].from, job->named + event.from, event.n * sizeof(*job->named))) {
		job->n_named = event.from;
		event.from = b->last[which].from;
	}
	b->last[which].from = event.from;
	b->last[which].n = event.n;
	job->n_launches++;
	return add_event(b, &event);
}

/* ---- all of it ---- */

static bool build(struct building *b)
{
	const struct replay_model *model = b->job->model;

	for (size_t i = 0; i < model->n_events; i++) {
		const struct replay_event *event = &model->events[i];
		bool ours = event->kind == REPLAY_SUBMIT || model->blocks[event->which].device == b->setting->device;
		bool ok = true;

		if (event->kind == REPLAY_SUBMIT)
			ok = launched(b, event->which, (uint32_t)i);
		else if (ours && event->kind == REPLAY_MADE)
			ok = made(b, event->which, (uint32_t)i);
		else if (ours)
			ok = freed(b, event->which, (uint32_t)i);
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
	    .extents = extent_new(),
	    .lives = calloc(model->n_blocks, sizeof(*b.lives)),
	    .hole_of = malloc(HOLES * sizeof(*b.hole_of)),
	    .rule_live = calloc(n_rules + 1, sizeof(*b.rule_live)),
	    .last = calloc(model->n_submits + 1, sizeof(*b.last)),
	    .library = malloc(PATH_MAX),
	};
	bool ok = job && b.extents && b.lives && b.hole_of && b.rule_live && b.last && b.library;

	if (ok) {
		job->model = model;
		job->most_units = job_most_units(setting);
		for (unsigned i = 0; i < HOLES; i++)
			b.hole_of[i] = REPLAY_NONE;
		for (unsigned i = 0; i < CLASSES; i++)
			b.partial[i] = REPLAY_NONE;
		for (size_t i = 0; i < model->n_blocks; i++)
			b.lives[i].use = POLICY_USE_DENY;
		ok = build(&b);
	}
	extent_free(b.extents);
	free(b.lives);
	free(b.holes);
	free(b.hole_of);
	free(b.slabs);
	free(b.stamp);
	free(b.rule_live);
	free(b.last);
	free(b.library);
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
	free(job->events);
	free(job->named);
	free(job->units);
	free(job->block_of);
	free(job);
}
