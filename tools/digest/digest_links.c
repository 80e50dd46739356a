/*
 * Links of each device to the host and to the devices that lend to it. The rate of a link, each way, is the bytes of
 * completed moves divided by the time in which at least one was under way: moves may overlap.
 */
#include "tools/digest/digest_part.h"

#include <stdlib.h>

/* By the other end: the host, a device, or all devices beyond the limit together, which are not shown as a link. */
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
	if (move->to_host) {
		found->link.moves_out++;
		found->link.bytes_out += move->bytes;
	} else {
		found->link.moves_in++;
		found->link.bytes_in += move->bytes;
	}
	digest_cover_add(move->to_host ? &found->out : &found->in, move->begin, move->end);
}

/* Spans must be added in the order of their beginnings; moves are in that order. */
bool digest_links_find(struct digest *digest)
{
	struct finding *findings = digest_zeros(DIGEST_DEVICES * ENDS, sizeof(*findings));

	digest->links = digest_zeros(DIGEST_DEVICES * ENDS, sizeof(*digest->links));
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
