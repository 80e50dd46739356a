/*
 * Ranks the costliest rules and sites: by moved bytes, then by live bytes. The whole run counts, because an order by
 * the last second would change at every reading.
 */
#include "tools/top/top.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "policy/policy.h"

static uint64_t rank_moved(const struct stats_figures *figures)
{
	return figures->figure[FIGURE_moved_in_bytes] + figures->figure[FIGURE_moved_out_bytes];
}

static bool costs_more(const struct stats_figures *a, const struct stats_figures *b)
{
	if (rank_moved(a) != rank_moved(b))
		return rank_moved(a) > rank_moved(b);
	return a->figure[FIGURE_live] > b->figure[FIGURE_live];
}

static size_t rank_insert(struct top_entry *entries, size_t n, size_t most, const struct top_entry *entry)
{
	size_t at = n;

	while (at > 0 && costs_more(entry->now, entries[at - 1].now))
		at--;
	if (at >= most)
		return n;
	if (n == most)
		n--;
	memmove(&entries[at + 1], &entries[at], (n - at) * sizeof(*entries));
	entries[at] = *entry;
	return n + 1;
}

static const struct stats_figures *figures_of(const struct page *page, enum top_kind kind, unsigned number)
{
	return kind == TOP_RULES ? &page->copy->rule[number].figures : &page->copy->site[number].figures;
}

static bool is_used(const struct page *page, enum top_kind kind, unsigned number)
{
	const struct stats_figures *figures = figures_of(page, kind, number);

	if (kind == TOP_SITES && number && number != STATS_SMALL && page->copy->site[number].known != 2)
		return false;
	for (unsigned i = 0; i < FIGURE_COUNT; i++)
		if (figures->figure[i])
			return true;
	return false;
}

size_t top_rank(const struct figures_process *const *processes, size_t n, enum top_kind kind, struct top_entry *entries,
		size_t most)
{
	const unsigned n_numbers = kind == TOP_RULES ? STATS_RULES : STATS_SITES;
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		const struct figures_process *process = processes[i];

		for (unsigned number = 0; process->page->copy && number < n_numbers; number++) {
			if (!is_used(process->page, kind, number))
				continue;
			const struct top_entry entry = {
			    .process = process,
			    .now = figures_of(process->page, kind, number),
			    .before = process->before ? figures_of(process->before, kind, number) : NULL,
			    .kind = kind,
			    .number = number,
			};
			found = rank_insert(entries, found, most, &entry);
		}
	}
	return found;
}

const char *top_entry_name(const struct top_entry *entry, char *room, size_t bytes)
{
	const struct stats_page *copy = entry->process->page->copy;
	const struct stats_site *site = &copy->site[entry->number];
	char least[TOP_TEXT], caller[32] = "(caller not known)";

	if (entry->kind == TOP_RULES) {
		const char *name = copy->rule[entry->number].name;

		snprintf(room, bytes, "%s", *name ? name : "(no name)");
		return room;
	}
	if (!entry->number || entry->number == STATS_SMALL) {
		snprintf(room, bytes, entry->number ? STATS_SMALL_TEXT : "all others");
		return room;
	}
	if (site->caller)
		snprintf(caller, sizeof(caller), "0x%" PRIx64, site->caller);
	if (!site->least_bytes) {
		snprintf(room, bytes, "%s tensors", site->text);
		return room;
	}
	snprintf(room, bytes, "%s >=%s %s", *site->text ? site->text : caller,
		 top_bytes((double)site->least_bytes, least),
		 site->backend < POLICY_USE_COUNT ? policy_use_name((enum policy_use)site->backend) : "?");
	return room;
}

static double rank_rate(const struct top_entry *entry, enum figure figure)
{
	if (!entry->before)
		return NAN;
	return figures_rate(entry->now->figure[figure], entry->before->figure[figure], entry->process->seconds);
}

const char *top_entry_numbers(const struct top_entry *entry, char *room, size_t bytes)
{
	char live[TOP_TEXT], peak[TOP_TEXT], in[TOP_TEXT], out[TOP_TEXT], all[TOP_TEXT], wait[TOP_TEXT], pid[16];

	snprintf(pid, sizeof(pid), entry->process->page->pid ? "%d" : "-", (int)entry->process->page->pid);
	snprintf(
	    room, bytes, "%8s %6s %6s %6s %6s %6s %5ss", pid, top_bytes((double)entry->now->figure[FIGURE_live], live),
	    top_bytes((double)entry->now->figure[FIGURE_peak], peak),
	    top_bytes(rank_rate(entry, FIGURE_moved_in_bytes), in),
	    top_bytes(rank_rate(entry, FIGURE_moved_out_bytes), out), top_bytes((double)rank_moved(entry->now), all),
	    top_count((double)entry->now->figure[FIGURE_wait_us] / 1e6, wait));
	return room;
}
