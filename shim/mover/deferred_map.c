/*
 * Deferred maps: pieces on the host that are not mapped. Mapping host memory takes half as long as copying it
 * (docs/facts.md, Host memory). Therefore an evicted piece is mapped when there is time for it or when a submission
 * needs it, and in any case before a gap ends. In a gap, a piece that is about to be fetched may be unmapped before
 * there is room for it.
 */
#include "shim/mover/mover_internal.h"

struct deferred_map *deferred_map_find(struct engine *engine, uint32_t piece)
{
	for (unsigned i = 0; i < engine->rests.n; i++)
		if (engine->rests.at[i].transit.piece == piece)
			return &engine->rests.at[i];
	return NULL;
}

void deferred_map_add(struct engine *engine, const struct migration *transit, bool is_empty)
{
	engine->rests.at[engine->rests.n++] =
	    (struct deferred_map){.transit = *transit, .since = clock_now(), .is_empty = is_empty};
}

void deferred_map_drop(struct engine *engine, struct deferred_map *rest)
{
	unsigned i = (unsigned)(rest - engine->rests.at);

	engine->rests.n--;
	for (; i < engine->rests.n; i++)
		engine->rests.at[i] = engine->rests.at[i + 1];
}

/* ---- mapping ---- */

/* ns: how long the copy of one piece, and those that are queued before it, may take. */
#define COPY_NS 1000000000

/*
 * The driver maps no host memory, for which it needs large page tables. Gives the piece memory of the device, filled,
 * if there is some: the tables of that are small.
 */
static void fill_on_device(struct engine *engine, struct migration *transit)
{
	if (atomic_load(&engine->channel.dead) || !link_open(engine))
		return;
	enum sw_status status = migration_turn(engine->heap, false, transit);
	if (status == SW_NO_MEMORY && heap_make_spare(engine->heap, CHUNK_DEVICE, transit->units) == SW_OK)
		status = migration_turn(engine->heap, false, transit);
	if (status != SW_OK)
		return;
	link_let_go(engine, true);
	CUresult result = link_fill(engine, transit);
	if (!link_is_idle_by(engine->link.stream_in, clock_now() + COPY_NS))
		migration_leave_spare(engine->heap, transit);
	else if (result != CUDA_SUCCESS)
		heap_give_spare(engine->heap, transit);
}

static void deferred_map_map_one(struct engine *engine, struct deferred_map *rest)
{
	struct migration transit = rest->transit;
	uint64_t begun = clock_now();
	bool is_new;

	if (!piece_map_soon(engine, &transit, PIECE_OLD, &is_new)) {
		fill_on_device(engine, &transit);
		piece_map(engine, &transit, PIECE_EITHER, &is_new);
	}
	if (is_new) {
		move_stats_whole(engine, &transit, begun, migration_bytes(&transit));
		migration_exchange(engine->heap, &transit);
	}
	deferred_map_drop(engine, rest);
	/* If nothing can be mapped, submissions are not held back for ever, as in migrate.c. */
	piece_arrived(engine, &transit, is_new ? BLOCK_STATE_DEVICE : BLOCK_STATE_HOST, true);
}

bool deferred_map_map(struct engine *engine)
{
	for (unsigned i = 0; i < engine->rests.n; i++) {
		if (engine->rests.at[i].comes)
			continue;
		deferred_map_map_one(engine, &engine->rests.at[i]);
		return true;
	}
	return false;
}

/* Maps those whose blocks were freed, and those that a thread waits for, to pin them or to open them to a peer. */
static bool map_awaited(struct engine *engine)
{
	struct deferred_maps *rests = &engine->rests;
	bool any = false;

	for (unsigned i = 0; i < rests->n;) {
		i += migration_first_awaited(engine->heap, &rests->at[i].transit, sizeof(rests->at[i]), rests->n - i);
		if (i == rests->n)
			break;
		deferred_map_map_one(engine, &rests->at[i]);
		any = true;
	}
	return any;
}

bool deferred_map_serve(struct engine *engine)
{
	bool any = false;

	while (atomic_load(&engine->channel.everything.waits) && deferred_map_map(engine))
		any = true;
	if (heap_has_given(engine->heap) || heap_is_awaited(engine->heap))
		any |= map_awaited(engine);
	return any;
}

void deferred_map_map_of(struct engine *engine, uint32_t block_unit, uint64_t but)
{
	for (unsigned i = 0; i < engine->rests.n;) {
		const struct migration *transit = &engine->rests.at[i].transit;

		if (transit->block_unit == block_unit && engine->by_piece.stamps[transit->piece] != but)
			deferred_map_map_one(engine, &engine->rests.at[i]);
		else
			i++;
	}
}

/* ---- unmapping early ---- */

bool deferred_map_unmap_early(struct engine *engine, uint32_t piece)
{
	struct migration transit;

	/* Slots must stay free for pieces that are evicted. */
	if (engine->rests.n >= DEFERRED_MAPS / 2 || migration_pin(engine->heap, piece, &transit) != SW_OK)
		return false;
	if (migration_unmap(&transit) != CUDA_SUCCESS) {
		migration_end(engine->heap, &transit);
		return false;
	}
	piece_raise(engine, &transit);
	deferred_map_add(engine, &transit, false);
	engine->rests.at[engine->rests.n - 1].comes = true;
	return true;
}

void deferred_map_give_up_early(struct engine *engine)
{
	for (unsigned i = 0; i < engine->rests.n; i++)
		engine->rests.at[i].comes = false;
}
