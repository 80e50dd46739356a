/*
 * Replaces top_screen.c if the tool was built without ncurses.
 */
#include "tools/common/tool.h"
#include "tools/top/top.h"

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
