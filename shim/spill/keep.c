/*
 * Small blocks that do not leave the device in `fast`. Tables of libraries are such, and lists, counters, states: memory
 * that kernels find by addresses which no launch names, from other memory or from constants. To the plan that is memory
 * which nobody uses, the first to leave, and a kernel that reaches it while it is on its way stops the job. (cuFFT and
 * cuRAND on an H200: tables of 2 to 7 MiB.) It is little, so keeping it costs little: blocks of up to KEPT_BLOCK bytes,
 * KEPT_SHARE of the device budget together at most; who was there first has it. Where others fill the device later the
 * budget is what they leave, and what is kept beyond its share may go again, the latest addresses first.
 */
#include "shim/spill/inside.h"

#define KEPT_BLOCK ((uint64_t)16 << 20)
#define KEPT_SHARE 16

static uint64_t most_units(const struct engine *engine)
{
	return choose_budget(engine) / KEPT_SHARE / HEAP_UNIT;
}

void keep_forget(struct engine *engine, uint32_t piece)
{
	engine->kept_units -= engine->kept[piece];
	engine->kept[piece] = 0;
}

bool keep_piece(struct engine *engine, uint32_t piece, uint32_t units, uint32_t block_unit)
{
	uint64_t block = atomic_load(&engine->arena->states[block_unit].units) * HEAP_UNIT;

	if (engine->exact)
		return false;
	if (engine->kept[piece] == units && block <= KEPT_BLOCK)
		return true;
	/* Another block may have come to its place unnoticed. */
	keep_forget(engine, piece);
	if (block > KEPT_BLOCK || engine->kept_units + units > most_units(engine))
		return false;
	engine->kept[piece] = (uint8_t)units;
	engine->kept_units += units;
	return true;
}

void keep_follow(struct engine *engine)
{
	uint64_t most = most_units(engine);

	if (engine->kept_units <= most)
		return;
	for (uint32_t piece = engine->arena->n_units_seen; piece-- && engine->kept_units > most;) {
		if (!engine->kept[piece])
			continue;
		keep_forget(engine, piece);
		move_tell_plan(engine, piece); /* which keeps it if it still fits */
	}
}
