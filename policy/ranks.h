/*
 * ranks.h: conditions on the rank of a process in its job. Private to this folder.
 */
#ifndef POLICY_RANKS_H
#define POLICY_RANKS_H

#include "policy/model.h"

/* Is it one of them? No for a rank below 0, which is none. */
bool policy_ranks_match(const struct policy_ranks *ranks, int64_t rank);

/* Is every rank of the inner ones surely one of the outer's, which may have no condition? */
bool policy_ranks_cover(const struct policy_ranks *outer, const struct policy_ranks *inner);

/*
 * More of them: "3", "0 .. 3", ">= 4" and the other comparisons that sizes have. False: ret_why (POLICY_MAX_WHY) says why
 * not, and nothing has changed.
 */
bool policy_ranks_add(struct policy_ranks *ranks, const char *text, char *ret_why);
void policy_ranks_free(struct policy_ranks *ranks);

/* As they could be written, with "or" between them; what does not fit is cut. */
char *policy_ranks_format(const struct policy_ranks *ranks, char *buffer, size_t bytes);

#endif
