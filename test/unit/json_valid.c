// SPDX-License-Identifier: Apache-2.0
/*
 * json_valid.c: is standard input one JSON value (RFC 8259), and nothing behind it? Says where it is not.
 */
#include "test/unit/json_check.h"

#include <stdio.h>
#include <string.h>

static char text[4 << 20];

int main(void)
{
	size_t n = fread(text, 1, sizeof(text) - 1, stdin);
	const char *wrong = json_check(text);

	if (!wrong && strlen(text) == n)
		return 0;
	fprintf(stderr, "no JSON from byte %zu on: %.60s\n", wrong ? (size_t)(wrong - text) : strlen(text),
		wrong ? wrong : "");
	return 1;
}
