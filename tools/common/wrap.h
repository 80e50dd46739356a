// SPDX-License-Identifier: Apache-2.0
/*
 * wrap.h: prints text in lines that are as wide as the terminal, but at least 80 and at most 200 columns, and 80 if
 * standard output is no terminal.
 */
#ifndef SPILLWAY_WRAP_H
#define SPILLWAY_WRAP_H

#include <stddef.h>

/* Returns the columns of a line: 80 to 200. */
int wrap_width(void);

/* Returns the columns that this UTF-8 text takes, or its first bytes; each character counts as one. */
int wrap_columns(const char *text, size_t bytes);

/*
 * Prints the words, wrapped at the edge, and a line end. column: columns that the text before them on the line takes.
 * Further lines are indented by `indent`. No line is wider than wrap_width(): a longer word is cut.
 */
void wrap_print(const char *words, int column, int indent);
/* The same of a line that begins at that column, at most 1023 bytes of it. */
__attribute__((format(printf, 3, 4))) void wrap_line(int column, int indent, const char *format, ...);

#endif
