// SPDX-License-Identifier: Apache-2.0
/*
 * Moves: a `move` event begins one, and the `moved` event of the same number ends it; a repeated number refers to the
 * later move.
 *
 * The blocks that a submission waited for are those that arrived on its device while it waited: pieces that were
 * fetched for a wait or, if there are none, all fetched pieces. The wait is distributed over them by bytes.
 */
#include "tools/common/grow.h"
#include "tools/digest/digest_part.h"

#include <stdlib.h>

enum {
	BLAMED = 256
}; /* number of pieces that one wait is distributed to: a submission names fewer, and a file may contain more */

/* A trace stores another device as its number plus 1. */
static uint32_t other_end(uint64_t number)
{
	if (!number)
		return DIGEST_HOST;
	return number <= DIGEST_DEVICES ? (uint32_t)number - 1 : DIGEST_DEVICES;
}

static void move_add(struct digest *digest, const struct trace_event *event)
{
	const struct trace *trace = digest->trace;

	digest->moves[digest->n_moves++] = (struct digest_move){
	    .begin = digest_since(digest, event->time),
	    .end = UINT64_MAX,
	    .address = event->move.address,
	    .bytes = event->move.bytes,
	    .device = event->move.device < DIGEST_DEVICES ? (uint32_t)event->move.device : DIGEST_DEVICES,
	    .why = event->move.why < TRACE_WHYS ? (uint32_t)event->move.why : TRACE_WHYS,
	    .block = trace_block_at(trace, event->move.address, event->time),
	    .lender = other_end(event->move.lender),
	    .left = other_end(event->move.left),
	    .to_host = event->move.to_host != 0,
	};
}

bool digest_moves_find(struct digest *digest)
{
	const struct trace *trace = digest->trace;
	struct number_map numbers = {0};

	digest->moves = calloc((size_t)digest->n_events[TRACE_move], sizeof(*digest->moves));
	bool good = digest->moves != NULL;
	for (size_t i = 0; good && i < trace->n_rows; i++) {
		const struct trace_event *event = &trace->rows[i].event;
		uint64_t which;

		if (event->kind == TRACE_move) {
			good = number_map_set(&numbers, event->move.number, digest->n_moves);
			move_add(digest, event);
		} else if (event->kind == TRACE_moved && number_map_get(&numbers, event->moved.number, &which) &&
			   digest->moves[which].end == UINT64_MAX) {
			digest->moves[which].end = digest_since(digest, event->time);
			digest->moves[which].stayed = event->moved.stayed != 0;
			digest->moves[which].uncopied = event->moved.uncopied;
		}
	}
	number_map_free(&numbers);
	return good;
}

/* Returns the index of the first arrival at this time or later. */
static size_t arrival_at(struct digest_move *const *arrivals, size_t n, uint64_t time)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (arrivals[middle]->end < time)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void share_out(struct digest *digest, struct digest_move *const *arrivals, size_t n, uint32_t device,
		      uint64_t begin, uint64_t end)
{
	size_t from = arrival_at(arrivals, n, begin), to = from;
	double waited = 0, any = 0;

	for (; to < n && to - from < BLAMED && arrivals[to]->end <= end; to++)
		if (arrivals[to]->device == device) {
			any += (double)arrivals[to]->bytes;
			waited += arrivals[to]->why == TRACE_WHY_WAITED ? (double)arrivals[to]->bytes : 0;
		}
	for (size_t i = from; i < to; i++) {
		struct digest_move *move = arrivals[i];

		if (move->device != device || (waited > 0 && move->why != TRACE_WHY_WAITED) || !(any > 0))
			continue;
		uint64_t ns = (uint64_t)((double)(end - begin) * (double)move->bytes / (waited > 0 ? waited : any));

		digest->block_wait_ns[move->block] += ns;
		move->wait_ns += ns;
	}
}

/* If memory runs out, waits are not distributed, and no figure is wrong: the total contains all waits. */
void digest_moves_blame(struct digest *digest, struct digest_move *const *ended, size_t n_ended)
{
	const struct trace *trace = digest->trace;
	struct digest_move **arrivals = calloc(digest->n_moves, sizeof(*arrivals));
	size_t n = 0;

	if (!arrivals)
		return;
	for (size_t i = 0; i < n_ended; i++)
		if (!ended[i]->to_host && ended[i]->block != TRACE_NONE)
			arrivals[n++] = ended[i];
	for (size_t i = 0; i < trace->n_rows; i++) {
		const struct trace_event *event = &trace->rows[i].event;

		if (event->kind != TRACE_wait || event->wait.device >= DIGEST_DEVICES)
			continue;
		uint64_t begin = digest_since(digest, event->time);
		share_out(digest, arrivals, n, (uint32_t)event->wait.device, begin,
			  digest_end(digest, begin, event->wait.ns));
	}
	free(arrivals);
}

/*
 * Links of each device to the host and to the devices that lend to it. The rate of a link, each way, is the bytes of
 * completed moves divided by the time in which at least one was under way: moves may overlap.
 */

/* By the other end: the host, or a device below DIGEST_DEVICES. Moves to devices beyond that are left out. */
enum { ENDS = DIGEST_DEVICES + 1 };

struct finding {
	struct digest_link link;
	struct digest_cover in, out;
};

static void links_take(struct finding *findings, const struct digest_move *move)
{
	uint32_t end = move->lender == DIGEST_HOST ? 0 : move->lender + 1;
	struct finding *found = &findings[move->device * ENDS + end];

	found->link.device = move->device;
	found->link.lender = move->lender;
	*(move->to_host ? &found->link.moves_out : &found->link.moves_in) += 1;
	*(move->to_host ? &found->link.bytes_out : &found->link.bytes_in) += move->bytes;
	digest_cover_add(move->to_host ? &found->out : &found->in, move->begin, move->end);
}

/* Spans must be added in the order of their beginnings; moves are in that order. */
bool digest_links_find(struct digest *digest)
{
	struct finding *findings = calloc(DIGEST_DEVICES * ENDS, sizeof(*findings));

	digest->links = calloc(DIGEST_DEVICES * ENDS, sizeof(*digest->links));
	if (!findings || !digest->links) {
		free(findings);
		return false;
	}
	for (size_t i = 0; i < digest->n_moves; i++) {
		const struct digest_move *move = &digest->moves[i];

		if (move->end != UINT64_MAX && !move->stayed && move->device < DIGEST_DEVICES &&
		    move->lender != DIGEST_DEVICES)
			links_take(findings, move);
	}
	for (size_t i = 0; i < DIGEST_DEVICES * ENDS; i++) {
		struct digest_link link = findings[i].link;

		link.in_ns = findings[i].in.total;
		link.out_ns = findings[i].out.total;
		if (link.moves_in || link.moves_out)
			digest->links[digest->n_links++] = link;
	}
	free(findings);
	return true;
}
