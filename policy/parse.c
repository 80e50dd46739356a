/*
 * The tree is walked once against the tables of keys. A map's keys may be dotted or nested; either way they come to one
 * full name, under which values are looked up and keys given twice are found. Nothing here knows a key by name.
 */
#include "policy/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/decide.h"
#include "policy/keys.h"
#include "policy/text.h"
#include "policy/tree.h"

/* One map that keys of a table are read from, with the maps nested in it. */
struct walk {
	const char *file;
	struct policy_errors *errors;
	struct policy *policy;
	const struct policy_keys *keys;
	void *target;                              /* what the table describes */
	char who[32];                              /* in front of a key in messages: "rule 3: " or "" */
	struct policy_place seen[POLICY_MAX_KEYS]; /* line 0: not yet */
};

static void rules_walk(struct walk *w, const struct policy_node *list);

/* A value that may be written for a key, for messages. */
static const char *example(const struct policy_key *key)
{
	if (key->type == POLICY_TYPE_CONDITION)
		return "\">= 64MiB\"";
	if (key->type == POLICY_TYPE_TEXT)
		return "some text";
	return key->standard ? key->standard : policy_value_next(key->set, NULL)->name;
}

static void value_walk(struct walk *w, const struct policy_key *key, const struct policy_node *value)
{
	char why[POLICY_MAX_WHY];

	if (value->kind == POLICY_NODE_BAD)
		return;
	if (key->type == POLICY_TYPE_RULES) {
		rules_walk(w, value);
		return;
	}
	if (value->kind != POLICY_NODE_SCALAR)
		policy_error_add(w->errors, w->file, value->place,
				 "%s%s: one value was expected, not a %s; write %s: %s", w->who, key->name,
				 value->kind == POLICY_NODE_LIST ? "list" : "map", key->name, example(key));
	else if (!policy_value_parse(key, value->text, w->target, why))
		policy_error_add(w->errors, w->file, value->place, "%s%s: %s", w->who, key->name, why);
}

/* The first key of a map with the same text as key, which is in the map. */
static const struct policy_node *first_alike(const struct policy_node *map, const struct policy_node *key)
{
	const struct policy_node *k = map->first;

	while (k != key && (k->kind != POLICY_NODE_SCALAR || strcmp(k->text, key->text) != 0))
		k = k->next->next;
	return k;
}

static void report_twice(struct walk *w, const char *name, struct policy_place here, struct policy_place first)
{
	policy_error_add(w->errors, w->file, here,
			 "%s%s is given twice, first in line %u column %u; remove one of them", w->who, name,
			 first.line, first.column);
}

static void report_unknown(struct walk *w, const char *prefix, const char *name, struct policy_place place)
{
	char hint[POLICY_MAX_WHY], quoted[POLICY_QUOTED_BYTES];

	policy_key_hint(w->keys, prefix, name, hint);
	policy_error_add(w->errors, w->file, place, "%sunknown key %s; %s", w->who, policy_quote(name, quoted), hint);
}

/* A key of the table that lies in a section. */
static const struct policy_key *first_in_section(const struct policy_keys *keys, const char *name)
{
	const struct policy_key *key = keys->keys;

	while (strncmp(key->name, name, strlen(name)) != 0 || key->name[strlen(name)] != '.')
		key++;
	return key;
}

static void map_walk(struct walk *w, const struct policy_node *map, const char *prefix);

static void section_walk(struct walk *w, const struct policy_node *map, const struct policy_node *key, const char *name)
{
	const struct policy_node *value = key->next, *first = first_alike(map, key);
	const struct policy_key *inside = first_in_section(w->keys, name);
	char prefix[POLICY_MAX_KEY + 2];

	if (first != key)
		report_twice(w, name, key->place, first->place);
	if (value->kind == POLICY_NODE_BAD)
		return;
	if (value->kind != POLICY_NODE_MAP) {
		policy_error_add(w->errors, w->file, value->place, "%s%s is a group of keys, not a value; write %s: %s",
				 w->who, name, inside->name, example(inside));
		return;
	}
	if (value->complete && value->n == 0)
		policy_error_add(w->errors, w->file, value->place, "%s%s is empty; remove it, or write %s: %s", w->who,
				 name, inside->name, example(inside));
	snprintf(prefix, sizeof(prefix), "%s.", name);
	map_walk(w, value, prefix);
}

