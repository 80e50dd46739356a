#include "tools/top.h"
int top_screen(struct figures *figures, const struct figures_choice *choice, const struct top_view *view,
	       double interval)
{
	(void)figures;
	(void)choice;
	(void)view;
	(void)interval;
	return -1;
}
