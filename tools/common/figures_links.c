/*
 * Links between devices that lend memory to each other: their kind and figures, for one process and for all together.
 */
#include "tools/common/figures.h"

#include <math.h>
#include <stdlib.h>

const char *figures_link_kind(uint64_t kind)
{
	static const char *const names[STATS_LINK_KINDS] = {
	    [STATS_LINK_UNASKED] = "unknown", [STATS_LINK_NONE] = "none",       [STATS_LINK_PCIE] = "PCIe",
	    [STATS_LINK_NVLINK] = "NVLink",   [STATS_LINK_UNKNOWN] = "unknown",
	};

	return kind < STATS_LINK_KINDS ? names[kind] : "unknown";
}

bool figures_link_is_known(const struct stats_link *link)
{
	return link->kind != STATS_LINK_UNASKED || link->figure[LINK_IN] || link->figure[LINK_OUT];
}

double figures_link_rate(const struct figures_process *process, unsigned device, unsigned lender,
			 enum stats_link_figure figure)
{
	if (!process->before)
		return NAN;
	return figures_rate(process->page->copy->device[device].link[lender].figure[figure],
			    process->before->copy->device[device].link[lender].figure[figure], process->seconds);
}

static struct figures_link *link_of(struct figures *figures, size_t device, size_t lender)
{
	for (size_t i = 0; i < figures->n_links; i++)
		if (figures->link[i].device == device && figures->link[i].lender == lender)
			return &figures->link[i];
	struct figures_link *room = realloc(figures->link, (figures->n_links + 1) * sizeof(*room));
	if (!room)
		return NULL;
	figures->link = room;
	room[figures->n_links] = (struct figures_link){.device = device, .lender = lender};
	return &room[figures->n_links++];
}

double figures_links_rate(const struct figures *figures, const struct figures_link *link, enum stats_link_figure figure)
{
	return link->has_before ? figures_rate(link->moved[figure], 0, figures->seconds) : NAN;
}

static void figures_links_add_one(struct figures_link *sum, const struct stats_link *now,
				  const struct stats_link *before)
{
	sum->kind = now->kind;
	sum->has_before |= before != NULL;
	for (unsigned i = 0; i < LINK_COUNT; i++) {
		sum->figure[i] += now->figure[i];
		if (before && now->figure[i] > before->figure[i])
			sum->moved[i] += now->figure[i] - before->figure[i];
	}
}

bool figures_links_add(struct figures *figures, const struct figures_process *process, const size_t at[STATS_DEVICES])
{
	const struct stats_page *copy = process->page->copy;

	for (unsigned i = 0; i < STATS_DEVICES * STATS_DEVICES; i++) {
		unsigned device = i / STATS_DEVICES, lender = i % STATS_DEVICES;
		const struct stats_link *from = &copy->device[device].link[lender];

		if (!copy->device[device].known || !copy->device[lender].known || !figures_link_is_known(from))
			continue;
		struct figures_link *sum = link_of(figures, at[device], at[lender]);
		if (!sum)
			return false;
		figures_links_add_one(sum, from,
				      process->before ? &process->before->copy->device[device].link[lender] : NULL);
	}
	return true;
}
