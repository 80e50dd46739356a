// SPDX-License-Identifier: Apache-2.0
/*
 * Which piece to evict.
 *
 * Victims: if a piece is fetched long before its use at the cost of one that is used only a little later, both move
 * twice, although other pieces would become free in between. So a victim's next use must be twice as far away as that
 * of the piece it makes room for. Looking far ahead then costs hardly any traffic; without this rule it
 * costs up to a fifth. pieces.h describes how victims are found.
 */
#include "shim/base/number.h"
#include "shim/plan/types.h"

#define PROBES      4  /* parked pieces examined out of turn by each request for a victim */
#define PROBES_MOST 64 /* the same if there is no other victim */
/*
 * looked_at: how many pieces from the top of the heap are examined for one of the wanted size. sooner: it may be needed
 * sooner than the top by this fraction of the top's time. Taking it costs bytes, and saves making memory of the wanted
 * size and its alias. In gaps that is worth less (0.1 ms a piece; beside kernels the alias waits for copies). The link
 * to a peer carries a piece in the time that its mappings take, so bytes are cheap there.
 *
 * Measured (H200, GPT, 1.5, ms a step): in gaps 374 with 8 and 397 with 32 (in the model 1.6 % less on average of
 * eleven budgets; ResNet-50, and different lengths: as much); beside kernels 229 with 8 and 226 with 32, with 64 and
 * 128 as with 32; to peers 512 and half instead of 32 and an eighth fetch 3 % more and halve what is newly made: 102 to
 * 93, 126 to 97 on another machine, and 158 to 152 in gaps.
 */
static const struct {
	uint32_t looked_at, sooner;
} equals[] = {
    [PLAN_BESIDE_KERNELS] = {32, 8},
    [PLAN_IN_GAPS] = {8, 8},
    [PLAN_TO_PEERS] = {512, 2},
};

/*
 * Dead pieces. SOONER, LOOKED_AT: as above; a dead victim saves both of its copies.
 *
 * Measured (H100, GPT, 1.5, ms a step): the preference of SOONER copies 5 to 7 % less and moves 5 % more pieces than
 * none.
 */
#define DEAD_SOONER    2
#define DEAD_LOOKED_AT 128

/*
 * Pieces that are dead in part, or as a whole and needed sooner than dead ones are taken. Evicting one makes
 * room for a whole piece, and copies only what is alive in it. LEAST: a piece of which less is dead, in parts of
 * 1/PLAN_DEAD, is as any other. SOON: one that is needed within this many submissions would be waited for. LOOKED_AT:
 * as above.
 *
 * Measured (H200, GPT, beside kernels, at 1.25, 1.5 and 2.0; ms a step): 139, 221, 363 without this preference, 130,
 * 215, 353 with it, for partly dead pieces only, and with a mover that looks often (mover_idle_ns). In the replay
 * model: 139, 222, 364, and 129, 213, 356 with a least share of 1; 130, 214, 352 with 6 or 10; 131, 215, 357 with 15.
 * With the other constants of today: 126, 211, 338 for partly dead pieces only; 119, 208, 337 with 4 or 8 for SOON,
 * 122, 210, 338 with 16. In gaps, which come when a piece is needed, it copies more: 234 at 1.25 without, 245 with.
 */
#define SHARE_LEAST     6
#define SHARE_SOON      8
#define SHARE_LOOKED_AT 512

/* ---- the search ---- */

enum kind {
	OF_SIZE, /* the first one of the wanted size */
	DEAD,    /* one that is dead as a whole */
	HOLLOW,  /* the one of which the most is dead */
	ALIVE,   /* one that is not dead as a whole */
};

/* A piece that may be chosen. */
struct choice {
	uint32_t id;
	unsigned share; /* how much of it is dead, where that counts */
	bool size;      /* it has the wanted size */
	uint64_t key;
};

static bool is_better(const struct choice *a, const struct choice *b)
{
	if (a->share != b->share)
		return a->share > b->share;
	return a->size != b->size ? a->size : a->key > b->key;
}

/*
 * Returns the best piece of this kind that is not busy and has at least this key, among the first of the heap: of
 * HOLLOW ones that with the largest dead share; then one of `units` units; then that with the largest key.
 * PIECES_NONE: none. until: a HOLLOW one may be chosen only if memory suffices from its next use until this key.
 */
