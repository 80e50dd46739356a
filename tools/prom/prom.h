// SPDX-License-Identifier: Apache-2.0
/*
 * prom.h: writes figures in the text format of Prometheus; prom.c is the command.
 */
#ifndef TOOLS_PROM_H
#define TOOLS_PROM_H

#include "tools/common/figures.h"

#include <stdio.h>

/*
 * Prints all figures of the running processes in base units (bytes, seconds), one family after another. A value that
 * was not measured has no sample. Names and texts are those of stats.def.
 */
void prom_print(FILE *out, const struct figures *figures);

/* Prints one line per figure for the manual: kind, name, unit, name for Prometheus and text, separated by tabs. */
void prom_print_list(FILE *out);

#endif
