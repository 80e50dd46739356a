// SPDX-License-Identifier: Apache-2.0
/*
 * The blocks, what is reported about them, and the walk.
 */
#include "shim/plan/tensor_future.h"
#include "shim/base/array.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BLOCKS      65536u
#define MOST_USES        (1u << 19)
#define MOST_TRANSITIONS (1u << 17)
#define MOST_EVENTS      (1u << 14)
#define RANGES_STEP      8  /* free ranges that take as long as one thing that a walk looks at */
#define WALK_LEAST       64 /* submissions; a walk that comes to fewer is of no use */
#define SCORE_BIRTHS     32 /* births over which the score fades */
/* PyTorch's allocator has tensors of at most TENSOR_LOG_LEAST bytes in blocks of this size, and no others. */
#define SMALL_BLOCK ((uint64_t)2 << 20)

void tensor_future_fini(struct tensor_future *future)
{
	tensor_log_fini(&future->log);
	tensor_table_fini(&future->match.sizes);
	best_fit_fini(&future->fit);
	tensor_table_fini(&future->then);
	free(future->blocks);
	free(future->uses);
	free(future->transitions);
	free(future->births);
}

/* ---- then and now ---- */

/*
 * The position says roughly which event of then corresponds to the next one; of those near it, the one is taken behind
 * which the past is most alike.
 */
#define TENSOR_MATCH_NONE  UINT64_MAX
#define TENSOR_MATCH_STEPS 6000 /* about as many events are looked at by tensor_match_make() */
#define COMPARED           64   /* events by which the past is compared */
#define APART              16   /* events by which the position may be wrong */
#define BETTER_BY          2    /* an event farther from the position must have more than this many more alike */
#define LATEST             48   /* births that show the ratio */
#define RATIOS             8    /* different ones among them */
#define LOOK_BACK          4096 /* events that show which sizes are the same */
#define NEIGHBOURS         8    /* events that are looked at where a tensor's own does not fit */

/*
 * Returns whether two pairs of sizes have the same ratio. Sizes are below 2^41, but their products may need more bits.
 */
static bool is_ratio(uint64_t now, uint64_t then, uint64_t other_now, uint64_t other_then)
{
	return (unsigned __int128)now * other_then == (unsigned __int128)other_now * then;
}

/* Returns how many of the latest events look like those before event number `next`, allowing for one ratio. */
static unsigned count_alike(const struct tensor_log *log, uint64_t next)
{
	const struct tensor_event *ratio_now = NULL, *ratio_then = NULL;
	unsigned alike = 0;

	for (uint64_t i = 1; i <= COMPARED && i <= next && tensor_log_has(log, next - i); i++) {
		const struct tensor_event *now = tensor_log_event(log, log->n_events - i);
		const struct tensor_event *then = tensor_log_event(log, next - i);

		if (now->born != then->born)
			continue;
		if (!ratio_now && now->bytes != then->bytes) {
			ratio_now = now;
			ratio_then = then;
		}
		alike +=
		    now->bytes == then->bytes || is_ratio(now->bytes, then->bytes, ratio_now->bytes, ratio_then->bytes);
	}
	return alike;
}

/* Returns the number of an event for n = 0, 1, 2, ...: `about`, the one after it, the one before it, and so on. */
static uint64_t near_event(uint64_t about, unsigned n)
{
	return n % 2 ? about + (n + 1) / 2 : about - n / 2;
}

static uint64_t find_next(const struct tensor_log *log, uint64_t about)
{
	unsigned most = count_alike(log, about);
	uint64_t best = about;

	for (unsigned n = 1; n <= 2 * APART && most < COMPARED; n++) {
		uint64_t at = near_event(about, n);
		unsigned alike = at < log->n_events ? count_alike(log, at) : 0;

		if (alike > most + BETTER_BY) {
			most = alike;
			best = at;
		}
	}
	return best;
}

struct ratio {
	uint64_t now, then;
	unsigned n;
};

