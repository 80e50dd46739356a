// SPDX-License-Identifier: Apache-2.0
/* From the path of a policy to a tree of YAML: reads the file, explains what is wrong with it, and builds the nodes. */
#include "policy/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

/* ---- the file ---- */

/* Our texts for errors: strerror() depends on the locale and does not say what to do. */
static const struct cause {
	int number;
	const char *text;
} causes[] = {
    {ENOENT, "there is no such file; write the path of one, or the name of a built-in policy"},
    {ENOTDIR, "a part of the path is not a folder; write the path of a file"},
    {EACCES, "it may not be read; allow reading with chmod, or write another path"},
    {ELOOP, "its links go round in a circle; write the path of a file"},
    {ENAMETOOLONG, "the path is too long; write a shorter one"},
    {EMFILE, "too many files are open in this process; close some or raise the limit with ulimit -n"},
};

static char *file_fail(int number, char *ret_why)
{
	snprintf(ret_why, POLICY_MAX_WHY, "it cannot be read (errno %d); write the path of another file", number);
	for (size_t i = 0; i < sizeof(causes) / sizeof(*causes); i++)
		if (causes[i].number == number)
			snprintf(ret_why, POLICY_MAX_WHY, "%s", causes[i].text);
	return NULL;
}

static char *fail_too_large(char *ret_why)
{
	snprintf(ret_why, POLICY_MAX_WHY,
		 "it is larger than 1 MiB, so it is hardly a policy; write the path of a smaller file");
	return NULL;
}

/* The file may shrink or grow while it is read, so only its end counts, not its size. */
static char *read_all(int fd, size_t *ret_bytes, char *ret_why)
{
	char *text = malloc(POLICY_MAX_FILE + 1);
	ssize_t n = 1;

	if (!text)
		return file_fail(ENOMEM, ret_why);
	for (*ret_bytes = 0; n && *ret_bytes <= POLICY_MAX_FILE; *ret_bytes += n > 0 ? (size_t)n : 0) {
		n = read(fd, text + *ret_bytes, POLICY_MAX_FILE + 1 - *ret_bytes);
		if (n < 0 && errno != EINTR)
			break;
	}
	if (n == 0)
		return text;
	int number = errno;
	free(text);
	return n < 0 ? file_fail(number, ret_why) : fail_too_large(ret_why);
}

