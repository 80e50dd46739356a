// SPDX-License-Identifier: Apache-2.0
/*
 * Sums allocations by rule, by site and by chain of calls. Every block is in one group of each table. What of a move
 * belongs to tensors of other lines is then taken from the block's site and given to theirs.
 */
#include "tools/digest/digest_part.h"
#include "tools/common/grow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

static size_t size_of(const struct digest *digest, enum digest_by by)
{
	/* By rule, group 0 is for allocations without a rule, and the last group for rules beyond the names. */
	return by == DIGEST_BY_RULE ? digest->trace->n_names[TRACE_RULES] + 2 : digest->trace->n_names[TRACE_SITES] + 1;
}

uint64_t digest_group_of(const struct digest *digest, enum digest_by by, uint64_t rule, uint64_t site)
{
	size_t last_rule = size_of(digest, DIGEST_BY_RULE) - 1;

	if (by == DIGEST_BY_RULE)
		return rule < last_rule ? rule : last_rule;
	site = site < digest->trace->n_names[TRACE_SITES] ? site : 0;
	return by == DIGEST_BY_SITE ? digest->first_site[site] : site;
}

static struct digest_group *group_of(const struct digest *digest, struct digest_groups *groups, enum digest_by by,
				     uint32_t block)
{
	const struct trace_block *of = &digest->trace->blocks[block];

	return &groups->all[by][digest_group_of(digest, by, of->rule, of->site)];
}

const char *const digest_by_names[DIGEST_TABLES] = {"rule", "site", "calls"};

const char *digest_group_name(const struct digest *digest, enum digest_by by, uint64_t number, char *room, size_t bytes)
{
	const struct trace *trace = digest->trace;

	if (by != DIGEST_BY_RULE)
		return number < trace->n_names[TRACE_SITES] && trace->names[TRACE_SITES][number]
			   ? trace->names[TRACE_SITES][number]
			   : "(not known)";
	if (number == 0)
		return POLICY_NO_RULE;
	if (number < trace->n_names[TRACE_RULES] && trace->names[TRACE_RULES][number])
		return trace->names[TRACE_RULES][number];
	snprintf(room, bytes, "rule %" PRIu64, number);
	return room;
}

const char *digest_callers(const struct digest *digest, uint64_t number)
{
	const struct trace *trace = digest->trace;

	return number < trace->n_names[TRACE_CALLERS] ? trace->names[TRACE_CALLERS][number] : NULL;
}

static const struct trace *sorted; /* the argument of the comparison, because qsort() passes none */

static int by_name(const void *a, const void *b)
{
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	int order = strcmp(trace_text(sorted, TRACE_SITES, i), trace_text(sorted, TRACE_SITES, k));

	return order ? order : (i > k) - (i < k);
}

/* Sites that differ only in their callers have the same name. A number without a name stays what it is. */
static bool first_sites_find(struct digest *digest)
{
	const struct trace *trace = digest->trace;
	size_t n = trace->n_names[TRACE_SITES], n_named = 0;
	uint32_t *order = calloc(n, sizeof(*order));

	digest->first_site = calloc(n + 1, sizeof(*digest->first_site)); /* site 0 is always there */
	if (!order || !digest->first_site) {
		free(order);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		digest->first_site[i] = (uint32_t)i;
		if (i && trace->names[TRACE_SITES][i])
			order[n_named++] = (uint32_t)i;
	}
	sorted = trace;
	qsort(order, n_named, sizeof(*order), by_name);
	for (size_t i = 1; i < n_named; i++)
		if (!strcmp(trace_text(trace, TRACE_SITES, order[i]), trace_text(trace, TRACE_SITES, order[i - 1])))
			digest->first_site[order[i]] = digest->first_site[order[i - 1]];
	free(order);
	return true;
}

