/*
 * belady.h: Belady's rule on a recorded list of submissions: what is used farthest in the future is evicted first. A
 * reference and no bound: items differ in size. Pure: nothing is printed, no clock, no GPU.
 *
 *   belady_start(&b, n_items, n_uses), then fill b.bytes
 *   belady_look_ahead() for each submission, the last one first
 *   belady_rewind(&b, budget), then belady_submit() and belady_forget() in the order of the record; again for each budget
 *   belady_end(&b)
 */
#ifndef SPILLWAY_BELADY_H
#define SPILLWAY_BELADY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The items that a submission names, each once: every `step`th number from `first` on. */
struct belady_names {
	const uint32_t *first;
	uint32_t n, step;
};

struct belady {
	uint64_t *bytes;  /* by item; the caller fills them in */
	bool spares;      /* an item that is larger than the budget evicts nothing */
	bool counts;      /* whether what follows is added to the sums below */
	uint64_t outside; /* bytes of the budget that are taken by something else */
	uint64_t in, out; /* bytes brought in, bytes evicted */
	uint64_t missed;  /* bytes that would have been brought in, but do not fit */
	uint64_t over;    /* submissions that name more than fits */

	/* Internal. */
	size_t n_items, n_uses, at; /* at: the next use */
	uint32_t *next;             /* by use: the submission that names its item next, or UINT32_MAX */
	uint32_t *use;              /* the same by item */
	uint32_t *stamp;            /* by item: the submission that named it last, plus 1 */
	uint8_t *here, *written;    /* by item: resident; there is something to bring in */
	struct belady_entry *heap;  /* of resident items, the farthest on top; an entry may be stale */
	size_t n_heap;
	uint64_t used, budget;
};

/* n_uses: names of all submissions together. Returns false without memory; the caller must call belady_end() then, too. */
bool belady_start(struct belady *b, size_t n_items, size_t n_uses);
void belady_end(struct belady *b);
/* The number of a submission is below UINT32_MAX - 1, and grows. */
void belady_look_ahead(struct belady *b, struct belady_names names, uint32_t number);
void belady_rewind(struct belady *b, uint64_t budget);
void belady_submit(struct belady *b, struct belady_names names, uint32_t number);
/* The item is freed: it leaves without a copy, and holds nothing when it is named again. */
void belady_forget(struct belady *b, uint32_t item);

#endif
