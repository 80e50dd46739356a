// SPDX-License-Identifier: Apache-2.0
/* The plan, but for its choice of victims (plan_victim.c). */
#include "shim/plan/types.h"

#include <stdlib.h>
#include <string.h>

/* ---- room ---- */

/*
 * Whether there is room: what the plan needs of device memory now and in the rest of the period, compared with what
 * there is. What there is follows from the pieces in device memory and what is free beside them.
 */

/* The forecast is made again after this many submissions, or after one of its steps if that is longer. */
#define FORECAST_EACH 16

void plan_set_free(struct plan *plan, uint64_t units)
{
	plan->room.free = units;
}

static int64_t units_needed(const struct piece *piece)
{
	return forecast_needs(piece) ? (int64_t)piece->units : 0;
}

static uint64_t units_arriving(const struct piece *piece)
{
	return piece->arriving ? piece->units : 0;
}

/* Records that the piece, whose fields have been changed, is not as `before` any more. */
static void plan_room_update(struct plan *plan, const struct piece *piece, struct piece before)
{
	int64_t more = units_needed(piece) - units_needed(&before);

	plan->room.arriving += units_arriving(piece) - units_arriving(&before);
	plan->room.needed += (uint64_t)more;
	if (more)
		forecast_add(&plan->room.forecast, plan->at, pieces_key(&plan->pieces, piece), more);
}

bool plan_room_forecast(struct plan *plan)
{
	struct plan_room *room = &plan->room;

	if (room->free == UINT64_MAX || plan->at == PREDICT_NONE)
		return false;
	const struct tensor_future *future = &plan->tensors.future;
	uint64_t each = (plan->pieces.now - plan->at) / FORECAST_STEPS;
	if (!room->made || plan->pieces.now - room->made >= (each > FORECAST_EACH ? each : FORECAST_EACH)) {
		room->made = plan->pieces.now;
		if (plan->tensors.trusted_walk)
			forecast_make_from(&room->forecast, &plan->pieces, plan->at, future->until, room->needed,
					   future->transitions, future->n_transitions);
		else
			forecast_make(&room->forecast, &plan->pieces, plan->at, room->needed);
	}
	return forecast_is_made(&room->forecast);
}

bool plan_room_fits(const struct plan *plan, uint64_t from, uint64_t until, uint64_t units)
{
	uint64_t all = plan->units[PLAN_DEVICE] + plan->units[PLAN_PINNED] + plan->room.arriving + plan->room.free;

	return forecast_most(&plan->room.forecast, from, until) + (int64_t)units <= (int64_t)all;
}

/* ---- tensors ---- */

/*
 * When to foresee where tensors will lie (tensor_future.h), and whether to go by it. A walk is made when the program
 * has come to another place in its past, when tensors are born elsewhere than foreseen, and after EACH submissions, or
 * half of what the walk before foresees, if that is less. Near its end a walk is not gone by, for behind it nothing is
 * foretold.
 *
 * `credit` limits the cost: each thing that a walk looks at takes one, each submission adds some. If births are not as
 * foreseen, because the program's allocator has another rule, walks become rare.
 */

#define TRUST_ON  600 /* a score of this much (of TENSOR_FUTURE_SCORE) is enough to begin to go by walks ... */
#define TRUST_OFF 400 /* ... and of this much to go on */
/*
 * Submissions between walks if a birth was not as foreseen, and if all were.
 *
 * In the replay model (GPT with another length in each step, 1.5, ms a step in `fast` and `exact`): SOON 8 117 and 221,
 * 16 115 and 217, 32 111 and 200, 64 112 and 205, 128 113 and 208; EACH 128 119 and 231, 1024 111 and 200 (walks of
 * more than twice EACH).
 */
#define SOON   32
#define EACH   512
#define RARELY 256  /* at most, if births are hardly ever as foreseen */
#define AGAIN  4096 /* after a walk that could not be made, at the same place */
#define NEAR   16   /* so many before it, or a quarter of a walk if that is less, its end is near */
/*
 * Things that may be looked at, 12 ns each: what each submission adds, what a walk requires, and what can be saved up,
 * which is also the most that one walk looks at. In that model CREDIT_EACH 256 takes 121 and 211 ms, 384 to 1024 111
 * and 200.
 */
