// SPDX-License-Identifier: Apache-2.0
/* live_map_check.h: the map of what is alive, with all that is in it, and whether that is consistent. */
#ifndef SPILLWAY_TEST_LIVE_MAP_CHECK_H
#define SPILLWAY_TEST_LIVE_MAP_CHECK_H

#include "shim/plan/live_map.c"

/* Returns whether ranges are disjoint and reported, and all sums are right. */
static inline bool live_map_is_valid(const struct live_map *map)
{
	uint64_t alive = 0, dead = 0, last = 0, n_reported = 0;

	for (uint32_t i = live_node_from(map, 0); i; i = live_node_after(map, i)) {
		const struct node *node = &map->nodes[i];

		if (node->begin < last || node->end <= node->begin || !is_all_reported(map, node->begin, node->end))
			return false;
		last = node->end;
		*(node->died == ALIVE ? &alive : &dead) += node->end - node->begin;
	}
	for (size_t unit = 0; unit < n_units(map->bytes); unit++)
		n_reported += is_reported(map, unit);
	return alive == map->alive && dead == map->dead && n_reported == map->n_reported;
}

#endif
