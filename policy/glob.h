/*
 * glob.h: patterns on texts. '*' stands for any bytes, slashes too, '?' for one; everything else for itself. Private to
 * this folder.
 */
#ifndef POLICY_GLOB_H
#define POLICY_GLOB_H

#include "policy/model.h"

bool policy_glob_match(const char *pattern, const char *text);

/* Does any of the patterns match? No for a text that is NULL. */
bool policy_globs_match(const struct policy_globs *globs, const char *text);

/* Is every text of the inner patterns surely one of the outer's? Only literal equality is seen. */
bool policy_globs_cover(const struct policy_globs *outer, const struct policy_globs *inner);

/* One pattern more. False: ret_why (POLICY_MAX_WHY) says why not, and nothing has changed. */
bool policy_globs_add(struct policy_globs *globs, const char *pattern, char *ret_why);
void policy_globs_free(struct policy_globs *globs);

/* The patterns in quotes with "or" between them; what does not fit is cut. */
char *policy_globs_format(const struct policy_globs *globs, char *buffer, size_t bytes);

#endif
