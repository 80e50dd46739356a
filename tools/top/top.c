// SPDX-License-Identifier: Apache-2.0
/*
 * top.c: `spillway top`. Reads the command line, takes one reading after another, and passes each to the screen, the
 * plain text or JSON.
 */
#include "tools/top/top.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/common/options.h"
#include "tools/common/seconds.h"
#include "tools/commands.h"
#include "tools/common/tool.h"
#include "tools/common/view.h"

struct wish {
	bool once, json, plain, interval_given;
	double interval;
	unsigned long count; /* 0: until the user quits */
	struct top_view view;
	struct figures_choice choice;
};

/* ---- the command line ---- */

static bool read_user(const char *text, uid_t *ret_user)
{
	const struct passwd *entry = getpwnam(text);

	*ret_user = entry ? entry->pw_uid : view_user(text);
	return *ret_user != (uid_t)-1;
}

static bool read_count(const char *text, unsigned long *ret_count)
{
	char why[POLICY_EXPLAIN_BYTES];

	return options_whole(text, 1, UINT64_MAX, ret_count, why);
}

static bool say_wrong(const char *what, const char *text, const char *instead)
{
	return tool_fails("%s is no %s; %s", policy_quoted(text), what, instead);
}

static bool read_value(void *argument, int code, const char *text, char *why)
{
	struct wish *wish = argument;
	int column;

	(void)why;
	switch (code) {
	case 'i':
		wish->interval_given = true;
		return seconds_read(text, &wish->interval) || say_wrong("interval", text, SECONDS_RANGE);
	case 'n':
		return read_count(text, &wish->count) ||
		       say_wrong("number of readings", text, "give a number from 1 on");
	case 's':
		column = top_column_named(text);
		wish->view.sort = column < 0 ? 0 : (unsigned)column;
		return column >= 0 || say_wrong("column", text, "`spillway top --help` names them");
	case 'g':
		wish->view.gone = text ? SIZE_MAX : TOP_GONE;
		return !text || !strcmp(text, "all") || read_count(text, &wish->view.gone) ||
		       say_wrong("number of processes", text, "give a number from 1 on, or all");
	default:
		return read_user(text, &wish->choice.only) || say_wrong("user", text, "give a name or a number");
	}
}

static bool read_processes(int n, char **texts, struct wish *wish)
{
	struct process_name *names = calloc((size_t)n + 1, sizeof(*names));

	wish->choice.name = names;
	wish->choice.n = (size_t)n;
	if (!names)
		return tool_fails("no memory");
	for (int i = 0; i < n; i++)
		if (!process_read_name(texts[i], &names[i]))
			return say_wrong("process id", texts[i], "`spillway top --once` shows them");
	return true;
}

/* Contradictory options are an error, because guessing which one was meant would be wrong. */
static bool top_fits(const struct wish *wish)
{
	if (wish->json + wish->plain + wish->view.details > 1)
		tool_say("only one of --json, --plain and --details can be had at a time");
	else if (wish->once && wish->count > 1)
		tool_say("--once is one reading, --count %lu are more; give one of them", wish->count);
	else
		return true;
	return false;
}

static void print_columns(void)
{
	for (unsigned i = 0; i < top_n_columns(); i++)
		printf("%s%s", i ? " " : "", top_columns[i].key);
}

_Static_assert(TOP_GONE == 10, "the help says so");
static const struct option_row rows[] = {
    OPTION_FLAG("once", wish, once, "one reading; with --interval two, so that there are rates"),
    OPTION_FLAG("json", wish, json, "one JSON object a reading, on a line (spillway-top(1) says what is in it)"),
    OPTION_FLAG("plain", wish, plain, "text, also on a terminal"),
    OPTION_FLAG("details", wish, view.details, "everything that is known of each process, as text"),
    OPTION_READ("interval", "SECONDS", read_value, 'i', "between readings (1), 0.1 to 3600"),
    OPTION_READ("count", "N", read_value, 'n', "end after N readings"),
    {.name = "sort",
     .value = "NAME",
     .read = read_value,
     .code = 's',
     .help = "by this column (device), one of:\n",
     .more = print_columns},
    OPTION_FLAG("reverse", wish, view.reverse, "the other way round"),
    OPTION_READ("user", "NAME", read_value, 'u', "processes of this user alone"),
    OPTION_READ("gone", "[=N]", read_value, 'g',
		"also the N processes (10; or all) that were killed last and left their figures"),
};

