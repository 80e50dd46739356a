// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks: which was at an address at a time, and what became of each.
 */
#include "tools/trace/trace_read.h"
#include "tools/common/grow.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory that lives as long as the trace ---- */

enum { MEMORY_BLOCK = 1 << 20 };

struct trace_memory {
	struct trace_memory *next;
	size_t used, room;
	/* followed by `room` bytes */
};

void *trace_memory(struct trace *trace, size_t bytes)
{
	struct trace_memory *memory = trace->memory;

	if (bytes > SIZE_MAX / 2)
		return NULL;
	bytes = (bytes + 15) & ~(size_t)15;
	if (!memory || memory->room - memory->used < bytes) {
		size_t room = bytes > MEMORY_BLOCK ? bytes : MEMORY_BLOCK;

		memory = malloc(sizeof(*memory) + 16 + room);
		if (!memory)
			return NULL;
		*memory = (struct trace_memory){trace->memory, 0, room};
		trace->memory = memory;
	}
	uint8_t *first = (uint8_t *)(memory + 1);
	first += -(uintptr_t)first & 15;
	memory->used += bytes;
	return first + memory->used - bytes;
}

void trace_memory_free(struct trace *trace)
{
	for (struct trace_memory *memory = trace->memory, *next; memory; memory = next) {
		next = memory->next;
		free(memory);
	}
}

/*
 * Finds the block that was at an address at a time. All addresses where a block begins or ends, sorted, cut the
 * address space into intervals: the leaves of a segment tree. Each block is listed at the few nodes that cover it
 * exactly. Blocks at one address that are alive at different times are listed in the order in which they were made, so
 * that a search by time finds the only possible one. A search visits 2 log n nodes, with a binary search in each.
 *
 * If a damaged file has overlapping blocks that are alive at once, the search returns one of them.
 */

struct trace_places {
	uint64_t *edges; /* sorted, without duplicates */
	size_t n;
	uint32_t *lists;  /* block numbers */
	uint64_t *starts; /* of each node's list: node i has lists[starts[i]] ... lists[starts[i + 1] - 1] */
};

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
	qsort(places->edges, 2 * n, sizeof(*places->edges), by_number);
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

/* Builds the index of all blocks; their lengths and ends must be known. Returns NULL if memory runs out. */
static struct trace_places *trace_places_new(const struct trace_block *blocks, size_t n)
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
	for (size_t i = 2 * places->n; i > 0; i--)
		places->starts[i] = places->starts[i - 1];
	places->starts[0] = 0;
	return places;
none:
	trace_places_free(places);
	return NULL;
}

