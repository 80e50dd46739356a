/*
 * tree.h: YAML text as a tree of nodes with places, less everything that a policy has no use for: anchors, aliases, tags,
 * directives, several documents, deep nesting, endless maps. Private to this folder.
 *
 * Owner: the caller of policy_tree_read(), until policy_tree_free(); nodes and their texts live as long as the tree.
 */
#ifndef POLICY_TREE_H
#define POLICY_TREE_H

#include "policy/error.h"

struct policy_node {
	enum policy_node_kind {
		POLICY_NODE_SCALAR,
		POLICY_NODE_LIST,
		POLICY_NODE_MAP,
		POLICY_NODE_BAD, /* already complained about: pass over it in silence */
	} kind;
	struct policy_place place;
	bool complete;    /* false: the text broke off inside, so nothing can be said about what is missing */
	const char *text; /* of a scalar, terminated */
	size_t n;         /* children; a map has key, value, key, value, and an odd number only if it broke off */
	struct policy_node *first, *last, *next;
};

struct policy_tree {
	struct policy_node *root; /* NULL: nothing was there, or an error came before it */
	struct policy_block *blocks;
};

/* Read text into a tree. Every problem is noted in errors; what could be read before one is in the tree. */
void policy_tree_read(const char *file, const char *text, size_t bytes, struct policy_tree *ret_tree,
		      struct policy_errors *errors);
void policy_tree_free(struct policy_tree *tree);

#endif
