/*
 * The map of addresses over time. Addresses that had blocks are joined without the holes between them and cut into
 * rows. A row counts its allocated bytes and records, page by page, what is on the host. Whenever one of the two
 * changes, the state until then is added to the cells of that time.
 *
 * A page is the smallest piece that the heap moves, or larger if there would be too many pages. Small blocks that
 * share a page are on the host or on the device together, as in the heap.
 */
#include "tools/digest/digest_part.h"

#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_LEAST (UINT64_C(2) << 20)
#define PAGES_MOST (1u << 18)
#define ADDRESSES  (UINT64_C(1) << 57) /* of processors and GPUs; higher addresses are invalid */

struct range {
	uint64_t from, to; /* addresses */
	uint64_t at;       /* its start in the joined addresses */
};

struct map {
	struct digest *digest;
	struct digest_map *result;
	struct range *ranges;
	size_t n_ranges;
	uint64_t total, page, n_pages, pages_a_row;
	uint8_t *on_host;                              /* by page */
	uint64_t used[DIGEST_ROWS], host[DIGEST_ROWS]; /* bytes at present */
	uint64_t since[DIGEST_ROWS];
	double *cell_used, *cell_host; /* bytes x ns */
	unsigned device;
};

static int by_from(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return (x->from > y->from) - (x->from < y->from);
}

/* Returns whether the block is on this device and at a valid address. */
static bool has_place(const struct map *map, const struct trace_block *block)
{
	return block->device == map->device && block->bytes && block->bytes < ADDRESSES && block->address < ADDRESSES;
}

static bool find_ranges(struct map *map)
{
	const struct trace *trace = map->digest->trace;
	size_t n = 0;

	map->ranges = digest_zeros(trace->n_blocks, sizeof(*map->ranges));
	if (!map->ranges)
		return false;
	for (size_t i = 0; i < trace->n_blocks; i++) {
		const struct trace_block *block = &trace->blocks[i];

		if (has_place(map, block))
			map->ranges[n++] = (struct range){.from = block->address / PAGE_LEAST * PAGE_LEAST,
							  .to = (block->address + block->bytes + PAGE_LEAST - 1) /
								PAGE_LEAST * PAGE_LEAST};
	}
	qsort(map->ranges, n, sizeof(*map->ranges), by_from);
	for (size_t i = 0; i < n; i++) {
		struct range *last = map->n_ranges ? &map->ranges[map->n_ranges - 1] : NULL;

		if (last && map->ranges[i].from <= last->to)
			last->to = map->ranges[i].to > last->to ? map->ranges[i].to : last->to;
		else
			map->ranges[map->n_ranges++] = map->ranges[i];
	}
	for (size_t i = 0; i < map->n_ranges; i++) {
		map->ranges[i].at = map->total;
		map->total += map->ranges[i].to - map->ranges[i].from;
	}
	return true;
}

/*
 * Maps an address to the joined addresses, and finds where the range that begins there must end. Returns false if no
 * block was ever there.
 */
static bool place_of(const struct map *map, uint64_t address, uint64_t *ret_place, uint64_t *ret_end)
{
	size_t low = 0, high = map->n_ranges;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (map->ranges[middle].to <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == map->n_ranges || address < map->ranges[low].from)
		return false;
	*ret_place = map->ranges[low].at + (address - map->ranges[low].from);
	*ret_end = map->ranges[low].at + (map->ranges[low].to - map->ranges[low].from);
	return true;
}

static void map_flush(struct map *map, uint32_t row, uint64_t time)
{
	struct digest_map *result = map->result;
	uint64_t host = map->host[row] < map->used[row] ? map->host[row] : map->used[row];
	uint64_t from = map->since[row];

	map->since[row] = time;
	if (!map->used[row])
		return;
	while (from < time) {
		uint64_t column = from / result->column_ns, to = (column + 1) * result->column_ns;
		double ns = (double)((to < time ? to : time) - from);

		if (column >= result->columns)
			return;
		map->cell_used[row * result->columns + column] += ns * (double)map->used[row];
		map->cell_host[row * result->columns + column] += ns * (double)host;
		from = to;
	}
}

/* Marks the joined addresses from place to end as used, or not. */
static void map_use(struct map *map, uint64_t place, uint64_t end, uint64_t time, bool used)
{
	uint64_t row_bytes = map->result->row_bytes;

	for (uint32_t row = (uint32_t)(place / row_bytes); row < map->result->rows && row * row_bytes < end; row++) {
		uint64_t from = row * row_bytes, to = from + row_bytes;
		uint64_t bytes = (end < to ? end : to) - (place > from ? place : from);

		map_flush(map, row, time);
		/* If blocks overlap, which occurs only in a damaged file, fewer bytes may be left than are removed. */
		if (used)
			map->used[row] += bytes;
		else
			map->used[row] -= bytes < map->used[row] ? bytes : map->used[row];
	}
}

static void map_lay(struct map *map, uint64_t place, uint64_t end, uint64_t time, bool to_host)
{
	for (uint64_t page = place / map->page; page < map->n_pages && page * map->page < end; page++) {
		uint32_t row = (uint32_t)(page / map->pages_a_row);

		if (map->on_host[page] == to_host)
			continue;
		map_flush(map, row, time);
		map->on_host[page] = to_host;
		map->host[row] += to_host ? map->page : -map->page;
	}
}