/* Sets the ratio of the sizes to that of most of the latest births that differ, if there are enough. */
static void find_ratio(struct tensor_match *match, const struct tensor_log *log)
{
	struct ratio ratios[RATIOS] = {{0}}, *most = &ratios[0];
	unsigned pairs = 0;

	match->now = match->then = 1;
	for (uint64_t i = 1; i <= match->next && pairs < LATEST && tensor_log_has(log, match->next - i); i++) {
		const struct tensor_event *now = tensor_log_event(log, log->n_events - i);
		const struct tensor_event *then = tensor_log_event(log, match->next - i);

		if (!now->born || !then->born)
			continue;
		pairs++;
		for (unsigned k = 0; now->bytes != then->bytes && k < RATIOS; k++) {
			if (!ratios[k].n)
				ratios[k] = (struct ratio){now->bytes, then->bytes, 0};
			if (!is_ratio(now->bytes, then->bytes, ratios[k].now, ratios[k].then))
				continue;
			ratios[k].n++;
			break;
		}
	}
	for (unsigned k = 1; k < RATIOS; k++)
		most = ratios[k].n > most->n ? &ratios[k] : most;
	if (4 * most->n <= pairs)
		return;
	match->now = most->now;
	match->then = most->then;
}

/* Returns a size times the ratio; 0 if the result is no size. */
static uint64_t times_ratio(const struct tensor_match *match, uint64_t then)
{
	unsigned __int128 product = (unsigned __int128)then * match->now;
	uint64_t bytes = (uint64_t)(product / match->then);

	return product % match->then || bytes % TENSOR_GRAIN ? 0 : bytes;
}

/* Returns whether two sizes may be the same if one is not what the allocator was asked for, but what it gave. */
static bool is_near(uint64_t then, uint64_t now)
{
	return (then > now ? then - now : now - then) <= BEST_FIT_SPLIT;
}

/* Finds what has become of each size, as its latest birth shows. */
static bool find_sizes(struct tensor_match *match, const struct tensor_log *log)
{
	for (uint64_t i = 1; i <= LOOK_BACK && i <= match->next && tensor_log_has(log, match->next - i); i++) {
		const struct tensor_event *now = tensor_log_event(log, log->n_events - i);
		const struct tensor_event *then = tensor_log_event(log, match->next - i);

		if (!now->born || !then->born || tensor_table_find(&match->sizes, then->bytes))
			continue;
		/* It became that because of the ratio, or because it is the same. */
		bool likely = times_ratio(match, then->bytes) == now->bytes || is_near(then->bytes, now->bytes);
		if (!tensor_table_put(&match->sizes, (struct tensor){then->bytes, 1, likely ? now->bytes : 0}))
			return false;
	}
	return true;
}

/*
 * Finds the correspondence for the present and a remembered position. Returns false if too little is remembered, or
 * there is no memory.
 */
static bool tensor_match_make(struct tensor_match *match, const struct tensor_log *log, uint64_t position)
{
	uint64_t about = tensor_log_from(log, position);

	tensor_table_clear(&match->sizes);
	/* The one before shows that none is missing that came after the position. */
	if (log->failed || about >= log->n_events || (about && !tensor_log_has(log, about - 1)))
		return false;
	match->next = find_next(log, about);
	match->shift = log->n_events - match->next;
	find_ratio(match, log);
	return find_sizes(match, log);
}

/* Returns how much the allocator will be asked for now when what corresponds to this birth comes. */
static uint64_t tensor_match_bytes(const struct tensor_match *match, const struct tensor_event *then)
{
	const struct tensor *size =
	    then->size != TENSOR_SIZE_VARIES ? tensor_table_find(&match->sizes, then->bytes) : NULL;
	uint64_t bytes = size ? size->value : 0;

	if (then->size == TENSOR_SIZE_FIXED)
		return bytes && is_near(then->bytes, bytes) ? bytes : then->bytes;
	bytes = bytes ? bytes : times_ratio(match, then->bytes);
	return bytes ? bytes : then->bytes;
}

/* Returns enum tensor_size of a birth of now that corresponds to this one. */
static uint8_t tensor_match_size(const struct tensor_match *match, const struct tensor_event *then, uint64_t bytes)
{
	if (match->now == match->then)
		return then->size;
	if (then->bytes == bytes)
		return TENSOR_SIZE_FIXED;
	if (times_ratio(match, then->bytes) == bytes)
		return TENSOR_SIZE_VARIES;
	return is_near(then->bytes, bytes) ? TENSOR_SIZE_FIXED : TENSOR_SIZE_UNKNOWN;
}

