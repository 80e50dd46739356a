// SPDX-License-Identifier: Apache-2.0
/*
 * top.h: the parts of `spillway top`. figures.h reads the figures; these parts show them. None of them writes anything
 * that an observed process could notice.
 */
#ifndef TOOLS_TOP_H
#define TOOLS_TOP_H

#include "tools/common/figures.h"

#include <stdio.h>

#define TOP_TEXT 40 /* buffer for a number as text */

/* Default for --gone: shows the last few crashes, and the table still fits on a screen. */
#define TOP_GONE 10

struct top_view {
	unsigned sort; /* index of a column */
	bool reverse;
	bool details; /* plain text: show the details of each process */
	size_t gone;  /* maximum number of processes to show that have ended, the newest */
};

/* ---- the table of processes (top_table.c) ---- */

struct top_column {
	const char *title, *key; /* key: the name for --sort */
	int width;               /* the last column takes the rest of the line */
	int at_least;            /* the column is shown on a terminal with at least this many columns */
	bool left;               /* left-aligned */
	const char *text;        /* for the help; NULL: the title, or the colours of the bars, explain it */
	enum { TOP_OTHER, TOP_PLACE, TOP_RATE } kind; /* the value: another, live bytes, or a counter a second ... */
	unsigned of;                                  /* ... of this enum place, or enum stats_counter */
};

extern const struct top_column top_columns[];
unsigned top_n_columns(void);
/* Returns the column with this key; -1 if there is none. */
int top_column_named(const char *key);
/* Returns the text of a column for a process. It may exceed the column's width only in the last column. */
const char *top_cell(const struct figures_process *process, unsigned column, char *room, size_t bytes);

/*
 * Returns the processes to show, in the chosen order, followed by those that have ended, the newest first in every
 * order. Returns NULL if memory runs out; the caller must free the list.
 */
const struct figures_process **top_order(const struct figures *figures, const struct top_view *view, size_t *ret_n);

/* At most five characters: "61.2G", "1.5M"; "n/a" for NAN. */
const char *top_bytes(double bytes, char room[TOP_TEXT]);
const char *top_count(double n, char room[TOP_TEXT]);
/* The same as texts that live until the end of the block. */
#define short_bytes(bytes) top_bytes(bytes, (char[TOP_TEXT]){0})
#define short_count(n)     top_count(n, (char[TOP_TEXT]){0})

/* ---- what costs most (top_table.c) ---- */

/* A rule or a site (GROUP_RULES, GROUP_SITES), or another row of figures. */
struct top_entry {
	const struct figures_process *process;
	enum figures_group group;
	unsigned row; /* number of the rule or site */
};

/*
 * Finds, over all shown processes, the entries that moved most, then those with the most live bytes. Returns the
 * number of entries, at most `most`.
 */
size_t top_rank(const struct figures_process *const *processes, size_t n, enum figures_group group,
		struct top_entry *entries, size_t most);
/* Returns the name of the entry; for a site, its place in the program and the size. */
const char *top_entry_name(const struct top_entry *entry, char *room, size_t bytes);
#define TOP_NAME      128
#define TOP_RANK_HEAD "     PID   LIVE   PEAK   IN/s  OUT/s  MOVED   WAIT"
/* Returns one line that fits under that head, without the name. */
const char *top_entry_numbers(const struct top_entry *entry, char *room, size_t bytes);

/* ---- plain text and JSON (top_print.c) ---- */

void top_print_text(FILE *out, const struct figures *figures, const struct top_view *view);
/* Prints everything known about one process. */
void top_print_details(FILE *out, const struct figures_process *process);
/* Prints one object on one line to stdout. */
void top_print_json(const struct figures *figures, const struct top_view *view);

/* ---- the pages of the screen (top_draw.c) ---- */

struct draw {
	const struct figures *figures;
	const struct top_view *view;
	const struct figures_process *const *list; /* processes, in the order of the view */
	size_t n;
	size_t selected; /* index in the list */
	size_t first;    /* index of the first one shown; draw_main() keeps the selected one visible */
	double interval;
	bool paused;
	bool many_users;
	/*
	 * Details page: the scroll position in the text, and the number of its lines; draw_details() keeps the
	 * position within the text.
	 */
	unsigned line, column, n_lines;
};

/* Must be called after newterm(), before the others. plain: use no colours. */
void draw_begin(bool plain);
void draw_main(struct draw *draw);
void draw_details(struct draw *draw);
void draw_help(const struct draw *draw);

/* ---- the screen (top_screen.c) ---- */

/*
 * Runs the screen until the user quits. interval: seconds between readings. Returns an exit status, or -1 without
 * showing anything if the terminal cannot show a screen or the tool was built without ncurses.
 */
int top_screen(struct figures *figures, const struct figures_choice *choice, const struct top_view *view,
	       double interval);

#endif
