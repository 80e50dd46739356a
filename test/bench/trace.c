/* trace.c: reading a recorded trace (trace.h). */
#include "test/bench/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct trace trace;
static uint64_t room_blocks, room_uses, room_launches, live;

void *grown(void *array, uint64_t n, uint64_t *room, size_t each)
{
	if (n < *room)
		return array;
	*room = *room ? 2 * *room : 1024;
	array = realloc(array, *room * each);
	if (!array) {
		fprintf(stderr, "trace: out of memory\n");
		exit(1);
	}
	return array;
}

void *zeros(uint64_t n, size_t each)
{
	void *array = calloc(n + 1, each);

	if (!array) {
		fprintf(stderr, "trace: out of memory\n");
		exit(1);
	}
	return array;
}

/* id -> index + 1 of the latest block with it; open addressing, doubled when half full. */
static struct {
	uint64_t *ids;
	uint32_t *places;
	uint64_t size;
} map;

static uint64_t map_slot(uint64_t id)
{
	uint64_t i = id * 0x9E3779B97F4A7C15u >> 20 & (map.size - 1);

	while (map.places[i] && map.ids[i] != id)
		i = (i + 1) & (map.size - 1);
	return i;
}

static void map_put(uint64_t id, uint32_t place)
{
	if (2 * trace.n_blocks >= map.size) {
		free(map.ids);
		free(map.places);
		map.size = map.size ? 2 * map.size : 4096;
		map.ids = zeros(map.size, sizeof(*map.ids));
		map.places = zeros(map.size, sizeof(*map.places));
		for (uint32_t i = 0; i < trace.n_blocks; i++) {
			uint64_t slot = map_slot(trace.blocks[i].id);

			map.ids[slot] = trace.blocks[i].id;
			map.places[slot] = i + 1;
		}
	}
	uint64_t slot = map_slot(id);
	map.ids[slot] = id;
	map.places[slot] = place + 1;
}

static struct block *block_of(uint64_t id)
{
	uint32_t place = map.size ? map.places[map_slot(id)] : 0;

	return place ? &trace.blocks[place - 1] : NULL;
}

static void read_end(uint64_t id)
{
	struct block *block = block_of(id);

	if (block && block->died == NEVER) {
		block->died = (uint32_t)trace.n_launches;
		live -= block->bytes;
	}
}

static void read_allocation(uint64_t id, uint64_t bytes)
{
	read_end(id);
	trace.blocks = grown(trace.blocks, trace.n_blocks, &room_blocks, sizeof(*trace.blocks));
	trace.blocks[trace.n_blocks] = (struct block){.id = id, .bytes = bytes, .died = NEVER};
	map_put(id, (uint32_t)trace.n_blocks++);
	live += bytes;
	if (live > trace.peak)
		trace.peak = live;
}

static void block_note_offset(struct block *block, uint32_t offset)
{
	uint64_t room = block->room;

	block->offsets = grown(block->offsets, block->n_offsets, &room, sizeof(*block->offsets));
	block->room = (uint32_t)room;
	block->offsets[block->n_offsets++] = offset;
}

static void read_launch(char *at)
{
	struct launch launch = {.function = strtoull(at, &at, 16), .first = trace.n_uses};
	char *end;

	for (uint64_t id = strtoull(at, &end, 10); end != at && *end == ':'; id = strtoull(at, &end, 10)) {
		uint64_t offset = strtoull(end + 1, &at, 16);
		struct block *block = block_of(id);

		if (!block || block->died != NEVER || offset >= block->bytes)
			continue;
		trace.uses = grown(trace.uses, trace.n_uses, &room_uses, sizeof(*trace.uses));
		trace.uses[trace.n_uses++] =
		    (struct submission){(uint32_t)(block - trace.blocks), (uint32_t)(offset / OFFSET_UNIT)};
		block_note_offset(block, (uint32_t)(offset / OFFSET_UNIT));
	}
	launch.n = (uint32_t)(trace.n_uses - launch.first);
	trace.launches = grown(trace.launches, trace.n_launches, &room_launches, sizeof(*trace.launches));
	trace.launches[trace.n_launches++] = launch;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

void trace_read(struct trace *ret_trace, FILE *file)
{
	char *line = NULL;
	size_t room = 0;

	while (getline(&line, &room, file) > 0) {
		uint64_t id, bytes;

		if (sscanf(line, "A %" SCNu64 " %" SCNu64, &id, &bytes) == 2)
			read_allocation(id, bytes);
		else if (sscanf(line, "F %" SCNu64, &id) == 1)
			read_end(id);
		else if (!strncmp(line, "L ", 2))
			read_launch(line + 2);
	}
	free(line);
	for (uint64_t i = 0; i < trace.n_blocks; i++) {
		struct block *block = &trace.blocks[i];
		uint32_t kept = 0;

		if (!block->n_offsets)
			continue;
		qsort(block->offsets, block->n_offsets, sizeof(*block->offsets), by_number);
		for (uint32_t k = 0; k < block->n_offsets; k++)
			if (!kept || block->offsets[kept - 1] != block->offsets[k])
				block->offsets[kept++] = block->offsets[k];
		block->n_offsets = kept;
		block->named = zeros(kept, sizeof(*block->named));
	}
	*ret_trace = trace;
}
