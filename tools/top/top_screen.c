// SPDX-License-Identifier: Apache-2.0
/*
 * The screen of `spillway top`: selects the page and handles keys. Between two readings the program sleeps in getch();
 * a key redraws the page from the last reading.
 *
 * The terminal is restored on every exit: keys, SIGINT, SIGTERM, SIGHUP, and end of standard input.
 */
#include "tools/top/top.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <term.h>
#undef lines
#undef columns

#include "tools/common/seconds.h"
#include "tools/common/tool.h"

enum page_shown { PAGE_MAIN, PAGE_DETAILS, PAGE_HELP };

enum {
	KEY_ESCAPE = 27,
	KEY_REDRAW = 'L' - '@',
	ESCAPE_MS = 50,   /* the bytes of an arrow key follow each other faster than this; a lone Esc acts after it */
	EARLY_MOST = 100, /* number of times in a row that input ends at once: the terminal is gone */
};

struct screen {
	struct figures *figures;
	const struct figures_choice *choice;
	struct top_view view;
	struct draw draw;
	enum page_shown shown;
	struct page
	    selected; /* identifies the process and remains selected when the order changes; unset: the first one */
	bool done;
};

/* ---- the terminal ---- */

/* Returns whether the terminal can move the cursor; ncurses would write to any terminal. */
static bool can_move(void)
{
	int error;

	if (setupterm(NULL, STDOUT_FILENO, &error) != OK)
		return false;
	bool can = cursor_address && clear_screen;
	del_curterm(cur_term);
	return can;
}

/* Returns NULL if the terminal cannot show a screen. */
static SCREEN *screen_begin(void)
{
	setlocale(LC_CTYPE, "");
	if (!can_move())
		return NULL;
	seconds_end_by(SIGINT);
	seconds_end_by(SIGTERM);
	seconds_end_by(SIGHUP);
	SCREEN *terminal = newterm(NULL, stdout, stdin);
	if (!terminal)
		return NULL;
	const char *no_colour = getenv("NO_COLOR");
	draw_begin(no_colour && *no_colour);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	set_escdelay(ESCAPE_MS);
	curs_set(0);
	return terminal;
}

/* ---- the selected process ---- */

static void select_at(struct screen *screen, size_t at)
{
	if (!screen->draw.n)
		return;
	if (at >= screen->draw.n)
		at = screen->draw.n - 1;
	screen->draw.selected = at;
	screen->selected = *screen->draw.list[at]->page;
}

/*
 * Rebuilds the list. The selected process stays selected; if it has ended, the one in its place is selected. Returns
 * false if memory runs out.
 */
static bool screen_order(struct screen *screen)
{
	struct draw *draw = &screen->draw;
	const struct figures_process **list = top_order(screen->figures, &screen->view, &draw->n);

	free((void *)draw->list);
	draw->list = (const struct figures_process *const *)list;
	if (!list)
		return false;
	draw->many_users = false;
	for (size_t i = 0; i < draw->n; i++) {
		draw->many_users |= list[i]->page->owner != geteuid();
		if (page_is_same(list[i]->page, &screen->selected))
			draw->selected = i;
	}
	if (draw->selected >= draw->n)
		draw->selected = draw->n ? draw->n - 1 : 0;
	return true;
}

/* ---- keys ---- */

static void change_interval(struct draw *draw, bool longer)
{
	static const double steps[] = {0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60};
	const int n = sizeof(steps) / sizeof(*steps);
	int i = longer ? 0 : n - 1;

	while (i >= 0 && i < n && (longer ? steps[i] <= draw->interval * 1.01 : steps[i] >= draw->interval * 0.99))
		i += longer ? 1 : -1;
	if (i >= 0 && i < n)
		draw->interval = steps[i];
}

static void screen_show(struct screen *screen, enum page_shown shown)
{
	screen->shown = shown;
	screen->draw.line = screen->draw.column = 0;
}

/* Handles keys with the same meaning on all pages. Returns false for any other key. */
static bool key_of_all(struct screen *screen, int key)
{
	if (key == 'p' || key == ' ')
		screen->draw.paused = !screen->draw.paused;
	else if (key == '+' || key == '-')
		change_interval(&screen->draw, key == '+');
	else if (key == 'h' || key == '?')
		screen_show(screen, PAGE_HELP);
	else if (key == KEY_REDRAW || key == KEY_RESIZE)
		clearok(stdscr, TRUE);
	else
		return false;
	return true;
}

