// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a tree of YAML into a policy, in one walk against the tables of keys. Keys of a map may be dotted or nested;
 * both give one full name, by which values are looked up and duplicate keys are found. The walk knows no key by name
 * except include: the files that a policy includes are read before it, in the order in which they are named. The
 * checks of rules name others. Also settings of one line.
 */
#include "policy/keys.h"
#include "policy/parse.h"
#include "policy/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The walk over one map that holds keys of a table, including the maps nested in it. */
struct walk {
	const struct policy_source *source;
	const struct policy_keys *keys;
	void *target;                              /* the struct that the table describes */
	char who[32];                              /* prefix of a key in messages: "rule 3: " or "" */
	struct policy_place seen[POLICY_MAX_KEYS]; /* by key: where it was seen; line 0: not yet */
	struct policy_origin *origins;             /* by key, of the policy; NULL: of a rule */
};

static void rules_walk(struct walk *w, const struct policy_node *list);
static void limits_walk(struct walk *w, const struct policy_node *map);

/* Adds a problem at a place in the source. */
#define PROBLEM(w, place, ...) policy_error_add((w)->source->errors, (w)->source->file, place, __VA_ARGS__)

static void entry_walk(struct walk *w, const struct policy_key *key, const struct policy_node *value)
{
	char why[POLICY_MAX_WHY];

	if (value->kind == POLICY_NODE_BAD)
		return;
	if (value->kind != POLICY_NODE_SCALAR)
		PROBLEM(w, value->place, "%s%s: one value was expected, not a %s; write %s: %s", w->who, key->name,
			value->kind == POLICY_NODE_LIST ? "list" : "map", key->name, policy_value_example(key));
	else if (!policy_value_add(key, value->text, w->target, why))
		PROBLEM(w, value->place, "%s%s: %s", w->who, key->name, why);
}

static void value_walk(struct walk *w, const struct policy_key *key, const struct policy_node *value)
{
	if (key->set == POLICY_SET_RULES && value->kind != POLICY_NODE_BAD)
		rules_walk(w, value);
	if (key->set == POLICY_SET_LIMITS && value->kind != POLICY_NODE_BAD)
		limits_walk(w, value);
	if (key->type == POLICY_TYPE_PART)
		return;
	/* A list replaces that of an included file, rather than extending it. */
	policy_value_clear(key, w->target);
	if (value->kind != POLICY_NODE_LIST || !policy_value_is_list(key)) {
		entry_walk(w, key, value);
		return;
	}
	if (value->n == 0 && value->complete && strncmp(key->name, "match.", 6) == 0)
		PROBLEM(w, value->place, "%s%s: an empty list matches nothing; write %s: %s, or remove it", w->who,
			key->name, key->name, policy_value_example(key));
	for (const struct policy_node *entry = value->first; entry; entry = entry->next)
		entry_walk(w, key, entry);
}

/* Returns the first key of the map with the same text as key, which is in the map. */
static const struct policy_node *first_alike(const struct policy_node *map, const struct policy_node *key)
{
	const struct policy_node *k = map->first;

	while (k != key && (k->kind != POLICY_NODE_SCALAR || strcmp(k->text, key->text) != 0))
		k = k->next->next;
	return k;
}

static void report_twice(struct walk *w, const char *name, struct policy_place here, struct policy_place first)
{
	PROBLEM(w, here, "%s%s is given twice, first in line %u column %u; remove one of them", w->who, name,
		first.line, first.column);
}

static void report_unknown(struct walk *w, const char *prefix, const char *name, struct policy_place place)
{
	char hint[POLICY_MAX_WHY];

	policy_key_hint(w->keys, prefix, name, hint);
	PROBLEM(w, place, "%sunknown key %s; %s", w->who, policy_quoted(name), hint);
}

static void map_walk(struct walk *w, const struct policy_node *map, const char *prefix);