static uint32_t search(struct plan *plan, enum kind kind, uint32_t looked_at, uint64_t least, uint64_t until,
		       uint32_t units, plan_busy_function *busy, void *argument)
{
	struct choice best = {.id = PIECES_NONE, .share = kind == HOLLOW ? SHARE_LEAST : 0};

	for (uint32_t i = 0; i < plan->pieces.n_heap && i < looked_at; i++) {
		const struct piece *piece = pieces_find(&plan->pieces, plan->pieces.heap[i]);
		struct choice it = {.id = plan->pieces.heap[i],
				    .share = kind == HOLLOW ? piece->dead_share : 0,
				    .size = piece->units == units,
				    .key = pieces_key(&plan->pieces, piece)};

		if (it.key < least || !is_better(&it, &best) || (kind == OF_SIZE && !it.size) ||
		    (kind == DEAD && !pieces_is_dead(piece)) || (kind == ALIVE && pieces_is_dead(piece)))
			continue;
		if (kind == HOLLOW && !plan_room_fits(plan, it.key, until, 0)) {
			least = it.key + 1; /* nor does it from what is sooner */
			continue;
		}
		if (pieces_is_busy(&plan->pieces, it.id, busy, argument))
			continue;
		best = it;
		if (kind == OF_SIZE)
			break;
	}
	return best.id;
}

/* Returns the least key that stands for a submission after `when`. */
static uint64_t least_key_after(const struct plan *plan, uint64_t when)
{
	uint64_t past = plan->pieces.now - plan->at;

	if (plan->at == PREDICT_NONE)
		return PIECES_UNFORESEEN;
	if (when < past)
		return 0;
	return when - past < PIECES_UNFORESEEN ? when - past + 1 : PIECES_UNFORESEEN;
}

/* ---- victims ---- */

/*
 * Returns a victim from the heap; PIECES_NONE: no piece there has at least this key. That is, in this order:
 *  - a dead piece that may be needed sooner than the top, or was used later, but not much: its copies are saved;
 *  - beside kernels, with a forecast, the piece of which the most is dead, among those that are as good as the top:
 *    memory suffices from their next use, or birth, until the next use of the top, so they can stay then;
 *  - a piece of the wanted size that is about as far away as the top;
 *  - the top.
 */
static uint32_t plan_victim_one(struct plan *plan, uint64_t key, uint32_t order_units, plan_busy_function *busy,
				void *argument)
{
	uint32_t top = pieces_top(&plan->pieces, busy, argument), found;
	const struct piece *first = top != PIECES_NONE ? pieces_find(&plan->pieces, top) : NULL;
	uint64_t far = first ? pieces_key(&plan->pieces, first) : 0, least = plan->at;

	if (!first || far < key)
		return PIECES_NONE;
	if (plan->at == PREDICT_NONE) /* by recency */
		least = far - (plan->pieces.now - first->last_use) / DEAD_SOONER;
	else if (far < PIECES_UNFORESEEN)
		least = far - (far - plan->at) / DEAD_SOONER;
	found = search(plan, DEAD, DEAD_LOOKED_AT, larger(least, key), 0, order_units, busy, argument);
	if (found == PIECES_NONE && plan->way == PLAN_BESIDE_KERNELS && far < PIECES_UNFORESEEN &&
	    plan_room_forecast(plan))
		found = search(plan, HOLLOW, SHARE_LOOKED_AT, larger(key, plan->at + SHARE_SOON + 1), far, order_units,
			       busy, argument);
	if (found == PIECES_NONE && order_units && first->units != order_units) {
		least =
		    far >= PIECES_UNFORESEEN ? PIECES_UNFORESEEN : far - (far - plan->at) / equals[plan->way].sooner;
		found = search(plan, OF_SIZE, equals[plan->way].looked_at, larger(least, key), 0, order_units, busy,
			       argument);
	}
	return found != PIECES_NONE ? found : top;
}

/*
 * Returns whether a parked piece might be evicted later. A piece that the latest submission names cannot be evicted for
 * that submission, however long it waits.
 */
static bool may_go(const struct plan *plan, const struct piece *piece, uint64_t key, bool at_once)
{
	return pieces_key(&plan->pieces, piece) >= key && !(at_once && piece->last_use == plan->pieces.now);
}