#define CREDIT_EACH  384
#define CREDIT_LEAST 16384
#define CREDIT_MOST  131072

/* Returns whether the next uses of the piece follow from where tensors will lie. */
static bool plan_tensors_knows(const struct plan *plan, const struct piece *piece)
{
	return plan->tensors.trusted_walk && tensor_future_has(&plan->tensors.future, piece);
}

/* Returns whether there is a walk, and its end is not near. */
static bool goes_far(const struct plan *plan)
{
	const struct plan_tensors *tensors = &plan->tensors;

	return tensors->future.until > plan->at + (tensors->reach / 4 < NEAR ? tensors->reach / 4 : NEAR);
}

static bool is_due(const struct plan *plan)
{
	const struct plan_tensors *tensors = &plan->tensors;
	uint64_t since = plan->pieces.now - tensors->walked;

	if (tensors->jumped && (tensors->trusted || tensors->patience <= SOON))
		return true;
	if (tensors->jumped || tensors->future.n_wrong != tensors->n_wrong)
		return since >= tensors->patience;
	if (!tensors->future.compared) /* the latest walk could not be made */
		return since >= AGAIN;
	return tensors->future.until &&
	       (since >= (tensors->reach / 2 < EACH ? tensors->reach / 2 : EACH) || !goes_far(plan));
}

static void plan_tensors_walk(struct plan *plan)
{
	struct plan_tensors *tensors = &plan->tensors;
	uint64_t steps;
	enum tensor_future_result result =
	    tensor_future_make(&tensors->future, &plan->pieces, plan->at, plan->pieces.now, CREDIT_MOST, &steps);

	tensors->credit -= (int64_t)steps;
	tensors->jumped = false;
	tensors->walked = plan->pieces.now;
	tensors->reach = tensors->future.until ? tensors->future.until - plan->at : 0;
	tensors->n_wrong = tensors->future.n_wrong;
	if (tensors->trusted || result == TENSOR_FUTURE_NOT_NEEDED || !tensors->patience)
		tensors->patience = SOON;
	else
		tensors->patience = tensors->patience < RARELY ? 2 * tensors->patience : RARELY;
}

/*
 * Foresees where tensors will lie, if that is due; to be called once for each submission. Returns whether all keys must
 * be made again.
 */
static bool plan_tensors_follow(struct plan *plan)
{
	struct plan_tensors *tensors = &plan->tensors;
	bool went_by_it = tensors->trusted_walk, walks;

	tensors->credit += tensors->credit < CREDIT_MOST ? CREDIT_EACH : 0;
	if (plan->at == PREDICT_NONE)
		return false;
	walks = tensors->credit >= CREDIT_LEAST && is_due(plan);
	if (walks || tensors->credit >= 0) /* a change of this costs as much as a walk */
		tensors->trusted = tensors->future.score >= (tensors->trusted ? TRUST_OFF : TRUST_ON);
	if (walks)
		plan_tensors_walk(plan);
	tensors->trusted_walk = tensors->trusted && goes_far(plan);
	return (walks && tensors->trusted_walk) || tensors->trusted_walk != went_by_it;
}

/* ---- what the program's allocator does ---- */

void plan_set_pieces(struct plan *plan, plan_piece_function *piece_at, void *argument)
{
	plan->tensors.future.piece_at = piece_at;
	plan->tensors.future.argument = argument;
}

void plan_set_whole(struct plan *plan, uint32_t units)
{
	plan->tensors.future.whole_units = units;
}

void plan_report(struct plan *plan, uint64_t begin, uint64_t end)
{
	tensor_future_report(&plan->tensors.future, begin, end);
}

void plan_forget(struct plan *plan, uint64_t begin, uint64_t end)
{
	tensor_future_forget(&plan->tensors.future, begin, end);
}

