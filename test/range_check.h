// SPDX-License-Identifier: Apache-2.0
/* range_check.h: whether a set of free ranges is consistent. */
#ifndef SPILLWAY_TEST_RANGE_CHECK_H
#define SPILLWAY_TEST_RANGE_CHECK_H

#include "shim/base/range.h"

/* *least: where the next range may begin; what is just behind another would have been joined. */
static inline bool range_node_is_valid(const struct range_node *node, uint64_t *least, uint64_t *total)
{
	if (!node)
		return true;
	if (!range_node_is_valid(node->left, least, total) || !node->length || node->start < *least)
		return false;
	*least = node->start + node->length + 1;
	*total += node->length;
	uint64_t longest = node->length;
	if (node->left && node->left->longest > longest)
		longest = node->left->longest;
	if (node->right && node->right->longest > longest)
		longest = node->right->longest;
	return longest == node->longest && range_node_is_valid(node->right, least, total);
}

/* Returns whether ranges are ordered, disjoint and joined, and `longest` is right; and the sum of their lengths. */
static inline bool range_is_valid(const struct range_set *set, uint64_t *ret_free)
{
	uint64_t least = 0;

	*ret_free = 0;
	return range_node_is_valid(set->root, &least, ret_free);
}

#endif
