/*
 * Blocks that do not leave the device in `fast`. Tables of libraries are such, and lists, counters, states: memory that
 * kernels find by addresses which no launch names, from other memory or from constants. To the plan that is memory which
 * nobody uses, the first to leave, and a kernel that reaches it while it is on its way stops the job. (cuFFT and cuRAND on
 * an H200: tables of 2 to 7 MiB.) There are two kinds, each with its own share of the device budget; within a share, who
 * was there first has it:
 *   small blocks, of up to SMALL_BLOCK bytes, whoever allocated them: little memory, so keeping it costs little;
 *   blocks of any size that a rule calls `movable: exact`, as the shipped policies do of what math libraries allocate for
 *   themselves: a larger share, and more of a small budget, for here it is known that the memory is of that sort.
 *   Small ones beyond it are as above.
 * Where others fill the device later the budget is what they leave, and what is kept beyond its share may go again, the
 * latest addresses first.
 */
#include "shim/heap/chunk.h"
#include "shim/mover/inside.h"

#define SMALL_BLOCK ((uint64_t)16 << 20)
#define SMALL_SHARE 16
#define RULED_SHARE 4
/*
 * Under a small budget a quarter holds not even one of such blocks (cuFFT takes 4.1 MiB for a transform with a callback, and
 * a job with 16 MiB was stopped for it): then up to this much, but never more than half of the budget.
 */
#define RULED_LEAST ((uint64_t)16 << 20)

/* Of engine->kept: beside the number of units (a piece has up to 64), whether a rule is the reason. */
#define RULED 0x80
_Static_assert(CHUNK_MOST < RULED, "the units of a piece fit beside the bit");

static uint64_t most_units(const struct engine *engine, bool ruled)
{
	uint64_t budget = engine_budget(engine), share = budget / (ruled ? RULED_SHARE : SMALL_SHARE);

	if (ruled && share < RULED_LEAST)
		share = budget / 2 < RULED_LEAST ? budget / 2 : RULED_LEAST;
	return share / HEAP_UNIT;
}

void keep_forget(struct engine *engine, uint32_t piece)
{
	bool ruled = engine->kept[piece] & RULED;

	engine->kept_units[ruled] -= engine->kept[piece] & ~RULED;
	engine->kept[piece] = 0;
}

/* Keeps the piece, of which nothing is kept, as far as that share goes. */
static bool keep_in_share(struct engine *engine, uint32_t piece, uint32_t units, bool ruled)
{
	if (engine->kept_units[ruled] + units > most_units(engine, ruled))
		return false;
	engine->kept[piece] = (uint8_t)(units | (ruled ? RULED : 0));
	engine->kept_units[ruled] += units;
	return true;
}

bool keep_piece(struct engine *engine, uint32_t piece, uint32_t units, uint32_t block_unit)
{
	const struct unit_state *state = &engine->arena->states[block_unit];
	bool ruled = atomic_load(&state->keep);
	bool small = atomic_load(&state->units) * (uint64_t)HEAP_UNIT <= SMALL_BLOCK;

	if (engine->exact)
		return false;
	if ((ruled || small) && engine->kept[piece] == (units | (ruled ? RULED : 0)))
		return true;
	/* Another block may have come to its place unnoticed. */
	keep_forget(engine, piece);
	return (ruled && keep_in_share(engine, piece, units, true)) ||
	       (small && keep_in_share(engine, piece, units, false));
}

void keep_follow(struct engine *engine)
{
	for (int ruled = 0; ruled < 2; ruled++) {
		uint64_t most = most_units(engine, ruled);

		for (uint32_t piece = engine->arena->n_units_seen; piece-- && engine->kept_units[ruled] > most;) {
			if (!engine->kept[piece] || !(engine->kept[piece] & RULED) != !ruled)
				continue;
			keep_forget(engine, piece);
			move_tell_plan(engine, piece); /* which keeps it if it still fits */
		}
	}
}
