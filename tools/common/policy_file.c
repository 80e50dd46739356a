/*
 * Parts of a policy file that a command writes, and of the settings that --set has.
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

bool policy_file_put_include(FILE *file, const char *name)
{
	char *path = realpath(name, NULL);
	bool is_file = path && (strchr(name, '/') || strstr(name, ".y"));
	bool ok;

	fputs("include: ", file);
	ok = policy_file_put_quoted(file, is_file ? path : name);
	fputc('\n', file);
	free(path);
	return ok;
}

/* Returns whether the name is read as a file and not as a built-in policy. */
static bool is_path(const char *name)
{
	size_t n = strlen(name);

	return strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".yaml")) ||
	       (n > 4 && !strcmp(name + n - 4, ".yml"));
}

int policy_file_check(const char *path)
{
	struct policy_errors errors;
	struct policy *policy;

	if (!is_path(path))
		return TOOL_OK;
	policy = policy_read(path, NULL, &errors);
	tool_print_errors(&errors);
	policy_errors_free(&errors);
	policy_free(policy);
	return policy ? TOOL_OK : TOOL_BROKEN;
}

/* Keys and values have the syntax of policy/set.c. */
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