static void key_of_main(struct screen *screen, int key)
{
	size_t at = screen->draw.selected;

	if (key == 'q')
		screen->done = true;
	else if (key == 's' || key == 'S')
		screen->view.sort = (screen->view.sort + (key == 's' ? 1 : top_n_columns() - 1)) % top_n_columns();
	else if (key == 'r')
		screen->view.reverse = !screen->view.reverse;
	else if (key == 'g')
		screen->view.gone = screen->view.gone ? 0 : TOP_GONE;
	else if (key == KEY_UP || key == 'k')
		select_at(screen, at ? at - 1 : 0);
	else if (key == KEY_DOWN || key == 'j')
		select_at(screen, at + 1);
	else if (key == KEY_HOME || key == KEY_END)
		select_at(screen, key == KEY_HOME ? 0 : SIZE_MAX);
	else if (key == '\n' || key == KEY_ENTER || key == 'd') {
		select_at(screen, at);
		screen_show(screen, PAGE_DETAILS);
	}
}

static void key_of_details(struct screen *screen, int key)
{
	struct draw *draw = &screen->draw;
	unsigned page = LINES > 8 ? (unsigned)LINES - 8 : 1;

	if (key == KEY_UP || key == 'k')
		draw->line -= draw->line > 0;
	else if (key == KEY_DOWN || key == 'j')
		draw->line++;
	else if (key == KEY_PPAGE)
		draw->line -= draw->line > page ? page : draw->line;
	else if (key == KEY_NPAGE)
		draw->line += page;
	else if (key == KEY_HOME || key == KEY_END)
		draw->line = key == KEY_HOME ? 0 : draw->n_lines;
	else if (key == KEY_LEFT)
		draw->column -= draw->column > 8 ? 8 : draw->column;
	else if (key == KEY_RIGHT)
		draw->column += draw->column < 160 ? 8 : 0;
	else if (key == 'q' || key == 'd' || key == '\n' || key == KEY_ESCAPE || key == KEY_BACKSPACE)
		screen_show(screen, PAGE_MAIN);
}

static void screen_obey(struct screen *screen, int key)
{
	if (screen->shown == PAGE_HELP && key != KEY_RESIZE && key != KEY_REDRAW)
		screen_show(screen, PAGE_MAIN);
	else if (!key_of_all(screen, key) && screen->shown == PAGE_MAIN)
		key_of_main(screen, key);
	else if (screen->shown == PAGE_DETAILS)
		key_of_details(screen, key);
	screen_order(screen);
}

/* ---- the loop ---- */

static void draw_page(struct screen *screen)
{
	screen->draw.view = &screen->view;
	screen->draw.figures = screen->figures;
	if (!screen->draw.list)
		return;
	if (screen->shown == PAGE_HELP)
		draw_help(&screen->draw);
	else if (screen->shown == PAGE_DETAILS && screen->draw.n)
		draw_details(&screen->draw);
	else
		draw_main(&screen->draw);
}

/* Waits for a key until this time. */
static void wait_and_obey(struct screen *screen, double until)
{
	static unsigned n_early;
	double begun = seconds_now(), left = until - begun;

	timeout(left > 0 ? (int)ceil(left * 1000) : 0);
	int key = getch();
	if (key != ERR) {
		n_early = 0;
		screen_obey(screen, key);
		return;
	}
	/* The other end of the terminal was closed: getch() returns at once. */
	n_early = seconds_now() - begun < left / 2 ? n_early + 1 : 0;
	screen->done |= n_early > EARLY_MOST;
}

static int screen_watch(struct screen *screen)
{
	double last = 0;

	while (!screen->done && !seconds_enough()) {
		double now = seconds_now();

		if (!screen->draw.paused && now - last >= screen->draw.interval) {
			if (!figures_read(screen->figures, screen->choice) || !screen_order(screen))
				return TOOL_BROKEN;
			last = now;
		}
		draw_page(screen);
		/* While paused, the length of the wait does not matter. */
		wait_and_obey(screen, screen->draw.paused ? seconds_now() + 60 : last + screen->draw.interval);
	}
	return TOOL_OK;
}

int top_screen(struct figures *figures, const struct figures_choice *choice, const struct top_view *view,
	       double interval)
{
	struct screen screen = {.figures = figures, .choice = choice, .view = *view, .draw.interval = interval};

	SCREEN *terminal = screen_begin();
	if (!terminal)
		return -1;
	int status = screen_watch(&screen);
	endwin();
	delscreen(terminal);
	free((void *)screen.draw.list);
	if (status != TOOL_OK)
		tool_say("no memory for the figures of all processes");
	return status;
}
