// SPDX-License-Identifier: Apache-2.0
/*
 * array.h: arrays that grow as they fill, those with a place for all that might ever be, and those by device.
 *
 *	if (!ARRAY_ROOM(list->at, list->n, list->room, MOST))
 *		return false;
 *	list->at[list->n++] = ...
 *
 * Pure. Locking: none; whoever protects the array protects this. Allocates, and may change errno: not for the path of a
 * launch that has its room.
 */
#ifndef SPILLWAY_ARRAY_H
#define SPILLWAY_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARRAY_FIRST 64u /* elements at first */
#define ARRAY_MOST  (UINT32_MAX / 2)

/* array: the address of the pointer to it, which may change. */
static inline bool array_room(void *array, uint32_t n, uint32_t *room, uint32_t most, size_t size)
{
	uint32_t more = *room ? 2 * *room : ARRAY_FIRST;
	void *longer;

	if (n < *room)
		return true;
	memcpy(&longer, array, sizeof(longer));
	longer = more <= most ? realloc(longer, more * size) : NULL;
	if (!longer)
		return false;
	memcpy(array, &longer, sizeof(longer));
	*room = more;
	return true;
}

/*
 * Makes room for one more element than n in the array `at`, which has room for `room` (uint32_t) elements; both may
 * change. Returns false, and nothing has changed, if there is no memory or it would need more than `most` elements,
 * which is ARRAY_FIRST times a power of two, or ARRAY_MOST.
 */
#define ARRAY_ROOM(at, n, room, most) array_room(&(at), n, &(room), most, sizeof(*(at)))

/* ---- tables with a place for all ---- */

/* Zeroed memory of which only the pages that are written use anything. Returns NULL if there is no address space. */
static inline void *lazy_memory_new(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* at: NULL has no effect. bytes: as when it was made. */
static inline void lazy_memory_free(void *at, size_t bytes)
{
	if (at)
		munmap(at, bytes);
}

/* ---- arrays by device ---- */

/* Most devices of one process; device masks are 64-bit words. */
#define DEVICE_MOST 64

#endif