bool digest_groups_begin(struct digest *digest, struct digest_groups *groups)
{
	memset(groups, 0, sizeof(*groups));
	if (!first_sites_find(digest))
		return false;
	groups->bytes = calloc(digest->trace->n_blocks, sizeof(*groups->bytes));
	groups->faults = calloc(digest->trace->n_blocks, sizeof(*groups->faults));
	for (int by = 0; by < DIGEST_TABLES; by++) {
		groups->n[by] = size_of(digest, by);
		groups->all[by] = calloc(groups->n[by], sizeof(**groups->all));
		if (!groups->all[by])
			return false;
		for (size_t i = 0; i < groups->n[by]; i++)
			groups->all[by][i].number = i;
	}
	return groups->bytes && groups->faults;
}

static void group_live(struct digest_group *group, uint64_t less, uint64_t more)
{
	group->live = group->live - less + more;
	if (group->live > group->peak)
		group->peak = group->live;
}

/* Changes the size of a block; 0: it was freed. */
static void block_becomes(struct digest *digest, struct digest_groups *groups, uint32_t which, uint64_t bytes)
{
	uint64_t before = groups->bytes[which];

	groups->bytes[which] = bytes;
	group_live(&digest->total, before, bytes);
	for (int by = 0; by < DIGEST_TABLES; by++)
		group_live(group_of(digest, groups, by, which), before, bytes);
}

static void group_born(struct digest_group *group, uint64_t bytes)
{
	group->tensors++;
	group->tensor_bytes += bytes;
}

static void group_managed(struct digest_group *group, const struct trace_event *event)
{
	group->managed_used += !event->managed.touched;
	group->managed_touches += event->managed.touched;
	group->managed_back += event->managed.back;
}

void digest_groups_event(struct digest *digest, struct digest_groups *groups, const struct trace_row *row)
{
	const struct trace_event *event = &row->event;
	bool known = row->which < digest->trace->n_blocks;
	uint32_t block;
	uint64_t number;

	switch (event->kind) {
	case TRACE_made:
		if (known)
			block_becomes(digest, groups, row->which, event->made.bytes);
		break;
	case TRACE_grown:
		if (known && groups->bytes[row->which])
			block_becomes(digest, groups, row->which, event->grown.bytes);
		break;
	case TRACE_freed:
		if (known)
			block_becomes(digest, groups, row->which, 0);
		break;
	case TRACE_refused:
		digest->total.refused++;
		for (int by = 0; by < DIGEST_TABLES; by++) {
			number = digest_group_of(digest, by, event->refused.rule, event->refused.site);
			groups->all[by][number].refused++;
		}
		break;
	case TRACE_born:
		group_born(&digest->total, event->born.bytes);
		for (int by = DIGEST_BY_SITE; by < DIGEST_TABLES; by++)
			if ((number = digest_group_of(digest, by, 0, event->born.site)))
				group_born(&groups->all[by][number], event->born.bytes);
		break;
	case TRACE_managed:
		group_managed(&digest->total, event);
		for (int by = 0; known && by < DIGEST_TABLES; by++)
			group_managed(group_of(digest, groups, by, row->which), event);
		break;
	case TRACE_fault:
		block = trace_block_at(digest->trace, event->fault.address, event->time);
		if (block < digest->trace->n_blocks && event->fault.kind <= TRACE_FAULT_OF_CPU)
			groups->faults[block]++;
		break;
	}
}

static void group_add(struct digest_group *group, const struct trace_block *block, uint64_t wait_ns, uint64_t faults)
{
	group->allocations++;
	group->bytes += block->bytes;
	group->on_host += block->on_host;
	group->moves_in += block->moves_in;
	group->moves_out += block->moves_out;
	group->bytes_in += block->bytes_in;
	group->bytes_out += block->bytes_out;
	group->refetches += block->refetches;
	group->submits += block->submits;
	group->faults += faults;
	group->wait_ns += wait_ns;
}

/* Takes as much of this from one group as it has, and gives it to another. */
static void give(uint64_t *from, uint64_t *to, uint64_t amount)
{
	amount = amount < *from ? amount : *from;
	*from -= amount;
	*to += amount;
}

