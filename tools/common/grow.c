// SPDX-License-Identifier: Apache-2.0
/*
 * Growing arrays.
 */
#include "tools/common/grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int by_number(const void *a, const void *b)
{
	return ORDER(*(const uint64_t *)a, *(const uint64_t *)b);
}

bool grow(void *array_p, size_t n, size_t *room, size_t each)
{
	size_t want = *room ? *room : 64;
	void *array;

	if (n < *room)
		return true;
	while (want <= n)
		want *= 2;
	memcpy(&array, array_p, sizeof(array));
	array = want > SIZE_MAX / each ? NULL : realloc(array, want * each);
	if (!array)
		return false;
	memcpy(array_p, &array, sizeof(array));
	*room = want;
	return true;
}

void free_all(void *const *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(blocks[i]);
}

/* ---- a hash table from numbers to numbers, with open addressing ---- */

static struct number_entry *number_map_find(const struct number_map *map, uint64_t key)
{
	size_t i = (size_t)((key ^ key >> 32) * UINT64_C(0x9fb21c651e98df25) >> 20) & (map->room - 1);

	while (map->at[i].used && map->at[i].key != key)
		i = (i + 1) & (map->room - 1);
	return &map->at[i];
}

static bool double_room(struct number_map *map)
{
	struct number_map next = {.n = map->n, .room = map->room ? 2 * map->room : 1024};

	next.at = calloc(next.room, sizeof(*next.at));
	if (!next.at)
		return false;
	for (size_t i = 0; i < map->room; i++)
		if (map->at[i].used)
			*number_map_find(&next, map->at[i].key) = map->at[i];
	free(map->at);
	*map = next;
	return true;
}

bool number_map_set(struct number_map *map, uint64_t key, uint64_t value)
{
	if (2 * map->n >= map->room && !double_room(map))
		return false;
	struct number_entry *entry = number_map_find(map, key);
	map->n += !entry->used;
	*entry = (struct number_entry){key, value, true};
	return true;
}

bool number_map_get(const struct number_map *map, uint64_t key, uint64_t *ret_value)
{
	const struct number_entry *entry = map->room ? number_map_find(map, key) : NULL;

	if (!entry || !entry->used)
		return false;
	*ret_value = entry->value;
	return true;
}

void number_map_free(struct number_map *map)
{
	free(map->at);
	*map = (struct number_map){0};
}
