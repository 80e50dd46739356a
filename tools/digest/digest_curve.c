/*
 * What must move, by budget: Belady's rule on whole blocks. What is used farthest in the future goes out first. It is a
 * reference, not a bound: blocks differ in size, and moving parts of them may go below it.
 *
 * A backward pass finds for each use the next one; a forward pass keeps what is on the device in a heap by next use, the
 * farthest on top. What the submission at hand names has that submission as its next use, and so is taken last of all.
 * First uses bring nothing in: nothing was written yet.
 *
 * Long traces repeat themselves: of more than MOST_USES uses the last ones are taken, and of these the first half only
 * fills the device.
 */
#include "tools/digest/digest_part.h"

#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#define MOST_USES 600000
#define NEVER     UINT32_MAX
#define AWAY      UINT32_MAX

struct curve {
	const struct trace *trace;
	const struct digest_uses *uses;
	size_t from, count_from; /* ops: where it begins, and where counting does */
	uint32_t *next;          /* by use, from the first op on */
	uint32_t *after;         /* by block: its next use, for the backward pass; then whether it was written */
	/* The device: a heap of blocks. */
	uint32_t *heap, *place, *key; /* by place; by block, AWAY: not on the device; by block: its next use */
	uint32_t n;
	uint64_t used, budget;
	bool counting;
	struct digest_point *point;
};

static uint64_t list_length(const struct digest_uses *uses, uint32_t list)
{
	return uses->first[list + 1] - uses->first[list];
}

static void put(struct curve *curve, uint32_t place, uint32_t block)
{
	curve->heap[place] = block;
	curve->place[block] = place;
}

/* A block's key has changed: to its right place. */
static void settle(struct curve *curve, uint32_t block)
{
	uint32_t place = curve->place[block], key = curve->key[block];

	for (; place && curve->key[curve->heap[(place - 1) / 2]] < key; place = (place - 1) / 2)
		put(curve, place, curve->heap[(place - 1) / 2]);
	for (uint32_t child; (child = 2 * place + 1) < curve->n; place = child) {
		if (child + 1 < curve->n && curve->key[curve->heap[child + 1]] > curve->key[curve->heap[child]])
			child++;
		if (curve->key[curve->heap[child]] <= key)
			break;
		put(curve, place, curve->heap[child]);
	}
	put(curve, place, block);
}

static void leave(struct curve *curve, uint32_t block)
{
	uint32_t place = curve->place[block], last = curve->heap[--curve->n];

	curve->place[block] = AWAY;
	curve->used -= curve->trace->blocks[block].bytes;
	if (last == block)
		return;
	put(curve, place, last);
	settle(curve, last);
}

static bool make_room(struct curve *curve, uint64_t bytes, uint32_t op)
{
	if (bytes > curve->budget)
		return false;
	while (curve->used > curve->budget - bytes) {
		if (!curve->n || curve->key[curve->heap[0]] <= op)
			return false;
		if (curve->counting)
			curve->point->bytes_out += curve->trace->blocks[curve->heap[0]].bytes;
		leave(curve, curve->heap[0]);
	}
	return true;
}

static void submit(struct curve *curve, uint32_t list, uint32_t op, const uint32_t *next)
{
	const uint32_t *blocks = curve->uses->blocks + curve->uses->first[list];
	uint64_t n = list_length(curve->uses, list);
	bool fits = true;

	for (uint64_t i = 0; i < n; i++) {
		uint32_t block = blocks[i];
		uint64_t bytes = curve->trace->blocks[block].bytes;

		if (curve->place[block] != AWAY)
			continue;
		if (curve->counting && curve->after[block])
			curve->point->bytes_in += bytes;
		if (!make_room(curve, bytes, op)) {
			fits = false;
			continue;
		}
		curve->used += bytes;
		curve->key[block] = op;
		put(curve, curve->n++, block);
		settle(curve, block);
	}
	curve->point->over += curve->counting && !fits;
	for (uint64_t i = 0; i < n; i++) {
		curve->after[blocks[i]] = 1;
		curve->key[blocks[i]] = next[i];
		if (curve->place[blocks[i]] != AWAY)
			settle(curve, blocks[i]);
	}
}