static void section_walk(struct walk *w, const struct policy_node *map, const struct policy_node *key, const char *name)
{
	const struct policy_node *value = key->next, *first = first_alike(map, key);
	const struct policy_key *inside = policy_key_in_section(w->keys, name);
	char prefix[POLICY_MAX_KEY + 2];

	if (first != key)
		report_twice(w, name, key->place, first->place);
	if (value->kind == POLICY_NODE_BAD)
		return;
	if (value->kind != POLICY_NODE_MAP) {
		PROBLEM(w, value->place, "%s%s is a group of keys, not a value; write %s: %s", w->who, name,
			inside->name, policy_value_example(inside));
		return;
	}
	if (value->complete && value->n == 0)
		PROBLEM(w, value->place, "%s%s is empty; remove it, or write %s: %s", w->who, name, inside->name,
			policy_value_example(inside));
	snprintf(prefix, sizeof(prefix), "%s.", name);
	map_walk(w, value, prefix);
}

/* Reads one key of a map and the value behind it. prefix: that of the surrounding maps, "" or "device.". */
static void pair_walk(struct walk *w, const struct policy_node *map, const struct policy_node *key, const char *prefix)
{
	char name[POLICY_MAX_KEY + 1];

	if (key->kind == POLICY_NODE_BAD)
		return;
	if (key->kind != POLICY_NODE_SCALAR) {
		PROBLEM(w, key->place, "%sa key must be plain text, not a list or a map; write key: value", w->who);
		return;
	}
	if ((size_t)snprintf(name, sizeof(name), "%s%s", prefix, key->text) >= sizeof(name)) {
		PROBLEM(w, key->place, "%sunknown key %s; remove it, no key is as long as that", w->who,
			policy_quoted(key->text));
		return;
	}
	int index = policy_key_find(w->keys, name);
	/* `report` and `share` are each both a key and a section. */
	if ((index < 0 || key->next->kind == POLICY_NODE_MAP) && policy_key_in_section(w->keys, name)) {
		section_walk(w, map, key, name);
	} else if (index < 0) {
		report_unknown(w, prefix, name, key->place);
	} else if (w->seen[index].line) {
		report_twice(w, name, key->place, w->seen[index]);
	} else {
		w->seen[index] = key->place;
		if (w->origins)
			w->origins[index] = (struct policy_origin){POLICY_FROM_FILE, w->source->index, key->place};
		value_walk(w, &w->keys->keys[index], key->next);
	}
}

static void map_walk(struct walk *w, const struct policy_node *map, const char *prefix)
{
	/* A key has no value if the text ends there. */
	for (const struct policy_node *key = map->first; key && key->next; key = key->next->next)
		pair_walk(w, map, key, prefix);
}

/* The uses that can serve memory whose kind the program has chosen itself, as bits of enum policy_use. */
static const struct {
	enum policy_api api;
	unsigned uses;
	const char *why, *write;
} named_apis[] = {
    {POLICY_API_MANAGED, (1u << POLICY_USE_COUNT) - 1 - (1u << POLICY_USE_MANAGED),
     "the driver makes such memory itself", "heap, system, driver or deny"},
    {POLICY_API_HOST, 1u << POLICY_USE_DRIVER | 1u << POLICY_USE_DENY, "it is the driver's own", "driver or deny"},
    {POLICY_API_VMM, 1u << POLICY_USE_DRIVER | 1u << POLICY_USE_DENY, "the program has the handles of it",
     "driver or deny"},
};

static void use_check(struct walk *w, const struct policy_rule *rule, unsigned use, const char *key)
{
	for (size_t i = 0; i < sizeof(named_apis) / sizeof(*named_apis); i++)
		if (rule->apis & 1 << named_apis[i].api && !(named_apis[i].uses & 1u << use))
			PROBLEM(w, w->seen[policy_key_find(w->keys, key)],
				"%s%s: %s cannot serve api %s, for %s; write %s, or a rule of its own for it", w->who,
				key, policy_use_name((enum policy_use)use), policy_api_name(named_apis[i].api),
				named_apis[i].why, named_apis[i].write);
}

