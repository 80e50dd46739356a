/*
 * ranks.h: conditions on the rank of a process in its job. Private to this folder.
 */
#ifndef POLICY_RANKS_H
#define POLICY_RANKS_H

#include "policy/model.h"

/* Reads "3" or "3 .. 5", with nothing behind. Blanks around the dots are ignored. */
bool policy_numbers_read(const char *text, struct policy_range *ret_range);

/* Returns true if the rank is one of them; false for a rank below 0, which means no rank. */
bool policy_ranks_match(const struct policy_ranks *ranks, int64_t rank);

/* Returns true if every rank of inner is surely one of outer. outer may have no condition. */
bool policy_ranks_cover(const struct policy_ranks *outer, const struct policy_ranks *inner);

/*
 * Adds ranks: "3", "0 .. 3", ">= 4" and the other comparisons that sizes have. Returns false if it cannot: ret_why
 * (POLICY_MAX_WHY bytes) says why, and nothing has changed.
 */
bool policy_ranks_add(struct policy_ranks *ranks, const char *text, char *ret_why);
void policy_ranks_free(struct policy_ranks *ranks);

/* Writes the ranks as in a policy, with "or" between them, cut to the buffer. Returns buffer. */
char *policy_ranks_format(const struct policy_ranks *ranks, char *buffer, size_t bytes);

#endif
