/*
 * grow.h: arrays that grow.
 */
#ifndef SPILLWAY_GROW_H
#define SPILLWAY_GROW_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Makes room for an element behind the first n. array_p points to the pointer to the array; *room is its length in elements
 * of that many bytes. Returns false without memory; all is then as it was.
 */
bool grow(void *array_p, size_t n, size_t *room, size_t each);

#endif
