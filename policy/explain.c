// SPDX-License-Identifier: Apache-2.0
/* Says in words why a rule does not match a request, and what each setting is. */
#include "policy/keys.h"
#include "policy/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * ---- why a rule does not match ---- It tests the rule as it was written and shares no code with decide.c except
 * what policy_bind() finds out about the process, so that tests can compare the two.
 */

__attribute__((format(printf, 2, 3))) static bool say(char *ret_text, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(ret_text, POLICY_EXPLAIN_BYTES, format, arguments);
	va_end(arguments);
	return false;
}

static bool process_holds(const struct policy *policy, const struct policy_rule *rule, char *ret_text)
{
	static const char *const what[] = {
	    [POLICY_PROCESS_NO_NAME] = "name of the process is not known",
	    [POLICY_PROCESS_NAME] = "name of the process does not match",
	    [POLICY_PROCESS_NO_ARGUMENTS] = "arguments of the process are not known",
	    [POLICY_PROCESS_ARGUMENTS] = "arguments of the process do not match",
	};
	bool name = rule->process_is == POLICY_PROCESS_NAME || rule->process_is == POLICY_PROCESS_NO_NAME;
	char wants[256];

	if (rule->process_is == POLICY_PROCESS_OURS)
		return true;
	if (rule->process_is == POLICY_PROCESS_RANK || rule->process_is == POLICY_PROCESS_NO_RANK)
		policy_ranks_format(&rule->ranks, wants, sizeof(wants));
	else
		policy_globs_format(name ? &rule->process : &rule->arguments, wants, sizeof(wants));
	if (rule->process_is == POLICY_PROCESS_RANK)
		return say(ret_text, "the rank is %lld, not %s", (long long)policy->rank, wants);
	if (rule->process_is == POLICY_PROCESS_NO_RANK)
		return say(ret_text, "the process has no rank; the rule wants %s", wants);
	return say(ret_text, "the %s; the rule wants %s", what[rule->process_is], wants);
}

static bool size_holds(const struct policy_rule *rule, uint64_t bytes, char *ret_text)
{
	char wants[POLICY_RANGE_TEXT];

	if (bytes >= rule->size.lo && bytes <= rule->size.hi)
		return true;
	return say(ret_text, "the size is %s, not %s", policy_size_text(bytes),
		   policy_range_format(&rule->size, wants));
}

static bool api_holds(const struct policy_rule *rule, enum policy_api api, char *ret_text)
{
	char names[POLICY_MAX_WHY] = "";

	if (policy_rule_apis(rule) & 1u << api)
		return true;
	if (!rule->apis)
		return say(ret_text, "about api %s only rules decide that name it", policy_api_name(api));
	for (int i = 0; i < POLICY_API_COUNT; i++) {
		if (!(rule->apis & 1 << i))
			continue;
		policy_why_append(names, *names ? " or " : "");
		policy_why_append(names, policy_api_name((enum policy_api)i));
	}
	return say(ret_text, "the api is %s, not %s", policy_api_name(api), names);
}

static bool device_holds(const struct policy_rule *rule, int device, char *ret_text)
{
	char numbers[POLICY_MAX_WHY] = "", one[8];

	if (!rule->devices || (device >= 0 && device < POLICY_MAX_DEVICES && rule->devices & 1ull << device))
		return true;
	for (int i = 0; i < POLICY_MAX_DEVICES; i++) {
		if (!(rule->devices & 1ull << i))
			continue;
		snprintf(one, sizeof(one), "%s%d", *numbers ? " or " : "", i);
		policy_why_append(numbers, one);
	}
	if (device < 0)
		return say(ret_text, "the device is not known; the rule wants %s", numbers);
	return say(ret_text, "the device is %d, not %s", device, numbers);
}

