/* Collects problems of a policy in the order of the file, keeps the 100 most useful, and formats them. */
#include "policy/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/model.h"
#include "policy/text.h"

static bool error_before(const struct policy_error *a, const struct policy_error *b)
{
	if (strcmp(a->file, b->file) != 0)
		return false;
	return a->line != b->line ? a->line < b->line : a->column < b->column;
}

/*
 * Makes room for one more problem in a full list: drops the last warning, or, without one, the last problem if the
 * new one comes before it. A warning never replaces an error. Returns false if the new problem must be dropped.
 */
static bool make_room(struct policy_errors *errors, const struct policy_error *problem)
{
	size_t warning = errors->n_kept, victim = errors->n_kept - 1;

	while (warning > 0 && !errors->kept[warning - 1].warning)
		warning--;
	if (warning > 0)
		victim = warning - 1;
	if ((problem->warning || warning == 0) && !error_before(problem, &errors->kept[victim]))
		return false;
	if (problem->warning && warning == 0)
		return false;
	errors->n_kept--;
	memmove(errors->kept + victim, errors->kept + victim + 1, (errors->n_kept - victim) * sizeof(*errors->kept));
	return true;
}

static void error_keep(struct policy_errors *errors, const struct policy_error *problem)
{
	size_t at;

	if (!errors->kept)
		errors->kept = malloc(POLICY_MAX_ERRORS * sizeof(*errors->kept));
	if (!errors->kept)
		return;
	if (errors->n_kept == POLICY_MAX_ERRORS && !make_room(errors, problem))
		return;
	at = errors->n_kept;
	/* Problems of one file stay together, also if problems of a file that it includes were added meanwhile. */
	while (at > 0 && strcmp(errors->kept[at - 1].file, problem->file) != 0)
		at--;
	if (at == 0)
		at = errors->n_kept;
	while (at > 0 && error_before(problem, &errors->kept[at - 1]))
		at--;
	memmove(errors->kept + at + 1, errors->kept + at, (errors->n_kept - at) * sizeof(*errors->kept));
	errors->kept[at] = *problem;
	errors->n_kept++;
}

/* Keeps the end of a long path, which says more than its beginning. */
static void copy_file(char *to, size_t bytes, const char *file)
{
	size_t length = strlen(file);

	if (length < bytes) {
		policy_printable(file, to, bytes);
		return;
	}
	memcpy(to, "...", 3);
	policy_printable(file + length - (bytes - 4), to + 3, bytes - 3);
}

__attribute__((format(printf, 5, 0))) static void add(struct policy_errors *errors, const char *file,
						      struct policy_place place, bool warning, const char *format,
						      va_list arguments)
{
	struct policy_error problem = {.line = place.line, .column = place.column, .warning = warning};

	copy_file(problem.file, sizeof(problem.file), file);
	vsnprintf(problem.text, sizeof(problem.text), format, arguments);
	errors->n++;
	if (!warning)
		errors->n_errors++;
	error_keep(errors, &problem);
}

void policy_error_add(struct policy_errors *errors, const char *file, struct policy_place place, const char *format,
		      ...)
{
	va_list arguments;

	va_start(arguments, format);
	add(errors, file, place, false, format, arguments);
	va_end(arguments);
}

void policy_warning_add(struct policy_errors *errors, const char *file, struct policy_place place, const char *format,
			...)
{
	va_list arguments;

	va_start(arguments, format);
	add(errors, file, place, true, format, arguments);
	va_end(arguments);
}

void policy_errors_free(struct policy_errors *errors)
{
	free(errors->kept);
	*errors = (struct policy_errors){0};
}

char *policy_error_format(const struct policy_error *error, char *buffer, size_t bytes)
{
	const char *kind = error->warning ? "warning" : "error";

	if (bytes == 0)
		return buffer;
	if (error->line == 0)
		snprintf(buffer, bytes, "%s: %s: %s", error->file, kind, error->text);
	else
		snprintf(buffer, bytes, "%s:%u:%u: %s: %s", error->file, error->line, error->column, kind, error->text);
	return buffer;
}
