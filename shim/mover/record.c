#include "shim/mover/record.h"
#include "shim/base/log.h"
#include "shim/mover/inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One record, of the first device; two movers would write over each other. All below is that mover's alone. */
static _Atomic(struct engine *) first;
static FILE *file;
static bool opened;
static uint32_t *ids; /* by the first unit of a block: its number in the record, plus 1 */
static uint32_t next_id;

/* A new file of ours alone: nothing is followed, nothing overwritten. */
static bool is_open(struct engine *engine)
{
	struct engine *owner = atomic_load(&first);

	if (!owner && atomic_compare_exchange_strong(&first, &owner, engine))
		owner = engine;
	if (owner != engine)
		return false;
	if (!opened) {
		const char *path = secure_getenv("SPILLWAY_RECORD");
		int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;

		opened = true;
		file = fd >= 0 ? fdopen(fd, "w") : NULL;
		ids = file ? calloc(engine->arena->n_units, sizeof(*ids)) : NULL;
		if (path && !ids)
			log_line("SPILLWAY_RECORD: %s cannot be made anew", path);
		if (file)
			setvbuf(file, NULL, _IOFBF, 1 << 20);
	}
	return ids != NULL;
}

void record_piece(struct engine *engine, uint32_t piece)
{
	if (!is_open(engine))
		return;
	uint32_t word = atomic_load(&engine->arena->table[piece]);
	bool is_first = word & ARENA_SLAB || word == piece + 1;

	if (!word && ids[piece]) {
		fprintf(file, "F %u\n", ids[piece] - 1);
		ids[piece] = 0;
	} else if (word && is_first && !ids[piece]) {
		ids[piece] = ++next_id;
		fprintf(file, "A %u %llu\n", ids[piece] - 1,
			(unsigned long long)atomic_load(&engine->arena->states[piece].units) * HEAP_UNIT);
	}
}

void record_submission(struct engine *engine, uint64_t function, const struct named *named, unsigned n)
{
	if (!is_open(engine) || !n)
		return;
	fprintf(file, "L %llx", (unsigned long long)function);
	for (unsigned i = 0; i < n; i++) {
		if (!arena_contains(engine->arena, named[i].address))
			continue;
		uint32_t unit = arena_unit(engine->arena, named[i].address);
		uint32_t word = atomic_load(&engine->arena->table[unit]);
		uint32_t block = !word || word & ARENA_SLAB ? unit : word - 1;

		if (ids[block])
			fprintf(file, " %u:%llx", ids[block] - 1,
				(unsigned long long)(named[i].address - arena_address(engine->arena, block)));
	}
	fputc('\n', file);
}

void record_flush(struct engine *engine)
{
	if (atomic_load(&first) == engine && file)
		fflush(file);
}
