/*
 * Writes text, bars and sparklines on the screen with ncurses.
 */
#include "tools/top/top_pen.h"

#include <langinfo.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define NCURSES_WIDECHAR 1
#include <curses.h>

/*
 * The colours are those of Okabe and Ito, which people with any kind of colour blindness can distinguish, approximated
 * in 256 colours; with 8 colours, similar ones. Without colours, the letter fills the part.
 */
static const struct {
	short text, back;           /* of the 256 colours */
	short text_of_8, back_of_8; /* -1: the terminal's default */
	attr_t with, without;       /* attributes with colours, and without */
	char letter;
} styles[PEN_COUNT] = {
    [PEN_PLAIN] = {-1, -1, -1, -1, A_NORMAL, A_NORMAL, ' '},
    [PEN_TITLE] = {-1, -1, -1, -1, A_REVERSE, A_REVERSE, ' '},
    [PEN_HEAD] = {-1, -1, -1, -1, A_BOLD, A_BOLD, ' '},
    [PEN_STRONG] = {-1, -1, -1, -1, A_BOLD | A_UNDERLINE, A_BOLD | A_UNDERLINE, ' '},
    [PEN_WEAK] = {245, -1, -1, -1, A_NORMAL, A_DIM, ' '},
    [PEN_SELECTED] = {-1, -1, -1, -1, A_REVERSE, A_REVERSE, ' '},
    [PEN_DEVICE] = {231, 25, COLOR_WHITE, COLOR_BLUE, A_NORMAL, A_NORMAL, 'D'},
    [PEN_DRIVER] = {16, 74, COLOR_BLACK, COLOR_CYAN, A_NORMAL, A_NORMAL, 'V'},
    [PEN_LENT] = {16, 187, COLOR_BLACK, COLOR_WHITE, A_NORMAL, A_NORMAL, 'L'},
    [PEN_FREE] = {250, 236, -1, -1, A_NORMAL, A_NORMAL, '.'},
    [PEN_HOST] = {16, 214, COLOR_BLACK, COLOR_YELLOW, A_NORMAL, A_NORMAL, 'H'},
    [PEN_PEER] = {16, 227, COLOR_BLACK, COLOR_WHITE, A_NORMAL, A_NORMAL, 'P'},
    [PEN_MANAGED] = {16, 36, COLOR_BLACK, COLOR_GREEN, A_NORMAL, A_NORMAL, 'M'},
    [PEN_SYSTEM] = {16, 175, COLOR_BLACK, COLOR_MAGENTA, A_NORMAL, A_NORMAL, 'S'},
    [PEN_IN] = {74, -1, COLOR_CYAN, -1, A_NORMAL, A_NORMAL, ' '},
    [PEN_OUT] = {214, -1, COLOR_YELLOW, -1, A_NORMAL, A_NORMAL, ' '},
    [PEN_FAULTS] = {175, -1, COLOR_MAGENTA, -1, A_NORMAL, A_NORMAL, ' '},
};

static struct {
	bool colours, wide;
} pen;

void pen_init(bool plain)
{
	pen.wide = !strcmp(nl_langinfo(CODESET), "UTF-8");
	pen.colours = !plain && has_colors() && start_color() == OK && use_default_colors() == OK;
	for (short i = 1; pen.colours && i < PEN_COUNT; i++) {
		if (COLORS >= 256)
			init_pair(i, styles[i].text, styles[i].back);
		else
			init_pair(i, styles[i].text_of_8, styles[i].back_of_8);
	}
}

bool pen_is_wide(void)
{
	return pen.wide;
}

static void pen_use(enum pen_style style)
{
	attr_set(pen.colours ? styles[style].with : styles[style].without, (short)(pen.colours ? style : 0), NULL);
}

/* Clips to the screen. Returns false if nothing is visible. */
static bool pen_clip(int y, int x, int *width)
{
	if (y < 0 || y >= LINES || x < 0 || x >= COLS)
		return false;
	if (*width > COLS - x)
		*width = COLS - x;
	return *width > 0;
}

/* Returns the next character, replaced if it is not printable; invalid bytes become '?'. */
static wchar_t pen_next(const char **text, int *ret_width)
{
	mbstate_t state = {0};
	wchar_t c;
	size_t n = mbrtowc(&c, *text, MB_CUR_MAX, &state);

	if (n == 0 || n > MB_CUR_MAX) {
		c = L'?';
		n = 1;
	}
	*text += n;
	*ret_width = wcwidth(c);
	/* Terminals differ in their handling of combining marks and characters without width. */
	if (*ret_width <= 0) {
		c = L'?';
		*ret_width = 1;
	}
	return c;
}

int pen_text(int y, int x, int width, const char *text, enum pen_style style)
{
	int used = 0;

	if (!pen_clip(y, x, &width))
		return x;
	pen_use(style);
	move(y, x);
	while (*text) {
		int columns;
		wchar_t c[2] = {pen_next(&text, &columns), 0};

		if (used + columns > width)
			break;
		addnwstr(c, 1);
		used += columns;
	}
	return x + used;
}

int pen_right(int y, int x, int width, const char *text, enum pen_style style)
{
	int length = (int)strlen(text); /* numbers, which are ASCII */

	return pen_text(y, length < width ? x + width - length : x, width, text, style);
}

void pen_blank(int y, int x, int width, enum pen_style style)
{
	if (!pen_clip(y, x, &width))
		return;
	pen_use(style);
	mvhline(y, x, ' ', width);
}

void pen_part(int y, int x, int width, const char *name, const char *size, enum pen_style style)
{
	char text[64];

	if (!pen_clip(y, x, &width))
		return;
	pen_use(style);
	mvhline(y, x, (chtype)(pen.colours ? (COLORS < 256 && style == PEN_FREE ? '.' : ' ') : styles[style].letter),
		width);
	int length = snprintf(text, sizeof(text), " %s %s ", name, size);
	if (length > width)
		length = snprintf(text, sizeof(text), " %s ", name);
	if (length > width)
		length = snprintf(text, sizeof(text), "%c", styles[style].letter);
	if (length <= width && (length > 1 || (pen.colours && width > 1)))
		pen_text(y, x + (width - length) / 2, length, text, style);
}

void pen_edge(int y, int x)
{
	pen_text(y, x, 1, pen.wide ? "\u2502" : "|", PEN_PLAIN);
}

void pen_spark(int y, int x, int width, const struct figures_history *history, double most, enum pen_style style)
{
	static const char *const steps[] = {"\u2581", "\u2582", "\u2583", "\u2584",
					    "\u2585", "\u2586", "\u2587", "\u2588"};
	static const char *const plain_steps[] = {"_", ".", ":", "-", "=", "+", "*", "#"};

	for (int i = 0; i < width; i++) {
		double value = figures_ago(history, (unsigned)(width - 1 - i));
		int step = (int)ceil(value / most * 8) - 1;

		if (isnan(value))
			continue;
		step = step < 0 ? 0 : step > 7 ? 7 : step;
		/*
		 * A value of 0 is drawn as a line without colour at the bottom, to distinguish it from a small value.
		 */
		if (value > 0)
			pen_text(y, x + i, 1, pen.wide ? steps[step] : plain_steps[step], style);
		else
			pen_text(y, x + i, 1, pen.wide ? "\u2581" : "_", PEN_WEAK);
	}
}
