/*
 * number_map.h: a hash table from numbers to numbers. Entries cannot be removed.
 */
#ifndef SPILLWAY_NUMBER_MAP_H
#define SPILLWAY_NUMBER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
