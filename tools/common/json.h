// SPDX-License-Identifier: Apache-2.0
/*
 * json.h: writes JSON to stdout. The writer places the commas; the caller must close every bracket that it opens.
 */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
	const char *comma; /* separator of members and elements: ", " */
	const char *line;  /* printed before each name: "" */
	bool script;       /* texts are escaped for a <script> element of HTML, so that no text can end it */
	bool going;        /* an item follows the last opening bracket, so that the next one needs a comma */
};

#define JSON_WRITER ((struct json){.comma = ", ", .line = ""})

/* name is the name of the member; NULL for an element of a list. */
void json_next(struct json *json, const char *name); /* the caller prints the value */
void json_open(struct json *json, const char *name, char bracket);
void json_close(struct json *json, char bracket);
/* Prints this text, such as a line end, before the next item. */
void json_break(struct json *json, const char *text);

void json_number(struct json *json, const char *name, uint64_t value);
void json_number_or_null(struct json *json, const char *name, uint64_t value, bool known);
void json_real_or_null(struct json *json, const char *name, double value, int decimals, bool known);
void json_truth(struct json *json, const char *name, bool value);
/* A NULL value is written as null. */
void json_text(struct json *json, const char *name, const char *value);

/* Several members at once: JSON_NUMBERS(json, {"name", value}, ...); JSON_UNKNOWN is written as null. */
#define JSON_UNKNOWN            UINT64_MAX
#define JSON_NUMBERS(json, ...) json_numbers(json, (const struct json_pair[]){__VA_ARGS__, {0}})
struct json_pair {
	const char *name;
	uint64_t value;
};
void json_numbers(struct json *json, const struct json_pair *pairs); /* the last one has no name */
/* An object of numbers alone. */
#define JSON_OBJECT(json, name, ...)                                                                                   \
	(json_open(json, name, '{'), JSON_NUMBERS(json, __VA_ARGS__), json_close(json, '}'))
/* The same for texts. */
#define JSON_TEXTS(json, ...) json_texts(json, (const char *const[][2]){__VA_ARGS__, {NULL}})
void json_texts(struct json *json, const char *const pairs[][2]);

/* Prints only the text: quoted and escaped; bytes that are not UTF-8 become U+FFFD. NULL is written as null. */
void json_quoted(const char *text, bool script);

#endif
