// SPDX-License-Identifier: Apache-2.0
/*
 * From the figures of a run to a policy, and to a line once a minute.
 */
#include "tools/run/fit_policy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "policy/text.h"
#include "shim/stats/summary.h"
#include "tools/common/policy_file.h"
#include "tools/common/units.h"

#define MIB ((uint64_t)1 << 20)
enum { NAME_ROOM = 96, WHAT_ROOM = 240 };

/* What the reasons are made of. */
struct fit_run {
	const struct fit_facts *facts;
	const struct stats_page *page;
	double seconds, lost;
	enum advice change;
	uint64_t need;          /* bytes that the heap held at most */
	uint64_t total, budget; /* of the devices that were used */
	unsigned n_devices;
};

static uint64_t counter(const struct stats_page *page, enum stats_counter which)
{
	return atomic_load(&page->counter[which]);
}

static uint64_t figure(const struct stats_figures *figures, enum figure which)
{
	return atomic_load(&figures->figure[which]);
}

/* ---- settings ---- */

/* Writes each key that the user set, with its value. */
static bool put_set(FILE *file, const char *set)
{
	char *copy = strdup(set ? set : ""), *rest = copy, *item;
	bool good = copy != NULL;

	while (good && (item = strsep(&rest, ","))) {
		char *equals = strchr(item, '=');

		item += strspn(item, " ");
		if (!*item || !equals)
			continue;
		*equals = 0;
		item[strcspn(item, " ")] = 0;
		equals += 1 + strspn(equals + 1, " ");
		for (size_t n = strlen(equals); n && equals[n - 1] == ' '; n--)
			equals[n - 1] = 0;
		fprintf(file, "# because --set, or SPILLWAY_SET, said so\n%s: ", item);
		good = policy_file_put_quoted(file, equals);
		fputc('\n', file);
	}
	free(copy);
	return good;
}

/* ---- keys ---- */

static struct fit_run look(const struct fit_facts *facts)
{
	const struct stats_page *page = facts->page;
	struct fit_run run = {.facts = facts,
			      .page = page,
			      .seconds = (double)(facts->now - page->start_clock) / 1e9,
			      .lost = summary_lost(page, facts->now),
			      .change = summary_change(page, facts->now),
			      .need = figure(&page->backend[0], FIGURE_peak)};

	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct stats_device *device = &page->device[i];

		if (!atomic_load(&device->known) || !figure(&device->figures, FIGURE_peak))
			continue;
		run.n_devices++;
		run.total += atomic_load(&device->total);
		run.budget += atomic_load(&device->budget);
	}
	return run;
}

static void put_head(FILE *file, const struct fit_run *run)
{
	char program[NAME_ROOM];

	policy_printable(run->facts->program ? run->facts->program : "a program", program, sizeof(program));
	fprintf(file, "# Written by `spillway run --fit` after a run of %.1f s of %s\n", run->seconds, program);
	if (run->facts->n_processes > 1)
		fprintf(file, "# Of %u processes that used CUDA memory this is of %" PRIu64 ", which lost most.\n",
			run->facts->n_processes, run->page->pid);
	fputs("version: 1\n", file);
}

static void put_mode(FILE *file, const struct fit_run *run)
{
	double gap = (double)counter(run->page, STAT_gap_us) / 1e6;

	if (!policy_set_names(run->facts->set, "spill.mode")) {
		if (summary_is_over(run->page))
			fprintf(file, "# because it never stops a job; moving memory cost %.1f %% of this run%s\n",
				run->seconds > 0 ? 100 * run->lost / run->seconds : 0,
				counter(run->page, STAT_governor_changes)
				    ? ", without what kernels read over the link while it was off"
				    : "");
		else
			fprintf(file, "# because it never stops a job, and costs nothing while everything fits\n");
		fprintf(file, "spill.mode: %s\n", policy_spill_name(POLICY_SPILL_EXACT));
	}
	if (run->change == ADVICE_FAST)
		fprintf(
		    file,
		    "# Not chosen: spill.mode: fast copies beside kernels, and the GPU stood still for %.1f %% of this "
		    "run.\n# It may stop the job; spillway-limits(7) says when.\n",
		    100 * gap / run->seconds);
}

