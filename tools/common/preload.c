/*
 * Builds LD_PRELOAD without listing the library twice.
 */
#include "tools/common/preload.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Files are compared by device and inode, because one file may have several names. */
static bool same_file(const char *a, const char *b)
{
	struct stat status_a, status_b;

	if (strcmp(a, b) == 0)
		return true;
	return stat(a, &status_a) == 0 && stat(b, &status_b) == 0 && status_a.st_dev == status_b.st_dev &&
	       status_a.st_ino == status_b.st_ino;
}

char *preload_join(const char *library, const char *existing)
{
	size_t bytes = strlen(library) + (existing ? strlen(existing) : 0) + 2;
	char *joined = malloc(bytes), *copy = strdup(existing ? existing : ""), *rest = copy, *entry;

	if (!joined || !copy) {
		free(joined);
		free(copy);
		return NULL;
	}
	strcpy(joined, library);
	while ((entry = strsep(&rest, ": "))) {
		if (!*entry || same_file(library, entry))
			continue;
		strcat(joined, ":");
		strcat(joined, entry);
	}
	free(copy);
	return joined;
}
