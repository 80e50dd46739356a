/*
 * top.h: the parts of `spillway top`. What is read is in figures.h; here is how it is shown. No part writes anything that
 * a process could notice.
 */
#ifndef TOOLS_TOP_H
#define TOOLS_TOP_H

#include "tools/common/figures.h"

#include <stdio.h>

#define TOP_TEXT 40 /* room for a number as text */

/* Where nobody says how many: the last few crashes, and the table still fits on a screen. */
#define TOP_GONE 10

struct top_view {
	unsigned sort; /* number of a column */
	bool reverse;
	bool details; /* of each process, in plain text */
	size_t gone;  /* show so many of the processes that are gone, the newest */
};

/* ---- the table of processes (top_table.c) ---- */

struct top_column {
	const char *title, *key; /* key: what it is called in --sort */
	int width;               /* the last one has what is left */
	int at_least;            /* columns of a terminal that shows it */
	bool left;               /* set to the left */
	const char *text;        /* for the help; NULL: the title says it, or the colours of the bars */
};

extern const struct top_column top_columns[];
unsigned top_n_columns(void);
/* By its key. -1: there is none. */
int top_column_named(const char *key);
/* What stands in a column for a process. Its length may exceed the width in the last column alone. */
const char *top_cell(const struct figures_process *process, unsigned column, char *room, size_t bytes);

/*
 * The processes that are shown, in their order; behind them those that are gone, the newest first, whatever the order. The caller frees the
 * list. NULL: no memory.
 */
const struct figures_process **top_order(const struct figures *figures, const struct top_view *view, size_t *ret_n);

/* At most five columns: "61.2G", "1.5M", "n/a" of NAN. */
const char *top_bytes(double bytes, char room[TOP_TEXT]);
const char *top_count(double n, char room[TOP_TEXT]);

/* ---- what costs most (top_rank.c) ---- */

enum top_kind { TOP_RULES, TOP_SITES };

struct top_entry {
	const struct figures_process *process;
	const struct stats_figures *now, *before; /* before: NULL where there was no reading before */
	enum top_kind kind;
	unsigned number; /* of the rule or site */
};

/* Those of all shown processes that moved most, then those with most live. At most `most`; returns how many. */
size_t top_rank(const struct figures_process *const *processes, size_t n, enum top_kind kind, struct top_entry *entries,
		size_t most);
/* Its name: of a site, where in the program, and of what size. */
const char *top_entry_name(const struct top_entry *entry, char *room, size_t bytes);
#define TOP_NAME      128
#define TOP_RANK_HEAD "     PID   LIVE   PEAK   IN/s  OUT/s  MOVED   WAIT"
/* One line under that head, and nothing of the name. */
const char *top_entry_numbers(const struct top_entry *entry, char *room, size_t bytes);

/* ---- plain text (top_text.c) and JSON (top_json.c) ---- */

void top_print_text(FILE *out, const struct figures *figures, const struct top_view *view);
/* Everything of one process. */
void top_print_details(FILE *out, const struct figures_process *process);
/* One object on a line of its own, to stdout. */
void top_print_json(const struct figures *figures, const struct top_view *view);

/* ---- the screen (top_screen.c) ---- */

/*
 * Until the user has enough. interval: seconds between readings. An exit status, or -1: this terminal can show no
 * screen, or none was built in; nothing was shown.
 */
int top_screen(struct figures *figures, const struct figures_choice *choice, const struct top_view *view,
	       double interval);

#endif
