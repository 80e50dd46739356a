/* Helpers for text that users wrote: digits, safe printing, and the distance between words for suggestions. */
#include "policy/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "policy/model.h"

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
	size_t n;

	buffer[0] = '"';
	policy_printable(text, buffer + 1, POLICY_QUOTED_BYTES - 2);
	n = strlen(buffer);
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
	char quoted[POLICY_QUOTED_BYTES];
	int used = text ? snprintf(ret_why, POLICY_MAX_WHY, "%s ", policy_quote(text, quoted)) : 0;
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