void plan_birth(struct plan *plan, uint64_t begin, uint64_t end)
{
	tensor_future_birth(&plan->tensors.future, plan->pieces.now, begin, end);
}

void plan_death(struct plan *plan, uint64_t begin, uint64_t end)
{
	tensor_log_death(&plan->tensors.future.log, plan->pieces.now, begin, end);
}

void plan_name(struct plan *plan, const uint64_t *addresses, unsigned n)
{
	tensor_log_name(&plan->tensors.future.log, plan->pieces.now + 1, addresses, n);
}

/* ---- keys and queries ---- */

/*
 * The plan. Every piece has a *key*: the remembered position, after predict_at(), that foretells its next use, which is
 * plan_now() - predict_at() submissions after that position. Until a submission names the piece, that is where the
 * piece itself was named next. Once it is named, it is where its twin (predict_latest) was named next: usually the same
 * piece, but a program that allocates for each step uses other memory for the same work. If a foretold use does not
 * come, the key passes to the next one. So a step forward changes only the keys of the pieces that are due there and of
 * those named now; a jump requires a walk over what is foreseen. A piece that nothing foretells ("unforeseen") goes by
 * recency, and is evicted before all others.
 *
 * If the program's allocator reports what it does, and tensors lie elsewhere than then, keys follow from where those
 * will lie, as far as that can be foreseen (tensor_future.h).
 *
 * Fetching: a cursor walks over the foreseen submissions; up to it, nothing that could be fetched is in host memory.
 * It moves back when a piece with an earlier use arrives in host memory. Dead pieces have a cursor of their own, which
 * stays near: they need no copy, so fetching them early only takes memory.
 */

#define WALK_MOST   131072 /* the most slots that one walk over the future may examine */
#define WALK_LEAST  8192   /* a walk that must end after fewer slots than this is useless */
#define WALK_EACH   64     /* slots of walking that each submission adds to the credit */
#define SLOTS_THING 4      /* slots that take as long as a thing that is looked at to foresee tensors */
#define STEP_MOST   512    /* a jump forward by at most this many submissions is taken in steps */
#define OWED_SHARE  1024   /* each submission reduces the debt by 1 / OWED_SHARE of it */
#define OWED_PAID   4      /* each unit that was used after all reduces the debt by 1 / OWED_PAID units */
#define LATE        UINT32_MAX
#define NAMES       32 /* names of the latest submission examined at once */
/*
 * A dead piece is fetched at most this many submissions before its next use, because that takes no copy, only memory.
 *
 * Measured (H100, GPT, 1.5, ms a step): in gaps 411 with any distance ahead, 380 with 64; beside kernels 287 with any,
 * 236 with 64, 262 with 16. With larger pieces, and partly dead ones preferred as victims (H200, beside kernels, at
 * 1.5 and 2.0, two runs each in turn): 208 and 347 to 352 with 64, 207 and 345 to 346 with 32.
 */
static const uint64_t dead_ahead[] = {
    [PLAN_BESIDE_KERNELS] = 32,
    [PLAN_IN_GAPS] = 64,
    [PLAN_TO_PEERS] = 64,
};

/*
 * A piece that is used within this many submissions is fetched even if it cannot stay until then.
 *
 * Measured (H100, GPT, beside kernels, ms a step at 1.25 and 1.5, one run each): 138 and 227 with 0, 143 and 226 with
 * 64, 143 and 221 with 256, 172 and 242 without a forecast.
 */
#define FETCH_SOON 64

/*
 * ---- what was fetched and not used yet ----
 *
 * A piece keeps the round in which it was fetched until it is named. If it is evicted again without having been named,
 * it was fetched in vain, and that much less is fetched from then on: a future that is wrong again and again, in a
 * program that only seems to repeat itself, must not cause more traffic than an unknown one.
 */

static bool is_ahead(const struct plan *plan, const struct piece *piece)
{
	return piece->ahead == plan->round;
}

