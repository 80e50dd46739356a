// SPDX-License-Identifier: Apache-2.0
/*
 * Draws the main page, from top to bottom: the title; a bar for each GPU; links; a table for each GPU that is shared;
 * flows; the table of processes; the costliest rules and sites; the keys. The table always keeps some rows. The parts
 * above it get the other rows in their order, sites and rules the rest. GPUs have a line of text if all of them fit.
 */
#include "tools/top/top.h"

#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#define NCURSES_WIDECHAR 1
#include <curses.h>

#include "tools/common/shared.h"

enum {
	LEAST_ROWS = 4,  /* minimum rows of the table, reserved before anything else */
	MOST_RANKED = 8, /* maximum number of rules, and of sites */
	FLOW_LABEL = 26, /* columns in front of a sparkline */
};

/* ---- text clipped to its place, colours that colour-blind people can distinguish, bars and sparklines ---- */

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

void draw_begin(bool plain)
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

/*
 * Writes text at (y, x), clipped to `width` columns and to the screen. pen_right() aligns it to the right. Returns the
 * column after it.
 */
static int pen_text(int y, int x, int width, const char *text, enum pen_style style)
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

static int pen_right(int y, int x, int width, const char *text, enum pen_style style)
{
	int length = (int)strlen(text); /* numbers, which are ASCII */

	return pen_text(y, length < width ? x + width - length : x, width, text, style);
}

static void pen_blank(int y, int x, int width, enum pen_style style)
{
	if (!pen_clip(y, x, &width))
		return;
	pen_use(style);
	mvhline(y, x, ' ', width);
}

/* Draws a part of a bar, `width` columns wide, with its name and size inside if they fit. */
static void pen_part(int y, int x, int width, const char *name, const char *size, enum pen_style style)
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

/* Draws the last values, the newest at the right end. most: the value of a full column; must be greater than 0. */
static void pen_spark(int y, int x, int width, const struct figures_history *history, double most, enum pen_style style)
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

/* ---- title and keys ---- */

static void draw_title(const struct draw *draw)
{
	time_t seconds = (time_t)(draw->figures->wall / 1000000000);
	struct tm now;
	char clock[16], text[256];

	localtime_r(&seconds, &now);
	strftime(clock, sizeof(clock), "%H:%M:%S", &now);
	snprintf(text, sizeof(text), " spillway top  %s  %zu process%s on %zu GPU%s  every %g s%s", clock, draw->n,
		 draw->n == 1 ? "" : "es", draw->figures->n_devices, draw->figures->n_devices == 1 ? "" : "s",
		 draw->interval, draw->paused ? "  PAUSED" : "");
	pen_blank(0, 0, COLS, PEN_TITLE);
	int at = pen_text(0, 0, COLS, text, PEN_TITLE);
	if (draw->figures->n_gone > draw->view->gone) {
		snprintf(text, sizeof(text), draw->view->gone ? "  %zu killed before" : "  g: %zu killed",
			 draw->figures->n_gone - draw->view->gone);
		pen_text(0, at, COLS - at, text, PEN_TITLE);
	}
}

static void draw_keys(const char *text)
{
	pen_blank(LINES - 1, 0, COLS, PEN_TITLE);
	pen_text(LINES - 1, 1, COLS - 1, text, PEN_TITLE);
}

/* ---- GPUs ---- */

enum { PARTS = 8, PARTS_HERE = 4 }; /* the first PARTS_HERE parts are on the device */

static const struct {
	const char *name, *text; /* text: for the help */
	enum pen_style style;
} part_names[PARTS] = {
    {"device", "heap memory on it", PEN_DEVICE},
    {"driver", "what the driver gave", PEN_DRIVER},
    {"lent", "to other devices", PEN_LENT},
    {"free", "others' use is not seen", PEN_FREE},
    {"host", "heap memory on the host", PEN_HOST},
    {"peer", "heap memory on other devices", PEN_PEER},
    {"managed", "managed memory, wherever it is", PEN_MANAGED},
    {"system", "pages of the process", PEN_SYSTEM},
};

