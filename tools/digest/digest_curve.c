/*
 * The least moves by budget: Belady's rule on whole blocks (belady.h). It is a reference and no bound: blocks differ
 * in size, and moving parts of them may need less.
 *
 * Long traces repeat. If there are more than MOST_USES uses, only the last ones are simulated, and the first half of
 * these only fills the device.
 */
#include "tools/common/belady.h"
#include "tools/digest/digest_part.h"

#include "policy/policy.h"

#define MOST_USES 600000

struct curve {
	const struct trace *trace;
	const struct digest_uses *uses;
	size_t from, count_from; /* indices in ops: the start of the simulation and of counting */
	struct belady belady;
};

static struct belady_names names_of(const struct digest_uses *uses, uint32_t list)
{
	return (struct belady_names){uses->blocks + uses->first[list],
				     (uint32_t)(uses->first[list + 1] - uses->first[list]), 1};
}

static void curve_run(struct curve *curve, struct digest_point *point)
{
	const struct digest_uses *uses = curve->uses;
	struct belady *b = &curve->belady;

	belady_rewind(b, point->budget);
	for (size_t op = curve->from; op < uses->n_ops; op++) {
		uint32_t what = uses->ops[op];

		b->counts = op >= curve->count_from;
		if (what & DIGEST_FREED)
			belady_forget(b, what & ~DIGEST_FREED);
		else
			belady_submit(b, names_of(uses, what), (uint32_t)(op - curve->from));
	}
	point->bytes_in = b->in + b->missed;
	point->bytes_out = b->out;
	point->over = b->over;
}

/* Finds the last uses, and the next use after each. */
static bool find_next(struct curve *curve)
{
	const struct digest_uses *uses = curve->uses;
	uint64_t n = 0;

	for (curve->from = uses->n_ops; curve->from > 0; curve->from--) {
		uint32_t what = uses->ops[curve->from - 1];

		if (what & DIGEST_FREED)
			continue;
		if (n + names_of(uses, what).n > MOST_USES)
			break;
		n += names_of(uses, what).n;
	}
	curve->count_from = curve->from ? curve->from + (uses->n_ops - curve->from) / 2 : 0;
	if (!belady_start(&curve->belady, curve->trace->n_blocks, n))
		return false;
	curve->belady.spares = true;
	for (size_t i = 0; i < curve->trace->n_blocks; i++)
		curve->belady.bytes[i] = curve->trace->blocks[i].bytes;
	for (size_t op = uses->n_ops; op-- > curve->from;)
		if (!(uses->ops[op] & DIGEST_FREED))
			belady_look_ahead(&curve->belady, names_of(uses, uses->ops[op]), (uint32_t)(op - curve->from));
	return true;
}

/* Counts the submissions that are counted, and their time. */
static void curve_measure(const struct curve *curve, struct digest *digest)
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
	struct curve curve = {.trace = digest->trace, .uses = uses};
	bool good;

	if (!uses->n_uses || uses->n_ops >= UINT32_MAX)
		return true;
	good = find_next(&curve);
	if (good) {
		curve_measure(&curve, digest);
		for (unsigned i = 0; i < DIGEST_CURVE; i++) {
			struct digest_point *point = &digest->curve[i];

			point->percent = 100 - 5 * i;
			point->budget = digest->peak / 100 * point->percent + digest->peak % 100 * point->percent / 100;
			curve_run(&curve, point);
			if (progress)
				progress("what-if", i + 1, DIGEST_CURVE);
		}
		digest->n_curve = DIGEST_CURVE;
	}
	belady_end(&curve.belady);
	return good;
}
