/*
 * Describes syntax errors of a policy in helpful words: checks for what libyaml reports badly, and translations of
 * its messages.
 */
#include "policy/problem.h"

#include <string.h>

/* Returns true for a byte that begins a character in UTF-8. */
static bool begins_character(char c)
{
	return ((unsigned char)c & 0xc0) != 0x80;
}

/* Returns true if a line ends with text[i]. "\r\n" ends one line. */
static bool ends_line(const char *text, size_t bytes, size_t i)
{
	return text[i] == '\n' || (text[i] == '\r' && (i + 1 == bytes || text[i + 1] != '\n'));
}

static struct policy_place place_of_offset(const char *text, size_t bytes, size_t offset)
{
	struct policy_place place = {1, 1};

	for (size_t i = 0; i < offset && i < bytes; i++) {
		if (ends_line(text, bytes, i))
			place = (struct policy_place){place.line + 1, 1};
		else if (begins_character(text[i]))
			place.column++;
	}
	return place;
}

/* Returns the character at a place, or a line end if there is none. */
static char character_at(const char *text, size_t bytes, struct policy_place place)
{
	struct policy_place here = {1, 1};

	for (size_t i = 0; i < bytes; i++) {
		if (here.line == place.line && here.column == place.column && begins_character(text[i]))
			return text[i];
		if (ends_line(text, bytes, i))
			here = (struct policy_place){here.line + 1, 1};
		else if (begins_character(text[i]))
			here.column++;
	}
	return '\n';
}

static bool line_check(const char *file, const char *line, size_t length, unsigned number, struct policy_errors *errors)
{
	size_t indent = 0;
	const char *tab;

	while (indent < length && (line[indent] == ' ' || line[indent] == '\t'))
		indent++;
	tab = memchr(line, '\t', indent);
	/* Empty lines and comments may begin with tabs. */
	if (tab && indent < length && line[indent] != '#' && line[indent] != '\r') {
		policy_error_add(errors, file, (struct policy_place){number, (unsigned)(tab - line) + 1},
				 "a tab is used to indent; write spaces");
		return false;
	}
	if (length > 0 && line[0] == '%') {
		policy_error_add(errors, file, (struct policy_place){number, 1},
				 "a directive (%%) has no use in a policy; remove the line");
		return false;
	}
	return true;
}

bool policy_text_check(const char *file, const char *text, size_t bytes, struct policy_errors *errors)
{
	const char *nul = memchr(text, '\0', bytes);
	unsigned number = 1;
	size_t begin = 0;
	bool good = true;

	if (nul) {
		policy_error_add(errors, file, place_of_offset(text, bytes, (size_t)(nul - text)),
				 "the file has a NUL byte in it; write plain text in UTF-8");
		return false;
	}
	for (size_t i = 0; i < bytes; i++) {
		if (!ends_line(text, bytes, i))
			continue;
		good &= line_check(file, text + begin, i - begin, number++, errors);
		begin = i + 1;
	}
	return line_check(file, text + begin, bytes - begin, number, errors) && good;
}

/*
 * Messages of libyaml 0.2.x and the mistakes that cause them. begin: how the message begins; character: the one at
 * the place of the problem, 0 = any. The first match wins.
 */
static const struct explanation {
	const char *begin;
	char character;
	const char *ours;
} explanations[] = {
    {"did not find expected comment or line break", 0,
     "a value that begins with > or | must be in quotes; write size: \">= 64MiB\""},
    {"found character that cannot start any token", '>',
     "a value that begins with > must be in quotes; write \">= 64MiB\""},
    {"found character that cannot start any token", '|', "a value cannot begin with |; write it in quotes"},
    {"found character that cannot start any token", '%',
     "a value cannot begin with %; write the number first, as in 50%"},
    {"found character that cannot start any token", '\t', "a tab is used to indent or align; write spaces"},
    {"found character that cannot start any token", 0, "a value cannot begin with this character; write it in quotes"},
    {"found a tab character", 0, "a tab is used to indent; write spaces"},
    {"mapping values are not allowed", 0,
     "a \":\" is not expected here; write one \"key: value\" a line, keys of one map in one column, and quotes around "
     "a value with \": \" in it"},
    {"mapping keys are not allowed", 0, "a key is not expected here; write one \"key: value\" a line"},
    {"block sequence entries are not allowed", 0,
     "a \"- \" is not expected here; write each entry of a list on its own line, all in one column"},
    {"could not find expected ':'", 0, "a key without \":\" stands before this; write \"key: value\""},
    {"did not find expected key", 0,
     "a key was expected; write \"key: value\" in the same column as the keys above it"},
    {"did not find expected '-' indicator", 0,
     "\"- \" was expected; write it in the same column as the entries above it"},
    {"did not find expected ',' or ']'", 0, "a list begun with [ goes wrong here; write \",\" or \"]\""},
    {"did not find expected ',' or '}'", 0, "a map begun with { goes wrong here; write \",\" or \"}\""},
    {"did not find expected node content", 0, "a value was expected; write one, or remove the last \",\" or \":\""},
    {"did not find expected <document start>", 0,
     "the text goes on after its end; write every key in the first column"},
    {"did not find expected alphabetic or numeric", 0,
     "a value that begins with & or * must be in quotes; write \"*\""},
    {"found unexpected end of stream", 0, "a quote is not closed; write the second quote"},
    {"found unexpected document indicator", 0, "a quote is not closed; write the second quote"},
    {"found unknown escape character", 0, "an unknown \\ sequence; write \\\\ for a backslash, or use single quotes"},
    {"found undefined tag handle", 0,
     "a tag (!name) has no use in a policy; write a value that begins with ! in quotes"},
    {"control characters are not allowed", 0, "a control character; write plain text in UTF-8"},
    {"invalid", 0, "this is not UTF-8; save the file as UTF-8 text"},
    {"incomplete UTF-8", 0, "this is not UTF-8; save the file as UTF-8 text"},
};

static const char *problem_explain(const char *problem, char character)
{
	for (size_t i = 0; i < sizeof(explanations) / sizeof(*explanations); i++) {
		const struct explanation *e = &explanations[i];

		if (strncmp(problem, e->begin, strlen(e->begin)) == 0 && (!e->character || e->character == character))
			return e->ours;
	}
	return NULL;
}

void policy_problem_add(const char *file, const char *text, size_t bytes, const yaml_parser_t *parser,
			struct policy_errors *errors)
{
	const char *problem = parser->problem ? parser->problem : "unknown problem", *ours;
	struct policy_place place = {(unsigned)parser->problem_mark.line + 1,
				     (unsigned)parser->problem_mark.column + 1};
	unsigned begun = (unsigned)parser->context_mark.line + 1;

	if (parser->error == YAML_MEMORY_ERROR) {
		policy_error_add(errors, file, (struct policy_place){0}, "out of memory while reading; try again");
		return;
	}
	/* For an error of the reader libyaml gives an offset in bytes, not a mark. */
	if (parser->error == YAML_READER_ERROR) {
		place = place_of_offset(text, bytes, parser->problem_offset);
		begun = place.line;
	}
	ours = problem_explain(problem, character_at(text, bytes, place));
	if (!ours)
		policy_error_add(errors, file, place, "not valid YAML (%s); write \"key: value\" lines", problem);
	else if (parser->context && begun < place.line)
		policy_error_add(errors, file, place, "%s (what is wrong began on line %u)", ours, begun);
	else
		policy_error_add(errors, file, place, "%s", ours);
}
