// SPDX-License-Identifier: Apache-2.0
/*
 * The table of processes: its columns and the order of its rows; and what costs most. A new column needs a row in the
 * list and a case in value_of().
 */
#include "tools/top/top.h"
#include "tools/common/grow.h"

#include <inttypes.h>
#include <math.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "shim/base/user_dir.h"

/* ---- short numbers ---- */

static const char *table_shorten(double value, double step, const char *const units[], unsigned n, char room[TOP_TEXT])
{
	unsigned unit = 0;

	if (isnan(value))
		return "n/a";
	/* Above this, the number would need more than three digits. */
	for (; value >= 999.5 && unit + 1 < n; unit++)
		value /= step;
	snprintf(room, TOP_TEXT, value != floor(value) && value < 99.95 ? "%.1f%s" : "%.0f%s", value, units[unit]);
	return room;
}

const char *top_bytes(double bytes, char room[TOP_TEXT])
{
	static const char *const units[] = {"B", "K", "M", "G", "T", "P", "E"};

	return bytes == 0 ? "0" : table_shorten(bytes, 1024, units, 7, room);
}

const char *top_count(double n, char room[TOP_TEXT])
{
	static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};

	return table_shorten(n, 1000, units, 7, room);
}

/* ---- columns ---- */

/* One row for each: its name here, then struct top_column. */
#define COLUMNS(ROW)                                                                                                   \
	ROW(PID, "PID", "pid", 7, 0, false, NULL, TOP_OTHER, 0)                                                        \
	ROW(USER, "USER", "user", 8, 100, true, NULL, TOP_OTHER, 0)                                                    \
	ROW(STATE, "STATE", "state", 5, 0, true, "run, susp: suspended, gone: killed, v2: of another release",         \
	    TOP_OTHER, 0)                                                                                              \
	ROW(DEVICE, "DEVICE", "device", 6, 0, false, NULL, TOP_PLACE, PLACE_DEVICE)                                    \
	ROW(HOST, "HOST", "host", 6, 0, false, NULL, TOP_PLACE, PLACE_HOST)                                            \
	ROW(PEER, "PEER", "peer", 6, 120, false, "heap memory that other GPUs lend it", TOP_PLACE, PLACE_PEER)         \
	ROW(MANAGED, "MANAGED", "managed", 7, 0, false, NULL, TOP_PLACE, PLACE_MANAGED)                                \
	ROW(SYSTEM, "SYSTEM", "system", 6, 0, false, NULL, TOP_PLACE, PLACE_SYSTEM)                                    \
	ROW(DRIVER, "DRIVER", "driver", 6, 110, false, "device memory the driver gave directly", TOP_PLACE,            \
	    PLACE_DRIVER)                                                                                              \
	ROW(PINNED, "PINNED", "pinned", 6, 110, false, "host memory the program pinned", TOP_PLACE, PLACE_PINNED)      \
	ROW(IN, "IN/s", "in", 6, 0, false, "bytes moved to the device, a second", TOP_RATE, STAT_moved_in_bytes)       \
	ROW(OUT, "OUT/s", "out", 6, 0, false, "bytes moved to the host, or to GPUs that lend memory, a second",        \
	    TOP_RATE, STAT_moved_out_bytes)                                                                            \
	ROW(FAULTS, "FAULT/s", "faults", 7, 90, false, "page faults of the GPU, a second", TOP_OTHER, 0)               \
	ROW(WAIT, "WAIT", "wait", 5, 0, false,                                                                         \
	    "share of the time in which at least one submission waited for memory on its way", TOP_OTHER, 0)           \
	ROW(AGE, "TIME", "time", 6, 130, false, "since its first use of CUDA memory", TOP_OTHER, 0)                    \
	ROW(ID, "ID", "id", IDENTITY_DIGITS, 150, true, "its id, which no other process of the machine has",           \
	    TOP_OTHER, 0)                                                                                              \
	ROW(COMMAND, "COMMAND", "command", 0, 0, true, NULL, TOP_OTHER, 0)

