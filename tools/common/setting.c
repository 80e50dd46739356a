/* Prints the settings of a policy with their origins. */
#include "tools/common/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
		json_text(json, "key", setting.key);
		json_text(json, "value", setting.value);
		json_text(json, "file", setting.file);
		json_number_or_null(json, "line", setting.line, setting.line != 0);
		json_text(json, "limit", *setting.limit ? setting.limit : NULL);
		json_text(json, "cut", *setting.cut ? setting.cut : NULL);
		json_close(json, '}');
	}
	json_close(json, ']');
}
