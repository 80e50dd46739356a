/*
 * graph_read.h: reads which memory the nodes of a graph name, by queries of the driver.
 *
 * Locking: takes no lock. It may be called while streams capture: queries about graphs do not disturb a capture.
 * Measured (driver 580): with the capture on another thread and on this one, in global mode.
 */
#ifndef SPILLWAY_GRAPH_READ_H
#define SPILLWAY_GRAPH_READ_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Returns the names of all nodes, including those of child graphs; the caller must drop the set. Returns NULL if a node
 * cannot be read (a kernel node that can be updated from the device, a conditional node, a type unknown to this code),
 * if the driver fails, or if memory is short. Sets both results in any case. ret_number: equal for graphs that run the
 * same functions in the same order of nodes. ret_overlaps: kernels of the nodes that were read may overlap (arguments.h).
 */
struct graph_names *graph_read(CUgraph graph, uint64_t *ret_number, bool *ret_overlaps);

/* What a graph uses at its launches, at this address, is alive until it is freed: no births and deaths say when. */
void graph_read_distrust(CUdeviceptr address);

/* As graph_read(), for the parameters of one node, in the form in which the program sets them. */
struct graph_names *graph_read_params(const CUgraphNodeParams *params);

/* ---- sets of names ---- */

/*
 * The set of addresses that a graph names, as an array without duplicates, in the form that its launches
 * need, and by how many nodes each of them is used.
 *
 * A set is reference-counted. Every holder of a reference may read the set without a lock while its one writer adds to
 * it: entries below `n` never change, except that a reach and a number of uses may grow. The writer is graph.c under
 * GRAPH, or, before the set is published, the function that builds it.
 */

/* The most addresses of a set: with more, a launch would spend a millisecond on naming them. */
#define GRAPH_NAMES_MOST ((size_t)1 << 16)

struct graph_name {
	CUdeviceptr address;
	CUdeviceptr from; /* what a node copies these bytes from; 0: it is nothing that the host may have written */
	/* Reach, as in submission_name(). 0 if unknown, which is a different name from one with a known reach. */
	_Atomic size_t bytes;
	_Atomic uint32_t uses; /* nodes that name it */
	uint32_t node;         /* the latest of them; only the writer may read it */
};

struct graph_names {
	atomic_uint references;
	atomic_size_t n;
	size_t room;
	uint32_t *slots; /* hash of (address, from, reach known?) to index + 1; twice to four times as many as room */
	size_t n_slots;  /* a power of two */
	uint32_t node;   /* number of the node that is being read; only the writer uses it */
	struct graph_name at[];
};

/* Makes an empty set with one reference. Returns NULL if memory is short or room exceeds GRAPH_NAMES_MOST. */
struct graph_names *graph_names_new(size_t room);
void graph_names_hold(struct graph_names *names);
/* Frees the set with the last reference; NULL is allowed. */
void graph_names_drop(struct graph_names *names);

/* The names that are added from now on are those of the next node. */
static inline void graph_names_next_node(struct graph_names *names)
{
	names->node++;
}

/*
 * Adds all names of another set. A name that is in both gets the greater number of uses, not the sum: the nodes of the
 * other set may be the same ones, with parameters that were set again. Returns false if some did not fit; those that
 * fitted stay. All fit if room - n is at least the other set's n.
 */
bool graph_names_merge(struct graph_names *names, const struct graph_names *more);

#endif