/* Reports values of a rule that are each valid but contradict each other. */
static void rule_check(struct walk *w, const struct policy_rule *rule)
{
	const struct policy_uses *fallback = &rule->fallback;
	struct policy_place place = w->seen[policy_key_find(w->keys, "fallback")];

	use_check(w, rule, (unsigned)rule->use, "use");
	for (unsigned i = 0; i < fallback->n; i++) {
		use_check(w, rule, fallback->use[i], "fallback");
		const char *name = policy_use_name((enum policy_use)fallback->use[i]);

		if (fallback->use[i] == rule->use)
			PROBLEM(w, place, "%sfallback: %s is what the rule uses first; remove it", w->who, name);
		else if (fallback->use[i] == POLICY_USE_DENY && i + 1 < fallback->n)
			PROBLEM(w, place, "%sfallback: deny is the end; remove what stands behind it", w->who);
	}
	if (rule->place == POLICY_PLACE_ON_USE && rule->movable == POLICY_MOVABLE_NO)
		PROBLEM(
		    w, w->seen[policy_key_find(w->keys, "movable")],
		    "%smovable: memory that never moves is made at once, and place: on-use makes none; remove one of "
		    "them",
		    w->who);
	if (rule->use == POLICY_USE_DENY && fallback->n)
		PROBLEM(w, place, "%sfallback: a rule that denies asks nobody else; remove it", w->who);
}

/* Reports advice that contradicts itself, in a file or a rule. */
static void advice_check(struct walk *w, const struct policy_managed *managed)
{
	const int both = 1 << POLICY_ADVISE_PREFERRED_DEVICE | 1 << POLICY_ADVISE_PREFERRED_HOST;
	struct policy_place place = w->seen[policy_key_find(w->keys, "managed.advise")];

	if (place.line && (managed->advise & both) == both)
		PROBLEM(w, place, "%smanaged.advise: memory cannot prefer the device and the host; remove one of them",
			w->who);
}

static void rule_walk(struct walk *outer, const struct policy_node *node, size_t number, struct policy_rule *rule)
{
	struct walk w = {.source = outer->source, .keys = &policy_rule_keys, .target = rule};
	size_t n_before = w.source->errors->n_errors;

	rule->file = w.source->index;
	rule->written = node->place;
	rule->number_in_file = (unsigned)number;
	policy_keys_standard(w.keys, rule);
	if (node->kind == POLICY_NODE_BAD)
		return;
	snprintf(w.who, sizeof(w.who), "rule %zu: ", number);
	if (node->kind != POLICY_NODE_MAP) {
		PROBLEM(&w, node->place, "%sa rule is a map; write - {match: {size: \">= 64MiB\"}, use: driver}",
			w.who);
		return;
	}
	map_walk(&w, node, "");
	for (size_t i = 0; i < w.keys->n && node->complete; i++) {
		const struct policy_key *key = &w.keys->keys[i];

		if (w.seen[i].line)
			rule->given |= 1u << i;
		else if (!key->standard)
			PROBLEM(&w, node->place, "%s\"%s\" is missing; write %s: %s", w.who, key->name, key->name,
				policy_value_example(key));
	}
	if (w.source->errors->n_errors == n_before)
		rule_check(&w, rule);
	advice_check(&w, &rule->managed);
}

/* Makes room for n more rules, zeroed. */
static bool rules_grow(struct walk *w, size_t n)
{
	struct policy *policy = w->source->policy;
	struct policy_rule *rules = realloc(policy->rules, (policy->n_rules + n + 1) * sizeof(*rules));

	if (!rules) {
		PROBLEM(w, POLICY_WHOLE, POLICY_NO_MEMORY);
		return false;
	}
	memset(rules + policy->n_rules, 0, (n + 1) * sizeof(*rules));
	policy->rules = rules;
	return true;
}