/* Sets the round of a piece; it counts as ahead if that is the present one. */
static void set_ahead(struct plan *plan, struct piece *piece, uint32_t round, uint32_t units)
{
	if (is_ahead(plan, piece))
		plan->ahead_units -= piece->units;
	piece->ahead = round;
	pieces_set_units(&plan->pieces, piece, units);
	if (is_ahead(plan, piece))
		plan->ahead_units += units;
}

/* ---- keys ---- */

/* Moves both cursors back if the piece may be the next to be fetched. */
static void cursor_back(struct plan *plan, const struct piece *piece)
{
	uint64_t key = pieces_key(&plan->pieces, piece);

	if (piece->place == PLAN_HOST && key < plan->cursor)
		plan->cursor = key;
	if (piece->place == PLAN_HOST && key < plan->cursor_dead)
		plan->cursor_dead = key;
}

/* Sets the next use of the piece to that of the slot. */
static void plan_foretell(struct plan *plan, struct piece *piece, uint32_t id, uint64_t key, uint64_t slot)
{
	pieces_set_key(&plan->pieces, piece, id, key, slot);
	cursor_back(plan, piece);
}

/*
 * Returns the position at which the piece will be named next, after this one, and its slot there, or the number of the
 * use (tensor_future.h). PREDICT_NONE: nothing foretells it.
 */
static uint64_t key_after(const struct plan *plan, const struct piece *piece, uint64_t position, uint64_t *ret_slot)
{
	uint32_t use = pieces_has_key(&plan->pieces, piece) ? (uint32_t)piece->slot : piece->walk_first;

	if (!plan_tensors_knows(plan, piece))
		return predict_again_after(plan->predict, piece->slot, position, ret_slot);
	uint64_t key = tensor_future_use_after(&plan->tensors.future, use, position, &use);
	*ret_slot = use;
	return key;
}

/* The place in the past has advanced to `position`: what was foreseen there has happened, or did not happen. */
static void keys_pass(struct plan *plan, uint64_t position)
{
	uint32_t next, id = pieces_due(&plan->pieces, position);

	for (; id != PIECES_NONE; id = next) {
		struct piece *piece = pieces_find(&plan->pieces, id);
		uint64_t slot, again;

		next = piece->due_next;
		if (piece->last_use == plan->pieces.now)
			continue;
		/* It was not used now. It may still be used, but nothing should wait for that. */
		if (piece->ahead)
			set_ahead(plan, piece, LATE, piece->units);
		again = key_after(plan, piece, position, &slot);
		if (again == PREDICT_NONE)
			pieces_unset_key(&plan->pieces, piece);
		else
			plan_foretell(plan, piece, id, again, slot);
	}
}

/*
 * Begins a walk as long as the credit allows: if places change often and lie far back, as with sequences of different
 * lengths, walks become shorter rather than fewer, because near uses matter most. Returns false if the walk would be
 * too short.
 */
static bool walk_begin(const struct plan *plan, uint64_t at, struct predict_walk *ret_walk)
{
	uint64_t most = plan->credit < WALK_MOST ? plan->credit : WALK_MOST;

	predict_walk_begin(plan->predict, at, most, ret_walk);
	return most >= WALK_LEAST || ret_walk->end - ret_walk->slot < most;
}

/* Makes the keys of pieces that have none yet, and whose uses do not follow from where tensors will lie. */
static void keys_walk(struct plan *plan, bool for_tensors)
{
	struct predict_walk walk;
	uint64_t from, past;

	walk_begin(plan, plan->at, &walk);
	if (plan->tensors.trusted_walk) {
		/* As far as that is known. */
		predict_slots(plan->predict, plan->tensors.future.until, &from, &past);
		past -= walk.slot;
		predict_walk_begin(plan->predict, plan->at, past < WALK_MOST ? past : WALK_MOST, &walk);
	}
	if (for_tensors)
		plan->tensors.credit -= (int64_t)((walk.end - walk.slot) / SLOTS_THING);
	else
		plan->credit -= walk.end - walk.slot;
	while (predict_walk_next(plan->predict, &walk)) {
		struct piece *piece = pieces_find(&plan->pieces, walk.piece);

		if (piece && !pieces_has_key(&plan->pieces, piece) && !plan_tensors_knows(plan, piece))
			pieces_put_key(&plan->pieces, piece, walk.piece, walk.position, walk.found);
	}
}