struct part {
	double bytes;
	int width;
};

/*
 * Distributes `width` columns over the parts in proportion; each part that is not empty gets at least one. The widest
 * part absorbs rounding.
 */
static void share_out(struct part *parts, unsigned n, int width)
{
	double sum = 0;
	int used = 0;
	unsigned widest = 0;

	for (unsigned i = 0; i < n; i++)
		sum += parts[i].bytes;
	for (unsigned i = 0; i < n && sum > 0; i++) {
		parts[i].width = (int)(parts[i].bytes / sum * width);
		if (parts[i].bytes > 0 && !parts[i].width)
			parts[i].width = 1;
		used += parts[i].width;
		if (parts[i].width > parts[widest].width)
			widest = i;
	}
	parts[widest].width += sum > 0 ? width - used : 0;
}

static double device_used(const struct figures_device *device)
{
	return (double)device->live[PLACE_DEVICE] + (double)device->live[PLACE_DRIVER] + (double)device->lent;
}

static void draw_bar(int y, int x, int width, const struct figures_device *device)
{
	double left = (double)device->total - device_used(device);
	/* In the order of part_names. */
	struct part parts[PARTS] = {{(double)device->live[PLACE_DEVICE], 0},
				    {(double)device->live[PLACE_DRIVER], 0},
				    {(double)device->lent, 0},
				    {left > 0 ? left : 0, 0},
				    {(double)device->live[PLACE_HOST], 0},
				    {(double)device->live[PLACE_PEER], 0},
				    {(double)device->live[PLACE_MANAGED], 0},
				    {(double)device->live[PLACE_SYSTEM], 0}};

	share_out(parts, PARTS, width - 1);
	for (unsigned i = 0; i < PARTS; i++) {
		if (i == PARTS_HERE)
			pen_text(y, x++, 1, pen.wide ? "\u2502" : "|", PEN_PLAIN);
		if (parts[i].width > 0)
			pen_part(y, x, parts[i].width, part_names[i].name, short_bytes(parts[i].bytes),
				 part_names[i].style);
		x += parts[i].width;
	}
}

/* "61.2G of 79.6G, 24.0G elsewhere (1.07x)": both together are 1.07 times the device's memory. */
static void say_device(const struct figures_device *device, char *room, size_t bytes)
{
	double away = (double)device->live[PLACE_HOST] + (double)device->live[PLACE_PEER] +
		      (double)device->live[PLACE_MANAGED] + (double)device->live[PLACE_SYSTEM];
	int n = snprintf(room, bytes, "%s of %s", short_bytes(device_used(device)), short_bytes((double)device->total));

	if (away > 0 && device->total)
		snprintf(room + n, bytes - (size_t)n, ", %s elsewhere (%.2fx)", short_bytes(away),
			 (device_used(device) + away) / (double)device->total);
}

static int draw_devices(const struct draw *draw, int y, int end)
{
	const struct figures *figures = draw->figures;
	bool two_lines = y + 2 * (int)figures->n_devices <= end;
	char label[96], text[128];

	for (size_t i = 0; i < figures->n_devices && y < end; i++) {
		const struct figures_device *device = &figures->device[i];

		if (two_lines) {
			snprintf(label, sizeof(label), "GPU %d %s", (int)device->number, device->name);
			int at = pen_text(y, 0, COLS, label, PEN_HEAD);
			say_device(device, text, sizeof(text));
			if (COLS - at > (int)strlen(text) + 2)
				pen_right(y, at + 1, COLS - at - 1, text, PEN_PLAIN);
			y++;
		}
		snprintf(label, sizeof(label), "GPU %d ", (int)device->number);
		int at = two_lines ? 0 : pen_text(y, 0, 8, label, PEN_HEAD);
		draw_bar(y++, at, COLS - at, device);
	}
	return y;
}