void trace_places_free(struct trace_places *places)
{
	if (!places)
		return;
	FREE_ALL(places->edges, places->starts, places->lists, places);
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

static uint32_t trace_places_at(const struct trace_places *places, const struct trace_block *blocks, uint64_t address,
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

/*
 * Turns rows into blocks: their lengths and ends, the submissions that name them, and the moves that each takes part
 * in.
 */

#define REFETCH_NS (10 * UINT64_C(1000000000))
/* A piece never holds more small blocks than this. The limit bounds the cost of a damaged file. */
#define SHARES_MOST 8192

/* ---- blocks ---- */

static void add_block(struct trace *trace, const struct trace_event *event)
{
	trace->blocks[trace->n_blocks++] = (struct trace_block){
	    .id = event->made.id,
	    .address = event->made.address,
	    .bytes = event->made.bytes,
	    .on_host = event->made.on_host,
	    .made = event->time,
	    .freed = UINT64_MAX,
	    .device = (uint32_t)event->made.device,
	    .api = (uint32_t)event->made.api,
	    .backend = (uint32_t)event->made.backend,
	    .rule = (uint32_t)event->made.rule,
	    .site = (uint32_t)event->made.site,
	};
}

_Static_assert(offsetof(struct trace_event, freed.id) == offsetof(struct trace_event, grown.id) &&
		   offsetof(struct trace_event, freed.id) == offsetof(struct trace_event, lent.id),
	       "whose it is comes first");

/*
 * Finds the block that a freed, grown, lent or managed event refers to, and applies the event to it. Identities are
 * reused, so the latest block of an identity is meant.
 */
static void change_block(struct trace *trace, struct trace_row *row, const struct number_map *ids)
{
	uint64_t number;

	if (!number_map_get(ids, row->event.freed.id, &number) || trace->blocks[number].freed != UINT64_MAX)
		return;
	row->which = (uint32_t)number;
	struct trace_block *block = &trace->blocks[number];
	uint64_t left = block->on_host - block->on_peers;
	if (row->event.kind == TRACE_freed)
		block->freed = row->event.time;
	else if (row->event.kind == TRACE_grown)
		block->bytes = row->event.grown.bytes;
	else if (row->event.kind == TRACE_lent)
		block->on_peers += row->event.lent.bytes < left ? row->event.lent.bytes : left;
}

static bool find_blocks(struct trace *trace)
{
	struct number_map ids = {0};
	bool good = true;
	size_t n = 0;

	for (size_t i = 0; i < trace->n_rows; i++)
		n += trace->rows[i].event.kind == TRACE_made;
	trace->blocks = malloc((n + 1) * sizeof(*trace->blocks));
	if (!trace->blocks)
		return false;
	for (size_t i = 0; i < trace->n_rows && good; i++) {
		struct trace_row *row = &trace->rows[i];

		if (row->event.kind == TRACE_made) {
			row->which = (uint32_t)trace->n_blocks;
			good = number_map_set(&ids, row->event.made.id, trace->n_blocks);
			add_block(trace, &row->event);
		} else if (row->event.kind == TRACE_freed || row->event.kind == TRACE_grown ||
			   row->event.kind == TRACE_lent || row->event.kind == TRACE_managed) {
			change_block(trace, row, &ids);
		}
	}
	number_map_free(&ids);
	return good;
}

/* ---- submissions ---- */

/* The blocks that one of the different submits names. They are searched for again from `until` on. */
struct named_blocks {
	const uint32_t *blocks;
	uint32_t n;
	bool known;
	uint64_t until; /* ns: one is freed then or, if a name has no block, the next block is made */
};

/* Returns the time of the first block made after `time`; blocks are in that order. */
static uint64_t next_made(const struct trace *trace, uint64_t time)
{
	size_t low = 0, high = trace->n_blocks;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (trace->blocks[middle].made <= time)
			low = middle + 1;
		else
			high = middle;
	}
	return low < trace->n_blocks ? trace->blocks[low].made : UINT64_MAX;
}

struct naming {
	struct trace *trace;
	uint32_t *scratch; /* has room for the names of any submission */
	uint32_t *stamp;   /* by block: the last look-up that found it, from 1 */
	uint32_t look_ups;
};

static bool look_up(struct naming *naming, const struct trace_event *event, struct named_blocks *named)
{
	const struct trace *trace = naming->trace;
	size_t n = 0, bytes;

	naming->look_ups++;
	named->until = UINT64_MAX;
	for (uint64_t i = 0; i < event->submit.n; i++) {
		uint32_t block = trace_block_at(trace, event->named[i].address, event->time);
		uint64_t until = block == TRACE_NONE ? next_made(trace, event->time) : trace->blocks[block].freed;

		if (until < named->until)
			named->until = until;
		if (block == TRACE_NONE || naming->stamp[block] == naming->look_ups)
			continue;
		naming->stamp[block] = naming->look_ups;
		naming->scratch[n++] = block;
	}
	bytes = n * sizeof(*naming->scratch);
	if (named->known && named->n == n && (!n || !memcmp(named->blocks, naming->scratch, bytes)))
		return true;
	uint32_t *blocks = trace_memory(naming->trace, bytes);
	if (!blocks)
		return false;
	if (n)
		memcpy(blocks, naming->scratch, bytes);
	named->blocks = blocks;
	named->n = (uint32_t)n;
	named->known = true;
	return true;
}

static bool find_names(struct trace *trace)
{
	struct named_blocks *known = calloc((size_t)trace->n_submits + 1, sizeof(*known));
	uint64_t most = 0;

	for (size_t i = 0; i < trace->n_rows; i++)
		if (trace->rows[i].event.kind == TRACE_submit && trace->rows[i].event.submit.n > most)
			most = trace->rows[i].event.submit.n;
	struct naming naming = {.trace = trace,
				.scratch = malloc((most + 1) * sizeof(*naming.scratch)),
				.stamp = calloc(trace->n_blocks + 1, sizeof(*naming.stamp))};
	bool good = known && naming.scratch && naming.stamp;

	for (size_t i = 0; i < trace->n_rows && good; i++) {
		struct trace_row *row = &trace->rows[i];

		if (row->event.kind != TRACE_submit)
			continue;
		struct named_blocks *named = &known[row->which];
		if (!named->known || row->event.time >= named->until)
			good = look_up(&naming, &row->event, named);
		row->blocks = named->blocks;
		row->n_blocks = named->n;
		for (uint32_t k = 0; good && k < named->n; k++)
			trace->blocks[named->blocks[k]].submits++;
	}
	FREE_ALL(known, naming.scratch, naming.stamp);
	return good;
}

/* ---- moves ---- */

static void count_share(struct trace_block *block, const struct trace_event *move, uint64_t bytes, bool again)
{
	if (move->move.to_host) {
		block->bytes_out += bytes;
		block->moves_out++;
	} else {
		block->bytes_in += bytes;
		block->moves_in++;
		block->refetches += again;
	}
}

/*
 * Charges a move to every block in the piece, as they were when the move began. left: when the piece had left the
 * device; 0: never.
 */
static void blocks_share(struct trace *trace, const struct trace_event *move, uint64_t left)
{
	uint64_t at = move->move.address, end = at + move->move.bytes;

	for (unsigned i = 0; at < end && i < SHARES_MOST; i++) {
		uint32_t number = trace_block_at(trace, at, move->time);
		/* The first address after this one where any block begins or ends, at any time. */
		size_t below = places_rank(trace->places, at);
		uint64_t next = below < trace->places->n ? trace->places->edges[below] : UINT64_MAX;

		if (number != TRACE_NONE) {
			struct trace_block *block = &trace->blocks[number];
			bool again = left && left >= block->made && move->time - left <= REFETCH_NS;

			next = block->address + block->bytes;
			count_share(block, move, (next < end ? next : end) - at, again);
		}
		at = next;
	}
}

static bool finish_move(struct trace *trace, const struct trace_event *moved, const struct number_map *under_way,
			struct number_map *left)
{
	uint64_t row, when = 0;

	if (!number_map_get(under_way, moved->moved.number, &row) || moved->moved.stayed)
		return true;
	const struct trace_event *move = &trace->rows[row].event;
	if (!move->move.to_host)
		number_map_get(left, move->move.address, &when);
	blocks_share(trace, move, when);
	return number_map_set(left, move->move.address, move->move.to_host ? moved->time : 0);
}

static bool count_moves(struct trace *trace)
{
	struct number_map under_way = {0}, left = {0};
	bool good = true;

	for (size_t i = 0; i < trace->n_rows && good; i++) {
		const struct trace_event *event = &trace->rows[i].event;

		if (event->kind == TRACE_move)
			good = number_map_set(&under_way, event->move.number, i);
		else if (event->kind == TRACE_moved)
			good = finish_move(trace, event, &under_way, &left);
	}
	number_map_free(&under_way);
	number_map_free(&left);
	return good;
}

bool trace_make_blocks(struct trace *trace)
{
	if (!find_blocks(trace))
		return false;
	trace->places = trace_places_new(trace->blocks, trace->n_blocks);
	return trace->places && find_names(trace) && count_moves(trace);
}

uint32_t trace_block_at(const struct trace *trace, uint64_t address, uint64_t time)
{
	return trace->places ? trace_places_at(trace->places, trace->blocks, address, time) : TRACE_NONE;
}

/* Updates live bytes from `less` to `more`, and their peak. */
static void peak_change(uint64_t *live, uint64_t *most, uint64_t more, uint64_t less)
{
	*live = *live - less + more;
	*most = *live > *most ? *live : *most;
}

bool trace_peaks(const struct trace *trace, uint64_t *ret_devices, uint32_t n, uint64_t *ret_all)
{
	uint64_t *bytes = calloc(trace->n_blocks + (size_t)n + 1, sizeof(*bytes)); /* by block: its present size */
	uint64_t *live = bytes + trace->n_blocks, live_all = 0;                    /* by device */

	if (!bytes)
		return false;
	memset(ret_devices, 0, n * sizeof(*ret_devices));
	*ret_all = 0;
	for (size_t i = 0; i < trace->n_rows; i++) {
		const struct trace_row *row = &trace->rows[i];
		uint64_t now = 0, *before = row->which < trace->n_blocks ? &bytes[row->which] : NULL;

		if (row->event.kind == TRACE_made)
			now = row->event.made.bytes;
		else if (row->event.kind == TRACE_grown)
			now = row->event.grown.bytes;
		else if (row->event.kind != TRACE_freed)
			continue;
		/* A freed block no longer grows. */
		if (!before || (row->event.kind == TRACE_grown && !*before))
			continue;
		if (trace->blocks[row->which].device < n)
			peak_change(&live[trace->blocks[row->which].device],
				    &ret_devices[trace->blocks[row->which].device], now, *before);
		peak_change(&live_all, ret_all, now, *before);
		*before = now;
	}
	free(bytes);
	return true;
}
