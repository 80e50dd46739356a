/*
 * array_room.h: arrays that grow as they fill.
 *
 * Pure. Locking: none.
 */
#ifndef SPILLWAY_ARRAY_ROOM_H
#define SPILLWAY_ARRAY_ROOM_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define ARRAY_ROOM_FIRST 256u /* elements at first */

/*
 * Makes room for one more element than n, in an array that has room for *room elements of `size` bytes. Returns the
 * array, which may have moved; NULL, and nothing has changed, if there is no memory or more than `most` elements are
 * needed. most: ARRAY_ROOM_FIRST times a power of two.
 */
static inline void *array_room(void *array, uint32_t n, uint32_t *room, uint32_t most, size_t size)
{
	uint32_t more = *room ? 2 * *room : ARRAY_ROOM_FIRST;

	if (n < *room)
		return array;
	void *longer = more <= most ? realloc(array, more * size) : NULL;
	if (longer)
		*room = more;
	return longer;
}

#endif