static int draw_links(const struct draw *draw, int y, int end)
{
	const struct figures *figures = draw->figures;
	char text[128];

	for (size_t i = 0; i < figures->n_links && y < end; i++) {
		const struct figures_link *link = &figures->link[i];

		snprintf(text, sizeof(text), "GPU %d borrows of %d, link %s: in %s/s, out %s/s",
			 (int)figures->device[link->device].number, (int)figures->device[link->lender].number,
			 figures_link_kind(link->kind), short_bytes(figures_links_rate(figures, link, LINK_IN)),
			 short_bytes(figures_links_rate(figures, link, LINK_OUT)));
		pen_text(y++, 0, COLS, text, PEN_PLAIN);
	}
	return y;
}

/* The tables of the GPUs that are shared. */
static int draw_shared(int y, int end)
{
	char *text = shared_text(), line[256];

	/* The first line is empty. */
	for (const char *at = text ? text + 1 : ""; *at && y < end; y++) {
		size_t length = strcspn(at, "\n");

		snprintf(line, sizeof(line), "%.*s", (int)length, at);
		pen_text(y, 0, COLS, line, strstr(line, " PID ") || !strncmp(line, "GPU ", 4) ? PEN_HEAD : PEN_PLAIN);
		at += length + (at[length] == '\n');
	}
	free(text);
	return y;
}

/* ---- flows ---- */

static const struct {
	const char *label;
	enum pen_style style;
	bool bytes;
} flows[FLOW_COUNT] = {
    [FLOW_IN] = {"to the device", PEN_IN, true},
    [FLOW_OUT] = {"away from it", PEN_OUT, true},
    [FLOW_FAULTS] = {"page faults", PEN_FAULTS, false},
};

static double most_of(const struct figures_history *history, int readings)
{
	double most = 0;

	for (int i = 0; i < readings; i++) {
		double value = figures_ago(history, (unsigned)i);

		if (!isnan(value) && value > most)
			most = value;
	}
	return most;
}

static int draw_flows(const struct figures_history history[FLOW_COUNT], const char *no_faults, int y, int end)
{
	int width = COLS - FLOW_LABEL - 12;
	char scale[64];

	if (width > FIGURES_HISTORY)
		width = FIGURES_HISTORY;
	/* Both directions have one scale, because they share the link. */
	double most_moved = fmax(most_of(&history[FLOW_IN], width), most_of(&history[FLOW_OUT], width));
	for (unsigned i = 0; i < FLOW_COUNT && y < end; i++, y++) {
		double now = figures_ago(&history[i], 0),
		       most = i == FLOW_FAULTS ? most_of(&history[i], width) : most_moved;

		pen_text(y, 0, 14, flows[i].label, PEN_HEAD);
		pen_right(y, 14, 6, flows[i].bytes ? short_bytes(now) : short_count(now),
			  isnan(now) ? PEN_WEAK : flows[i].style);
		if (!isnan(now))
			pen_text(y, 20, 5, "/s", PEN_PLAIN);
		else if (i == FLOW_FAULTS && history[i].n > 1)
			pen_text(y, FLOW_LABEL, COLS - FLOW_LABEL, no_faults, PEN_WEAK);
		if (width < 8)
			continue;
		pen_spark(y, FLOW_LABEL, width, &history[i], most > 0 ? most : 1, flows[i].style);
		snprintf(scale, sizeof(scale), "max %s", flows[i].bytes ? short_bytes(most) : short_count(most));
		if (!isnan(now))
			pen_right(y, COLS - 11, 11, scale, PEN_WEAK);
	}
	return y;
}

/* ---- the table ---- */

/* process NULL: draws the head. */
static void draw_row(const struct draw *draw, int y, const struct figures_process *process, enum pen_style style)
{
	char room[256];
	int x = 0;

	if (style == PEN_SELECTED)
		pen_blank(y, 0, COLS, style);
	for (unsigned i = 0; i < top_n_columns(); i++) {
		const struct top_column *column = &top_columns[i];
		int width = column->width ? column->width : COLS - x;

		if (strcmp(column->key, "user") ? COLS < column->at_least : !draw->many_users || COLS < 72)
			continue;
		const char *text = process ? top_cell(process, i, room, sizeof(room)) : column->title;
		enum pen_style how = !process && i == draw->view->sort ? PEN_STRONG : style;
		if (column->left)
			pen_text(y, x, width, text, how);
		else
			pen_right(y, x, width, text, how);
		x += width + 1;
	}
}