/* Returns where a tensor of log->alive, or the one that corresponds to it, began then; TENSOR_MATCH_NONE: unknown. */
static uint64_t tensor_match_begin(const struct tensor_match *match, const struct tensor_log *log,
				   const struct tensor *tensor)
{
	uint64_t birth = tensor->value - match->shift;
	uint64_t bytes =
	    tensor_log_has(log, tensor->value) ? tensor_log_event(log, tensor->value)->bytes : tensor->bytes;

	if (tensor->value < match->next) /* it was alive then, too */
		return tensor->begin;
	for (unsigned n = 0; n <= 2 * NEIGHBOURS; n++) {
		uint64_t number = near_event(birth, n);
		const struct tensor_event *event = tensor_log_has(log, number) ? tensor_log_event(log, number) : NULL;

		if (event && event->born && (!n || event->bytes == bytes || tensor_match_bytes(match, event) == bytes))
			return event->begin;
	}
	return TENSOR_MATCH_NONE;
}

/* ---- blocks ---- */

/* Returns the index of the first block that ends after this byte. */
static uint32_t block_from(const struct tensor_future *future, uint64_t at)
{
	uint32_t past = ranges_after(future->blocks, future->n_blocks, sizeof(*future->blocks), at);

	return past && future->blocks[past - 1].end > at ? past - 1 : past;
}

/* Puts n blocks in the place of those with the numbers first to past - 1. Returns false if there is no room. */
static bool blocks_replace(struct tensor_future *future, uint32_t first, uint32_t past, const struct live_range *by,
			   uint32_t n)
{
	while (future->n_blocks + n - (past - first) > future->room_blocks)
		if (!ARRAY_ROOM(future->blocks, future->room_blocks, future->room_blocks, MOST_BLOCKS))
			return false;
	if (future->blocks)
		memmove(&future->blocks[first + n], &future->blocks[past],
			(future->n_blocks - past) * sizeof(*future->blocks));
	for (uint32_t i = 0; i < n; i++)
		future->blocks[first + i] = by[i];
	future->n_blocks += n - (past - first);
	return true;
}

/*
 * Leaves nothing of any block within these bounds, and then adds one, if its end is not 0. Returns whether there was
 * something.
 */
static bool blocks_cut(struct tensor_future *future, uint64_t begin, uint64_t end, struct live_range added)
{
	uint32_t first = block_from(future, begin), past = first, n = 0;
	struct live_range by[3];

	while (past < future->n_blocks && future->blocks[past].begin < end)
		past++;
	if (past > first && future->blocks[first].begin < begin)
		by[n++] = (struct live_range){future->blocks[first].begin, begin};
	if (added.end)
		by[n++] = added;
	if (past > first && future->blocks[past - 1].end > end)
		by[n++] = (struct live_range){end, future->blocks[past - 1].end};
	if (!blocks_replace(future, first, past, by, n)) {
		/* No tensor may be alive outside blocks. */
		tensor_log_forget(&future->log, 0, UINT64_MAX);
		future->n_blocks = 0;
	}
	return past > first;
}

void tensor_future_report(struct tensor_future *future, uint64_t begin, uint64_t end)
{
	uint32_t index = block_from(future, begin);

	/* What is known of a block that is reported again stays. */
	if (index < future->n_blocks && future->blocks[index].begin <= begin && future->blocks[index].end >= end)
		return;
	if (blocks_cut(future, begin, end, (struct live_range){begin, end}))
		tensor_log_forget(&future->log, begin, end);
}

void tensor_future_forget(struct tensor_future *future, uint64_t begin, uint64_t end)
{
	if (blocks_cut(future, begin, end, (struct live_range){0}))
		tensor_log_forget(&future->log, begin, end);
}

/*
 * Returns whether a block has all of this range. What was reported in parts is one block if a tensor lies in both, as
 * in memory that the program has placed.
 */
static bool block_holds(struct tensor_future *future, uint64_t begin, uint64_t end)
{
	uint32_t index = block_from(future, begin);
	uint32_t past = index + 1;

	if (index == future->n_blocks || future->blocks[index].begin > begin)
		return false;
	while (past < future->n_blocks && future->blocks[past - 1].end < end &&
	       future->blocks[past].begin == future->blocks[past - 1].end)
		past++;
	struct live_range all = {future->blocks[index].begin, future->blocks[past - 1].end};
	return past == index + 1 ? all.end >= end : blocks_replace(future, index, past, &all, 1) && all.end >= end;
}

