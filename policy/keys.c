// SPDX-License-Identifier: Apache-2.0
/*
 * The tables of keys and named values, made from keys.def, and the search in them, with hints for unknown keys; and
 * helpers for the text of users.
 */
#include "policy/keys.h"
#include "policy/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define POLICY_VALUE(set, value, name, help) {POLICY_SET_##set, value, name, help},
static const struct policy_value values[] = {
#include "policy/keys.def"
};

#define POLICY_KEY(name, type, set, field, standard, help)                                                             \
	{name, POLICY_TYPE_##type, POLICY_SET_##set, offsetof(struct policy_settings, field), standard, help},
static const struct policy_key file_keys[] = {
#include "policy/keys.def"
};

#define POLICY_RULE_KEY(name, type, set, field, standard, help)                                                        \
	{name, POLICY_TYPE_##type, POLICY_SET_##set, offsetof(struct policy_rule, field), standard, help},
static const struct policy_key rule_keys[] = {
#include "policy/keys.def"
};

#define POLICY_LIMIT_KEY(name, type, set, field, standard, help)                                                       \
	{name, POLICY_TYPE_##type, POLICY_SET_##set, offsetof(struct policy_settings, field), standard, help},
static const struct policy_key limit_keys[] = {
#include "policy/keys.def"
};

#define COUNT(list) (sizeof(list) / sizeof(*(list)))
_Static_assert(COUNT(file_keys) <= POLICY_MAX_KEYS && COUNT(rule_keys) <= POLICY_MAX_KEYS, "raise POLICY_MAX_KEYS");
_Static_assert(COUNT(limit_keys) == POLICY_N_LIMITED, "a limit for each of enum policy_limit, and the mode");
_Static_assert((int)POLICY_JOB_BYTES == (int)POLICY_MAX_NAME + 1, "a text");

const struct policy_keys policy_file_keys = {file_keys, COUNT(file_keys)};
const struct policy_keys policy_rule_keys = {rule_keys, COUNT(rule_keys)};
const struct policy_keys policy_limit_keys = {limit_keys, COUNT(limit_keys)};

const struct policy_value *policy_value_next(enum policy_set set, const struct policy_value *before)
{
	for (const struct policy_value *v = before ? before + 1 : values; v < values + COUNT(values); v++)
		if (v->set == set)
			return v;
	return NULL;
}

const char *policy_value_name(enum policy_set set, int value)
{
	const struct policy_value *v = NULL;

	while ((v = policy_value_next(set, v)))
		if (v->value == value)
			return v->name;
	return "?";
}

#define NAME(function, type, set)                                                                                      \
	const char *function(type value)                                                                               \
	{                                                                                                              \
		return policy_value_name(set, (int)value);                                                             \
	}
NAME(policy_use_name, enum policy_use, POLICY_SET_USE)
NAME(policy_spill_name, enum policy_spill, POLICY_SET_SPILL)
NAME(policy_api_name, enum policy_api, POLICY_SET_API)
NAME(policy_movable_name, enum policy_movable, POLICY_SET_MOVABLE)
NAME(policy_place_name, enum policy_place_of, POLICY_SET_PLACE)
NAME(policy_prefetch_name, enum policy_prefetch, POLICY_SET_PREFETCH)
NAME(policy_advise_name, enum policy_advise, POLICY_SET_ADVISE)

int policy_key_find(const struct policy_keys *keys, const char *name)
{
	for (size_t i = 0; i < keys->n; i++)
		if (strcmp(keys->keys[i].name, name) == 0)
			return (int)i;
	return -1;
}

const struct policy_key *policy_key_in_section(const struct policy_keys *keys, const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < keys->n; i++)
		if (strncmp(keys->keys[i].name, name, length) == 0 && keys->keys[i].name[length] == '.')
			return &keys->keys[i];
	return NULL;
}

void policy_why_append(char *text, const char *more)
{
	size_t length = strlen(text);

	snprintf(text + length, POLICY_MAX_WHY - length, "%s", more);
}

void policy_values_list(enum policy_set set, char *ret_why)
{
	const struct policy_value *v = policy_value_next(set, NULL);

	while (v) {
		const struct policy_value *next = policy_value_next(set, v);

		policy_why_append(ret_why, v->name);
		if (next)
			policy_why_append(ret_why, policy_value_next(set, next) ? ", " : " or ");
		v = next;
	}
}

/* Writes the part of a key between prefix and the next dot: what may be written at this level. */
static const char *level_name(const char *key, size_t n_prefix, char buffer[POLICY_MAX_KEY])
{
	snprintf(buffer, POLICY_MAX_KEY, "%.*s", (int)strcspn(key + n_prefix, "."), key + n_prefix);
	return buffer;
}

const char *policy_key_ending(const struct policy_keys *keys, const char *typed)
{
	for (size_t i = 0; i < keys->n; i++) {
		const char *last = strrchr(keys->keys[i].name, '.');

		if (last && policy_distance(last + 1, typed) == 0)
			return keys->keys[i].name;
	}
	return NULL;
}

static void list_level(const struct policy_keys *keys, const char *prefix, char *ret_hint)
{
	char level[POLICY_MAX_KEY], last[POLICY_MAX_KEY] = "";
	size_t n_prefix = strlen(prefix);

	snprintf(ret_hint, POLICY_MAX_WHY, "write one of: ");
	for (size_t i = 0; i < keys->n; i++) {
		if (strncmp(keys->keys[i].name, prefix, n_prefix) != 0)
			continue;
		level_name(keys->keys[i].name, n_prefix, level);
		if (strcmp(level, last) == 0)
			continue;
		if (*last)
			policy_why_append(ret_hint, ", ");
		policy_why_append(ret_hint, level);
		strcpy(last, level);
	}
}

void policy_key_hint(const struct policy_keys *keys, const char *prefix, const char *name, char *ret_hint)
{
	size_t n_prefix = strlen(prefix);
	struct policy_suggestion suggestion = {.typed = name + n_prefix};
	/* One buffer for each key, because the suggestion keeps pointers to the candidates. */
	char levels[POLICY_MAX_KEYS][POLICY_MAX_KEY];

	for (size_t i = 0; i < keys->n; i++) {
		if (strncmp(keys->keys[i].name, prefix, n_prefix) != 0)
			continue;
		policy_suggest(&suggestion, keys->keys[i].name + n_prefix);
		policy_suggest(&suggestion, level_name(keys->keys[i].name, n_prefix, levels[i]));
	}
	if (!suggestion.best && n_prefix == 0)
		suggestion.best = policy_key_ending(keys, name);
	if (suggestion.best)
		snprintf(ret_hint, POLICY_MAX_WHY, "did you mean \"%s\"?", suggestion.best);
	else
		list_level(keys, prefix, ret_hint);
}

/* ---- text that users wrote: digits, safe printing, and the distance between words for suggestions ---- */

bool policy_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

char policy_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool policy_number_read(const char *text, uint64_t *ret_number, const char **ret_end)
{
	uint64_t number = 0;
	const char *c = text;

	for (; policy_is_digit(*c) && number <= 100000000000000000ull; c++)
		number = number * 10 + (unsigned)(*c - '0');
	*ret_number = number;
	*ret_end = c;
	return c > text && !policy_is_digit(*c);
}

size_t policy_character_length(const char *text)
{
	const unsigned char *c = (const unsigned char *)text;
	size_t n = c[0] < 0x80 ? 1 : c[0] >= 0xc2 && c[0] <= 0xdf ? 2 : (c[0] & 0xf0) == 0xe0 ? 3 : 4;

	if (n == 4 && (c[0] < 0xf0 || c[0] > 0xf4))
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((c[i] & 0xc0) != 0x80)
			return 0;
	bool is_longer = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
	bool is_none = (c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf4 && c[1] >= 0x90);
	return is_longer || is_none ? 0 : n;
}

/* Terminals obey those from U+0080 to U+009F, too. */
static bool is_control(const unsigned char *c)
{
	return c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0);
}

char *policy_printable(const char *text, char *buffer, size_t bytes)
{
	const unsigned char *from = (const unsigned char *)text;
	size_t room = bytes - 1, used = 0;
	/* The output has as many bytes as the input. */
	bool fits = strnlen(text, bytes) <= room, cut = false;

	while (*from && !cut) {
		size_t n = is_control(from) ? 0 : policy_character_length((const char *)from);
		size_t take = n ? n : 1;

		if (!fits && used + take + 3 > room) {
			cut = true;
			break;
		}
		if (n)
			memcpy(buffer + used, from, n);
		else
			buffer[used] = '?';
		used += take;
		from += take;
	}
	for (int i = 0; cut && i < 3 && used < room; i++)
		buffer[used++] = '.';
	buffer[used] = '\0';
	return buffer;
}

char *policy_quote(const char *text, char buffer[POLICY_QUOTED_BYTES])
{
	buffer[0] = '"';
	policy_printable(text, buffer + 1, POLICY_QUOTED_BYTES - 2);
	size_t n = strlen(buffer);
	buffer[n] = '"';
	buffer[n + 1] = '\0';
	return buffer;
}

bool policy_is_printable(const char *text)
{
	for (size_t n; *text; text += n) {
		n = is_control((const unsigned char *)text) ? 0 : policy_character_length(text);
		if (!n)
			return false;
	}
	return true;
}

bool policy_wrong(char *ret_why, const char *text, const char *format, ...)
{
	int used = text ? snprintf(ret_why, POLICY_MAX_WHY, "%s ", policy_quoted(text)) : 0;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(ret_why + used, (size_t)(POLICY_MAX_WHY - used), format, arguments);
	va_end(arguments);
	return false;
}

enum { MAX_TEXT = 64 };

static unsigned text_min3(unsigned a, unsigned b, unsigned c)
{
	unsigned least = a < b ? a : b;

	return least < c ? least : c;
}

/* Optimal string alignment, with three rows of the usual table. */
unsigned policy_distance(const char *a, const char *b)
{
	unsigned rows[3][MAX_TEXT + 1];
	size_t n_a = strnlen(a, MAX_TEXT + 1), n_b = strnlen(b, MAX_TEXT + 1);

	if (n_a > MAX_TEXT || n_b > MAX_TEXT)
		return UINT_MAX;
	for (size_t j = 0; j <= n_b; j++)
		rows[0][j] = (unsigned)j;
	for (size_t i = 1; i <= n_a; i++) {
		unsigned *now = rows[i % 3], *before = rows[(i - 1) % 3], *two_before = rows[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= n_b; j++) {
			char ca = policy_lower(a[i - 1]), cb = policy_lower(b[j - 1]);

			now[j] = text_min3(before[j] + 1, now[j - 1] + 1, before[j - 1] + (ca != cb));
			if (i > 1 && j > 1 && ca == policy_lower(b[j - 2]) && policy_lower(a[i - 2]) == cb &&
			    two_before[j - 2] + 1 < now[j])
				now[j] = two_before[j - 2] + 1;
		}
	}
	return rows[n_a % 3][n_b];
}

void policy_suggest(struct policy_suggestion *suggestion, const char *candidate)
{
	unsigned distance = policy_distance(suggestion->typed, candidate);
	size_t allowed = strnlen(suggestion->typed, MAX_TEXT) / 3;

	if (allowed < 1)
		allowed = 1;
	/* Replacing a whole short candidate is not a typing error: "on" is not meant by "xy", nor "1" by "2". */
	if (distance > allowed || distance >= strlen(candidate))
		return;
	if (suggestion->best && distance >= suggestion->distance)
		return;
	suggestion->best = candidate;
	suggestion->distance = distance;
}
