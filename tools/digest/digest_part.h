// SPDX-License-Identifier: Apache-2.0
/*
 * digest_part.h: interfaces between the files of the digest (digest.h); only they include it.
 *
 * Each part is started once, receives events in the order of their times, and is ended. The working state of a part is
 * declared here; its results are in the digest.
 */
#ifndef TOOLS_DIGEST_PART_H
#define TOOLS_DIGEST_PART_H

#include "tools/digest/digest.h"

/*
 * Wall time in which at least one of several spans was under way. Spans must be added in the order of their
 * beginnings.
 */
struct digest_cover {
	uint64_t until, total;
};
void digest_cover_add(struct digest_cover *cover, uint64_t begin, uint64_t end);

/* digest_groups.c: tables. */
struct digest_groups {
	struct digest_group *all[DIGEST_TABLES]; /* by index: the number, within limits */
	size_t n[DIGEST_TABLES];
	uint64_t *bytes;  /* by block: its present size */
	uint64_t *faults; /* by block */
};
bool digest_groups_begin(struct digest *digest, struct digest_groups *groups);
void digest_groups_event(struct digest *digest, struct digest_groups *groups, const struct trace_row *row);
bool digest_groups_end(struct digest *digest, struct digest_groups *groups);
void digest_groups_free(struct digest_groups *groups);

/* digest_moves.c: pairs the beginnings and ends of moves, and finds the block that each wait was for. */
bool digest_moves_find(struct digest *digest);
/* ended: the completed ones, in the order of their ends. */
void digest_moves_blame(struct digest *digest, struct digest_move *const *ended, size_t n_ended);

/* The traffic of each link, of completed moves. */
bool digest_links_find(struct digest *digest);

/* digest_series.c: bytes by place over time. */
struct digest_places {
	struct digest_bin now[DIGEST_DEVICES]; /* only its first eight fields are used */
	uint64_t since[DIGEST_DEVICES];
	uint64_t fault_base[DIGEST_DEVICES][4];
	struct digest_cover waits[DIGEST_DEVICES], lost[DIGEST_DEVICES];
	uint64_t *on_host;  /* by block: the part of its bytes on the host */
	uint64_t *on_peers; /* by block: the part of those on other devices */
	uint64_t *bytes;    /* by block: its present size */
};
bool digest_series_begin(struct digest *digest, struct digest_places *places);
void digest_series_event(struct digest *digest, struct digest_places *places, const struct trace_row *row);
/* Handles a completed move. */
void digest_series_moved(struct digest *digest, struct digest_places *places, const struct digest_move *move);
void digest_series_end(struct digest *digest, struct digest_places *places);
void digest_series_free(struct digest_places *places);

/* What is alive of what an allocator keeps. The bins must be there. */
bool digest_alive_find(struct digest *digest);

/* digest_curve.c: the steps, sorted by time; the curve. */
bool digest_steps_find(struct digest *digest);

bool digest_curve_make(struct digest *digest, digest_progress *progress);

/* digest_costs.c: costs, the verdict, advice. */
void digest_costs_make(struct digest *digest);

/* 146 years. A file may contain any time, and sums of a few must not overflow. Later times are set to this one. */
#define DIGEST_RUN_MOST (UINT64_C(1) << 62)

static inline uint64_t digest_since(const struct digest *digest, uint64_t time)
{
	uint64_t ns = time - digest->trace->first;

	return ns < DIGEST_RUN_MOST ? ns : DIGEST_RUN_MOST;
}

/* Returns the device of an event, and marks it as seen; NULL if it is beyond the limit. */
static inline struct digest_device *digest_device(struct digest *digest, uint64_t number)
{
	if (number >= DIGEST_DEVICES)
		return NULL;
	digest->devices[number].seen = true;
	return &digest->devices[number];
}

/* Returns the end of a span that began at time (of the digest) and took ns, limited to the end of the trace. */
static inline uint64_t digest_end(const struct digest *digest, uint64_t time, uint64_t ns)
{
	return ns < digest->run_ns - time ? time + ns : digest->run_ns;
}

#endif
