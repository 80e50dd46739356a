/*
 * text.h: small helpers for text that people wrote. Independent of the locale, no allocation.
 */
#ifndef POLICY_TEXT_H
#define POLICY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool policy_is_digit(char c);
char policy_lower(char c); /* ASCII only */

/* Digits from text; *ret_end is where they end. False: there are none, or the number is over 10^18. */
bool policy_number_read(const char *text, uint64_t *ret_number, const char **ret_end);

/*
 * text in double quotes, fit to be printed: control characters and broken UTF-8 become '?', long text ends in "...".
 * buffer needs POLICY_QUOTED_BYTES. Returns buffer.
 */
#define POLICY_QUOTED_BYTES 64
char *policy_quote(const char *text, char buffer[POLICY_QUOTED_BYTES]);

/* Copy text for printing as policy_quote() does, without quotes and with a limit of the caller's choice (bytes > 0). */
char *policy_printable(const char *text, char *buffer, size_t bytes);

/*
 * How many single-character slips (wrong, missing, extra, swapped with its neighbour) lie between a and b; case does
 * not count. Texts over 64 bytes count as infinitely far (UINT_MAX).
 */
unsigned policy_distance(const char *a, const char *b);

/*
 * Remembers the nearest candidate offered to it. Start with {.typed = text}; offer all; best is NULL when nothing was
 * near enough to be meant (a third of the length, at least one slip).
 */
struct policy_suggestion {
	const char *typed, *best;
	unsigned distance;
};
void policy_suggest(struct policy_suggestion *suggestion, const char *candidate);

#endif
