/* prom.h: figures in the text format of Prometheus; the command around it is prom.c. */
#ifndef TOOLS_PROM_H
#define TOOLS_PROM_H

#include "tools/common/figures.h"

#include <stdio.h>

/*
 * Everything of the processes that are there: every figure in base units (bytes, seconds), a family at a time. What was
 * not measured has no sample. Names and texts are those of stats.def.
 */
void prom_print(FILE *out, const struct figures *figures);

/* Every figure on a line: kind, name, unit, name for Prometheus, text; separated by tabs. For the manual. */
void prom_print_list(FILE *out);

#endif
