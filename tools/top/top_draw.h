/*
 * top_draw.h: draws the pages of the screen of `spillway top`. top_screen.c handles keys.
 */
#ifndef TOOLS_TOP_DRAW_H
#define TOOLS_TOP_DRAW_H

#include "tools/top/top.h"

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

/* Must be called after initscr(), before the others. plain: use no colours. */
void draw_begin(bool plain);
void draw_main(struct draw *draw);
void draw_details(struct draw *draw);
void draw_help(const struct draw *draw);

#endif