static const struct options options = {
    .command = "top",
    OPTION_ROWS(rows),
    .column = 22,
    .head =
	"usage: spillway top [option...] [PID|ID...]\n\n"
	"Shows what the processes under Spillway do: where their memory is, what moves, what costs most. On a\n"
	"terminal a screen that is drawn anew each second (h: help, q: the end); else plain text. Reads the files in\n"
	"which the processes show their figures, and nothing else: it can neither slow nor stop them. Root sees the\n"
	"processes of all users.\n",
    .tail = "Exit status: 0, also when there is no process; 1 a reading failed; 2 wrong usage.\n\n"
	    "examples:\n"
	    "  spillway top\n"
	    "  spillway top --once --json | jq '.processes[] | [.pid, .counters.moved_in_bytes]'\n"
	    "  spillway top --once --details --interval 2 4711\n",
};

/* ---- readings ---- */

static void top_show(const struct figures *figures, const struct wish *wish)
{
	if (wish->json)
		top_print_json(figures, &wish->view);
	else
		top_print_text(stdout, figures, &wish->view);
}

static bool top_take(struct figures *figures, const struct wish *wish)
{
	if (figures_read(figures, &wish->choice))
		return true;
	return tool_fails("no memory for the figures of all processes");
}

/* Prints the named processes that were not found. In JSON they are visible to programs. */
static void say_missing(const struct figures *figures, const struct wish *wish)
{
	for (size_t i = 0; !wish->json && i < wish->choice.n; i++) {
		bool there = false;

		for (size_t p = 0; p < figures->n; p++)
			there |= figures_is_named(figures->process[p].page, &wish->choice.name[i]);
		if (!there)
			tool_say("process %s shows no figures: it does not run under Spillway, has not used CUDA "
				 "memory yet, is another user's, or is gone; `spillway top --once` shows those that do",
				 process_named(&wish->choice.name[i]));
	}
}

static int show_once(struct figures *figures, const struct wish *wish)
{
	if (!top_take(figures, wish))
		return TOOL_BROKEN;
	if (wish->interval_given) {
		seconds_sleep(wish->interval);
		if (!top_take(figures, wish))
			return TOOL_BROKEN;
	}
	top_show(figures, wish);
	say_missing(figures, wish);
	return TOOL_OK;
}

static int show_all(struct figures *figures, const struct wish *wish)
{
	seconds_end_by(SIGINT);
	seconds_end_by(SIGTERM);
	for (unsigned long n = 0; !seconds_enough() && (!wish->count || n < wish->count); n++) {
		if (n)
			seconds_sleep(wish->interval);
		if (seconds_enough())
			break;
		if (!top_take(figures, wish))
			return TOOL_BROKEN;
		if (n && !wish->json)
			putchar('\n');
		top_show(figures, wish);
		/* The reader of the output has ended; main() reports it. */
		if (fflush(stdout) != 0)
			break;
	}
	return TOOL_OK;
}

#ifndef SPILLWAY_SCREEN
/* The tool was built without ncurses. */
int top_screen(struct figures *figures, const struct figures_choice *choice, const struct top_view *view,
	       double interval)
{
	(void)figures;
	(void)choice;
	(void)view;
	(void)interval;
	tool_say("this spillway was built without ncurses, so here is plain text; --once shows it once");
	return -1;
}
#endif

static int show_as_wished(struct wish *wish)
{
	struct figures figures = {0};
	int status = -1;

	if (wish->once)
		status = show_once(&figures, wish);
	else if (!wish->json && !wish->plain && !wish->view.details && !wish->count && isatty(STDIN_FILENO) &&
		 isatty(STDOUT_FILENO))
		status = top_screen(&figures, &wish->choice, &wish->view, wish->interval);
	if (status < 0)
		status = show_all(&figures, wish);
	figures_free(&figures);
	return status;
}

int tool_top(int argc, char **argv)
{
	struct wish wish = {.interval = 1, .choice.only = (uid_t)-1, .view.sort = (unsigned)top_column_named("device")};
	int status = options_read(&options, argc, argv, &wish);

	if (status == OPTIONS_GO_ON)
		status = top_fits(&wish) && read_processes(argc - optind, argv + optind, &wish) ? show_as_wished(&wish)
												: TOOL_BAD;
	free((void *)wish.choice.name);
	return status;
}
