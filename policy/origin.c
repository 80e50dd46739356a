/* Says of each setting of a policy what it is, where it comes from, and whether a limit of the machine has cut it. */
#include "policy/origin.h"

#include <stdio.h>
#include <string.h>

#include "policy/machine.h"

static void write_size(const struct policy_key *key, struct policy_size size, char text[POLICY_SETTING_BYTES])
{
	char bytes[POLICY_SIZE_BYTES_TEXT];

	switch (size.kind) {
	case POLICY_SIZE_AUTO:
		snprintf(text, POLICY_SETTING_BYTES, key->set == POLICY_SET_MOST ? "none" : "auto");
		break;
	case POLICY_SIZE_START:
		snprintf(text, POLICY_SETTING_BYTES, "start");
		break;
	case POLICY_SIZE_BYTES:
		snprintf(text, POLICY_SETTING_BYTES, "%s", policy_size_format(size.value, bytes));
		break;
	case POLICY_SIZE_PERCENT:
		snprintf(text, POLICY_SETTING_BYTES, size.value % 100 ? "%llu.%02u%%" : "%llu%%",
			 (unsigned long long)(size.value / 100), (unsigned)(size.value % 100));
		break;
	}
}

static const char *enum_name(enum policy_set set, int value)
{
	const struct policy_value *v = NULL;

	while ((v = policy_value_next(set, v)))
		if (v->value == value)
			return v->name;
	return "?";
}

char *policy_value_write(const struct policy_key *key, const void *target, char text[POLICY_SETTING_BYTES])
{
	const void *field = (const char *)target + key->offset;

	switch (key->type) {
	case POLICY_TYPE_SIZE:
		write_size(key, *(const struct policy_size *)field, text);
		break;
	case POLICY_TYPE_ENUM:
		snprintf(text, POLICY_SETTING_BYTES, "%s", enum_name(key->set, *(const int *)field));
		break;
	case POLICY_TYPE_NUMBER:
		if (*(const int *)field == POLICY_NODE_AUTO)
			snprintf(text, POLICY_SETTING_BYTES, "auto");
		else
			snprintf(text, POLICY_SETTING_BYTES, "%d", *(const int *)field);
		break;
	default:
		snprintf(text, POLICY_SETTING_BYTES, "...");
		break;
	}
	return text;
}

/* Returns true if the limit is one: not "none", not the last mode. */
static bool limits_anything(const struct policy_key *limit, const struct policy *policy)
{
	const void *field = (const char *)&policy->settings + limit->offset;

	return limit->type == POLICY_TYPE_ENUM ? *(const int *)field != policy_no_limits.spill
					       : ((const struct policy_size *)field)->kind != POLICY_SIZE_AUTO;
}

bool policy_setting(const struct policy *policy, unsigned number, struct policy_setting *ret_setting)
{
	const struct policy_key *key = &policy_file_keys.keys[number];

	if (number >= policy_file_keys.n)
		return false;
	const struct policy_origin *origin = &policy->origins[number];
	int limited = policy_key_find(&policy_limit_keys, key->name);
	*ret_setting = (struct policy_setting){.key = key->name};
	policy_value_write(key, &policy->settings, ret_setting->value);
	if (origin->from == POLICY_FROM_FILE) {
		ret_setting->file = policy->files[origin->file];
		ret_setting->line = origin->place.line;
	} else if (origin->from == POLICY_FROM_SET) {
		ret_setting->file = "SPILLWAY_SET";
	}
	if (limited < 0 || !limits_anything(&policy_limit_keys.keys[limited], policy))
		return true;
	policy_value_write(&policy_limit_keys.keys[limited], &policy->settings, ret_setting->limit);
	memcpy(ret_setting->cut, policy->before_cut[limited], sizeof(ret_setting->cut));
	return true;
}
