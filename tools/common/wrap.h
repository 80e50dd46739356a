/*
 * wrap.h: prints text in lines of at most 100 columns.
 */
#ifndef SPILLWAY_WRAP_H
#define SPILLWAY_WRAP_H

/*
 * Prints the words, wrapped at the edge, and a line end. column: columns that the text before them on the line takes.
 * Further lines are indented by `indent`. A long word may exceed the edge.
 */
void wrap_print(const char *words, int column, int indent);

#endif