/* number: index of the condition. The order is a count, the others are bytes. */
static bool number_holds(const struct policy_rule *rule, const struct policy_request *request, int number,
			 uint64_t value, char *ret_text)
{
	static const char *const what[] = {"order", "sum of what is live", "free device memory"};
	const struct policy_range *range = &rule->number[number];
	char wants[POLICY_RANGE_TEXT];
	bool order = number == POLICY_NUMBER_ORDER;

	if (range->lo <= (order ? 1u : 0u) && range->hi == UINT64_MAX)
		return true;
	if (order)
		snprintf(wants, sizeof(wants), range->hi == UINT64_MAX ? "after %llu" : "%llu .. %llu",
			 (unsigned long long)(range->hi == UINT64_MAX ? range->lo - 1 : range->lo),
			 (unsigned long long)range->hi);
	else
		policy_range_format(range, wants);
	if (!(request->known & 1u << number))
		return say(ret_text, "the %s is not known; the rule wants %s", what[number], wants);
	if (value >= range->lo && value <= range->hi)
		return true;
	if (order)
		return say(ret_text, "the order is %llu, not %s", (unsigned long long)value, wants);
	return say(ret_text, "the %s is %s, not %s", what[number], policy_size_text(value), wants);
}

static bool text_holds(const struct policy_rule *rule, int which, const char *text, char *ret_text)
{
	static const char *const what[] = {"calling library", "thread", "caller"};
	char patterns[256];

	if (!rule->text[which].n || policy_globs_match(&rule->text[which], text))
		return true;
	policy_globs_format(&rule->text[which], patterns, sizeof(patterns));
	if (!text)
		return say(ret_text, "the %s is not known; the rule wants %s", what[which], patterns);
	return say(ret_text, "the %s is %s, not %s", what[which], policy_quoted(text), patterns);
}

bool policy_explain(const struct policy *policy, int index, const struct policy_request *request, char *ret_text)
{
	const struct policy_rule *rule = &policy->rules[index];

	*ret_text = '\0';
	return process_holds(policy, rule, ret_text) && size_holds(rule, request->bytes, ret_text) &&
	       api_holds(rule, request->api, ret_text) && device_holds(rule, request->device, ret_text) &&
	       number_holds(rule, request, POLICY_NUMBER_ORDER, request->order, ret_text) &&
	       number_holds(rule, request, POLICY_NUMBER_LIVE, request->live, ret_text) &&
	       number_holds(rule, request, POLICY_NUMBER_FREE, request->device_free, ret_text) &&
	       text_holds(rule, POLICY_TEXT_LIBRARY, request->library, ret_text) &&
	       text_holds(rule, POLICY_TEXT_THREAD, request->thread, ret_text) &&
	       text_holds(rule, POLICY_TEXT_CALLER, request->caller, ret_text);
}

/* ---- what each setting is, where it comes from, and whether a limit of the machine has cut it ---- */

static void write_size(const struct policy_key *key, struct policy_size size, char text[POLICY_SETTING_BYTES])
{
	if (size.kind == POLICY_SIZE_BYTES)
		policy_size_format(size.value, text);
	else if (size.kind == POLICY_SIZE_PERCENT)
		snprintf(text, POLICY_SETTING_BYTES, size.value % 100 ? "%llu.%02u%%" : "%llu%%",
			 (unsigned long long)(size.value / 100), (unsigned)(size.value % 100));
	else
		strcpy(text, size.kind == POLICY_SIZE_START ? "start" : key->set == POLICY_SET_MOST ? "none" : "auto");
}

char *policy_value_write(const struct policy_key *key, const void *target, char text[POLICY_SETTING_BYTES])
{
	const void *field = (const char *)target + key->offset;

	if (key->type == POLICY_TYPE_SIZE)
		write_size(key, *(const struct policy_size *)field, text);
	else if (key->type == POLICY_TYPE_ENUM)
		snprintf(text, POLICY_SETTING_BYTES, "%s", policy_value_name(key->set, *(const int *)field));
	else if (key->type == POLICY_TYPE_NUMBER && *(const int *)field != POLICY_NODE_AUTO)
		snprintf(text, POLICY_SETTING_BYTES, "%d", *(const int *)field);
	else
		strcpy(text, key->type == POLICY_TYPE_NUMBER ? "auto" : "...");
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