static bool is_small(const struct live_range *block)
{
	return block->end - block->begin <= SMALL_BLOCK;
}

/* ---- what is reported ---- */

/* Returns the event of then that corresponds to the next one; NULL: it is not known. */
static const struct tensor_event *next_then(const struct tensor_future *future)
{
	uint64_t number = future->match.next + (future->log.n_events - future->event_from);

	return future->compared && tensor_log_has(&future->log, number) ? tensor_log_event(&future->log, number) : NULL;
}

/*
 * Returns how much the allocator was asked for when it gave a tensor so many bytes. It gives more if too little would
 * be left; then what it was asked for is what the corresponding tensor says.
 */
static uint64_t asked_for(const struct tensor_future *future, const struct tensor_event *then, uint64_t bytes)
{
	uint64_t asked = then && then->born ? tensor_match_bytes(&future->match, then) : bytes;

	return asked <= bytes && bytes - asked <= BEST_FIT_SPLIT ? asked : bytes;
}

/*
 * Compares where a tensor is born with where it was foreseen. Without a walk that is where the one was born that
 * corresponds to it.
 */
static void compare_birth(struct tensor_future *future, const struct tensor_event *then,
			  const struct tensor_event *birth)
{
	uint64_t number = future->log.n_events - future->event_from;

	if (!future->compared || (future->until && number >= future->n_births))
		return;
	if (!future->until) {
		future->n_wrong += !then || !then->born || then->bytes != birth->bytes || then->begin != birth->begin;
		return;
	}
	bool right = future->births[number] == birth->begin;
	future->n_wrong += !right;
	future->score = (future->score * (SCORE_BIRTHS - 1) + (right ? TENSOR_FUTURE_SCORE : 0)) / SCORE_BIRTHS;
}

void tensor_future_birth(struct tensor_future *future, uint64_t position, uint64_t begin, uint64_t end)
{
	if (end - begin <= TENSOR_LOG_LEAST || !block_holds(future, begin, end))
		return;
	const struct tensor_event *then = next_then(future);
	struct tensor_event birth = {.position = position, .begin = begin, .born = true};
	birth.bytes = asked_for(future, then, end - begin);
	if (then && then->born)
		birth.size = tensor_match_size(&future->match, then, birth.bytes);
	compare_birth(future, then, &birth);
	tensor_log_birth(&future->log, &birth, end);
}

/* ---- the pieces in a walk ---- */

struct future_walk {
	struct tensor_future *future;
	struct pieces *pieces;
	uint64_t position; /* of the submission that the walk has come to */
	uint64_t steps;
	bool failed; /* there is no memory, or too much to foresee */
};

/* bytes: how many of the piece's. */
typedef void piece_visit(struct future_walk *walk, uint32_t id, struct piece *piece, uint64_t bytes);

/* Calls `visit`, if any, for each piece that has some of these bytes: the walk has come to it. */
static void each_piece(struct future_walk *walk, uint64_t begin, uint64_t end, piece_visit *visit)
{
	const struct tensor_future *future = walk->future;
	uint32_t unit = (uint32_t)(begin / PLAN_UNIT), last = (uint32_t)((end + PLAN_UNIT - 1) / PLAN_UNIT), past, id;

	for (; unit < last; unit = past) {
		bool found = future->piece_at(future->argument, unit, &id, &past);
		struct piece *piece = found ? pieces_find(walk->pieces, id) : NULL;

		walk->steps++;
		past = found ? past : unit + 1;
		if (!piece)
			continue;
		if (piece->walk_round != future->round) {
			piece->walk_round = future->round;
			piece->walk_first = piece->walk_last = TENSOR_USE_NONE;
			piece->walk_alive = 0;
		}
		uint64_t from = unit * PLAN_UNIT, to = past * PLAN_UNIT;
		if (visit)
			visit(walk, id, piece, (to < end ? to : end) - (from > begin ? from : begin));
	}
}

static void visit_alive(struct future_walk *walk, uint32_t id, struct piece *piece, uint64_t bytes)
{
	(void)walk, (void)id;
	piece->walk_alive += bytes;
}