enum column {
#define ROW(name, ...) COLUMN_##name,
	COLUMNS(ROW) COLUMN_COUNT
#undef ROW
};

const struct top_column top_columns[] = {
#define ROW(name, ...) [COLUMN_##name] = {__VA_ARGS__},
    COLUMNS(ROW)
#undef ROW
};

static double value_of(const struct figures_process *process, unsigned column)
{
	const struct top_column *about = &top_columns[column];
	const struct page *page = process->page;

	if (about->kind == TOP_PLACE)
		return figures_live(page, about->of) == STATS_NA ? NAN : (double)figures_live(page, about->of);
	if (about->kind == TOP_RATE)
		return figures_get_rate(process, GROUP_COUNTERS, 0, about->of);
	switch (column) {
	case COLUMN_PID:
		return page->pid ? (double)page->pid : NAN;
	case COLUMN_USER:
		return (double)page->owner;
	case COLUMN_FAULTS:
		return figures_get_rate(process, GROUP_FAULTS, 0, FAULT_GPU);
	case COLUMN_WAIT:
		/* The percentage of time in which at least one submission waited; both times are of the same clock. */
		return figures_get_rate(process, GROUP_COUNTERS, 0, STAT_waiting_us) / 1e4;
	case COLUMN_AGE:
		return page->copy ? (double)page_age(page) / 1e9 : NAN;
	default:
		return NAN;
	}
}

unsigned top_n_columns(void)
{
	return COLUMN_COUNT;
}

int top_column_named(const char *key)
{
	for (int i = 0; i < COLUMN_COUNT; i++)
		if (!strcmp(top_columns[i].key, key))
			return i;
	return -1;
}

/* Each user name is looked up only once: the lookup may need another machine. */
static const char *user_name(uid_t user)
{
	static struct {
		uid_t user;
		char name[32];
	} known[64];
	static unsigned n;

	for (unsigned i = 0; i < n; i++)
		if (known[i].user == user)
			return known[i].name;
	const struct passwd *entry = getpwuid(user);
	unsigned at = n < 64 ? n++ : 63;
	known[at].user = user;
	if (entry)
		snprintf(known[at].name, sizeof(known[at].name), "%s", entry->pw_name);
	else
		snprintf(known[at].name, sizeof(known[at].name), "%u", (unsigned)user);
	return known[at].name;
}

static const char *short_state(const struct page *page, char *room, size_t bytes)
{
	const char *state = page_state(page);

	if (!strcmp(state, "other version"))
		snprintf(room, bytes, "v%llu", (unsigned long long)page->version);
	else
		snprintf(room, bytes, "%.*s",
			 !strcmp(state, "running")     ? 3
			 : !strcmp(state, "suspended") ? 4
						       : 5,
			 state);
	return room;
}

static const char *short_age(double seconds, char *room, size_t bytes)
{
	if (isnan(seconds))
		return "n/a";
	if (seconds < 600)
		snprintf(room, bytes, "%.0fs", seconds);
	else if (seconds < 36000)
		snprintf(room, bytes, "%.0fm", seconds / 60);
	else
		snprintf(room, bytes, seconds < 360000 ? "%.0fh" : "%.0fd",
			 seconds / (seconds < 360000 ? 3600 : 86400));
	return room;
}

static const char *command_of(const struct page *page, char *room, size_t bytes)
{
	if (page->copy) {
		/* The folder of the program is the least important part. */
		const char *command = page->copy->command, *slash = NULL;

		for (const char *c = command; *c && *c != ' '; c++)
			slash = *c == '/' ? c : slash;
		return slash ? slash + 1 : command;
	}
	if (page->kind == PAGE_BROKEN)
		snprintf(room, bytes, "(its file is broken: %s)", page->problem);
	else
		snprintf(room, bytes,
			 "(its figures are of version %llu; this tool knows version %d: use the %s spillway)",
			 (unsigned long long)page->version, STATS_VERSION,
			 page->version < STATS_VERSION ? "older" : "newer");
	return room;
}

