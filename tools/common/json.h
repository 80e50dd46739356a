/*
 * json.h: writing JSON to stdout. The writer keeps account of commas; the caller opens and closes what it opens.
 */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
	const char *comma; /* between members and elements: ", " */
	const char *line;  /* before each name: "" */
	bool script;       /* texts are written fit to stand in a <script> of HTML: nothing in them can end it */
	bool going;        /* something stands behind the last opening bracket: a comma is needed */
};

#define JSON_WRITER ((struct json){.comma = ", ", .line = ""})

/* name is that of a member; NULL for an element of a list. */
void json_next(struct json *json, const char *name); /* the caller prints the value */
void json_open(struct json *json, const char *name, char bracket);
void json_close(struct json *json, char bracket);
/* This text, a line end say, before what comes next. */
void json_break(struct json *json, const char *text);

void json_number(struct json *json, const char *name, uint64_t value);
void json_number_or_null(struct json *json, const char *name, uint64_t value, bool known);
void json_integer_or_null(struct json *json, const char *name, int value, bool known);
void json_real_or_null(struct json *json, const char *name, double value, int decimals, bool known);
void json_truth(struct json *json, const char *name, bool value);
/* NULL is null. */
void json_text(struct json *json, const char *name, const char *value);

/* A text alone: in quotes, escaped; what is no UTF-8 becomes U+FFFD. NULL is null. */
void json_quoted(const char *text, bool script);

#endif