static void add_transition(struct future_walk *walk, uint32_t id, bool dead)
{
	struct tensor_future *future = walk->future;

	if (ARRAY_ROOM(future->transitions, future->n_transitions, future->room_transitions, MOST_TRANSITIONS))
		future->transitions[future->n_transitions++] = (struct transition){walk->position, id, dead};
	else
		walk->failed = true;
}

static void visit_birth(struct future_walk *walk, uint32_t id, struct piece *piece, uint64_t bytes)
{
	if (!piece->walk_alive)
		add_transition(walk, id, false);
	piece->walk_alive += bytes;
}

static void visit_death(struct future_walk *walk, uint32_t id, struct piece *piece, uint64_t bytes)
{
	piece->walk_alive -= bytes;
	if (!piece->walk_alive)
		add_transition(walk, id, true);
}

static void visit_name(struct future_walk *walk, uint32_t id, struct piece *piece, uint64_t bytes)
{
	struct tensor_future *future = walk->future;
	bool again = piece->walk_last != TENSOR_USE_NONE;

	(void)bytes;
	if (again && future->uses[piece->walk_last].position == walk->position)
		return;
	if (!ARRAY_ROOM(future->uses, future->n_uses, future->room_uses, MOST_USES)) {
		walk->failed = true;
		return;
	}
	*(again ? &future->uses[piece->walk_last].next : &piece->walk_first) = future->n_uses;
	piece->walk_last = future->n_uses;
	future->uses[future->n_uses++] = (struct tensor_use){walk->position, id, TENSOR_USE_NONE};
}

/* ---- the walk ---- */

/* Frees what no tensor has. Returns false if there is no memory, or too much is in pieces. */
static bool free_the_rest(struct tensor_future *future)
{
	const struct tensor *next = future->log.alive, *past = next + future->log.n_alive;

	future->fit.n = 0;
	for (uint32_t i = 0; i < future->n_blocks; i++) {
		const struct live_range *block = &future->blocks[i];
		uint64_t at = block->begin;

		for (; next < past && next->begin < block->end; next++) {
			if (next->begin > at && !best_fit_give(&future->fit, at, next->begin, i))
				return false;
			at = next->begin + next->bytes;
		}
		if (at < block->end && !is_small(block) && !best_fit_give(&future->fit, at, block->end, i))
			return false;
	}
	return true;
}

/* Finds where what is alive was then. *ret_moved: not all of it lies there. Returns false if there is no memory. */
static bool find_then(struct tensor_future *future, bool *ret_moved)
{
	*ret_moved = false;
	tensor_table_clear(&future->then);
	for (uint32_t i = 0; i < future->log.n_alive; i++) {
		const struct tensor *tensor = &future->log.alive[i];
		uint64_t then = tensor_match_begin(&future->match, &future->log, tensor);

		*ret_moved |= then != tensor->begin;
		if (then != TENSOR_MATCH_NONE &&
		    !tensor_table_put(&future->then, (struct tensor){then, tensor->bytes, tensor->begin}))
			return false;
	}
	return true;
}

/* Begins with what is alive and free. Returns false if there is no memory. */
static bool walk_begin(struct future_walk *walk)
{
	struct tensor_future *future = walk->future;
	const struct tensor_log *log = &future->log;

	for (uint32_t i = 0; i < future->n_blocks; i++)
		if (!is_small(&future->blocks[i]))
			each_piece(walk, future->blocks[i].begin, future->blocks[i].end, NULL);
	for (uint32_t i = 0; i < log->n_alive; i++)
		each_piece(walk, log->alive[i].begin, log->alive[i].begin + log->alive[i].bytes, visit_alive);
	return free_the_rest(future);
}

static bool add_born(struct tensor_future *future, uint64_t begin)
{
	if (!ARRAY_ROOM(future->births, future->n_births, future->room_births, MOST_EVENTS))
		return false;
	future->births[future->n_births++] = begin;
	return true;
}