/* Makes the keys of all pieces whose uses follow from where tensors will lie. */
static void keys_of_tensors(struct plan *plan)
{
	const struct tensor_future *future = &plan->tensors.future;

	for (uint32_t i = 0; plan->tensors.trusted_walk && i < future->n_uses; i++) {
		struct piece *piece = pieces_find(&plan->pieces, future->uses[i].piece);
		uint64_t slot, key;

		if (!piece || piece->walk_first != i || !plan_tensors_knows(plan, piece))
			continue;
		key = key_after(plan, piece, plan->at, &slot);
		if (key != PREDICT_NONE)
			pieces_put_key(&plan->pieces, piece, future->uses[i].piece, key, slot);
	}
}

/* Makes all keys again. for_tensors: because of where tensors will lie, which has a credit of its own. */
static void keys_remake(struct plan *plan, bool for_tensors)
{
	pieces_unset_keys(&plan->pieces);
	forecast_drop(&plan->room.forecast);
	plan->room.made = 0;
	if (plan->at != PREDICT_NONE) {
		keys_of_tensors(plan);
		keys_walk(plan, for_tensors);
		plan->cursor = plan->cursor_dead = plan->at + 1;
	}
	pieces_sort(&plan->pieces);
}

/* Changes to another place in the past, or to none. Nothing that was fetched counts as ahead. */
static void plan_jump(struct plan *plan, uint64_t at)
{
	plan->round++;
	plan->ahead_units = 0;
	plan->at = at;
	tensor_future_drop(&plan->tensors.future);
	plan->tensors.trusted_walk = false;
	plan->tensors.jumped = true;
	keys_remake(plan, false);
}

/* Updates the keys after the prediction has changed. */
static void plan_follow(struct plan *plan)
{
	uint64_t at = predict_at(plan->predict);
	struct predict_walk walk;

	if (at == plan->at)
		return;
	if (at != PREDICT_NONE && plan->at != PREDICT_NONE && at > plan->at && at - plan->at <= STEP_MOST) {
		while (plan->at < at)
			keys_pass(plan, ++plan->at);
		if (plan->cursor <= at)
			plan->cursor = at + 1;
		if (plan->cursor_dead <= at)
			plan->cursor_dead = at + 1;
		return;
	}
	if (at != PREDICT_NONE && !walk_begin(plan, at, &walk))
		at = PREDICT_NONE; /* the place jumps too often to be trusted: not enough credit for a walk */
	if (at != plan->at)
		plan_jump(plan, at);
}

/* ---- input ---- */

struct plan *plan_new(enum plan_way way)
{
	struct plan *plan = calloc(1, sizeof(*plan));

	if (!plan)
		return NULL;
	plan->predict = predict_new();
	if (!pieces_init(&plan->pieces) || !plan->predict) {
		plan_free(plan);
		return NULL;
	}
	plan->at = PREDICT_NONE;
	plan->way = way;
	plan->parked = PIECES_NONE;
	plan->round = 1;
	plan->credit = 2 * WALK_MOST;
	plan->room.free = UINT64_MAX;
	return plan;
}

void plan_set_way(struct plan *plan, enum plan_way way)
{
	plan->way = way;
}

void plan_free(struct plan *plan)
{
	if (!plan)
		return;
	forecast_fini(&plan->room.forecast);
	tensor_future_fini(&plan->tensors.future);
	pieces_fini(&plan->pieces);
	predict_free(plan->predict);
	free(plan);
}

