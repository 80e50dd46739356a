// SPDX-License-Identifier: Apache-2.0
#include "test/preload/tool.h"

#include "test/check.h"
#include "test/preload/folder.h"

#include <stdarg.h>

static char text[1 << 20];

static int run(const char *format, va_list list)
{
	char command[512];
	int begin = snprintf(command, sizeof(command), "env -u LD_PRELOAD %s '%s' ", runtime, TOOL);
	int end = begin + vsnprintf(command + begin, sizeof(command) - (size_t)begin, format, list);

	CHECK(end < (int)sizeof(command) - 5);
	FILE *output = popen(strcat(command, " 2>&1"), "r");
	CHECK(output);
	text[fread(text, 1, sizeof(text) - 1, output)] = 0;
	int status = pclose(output);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

char *tool(int *ret_status, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	int status = run(format, list);
	va_end(list);
	if (ret_status)
		*ret_status = status;
	return text;
}

bool tool_tells(const char *words, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	int status = run(format, list);
	va_end(list);
	return status == 0 && strstr(text, words);
}
