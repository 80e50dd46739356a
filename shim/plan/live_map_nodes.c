/*
 * The ranges of the map: a table of nodes, and how the one at a byte is found.
 *
 * Ranges are listed, in order, by the bucket of 64 KiB in which they begin. Three levels of bits say which buckets have
 * any, so that the range before a byte is found in a few steps, however long it is. Nodes come from a table that is
 * reserved address space, of which only what is used becomes memory: nothing is allocated by a birth.
 */
#include "shim/base/array.h"
#include "shim/plan/live_map_internal.h"

#include <stdlib.h>

#define BUCKET_SHIFT 16
#define NODES        (1u << 20)

/* ---- memory ---- */

static size_t n_buckets(uint64_t bytes)
{
	return (size_t)(bytes >> BUCKET_SHIFT) + 1;
}

/* Returns how many words the bits of this level take. */
static size_t n_words(uint64_t bytes, unsigned level)
{
	size_t n = n_buckets(bytes);

	for (unsigned i = 0; i <= level; i++)
		n = n / 64 + 1;
	return n;
}

struct live_map *live_map_new(uint64_t bytes)
{
	struct live_map *map = calloc(1, sizeof(*map));
	bool ok = map != NULL;

	if (!ok)
		return NULL;
	map->bytes = bytes;
	map->bucket = lazy_memory_new(n_buckets(bytes) * sizeof(map->bucket[0]));
	map->trust = lazy_memory_new(n_units(bytes));
	map->nodes = lazy_memory_new(NODES * sizeof(map->nodes[0]));
	map->n_nodes = 1;
	ok = map->bucket && map->trust && map->nodes;
	for (unsigned level = 0; level < LEVELS; level++) {
		map->bits[level] = lazy_memory_new(n_words(bytes, level) * sizeof(uint64_t));
		ok = ok && map->bits[level];
	}
	if (ok)
		return map;
	live_map_free(map);
	return NULL;
}

void live_map_free(struct live_map *map)
{
	if (!map)
		return;
	lazy_memory_free(map->bucket, n_buckets(map->bytes) * sizeof(map->bucket[0]));
	lazy_memory_free(map->trust, n_units(map->bytes));
	lazy_memory_free(map->nodes, NODES * sizeof(map->nodes[0]));
	for (unsigned level = 0; level < LEVELS; level++)
		lazy_memory_free(map->bits[level], n_words(map->bytes, level) * sizeof(uint64_t));
	free(map);
}

/* ---- which buckets have ranges ---- */

static void bits_set(struct live_map *map, size_t bucket)
{
	for (unsigned level = 0; level < LEVELS; level++, bucket /= 64) {
		uint64_t *word = &map->bits[level][bucket / 64], before = *word;

		*word |= UINT64_C(1) << bucket % 64;
		if (before)
			return;
	}
}

static void bits_clear(struct live_map *map, size_t bucket)
{
	for (unsigned level = 0; level < LEVELS; level++, bucket /= 64) {
		uint64_t *word = &map->bits[level][bucket / 64];

		*word &= ~(UINT64_C(1) << bucket % 64);
		if (*word)
			return;
	}
}

/* Goes down from a bit of this level to the last, or the first, bucket below it. */
static size_t bits_down(const struct live_map *map, unsigned level, size_t at, bool last)
{
	while (level--) {
		uint64_t word = map->bits[level][at];

		at = at * 64 + (size_t)(last ? 63 - __builtin_clzll(word) : __builtin_ctzll(word));
	}
	return at;
}

/* Returns the last bucket before this one that has ranges; SIZE_MAX: none. */
static size_t bucket_before(const struct live_map *map, size_t bucket)
{
	size_t at = bucket;

	for (unsigned level = 0; level < LEVELS; level++, at /= 64) {
		uint64_t word = map->bits[level][at / 64] & ((UINT64_C(1) << at % 64) - 1);

		if (word)
			return bits_down(map, level, at / 64 * 64 + (size_t)(63 - __builtin_clzll(word)), true);
	}
	return SIZE_MAX;
}

/* Returns the first bucket after this one that has ranges; SIZE_MAX: none. */
static size_t bucket_after(const struct live_map *map, size_t bucket)
{
	size_t at = bucket;

	for (unsigned level = 0; level < LEVELS; level++, at /= 64) {
		uint64_t word = at % 64 == 63 ? 0 : map->bits[level][at / 64] >> (at % 64 + 1) << (at % 64 + 1);

		if (word)
			return bits_down(map, level, at / 64 * 64 + (size_t)__builtin_ctzll(word), false);
	}
	return SIZE_MAX;
}