void plan_set(struct plan *plan, uint32_t id, uint32_t units, enum plan_place place)
{
	struct piece *piece = pieces_make(&plan->pieces, id);

	if (!piece)
		return;
	if (place == PLAN_GONE) {
		/* What comes to this address next may be another allocator's. */
		if (plan_tensors_knows(plan, piece))
			pieces_unset_key(&plan->pieces, piece);
		piece->walk_round = 0;
	}
	struct piece before = *piece;
	pieces_leave(&plan->pieces, piece, id);
	/*
	 * It stays or arrives. In a gap a piece is MOVING from the time it is chosen, and set again when its copy
	 * begins.
	 */
	bool stays =
	    place == PLAN_DEVICE || place == PLAN_PINNED || (place == PLAN_MOVING && piece->place == PLAN_MOVING);
	bool leaves_host = piece->place == PLAN_HOST && place == PLAN_MOVING;
	uint32_t round = leaves_host && piece->foretold ? plan->round : stays ? piece->ahead : 0;
	plan->units[piece->place] -= piece->units;
	plan->units[place] += units;
	if (piece->ahead && piece->place == PLAN_DEVICE && !round && place != PLAN_GONE)
		plan->owed += (uint64_t)piece->units * OWED_SHARE;
	set_ahead(plan, piece, round, units);
	piece->place = (uint8_t)place;
	piece->arriving = place == PLAN_MOVING && (before.place == PLAN_HOST || before.arriving);
	if (place == PLAN_GONE)
		piece->dead_share = 0;
	plan_room_update(plan, piece, before);
	if (place == PLAN_DEVICE)
		pieces_rest(&plan->pieces, piece, id);
	if (place == PLAN_HOST) {
		piece->foretold = false;
		cursor_back(plan, piece);
	}
}

void plan_set_dead(struct plan *plan, uint32_t id, unsigned share)
{
	struct piece *piece = pieces_make(&plan->pieces, id);

	if (!piece)
		return;
	bool was_dead = pieces_is_dead(piece);
	plan->room.needed -= (uint64_t)units_needed(piece);
	piece->dead_share = (uint8_t)share;
	plan->room.needed += (uint64_t)units_needed(piece);
	if (pieces_is_dead(piece) == was_dead)
		return;
	/* The forecast is left as it is: it has foreseen this if the program does what it did before. */
	forecast_note(&plan->room.forecast, plan->pieces.now, id, !was_dead);
	cursor_back(plan, piece);
}

/*
 * Foretells when the latest submission's pieces will be used again: when their twins were. If the twin of a piece was
 * not used again up to now, the piece is expected to be used one period (plan_period()) from now.
 */
static void foretell_latest(struct plan *plan)
{
	struct predict_name names[NAMES];
	uint64_t from = 0;
	unsigned n;

	if (plan->at == PREDICT_NONE)
		return;
	do {
		n = predict_latest(plan->predict, plan->at, from, names, NAMES);
		for (unsigned i = 0; i < n; i++) {
			const struct predict_name *name = &names[i];
			struct piece *piece = pieces_find(&plan->pieces, name->piece);
			uint64_t slot, key;

			if (!piece)
				continue;
			if (plan_tensors_knows(plan, piece)) {
				/* What has no use where tensors will lie is used later. */
				key = key_after(plan, piece, plan->at, &slot);
				plan_foretell(plan, piece, name->piece, key != PREDICT_NONE ? key : plan->pieces.now,
					      slot);
			} else if (name->again != PREDICT_NONE) {
				plan_foretell(plan, piece, name->piece, name->again, name->again_slot);
			} else if (name->has_twin || !pieces_has_key(&plan->pieces, piece)) {
				plan_foretell(plan, piece, name->piece, plan->pieces.now, name->slot);
			}
		}
		from += n;
	} while (n == NAMES);
}

