/*
 * number_map.h: a hash table from numbers to numbers. Nothing is ever taken out of it.
 */
#ifndef SPILLWAY_NUMBER_MAP_H
#define SPILLWAY_NUMBER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* {0} is an empty one. */
struct number_map {
	struct number_entry {
		uint64_t key, value;
		bool used;
	} * at;
	size_t n, room; /* room: 0 or a power of two */
};

/* Replaces the value of the key if it has one. Returns false without memory. */
bool number_map_set(struct number_map *map, uint64_t key, uint64_t value);
/* Returns false if the key is not there. */
bool number_map_get(const struct number_map *map, uint64_t key, uint64_t *ret_value);
void number_map_free(struct number_map *map);

#endif
