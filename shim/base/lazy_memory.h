/*
 * lazy_memory.h: zeroed memory of which only the pages that are written use anything, for tables with a place for all
 * that might ever be.
 */
#ifndef SPILLWAY_LAZY_MEMORY_H
#define SPILLWAY_LAZY_MEMORY_H

#include <stddef.h>
#include <sys/mman.h>

/* Returns NULL if there is no address space. */
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

#endif