static void keep_in_sight(struct draw *draw, int rows)
{
	size_t room = rows > 0 ? (size_t)rows : 1;

	if (draw->first + room > draw->n)
		draw->first = draw->n > room ? draw->n - room : 0;
	if (draw->selected < draw->first)
		draw->first = draw->selected;
	if (draw->selected >= draw->first + room)
		draw->first = draw->selected - room + 1;
}

static int draw_table(struct draw *draw, int y, int rows)
{
	draw_row(draw, y++, NULL, PEN_HEAD);
	keep_in_sight(draw, rows);
	for (int i = 0; i < rows && draw->first + (size_t)i < draw->n; i++, y++) {
		size_t at = draw->first + (size_t)i;
		const struct figures_process *process = draw->list[at];

		draw_row(draw, y, process,
			 at == draw->selected   ? PEN_SELECTED
			 : process->page->alive ? PEN_PLAIN
						: PEN_WEAK);
	}
	return y;
}

static int draw_ranked(const struct draw *draw, int y, enum figures_group group, size_t rows)
{
	struct top_entry entries[MOST_RANKED];
	size_t n = top_rank(draw->list, draw->n, group, entries, rows < MOST_RANKED ? rows : MOST_RANKED);
	char numbers[128], name[TOP_NAME];
	/* The table's first column is one column narrower. */
	int at = pen_text(y, 0, COLS, &TOP_RANK_HEAD[1], PEN_HEAD);

	pen_text(y++, at + 2, COLS - at - 2, group == GROUP_RULES ? "RULE" : "SITE", PEN_HEAD);
	for (size_t i = 0; i < n; i++, y++) {
		top_entry_numbers(&entries[i], numbers, sizeof(numbers));
		at = pen_text(y, 0, COLS, numbers + 1, PEN_PLAIN);
		pen_text(y, at + 2, COLS - at - 2, top_entry_name(&entries[i], name, sizeof(name)), PEN_PLAIN);
	}
	return y;
}

/* ---- the main page ---- */

static const char *why_no_faults(const struct draw *draw)
{
	for (size_t i = 0; i < draw->n; i++)
		if (draw->list[i]->page->copy && *draw->list[i]->page->copy->fault_source)
			return draw->list[i]->page->copy->fault_source;
	return "nothing counts them";
}

static void draw_nothing(const struct draw *draw)
{
	int y = LINES / 3;

	pen_text(y, 2, COLS - 2, "No process under Spillway has used CUDA memory yet.", PEN_HEAD);
	pen_text(y + 2, 2, COLS - 2, "Start one, and it appears here:", PEN_PLAIN);
	pen_text(y + 3, 2, COLS - 2, "  spillway run -- python train.py", PEN_PLAIN);
	if (draw->figures->n_refused)
		pen_text(y + 5, 2, COLS - 2, "A folder of figures was not looked into: it is open to others.",
			 PEN_PLAIN);
}