/* ---- nodes ---- */

static size_t bucket_of(uint64_t at)
{
	return (size_t)(at >> BUCKET_SHIFT);
}

uint32_t live_node_before(const struct live_map *map, uint64_t at)
{
	uint32_t found = NONE;
	size_t bucket = bucket_of(at);

	for (uint32_t i = map->bucket[bucket]; i && map->nodes[i].begin <= at; i = map->nodes[i].next)
		found = i;
	if (found)
		return found;
	bucket = bucket_before(map, bucket);
	for (uint32_t i = bucket == SIZE_MAX ? NONE : map->bucket[bucket]; i; i = map->nodes[i].next)
		found = i;
	return found;
}

uint32_t live_node_after(const struct live_map *map, uint32_t node)
{
	if (map->nodes[node].next)
		return map->nodes[node].next;
	size_t bucket = bucket_after(map, bucket_of(map->nodes[node].begin));
	return bucket == SIZE_MAX ? NONE : map->bucket[bucket];
}

uint32_t live_node_from(const struct live_map *map, uint64_t at)
{
	uint32_t node = live_node_before(map, at);

	if (node && map->nodes[node].end > at)
		return node;
	if (node)
		return live_node_after(map, node);
	if (map->bucket[bucket_of(at)]) /* its nodes begin after the byte */
		return map->bucket[bucket_of(at)];
	size_t bucket = bucket_after(map, bucket_of(at));
	return bucket == SIZE_MAX ? NONE : map->bucket[bucket];
}

/* Adds (sign 1) or takes away (sign -1) the bytes of a range to the sum that its state belongs to. */
static void count_bytes(struct live_map *map, const struct node *node, int sign)
{
	uint64_t *sum = node->died == ALIVE ? &map->alive : &map->dead;

	*sum += (uint64_t)sign * (node->end - node->begin);
}

bool live_node_add(struct live_map *map, uint64_t begin, uint64_t end, struct node like)
{
	uint32_t node = map->unused;

	if (node)
		map->unused = map->nodes[node].next;
	else if (map->n_nodes < NODES)
		node = map->n_nodes++;
	else
		return false;
	uint32_t *link = &map->bucket[bucket_of(begin)];
	if (!*link)
		bits_set(map, bucket_of(begin));
	while (*link && map->nodes[*link].begin < begin)
		link = &map->nodes[*link].next;
	like.begin = begin;
	like.end = end;
	like.next = *link;
	map->nodes[node] = like;
	*link = node;
	count_bytes(map, &map->nodes[node], 1);
	return true;
}

static void node_remove(struct live_map *map, uint32_t node)
{
	size_t bucket = bucket_of(map->nodes[node].begin);
	uint32_t *link = &map->bucket[bucket];

	count_bytes(map, &map->nodes[node], -1);
	while (*link != node)
		link = &map->nodes[*link].next;
	*link = map->nodes[node].next;
	if (!map->bucket[bucket])
		bits_clear(map, bucket);
	map->nodes[node].next = map->unused;
	map->unused = node;
}

void live_node_died(struct live_map *map, uint32_t node, struct live_report report)
{
	count_bytes(map, &map->nodes[node], -1);
	map->nodes[node].died = report.number;
	map->nodes[node].own = report.own;
	map->nodes[node].thread = live_is_thread(report.thread) ? report.thread & LIVE_MAP_THREADS : 0;
	count_bytes(map, &map->nodes[node], 1);
}

void live_node_alive(struct live_map *map, uint32_t node, uint64_t born)
{
	live_node_died(map, node, (struct live_report){.number = ALIVE});
	map->nodes[node].born = born;
	map->nodes[node].touched = false;
}

bool live_node_cut_out(struct live_map *map, uint64_t begin, uint64_t end)
{
	uint32_t i;

	while ((i = live_node_from(map, begin)) && map->nodes[i].begin < end) {
		struct node cut = map->nodes[i];

		node_remove(map, i);
		if ((cut.begin < begin && !live_node_add(map, cut.begin, begin, cut)) ||
		    (cut.end > end && !live_node_add(map, end, cut.end, cut)))
			return false;
	}
	return true;
}
