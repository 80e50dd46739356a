/*
 * By births that the reader has seen, to the byte. Where everything was declared alive because submissions had not been
 * followed before (live_map_restart), the map has ranges without a site; there the latest birth of each unit counts.
 */
#include "shim/mover/move_lines.h"
#include "shim/base/call_site.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/mover_internal.h"

enum { SITES_MOST = 8 }; /* of a unit */

/* By the number of the line's site. */
struct by_line {
	struct live_site lines[MOVE_LINES];
	unsigned n;
};

static void line_add(struct by_line *by_line, uint16_t site, uint64_t bytes)
{
	unsigned i = 0;

	while (i < by_line->n && by_line->lines[i].site != site)
		i++;
	if (i == MOVE_LINES)
		return;
	if (i == by_line->n)
		by_line->lines[by_line->n++] = (struct live_site){.site = site};
	by_line->lines[i].bytes += bytes;
}

static uint64_t bytes_alive(const struct live_map *map, uint64_t begin, uint64_t end)
{
	static const struct live_now in_the_end = {.done = UINT64_MAX, .unfinished = true};
	struct live_range parts[SITES_MOST];
	unsigned n = live_map_alive(map, begin, end, in_the_end, 0, parts, SITES_MOST);
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++)
		bytes += parts[i].end - parts[i].begin;
	return bytes;
}

/* The map is not followed (contents: all), but births are reported. */
static void unit_add_latest(const struct engine *engine, uint64_t address, struct by_line *by_line)
{
	unsigned latest = birth_lines_at(address);

	if (latest && lifetimes_is_reported(engine->arena->lifetimes, address, HEAP_UNIT))
		line_add(by_line, (uint16_t)latest, HEAP_UNIT);
}

static void unit_add(const struct engine *engine, const struct live_map *map, uint64_t begin, struct by_line *by_line)
{
	uint64_t alive, named = 0, end = begin + HEAP_UNIT;
	struct live_site sites[SITES_MOST];
	unsigned n, latest;

	if (!live_map_is_reported(map, begin))
		return;
	n = live_map_sites(map, begin, end, sites, SITES_MOST);
	for (unsigned i = 0; i < n; i++) {
		line_add(by_line, sites[i].site, sites[i].bytes);
		named += sites[i].bytes;
	}
	alive = named < HEAP_UNIT ? bytes_alive(map, begin, end) : 0;
	latest = alive > named ? birth_lines_at(engine->arena->base + begin) : 0;
	if (latest && lifetimes_is_reported(engine->arena->lifetimes, engine->arena->base + begin, HEAP_UNIT))
		line_add(by_line, (uint16_t)latest, alive - named);
}

unsigned move_lines(const struct engine *engine, uint32_t piece, uint32_t units, unsigned site,
		    struct stats_part ret_parts[MOVE_LINES])
{
	struct by_line by_line = {.n = 0};

	if (!engine->arena->lifetimes)
		return 0;
	for (uint32_t unit = piece; unit < piece + units; unit++)
		if (engine->lifetimes)
			unit_add(engine, lifetimes_map(engine->lifetimes), unit * HEAP_UNIT, &by_line);
		else
			unit_add_latest(engine, arena_address(engine->arena, unit), &by_line);
	for (unsigned i = 0; i < by_line.n; i++)
		ret_parts[i] = (struct stats_part){
		    stats_site_of_tensors(site, call_site_numbered(by_line.lines[i].site)), by_line.lines[i].bytes};
	return by_line.n;
}