/*
 * The budget of the run is kept where memory was spilled, so that the next run has the same. Without it, it would be
 * what is free when the next run starts.
 */
static void put_device_budget(FILE *file, const struct fit_run *run)
{
	const char *need = text_bytes(run->need);

	if (policy_set_names(run->facts->set, "device.budget") || !run->budget)
		return;
	if (run->change == ADVICE_BUDGET)
		fprintf(file,
			"# because the device has %s and the heap needed %s: it fits where nobody else has the memory\n"
			"device.budget: auto\n",
			text_bytes(run->total), need);
	else if (!summary_is_over(run->page))
		fprintf(file,
			"# because all of it fitted: the heap held %s at most, and %s were free\ndevice.budget: auto\n",
			need, text_bytes(run->budget));
	else if (run->n_devices > 1)
		fprintf(
		    file,
		    "# because the devices differ in what they have free: %s were free on %u of them, %s were needed\n"
		    "device.budget: auto\n",
		    text_bytes(run->budget), run->n_devices, need);
	else
		fprintf(
		    file,
		    "# because that is what this run had of the device's %s, and these figures hold for it; %s were "
		    "needed\ndevice.budget: %s\n",
		    text_bytes(run->total), need, policy_size_text(run->budget / MIB * MIB));
}

/* Returns the size below which the largest refused request was; 0: none was refused. */
static uint64_t largest_refused(const struct stats_page *page)
{
	uint64_t most = 0;

	for (unsigned i = 1; i < STATS_SMALL; i++)
		if (figure(&page->site[i].figures, FIGURE_refused) && 2 * page->site[i].least_bytes > most)
			most = 2 * page->site[i].least_bytes;
	return most;
}

/* Host memory that was full is to be larger by the largest request that it had no room for. */
static void put_host(FILE *file, const struct fit_run *run)
{
	const struct stats_page *page = run->page;
	uint64_t refused = counter(page, STAT_refused), shared = atomic_load(&page->share_total);
	uint64_t most = largest_refused(page);
	const char *key = shared && !policy_set_names(run->facts->set, "host.budget") ? "host.total" : "host.budget";
	uint64_t limit = !strcmp(key, "host.total") ? shared : atomic_load(&page->host_budget);
	uint64_t used =
	    !strcmp(key, "host.total") ? atomic_load(&page->share_most_used) : atomic_load(&page->peak[PLACE_HOST]);

	if (!refused || !most || !limit || run->change == ADVICE_VMM || limit - (used < limit ? used : limit) >= most)
		return;
	uint64_t wanted = (used + most + MIB - 1) / MIB * MIB;
	if (run->facts->host_memory && wanted >= run->facts->host_memory) {
		fprintf(file, "# %s would have to be %s or more, and the machine has %s: it does not fit here.\n", key,
			text_bytes(wanted), text_bytes(run->facts->host_memory));
		return;
	}
	if (policy_set_names(run->facts->set, key)) {
		fprintf(file, "# %s is as --set has it; it would have to be %s or more.\n", key, text_bytes(wanted));
		return;
	}
	fprintf(file,
		"# because %" PRIu64
		" request%s ended in out of memory, the largest below %s, when %s of %s were taken\n"
		"%s: %s\n",
		refused, refused == 1 ? "" : "s", text_bytes(most), text_bytes(used), text_bytes(limit), key,
		policy_size_text(wanted));
}

static void put_vmm(FILE *file, const struct fit_run *run)
{
	if (!policy_set_names(run->facts->set, "vmm.spill"))
		fprintf(
		    file,
		    "# because this run had it: what a program makes by cuMemCreate (PyTorch's expandable_segments, "
		    "JAX) would not move\nvmm.spill: move\n");
}

/*
 * Returns how many allocations of the site's place in the program a GPU used, if the CPU touched none of them after
 * that, a rule can name the place, and none has yet; else 0. Sites of one place differ in size, which a rule does not.
 */