static bool walk_birth(struct future_walk *walk, const struct tensor_event *event)
{
	struct tensor_future *future = walk->future;
	struct best_fit_range taken;

	walk->steps += future->fit.n / RANGES_STEP;
	/* The allocator will get another block, at an address that is not known. */
	if (!best_fit_take(&future->fit, tensor_match_bytes(&future->match, event), &taken))
		return add_born(future, 0);
	each_piece(walk, taken.begin, taken.end, visit_birth);
	return add_born(future, taken.begin) &&
	       tensor_table_put(&future->then, (struct tensor){event->begin, taken.end - taken.begin, taken.begin});
}

static bool walk_death(struct future_walk *walk, const struct tensor_event *event)
{
	struct tensor_future *future = walk->future;
	struct tensor *tensor = tensor_table_find(&future->then, event->begin);

	if (!add_born(future, 0))
		return false;
	if (!tensor)
		return true;
	uint64_t begin = tensor->value, end = begin + tensor->bytes;
	walk->steps += future->fit.n / RANGES_STEP;
	tensor_table_remove(&future->then, tensor);
	each_piece(walk, begin, end, visit_death);
	return best_fit_give(&future->fit, begin, end, block_from(future, begin));
}

static void walk_name(struct future_walk *walk, uint64_t then)
{
	const struct tensor_future *future = walk->future;
	const struct tensor *tensor = tensor_table_find(&future->then, then);

	walk->steps++;
	if (!tensor)
		return;
	struct live_range named = {tensor->value, tensor->value + tensor->bytes};
	const struct live_range *block = &future->blocks[block_from(future, named.begin)];
	if (block->end - block->begin <= future->whole_units * PLAN_UNIT)
		named = *block;
	each_piece(walk, named.begin, named.end, visit_name);
}

/* Goes on to the next submission. Returns false if the walk must end before that. */
static bool walk_step(struct future_walk *walk, uint64_t *event)
{
	const struct tensor_log *log = &walk->future->log;
	uint64_t from, to;

	for (; *event < log->n_events && tensor_log_event(log, *event)->position <= walk->position; ++*event) {
		const struct tensor_event *next = tensor_log_event(log, *event);

		if (!(next->born ? walk_birth(walk, next) : walk_death(walk, next)))
			return false;
	}
	if (!tensor_log_names(log, ++walk->position, &from, &to))
		return false;
	for (; from < to; from++)
		walk_name(walk, tensor_log_named(log, from));
	return !walk->failed;
}

void tensor_future_drop(struct tensor_future *future)
{
	future->until = 0;
	future->compared = false;
}

enum tensor_future_result tensor_future_make(struct tensor_future *future, struct pieces *pieces, uint64_t at,
					     uint64_t now, uint64_t most, uint64_t *ret_steps)
{
	uint64_t until = at + TENSOR_FUTURE_AHEAD < now ? at + TENSOR_FUTURE_AHEAD : now;
	struct future_walk walk = {.future = future, .pieces = pieces, .position = at, .steps = TENSOR_MATCH_STEPS};
	bool moved;

	tensor_future_drop(future);
	*ret_steps = 0;
	if (!future->piece_at || !tensor_match_make(&future->match, &future->log, at))
		return TENSOR_FUTURE_FAILED;
	*ret_steps = walk.steps += 8 * future->log.n_alive;
	future->event_from = future->log.n_events;
	future->round++;
	future->n_uses = future->n_transitions = future->n_births = 0;
	if (!find_then(future, &moved))
		return TENSOR_FUTURE_FAILED;
	future->compared = true;
	if (!moved)
		return TENSOR_FUTURE_NOT_NEEDED;
	bool goes_on = walk_begin(&walk);
	for (uint64_t event = future->match.next; goes_on && walk.position < until && walk.steps < most;)
		goes_on = walk_step(&walk, &event);
	*ret_steps = walk.steps;
	/* The last submission may not be complete. */
	future->until = walk.position - !goes_on;
	if (future->until >= at + WALK_LEAST || future->until == until)
		return TENSOR_FUTURE_MADE;
	tensor_future_drop(future);
	return TENSOR_FUTURE_FAILED;
}

uint64_t tensor_future_use_after(const struct tensor_future *future, uint32_t use, uint64_t position, uint32_t *ret_use)
{
	while (use != TENSOR_USE_NONE && future->uses[use].position <= position)
		use = future->uses[use].next;
	*ret_use = use;
	return use != TENSOR_USE_NONE ? future->uses[use].position : PREDICT_NONE;
}
