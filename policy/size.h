/*
 * size.h: strict reading of sizes and of conditions on sizes. Private to this folder.
 *
 * A size is digits, an optional fraction, and a unit: B, KiB, MiB, GiB, TiB (1024) or kB, KB, MB, GB, TB (1000); or
 * N%. Only 0 needs no unit. The functions return false on failure: then ret_why (POLICY_MAX_WHY bytes) says what is
 * wrong and what to write instead. The other outputs change only on success. No locale, no rounding.
 */
#ifndef POLICY_SIZE_H
#define POLICY_SIZE_H

#include "policy/model.h"

/* Reads ">= SIZE", "> SIZE", "<= SIZE", "< SIZE", "== SIZE" or "SIZE .. SIZE" (both ends included). */
bool policy_condition_parse(const char *text, struct policy_range *ret_range, char *ret_why);

/* Writes a condition as in a policy: ">= 64MiB", "1MiB .. 64MiB". buffer needs POLICY_RANGE_TEXT. Returns buffer. */
#define POLICY_RANGE_TEXT 72
char *policy_range_format(const struct policy_range *range, char buffer[POLICY_RANGE_TEXT]);

#endif
