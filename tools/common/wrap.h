/*
 * wrap.h: text in lines of at most 100 columns.
 */
#ifndef SPILLWAY_WRAP_H
#define SPILLWAY_WRAP_H

/*
 * Prints words up to the edge, further lines indented by so much, and a line end. What stands before them on the line took
 * `column`. A long word may stick out.
 */
void wrap_print(const char *words, int column, int indent);

#endif
