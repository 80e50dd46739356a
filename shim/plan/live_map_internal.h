/*
 * live_map_internal.h: the map of what is alive (live_map.h), for its files. live_map.c calls live_map_nodes.c, which
 * has the ranges and how one is found.
 */
#ifndef SPILLWAY_LIVE_MAP_INTERNAL_H
#define SPILLWAY_LIVE_MAP_INTERNAL_H

#include "shim/plan/live_map.h"

#include <stddef.h>

#define UNIT_SHIFT 21
#define LEVELS     5
#define NONE       0u /* node 0 is not used */
#define ALIVE      UINT64_MAX

enum trust {
	UNKNOWN, /* nobody reports anything */
	REPORTED,
	DISTRUSTED,
};

struct node {
	uint64_t begin, end;
	uint64_t born;        /* number of the latest submission when it was born in dead memory; 0: not known */
	uint64_t died;        /* the same when it died; ALIVE: it has not */
	uint64_t own;         /* and of the latest one of the thread that reported the death */
	uint16_t thread : 15; /* that thread; 0: it is not known apart */
	bool touched : 1;     /* a set may have named it since its birth */
	uint16_t site;        /* of its birth, as reported; 0: none */
	uint32_t next;        /* in its bucket, or in the list of free nodes */
};

struct live_map {
	uint64_t bytes;
	uint32_t *bucket;       /* first node of each; NONE: none */
	uint8_t *trust;         /* of each unit: enum trust */
	uint64_t *bits[LEVELS]; /* of level 0: the bucket has a node; of the others: the word below is not 0 */
	struct node *nodes;
	uint32_t n_nodes, unused; /* nodes ever used; first free one */
	uint64_t n_reported;      /* units */
	uint64_t past;            /* those from here on were never reported */
	uint64_t alive, dead;     /* bytes */
	/*
	 * of each thread that reports: its latest submission that is known, and that it had made by its latest report
	 */
	uint64_t own[LIVE_MAP_THREADS + 1], reported_own[LIVE_MAP_THREADS + 1];
};

static inline size_t n_units(uint64_t bytes)
{
	return (size_t)(bytes >> UNIT_SHIFT) + 1;
}

/* Threads beyond the limit are not known apart. */
static inline bool live_is_thread(uint32_t thread)
{
	return thread && thread <= LIVE_MAP_THREADS;
}

/* A range that has just been born. */
static const struct node live_node_new = {.died = ALIVE};

/* Returns the last node that begins at or before this byte; NONE: none. */
uint32_t live_node_before(const struct live_map *map, uint64_t at);
/* Returns the node that follows this one; NONE: it is the last. */
uint32_t live_node_after(const struct live_map *map, uint32_t node);
/* Returns the first node that ends after this byte; NONE: none. */
uint32_t live_node_from(const struct live_map *map, uint64_t at);
/* Adds a range with these bounds and the state of `like`. Returns false if there is no memory. */
bool live_node_add(struct live_map *map, uint64_t begin, uint64_t end, struct node like);
/* Set the state of a range: it has died, as reported, or is alive. born: as in struct node. */
void live_node_died(struct live_map *map, uint32_t node, struct live_report report);
void live_node_alive(struct live_map *map, uint32_t node, uint64_t born);
/* Removes what any range has within these bounds. Returns false if there is no memory for what is left of one. */
bool live_node_cut_out(struct live_map *map, uint64_t begin, uint64_t end);

#endif