static void rules_walk(struct walk *w, const struct policy_node *list)
{
	struct policy *policy = w->source->policy;
	size_t n_before = w->source->errors->n_errors, n = 0;

	if (list->kind != POLICY_NODE_LIST) {
		PROBLEM(
		    w, list->place,
		    "rules: a list was expected; write each rule on a line that begins with \"- \", or remove the key");
		return;
	}
	/* The tree limits the list of one file; this limits the sum. */
	if (policy->n_rules + list->n > POLICY_MAX_RULES && list->n <= POLICY_MAX_RULES) {
		PROBLEM(w, list->place, "rules: with those of other files they are more than %d; write fewer",
			POLICY_MAX_RULES);
		return;
	}
	if (!rules_grow(w, list->n))
		return;
	for (const struct policy_node *node = list->first; node; node = node->next) {
		struct policy_rule *rule = &policy->rules[policy->n_rules++];

		rule_walk(w, node, ++n, rule);
		if (!*rule->name)
			snprintf(rule->name, sizeof(rule->name), "rule %zu", policy->n_rules);
	}
	/* If a condition could not be read, its rule would appear to match everything. */
	policy->rules_bad |= w->source->errors->n_errors > n_before;
}

/* Limits that stand elsewhere than in the machine's policy are checked, so that a draft of it can be. */
static void limits_walk(struct walk *outer, const struct policy_node *map)
{
	struct walk w = {.source = outer->source,
			 .keys = &policy_limit_keys,
			 .target = &outer->source->policy->settings,
			 .who = "limits: "};

	if (map->kind != POLICY_NODE_MAP || (map->complete && map->n == 0)) {
		PROBLEM(outer, map->place,
			"limits: a map was expected; write limits: {host.budget: 64GiB}, or remove it");
		return;
	}
	map_walk(&w, map, "");
	if (!policy_machine_is(w.source->file))
		policy_warning_add(w.source->errors, w.source->file, map->place,
				   "limits hold in %s alone; here they limit nothing", policy_machine_path);
}

/* Returns the value of include, or NULL. If it is given twice, the walk over all keys reports that. */
static const struct policy_node *find_include(const struct policy_node *map)
{
	for (const struct policy_node *key = map->first; key && key->next; key = key->next->next)
		if (key->kind == POLICY_NODE_SCALAR && strcmp(key->text, "include") == 0)
			return key->next;
	return NULL;
}

static void source_parse(const struct policy_source *source, const char *text, size_t bytes);

static void include_one(const struct policy_source *outer, const struct policy_node *name);

/* Reads the texts that the value of an include names: one name or a list. */
static void include_walk(const struct policy_source *source, const struct policy_node *value)
{
	if (value->kind != POLICY_NODE_LIST) {
		include_one(source, value);
		return;
	}
	for (const struct policy_node *name = value->first; name; name = name->next)
		include_one(source, name);
}

static void file_walk(const struct policy_source *source, const struct policy_node *map)
{
	struct walk w = {.source = source,
			 .keys = &policy_file_keys,
			 .target = &source->policy->settings,
			 .origins = source->policy->origins};
	const struct policy_node *include = find_include(map);

	if (include)
		include_walk(source, include);
	map_walk(&w, map, "");
	advice_check(&w, &source->policy->settings.managed);
}

static void source_parse(const struct policy_source *source, const char *text, size_t bytes)
{
	struct policy_errors *errors = source->errors;
	size_t n_before = errors->n_errors;
	struct policy_tree tree;

	policy_hash_add(source->policy, text, bytes);
	policy_tree_read(source->file, text, bytes, &tree, errors);
	if (errors->n_errors == n_before && (!tree.root || (tree.root->kind == POLICY_NODE_MAP && tree.root->n == 0)))
		policy_error_add(errors, source->file, POLICY_WHOLE, "nothing is in it; write at least version: 1");
	else if (tree.root && tree.root->kind == POLICY_NODE_MAP)
		file_walk(source, tree.root);
	else if (tree.root && tree.root->kind != POLICY_NODE_BAD)
		policy_error_add(errors, source->file, tree.root->place,
				 "a policy is a map of keys; write lines of \"key: value\", as in version: 1");
	policy_tree_free(&tree);
}

void policy_parse(const char *file, const char *real_path, const char *text, size_t bytes, struct policy *policy,
		  struct policy_errors *errors)
{
	struct policy_source source = {.file = file, .policy = policy, .errors = errors};

