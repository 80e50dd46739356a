// SPDX-License-Identifier: Apache-2.0
/* text.h: helpers for text that users wrote. Independent of the locale, no allocation. */
#ifndef POLICY_TEXT_H
#define POLICY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool policy_is_digit(char c);
char policy_lower(char c); /* ASCII only */

/* Reads digits; *ret_end is where they end. Returns false if there are none, or the number is over 10^18. */
bool policy_number_read(const char *text, uint64_t *ret_number, const char **ret_end);

/*
 * Returns the bytes of the UTF-8 character at text, 0 if there is no valid one: too long a form, a surrogate, or cut
 * off.
 */
size_t policy_character_length(const char *text);

/*
 * Writes text in double quotes, safe to print: control characters and broken UTF-8 become '?', long text ends in
 * "...". buffer needs POLICY_QUOTED_BYTES. Returns buffer.
 */
#define POLICY_QUOTED_BYTES 64
char *policy_quote(const char *text, char buffer[POLICY_QUOTED_BYTES]);
/* The same, in a buffer that lives until the end of the block. */
#define policy_quoted(text) policy_quote(text, (char[POLICY_QUOTED_BYTES]){0})

/*
 * Copies text for printing as policy_quote() does, without quotes and into a buffer of any size (bytes > 0). Returns
 * buffer.
 */
char *policy_printable(const char *text, char *buffer, size_t bytes);

/* Returns true if it is complete text without control characters, which policy_printable() would not change. */
bool policy_is_printable(const char *text);

/*
 * Writes to ret_why (POLICY_MAX_WHY bytes) the text in quotes, if it is not NULL, and what is wrong with it. Returns
 * false.
 */
__attribute__((format(printf, 3, 4))) bool policy_wrong(char *ret_why, const char *text, const char *format, ...);
#define POLICY_LISTED    "is listed already; remove it"
#define POLICY_NOT_PLAIN "has line breaks or control characters in it; write one line of plain text"

/*
 * Returns the number of single-character errors (wrong, missing, extra, swapped with the next one) between a and b,
 * ignoring case. Texts over 64 bytes are infinitely far apart (UINT_MAX).
 */
unsigned policy_distance(const char *a, const char *b);

/*
 * Finds the nearest of several candidates. Start with {.typed = text} and pass every candidate to policy_suggest();
 * best stays NULL if none was near enough (a third of the length, at least one error).
 */
struct policy_suggestion {
	const char *typed, *best;
	unsigned distance;
};
void policy_suggest(struct policy_suggestion *suggestion, const char *candidate);

#endif
