// SPDX-License-Identifier: Apache-2.0
#include "test/unit/json_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const char *at;

static void skip_blanks(void)
{
	at += strspn(at, " \t\n\r");
}

static bool take(const char *word)
{
	size_t length = strlen(word);
	bool there = strncmp(at, word, length) == 0;

	at += there ? length : 0;
	return there;
}

static bool take_string(void)
{
	if (!take("\""))
		return false;
	while (*at && *at != '"') {
		if ((unsigned char)*at < 0x20)
			return false;
		if (*at++ != '\\')
			continue;
		if (*at == 'u' && strspn(at + 1, "0123456789abcdefABCDEF") >= 4)
			at += 5;
		else if (*at && strchr("\"\\/bfnrt", *at))
			at++;
		else
			return false;
	}
	return take("\"");
}

static bool take_number(void)
{
	const char *from = at;

	take("-");
	at += strspn(at, "0123456789");
	if (take("."))
		at += strspn(at, "0123456789");
	if (*at == 'e' || *at == 'E')
		at += 1 + strspn(at + 1, "+-0123456789");
	return at > from && at[-1] >= '0' && at[-1] <= '9';
}

static bool take_value(int depth);

/* Between open and close; members have a name in front. */
static bool take_list(int depth, const char *close, bool members)
{
	skip_blanks();
	if (take(close))
		return true;
	do {
		skip_blanks();
		if (members && !take_string())
			return false;
		skip_blanks();
		if (members && !take(":"))
			return false;
		if (!take_value(depth + 1))
			return false;
		skip_blanks();
	} while (take(","));
	return take(close);
}

static bool take_value(int depth)
{
	skip_blanks();
	if (depth > 100)
		return false;
	if (take("{"))
		return take_list(depth, "}", true);
	if (take("["))
		return take_list(depth, "]", false);
	if (*at == '"')
		return take_string();
	return take("null") || take("true") || take("false") || take_number();
}

const char *json_check(const char *text)
{
	at = text;
	bool good = take_value(0);
	skip_blanks();
	return good && !*at ? NULL : at;
}
