/*
 * top_pen.h: writes on the screen of `spillway top`: text clipped to its place, colours that colour-blind people can
 * distinguish, bars and sparklines. The screen is ncurses' stdscr.
 */
#ifndef TOOLS_TOP_PEN_H
#define TOOLS_TOP_PEN_H

#include "tools/common/figures.h"

enum pen_style {
	PEN_PLAIN,
	PEN_TITLE,    /* the first and the last line */
	PEN_HEAD,     /* head of a table */
	PEN_STRONG,   /* the column that decides the order */
	PEN_WEAK,     /* unimportant values */
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
	PEN_IN, /* flows */
	PEN_OUT,
	PEN_FAULTS,
	PEN_COUNT, /* must be last */
};

/* Must be called after initscr(). plain: use no colours. */
void pen_init(bool plain);

/*
 * Writes text at (y, x), clipped to `width` columns and to the screen. pen_right() aligns it to the right. Returns the
 * column after it.
 */
int pen_text(int y, int x, int width, const char *text, enum pen_style style);
int pen_right(int y, int x, int width, const char *text, enum pen_style style);
/* Writes blanks in that style. */
void pen_blank(int y, int x, int width, enum pen_style style);

/* Draws a part of a bar, `width` columns wide, with its name and size inside if they fit. */
void pen_part(int y, int x, int width, const char *name, const char *size, enum pen_style style);
/* Marks the end of device memory in a bar. */
void pen_edge(int y, int x);

/* Draws the last values, the newest at the right end. most: the value of a full column; must be greater than 0. */
void pen_spark(int y, int x, int width, const struct figures_history *history, double most, enum pen_style style);

/* Returns whether this terminal can show more than ASCII. */
bool pen_is_wide(void);

#endif