static uint64_t untouched(const struct stats_page *page, const struct stats_site *site)
{
	uint64_t n = 0;

	/* A place that is cut off, or that would be a pattern, is not named: the rule could match others. */
	if (summary_touch(page, site) != SUMMARY_UNTOUCHED || !*site->text || site->text[strcspn(site->text, "*?")] ||
	    strlen(site->text) + 1 >= sizeof(site->text) || !policy_is_printable(site->text))
		return 0;
	for (const struct stats_site *other = page->site; other < page->site + STATS_SMALL; other++) {
		enum summary_touch touch = summary_touch(page, other);

		/* The first site has allocations of any place. */
		if (touch == SUMMARY_UNUSED || (other != page->site && strcmp(other->text, site->text) != 0))
			continue;
		if (touch != SUMMARY_UNTOUCHED || (other != page->site && other < site))
			return 0;
		n += other == page->site ? 0 : figure(&other->figures, FIGURE_managed_used);
	}
	return n;
}

static void put_managed(FILE *file, const struct stats_page *page)
{
	bool any = false;

	for (const struct stats_site *site = page->site + 1; site < page->site + STATS_SMALL; site++) {
		uint64_t n = untouched(page, site);

		if (!n)
			continue;
		if (!any)
			fputs("# because in this run the CPU touched none of this managed memory after the GPU's first "
			      "use, as far as the driver told.\n"
			      "# That is no proof for the next run: such an access of the CPU stops the job "
			      "(spillway-limits(7)).\n"
			      "rules:\n",
			      file);
		any = true;
		fprintf(file, "  # %" PRIu64 " allocation%s that a GPU used\n  - match: {api: managed, caller: ", n,
			n == 1 ? "" : "s");
		policy_file_put_quoted(file, site->text);
		fputs("}\n    use: heap\n", file);
	}
}

static void put_costliest(FILE *file, const struct fit_run *run)
{
	const struct stats_site *site = summary_costliest(run->page);
	char what[WHAT_ROOM];

	if (!site || !figure(&site->figures, FIGURE_wait_us))
		return;
	summary_describe(run->page, site, what, sizeof(what));
	fprintf(file, "# Costs most: %s: %s brought in, waited for %.2f s.\n%s", what,
		text_bytes(figure(&site->figures, FIGURE_moved_in_bytes)),
		(double)figure(&site->figures, FIGURE_wait_us) / 1e6,
		summary_is_of_tensors(site)
		    ? "# No rule is about it: rules place the blocks that these tensors share with others.\n"
		    : "# No rule is about it: what one would save takes a trace (`spillway run --trace`) and `spillway "
		      "replay`.\n");
}

bool fit_policy_put(FILE *file, const struct fit_facts *facts)
{
	struct fit_run run = look(facts);

	put_head(file, &run);
	put_mode(file, &run);
	put_device_budget(file, &run);
	put_host(file, &run);
	put_vmm(file, &run);
	bool good = put_set(file, facts->set);
	put_managed(file, run.page);
	put_costliest(file, &run);
	return good;
}

/* ---- once a minute ---- */

void fit_moment_add(struct fit_moment *moment, const struct stats_page *page, uint64_t now)
{
	double lost = summary_lost(page, now);

	moment->n++;
	moment->away += atomic_load(&page->live[PLACE_HOST]) + atomic_load(&page->live[PLACE_PEER]);
	moment->held += figure(&page->backend[0], FIGURE_live);
	for (unsigned i = 0; i < STATS_DEVICES; i++)
		if (atomic_load(&page->device[i].known) && figure(&page->device[i].figures, FIGURE_peak))
			moment->budget += atomic_load(&page->device[i].budget);
	if (lost > moment->lost)
		moment->lost = lost;
}

void fit_line(const struct fit_moment *now, const struct fit_moment *before, double seconds, char room[FIT_LINE])
{
	const char *held = text_bytes(now->held), *budget = text_bytes(now->budget);
	double lost = now->lost > before->lost ? now->lost - before->lost : 0;
	double share = seconds > 0 ? 100 * lost / seconds : 0;

	if (!now->n)
		snprintf(room, FIT_LINE, "no process of this run uses CUDA memory yet");
	else if (!now->away && lost <= 0)
		snprintf(room, FIT_LINE, "nothing is spilled: %s of the device budget of %s are in use", held, budget);
	else
		snprintf(
		    room, FIT_LINE,
		    "%s of %s are spilled (the device budget is %s); moving memory cost %.0f %% of the last %.0f s",
		    text_bytes(now->away), held, budget, share < 100 ? share : 100, seconds);
}
