/*
 * The position says roughly which event of then corresponds to the next one; of those near it, the one is taken behind
 * which the past is most alike.
 */
#include "shim/plan/tensor_match.h"
#include "shim/plan/best_fit.h"

#include <stddef.h>

#define COMPARED   64   /* events by which the past is compared */
#define APART      16   /* events by which the position may be wrong */
#define BETTER_BY  2    /* an event farther from the position must have this many more alike */
#define LATEST     48   /* births that show the ratio */
#define RATIOS     8    /* different ones among them */
#define LOOK_BACK  4096 /* events that show which sizes are the same */
#define NEIGHBOURS 8    /* events that are looked at where a tensor's own does not fit */

void tensor_match_fini(struct tensor_match *match)
{
	tensor_table_fini(&match->sizes);
}

/* ---- which event ---- */

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

/* ---- sizes ---- */

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

/*
 * Returns whether a size may have become another one: because of the ratio, or because it is the same.
 */
static bool is_likely(const struct tensor_match *match, uint64_t then, uint64_t now)
{
	return times_ratio(match, then) == now || is_near(then, now);
}

/* Finds what has become of each size, as its latest birth shows. */
static bool find_sizes(struct tensor_match *match, const struct tensor_log *log)
{
	for (uint64_t i = 1; i <= LOOK_BACK && i <= match->next && tensor_log_has(log, match->next - i); i++) {
		const struct tensor_event *now = tensor_log_event(log, log->n_events - i);
		const struct tensor_event *then = tensor_log_event(log, match->next - i);

		if (!now->born || !then->born || tensor_table_find(&match->sizes, then->bytes))
			continue;
		uint64_t bytes = is_likely(match, then->bytes, now->bytes) ? now->bytes : 0;
		if (!tensor_table_put(&match->sizes, (struct tensor){then->bytes, 1, bytes}))
			return false;
	}
	return true;
}

bool tensor_match_make(struct tensor_match *match, const struct tensor_log *log, uint64_t position)
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

uint64_t tensor_match_bytes(const struct tensor_match *match, const struct tensor_event *then)
{
	const struct tensor *size =
	    then->size != TENSOR_SIZE_VARIES ? tensor_table_find(&match->sizes, then->bytes) : NULL;
	uint64_t bytes = size ? size->value : 0;

	if (then->size == TENSOR_SIZE_FIXED)
		return bytes && is_near(then->bytes, bytes) ? bytes : then->bytes;
	bytes = bytes ? bytes : times_ratio(match, then->bytes);
	return bytes ? bytes : then->bytes;
}

uint8_t tensor_match_size(const struct tensor_match *match, const struct tensor_event *then, uint64_t bytes)
{
	if (match->now == match->then)
		return then->size;
	if (then->bytes == bytes)
		return TENSOR_SIZE_FIXED;
	if (times_ratio(match, then->bytes) == bytes)
		return TENSOR_SIZE_VARIES;
	return is_near(then->bytes, bytes) ? TENSOR_SIZE_FIXED : TENSOR_SIZE_UNKNOWN;
}

/* ---- tensors ---- */

uint64_t tensor_match_begin(const struct tensor_match *match, const struct tensor_log *log, const struct tensor *tensor)
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
