/*
 * include: the files that a policy builds on are read before it, in the order in which they are named. Each may be
 * included once in a policy, so that the work is bounded by the number of files and not by the ways to reach them; a
 * file that (through others) includes itself is told apart by its real path.
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

/* The path of a name that stands in the source's file: beside that file, unless it begins at the root. */
static bool path_of(const struct policy_source *source, const char *name, char path[PATH_MAX])
{
	const char *slash = strrchr(source->file, '/');
	int folder = *name != '/' && slash ? (int)(slash + 1 - source->file) : 0;

	return snprintf(path, PATH_MAX, "%.*s%s", folder, source->file, name) < PATH_MAX;
}

/* Has the file been read, or is it being read, which means that it includes itself? */
static bool is_read(const struct policy_source *source, const char *real_path)
{
	for (unsigned i = 0; i < source->policy->n_files; i++)
		if (source->policy->real_paths[i] && strcmp(source->policy->real_paths[i], real_path) == 0)
			return true;
	return false;
}

static void parse(const struct policy_source *outer, const struct policy_node *name, const char *path,
		  const char *real_path, const char *text, size_t bytes)
{
	struct policy *policy = outer->policy;
	struct policy_source source = *outer;

	if (policy->n_files == POLICY_MAX_FILES) {
		fail(outer, name, " ", "is one file too many; a policy may have %d", POLICY_MAX_FILES);
		return;
	}
	policy->files[policy->n_files] = strdup(path);
	policy->real_paths[policy->n_files] = strdup(real_path);
	if (!policy->files[policy->n_files] || !policy->real_paths[policy->n_files]) {
		free(policy->files[policy->n_files]);
		free(policy->real_paths[policy->n_files]);
		policy_error_add(outer->errors, outer->file, (struct policy_place){0},
				 "out of memory while reading; try again");
		return;
	}
	source.index = policy->n_files++;
	source.file = policy->files[source.index];
	source.depth++;
	policy_source_parse(&source, text, bytes);
}

static void include_file(const struct policy_source *source, const struct policy_node *name)
{
	char path[PATH_MAX], why[POLICY_MAX_WHY], *real_path, *text;
	size_t bytes;

	if (!path_of(source, name->text, path)) {
		fail(source, name, " ", "is too long a path; write a shorter one");
		return;
	}
	real_path = realpath(path, NULL);
	if (real_path && is_read(source, real_path)) {
		fail(source, name, " ", "is read already, or includes this file; name each file once");
		free(real_path);
		return;
	}
	text = policy_file_read(path, &bytes, why);
	if (text)
		parse(source, name, path, real_path ? real_path : path, text, bytes);
	else
		fail(source, name, ": ", "%s", why);
	free(text);
	free(real_path);
}

static void include_one(const struct policy_source *source, const struct policy_node *name)
{
	const char *builtin;
	size_t bytes;

	if (name->kind == POLICY_NODE_BAD)
		return;
	if (name->kind != POLICY_NODE_SCALAR || !*name->text) {
		policy_error_add(source->errors, source->file, name->place,
				 "include: a name was expected; write the path of a file, or a list of paths");
		return;
	}
	if (source->depth == POLICY_MAX_INCLUDE) {
		fail(source, name, " ", "is included more than %d files deep; put some of them into one",
		     POLICY_MAX_INCLUDE);
		return;
	}
	builtin = policy_builtin_find(name->text, &bytes);
	if (builtin && is_read(source, name->text))
		fail(source, name, " ", "is read already; name each policy once");
	else if (builtin)
		parse(source, name, name->text, name->text, builtin, bytes);
	else
		include_file(source, name);
}

void policy_include(const struct policy_source *source, const struct policy_node *value)
{
	if (value->kind != POLICY_NODE_LIST) {
		include_one(source, value);
		return;
	}
	for (const struct policy_node *name = value->first; name; name = name->next)
		include_one(source, name);
}
