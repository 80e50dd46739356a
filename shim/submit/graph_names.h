/*
 * graph_names.h: a set of addresses that a graph names, as its launches need it: an array without repetitions.
 *
 * A set is shared by references. Whoever holds one may read it without a lock while its one writer (graph.c, under
 * GRAPH; or whoever made it, as long as nobody else knows it) adds to it: what is below `n` never changes, but that a
 * reach may grow.
 */
#ifndef SPILLWAY_GRAPH_NAMES_H
#define SPILLWAY_GRAPH_NAMES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More addresses than that are not kept: a launch would spend a millisecond on naming them. */
#define GRAPH_NAMES_MOST ((size_t)1 << 16)

struct graph_name {
	CUdeviceptr address;
	_Atomic size_t
	    bytes; /* as in submission_name(): 0 is a pointer of unknown reach, and another name than a known reach */
};

struct graph_names {
	atomic_uint references;
	atomic_size_t n;
	size_t room;
	uint32_t *slots; /* hash of (address, reach known?) to index + 1; twice to four times as many as room */
	size_t n_slots;  /* a power of two */
	struct graph_name at[];
};

/* An empty set with one reference. NULL: no memory, or room for more than GRAPH_NAMES_MOST was asked for. */
struct graph_names *graph_names_new(size_t room);
void graph_names_hold(struct graph_names *names);
/* Frees it with the last reference; NULL is allowed. */
void graph_names_drop(struct graph_names *names);

/* Take a name in; false: there is no room. */
bool graph_names_add(struct graph_names *names, CUdeviceptr address, size_t bytes);
/* The same, of a set that nobody else knows yet: moves to a larger one if it must. False: not possible. */
bool graph_names_grow(struct graph_names **names, CUdeviceptr address, size_t bytes);
/* Take all of another set in, which surely fits when room - n is at least its n; what fitted stays. */
bool graph_names_merge(struct graph_names *names, const struct graph_names *more);

#endif
