/*
 * Matches patterns with * and ?. fnmatch(3) may allocate and depends on the locale, which deciding must not. Time is
 * at most the product of both lengths, because the search only ever goes back to the last star.
 */
#include "policy/glob.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/text.h"

/* Recognizes "*word*", the form of most patterns: the C library searches for a word many bytes at a time. */
static bool is_word_anywhere(const char *pattern, size_t length)
{
	return length > 2 && pattern[0] == '*' && pattern[length - 1] == '*' &&
	       strcspn(pattern + 1, "*?") == length - 2;
}

bool policy_glob_match(const char *pattern, const char *text)
{
	const char *star = NULL, *from = NULL;
	size_t length = strlen(pattern);

	if (is_word_anywhere(pattern, length))
		return memmem(text, strlen(text), pattern + 1, length - 2) != NULL;
	while (*text) {
		if (*pattern == '*') {
			star = pattern++;
			from = text;
		} else if (*pattern == '?' || *pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++from;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

bool policy_globs_match(const struct policy_globs *globs, const char *text)
{
	const char *pattern = globs->text;

	for (unsigned i = 0; text && i < globs->n; i++, pattern += strlen(pattern) + 1)
		if (policy_glob_match(pattern, text))
			return true;
	return false;
}

static bool glob_holds(const struct policy_globs *globs, const char *pattern)
{
	const char *own = globs->text;

	for (unsigned i = 0; i < globs->n; i++, own += strlen(own) + 1)
		if (strcmp(own, "*") == 0 || strcmp(own, pattern) == 0)
			return true;
	return false;
}

bool policy_globs_cover(const struct policy_globs *outer, const struct policy_globs *inner)
{
	const char *pattern = inner->text;

	if (!outer->n)
		return true;
	for (unsigned i = 0; i < inner->n; i++, pattern += strlen(pattern) + 1)
		if (!glob_holds(outer, pattern))
			return false;
	return inner->n > 0;
}

bool policy_globs_add(struct policy_globs *globs, const char *pattern, char *ret_why)
{
	size_t bytes = strlen(pattern) + 1;
	char *more;

	if (bytes == 1)
		return policy_wrong(ret_why, NULL, "has no value; write a name, or a pattern as in \"*nccl*\"");
	if (bytes > POLICY_MAX_GLOB + 1)
		return policy_wrong(ret_why, NULL, "is longer than %d bytes; write a shorter pattern with a *",
				    POLICY_MAX_GLOB);
	if (!policy_is_printable(pattern))
		return policy_wrong(ret_why, NULL, POLICY_NOT_PLAIN);
	if (globs->n == POLICY_MAX_GLOBS)
		return policy_wrong(ret_why, NULL, "has more than %d patterns; write fewer, with a *",
				    POLICY_MAX_GLOBS);
	if (globs->n && policy_globs_cover(globs, &(struct policy_globs){(char *)pattern, 1, (unsigned)bytes}))
		return policy_wrong(ret_why, pattern, POLICY_LISTED);
	more = realloc(globs->text, globs->bytes + bytes);
	if (!more)
		return policy_wrong(ret_why, NULL, "out of memory while reading; try again");
	memcpy(more + globs->bytes, pattern, bytes);
	*globs = (struct policy_globs){more, globs->n + 1, globs->bytes + (unsigned)bytes};
	return true;
}

void policy_globs_free(struct policy_globs *globs)
{
	free(globs->text);
	*globs = (struct policy_globs){0};
}

char *policy_globs_format(const struct policy_globs *globs, char *buffer, size_t bytes)
{
	const char *pattern = globs->text;
	char quoted[POLICY_QUOTED_BYTES];
	size_t used = 0;

	*buffer = '\0';
	for (unsigned i = 0; i < globs->n && used < bytes; i++, pattern += strlen(pattern) + 1)
		used += (size_t)snprintf(buffer + used, bytes - used, "%s%s", i ? " or " : "",
					 policy_quote(pattern, quoted));
	return buffer;
}