void plan_note(struct plan *plan, uint64_t function, const uint32_t *pieces, unsigned n)
{
	predict_note(plan->predict, function, pieces, n);
	plan->pieces.now = predict_now(plan->predict);
	plan->owed -= plan->owed / OWED_SHARE;
	plan->credit += plan->credit < 4 * WALK_MOST ? WALK_EACH : 0;
	for (unsigned i = 0; i < n; i++) {
		struct piece *piece = pieces_make(&plan->pieces, pieces[i]);

		if (!piece)
			continue;
		piece->last_use = plan->pieces.now;
		piece->foretold = false;
		if (piece->ahead) {
			uint64_t paid = (uint64_t)piece->units * OWED_SHARE / OWED_PAID;

			plan->owed -= plan->owed < paid ? plan->owed : paid;
			set_ahead(plan, piece, 0, piece->units);
		}
		if (piece->place == PLAN_DEVICE)
			pieces_park(&plan->pieces, piece, pieces[i]);
	}
	plan_follow(plan);
	if (plan_tensors_follow(plan))
		keys_remake(plan, true);
	foretell_latest(plan);
}

/* ---- queries ---- */

enum plan_place plan_where(const struct plan *plan, uint32_t piece)
{
	const struct piece *found = pieces_find(&plan->pieces, piece);

	return found ? (enum plan_place)found->place : PLAN_GONE;
}

uint64_t plan_units(const struct plan *plan, enum plan_place place)
{
	return plan->units[place];
}

uint64_t plan_foreseen(const struct plan *plan)
{
	return plan->pieces.due_units;
}

uint64_t plan_now(const struct plan *plan)
{
	return plan->pieces.now;
}

bool plan_knows(const struct plan *plan)
{
	return plan->at != PREDICT_NONE;
}

uint64_t plan_period(const struct plan *plan)
{
	return plan_knows(plan) ? plan->pieces.now - plan->at : 0;
}

uint64_t plan_span(const struct plan *plan)
{
	uint64_t period = plan_period(plan);

	return period < PLAN_SPAN_MOST ? period : PLAN_SPAN_MOST;
}

/* Returns the first piece from the cursor's position on, up to `last`, that may be fetched; PIECES_NONE: none. */
static uint32_t plan_fetch_from(const struct plan *plan, uint64_t *cursor, uint64_t last, bool dead)
{
	if (last > plan->pieces.now)
		last = plan->pieces.now;
	for (; *cursor <= last; ++*cursor) {
		const struct piece *piece;

		for (uint32_t id = pieces_due(&plan->pieces, *cursor); id != PIECES_NONE; id = piece->due_next) {
			piece = pieces_find(&plan->pieces, id);
			if (piece->place == PLAN_HOST && piece->key == *cursor && pieces_is_dead(piece) == dead)
				return id;
		}
	}
	return PIECES_NONE;
}

/*
 * Returns whether it is time to fetch the piece. With a forecast it is if the piece is needed very soon, or can stay
 * until it is used; what must make room again would cross the link twice. is_far: enough has been fetched ahead.
 */
static bool is_time_for(struct plan *plan, const struct piece *piece, bool is_far)
{
	if (!plan_room_forecast(plan))
		return !is_far;
	if (!is_far && piece->key - plan->at <= FETCH_SOON)
		return true;
	return plan_room_fits(plan, plan->at, piece->key, piece->units);
}

bool plan_fetch(struct plan *plan, uint64_t ahead_units, uint32_t *ret_piece, uint64_t *ret_when)
{
	uint64_t owed = plan->owed / OWED_SHARE;
	uint32_t id = PIECES_NONE;

	if (plan->at == PREDICT_NONE || owed >= ahead_units)
		return false;
	bool is_far = plan->ahead_units + owed >= ahead_units;
	if (!is_far)
		id = plan_fetch_from(plan, &plan->cursor_dead, plan->at + dead_ahead[plan->way], true);
	if (id == PIECES_NONE)
		id = plan_fetch_from(plan, &plan->cursor, plan->pieces.now, false);
	struct piece *piece = id != PIECES_NONE ? pieces_find(&plan->pieces, id) : NULL;
	if (!piece || (!pieces_is_dead(piece) && !is_time_for(plan, piece, is_far)))
		return false;
	piece->foretold = true;
	*ret_piece = id;
	*ret_when = piece->key >= PIECES_UNFORESEEN ? PLAN_NEVER : piece->key + (plan->pieces.now - plan->at);
	return true;
}
