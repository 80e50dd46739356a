/*
 * inflight.c: blocks that submissions with tickets use. For each block it counts the tickets that are out and keeps the
 * number of the latest submission whose ticket was given back; for each place it keeps the blocks of the ticket that is
 * out.
 */
#include "shim/submit/inflight.h"
#include "shim/base/lazy_memory.h"

#include <stdlib.h>

/* Looks at an incomplete record, about a microsecond: enough for a writer that is not suspended to complete it. */
#define LOOKS 64

struct inflight_block {
	uint64_t last; /* number of the latest submission that used the block and whose ticket was given back */
	uint32_t out;  /* tickets that are out, counted once per name */
};

/* Blocks of the ticket that is out of one place; n is 0 if none is out. */
struct out {
	uint32_t serial, n;
	uint32_t units[INFLIGHT_TICKET_NAMES];
};

struct inflight {
	const struct arena *arena;
	const struct submission_log *tape;
	size_t at; /* position in the log up to which records have been read */
	struct inflight_block *blocks;
	struct out *out; /* by place, from 1 */
	uint32_t places[INFLIGHT_TICKET_PLACES];
	unsigned n_places; /* `places` are those with a ticket that is out */
};

static size_t bytes_of_blocks(const struct inflight *claims)
{
	return claims->arena->n_units * sizeof(*claims->blocks);
}

static size_t bytes_of_out(void)
{
	return (INFLIGHT_TICKET_PLACES + 1) * sizeof(struct out);
}

struct inflight *inflight_new(const struct arena *arena, const struct submission_log *tape)
{
	struct inflight *claims = calloc(1, sizeof(*claims));

	if (!claims)
		return NULL;
	claims->arena = arena;
	claims->tape = tape;
	claims->at = submission_log_begin(tape);
	claims->blocks = lazy_memory_new(bytes_of_blocks(claims));
	claims->out = lazy_memory_new(bytes_of_out());
	if (claims->blocks && claims->out)
		return claims;
	inflight_free(claims);
	return NULL;
}

void inflight_free(struct inflight *claims)
{
	if (!claims)
		return;
	lazy_memory_free(claims->blocks, bytes_of_blocks(claims));
	lazy_memory_free(claims->out, bytes_of_out());
	free(claims);
}

/* ---- tickets that are given back ---- */

/* A later submission of another thread may have been counted before, so the number may only rise. */
static void inflight_count(struct inflight_block *block, uint64_t number)
{
	if (block->last < number)
		block->last = number;
}

/* Returns false if the ticket is still out. */
static bool inflight_settle(struct inflight *claims, uint32_t place)
{
	struct out *out = &claims->out[place];
	uint64_t number;

	if (!inflight_ticket_is_back((struct inflight_ticket){place, out->serial}, &number))
		return false;
	for (unsigned i = 0; i < out->n; i++) {
		claims->blocks[out->units[i]].out--;
		inflight_count(&claims->blocks[out->units[i]], number);
	}
	out->n = 0;
	return true;
}

static void settle_all(struct inflight *claims)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < claims->n_places; i++)
		if (!inflight_settle(claims, claims->places[i]))
			claims->places[kept++] = claims->places[i];
	claims->n_places = kept;
}

/* ---- records ---- */

static bool block_of(const struct arena *arena, CUdeviceptr address, uint32_t *ret_unit)
{
	if (!arena_contains(arena, address))
		return false; /* the heap of another device */
	uint32_t word = arena_look(arena, address);
	*ret_unit = word & ARENA_SLAB ? arena_unit(arena, address) : word - 1;
	return word != 0;
}

/* The thread gave its previous ticket back before it took this one, so settling frees the place. */
static void inflight_claim(struct inflight *claims, struct inflight_ticket ticket, const CUdeviceptr *addresses,
			   unsigned n)
{
	struct out *out = &claims->out[ticket.place];
	uint64_t number;
	uint32_t unit;

	if (out->n)
		settle_all(claims);
	bool is_back = inflight_ticket_is_back(ticket, &number);
	for (unsigned i = 0; i < n; i++) {
		if (!block_of(claims->arena, addresses[i], &unit))
			continue;
		if (is_back) {
			inflight_count(&claims->blocks[unit], number);
		} else {
			claims->blocks[unit].out++;
			out->units[out->n++] = unit;
		}
	}
	out->serial = ticket.serial;
	if (out->n)
		claims->places[claims->n_places++] = ticket.place;
}

/* Returns false if no complete record follows. */
static bool hear_one(struct inflight *claims)
{
	CUdeviceptr addresses[INFLIGHT_TICKET_NAMES];
	struct inflight_ticket ticket;
	unsigned n;

	if (!submission_log_look(claims->tape, &claims->at, &ticket, addresses, INFLIGHT_TICKET_NAMES, &n))
		return false;
	if (ticket.place)
		inflight_claim(claims, ticket, addresses, n);
	return true;
}

bool inflight_hear(struct inflight *claims)
{
	size_t end = submission_log_end(claims->tape);

	for (unsigned looks = 0; (ptrdiff_t)(end - claims->at) > 0 && looks < LOOKS;)
		looks = hear_one(claims) ? 0 : looks + 1;
	settle_all(claims);
	return (ptrdiff_t)(end - claims->at) <= 0;
}

bool inflight_hear_oldest(struct inflight *claims)
{
	return claims->at != submission_log_begin(claims->tape) || hear_one(claims);
}

bool inflight_has(const struct inflight *claims, uint32_t block_unit, uint64_t done)
{
	const struct inflight_block *block = &claims->blocks[block_unit];

	return block->out || block->last > done;
}
