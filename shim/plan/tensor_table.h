/*
 * tensor_table.h: tensors by the address at which they begin. A hash table with open addressing that grows as needed.
 *
 * Pure. Locking: none.
 */
#ifndef SPILLWAY_TENSOR_TABLE_H
#define SPILLWAY_TENSOR_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#define TENSOR_GRAIN 512 /* bytes; tensors begin at multiples of this */

struct tensor {
	uint64_t begin;
	uint64_t bytes; /* 0: a free slot of the table */
	uint64_t value; /* the owner's */
};

/* Must be zeroed at first. tensor_table_fini() frees what it holds. */
struct tensor_table {
	struct tensor *slot;
	uint32_t n, n_slots; /* n_slots: 0 at first, then a power of two, at least twice n */
};

void tensor_table_fini(struct tensor_table *table);
void tensor_table_clear(struct tensor_table *table);
/* Adds a tensor, or replaces the one that begins there. Returns false if there is no memory, or too many tensors. */
bool tensor_table_put(struct tensor_table *table, struct tensor tensor);
/* Returns the tensor that begins there; NULL: none. It is valid until the table changes. */
struct tensor *tensor_table_find(const struct tensor_table *table, uint64_t begin);
/* Removes a tensor, as tensor_table_find() has returned it. */
void tensor_table_remove(struct tensor_table *table, struct tensor *tensor);

#endif
