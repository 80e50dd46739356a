/*
 * The map of what is alive: disjoint ranges, each alive or dead. A reported byte in no range is fresh.
 *
 * The usual birth takes the place of a range of the same bounds that has died, and the usual death ends just what was
 * born, so both only change a node's state.
 */
#include "shim/plan/live_map_internal.h"

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
	struct live_range range;

	*ret_revived = false;
	if (!live_map_find(map, at, ret))
		return false;
	range = *ret;
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

/* Returns whether nobody can have written to what was born there. */
static bool is_unwritten(const struct node *node, struct live_now now)
{
	if (!now.idle || !node->born)
		return false;
	return node->born == now.idle || (now.named_only && node->born >= now.named_only && !node->touched);
}

static bool is_alive(const struct live_map *map, const struct node *node, struct live_now now)
{
	if (node->died == ALIVE)
		return !is_unwritten(node, now);
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
	uint64_t reported = map->n_reported << UNIT_SHIFT;

	return (struct live_map_sums){reported, map->alive, map->dead, reported - map->alive - map->dead};
}

bool live_map_is_valid(const struct live_map *map)
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