static void block_made(struct map *map, const struct trace_block *block, uint64_t time)
{
	uint64_t place, end, on_host = block->on_host < block->bytes ? block->on_host : block->bytes;

	if (!place_of(map, block->address, &place, &end))
		return;
	map_use(map, place, place + block->bytes, time, true);
	/* The part of a block that found no room on the device is its end. */
	map_lay(map, place, place + block->bytes - on_host, time, false);
	if (on_host)
		map_lay(map, place + block->bytes - on_host, place + block->bytes, time, true);
	for (uint64_t row = place / map->result->row_bytes;
	     row < map->result->rows && row * map->result->row_bytes < place + block->bytes; row++)
		map->result->backend[row] = block->backend;
}

static void map_take(struct map *map, const struct trace_row *row)
{
	const struct trace *trace = map->digest->trace;
	uint64_t place, end;

	if (row->which >= trace->n_blocks || !has_place(map, &trace->blocks[row->which]))
		return;
	if (row->event.kind == TRACE_made)
		block_made(map, &trace->blocks[row->which], digest_since(map->digest, row->event.time));
	else if (row->event.kind == TRACE_freed && place_of(map, trace->blocks[row->which].address, &place, &end))
		map_use(map, place, place + trace->blocks[row->which].bytes, digest_since(map->digest, row->event.time),
			false);
}

static bool map_arrived(const struct digest_move *move, unsigned device)
{
	return move->end != UINT64_MAX && !move->stayed && move->device == device;
}

static int by_end(const void *a, const void *b)
{
	const struct digest_move *x = *(const struct digest_move *const *)a, *y = *(const struct digest_move *const *)b;

	return (x->end > y->end) - (x->end < y->end);
}

static bool map_run(struct map *map)
{
	const struct digest *digest = map->digest;
	const struct digest_move **moves = digest_zeros(digest->n_moves, sizeof(*moves));
	size_t n = 0, next = 0;
	uint64_t place, end;

	if (!moves)
		return false;
	for (size_t i = 0; i < digest->n_moves; i++)
		if (map_arrived(&digest->moves[i], map->device))
			moves[n++] = &digest->moves[i];
	qsort(moves, n, sizeof(*moves), by_end);
	for (size_t i = 0; i <= digest->trace->n_rows; i++) {
		bool last = i == digest->trace->n_rows;
		const struct trace_row *row = &digest->trace->rows[i];

		if (!last && row->event.kind != TRACE_made && row->event.kind != TRACE_freed)
			continue;
		for (; next < n && (last || moves[next]->end <= digest_since(digest, row->event.time)); next++)
			if (place_of(map, moves[next]->address, &place, &end))
				map_lay(map, place, moves[next]->bytes < end - place ? place + moves[next]->bytes : end,
					moves[next]->end, moves[next]->to_host);
		if (!last)
			map_take(map, row);
	}
	for (uint32_t row = 0; row < map->result->rows; row++)
		map_flush(map, row, digest->run_ns);
	free(moves);
	return true;
}

static uint8_t of_255(double part, double whole)
{
	double share = whole > 0 ? part / whole : 0;

	/* A small share must not be rounded to 0. */
	return (uint8_t)(share >= 1 ? 255 : share > 0 && share < 1.0 / 255 ? 1 : share * 255);
}

static uint64_t address_of(const struct map *map, uint64_t place)
{
	size_t i = map->n_ranges - 1;

	while (i && map->ranges[i].at > place)
		i--;
	return map->ranges[i].from + (place - map->ranges[i].at);
}

static void map_finish(struct map *map)
{
	struct digest_map *result = map->result;

	for (uint32_t row = 0; row < result->rows; row++) {
		result->address[row] = address_of(map, row * result->row_bytes);
		for (uint32_t column = 0; column < result->columns; column++) {
			uint32_t cell = row * result->columns + column;

			result->used[cell] =
			    of_255(map->cell_used[cell], (double)result->row_bytes * (double)result->column_ns);
			result->host[cell] = of_255(map->cell_host[cell], map->cell_used[cell]);
		}
	}
}

/* Determines pages, rows and columns for the joined addresses. */
static bool lay_out(struct map *map)
{
	struct digest_map *result = map->result;

	for (map->page = PAGE_LEAST; map->total / map->page > PAGES_MOST;)
		map->page *= 2;
	map->n_pages = (map->total + map->page - 1) / map->page;
	map->pages_a_row = (map->n_pages + DIGEST_ROWS - 1) / DIGEST_ROWS;
	result->row_bytes = map->pages_a_row * map->page;
	result->rows = (uint32_t)((map->n_pages + map->pages_a_row - 1) / map->pages_a_row);
	result->columns = DIGEST_COLUMNS;
	result->column_ns = map->digest->run_ns / DIGEST_COLUMNS + 1;
	map->on_host = digest_zeros(map->n_pages, 1);
	map->cell_used = digest_zeros((size_t)result->rows * result->columns, sizeof(*map->cell_used));
	map->cell_host = digest_zeros((size_t)result->rows * result->columns, sizeof(*map->cell_host));
	result->used = digest_zeros((size_t)result->rows * result->columns, 1);
	result->host = digest_zeros((size_t)result->rows * result->columns, 1);
	return map->on_host && map->cell_used && map->cell_host && result->used && result->host;
}

bool digest_map_make(struct digest *digest, unsigned device)
{
	struct map *map = digest_zeros(1, sizeof(*map));
	bool good = false;

	if (!map)
		return false;
	map->digest = digest;
	map->device = device;
	map->result = &digest->devices[device].map;
	if (find_ranges(map)) {
		good = !map->total || (lay_out(map) && map_run(map));
		if (good && map->total)
			map_finish(map);
	}
	free(map->ranges);
	free(map->on_host);
	free(map->cell_used);
	free(map->cell_host);
	free(map);
	return good;
}
