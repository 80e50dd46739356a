// SPDX-License-Identifier: Apache-2.0
/* parse.h: reads text into a policy. Private to this folder, except for the tests and the fuzzer. */
#ifndef POLICY_PARSE_H
#define POLICY_PARSE_H

#include "policy/model.h"

/* A text that is being read. */
struct policy_source {
	const char *file; /* name in messages; includes are searched for in its folder */
	unsigned index;   /* index of that name in policy->files */
	unsigned depth;   /* number of files that include this one, directly or not; 0: the policy itself */
	struct policy *policy;
	struct policy_errors *errors;
};

/*
 * Reads YAML text into policy, which must be new (policy_new()): this text becomes its first file. Problems are added
 * to errors, and then policy is only partly filled. real_path: of the file; NULL if the text is not a file.
 */
void policy_parse(const char *file, const char *real_path, const char *text, size_t bytes, struct policy *policy,
		  struct policy_errors *errors);

/*
 * Applies "key=value,key=value" on top of a policy. Problems are reported for the file "SPILLWAY_SET", with the
 * column of the key, from 1.
 */
void policy_set_parse(const char *set, struct policy *policy, struct policy_errors *errors);

/* As policy_read(), for a text in memory; name becomes the policy's name and the file of its problems. */
struct policy *policy_read_text(const char *name, const char *text, size_t bytes, const char *set,
				struct policy_errors *errors);

/*
 * Reads a regular file of at most 1 MiB; never blocks on a FIFO or a device. Returns the text, which the caller
 * frees, or NULL: then ret_why (POLICY_MAX_WHY bytes) says why.
 */
char *policy_file_read(const char *path, size_t *ret_bytes, char *ret_why);
/*
 * The same in two steps: the first returns a descriptor, or -1 and errno; the second closes it. folder: where a
 * relative path begins.
 */
int policy_file_open(int folder, const char *path);
char *policy_file_read_open(int fd, size_t *ret_bytes, char *ret_why);

/* Returns a policy with the standard values and nothing else, or NULL without memory. */
struct policy *policy_new(const char *name);

/*
 * ---- the tree of YAML: yaml.c ----
 * It refuses everything that a policy does not use: anchors, aliases, tags, directives, several documents, deep
 * nesting, endless maps. The caller of policy_tree_read() owns the tree until policy_tree_free(); nodes and their texts
 * live as long as the tree.
 */

struct policy_node {
	enum policy_node_kind {
		POLICY_NODE_SCALAR,
		POLICY_NODE_LIST,
		POLICY_NODE_MAP,
		POLICY_NODE_BAD, /* already reported: the reader skips it */
	} kind;
	struct policy_place place;
	bool complete; /* false if the text ends inside, so missing keys are not reported */
	size_t n;      /* children; a map has key, value, ..., and an odd number only if the text ends inside */
	struct policy_node *first, *last, *next;
	struct policy_node *made; /* the one that was made before, of all */
	char text[];              /* of a scalar, terminated; else "" */
};

struct policy_tree {
	struct policy_node *root; /* NULL if the text is empty, or an error came first */
	struct policy_node *made; /* all nodes */
};

/* Reads text into a tree. Problems are added to errors; the tree holds what could be read before one. */
void policy_tree_read(const char *file, const char *text, size_t bytes, struct policy_tree *ret_tree,
		      struct policy_errors *errors);
void policy_tree_free(struct policy_tree *tree);

#endif
