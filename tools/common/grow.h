// SPDX-License-Identifier: Apache-2.0
/*
 * grow.h: growing arrays, and a table from numbers to numbers.
 */
#ifndef SPILLWAY_GROW_H
#define SPILLWAY_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Makes room for one element after the first n. array_p points to the pointer to the array; *room is the array's
 * length in elements of `each` bytes. Returns false if memory runs out, and then changes nothing.
 */
bool grow(void *array_p, size_t n, size_t *room, size_t each);

/* For comparisons of qsort(): -1, 0 or 1; `?:` between several of them lets the next one decide between equals. */
#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))
/* Such a comparison of uint64_t. */
int by_number(const void *a, const void *b);

/* Frees several blocks; NULL among them is accepted. */
#define FREE_ALL(...) free_all((void *const[]){__VA_ARGS__}, sizeof((void *const[]){__VA_ARGS__}) / sizeof(void *))
void free_all(void *const *blocks, size_t n);

/* ---- a table from numbers to numbers, from which nothing can be removed ---- */

/* {0} is an empty table. */
struct number_map {
	struct number_entry {
		uint64_t key, value;
		bool used;
	} * at;
	size_t n, room; /* room: 0 or a power of two */
};

/* Sets or replaces the value of the key. Returns false if memory runs out. */
bool number_map_set(struct number_map *map, uint64_t key, uint64_t value);
/* Returns false if the key is not in the table. */
bool number_map_get(const struct number_map *map, uint64_t key, uint64_t *ret_value);
void number_map_free(struct number_map *map);

#endif
