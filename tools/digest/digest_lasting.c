/*
 * Follows the tensors of one line through the trace, and asks of each that is brought in whether it was born before the
 * step before. One begin of a step may lie between the forward and the backward pass, so a tensor that has seen one may
 * be of the same step.
 */
#include "tools/digest/digest_part.h"
#include "tools/common/grow.h"

#include <stdlib.h>

enum { ALIVE_MOST = 4096 }; /* of a line with more at once nothing is known */

struct tensor {
	uint64_t begin, end, born;
};

struct lasting {
	const struct digest *digest;
	struct tensor *alive;
	size_t n, room;
	uint64_t latest[DIGEST_DEVICES], before[DIGEST_DEVICES]; /* begins of steps, plus 1; 0: there was none */
	uint64_t all, lasting;                                   /* bytes brought in; of tensors that last */
};

/* Whatever was in these bytes is not there any more. */
static void lasting_forget(struct lasting *lasting, uint64_t begin, uint64_t end)
{
	for (size_t i = lasting->n; i-- > 0;)
		if (lasting->alive[i].begin < end && lasting->alive[i].end > begin)
			lasting->alive[i] = lasting->alive[--lasting->n];
}

static void note_steps(struct lasting *lasting, size_t *at, uint64_t now)
{
	const struct digest *digest = lasting->digest;

	for (; *at < digest->n_steps && digest->steps[*at].time <= now; ++*at) {
		const struct digest_step *step = &digest->steps[*at];

		lasting->before[step->device] = lasting->latest[step->device];
		lasting->latest[step->device] = step->time + 1;
	}
}

static void count_move(struct lasting *lasting, const struct digest_move *move)
{
	uint64_t end = move->address + move->bytes;

	if (move->to_host || move->stayed || move->end == UINT64_MAX || move->device >= DIGEST_DEVICES ||
	    !lasting->before[move->device])
		return;
	for (size_t i = 0; i < lasting->n; i++) {
		const struct tensor *tensor = &lasting->alive[i];
		uint64_t from = tensor->begin > move->address ? tensor->begin : move->address;
		uint64_t to = tensor->end < end ? tensor->end : end, bytes = to > from ? to - from : 0;

		lasting->all += bytes;
		lasting->lasting += tensor->born + 1 < lasting->before[move->device] ? bytes : 0;
	}
}

/* Returns false if nothing can be said. */
static bool take(struct lasting *lasting, const struct trace_event *event, uint64_t site)
{
	const struct digest *digest = lasting->digest;
	uint64_t begin = event->born.address, end = begin + event->born.bytes;

	if (end < begin)
		return true;
	lasting_forget(lasting, begin, end);
	if (event->kind != TRACE_born || event->born.site >= digest->trace->n_names[TRACE_SITES] ||
	    digest->first_site[event->born.site] != site)
		return true;
	if (lasting->n == ALIVE_MOST || !grow(&lasting->alive, lasting->n, &lasting->room, sizeof(*lasting->alive)))
		return false;
	lasting->alive[lasting->n++] = (struct tensor){begin, end, digest_since(digest, event->time)};
	return true;
}

enum digest_lasting digest_lasting(const struct digest *digest, uint64_t site)
{
	struct lasting lasting = {.digest = digest};
	size_t n_moves = 0, step = 0;
	bool known = true;

	for (size_t i = 0; known && i < digest->trace->n_rows; i++) {
		const struct trace_event *event = &digest->trace->rows[i].event;

		note_steps(&lasting, &step, digest_since(digest, event->time));
		if (event->kind == TRACE_move)
			count_move(&lasting, &digest->moves[n_moves++]);
		else if (event->kind == TRACE_born || event->kind == TRACE_died)
			known = take(&lasting, event, site);
	}
	free(lasting.alive);
	if (!known || !lasting.all)
		return DIGEST_LASTING_UNKNOWN;
	if (2 * lasting.lasting > lasting.all)
		return DIGEST_LASTING;
	return 10 * lasting.lasting < lasting.all ? DIGEST_PASSING : DIGEST_LASTING_UNKNOWN;
}