int policy_file_open(int folder, const char *path)
{
	/* O_NONBLOCK: opening a FIFO without a writer would hang the user's process in its first allocation. */
	return openat(folder, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

char *policy_file_read(const char *path, size_t *ret_bytes, char *ret_why)
{
	return policy_file_read_open(policy_file_open(AT_FDCWD, path), ret_bytes, ret_why);
}

char *policy_file_read_open(int fd, size_t *ret_bytes, char *ret_why)
{
	struct stat status;
	char *text = NULL;

	if (fd < 0)
		return file_fail(errno, ret_why);
	if (fstat(fd, &status) != 0)
		file_fail(errno, ret_why);
	else if (!S_ISREG(status.st_mode))
		snprintf(ret_why, POLICY_MAX_WHY, "it is %s, not a regular file; write the path of a file",
			 S_ISDIR(status.st_mode)    ? "a folder"
			 : S_ISFIFO(status.st_mode) ? "a pipe"
						    : "a device or a socket");
	else if (status.st_size > POLICY_MAX_FILE)
		fail_too_large(ret_why);
	else
		text = read_all(fd, ret_bytes, ret_why);
	close(fd);
	return text;
}

/* ---- syntax errors in helpful words: what libyaml reports badly, and its messages in ours ---- */

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

/* Returns the place of that offset. Stops before it at `until`: *offset becomes that of what is returned. */
static struct policy_place place_at(const char *text, size_t bytes, struct policy_place until, size_t *offset)
{
	struct policy_place place = {1, 1};
	size_t i = 0;

	for (; i < bytes && i < *offset; i++) {
		bool begins = begins_character(text[i]);

		if (begins && place.line == until.line && place.column == until.column)
			break;
		if (ends_line(text, bytes, i))
			place = (struct policy_place){place.line + 1, 1};
		else
			place.column += begins;
	}
	*offset = i;
	return place;
}

static struct policy_place place_of_offset(const char *text, size_t bytes, size_t offset)
{
	return place_at(text, bytes, POLICY_WHOLE, &offset);
}

static bool line_check(const char *file, const char *line, size_t length, unsigned number, struct policy_errors *errors)
{
	size_t indent = 0;

	while (indent < length && (line[indent] == ' ' || line[indent] == '\t'))
		indent++;
	const char *tab = memchr(line, '\t', indent);
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

/*
 * Checks for what libyaml reports badly or spends long on: NUL bytes, tabs used to indent, directives. Returns false
 * if it found one and added it to errors; reading such a text further is useless.
 */
static bool text_check(const char *file, const char *text, size_t bytes, struct policy_errors *errors)
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

/* Adds the error that libyaml stopped with, in our words if the error is a known one. */
static void problem_add(const char *file, const char *text, size_t bytes, const yaml_parser_t *parser,
			struct policy_errors *errors)
{
	const char *problem = parser->problem ? parser->problem : "unknown problem", *ours;
	struct policy_place place = {(unsigned)parser->problem_mark.line + 1,
				     (unsigned)parser->problem_mark.column + 1};
	unsigned begun = (unsigned)parser->context_mark.line + 1;

	if (parser->error == YAML_MEMORY_ERROR) {
		policy_error_add(errors, file, POLICY_WHOLE, POLICY_NO_MEMORY);
		return;
	}
	/* For an error of the reader libyaml gives an offset in bytes, not a mark. */
	if (parser->error == YAML_READER_ERROR) {
		place = place_of_offset(text, bytes, parser->problem_offset);
		begun = place.line;
	}
	size_t at = bytes;
	place_at(text, bytes, place, &at);
	ours = problem_explain(problem, at < bytes ? text[at] : '\n');
	if (!ours)
		policy_error_add(errors, file, place, "not valid YAML (%s); write \"key: value\" lines", problem);
	else if (parser->context && begun < place.line)
		policy_error_add(errors, file, place, "%s (what is wrong began on line %u)", ours, begun);
	else
		policy_error_add(errors, file, place, "%s", ours);
}

/*
 * ---- the tree ---- Made of libyaml's events. Its documents are not used: they resolve aliases, by which ten lines can
 * grow to gigabytes, do not limit the depth, and are not there at all if an error comes at the end.
 */

struct builder {
	const char *file;
	struct policy_errors *errors;
	struct policy_tree *tree;
	struct policy_node *open[POLICY_MAX_DEPTH];
	unsigned depth;
	bool stop; /* further reading is useless */
};

static struct policy_place place_of(const yaml_mark_t *mark)
{
	return (struct policy_place){(unsigned)mark->line + 1, (unsigned)mark->column + 1};
}

/* Adds a problem at a place in the text. */
#define PROBLEM(b, place, ...) policy_error_add((b)->errors, (b)->file, place, __VA_ARGS__)

/* Adds a node to the innermost open one. If there are too many, the first is reported and all are dropped. */
static void tree_attach(struct builder *b, struct policy_node *node)
{
	struct policy_node *parent = b->depth ? b->open[b->depth - 1] : NULL;

	if (!parent) {
		b->tree->root = node;
		return;
	}
	size_t limit = parent->kind == POLICY_NODE_MAP ? 2 * POLICY_MAX_MAP : POLICY_MAX_RULES;
	if (parent->n > limit)
		return;
	if (parent->n++ == limit) {
		if (parent->kind == POLICY_NODE_MAP)
			PROBLEM(b, node->place, "a map of more than %d keys; write fewer", POLICY_MAX_MAP);
		else
			PROBLEM(b, node->place, "a list of more than %d entries; write fewer rules", POLICY_MAX_RULES);
		return;
	}
	if (parent->last)
		parent->last->next = node;
	else
		parent->first = node;
	parent->last = node;
}

/* text: NULL, or that of a scalar. */
static struct policy_node *add_node(struct builder *b, enum policy_node_kind kind, const yaml_mark_t *mark,
				    const char *text)
{
	size_t length = text ? strlen(text) : 0;
	struct policy_node *node = calloc(1, sizeof(*node) + length + 1);

	if (!node) {
		PROBLEM(b, POLICY_WHOLE, POLICY_NO_MEMORY);
		b->stop = true;
		return NULL;
	}
	*node = (struct policy_node){.kind = kind, .place = place_of(mark), .complete = true, .made = b->tree->made};
	b->tree->made = node;
	if (text)
		memcpy(node->text, text, length);
	tree_attach(b, node);
	return node;
}

/* Anchors and tags may be on nodes of every kind. */
static void refuse_extras(struct builder *b, const yaml_mark_t *mark, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (anchor)
		PROBLEM(b, place_of(mark),
			"an anchor (&name) has no use in a policy; remove it and write the value in full");
	if (tag)
		PROBLEM(b, place_of(mark), "a tag (!name) has no use in a policy; remove it and write the value alone");
}

static void add_scalar(struct builder *b, const yaml_event_t *event)
{
	const char *value = (const char *)event->data.scalar.value;
	size_t length = event->data.scalar.length;
	bool has_nul = memchr(value, '\0', length) != NULL;

	refuse_extras(b, &event->start_mark, event->data.scalar.anchor, event->data.scalar.tag);
	add_node(b, has_nul ? POLICY_NODE_BAD : POLICY_NODE_SCALAR, &event->start_mark, has_nul ? NULL : value);
	if (has_nul)
		PROBLEM(b, place_of(&event->start_mark), "the text has a NUL character (\\0) in it; write plain text");
}

static void add_alias(struct builder *b, const yaml_event_t *event)
{
	PROBLEM(b, place_of(&event->start_mark),
		"an alias (*name) has no use in a policy; write the value in full, or in quotes if it begins with *");
	add_node(b, POLICY_NODE_BAD, &event->start_mark, NULL);
}

static void open_node(struct builder *b, enum policy_node_kind kind, const yaml_event_t *event)
{
	if (b->depth == POLICY_MAX_DEPTH) {
		PROBLEM(b, place_of(&event->start_mark),
			"lists and maps are nested more than %d deep; write a flat policy, 4 are enough",
			POLICY_MAX_DEPTH);
		b->stop = true;
		return;
	}
	if (kind == POLICY_NODE_LIST)
		refuse_extras(b, &event->start_mark, event->data.sequence_start.anchor, event->data.sequence_start.tag);
	else
		refuse_extras(b, &event->start_mark, event->data.mapping_start.anchor, event->data.mapping_start.tag);
	struct policy_node *node = add_node(b, kind, &event->start_mark, NULL);
	if (!node)
		return;
	node->complete = false;
	b->open[b->depth++] = node;
}

static void start_document(struct builder *b, const yaml_event_t *event, unsigned *n_documents)
{
	if ((*n_documents)++ == 0)
		return;
	PROBLEM(b, place_of(&event->start_mark),
		"a second document begins here; write one policy a file and remove this \"---\"");
	b->stop = true;
}

static void read_event(struct builder *b, const yaml_event_t *event, unsigned *n_documents)
{
	yaml_event_type_t type = event->type;

	if (type == YAML_DOCUMENT_START_EVENT)
		start_document(b, event, n_documents);
	else if (type == YAML_SCALAR_EVENT)
		add_scalar(b, event);
	else if (type == YAML_ALIAS_EVENT)
		add_alias(b, event);
	else if (type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT)
		open_node(b, type == YAML_SEQUENCE_START_EVENT ? POLICY_NODE_LIST : POLICY_NODE_MAP, event);
	else if (type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT)
		b->open[--b->depth]->complete = true;
	else if (type == YAML_STREAM_END_EVENT)
		b->stop = true;
}

void policy_tree_read(const char *file, const char *text, size_t bytes, struct policy_tree *ret_tree,
		      struct policy_errors *errors)
{
	struct builder b = {.file = file, .errors = errors, .tree = ret_tree};
	unsigned n_documents = 0;
	yaml_parser_t parser;

	*ret_tree = (struct policy_tree){0};
	if (!text_check(file, text, bytes, errors))
		return;
	if (!yaml_parser_initialize(&parser)) {
		policy_error_add(errors, file, POLICY_WHOLE, POLICY_NO_MEMORY);
		return;
	}
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	while (!b.stop) {
		yaml_event_t event;

		if (!yaml_parser_parse(&parser, &event)) {
			problem_add(file, text, bytes, &parser, errors);
			break;
		}
		read_event(&b, &event, &n_documents);
		yaml_event_delete(&event);
	}
	yaml_parser_delete(&parser);
}

void policy_tree_free(struct policy_tree *tree)
{
	for (struct policy_node *node = tree->made, *before; node; node = before) {
		before = node->made;
		free(node);
	}
	*tree = (struct policy_tree){0};
}
