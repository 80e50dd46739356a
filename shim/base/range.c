// SPDX-License-Identifier: Apache-2.0
/*
 * A treap of free ranges ordered by start. Each node carries the longest range in its subtree, so that the first free
 * range of at least n is found by one walk from the root. All changes are a split at a key and a merge of two trees.
 */
#include "shim/base/range.h"

#include <stdlib.h>

static uint64_t range_longest(const struct range_node *node)
{
	return node ? node->longest : 0;
}

static void range_refresh(struct range_node *node)
{
	node->longest = node->length;
	if (range_longest(node->left) > node->longest)
		node->longest = range_longest(node->left);
	if (range_longest(node->right) > node->longest)
		node->longest = range_longest(node->right);
}

static void spare_put(struct range_set *set, struct range_node *node)
{
	node->left = set->spare;
	set->spare = node;
}

static bool spare_add(struct range_set *set)
{
	struct range_node *node = malloc(sizeof(*node));

	if (node)
		spare_put(set, node);
	return node != NULL;
}

static struct range_node *spare_get(struct range_set *set, uint64_t start, uint64_t length)
{
	struct range_node *node = set->spare;

	set->spare = node->left;
	/* xorshift64 is cheap, and only the depth of the tree depends on it. */
	set->random ^= set->random << 13;
	set->random ^= set->random >> 7;
	set->random ^= set->random << 17;
	*node = (struct range_node){.start = start, .length = length, .longest = length, .priority = set->random};
	return node;
}

static void spare_free(struct range_set *set)
{
	struct range_node *node = set->spare;

	set->spare = node->left;
	free(node);
}

/* Splits into nodes that start below key, left, and the others, right. */
static void range_split(struct range_node *node, uint64_t key, struct range_node **ret_left,
			struct range_node **ret_right)
{
	if (!node) {
		*ret_left = *ret_right = NULL;
	} else if (node->start < key) {
		range_split(node->right, key, &node->right, ret_right);
		*ret_left = node;
		range_refresh(node);
	} else {
		range_split(node->left, key, ret_left, &node->left);
		*ret_right = node;
		range_refresh(node);
	}
}

static struct range_node *range_merge(struct range_node *left, struct range_node *right)
{
	if (!left || !right)
		return left ? left : right;
	if (left->priority > right->priority) {
		left->right = range_merge(left->right, right);
		range_refresh(left);
		return left;
	}
	right->left = range_merge(left, right->left);
	range_refresh(right);
	return right;
}

static void range_insert(struct range_set *set, struct range_node *node)
{
	struct range_node *left, *right;

	range_split(set->root, node->start, &left, &right);
	set->root = range_merge(range_merge(left, node), right);
}

/* Removes the node that starts at `start` from the tree. */
static struct range_node *range_extract(struct range_set *set, uint64_t start)
{
	struct range_node *left, *node, *right;

	range_split(set->root, start, &left, &right);
	range_split(right, start + 1, &node, &right);
	set->root = range_merge(left, right);
	return node;
}

bool range_init(struct range_set *set, uint64_t length)
{
	*set = (struct range_set){.random = 0x9e3779b97f4a7c15};
	if (!spare_add(set))
		return false;
	range_insert(set, spare_get(set, 0, length));
	return true;
}

static void free_nodes(struct range_node *node)
{
	if (!node)
		return;
	free_nodes(node->left);
	free_nodes(node->right);
	free(node);
}

void range_fini(struct range_set *set)
{
	free_nodes(set->root);
	while (set->spare)
		spare_free(set);
	*set = (struct range_set){0};
}

/*
 * Takes from the first range that is long enough. It begins later then, and still before the next one, so it keeps its
 * place in the tree. Returns what is left of it.
 */
static uint64_t take_first(struct range_node *node, uint64_t length, uint64_t *ret_start)
{
	uint64_t left;

	if (node->left && node->left->longest >= length) {
		left = take_first(node->left, length, ret_start);
	} else if (node->length >= length) {
		*ret_start = node->start;
		node->start += length;
		left = node->length -= length;
	} else {
		left = take_first(node->right, length, ret_start);
	}
	range_refresh(node);
	return left;
}

bool range_take(struct range_set *set, uint64_t length, uint64_t *ret_start)
{
	if (!length || !set->root || set->root->longest < length || !spare_add(set))
		return false;
	if (!take_first(set->root, length, ret_start))
		spare_put(set, range_extract(set, *ret_start + length));
	return true;
}

bool range_take_at(struct range_set *set, uint64_t start, uint64_t length)
{
	if (!length || !spare_add(set))
		return false;
	struct range_node *node = range_extract(set, start);
	bool fits = node && node->length >= length;
	if (fits) {
		node->start += length;
		node->length -= length;
	} else {
		spare_free(set);
	}
	if (node && node->length) {
		range_refresh(node);
		range_insert(set, node);
	} else if (node) {
		spare_put(set, node);
	}
	return fits;
}

void range_join(struct range_set *set)
{
	spare_free(set);
}

/* Returns the last node that starts below key. */
static struct range_node *range_before(struct range_node *node, uint64_t key)
{
	struct range_node *found = NULL;

	while (node) {
		if (node->start < key) {
			found = node;
			node = node->right;
		} else {
			node = node->left;
		}
	}
	return found;
}

void range_give(struct range_set *set, uint64_t start, uint64_t length)
{
	struct range_node *left = range_before(set->root, start);
	struct range_node *right = range_extract(set, start + length);

	if (left && left->start + left->length == start) {
		left = range_extract(set, left->start);
		start = left->start;
		length += left->length;
		spare_put(set, left);
	}
	if (right) {
		length += right->length;
		spare_put(set, right);
	}
	range_insert(set, spare_get(set, start, length));
	/* One node was reserved when this range was taken; a node that joining left over is freed. */
	if (set->spare)
		spare_free(set);
}