	policy->files[0] = strdup(file);
	policy->real_paths[0] = real_path ? strdup(real_path) : NULL;
	policy->n_files = 1;
	if (!policy->files[0] || (real_path && !policy->real_paths[0])) {
		policy_error_add(errors, file, POLICY_WHOLE, POLICY_NO_MEMORY);
		return;
	}
	source_parse(&source, text, bytes);
	if (!policy->rules_bad)
		policy_warn_unreachable(policy, errors);
}

/*
 * ---- include ---- Each file may be included once in a policy, so that the work is bounded by the number of files and
 * not by the number of ways to reach them. Files are compared by real path, which also finds a file that includes
 * itself through others.
 */

__attribute__((format(printf, 4, 5))) static void
fail(const struct policy_source *source, const struct policy_node *name, const char *begin, const char *format, ...)
{
	char text[POLICY_MAX_WHY + POLICY_QUOTED_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	policy_error_add(source->errors, source->file, name->place, "include: %s%s%s", policy_quoted(name->text), begin,
			 text);
}

/*
 * Makes the path of a name in the source's file: relative to that file's folder, unless the name begins with a slash.
 * Returns false if it is too long.
 */
static bool path_of(const struct policy_source *source, const char *name, char path[PATH_MAX])
{
	const char *slash = strrchr(source->file, '/');
	int folder = *name != '/' && slash ? (int)(slash + 1 - source->file) : 0;

	return snprintf(path, PATH_MAX, "%.*s%s", folder, source->file, name) < PATH_MAX;
}

/* Returns true if the file has been read, or is being read, which means that it includes itself. */
static bool is_read(const struct policy_source *source, const char *real_path)
{
	for (unsigned i = 0; i < source->policy->n_files; i++)
		if (source->policy->real_paths[i] && strcmp(source->policy->real_paths[i], real_path) == 0)
			return true;
	return false;
}

/*
 * Adds the file to the policy. Returns false if the policy has too many files, or without memory; the problem has
 * been added.
 */
static bool add_file(const struct policy_source *outer, const struct policy_node *name, const char *path,
		     const char *real_path, struct policy_source *ret_source)
{
	struct policy *policy = outer->policy;

	if (policy->n_files == POLICY_MAX_FILES) {
		fail(outer, name, " ", "is one file too many; a policy may have %d", POLICY_MAX_FILES);
		return false;
	}
	policy->files[policy->n_files] = strdup(path);
	policy->real_paths[policy->n_files] = strdup(real_path);
	if (!policy->files[policy->n_files] || !policy->real_paths[policy->n_files]) {
		free(policy->files[policy->n_files]);
		free(policy->real_paths[policy->n_files]);
		policy_error_add(outer->errors, outer->file, POLICY_WHOLE, POLICY_NO_MEMORY);
		return false;
	}
	*ret_source = *outer;
	ret_source->index = policy->n_files++;
	ret_source->file = policy->files[ret_source->index];
	ret_source->depth++;
	return true;
}

static void include_file(const struct policy_source *outer, const struct policy_node *name)
{
	struct policy_source source;
	char path[PATH_MAX], why[POLICY_MAX_WHY];
	size_t bytes;

	if (!path_of(outer, name->text, path)) {
		fail(outer, name, " ", "is too long a path; write a shorter one");
		return;
	}
	char *real_path = realpath(path, NULL), *text = NULL;

	if (real_path && is_read(outer, real_path))
		fail(outer, name, " ", "is read already, or includes this file; name each file once");
	else if (!(text = policy_file_read(path, &bytes, why)))
		fail(outer, name, ": ", "%s", why);
	else if (add_file(outer, name, path, real_path ? real_path : path, &source))
		source_parse(&source, text, bytes);
	free(text);
	free(real_path);
}

static void include_one(const struct policy_source *outer, const struct policy_node *name)
{
	struct policy_source source;
	const char *builtin;
	size_t bytes;

	if (name->kind == POLICY_NODE_BAD)
		return;
	if (name->kind != POLICY_NODE_SCALAR || !*name->text)
		policy_error_add(outer->errors, outer->file, name->place,
				 "include: a name was expected; write the path of a file, or a list of paths");
	else if (outer->depth == POLICY_MAX_INCLUDE)
		fail(outer, name, " ", "is included more than %d files deep; put some of them into one",
		     POLICY_MAX_INCLUDE);
	else if (!(builtin = policy_builtin_find(name->text, &bytes)))
		include_file(outer, name);
	else if (is_read(outer, name->text))
		fail(outer, name, " ", "is read already; name each policy once");
	else if (add_file(outer, name, name->text, name->text, &source))
		source_parse(&source, builtin, bytes);
}

/*
 * ---- settings "key=value,key=value" ---- They have no quotes and no escapes: of single values only share.job can
 * contain a comma, and must then be written in a file. Blanks around keys and values are ignored.
 */

static const char set_file[] = "SPILLWAY_SET";

/* Removes blanks from both ends of text, in place. */
static char *set_trim(char *text)
{
	text += strspn(text, " ");
	size_t length = strlen(text);
	while (length > 0 && text[length - 1] == ' ')
		text[--length] = '\0';
	return text;
}

static void set_unknown(const char *name, struct policy_place place, struct policy_errors *errors)
{
	char hint[POLICY_MAX_WHY], quoted[POLICY_QUOTED_BYTES];

	policy_quote(name, quoted);
	const struct policy_key *key = policy_key_in_section(&policy_file_keys, name);
	if (key) {
		policy_error_add(errors, set_file, place, "%s is a group of keys; write one of them, as in %s=%s",
				 quoted, key->name, policy_value_example(key));
		return;
	}
	policy_key_hint(&policy_file_keys, "", name, hint);
	policy_error_add(errors, set_file, place, "unknown key %s; %s", quoted, hint);
}

/* Reads one "key=value", terminated; changes it in place. */
static void item_parse(char *item, struct policy *policy, struct policy_place *seen, struct policy_place place,
		       struct policy_errors *errors)
{
	char *equals = strchr(item, '='), *name, why[POLICY_MAX_WHY];
	const struct policy_key *key;

	if (!*set_trim(item)) {
		policy_error_add(errors, set_file, place,
				 "nothing stands between two commas or at an end; remove one comma");
		return;
	}
	if (!equals) {
		policy_error_add(errors, set_file, place, "%s has no \"=\"; write key=value, as in device.budget=4GiB",
				 policy_quoted(set_trim(item)));
		return;
	}
	*equals = '\0';
	name = set_trim(item);
	int index = policy_key_find(&policy_file_keys, name);
	if (index < 0) {
		set_unknown(name, place, errors);
		return;
	}
	key = &policy_file_keys.keys[index];
	if (seen[index].line) {
		policy_error_add(errors, set_file, place, "%s is given twice, first in column %u; remove one of them",
				 name, seen[index].column);
		return;
	}
	seen[index] = place;
	if (key->type == POLICY_TYPE_PART)
		policy_error_add(errors, set_file, place,
				 "%s is a %s and cannot be set here; write it in a policy file", name,
				 key->set == POLICY_SET_LIMITS ? "map" : "list");
	else if (!policy_value_parse(key, set_trim(equals + 1), &policy->settings, why))
		policy_error_add(errors, set_file, place, "%s: %s", name, why);
	policy->origins[index] = (struct policy_origin){.from = POLICY_FROM_SET, .place = place};
}

void policy_set_parse(const char *set, struct policy *policy, struct policy_errors *errors)
{
	struct policy_place seen[POLICY_MAX_KEYS] = {{0}};
	char *copy, *item;

	if (strnlen(set, POLICY_MAX_SET + 1) > POLICY_MAX_SET) {
		policy_error_add(errors, set_file, POLICY_WHOLE, "more than 64 KiB; write a policy file");
		return;
	}
	copy = strdup(set);
	if (!copy) {
		policy_error_add(errors, set_file, POLICY_WHOLE, POLICY_NO_MEMORY);
		return;
	}
	for (item = copy; item;) {
		char *comma = strchr(item, ',');
		size_t blanks = strspn(item, " ");
		struct policy_place place = {1, (unsigned)((size_t)(item - copy) + blanks) + 1};

		if (comma)
			*comma = '\0';
		item_parse(item, policy, seen, place, errors);
		item = comma ? comma + 1 : NULL;
	}
	free(copy);
}