void draw_main(struct draw *draw)
{
	int y = 1, end = LINES - 1;

	erase();
	draw_title(draw);
	if (!draw->n) {
		draw_nothing(draw);
	} else {
		int before_table = end - LEAST_ROWS - 1;

		y = draw_devices(draw, y, before_table);
		y = draw_links(draw, y, before_table);
		y = draw_shared(y, before_table);
		y = draw_flows(draw->figures->flow, why_no_faults(draw), y, before_table);
		if (end - y > LEAST_ROWS + 6)
			y++;
		/*
		 * Each of the two lists needs a head and a blank line above it. The table gets the rows that it needs;
		 * these lists get the rest.
		 */
		int wanted = (end - y - 1 - LEAST_ROWS - 4) / 2, more = (int)draw->n - LEAST_ROWS;
		int left = more > 0 ? wanted - more / 2 : wanted;
		int ranked = wanted > 3 && left < 3 ? 3 : wanted > 3 ? left : wanted;
		if (ranked > MOST_RANKED)
			ranked = MOST_RANKED;
		int rows = end - y - 1 - (ranked > 0 ? 2 * ranked + 4 : 0);
		y = draw_table(draw, y, rows);
		if (ranked > 0) {
			y = draw_ranked(draw, y + 1, GROUP_RULES, (size_t)ranked);
			draw_ranked(draw, y + 1, GROUP_SITES, (size_t)(end - y - 2 > 0 ? end - y - 2 : 0));
		}
	}
	draw_keys("q quit  h help  s sort  r reverse  p pause  Up/Down, Enter: details  g killed");
	refresh();
}

/* ---- details ---- */

static void draw_lines(struct draw *draw, const char *text, int y)
{
	int rows = LINES - 1 - y;
	unsigned n = 0;
	char line[512];

	for (const char *c = text; *c; c++)
		n += *c == '\n';
	draw->n_lines = n;
	if (draw->line + (unsigned)(rows > 0 ? rows : 0) > n)
		draw->line = n > (unsigned)rows ? n - (unsigned)rows : 0;
	for (unsigned i = 0; i < draw->line; i++)
		text = strchr(text, '\n') + 1;
	for (; *text && y < LINES - 1; y++) {
		size_t length = strcspn(text, "\n"), from = draw->column < length ? draw->column : length;

		/* Texts were cleaned, but clipping may cut a character in two: its remaining bytes are shown as '?'. */
		snprintf(line, sizeof(line), "%.*s", (int)(length - from), text + from);
		pen_text(y, 0, COLS, line, PEN_PLAIN);
		text += length + (text[length] == '\n');
	}
}

void draw_details(struct draw *draw)
{
	char *text = NULL;
	size_t bytes;

	erase();
	draw_title(draw);
	FILE *out = draw->selected < draw->n ? open_memstream(&text, &bytes) : NULL;
	if (out) {
		const struct figures_process *process = draw->list[draw->selected];

		top_print_details(out, process);
		fclose(out);
		int y = process->page->copy ? draw_flows(process->flow, process->page->copy->fault_source, 1, LINES - 4)
					    : 1;
		draw_lines(draw, text, y + 1);
		free(text);
	}
	draw_keys("q, Esc: back  arrows, PgUp, PgDn: more  p pause");
	refresh();
}

/* ---- help ---- */

static const char *const help_keys[] = {
    "q            quit; in another page: back",
    "up, down     select a process (j and k, too); Enter, d: everything known of it",
    "s, S         order by the next, the previous column; r: the other way round",
    "p, blank     pause: the figures stay as they are",
    "+, -         longer, shorter time between two readings",
    "g            show also processes that were killed and left their figures",
    "h, ?         this page; Ctrl-L draws the screen anew",
};

void draw_help(const struct draw *draw)
{
	int y = 2;

	erase();
	draw_title(draw);
	for (size_t i = 0; i < sizeof(help_keys) / sizeof(*help_keys); i++)
		pen_text(y++, 1, COLS - 1, help_keys[i], PEN_PLAIN);
	y++;
	for (unsigned i = 0; i < PARTS; i++) {
		int x = i % 2 ? COLS / 2 : 1;

		pen_part(y, x, 9, part_names[i].name, "", part_names[i].style);
		pen_text(y, x + 10, COLS / 2 - 12, part_names[i].text, PEN_PLAIN);
		y += (int)(i % 2);
	}
	y++;
	for (unsigned i = 0; i < top_n_columns() && y < LINES - 1; i++) {
		if (!top_columns[i].text)
			continue;
		pen_text(y, 1, 9, top_columns[i].title, PEN_HEAD);
		pen_text(y++, 10, COLS - 10, top_columns[i].text, PEN_PLAIN);
	}
	draw_keys("q, Esc: back    man spillway-top says more");
	refresh();
}
