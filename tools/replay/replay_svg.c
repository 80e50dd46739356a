/*
 * Draws the curve as an SVG file that loads nothing else and is legible on light and dark backgrounds. Axes are named
 * and end where the data do, lines are named above them, and points have their times. Text from
 * outside is escaped.
 */
#include "tools/common/units.h"
#include "tools/replay/replay_sweep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "policy/text.h"
#include "tools/common/new_file.h"
#include "tools/common/tool.h"

#define WIDTH  720
#define HEIGHT 440
#define LEFT   64
#define RIGHT  48
#define TOP    88
#define BOTTOM 68
/* Columns between the labels of two points: the width of "1234.5". */
#define APART 44

static const char head[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 440\" role=\"img\" font-family=\"sans-serif\" "
    "font-size=\"12\">\n"
    "<style>svg{color:#1b1f24;background:#fff;max-width:100%}.grid{stroke:#d5d9de}.run{stroke:#0b6bcb;fill:none}.dot{"
    "fill:#0b6bcb}"
    ".limit{stroke:#7a828c;fill:none}.best{stroke:#2b8a3e}.full{stroke:#c77700;fill:none}text{fill:currentColor}.dim{"
    "opacity:.7}"
    "@media(prefers-color-scheme:dark){svg{color:#e6e9ed;background:#15181c}.grid{stroke:#343a41}.run{stroke:#5cb0ff}"
    ".dot{fill:#5cb0ff}.limit{stroke:#9aa3ad}.best{stroke:#69db7c}.full{stroke:#ffb454}}</style>\n";

struct drawing {
	FILE *file;
	const struct replay_sweep *sweep;
	double least, most, top;
};

static double x_of(const struct drawing *d, double budget)
{
	double x = d->most > d->least ? (budget - d->least) / (d->most - d->least) : 0.5;

	return LEFT + x * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct drawing *d, double ms)
{
	return HEIGHT - BOTTOM - ms / d->top * (HEIGHT - TOP - BOTTOM);
}

static bool is_drawn(const struct drawing *d, const struct replay_answer *answer)
{
	return answer->run.end == RUN_DONE && d->sweep->full_ms > 0;
}

static void put_text(FILE *file, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", file);
			break;
		case '>':
			fputs("&gt;", file);
			break;
		case '&':
			fputs("&amp;", file);
			break;
		default:
			fputc(*text, file);
		}
	}
}

/* Returns 1, 2 or 5 times a power of ten, such that four to eight grid lines fit. */
static double step_of(double top)
{
	double power = pow(10, floor(log10(top / 5))), share = top / 5 / power;

	return power * (share > 6 ? 10 : share > 3 ? 5 : share > 1.5 ? 2 : 1);
}

/* Returns a power of two, such that three to six budgets that are multiples of it lie within the drawing. */
static double budget_step(const struct drawing *d)
{
	return pow(2, floor(log2((d->most - d->least) / 3)));
}

static void draw_budget(const struct drawing *d, double budget)
{
	char size[UNITS_TEXT];
	double x = x_of(d, budget);

	fprintf(d->file, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", x, x, HEIGHT - BOTTOM,
		HEIGHT - BOTTOM + 5);
	fprintf(d->file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>", x, HEIGHT - BOTTOM + 19,
		units_bytes((uint64_t)(budget + 0.5), size));
	if (d->sweep->peak)
		fprintf(d->file, "<text class=\"dim\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f %%</text>", x,
			HEIGHT - BOTTOM + 35, budget * 100 / (double)d->sweep->peak);
	fputc('\n', d->file);
}