const char *top_cell(const struct figures_process *process, unsigned column, char *room, size_t bytes)
{
	const struct page *page = process->page;
	double value = value_of(process, column);

	switch (column) {
	case COLUMN_PID:
		if (!page->pid)
			return "-";
		snprintf(room, bytes, "%d", (int)page->pid);
		return room;
	case COLUMN_ID:
		return page->identity && bytes >= IDENTITY_TEXT ? identity_text(page->identity, room) : "-";
	case COLUMN_USER:
		snprintf(room, bytes, "%.8s", user_name(page->owner));
		return room;
	case COLUMN_STATE:
		return short_state(page, room, bytes);
	case COLUMN_FAULTS:
		return top_count(value, room);
	case COLUMN_WAIT:
		if (isnan(value))
			return "n/a";
		snprintf(room, bytes, value > 0 && value < 9.95 ? "%.1f%%" : "%.0f%%", value);
		return room;
	case COLUMN_AGE:
		return short_age(value, room, bytes);
	case COLUMN_COMMAND:
		return command_of(page, room, bytes);
	default:
		return top_bytes(value, room);
	}
}

/* ---- order ---- */

static const struct top_view
    *ordered_by; /* the argument of the comparison, because qsort() passes none; this tool has one thread */

/* Numbers are sorted in descending order with unknown values last; texts and ids in ascending order. */
static int in_order(const void *left, const void *right)
{
	const struct figures_process *a = *(const struct figures_process *const *)left;
	const struct figures_process *b = *(const struct figures_process *const *)right;
	unsigned column = ordered_by->sort;
	char one[256], other[256];
	int order = 0;

	if (column != COLUMN_STATE && column != COLUMN_ID && column != COLUMN_COMMAND) {
		double x = value_of(a, column), y = value_of(b, column);

		if (isnan(x) != isnan(y))
			return isnan(x) ? 1 : -1;
		order = (x < y) - (x > y);
		if (column == COLUMN_PID || column == COLUMN_USER)
			order = -order;
	} else {
		order = strcmp(top_cell(a, column, one, sizeof(one)), top_cell(b, column, other, sizeof(other)));
	}
	if (ordered_by->reverse)
		order = -order;
	if (order)
		return order;
	return ORDER(a->page->pid, b->page->pid) ?: ORDER(a->page->identity, b->page->identity);
}

/*
 * Appends the processes that are alive, or those that are not, to a list of n. Returns how many it has appended; 0 if
 * list is NULL.
 */
static size_t table_pick(const struct figures *figures, const struct figures_process **list, size_t n, bool alive)
{
	size_t found = 0;

	for (size_t i = 0; list && i < figures->n; i++)
		if (figures->process[i].page->alive == alive)
			list[n + found++] = &figures->process[i];
	return found;
}

static int newest_first(const void *left, const void *right)
{
	const struct page *a = (*(const struct figures_process *const *)left)->page;
	const struct page *b = (*(const struct figures_process *const *)right)->page;

	return ORDER(page_last(b), page_last(a)) ?: ORDER(b->pid, a->pid);
}

const struct figures_process **top_order(const struct figures *figures, const struct top_view *view, size_t *ret_n)
{
	const struct figures_process **list = malloc((figures->n + 1) * sizeof(*list));
	size_t n = table_pick(figures, list, 0, true), n_gone;

	ordered_by = view;
	if (n)
		qsort(list, n, sizeof(*list), in_order);
	n_gone = table_pick(figures, list, n, false);
	if (n_gone)
		qsort(list + n, n_gone, sizeof(*list), newest_first);
	*ret_n = n + (n_gone < view->gone ? n_gone : view->gone);
	return list;
}

