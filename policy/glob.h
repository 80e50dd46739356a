/*
 * glob.h: patterns on texts. '*' stands for any bytes, including slashes, '?' for one byte; every other byte for
 * itself. Private to this folder.
 */
#ifndef POLICY_GLOB_H
#define POLICY_GLOB_H

#include "policy/model.h"

bool policy_glob_match(const char *pattern, const char *text);

/* Returns true if any of the patterns matches; false for a text that is NULL. */
bool policy_globs_match(const struct policy_globs *globs, const char *text);

/* Returns true if every text that matches inner surely matches outer. Only literal equality is recognized. */
bool policy_globs_cover(const struct policy_globs *outer, const struct policy_globs *inner);

/* Adds a pattern. Returns false if it cannot: ret_why (POLICY_MAX_WHY bytes) says why, and nothing has changed. */
bool policy_globs_add(struct policy_globs *globs, const char *pattern, char *ret_why);
void policy_globs_free(struct policy_globs *globs);

/* Writes the patterns in quotes with "or" between them, cut to the buffer. Returns buffer. */
char *policy_globs_format(const struct policy_globs *globs, char *buffer, size_t bytes);

#endif
