/*
 * Builds the tree of nodes from libyaml's events. libyaml's documents are not used: they resolve aliases, by which
 * ten lines can grow to gigabytes, and do not limit the depth. Nodes are allocated from blocks that are freed
 * together.
 */
#include "policy/tree.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "policy/model.h"
#include "policy/problem.h"

enum { BLOCK_BYTES = 1 << 16 };

struct policy_block {
	struct policy_block *next;
	size_t used, bytes;
	_Alignas(max_align_t) char data[];
};

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

static void *tree_take(struct builder *b, size_t bytes)
{
	struct policy_block *block = b->tree->blocks;
	void *memory;

	bytes = (bytes + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
	if (!block || block->bytes - block->used < bytes) {
		size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;

		block = malloc(sizeof(*block) + room);
		if (!block) {
			policy_error_add(b->errors, b->file, (struct policy_place){0},
					 "out of memory while reading; try again");
			b->stop = true;
			return NULL;
		}
		block->used = 0;
		block->bytes = room;
		block->next = b->tree->blocks;
		b->tree->blocks = block;
	}
	memory = block->data + block->used;
	block->used += bytes;
	return memory;
}

/* Adds a node to the innermost open one. If there are too many, the first is reported and all are dropped. */
static void tree_attach(struct builder *b, struct policy_node *node)
{
	struct policy_node *parent = b->depth ? b->open[b->depth - 1] : NULL;
	size_t limit;

	if (!parent) {
		b->tree->root = node;
		return;
	}
	limit = parent->kind == POLICY_NODE_MAP ? 2 * POLICY_MAX_MAP : POLICY_MAX_RULES;
	if (parent->n > limit)
		return;
	if (parent->n++ == limit) {
		if (parent->kind == POLICY_NODE_MAP)
			policy_error_add(b->errors, b->file, node->place, "a map of more than %d keys; write fewer",
					 POLICY_MAX_MAP);
		else
			policy_error_add(b->errors, b->file, node->place,
					 "a list of more than %d entries; write fewer rules", POLICY_MAX_RULES);
		return;
	}
	if (parent->last)
		parent->last->next = node;
	else
		parent->first = node;
	parent->last = node;
}

static struct policy_node *add_node(struct builder *b, enum policy_node_kind kind, const yaml_mark_t *mark)
{
	struct policy_node *node = tree_take(b, sizeof(*node));

	if (!node)
		return NULL;
	*node = (struct policy_node){.kind = kind, .place = place_of(mark), .complete = true, .text = ""};
	tree_attach(b, node);
	return node;
}

/* Anchors and tags may be on nodes of every kind. */
static void refuse_extras(struct builder *b, const yaml_mark_t *mark, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (anchor)
		policy_error_add(b->errors, b->file, place_of(mark),
				 "an anchor (&name) has no use in a policy; remove it and write the value in full");
	if (tag)
		policy_error_add(b->errors, b->file, place_of(mark),
				 "a tag (!name) has no use in a policy; remove it and write the value alone");
}

static void add_scalar(struct builder *b, const yaml_event_t *event)
{
	const char *value = (const char *)event->data.scalar.value;
	size_t length = event->data.scalar.length;
	bool has_nul = memchr(value, '\0', length) != NULL;
	struct policy_node *node;
	char *text;

	refuse_extras(b, &event->start_mark, event->data.scalar.anchor, event->data.scalar.tag);
	node = add_node(b, has_nul ? POLICY_NODE_BAD : POLICY_NODE_SCALAR, &event->start_mark);
	if (has_nul)
		policy_error_add(b->errors, b->file, place_of(&event->start_mark),
				 "the text has a NUL character (\\0) in it; write plain text");
	if (!node || has_nul)
		return;
	text = tree_take(b, length + 1);
	if (!text)
		return;
	memcpy(text, value, length);
	text[length] = '\0';
	node->text = text;
}

static void add_alias(struct builder *b, const yaml_event_t *event)
{
	policy_error_add(
	    b->errors, b->file, place_of(&event->start_mark),
	    "an alias (*name) has no use in a policy; write the value in full, or in quotes if it begins with *");
	add_node(b, POLICY_NODE_BAD, &event->start_mark);
}

static void open_node(struct builder *b, enum policy_node_kind kind, const yaml_event_t *event)
{
	struct policy_node *node;

	if (b->depth == POLICY_MAX_DEPTH) {
		policy_error_add(b->errors, b->file, place_of(&event->start_mark),
				 "lists and maps are nested more than %d deep; write a flat policy, 4 are enough",
				 POLICY_MAX_DEPTH);
		b->stop = true;
		return;
	}
	if (kind == POLICY_NODE_LIST)
		refuse_extras(b, &event->start_mark, event->data.sequence_start.anchor, event->data.sequence_start.tag);
	else
		refuse_extras(b, &event->start_mark, event->data.mapping_start.anchor, event->data.mapping_start.tag);
	node = add_node(b, kind, &event->start_mark);
	if (!node)
		return;
	node->complete = false;
	b->open[b->depth++] = node;
}

static void start_document(struct builder *b, const yaml_event_t *event, unsigned *n_documents)
{
	if ((*n_documents)++ == 0)
		return;
	policy_error_add(b->errors, b->file, place_of(&event->start_mark),
			 "a second document begins here; write one policy a file and remove this \"---\"");
	b->stop = true;
}

static void read_event(struct builder *b, const yaml_event_t *event, unsigned *n_documents)
{
	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		start_document(b, event, n_documents);
		break;
	case YAML_SCALAR_EVENT:
		add_scalar(b, event);
		break;
	case YAML_ALIAS_EVENT:
		add_alias(b, event);
		break;
	case YAML_SEQUENCE_START_EVENT:
		open_node(b, POLICY_NODE_LIST, event);
		break;
	case YAML_MAPPING_START_EVENT:
		open_node(b, POLICY_NODE_MAP, event);
		break;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		b->open[--b->depth]->complete = true;
		break;
	case YAML_STREAM_END_EVENT:
		b->stop = true;
		break;
	default:
		break;
	}
}

void policy_tree_read(const char *file, const char *text, size_t bytes, struct policy_tree *ret_tree,
		      struct policy_errors *errors)
{
	struct builder b = {.file = file, .errors = errors, .tree = ret_tree};
	unsigned n_documents = 0;
	yaml_parser_t parser;

	*ret_tree = (struct policy_tree){0};
	if (!policy_text_check(file, text, bytes, errors))
		return;
	if (!yaml_parser_initialize(&parser)) {
		policy_error_add(errors, file, (struct policy_place){0}, "out of memory while reading; try again");
		return;
	}
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	while (!b.stop) {
		yaml_event_t event;

		if (!yaml_parser_parse(&parser, &event)) {
			policy_problem_add(file, text, bytes, &parser, errors);
			break;
		}
		read_event(&b, &event, &n_documents);
		yaml_event_delete(&event);
	}
	yaml_parser_delete(&parser);
}

void policy_tree_free(struct policy_tree *tree)
{
	while (tree->blocks) {
		struct policy_block *next = tree->blocks->next;

		free(tree->blocks);
		tree->blocks = next;
	}
	tree->root = NULL;
}