static void draw_axes(const struct drawing *d)
{
	for (double ms = 0; ms <= d->top; ms += step_of(d->top)) {
		fprintf(d->file, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
			WIDTH - RIGHT, y_of(d, ms), y_of(d, ms));
		fprintf(d->file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 8, y_of(d, ms) + 4,
			ms);
	}
	if (d->most > d->least) {
		double step = budget_step(d);

		for (double budget = ceil(d->least / step) * step; budget <= d->most; budget += step)
			draw_budget(d, budget);
	} else {
		draw_budget(d, d->least);
	}
	fprintf(d->file,
		"<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">device budget, and its part of the peak</text>\n",
		(LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
	fprintf(d->file, "<text x=\"%d\" y=\"%d\">ms a step</text>\n", 12, TOP - 16);
}

/* A sample of a line and what it means. Returns where the next one begins. */
static int draw_key(const struct drawing *d, int x, const char *class, const char *dashes, const char *text)
{
	fprintf(d->file,
		"<line class=\"%s\" stroke-width=\"2\"%s x1=\"%d\" x2=\"%d\" y1=\"40\" y2=\"40\"/><text x=\"%d\" "
		"y=\"44\">%s"
		"</text>\n",
		class, dashes, x, x + 22, x + 28, text);
	return x + 28 + 7 * (int)strlen(text) + 12;
}

static void draw_keys(const struct drawing *d)
{
	const struct replay_answer *best = d->sweep->best;
	char size[UNITS_TEXT], text[160];
	int x = draw_key(d, LEFT, "run", "", "predicted");

	x = draw_key(d, x, "limit", " stroke-dasharray=\"5 4\"", "limit");
	snprintf(text, sizeof(text), "full speed, %.1f ms", d->sweep->full_ms);
	x = draw_key(d, x, "full", " stroke-dasharray=\"2 3\"", text);
	if (best) {
		snprintf(text, sizeof(text), "smallest within %.0f %% of it: %s, %.1f ms", (REPLAY_GOOD - 1) * 100,
			 units_bytes(best->budget, size), best->run.step_ms);
		draw_key(d, x, "best", "", text);
	}
}

static void draw_line(const struct drawing *d, bool limit)
{
	fprintf(d->file, "<polyline class=\"%s\" stroke-width=\"2\"%s points=\"", limit ? "limit" : "run",
		limit ? " stroke-dasharray=\"5 4\"" : "");
	for (unsigned i = 0; i < d->sweep->n; i++) {
		const struct replay_answer *answer = &d->sweep->answers[i];

		if (is_drawn(d, answer))
			fprintf(d->file, "%.1f,%.1f ", x_of(d, (double)answer->budget),
				y_of(d, limit ? answer->limit_ms : answer->run.step_ms));
	}
	fprintf(d->file, "\"/>\n");
}

/* Each point, and the time of those that lie far enough from the one before. The largest budget is first. */
static void draw_dots(const struct drawing *d)
{
	double labelled = 1e300;
	char size[UNITS_TEXT];

	for (unsigned i = 0; i < d->sweep->n; i++) {
		const struct replay_answer *answer = &d->sweep->answers[i];

		if (!is_drawn(d, answer))
			continue;
		if (labelled - x_of(d, (double)answer->budget) >= APART) {
			labelled = x_of(d, (double)answer->budget);
			fprintf(d->file, "<text x=\"%.1f\" y=\"%.1f\">%.1f</text>", labelled + 5,
				y_of(d, answer->run.step_ms) - 7, answer->run.step_ms);
		}
			fprintf(
			    d->file,
			    "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%s: %.1f ms, limit %.1f ms"
			    "</title></circle>\n",
			    x_of(d, (double)answer->budget), y_of(d, answer->run.step_ms),
			    units_bytes(answer->budget, size), answer->run.step_ms, answer->limit_ms);
	}
	if (d->sweep->best)
		fprintf(d->file,
			"<line class=\"best\" stroke-width=\"2\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" "
			"y2=\"%d\"><title>%s: the "
			"smallest budget within 10 %% of full speed</title></line>\n",
			x_of(d, (double)d->sweep->best->budget), x_of(d, (double)d->sweep->best->budget), TOP,
			HEIGHT - BOTTOM, units_bytes(d->sweep->best->budget, size));
}

static void svg_draw(struct drawing *d)
{
	char name[128];
	const char *slash = strrchr(d->sweep->request->path, '/');

	fputs(head, d->file);
	fprintf(d->file, "<text x=\"%d\" y=\"20\" font-size=\"14\">", LEFT);
	put_text(d->file, policy_printable(slash ? slash + 1 : d->sweep->request->path, name, sizeof(name)));
	fprintf(d->file, ", mode %s: time of a step by device memory</text>\n",
		policy_spill_name(d->sweep->request->mode));
	draw_keys(d);
	draw_axes(d);
	fprintf(d->file,
		"<line class=\"full\" stroke-width=\"2\" stroke-dasharray=\"2 3\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
		"y2=\"%.1f\"/>\n",
		LEFT, WIDTH - RIGHT, y_of(d, d->sweep->full_ms), y_of(d, d->sweep->full_ms));
	draw_line(d, true);
	draw_line(d, false);
	draw_dots(d);
	fputs("</svg>\n", d->file);
}

/* Determines what to draw, and its size. */
static unsigned svg_measure(struct drawing *d)
{
	unsigned n = 0;

	d->least = 1e300;
	for (unsigned i = 0; i < d->sweep->n; i++) {
		const struct replay_answer *answer = &d->sweep->answers[i];

		if (!is_drawn(d, answer))
			continue;
		n++;
		d->least = (double)answer->budget < d->least ? (double)answer->budget : d->least;
		d->most = (double)answer->budget > d->most ? (double)answer->budget : d->most;
		d->top = answer->run.step_ms > d->top ? answer->run.step_ms : d->top;
	}
	d->top = (d->sweep->full_ms > d->top ? d->sweep->full_ms : d->top) * 1.05;
	return n;
}

int replay_svg(const struct replay_sweep *sweep)
{
	struct drawing drawing = {.sweep = sweep};
	const char *path = sweep->request->svg;

	if (!svg_measure(&drawing)) {
		tool_say("no curve is drawn: no time of a step is known");
		return TOOL_BROKEN;
	}
	drawing.file = new_file_create(path);
	if (!drawing.file)
		return TOOL_BROKEN;
	svg_draw(&drawing);
	return new_file_close(drawing.file, path, true);
}
