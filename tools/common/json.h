/*
 * json.h: writing JSON to stdout. No more than the tool needs: the caller writes the brackets and commas.
 */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

/* text in quotes, escaped; what is no UTF-8 becomes U+FFFD. NULL is null. */
void json_text(const char *text);
/* The same, fit to stand in a <script> of HTML: nothing in it can end that. */
void json_script_text(const char *text);
/* "name": and nothing behind it. */
void json_name(const char *name);

#endif
