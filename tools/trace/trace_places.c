/*
 * Finds the block that was at an address at a time. All addresses where a block begins or ends, sorted, cut the
 * address space into intervals: the leaves of a segment tree. Each block is listed at the few nodes that cover it
 * exactly. Blocks at one address that are alive at different times are listed in the order in which they were made, so
 * that a search by time finds the only possible one. A search visits 2 log n nodes, with a binary search in each.
 *
 * If a damaged file has overlapping blocks that are alive at once, the search returns one of them.
 */
#include "tools/trace/trace_internal.h"

#include <stdlib.h>

struct trace_places {
	uint64_t *edges; /* sorted, without duplicates */
	size_t n;
	uint32_t *lists;  /* block numbers */
	uint64_t *starts; /* of each node's list: node i has lists[starts[i]] ... lists[starts[i + 1] - 1] */
};

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t end_of(const struct trace_block *block)
{
	return block->bytes > UINT64_MAX - block->address ? UINT64_MAX : block->address + block->bytes;
}

/* Returns the number of edges at or below the address. */
static size_t places_rank(const struct trace_places *places, uint64_t address)
{
	size_t low = 0, high = places->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (places->edges[middle] <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool make_edges(struct trace_places *places, const struct trace_block *blocks, size_t n)
{
	size_t kept = 0;

	places->edges = malloc((2 * n + 1) * sizeof(*places->edges));
	if (!places->edges)
		return false;
	for (size_t i = 0; i < n; i++) {
		places->edges[2 * i] = blocks[i].address;
		places->edges[2 * i + 1] = end_of(&blocks[i]);
	}
	qsort(places->edges, 2 * n, sizeof(*places->edges), by_value);
	for (size_t i = 0; i < 2 * n; i++)
		if (!i || places->edges[i] != places->edges[i - 1])
			places->edges[kept++] = places->edges[i];
	places->n = kept;
	return true;
}

/* Visits the nodes that cover the block, and either counts it there or, if put, adds it to their lists. */
static void places_cover(struct trace_places *places, const struct trace_block *block, uint32_t number, bool put)
{
	size_t low = places_rank(places, block->address) - 1 + places->n,
	       high = places_rank(places, end_of(block)) - 1 + places->n;

	for (; low < high; low /= 2, high /= 2) {
		size_t nodes[2] = {low & 1 ? low++ : 0, high & 1 ? --high : 0};

		for (unsigned i = 0; i < 2; i++) {
			if (nodes[i] && put)
				places->lists[places->starts[nodes[i]]++] = number;
			else if (nodes[i])
				places->starts[nodes[i]]++;
		}
	}
}

/* Turns counts into the start of each list. After the lists are filled, each start is that of the next list. */
static uint64_t places_settle(struct trace_places *places)
{
	uint64_t sum = 0;

	for (size_t i = 0; i <= 2 * places->n; i++) {
		uint64_t count = places->starts[i];

		places->starts[i] = sum;
		sum += count;
	}
	return sum;
}

static void shift_back(struct trace_places *places)
{
	for (size_t i = 2 * places->n; i > 0; i--)
		places->starts[i] = places->starts[i - 1];
	places->starts[0] = 0;
}

struct trace_places *trace_places_new(const struct trace_block *blocks, size_t n)
{
	struct trace_places *places = calloc(1, sizeof(*places));

	if (!places || !make_edges(places, blocks, n))
		goto none;
	places->starts = calloc(2 * places->n + 1, sizeof(*places->starts));
	if (!places->starts)
		goto none;
	for (size_t i = 0; i < n; i++)
		places_cover(places, &blocks[i], (uint32_t)i, false);
	uint64_t sum = places_settle(places);
	places->lists = malloc((sum + 1) * sizeof(*places->lists));
	if (!places->lists)
		goto none;
	for (size_t i = 0; i < n; i++)
		places_cover(places, &blocks[i], (uint32_t)i, true);
	shift_back(places);
	return places;
none:
	trace_places_free(places);
	return NULL;
}

void trace_places_free(struct trace_places *places)
{
	if (!places)
		return;
	free(places->edges);
	free(places->starts);
	free(places->lists);
	free(places);
}

/* Returns the last block of a node that was made by `time`, if it was still alive. */
static uint32_t alive_in(const struct trace_places *places, const struct trace_block *blocks, size_t node,
			 uint64_t time)
{
	uint64_t first = places->starts[node], low = first, high = places->starts[node + 1];

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (blocks[places->lists[middle]].made <= time)
			low = middle + 1;
		else
			high = middle;
	}
	return low > first && blocks[places->lists[low - 1]].freed > time ? places->lists[low - 1] : TRACE_NONE;
}

uint32_t trace_places_at(const struct trace_places *places, const struct trace_block *blocks, uint64_t address,
			 uint64_t time)
{
	size_t below = places_rank(places, address);

	if (!below)
		return TRACE_NONE;
	for (size_t node = below - 1 + places->n; node; node /= 2) {
		uint32_t block = alive_in(places, blocks, node, time);

		if (block != TRACE_NONE)
			return block;
	}
	return TRACE_NONE;
}

uint64_t trace_places_next(const struct trace_places *places, uint64_t address)
{
	size_t below = places_rank(places, address);

	return below < places->n ? places->edges[below] : UINT64_MAX;
}
