/* top_draw.h: the pages of the screen of `spillway top`. They look at what there is and draw it; keys are top_screen.c's. */
#ifndef TOOLS_TOP_DRAW_H
#define TOOLS_TOP_DRAW_H

#include "tools/top/top.h"

struct draw {
	const struct figures *figures;
	const struct top_view *view;
	const struct figures_process *const *list; /* of processes, in order */
	size_t n;
	size_t selected; /* in the list */
	size_t first;    /* the first shown; draw_main() keeps the selected one in sight */
	double interval;
	bool paused;
	bool many_users;
	/* Details: where in the text the screen is, and how large that text is; draw_details() keeps it within. */
	unsigned line, column, n_lines;
};

void draw_main(struct draw *draw);
void draw_details(struct draw *draw);
void draw_help(const struct draw *draw);

#endif