/* One key of a map, with its value behind it. prefix: of the maps around it, "" or "device.". */
static void pair_walk(struct walk *w, const struct policy_node *map, const struct policy_node *key, const char *prefix)
{
	char name[POLICY_MAX_KEY + 1], quoted[POLICY_QUOTED_BYTES];
	int index;

	if (key->kind == POLICY_NODE_BAD)
		return;
	if (key->kind != POLICY_NODE_SCALAR) {
		policy_error_add(w->errors, w->file, key->place,
				 "%sa key must be plain text, not a list or a map; write key: value", w->who);
		return;
	}
	if ((size_t)snprintf(name, sizeof(name), "%s%s", prefix, key->text) >= sizeof(name)) {
		policy_error_add(w->errors, w->file, key->place,
				 "%sunknown key %s; remove it, no key is as long as that", w->who,
				 policy_quote(key->text, quoted));
		return;
	}
	index = policy_key_find(w->keys, name);
	if (index < 0 && policy_key_is_section(w->keys, name)) {
		section_walk(w, map, key, name);
	} else if (index < 0) {
		report_unknown(w, prefix, name, key->place);
	} else if (w->seen[index].line) {
		report_twice(w, name, key->place, w->seen[index]);
	} else {
		w->seen[index] = key->place;
		value_walk(w, &w->keys->keys[index], key->next);
	}
}

static void map_walk(struct walk *w, const struct policy_node *map, const char *prefix)
{
	/* A key without a value is where the text broke off. */
	for (const struct policy_node *key = map->first; key && key->next; key = key->next->next)
		pair_walk(w, map, key, prefix);
}

static void rule_walk(struct walk *outer, const struct policy_node *node, size_t number, struct policy_rule *rule)
{
	struct walk w = {.file = outer->file, .errors = outer->errors, .keys = &policy_rule_keys, .target = rule};

	rule->line = node->place.line;
	rule->column = node->place.column;
	policy_keys_standard(w.keys, rule);
	if (node->kind == POLICY_NODE_BAD)
		return;
	snprintf(w.who, sizeof(w.who), "rule %zu: ", number);
	if (node->kind != POLICY_NODE_MAP) {
		policy_error_add(w.errors, w.file, node->place,
				 "%sa rule is a map; write - {match: {size: \">= 64MiB\"}, use: driver}", w.who);
		return;
	}
	map_walk(&w, node, "");
	for (size_t i = 0; i < w.keys->n && node->complete; i++)
		if (!w.keys->keys[i].standard && !w.seen[i].line)
			policy_error_add(w.errors, w.file, node->place, "%s\"%s\" is missing; write %s: %s", w.who,
					 w.keys->keys[i].name, w.keys->keys[i].name, example(&w.keys->keys[i]));
	if (!*rule->name)
		snprintf(rule->name, sizeof(rule->name), "rule %zu", number);
}

static void rules_walk(struct walk *w, const struct policy_node *list)
{
	struct policy *policy = w->policy;
	size_t n_before = w->errors->n_errors, n = list->n < POLICY_MAX_RULES ? list->n : POLICY_MAX_RULES, i = 0;

	if (list->kind != POLICY_NODE_LIST) {
		policy_error_add(
		    w->errors, w->file, list->place,
		    "rules: a list was expected; write each rule on a line that begins with \"- \", or remove the key");
		return;
	}
	policy->rules = calloc(n + 1, sizeof(*policy->rules));
	policy->ranges = calloc(n + 1, sizeof(*policy->ranges));
	if (!policy->rules || !policy->ranges) {
		policy_error_add(w->errors, w->file, (struct policy_place){0},
				 "out of memory while reading; try again");
		return;
	}
	for (const struct policy_node *node = list->first; node && i < n; node = node->next, i++) {
		rule_walk(w, node, i + 1, &policy->rules[i]);
		policy->ranges[i] = policy->rules[i].size;
	}
	policy->n_rules = i;
	/* A rule whose condition could not be read would look as if it matched everything. */
	if (w->errors->n_errors == n_before)
		policy_warn_unreachable(policy, w->file, w->errors);
}

void policy_parse(const char *file, const char *text, size_t bytes, struct policy *policy, struct policy_errors *errors)
{
	struct walk w = {.file = file, .errors = errors, .policy = policy, .keys = &policy_file_keys, .target = policy};
	size_t n_before = errors->n_errors;
	struct policy_tree tree;

	policy_tree_read(file, text, bytes, &tree, errors);
	if (errors->n_errors == n_before && (!tree.root || (tree.root->kind == POLICY_NODE_MAP && tree.root->n == 0)))
		policy_error_add(errors, file, (struct policy_place){0}, "nothing is in it; write at least version: 1");
	else if (tree.root && tree.root->kind == POLICY_NODE_MAP)
		map_walk(&w, tree.root, "");
	else if (tree.root && tree.root->kind != POLICY_NODE_BAD)
		policy_error_add(errors, file, tree.root->place,
				 "a policy is a map of keys; write lines of \"key: value\", as in version: 1");
	policy_tree_free(&tree);
}