static void run(struct curve *curve)
{
	const struct digest_uses *uses = curve->uses;
	uint64_t use = 0;

	memset(curve->place, 0xff, curve->trace->n_blocks * sizeof(*curve->place));
	memset(curve->after, 0, curve->trace->n_blocks * sizeof(*curve->after));
	curve->n = 0;
	curve->used = 0;
	for (size_t op = curve->from; op < uses->n_ops; op++) {
		uint32_t what = uses->ops[op];

		curve->counting = op >= curve->count_from;
		if (!(what & DIGEST_FREED)) {
			submit(curve, what, (uint32_t)(op - curve->from), curve->next + use);
			use += list_length(uses, what);
		} else if (curve->place[what & ~DIGEST_FREED] != AWAY)
			leave(curve, what & ~DIGEST_FREED);
	}
}

/* The last uses, and the next one of each. */
static bool find_next(struct curve *curve)
{
	const struct digest_uses *uses = curve->uses;
	uint64_t n = 0, use;

	for (curve->from = uses->n_ops; curve->from > 0; curve->from--) {
		uint32_t what = uses->ops[curve->from - 1];

		if (what & DIGEST_FREED)
			continue;
		if (n + list_length(uses, what) > MOST_USES)
			break;
		n += list_length(uses, what);
	}
	curve->count_from = curve->from ? curve->from + (uses->n_ops - curve->from) / 2 : 0;
	curve->next = digest_zeros(n, sizeof(*curve->next));
	if (!curve->next)
		return false;
	memset(curve->after, 0xff, curve->trace->n_blocks * sizeof(*curve->after));
	use = n;
	for (size_t op = uses->n_ops; op-- > curve->from;) {
		uint32_t what = uses->ops[op];

		if (what & DIGEST_FREED)
			continue;
		use -= list_length(uses, what);
		for (uint64_t i = 0; i < list_length(uses, what); i++) {
			uint32_t block = uses->blocks[uses->first[what] + i];

			curve->next[use + i] = curve->after[block];
			curve->after[block] = (uint32_t)(op - curve->from);
		}
	}
	return true;
}

/* How many submissions are counted, and the time that they took. */
static void measure(const struct curve *curve, struct digest *digest)
{
	const struct trace *trace = curve->trace;
	uint64_t all = 0, counted = 0, n = 0;

	for (size_t op = 0; op < curve->uses->n_ops; op++) {
		bool submission = !(curve->uses->ops[op] & DIGEST_FREED);

		all += submission;
		counted += submission && op >= curve->count_from;
	}
	digest->curve_submits = counted;
	for (size_t i = 0; i < trace->n_rows; i++) {
		if (trace->rows[i].event.kind != TRACE_submit)
			continue;
		if (n++ == all - counted)
			digest->curve_ns = digest->run_ns - digest_since(digest, trace->rows[i].event.time);
	}
	for (size_t i = 0; i < digest->n_steps; i++)
		digest->curve_steps += digest->steps[i].device == digest->steps[0].device &&
				       digest->steps[i].time + digest->curve_ns >= digest->run_ns;
}

bool digest_curve_make(struct digest *digest, const struct digest_uses *uses, digest_progress *progress)
{
	size_t n = digest->trace->n_blocks;
	struct curve curve = {.trace = digest->trace, .uses = uses};
	bool good;

	if (!uses->n_uses || uses->n_ops >= NEVER)
		return true;
	curve.after = digest_zeros(n, sizeof(*curve.after));
	curve.heap = digest_zeros(n, sizeof(*curve.heap));
	curve.place = digest_zeros(n, sizeof(*curve.place));
	curve.key = digest_zeros(n, sizeof(*curve.key));
	good = curve.after && curve.heap && curve.place && curve.key && find_next(&curve);
	if (good) {
		measure(&curve, digest);
		for (unsigned i = 0; i < DIGEST_CURVE; i++) {
			curve.point = &digest->curve[i];
			curve.point->percent = 100 - 5 * i;
			curve.budget =
			    digest->peak / 100 * curve.point->percent + digest->peak % 100 * curve.point->percent / 100;
			curve.point->budget = curve.budget;
			run(&curve);
			if (progress)
				progress("what-if", i + 1, DIGEST_CURVE);
		}
		digest->n_curve = DIGEST_CURVE;
	}
	free(curve.next);
	free(curve.after);
	free(curve.heap);
	free(curve.place);
	free(curve.key);
	return good;
}
