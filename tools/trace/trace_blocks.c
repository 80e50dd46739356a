/*
 * Turns rows into blocks: their lengths and ends, the submissions that name them, and the moves that each takes part
 * in.
 */
#include "tools/trace/trace_internal.h"

#include <stdlib.h>
#include <string.h>

#define REFETCH_NS (10 * UINT64_C(1000000000))
/* A piece never holds more small blocks than this. The limit bounds the cost of a damaged file. */
#define SHARES_MOST 8192

/* ---- blocks ---- */

static size_t count_kind(const struct trace *trace, uint32_t kind)
{
	size_t n = 0;

	for (size_t i = 0; i < trace->n_rows; i++)
		n += trace->rows[i].event.kind == kind;
	return n;
}

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

static void add_loan(struct trace_block *block, uint64_t bytes)
{
	uint64_t left = block->on_host - block->on_peers;

	block->on_peers += bytes < left ? bytes : left;
}

_Static_assert(offsetof(struct trace_event, freed.id) == offsetof(struct trace_event, grown.id) &&
		   offsetof(struct trace_event, freed.id) == offsetof(struct trace_event, lent.id),
	       "whose it is comes first");

/*
 * Finds the block that a freed, grown or lent event refers to. Identities are reused, so the latest block of an
 * identity is meant.
 */
static void change_block(struct trace *trace, struct trace_row *row, const struct number_map *ids)
{
	uint64_t number;

	if (!number_map_get(ids, row->event.freed.id, &number) || trace->blocks[number].freed != UINT64_MAX)
		return;
	row->which = (uint32_t)number;
	if (row->event.kind == TRACE_freed)
		trace->blocks[number].freed = row->event.time;
	else if (row->event.kind == TRACE_grown)
		trace->blocks[number].bytes = row->event.grown.bytes;
	else
		add_loan(&trace->blocks[number], row->event.lent.bytes);
}

static bool find_blocks(struct trace *trace)
{
	size_t n = count_kind(trace, TRACE_made);
	struct number_map ids = {0};
	bool good = true;

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
			   row->event.kind == TRACE_lent) {
			change_block(trace, row, &ids);
		}
	}
	number_map_free(&ids);
	return good;
}

/* ---- submissions ---- */

/* The blocks that one of the different submits names. They are searched for again after one of them was freed. */
struct named_blocks {
	const uint32_t *blocks;
	uint32_t n;
	bool known;
	uint64_t until; /* ns: valid right before this time */
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
	free(known);
	free(naming.scratch);
	free(naming.stamp);
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
		uint64_t next = trace_places_next(trace->places, at);

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
