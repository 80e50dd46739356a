/*
 * Wraps text for the screen.
 */
#include "tools/common/wrap.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 100 };

void wrap_print(const char *words, int column, int indent)
{
	bool fresh = true;

	for (const char *end; *words; words = end + strspn(end, " ")) {
		int length = (int)strcspn(words, " ");

		end = words + length;
		if (!fresh && column + 1 + length > WIDTH) {
			printf("\n%*s", indent, "");
			column = indent;
			fresh = true;
		}
		printf("%s%.*s", fresh ? "" : " ", length, words);
		column += length + !fresh;
		fresh = false;
	}
	printf("\n");
}
