/*
 * grow.h: growing arrays.
 */
#ifndef SPILLWAY_GROW_H
#define SPILLWAY_GROW_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Makes room for one element after the first n. array_p points to the pointer to the array; *room is the array's
 * length in elements of `each` bytes. Returns false if memory runs out, and then changes nothing.
 */
bool grow(void *array_p, size_t n, size_t *room, size_t each);

#endif
