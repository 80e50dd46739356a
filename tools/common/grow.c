/*
 * Growing arrays.
 */
#include "tools/common/grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool grow(void *array_p, size_t n, size_t *room, size_t each)
{
	size_t want = *room ? *room : 64;
	void *array;

	if (n < *room)
		return true;
	while (want <= n)
		want *= 2;
	memcpy(&array, array_p, sizeof(array));
	array = want > SIZE_MAX / each ? NULL : realloc(array, want * each);
	if (!array)
		return false;
	memcpy(array_p, &array, sizeof(array));
	*room = want;
	return true;
}

void free_all(void *const *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(blocks[i]);
}
