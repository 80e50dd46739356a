// SPDX-License-Identifier: Apache-2.0
/*
 * Writes JSON to stdout.
 */
#include "tools/common/json.h"
#include "policy/text.h"

#include <inttypes.h>
#include <stdio.h>

void json_quoted(const char *text, bool script)
{
	if (!text) {
		printf("null");
		return;
	}
	putchar('"');
	for (const unsigned char *c = (const unsigned char *)text; *c;) {
		size_t n = policy_character_length((const char *)c);

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

void json_next(struct json *json, const char *name)
{
	if (json->going)
		fputs(json->comma, stdout);
	json->going = true;
	if (!name)
		return;
	fputs(json->line, stdout);
	json_quoted(name, false);
	fputs(": ", stdout);
}

void json_open(struct json *json, const char *name, char bracket)
{
	json_next(json, name);
	putchar(bracket);
	json->going = false;
}

void json_close(struct json *json, char bracket)
{
	putchar(bracket);
	json->going = true;
}

void json_break(struct json *json, const char *text)
{
	if (json->going)
		putchar(',');
	fputs(text, stdout);
	json->going = false;
}

void json_number_or_null(struct json *json, const char *name, uint64_t value, bool known)
{
	json_next(json, name);
	printf(known ? "%" PRIu64 : "null", value);
}

void json_number(struct json *json, const char *name, uint64_t value)
{
	json_number_or_null(json, name, value, true);
}

void json_real_or_null(struct json *json, const char *name, double value, int decimals, bool known)
{
	json_next(json, name);
	if (known)
		printf("%.*f", decimals, value);
	else
		printf("null");
}

void json_truth(struct json *json, const char *name, bool value)
{
	json_next(json, name);
	printf(value ? "true" : "false");
}

void json_text(struct json *json, const char *name, const char *value)
{
	json_next(json, name);
	json_quoted(value, json->script);
}

void json_numbers(struct json *json, const struct json_pair *pairs)
{
	for (; pairs->name; pairs++)
		json_number_or_null(json, pairs->name, pairs->value, pairs->value != JSON_UNKNOWN);
}

void json_texts(struct json *json, const char *const pairs[][2])
{
	for (; (*pairs)[0]; pairs++)
		json_text(json, (*pairs)[0], (*pairs)[1]);
}
