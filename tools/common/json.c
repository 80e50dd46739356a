#include "tools/common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Bytes of the whole UTF-8 character at c, 0 when it is none. Overlong forms and surrogates are none. */
static size_t character_length(const unsigned char *c)
{
	size_t n = c[0] < 0x80 ? 1 : c[0] >= 0xc2 && c[0] <= 0xdf ? 2 : (c[0] & 0xf0) == 0xe0 ? 3 : 4;

	if (n == 4 && (c[0] < 0xf0 || c[0] > 0xf4))
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((c[i] & 0xc0) != 0x80)
			return 0;
	if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf0 && c[1] < 0x90) ||
	    (c[0] == 0xf4 && c[1] >= 0x90))
		return 0;
	return n;
}

static void put_text(const char *text, bool script)
{
	if (!text) {
		printf("null");
		return;
	}
	putchar('"');
	for (const unsigned char *c = (const unsigned char *)text; *c;) {
		size_t n = character_length(c);

		if (n == 0)
			printf("\\ufffd");
		else if (*c == '"' || *c == '\\')
			printf("\\%c", *c);
		else if (*c < 0x20 || *c == 0x7f || (script && (*c == '<' || *c == '>' || *c == '&')))
			printf("\\u%04x", *c);
		else
			fwrite(c, 1, n, stdout);
		c += n ? n : 1;
	}
	putchar('"');
}

void json_text(const char *text)
{
	put_text(text, false);
}

void json_script_text(const char *text)
{
	put_text(text, true);
}

void json_name(const char *name)
{
	json_text(name);
	printf(": ");
}
