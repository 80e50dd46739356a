// SPDX-License-Identifier: Apache-2.0
/*
 * Parts of a policy file that a command writes, of the settings that --set has, and the settings with their origins.
 */
#include "tools/common/policy_file.h"

#include <stdlib.h>
#include <string.h>

#include "tools/common/tool.h"

bool policy_file_put_quoted(FILE *file, const char *text)
{
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return false;
	fputc('"', file);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', file);
		fputc(*text, file);
	}
	fputc('"', file);
	return true;
}

int policy_file_check(const char *path)
{
	struct policy_errors errors;

	if (!policy_is_path(path))
		return TOOL_OK;
	struct policy *policy = policy_read(path, NULL, &errors);
	tool_print_errors(&errors);
	policy_errors_free(&errors);
	policy_free(policy);
	return policy ? TOOL_OK : TOOL_BROKEN;
}

/* Keys and values have the syntax of policy/parse.c. */
bool policy_set_names(const char *set, const char *key)
{
	size_t n = strlen(key);

	for (; set && *set; set += strcspn(set, ","), set += *set == ',') {
		const char *name = set + strspn(set, " ");

		if (strncmp(name, key, n) == 0 && name[n + strspn(name + n, " ")] == '=')
			return true;
	}
	return false;
}

char *policy_set_join(const char *set, const char *more)
{
	char *all = strdup(set ? set : ""), *joined;
	const char *next;

	for (const char *item = more; all && *item; item = next) {
		size_t n = strcspn(item, ",");
		char key[32];

		next = item + n + (item[n] == ',');
		snprintf(key, sizeof(key), "%.*s", (int)strcspn(item, "="), item);
		if (policy_set_names(set, key))
			continue;
		if (asprintf(&joined, "%s%s%.*s", all, *all ? "," : "", (int)n, item) < 0)
			joined = NULL;
		free(all);
		all = joined;
	}
	return all;
}

/* ---- settings with their origins ---- */

/* On a line: the value, where it was written, and the machine's limit on it if there is one. */
static void setting_print(const struct policy_setting *setting)
{
	static const char variable[] = "SPILLWAY_SET";
	const char *file = setting->file;

	/* As in tool_print_errors(). */
	if (file && !strcmp(file, variable) && !getenv(variable))
		file = "--set";
	printf("  %s: %s", setting->key, setting->value);
	if (!file)
		printf(" (not written: the value when absent)");
	else if (setting->line)
		printf(" (%s:%u)", file, setting->line);
	else
		printf(" (%s)", file);
	if (*setting->cut)
		printf("; cut from %s: %s limits it to %s", setting->cut, policy_machine_path, setting->limit);
	else if (*setting->limit)
		printf("; %s limits it to %s", policy_machine_path, setting->limit);
	printf("\n");
}

void setting_print_all(const struct policy *policy, bool written)
{
	struct policy_setting setting;

	for (unsigned i = 0; policy_setting(policy, i, &setting); i++)
		if (*setting.limit || (written && setting.file))
			setting_print(&setting);
}

void setting_put_all(struct json *json, const struct policy *policy)
{
	struct policy_setting setting;

	json_open(json, "settings", '[');
	for (unsigned i = 0; policy && policy_setting(policy, i, &setting); i++) {
		if (!setting.file && !*setting.limit)
			continue;
		json_open(json, NULL, '{');
		JSON_TEXTS(json, {"key", setting.key}, {"value", setting.value}, {"file", setting.file});
		json_number_or_null(json, "line", setting.line, setting.line != 0);
		json_text(json, "limit", *setting.limit ? setting.limit : NULL);
		json_text(json, "cut", *setting.cut ? setting.cut : NULL);
		json_close(json, '}');
	}
	json_close(json, ']');
}