/*
 * Returns whether there is such a piece. Similar requests come with each step of the GPU, so the last result is
 * examined first.
 */
static bool is_parked(struct plan *plan, uint64_t key, bool at_once)
{
	const struct piece *piece = plan->parked != PIECES_NONE ? pieces_find(&plan->pieces, plan->parked) : NULL;

	if (piece && piece->parked && may_go(plan, piece, key, at_once))
		return true;
	for (uint32_t id = plan->pieces.oldest; id != PIECES_NONE; id = piece->next) {
		piece = pieces_find(&plan->pieces, id);
		if (may_go(plan, piece, key, at_once)) {
			plan->parked = id;
			return true;
		}
	}
	return false;
}

/*
 * A busy piece is worth waiting for if it is used so many times as far from now. Measured in the replay model (ms a
 * step in `fast`): a GPT at 1.5 236.1 without waiting, 234.2 with 2; the fine-tune of a 7B model 2746 and 2702, where
 * 36.7 GB come in a step instead of 50.1. With 1 the GPT takes longer, and 4 waits for less.
 */
#define WORTH_WAITING 2

bool plan_better_is_busy(struct plan *plan, uint32_t victim, uint64_t when)
{
	const struct piece *piece = pieces_find(&plan->pieces, victim);
	uint64_t key = pieces_key(&plan->pieces, piece);

	return plan->at != PREDICT_NONE && key < PIECES_UNFORESEEN && !pieces_is_dead(piece) &&
	       is_parked(plan, plan->at + WORTH_WAITING * (key - plan->at), when <= plan->pieces.now);
}

/* ---- before memory is wanted ---- */

/*
 * A piece is evicted early if memory lacks before this part of the time until its next use is over. LEAST: not if it is
 * used within this many submissions: it would be fetched again at once (FETCH_SOON), as in an optimizer, which uses all
 * of its state every few submissions. LOOKED_AT: as above.
 *
 * In the replay model, a GPT whose sequences have another length in each step, at 1.5 beside kernels (means of steps 10
 * to 19; a record that is not in the repository): 153 ms a step with 1 for LEAST, 145 to 150 with 50 to 500, 149 if
 * nothing leaves early; if the same steps are run twice, so that all of the second time is foreseen, 128 with 1 and 110
 * with 128. A GPT whose steps are equal takes as long with 1 as with 500, within 3 %. On two H100s the first one takes
 * 10 % less with 128 than with 1 (docs/lab/2026-11-27-measurements.md).
 */
#define EARLY_PART      2
#define EARLY_LEAST     128
#define EARLY_LOOKED_AT 512

bool plan_early(struct plan *plan, plan_busy_function *busy, void *argument, uint32_t *ret_piece)
{
	if (!plan_room_forecast(plan) || plan_room_fits(plan, plan->at, plan->pieces.now, 0))
		return false;
	pieces_unpark(&plan->pieces, PROBES, busy, argument);
	*ret_piece = search(plan, ALIVE, EARLY_LOOKED_AT, plan->at + EARLY_LEAST + 1, 0, 0, busy, argument);
	if (*ret_piece == PIECES_NONE)
		return false;
	uint64_t key = pieces_key(&plan->pieces, pieces_find(&plan->pieces, *ret_piece));
	if (key > plan->pieces.now)
		key = plan->pieces.now;
	return !plan_room_fits(plan, plan->at, plan->at + (key - plan->at) / EARLY_PART, 0);
}

/* ---- when memory is wanted ---- */

enum plan_answer plan_victim(struct plan *plan, uint64_t when, uint32_t order_units, plan_busy_function *busy,
			     void *argument, uint32_t *ret_piece)
{
	bool at_once = when <= plan->pieces.now;
	uint64_t key = least_key_after(plan, at_once ? when : when + (when - plan->pieces.now));

	pieces_unpark(&plan->pieces, PROBES, busy, argument);
	for (int attempt = 0; attempt < 2; attempt++) {
		uint32_t found = plan_victim_one(plan, key, order_units, busy, argument);

		if (found != PIECES_NONE) {
			*ret_piece = found;
			return PLAN_FOUND;
		}
		pieces_unpark(&plan->pieces, PROBES_MOST, busy, argument);
	}
	return is_parked(plan, key, at_once) ? PLAN_BUSY : PLAN_NONE;
}
