// SPDX-License-Identifier: Apache-2.0
/* The map of what is alive. */
#include "shim/plan/live_map.h"
#include "shim/base/array.h"

#include <stddef.h>
#include <stdlib.h>

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
	uint64_t born;        /* number of the latest submission when it was born in empty memory; 0: not known */
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

static size_t n_units(uint64_t bytes)
{
	return (size_t)(bytes >> UNIT_SHIFT) + 1;
}

/* Threads beyond the limit are not known apart. */
static bool live_is_thread(uint32_t thread)
{
	return thread && thread <= LIVE_MAP_THREADS;
}

/* A range that has just been born. */
static const struct node live_node_new = {.died = ALIVE};

/* ---- nodes ---- */

/*
 * The ranges of the map: a table of nodes, and how the one at a byte is found.
 *
 * Ranges are listed, in order, by the bucket of 64 KiB in which they begin. Five levels of bits say which buckets have
 * any, so that the range before a byte is found in a few steps, however long it is. Nodes come from a table that is
 * reserved address space, of which only what is used becomes memory: nothing is allocated by a birth.
 */

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

/* any: whether the bucket has ranges now. */
static void bits_set(struct live_map *map, size_t bucket, bool any)
{
	for (unsigned level = 0; level < LEVELS; level++, bucket /= 64) {
		uint64_t *word = &map->bits[level][bucket / 64], before = *word, bit = UINT64_C(1) << bucket % 64;

		*word = any ? before | bit : before & ~bit;
		if (any ? before : *word)
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

/* Returns the first node of the buckets after this one; NONE: none. */
static uint32_t node_past(const struct live_map *map, size_t bucket)
{
	size_t at = bucket;

	for (unsigned level = 0; level < LEVELS; level++, at /= 64) {
		uint64_t word = at % 64 == 63 ? 0 : map->bits[level][at / 64] >> (at % 64 + 1) << (at % 64 + 1);

		if (word)
			return map->bucket[bits_down(map, level, at / 64 * 64 + (size_t)__builtin_ctzll(word), false)];
	}
	return NONE;
}

/* ---- nodes ---- */

static size_t bucket_of(uint64_t at)
{
	return (size_t)(at >> BUCKET_SHIFT);
}

/* Returns the last node that begins at or before this byte; NONE: none. */
static uint32_t live_node_before(const struct live_map *map, uint64_t at)
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

/* Returns the node that follows this one; NONE: it is the last. */
static uint32_t live_node_after(const struct live_map *map, uint32_t node)
{
	if (map->nodes[node].next)
		return map->nodes[node].next;
	return node_past(map, bucket_of(map->nodes[node].begin));
}

/* Returns the first node that ends after this byte; NONE: none. */
static uint32_t live_node_from(const struct live_map *map, uint64_t at)
{
	uint32_t node = live_node_before(map, at);

	if (node && map->nodes[node].end > at)
		return node;
	if (node)
		return live_node_after(map, node);
	if (map->bucket[bucket_of(at)]) /* its nodes begin after the byte */
		return map->bucket[bucket_of(at)];
	return node_past(map, bucket_of(at));
}

/* Adds (sign 1) or takes away (sign -1) the bytes of a range to the sum that its state belongs to. */
static void count_bytes(struct live_map *map, const struct node *node, int sign)
{
	uint64_t *sum = node->died == ALIVE ? &map->alive : &map->dead;

	*sum += (uint64_t)sign * (node->end - node->begin);
}

/* Adds a range with these bounds and the state of `like`. Returns false if there is no memory. */
static bool live_node_add(struct live_map *map, uint64_t begin, uint64_t end, struct node like)
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
		bits_set(map, bucket_of(begin), true);
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
		bits_set(map, bucket, false);
	map->nodes[node].next = map->unused;
	map->unused = node;
}

/* The range has died, as reported. */
static void live_node_died(struct live_map *map, uint32_t node, struct live_report report)
{
	count_bytes(map, &map->nodes[node], -1);
	map->nodes[node].died = report.number;
	map->nodes[node].own = report.own;
	map->nodes[node].thread = live_is_thread(report.thread) ? report.thread & LIVE_MAP_THREADS : 0;
	count_bytes(map, &map->nodes[node], 1);
}

/* The range is alive. born: as in struct node. */
static void live_node_alive(struct live_map *map, uint32_t node, uint64_t born)
{
	live_node_died(map, node, (struct live_report){.number = ALIVE});
	map->nodes[node].born = born;
	map->nodes[node].touched = false;
}

/* Removes what any range has within these bounds. Returns false if there is no memory for what is left of one. */
static bool live_node_cut_out(struct live_map *map, uint64_t begin, uint64_t end)
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

/* ---- ranges ---- */

/*
 * The map of what is alive: disjoint ranges, each alive or dead. A reported byte in no range is fresh.
 *
 * The usual birth takes the place of a range of the same bounds that has died, and the usual death ends just what was
 * born, so both only change a node's state.
 */

/* ---- reported blocks ---- */

static bool is_reported(const struct live_map *map, uint64_t unit)
{
	return map->trust[unit] == REPORTED;
}

bool live_map_is_reported(const struct live_map *map, uint64_t at)
{
	return at < map->bytes && is_reported(map, at >> UNIT_SHIFT);
}

static bool is_all_reported(const struct live_map *map, uint64_t begin, uint64_t end)
{
	if (begin >= end || end > map->bytes)
		return false;
	for (uint64_t unit = begin >> UNIT_SHIFT; unit <= (end - 1) >> UNIT_SHIFT; unit++)
		if (!is_reported(map, unit))
			return false;
	return true;
}

void live_map_report(struct live_map *map, uint64_t begin, uint64_t end)
{
	for (uint64_t unit = begin >> UNIT_SHIFT; unit < end >> UNIT_SHIFT && end <= map->bytes; unit++)
		if (map->trust[unit] == UNKNOWN) {
			map->trust[unit] = REPORTED;
			map->n_reported++;
			map->past = unit < map->past ? map->past : unit + 1;
		}
}

static void unreport(struct live_map *map, uint64_t begin, uint64_t end, enum trust trust)
{
	uint64_t first = begin >> UNIT_SHIFT, last = (end < map->bytes ? end : map->bytes) >> UNIT_SHIFT;
	bool any = false;

	for (uint64_t unit = first; unit < last; unit++) {
		any |= is_reported(map, unit);
		map->n_reported -= is_reported(map, unit);
		map->trust[unit] = (uint8_t)trust;
	}
	/* Without memory for what is left of a range that reaches out of these bounds, nothing is known. */
	if (any && !live_node_cut_out(map, first << UNIT_SHIFT, last << UNIT_SHIFT))
		live_map_distrust(map, 0, map->bytes);
}

void live_map_distrust(struct live_map *map, uint64_t begin, uint64_t end)
{
	unreport(map, begin, end, DISTRUSTED);
}

void live_map_forget(struct live_map *map, uint64_t begin, uint64_t end)
{
	unreport(map, begin, end, UNKNOWN);
}

/* Returns the unit up to which all are reported from this one on, which is; but at most `last`. */
static uint64_t reported_to(const struct live_map *map, uint64_t unit, uint64_t last)
{
	while (unit < last && is_reported(map, unit))
		unit++;
	return unit;
}

/* Distrusts those of these units that are reported. */
static void distrust_part(struct live_map *map, uint64_t first, uint64_t last)
{
	uint64_t past = last < map->past ? last : map->past, end;

	for (uint64_t unit = first; map->n_reported && unit < past; unit = end + 1) {
		end = reported_to(map, unit, past);
		if (end > unit)
			live_map_distrust(map, unit << UNIT_SHIFT, end << UNIT_SHIFT);
	}
}

void live_map_distrust_reported(struct live_map *map)
{
	distrust_part(map, 0, map->past);
}

void live_map_restart(struct live_map *map)
{
	uint64_t last = map->past, end;

	for (uint64_t unit = 0; map->n_reported && unit < last; unit = end + 1) {
		end = reported_to(map, unit, last);
		if (end > unit && (!live_node_cut_out(map, unit << UNIT_SHIFT, end << UNIT_SHIFT) ||
				   !live_node_add(map, unit << UNIT_SHIFT, end << UNIT_SHIFT, live_node_new)))
			live_map_distrust_reported(map);
	}
}

/* ---- births, deaths and names ---- */

void live_map_heard(struct live_map *map, struct live_report report)
{
	if (live_is_thread(report.thread) && report.own > map->own[report.thread])
		map->own[report.thread] = report.own;
}

/* Reports are applied in the order in which they were made. */
static void note_report(struct live_map *map, struct live_report report)
{
	live_map_heard(map, report);
	if (live_is_thread(report.thread) && report.own > map->reported_own[report.thread])
		map->reported_own[report.thread] = report.own;
}

/*
 * Returns whether these bytes held nothing when a birth was reported that is being applied: none is alive, and of each
 * that died, a report says that its thread had submitted something since. What the thread is known to have submitted
 * by other means (live_map_heard) may come after the birth.
 */
static bool is_born_empty(const struct live_map *map, uint64_t begin, uint64_t end)
{
	for (uint32_t i = live_node_from(map, begin); i && map->nodes[i].begin < end; i = live_node_after(map, i)) {
		const struct node *node = &map->nodes[i];

		if (node->died == ALIVE || !live_is_thread(node->thread) ||
		    map->reported_own[node->thread] <= node->own)
			return false;
	}
	return true;
}

bool live_map_birth(struct live_map *map, uint64_t begin, uint64_t end, struct live_report report)
{
	uint32_t node;
	struct node born = live_node_new;

	born.site = report.site;
	note_report(map, report);
	if (!is_all_reported(map, begin, end)) {
		if (begin < end)
			distrust_part(map, begin >> UNIT_SHIFT, (end + LIVE_MAP_UNIT - 1) >> UNIT_SHIFT);
		return true;
	}
	/* Otherwise the contents may be meant to survive. */
	if (report.empty || is_born_empty(map, begin, end))
		born.born = report.number;
	node = live_node_before(map, begin);
	if (node && map->nodes[node].begin == begin && map->nodes[node].end == end) {
		live_node_alive(map, node, born.born);
		map->nodes[node].site = born.site;
		return true;
	}
	if (live_node_cut_out(map, begin, end) && live_node_add(map, begin, end, born))
		return true;
	live_map_distrust(map, 0, map->bytes);
	return false;
}

void live_map_death(struct live_map *map, uint64_t begin, uint64_t end, struct live_report report)
{
	uint32_t node = is_all_reported(map, begin, end) ? live_node_before(map, begin) : NONE;

	note_report(map, report);
	if (node && map->nodes[node].begin == begin && map->nodes[node].end == end && report.number != ALIVE)
		live_node_died(map, node, report);
}

bool live_map_find(const struct live_map *map, uint64_t at, struct live_range *ret)
{
	if (!live_map_is_reported(map, at))
		return false;
	uint32_t node = live_node_before(map, at), next = NONE;

	if (node && map->nodes[node].end > at) {
		*ret = (struct live_range){map->nodes[node].begin, map->nodes[node].end};
		return true;
	}
	/* Fresh: as far as nothing was born, and the units around are reported. */
	next = node ? live_node_after(map, node) : live_node_from(map, at);
	uint64_t begin = node ? map->nodes[node].end : 0, end = next ? map->nodes[next].begin : map->bytes;
	uint64_t from = at >> UNIT_SHIFT, to = from + 1;
	while (from << UNIT_SHIFT > begin && is_reported(map, from - 1))
		from--;
	while (to << UNIT_SHIFT < end && is_reported(map, to))
		to++;
	*ret = (struct live_range){from << UNIT_SHIFT > begin ? from << UNIT_SHIFT : begin,
				   to << UNIT_SHIFT < end ? to << UNIT_SHIFT : end};
	return true;
}

/* Brings a range that was found to life. Returns false if it is alive. */
static bool revive(struct live_map *map, const struct live_range *range)
{
	uint32_t node = live_node_before(map, range->begin);
	bool is_node = node && map->nodes[node].end > range->begin;

	if (is_node && map->nodes[node].died == ALIVE)
		return false;
	if (is_node)
		live_node_alive(map, node, 0);
	else if (!live_node_add(map, range->begin, range->end, live_node_new))
		live_map_distrust(map, 0, map->bytes);
	return true;
}

bool live_map_name(struct live_map *map, uint64_t at, struct live_range *ret, bool *ret_revived)
{
	*ret_revived = false;
	if (!live_map_find(map, at, ret))
		return false;
	struct live_range range = *ret;
	while (revive(map, &range)) {
		*ret_revived = true;
		ret->end = range.end;
		if (!live_map_find(map, range.end, &range))
			break;
	}
	return true;
}

void live_map_touch(struct live_map *map, uint64_t at)
{
	uint32_t node = live_node_before(map, at);

	if (node && map->nodes[node].end > at)
		map->nodes[node].touched = true;
}

/* ---- questions ---- */

static bool is_alive(const struct live_map *map, const struct node *node, struct live_now now)
{
	/* Nobody can have written to what was born since the device was idle, or since only what is named is used. */
	bool unwritten = now.idle && node->born &&
			 (node->born == now.idle || (now.named_only && node->born >= now.named_only && !node->touched));

	if (node->died == ALIVE)
		return !unwritten;
	if (node->died > now.done)
		return true;
	return !now.unfinished && (!live_is_thread(node->thread) || map->own[node->thread] <= node->own);
}

typedef void part_function(void *argument, uint64_t begin, uint64_t end);

/* Calls `part` for each part of the range that is alive, in order; parts that touch are not joined. */
static void each_alive(const struct live_map *map, uint64_t begin, uint64_t end, struct live_now now,
		       part_function *part, void *argument)
{
	uint32_t node = live_node_from(map, begin);

	/* Unit by unit: those that are not reported are alive, and have no ranges. */
	for (uint64_t at = begin, next; at < end; at = next) {
		next = ((at >> UNIT_SHIFT) + 1) << UNIT_SHIFT;
		next = next < end ? next : end;
		if (!live_map_is_reported(map, at)) {
			part(argument, at, next);
			continue;
		}
		for (; node && map->nodes[node].begin < next; node = live_node_after(map, node)) {
			const struct node *it = &map->nodes[node];
			uint64_t from = it->begin > at ? it->begin : at, to = it->end < next ? it->end : next;

			if (from < to && is_alive(map, it, now))
				part(argument, from, to);
			if (it->end > next)
				break;
		}
	}
}

struct parts {
	struct live_range *at;
	unsigned n, most;
	uint64_t gap;
};

/* Adds a part, or joins it to the last one. */
static void add_part(void *argument, uint64_t begin, uint64_t end)
{
	struct parts *parts = argument;
	struct live_range *last = parts->n ? &parts->at[parts->n - 1] : NULL;

	if (last && (begin <= last->end + parts->gap || parts->n == parts->most))
		last->end = end > last->end ? end : last->end;
	else
		parts->at[parts->n++] = (struct live_range){begin, end};
}

unsigned live_map_alive(const struct live_map *map, uint64_t begin, uint64_t end, struct live_now now, uint64_t gap,
			struct live_range *ret, unsigned most)
{
	struct parts parts = {.at = ret, .most = most, .gap = gap};

	each_alive(map, begin, end, now, add_part, &parts);
	return parts.n;
}

static void add_bytes(void *argument, uint64_t begin, uint64_t end)
{
	*(uint64_t *)argument += end - begin;
}

static uint64_t alive_bytes(const struct live_map *map, uint64_t begin, uint64_t end, struct live_now now)
{
	uint64_t bytes = 0;

	each_alive(map, begin, end, now, add_bytes, &bytes);
	return bytes;
}

unsigned live_map_dead_share(const struct live_map *map, uint64_t begin, uint64_t end, struct live_now now,
			     unsigned parts)
{
	uint64_t bytes = end - begin;

	return (unsigned)((bytes - alive_bytes(map, begin, end, now)) * parts / bytes);
}

unsigned live_map_sites(const struct live_map *map, uint64_t begin, uint64_t end, struct live_site *ret, unsigned most)
{
	unsigned n = 0;

	for (uint32_t i = live_node_from(map, begin); i && map->nodes[i].begin < end; i = live_node_after(map, i)) {
		const struct node *node = &map->nodes[i];
		uint64_t from = node->begin > begin ? node->begin : begin, to = node->end < end ? node->end : end;
		unsigned at = 0;

		if (node->died != ALIVE || !node->site)
			continue;
		while (at < n && ret[at].site != node->site)
			at++;
		if (at == most)
			continue;
		if (at == n)
			ret[n++] = (struct live_site){.site = node->site};
		ret[at].bytes += to - from;
	}
	return n;
}

bool live_map_is_dead(const struct live_map *map, uint64_t begin, uint64_t end, struct live_now now)
{
	return alive_bytes(map, begin, end, now) == 0;
}

struct live_map_sums live_map_sums(const struct live_map *map)
{
	return (struct live_map_sums){map->n_reported << UNIT_SHIFT, map->alive, map->dead};
}
