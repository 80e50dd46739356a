/*
 * Finds the texts that `include` names; parse.c reads them. Each file may be included once in a policy, so that the
 * work is bounded by the number of files and not by the number of ways to reach them. Files are compared by real
 * path, which also finds a file that includes itself through others.
 */
#include "policy/parse.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/builtin.h"
#include "policy/text.h"
#include "policy/tree.h"

__attribute__((format(printf, 4, 5))) static void
fail(const struct policy_source *source, const struct policy_node *name, const char *begin, const char *format, ...)
{
	char text[POLICY_MAX_WHY + POLICY_QUOTED_BYTES], quoted[POLICY_QUOTED_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	policy_error_add(source->errors, source->file, name->place, "include: %s%s%s", policy_quote(name->text, quoted),
			 begin, text);
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
		policy_error_add(outer->errors, outer->file, (struct policy_place){0},
				 "out of memory while reading; try again");
		return false;
	}
	*ret_source = *outer;
	ret_source->index = policy->n_files++;
	ret_source->file = policy->files[ret_source->index];
	ret_source->depth++;
	return true;
}

static bool open_file(const struct policy_source *outer, const struct policy_node *name,
		      struct policy_included *included)
{
	char path[PATH_MAX], why[POLICY_MAX_WHY], *real_path;
	bool added = false;

	if (!path_of(outer, name->text, path)) {
		fail(outer, name, " ", "is too long a path; write a shorter one");
		return false;
	}
	real_path = realpath(path, NULL);
	if (real_path && is_read(outer, real_path)) {
		fail(outer, name, " ", "is read already, or includes this file; name each file once");
		free(real_path);
		return false;
	}
	included->owned = policy_file_read(path, &included->bytes, why);
	included->text = included->owned;
	if (included->text)
		added = add_file(outer, name, path, real_path ? real_path : path, &included->source);
	else
		fail(outer, name, ": ", "%s", why);
	if (!added)
		free(included->owned);
	free(real_path);
	return added;
}

bool policy_include_open(const struct policy_source *outer, const struct policy_node *name,
			 struct policy_included *ret_included)
{
	*ret_included = (struct policy_included){0};
	if (name->kind == POLICY_NODE_BAD)
		return false;
	if (name->kind != POLICY_NODE_SCALAR || !*name->text) {
		policy_error_add(outer->errors, outer->file, name->place,
				 "include: a name was expected; write the path of a file, or a list of paths");
		return false;
	}
	if (outer->depth == POLICY_MAX_INCLUDE) {
		fail(outer, name, " ", "is included more than %d files deep; put some of them into one",
		     POLICY_MAX_INCLUDE);
		return false;
	}
	ret_included->text = policy_builtin_find(name->text, &ret_included->bytes);
	if (!ret_included->text)
		return open_file(outer, name, ret_included);
	if (is_read(outer, name->text)) {
		fail(outer, name, " ", "is read already; name each policy once");
		return false;
	}
	return add_file(outer, name, name->text, name->text, &ret_included->source);
}

void policy_include_close(struct policy_included *included)
{
	free(included->owned);
}
