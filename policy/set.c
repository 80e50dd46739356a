/*
 * Reads settings of the form "key=value,key=value". They have no quotes and no escapes, because no value of a single
 * key contains a comma. Blanks around keys and values are ignored.
 */
#include "policy/parse.h"

#include <stdlib.h>
#include <string.h>

#include "policy/keys.h"
#include "policy/text.h"

static const char set_file[] = "SPILLWAY_SET";

/* Removes blanks from both ends of text, in place. */
static char *set_trim(char *text)
{
	size_t length;

	text += strspn(text, " ");
	length = strlen(text);
	while (length > 0 && text[length - 1] == ' ')
		text[--length] = '\0';
	return text;
}

static void report_unknown(const char *name, struct policy_place place, struct policy_errors *errors)
{
	char hint[POLICY_MAX_WHY], quoted[POLICY_QUOTED_BYTES];

	policy_quote(name, quoted);
	if (policy_key_is_section(&policy_file_keys, name)) {
		const struct policy_key *key = policy_file_keys.keys;

		while (strncmp(key->name, name, strlen(name)) != 0 || key->name[strlen(name)] != '.')
			key++;
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
	char *equals = strchr(item, '='), *name, why[POLICY_MAX_WHY], quoted[POLICY_QUOTED_BYTES];
	const struct policy_key *key;
	int index;

	if (!*set_trim(item)) {
		policy_error_add(errors, set_file, place,
				 "nothing stands between two commas or at an end; remove one comma");
		return;
	}
	if (!equals) {
		policy_error_add(errors, set_file, place, "%s has no \"=\"; write key=value, as in device.budget=4GiB",
				 policy_quote(set_trim(item), quoted));
		return;
	}
	*equals = '\0';
	name = set_trim(item);
	index = policy_key_find(&policy_file_keys, name);
	if (index < 0) {
		report_unknown(name, place, errors);
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
		policy_error_add(errors, set_file, (struct policy_place){0}, "more than 64 KiB; write a policy file");
		return;
	}
	copy = strdup(set);
	if (!copy) {
		policy_error_add(errors, set_file, (struct policy_place){0}, "out of memory while reading; try again");
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
