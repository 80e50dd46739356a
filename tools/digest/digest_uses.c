/*
 * Finds the blocks that each submission names. Programs repeat themselves: submissions with the same names are looked
 * up once, and again only after a block was made or freed.
 */
#include "tools/digest/digest_part.h"
#include "tools/common/grow.h"

#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#define NO_LIST UINT32_MAX

struct known { /* of each different submission */
	uint32_t list;
	uint32_t epoch; /* the epoch of the last look-up */
};

struct finder {
	const struct digest *digest;
	struct digest_uses *uses;
	struct known *known;
	uint32_t *named; /* by block: the last look-up that found it */
	size_t room_blocks, room_lists, room_ops;
	uint32_t look_up, epoch;
};

/* Makes a new list at the end; it becomes valid when n_lists counts it. */
static bool list_make(struct finder *finder, const struct trace_event *event, uint64_t *ret_end)
{
	struct digest_uses *uses = finder->uses;
	uint64_t end = uses->first[uses->n_lists];

	finder->look_up++;
	for (uint64_t i = 0; i < event->submit.n; i++) {
		uint32_t block = trace_block_at(finder->digest->trace, event->named[i].address, event->time);

		if (block == TRACE_NONE || finder->named[block] == finder->look_up)
			continue;
		finder->named[block] = finder->look_up;
		if (!grow(&uses->blocks, end, &finder->room_blocks, sizeof(*uses->blocks)))
			return false;
		uses->blocks[end++] = block;
	}
	*ret_end = end;
	return true;
}

static bool same_list(const struct digest_uses *uses, uint32_t list, uint64_t begin, uint64_t end)
{
	if (uses->first[list + 1] - uses->first[list] != end - begin)
		return false;
	return end == begin || memcmp(uses->blocks + uses->first[list], uses->blocks + begin,
				      (end - begin) * sizeof(*uses->blocks)) == 0;
}

static bool list_find(struct finder *finder, const struct trace_row *row, uint32_t *ret_list)
{
	struct digest_uses *uses = finder->uses;
	struct known *known = row->which < finder->digest->trace->n_submits ? &finder->known[row->which] : NULL;
	uint64_t end;

	if (known && known->list != NO_LIST && known->epoch == finder->epoch) {
		*ret_list = known->list;
		return true;
	}
	if (!grow(&uses->first, uses->n_lists + 1, &finder->room_lists, sizeof(*uses->first)) ||
	    !list_make(finder, &row->event, &end))
		return false;
	if (!known || known->list == NO_LIST || !same_list(uses, known->list, uses->first[uses->n_lists], end)) {
		*ret_list = (uint32_t)uses->n_lists++;
		uses->first[uses->n_lists] = end;
	} else
		*ret_list = known->list;
	if (known)
		*known = (struct known){*ret_list, finder->epoch};
	return true;
}

static bool op_add(struct finder *finder, uint32_t op)
{
	struct digest_uses *uses = finder->uses;

	if (!grow(&uses->ops, uses->n_ops, &finder->room_ops, sizeof(*uses->ops)))
		return false;
	uses->ops[uses->n_ops++] = op;
	return true;
}

static void count_reach(struct finder *finder, uint32_t list)
{
	const struct trace *trace = finder->digest->trace;
	struct digest_uses *uses = finder->uses;
	uint64_t bytes = 0;

	for (uint64_t i = uses->first[list]; i < uses->first[list + 1]; i++)
		if (trace->blocks[uses->blocks[i]].backend == POLICY_USE_HEAP)
			bytes += trace->blocks[uses->blocks[i]].on_host;
	uses->n_reaching += bytes != 0;
	uses->bytes_reached += bytes;
}

static bool uses_take(struct finder *finder, const struct trace_row *row)
{
	uint32_t list;

	switch (row->event.kind) {
	case TRACE_made:
		finder->epoch++;
		return true;
	case TRACE_freed:
		finder->epoch++;
		return row->which >= finder->digest->trace->n_blocks || op_add(finder, DIGEST_FREED | row->which);
	case TRACE_submit:
		if (!list_find(finder, row, &list))
			return false;
		finder->uses->n_uses += finder->uses->first[list + 1] - finder->uses->first[list];
		if (!finder->digest->n_moves)
			count_reach(finder, list);
		return op_add(finder, list);
	default:
		return true;
	}
}

bool digest_uses_find(const struct digest *digest, struct digest_uses *uses)
{
	const struct trace *trace = digest->trace;
	struct finder finder = {.digest = digest, .uses = uses, .room_lists = 16};
	bool good;

	memset(uses, 0, sizeof(*uses));
	uses->first = digest_zeros(finder.room_lists, sizeof(*uses->first));
	finder.known = digest_zeros(trace->n_submits, sizeof(*finder.known));
	finder.named = digest_zeros(trace->n_blocks, sizeof(*finder.named));
	good = uses->first && finder.known && finder.named;
	for (uint32_t i = 0; good && i < trace->n_submits; i++)
		finder.known[i].list = NO_LIST;
	for (size_t i = 0; good && i < trace->n_rows; i++)
		good = uses_take(&finder, &trace->rows[i]);
	free(finder.known);
	free(finder.named);
	if (!good)
		digest_uses_free(uses);
	return good;
}

void digest_uses_free(struct digest_uses *uses)
{
	free(uses->ops);
	free(uses->blocks);
	free(uses->first);
	memset(uses, 0, sizeof(*uses));
}
