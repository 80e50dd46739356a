// SPDX-License-Identifier: Apache-2.0
/*
 * Wraps text for the screen.
 */
#include "tools/common/wrap.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { NARROWEST = 80, WIDEST = 200 /* longer lines are hard to read */ };

int wrap_width(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < NARROWEST)
		return NARROWEST;
	return size.ws_col < WIDEST ? size.ws_col : WIDEST;
}

static bool is_continuation(char byte)
{
	return ((unsigned char)byte & 0xc0) == 0x80;
}

int wrap_columns(const char *text, size_t bytes)
{
	int columns = 0;

	for (size_t i = 0; i < bytes && text[i]; i++)
		columns += !is_continuation(text[i]);
	return columns;
}

/* Returns how many bytes the characters have that fill these columns, or all. */
static size_t bytes_of(const char *text, size_t bytes, int columns)
{
	size_t n = 0;

	for (; n < bytes; n++)
		if (!is_continuation(text[n]) && columns-- == 0)
			break;
	return n;
}

void wrap_print(const char *words, int column, int indent)
{
	const int width = wrap_width();
	bool fresh = true;

	for (const char *end; *words; words = end + strspn(end, " ")) {
		size_t length = strcspn(words, " ");
		int columns = wrap_columns(words, length);

		end = words + length;
		if (column > indent && column + !fresh + columns > width) {
			printf("\n%*s", indent, "");
			column = indent;
			fresh = true;
		}
		if (!fresh)
			putchar(' ');
		column += !fresh;
		/* A word that is longer than a line is cut into lines. */
		while (columns > width - column && width > column) {
			size_t part = bytes_of(words, length, width - column);

			printf("%.*s\n%*s", (int)part, words, indent, "");
			columns -= width - column;
			words += part;
			length -= part;
			column = indent;
		}
		printf("%.*s", (int)length, words);
		column += columns;
		fresh = false;
	}
	printf("\n");
}

void wrap_line(int column, int indent, const char *format, ...)
{
	char text[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	printf("%*s", column, "");
	wrap_print(text, column, indent);
}
