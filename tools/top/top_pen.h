/*
 * top_pen.h: writing on the screen of `spillway top`: text that stays in its place whatever it holds, colours that
 * colour-blind people can tell apart, and little pictures of numbers. The screen is ncurses' stdscr.
 */
#ifndef TOOLS_TOP_PEN_H
#define TOOLS_TOP_PEN_H

#include "tools/common/figures.h"

enum pen_style {
	PEN_PLAIN,
	PEN_TITLE,    /* the first and the last line */
	PEN_HEAD,     /* of a table */
	PEN_STRONG,   /* the column that decides the order */
	PEN_WEAK,     /* what is no news */
	PEN_SELECTED, /* the row that keys act on */
	/* Parts of a bar. */
	PEN_DEVICE,
	PEN_DRIVER,
	PEN_LENT,
	PEN_FREE,
	PEN_HOST,
	PEN_PEER,
	PEN_MANAGED,
	PEN_SYSTEM,
	PEN_IN, /* what flows */
	PEN_OUT,
	PEN_FAULTS,
	PEN_COUNT, /* must be last */
};

/* After initscr(). plain: no colours. */
void pen_init(bool plain);

/*
 * text at (y, x), at most so many columns; what is beyond, or outside the screen, is left out. right: set to the right.
 * Returns the column behind it.
 */
int pen_text(int y, int x, int width, const char *text, enum pen_style style);
int pen_right(int y, int x, int width, const char *text, enum pen_style style);
/* Blanks of that style. */
void pen_blank(int y, int x, int width, enum pen_style style);

/* A part of a bar: so many columns, with its name and size in it where they have room. */
void pen_part(int y, int x, int width, const char *name, const char *size, enum pen_style style);
/* The end of the device in a bar. */
void pen_edge(int y, int x);

/* The last values, the newest at the right end; most: what is a full column, greater than 0. */
void pen_spark(int y, int x, int width, const struct figures_history *history, double most, enum pen_style style);

/* Can this terminal show more than ASCII? */
bool pen_is_wide(void);

#endif
