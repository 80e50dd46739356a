// SPDX-License-Identifier: Apache-2.0
/*
 * Messages to stderr.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/tool.h"

void tool_say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("spillway: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
}

void tool_print_errors(const struct policy_errors *errors)
{
	char line[sizeof(struct policy_error) + 64];

	/*
	 * If the environment variable is not set, the keys came from the option. The policy parser knows only the
	 * variable, so that its errors name the variable.
	 */
	static const char variable[] = "SPILLWAY_SET";
	bool option = !getenv(variable);

	for (size_t i = 0; i < errors->n_kept; i++) {
		struct policy_error error = errors->kept[i];

		if (option && !strcmp(error.file, variable))
			snprintf(error.file, sizeof(error.file), "--set");
		fprintf(stderr, "%s\n", policy_error_format(&error, line, sizeof(line)));
	}
	if (errors->n > errors->n_kept)
		tool_say("%zu more problems are not shown; mend these first", errors->n - errors->n_kept);
}