/* Gives the shares of a move, n of them, to their sites. Nobody waits for the rest of it. */
static void give_move(const struct digest *digest, struct digest_groups *groups, const struct digest_share *shares,
		      size_t n, enum digest_by by)
{
	const struct digest_move *move = &digest->moves[shares->move];
	struct digest_group *from = group_of(digest, groups, by, move->block);
	struct digest_group *most = from;
	uint64_t all = 0, best = 0;

	for (size_t i = 0; i < n; i++)
		all += shares[i].bytes;
	best = move->bytes > all ? move->bytes - all : 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t site = by == DIGEST_BY_SITE ? digest->first_site[shares[i].site] : shares[i].site;
		struct digest_group *to = &groups->all[by][site];

		if (move->to_host)
			give(&from->bytes_out, &to->bytes_out, shares[i].bytes);
		else
			give(&from->bytes_in, &to->bytes_in, shares[i].bytes);
		give(&from->wait_ns, &to->wait_ns,
		     (uint64_t)((double)move->wait_ns * (double)shares[i].bytes / (double)all));
		if (shares[i].bytes > best) {
			best = shares[i].bytes;
			most = to;
		}
	}
	give(move->to_host ? &from->moves_out : &from->moves_in, move->to_host ? &most->moves_out : &most->moves_in, 1);
}

static void give_moves(const struct digest *digest, struct digest_groups *groups)
{
	for (size_t i = 0, n; i < digest->n_shares; i += n) {
		for (n = 1; i + n < digest->n_shares && digest->shares[i + n].move == digest->shares[i].move; n++)
			;
		give_move(digest, groups, &digest->shares[i], n, DIGEST_BY_SITE);
		give_move(digest, groups, &digest->shares[i], n, DIGEST_BY_CALLS);
	}
}

static int by_cost(const void *a, const void *b)
{
	const struct digest_group *x = a, *y = b;
	int order = ORDER(y->wait_ns, x->wait_ns) ?: ORDER(y->bytes_in, x->bytes_in);

	return order ?: ORDER(y->peak, x->peak) ?: ORDER(x->number, y->number);
}

static bool idle_rules_find(struct digest *digest, const struct digest_group *rules)
{
	const struct trace *trace = digest->trace;

	digest->idle_rules = calloc(trace->n_names[TRACE_RULES], sizeof(*digest->idle_rules));
	if (!digest->idle_rules)
		return false;
	for (size_t i = 1; i < trace->n_names[TRACE_RULES]; i++)
		if (trace->names[TRACE_RULES][i] && !rules[i].allocations && !rules[i].refused)
			digest->idle_rules[digest->n_idle_rules++] = (uint32_t)i;
	return true;
}

bool digest_groups_end(struct digest *digest, struct digest_groups *groups)
{
	const struct trace *trace = digest->trace;

	for (size_t i = 0; i < trace->n_blocks; i++) {
		group_add(&digest->total, &trace->blocks[i], digest->block_wait_ns[i], groups->faults[i]);
		for (int by = 0; by < DIGEST_TABLES; by++)
			group_add(group_of(digest, groups, by, (uint32_t)i), &trace->blocks[i],
				  digest->block_wait_ns[i], groups->faults[i]);
	}
	give_moves(digest, groups);
	digest->tells_untouched =
	    digest->events_lost == 1 && trace->ended && !trace->n_lost && !trace->cut && !trace->damaged;
	if (!idle_rules_find(digest, groups->all[DIGEST_BY_RULE]))
		return false;
	for (int by = 0; by < DIGEST_TABLES; by++) {
		struct digest_table *table = &digest->tables[by];

		table->groups = groups->all[by];
		groups->all[by] = NULL;
		for (size_t i = 0; i < groups->n[by]; i++)
			if (table->groups[i].allocations || table->groups[i].refused || table->groups[i].tensors)
				table->groups[table->n++] = table->groups[i];
		qsort(table->groups, table->n, sizeof(*table->groups), by_cost);
	}
	return true;
}

void digest_groups_free(struct digest_groups *groups)
{
	for (int by = 0; by < DIGEST_TABLES; by++)
		free(groups->all[by]);
	FREE_ALL(groups->bytes, groups->faults);
}