/* ---- what costs most ----
 *
 * The costliest rules and sites: by moved bytes, then by live bytes. The whole run counts, because an order by the last
 * second would change at every reading.
 */

static uint64_t figure_of(const struct top_entry *entry, enum figure figure)
{
	return figures_get(entry->process->page, entry->group, entry->row, figure);
}

static uint64_t rank_moved(const struct top_entry *entry)
{
	return figure_of(entry, FIGURE_moved_in_bytes) + figure_of(entry, FIGURE_moved_out_bytes);
}

static bool costs_more(const struct top_entry *a, const struct top_entry *b)
{
	int order = ORDER(rank_moved(a), rank_moved(b));

	return (order ?: ORDER(figure_of(a, FIGURE_live), figure_of(b, FIGURE_live))) > 0;
}

static size_t rank_insert(struct top_entry *entries, size_t n, size_t most, const struct top_entry *entry)
{
	size_t at = n;

	while (at > 0 && costs_more(entry, &entries[at - 1]))
		at--;
	if (at >= most)
		return n;
	if (n == most)
		n--;
	memmove(&entries[at + 1], &entries[at], (n - at) * sizeof(*entries));
	entries[at] = *entry;
	return n + 1;
}

static bool is_used(const struct top_entry *entry)
{
	if (entry->group == GROUP_SITES && entry->row && entry->row != STATS_SMALL &&
	    entry->process->page->copy->site[entry->row].known != 2)
		return false;
	for (unsigned i = 0; i < FIGURE_COUNT; i++)
		if (figure_of(entry, i))
			return true;
	return false;
}

size_t top_rank(const struct figures_process *const *processes, size_t n, enum figures_group group,
		struct top_entry *entries, size_t most)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++)
		for (unsigned row = 0; processes[i]->page->copy && row < figures_groups[group].n_rows; row++) {
			const struct top_entry entry = {processes[i], group, row};

			if (is_used(&entry))
				found = rank_insert(entries, found, most, &entry);
		}
	return found;
}

const char *top_entry_name(const struct top_entry *entry, char *room, size_t bytes)
{
	const struct stats_page *copy = entry->process->page->copy;
	const struct stats_site *site = &copy->site[entry->row];
	char caller[32] = "(caller not known)";

	if (entry->group == GROUP_RULES) {
		const char *name = copy->rule[entry->row].name;

		snprintf(room, bytes, "%s", *name ? name : "(no name)");
		return room;
	}
	if (!entry->row || entry->row == STATS_SMALL) {
		snprintf(room, bytes, entry->row ? STATS_SMALL_TEXT : "all others");
		return room;
	}
	if (site->caller)
		snprintf(caller, sizeof(caller), "0x%" PRIx64, site->caller);
	if (!site->least_bytes) {
		snprintf(room, bytes, "%s tensors", site->text);
		return room;
	}
	snprintf(room, bytes, "%s >=%s %s", *site->text ? site->text : caller, short_bytes((double)site->least_bytes),
		 site->backend < POLICY_USE_COUNT ? policy_use_name((enum policy_use)site->backend) : "?");
	return room;
}

const char *top_entry_numbers(const struct top_entry *entry, char *room, size_t bytes)
{
	char pid[16];

	snprintf(pid, sizeof(pid), entry->process->page->pid ? "%d" : "-", (int)entry->process->page->pid);
	snprintf(room, bytes, "%8s %6s %6s %6s %6s %6s %5ss", pid, short_bytes((double)figure_of(entry, FIGURE_live)),
		 short_bytes((double)figure_of(entry, FIGURE_peak)),
		 short_bytes(figures_get_rate(entry->process, entry->group, entry->row, FIGURE_moved_in_bytes)),
		 short_bytes(figures_get_rate(entry->process, entry->group, entry->row, FIGURE_moved_out_bytes)),
		 short_bytes((double)rank_moved(entry)), short_count((double)figure_of(entry, FIGURE_wait_us) / 1e6));
	return room;
}
