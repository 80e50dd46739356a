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

/* For comparisons of qsort(): -1, 0 or 1; `?:` between several of them lets the next one decide between equals. */
#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* Frees several blocks; NULL among them is accepted. */
#define FREE_ALL(...) free_all((void *const[]){__VA_ARGS__}, sizeof((void *const[]){__VA_ARGS__}) / sizeof(void *))
void free_all(void *const *blocks, size_t n);

#endif
