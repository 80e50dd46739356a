/*
 * tree.h: reads YAML text into a tree of nodes with places. It refuses everything that a policy does not use:
 * anchors, aliases, tags, directives, several documents, deep nesting, endless maps. Private to this folder.
 *
 * The caller of policy_tree_read() owns the tree until policy_tree_free(); nodes and their texts live as long as the
 * tree.
 */
#ifndef POLICY_TREE_H
#define POLICY_TREE_H

#include "policy/error.h"

struct policy_node {
	enum policy_node_kind {
		POLICY_NODE_SCALAR,
		POLICY_NODE_LIST,
		POLICY_NODE_MAP,
		POLICY_NODE_BAD, /* already reported: the reader skips it */
	} kind;
	struct policy_place place;
	bool complete;    /* false if the text ends inside, so missing keys are not reported */
	const char *text; /* for a scalar, terminated */
	size_t n;         /* children; a map has key, value, ..., and an odd number only if the text ends inside */
	struct policy_node *first, *last, *next;
};

struct policy_tree {
	struct policy_node *root; /* NULL if the text is empty, or an error came first */
	struct policy_block *blocks;
};

/* Reads text into a tree. Problems are added to errors; the tree holds what could be read before one. */
void policy_tree_read(const char *file, const char *text, size_t bytes, struct policy_tree *ret_tree,
		      struct policy_errors *errors);
void policy_tree_free(struct policy_tree *tree);

#endif
