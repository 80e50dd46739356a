// SPDX-License-Identifier: Apache-2.0
/*
 * top_show_help.h: figures of one process, this one, read once or twice, and what is printed of them.
 */
#ifndef UNIT_TOP_SHOW_HELP_H
#define UNIT_TOP_SHOW_HELP_H

#include "test/unit/page_make.h"
#include "tools/top/top.h"

extern struct stats_page *page; /* to be changed before it is read */
extern struct figures figures;
extern pid_t self[1];
extern const struct figures_choice choice; /* this process alone */
extern struct top_view view;

/* Before and after each test. */
int begin(void **state);
int end(void **state);

void read_it(void);
/* Ten seconds between two readings, whatever the clock of this machine says. */
void read_twice(void);

/* What is printed; it lasts until the next one. In the text every number that is this process's id is PID. */
const char *text_of(void);
const char *prom_of(void);
const char *json_of(void);

void has(const char *text, const char *part);
void has_not(const char *text, const char *part);

#endif
