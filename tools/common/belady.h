// SPDX-License-Identifier: Apache-2.0
/*
 * belady.h: simulates Belady's rule (evict first what is used farthest in the future) on a recorded list of
 * submissions. The result is a reference and no bound, because items differ in size; that of belady_carry() is a bound.
 * The simulation prints nothing and uses neither clock nor GPU.
 *
 *   belady_start(&b, n_items, n_uses), then fill b.bytes
 *   belady_look_ahead() for each submission, the last one first
 *   belady_rewind(&b, budget), then belady_submit() and belady_forget() in recorded order; again for each budget
 *   belady_end(&b)
 */
#ifndef SPILLWAY_BELADY_H
#define SPILLWAY_BELADY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The items that a submission names, each once: every `step`th number, starting at `first`. */
struct belady_names {
	const uint32_t *first;
	uint32_t n, step;
};

struct belady {
	uint64_t *bytes;  /* by item; the caller fills them in */
	bool spares;      /* an item that is larger than the budget evicts nothing */
	bool counts;      /* whether what follows is added to the sums below */
	uint64_t outside; /* bytes of the budget that are taken by something else */
	uint64_t in, out; /* bytes fetched, bytes evicted */
	uint64_t missed;  /* bytes that would have been fetched, but do not fit */
	uint64_t over;    /* submissions that name more than fits */

	/* Internal. */
	size_t n_items, n_uses, at; /* at: the next use */
	uint32_t *next;             /* by use: the submission that names its item next, or UINT32_MAX */
	uint32_t *use;              /* the same by item */
	uint32_t *stamp;            /* by item: the submission that named it last, plus 1 */
	uint8_t *here, *written;    /* by item: it is resident; it has contents to fetch */
	uint64_t *kept;             /* by item: bytes of it that stay until the next use (belady_carry) */
	struct belady_entry *heap;  /* resident items, the farthest next use on top; an entry may be stale */
	size_t n_heap;
	uint64_t used, budget;
};

/*
 * n_uses is the number of names in all submissions together. Returns false if memory runs out; the caller must call
 * belady_end() then, too.
 */
bool belady_start(struct belady *b, size_t n_items, size_t n_uses);
void belady_end(struct belady *b);
/* Submission numbers must be below UINT32_MAX - 1 and must increase from call to call of belady_submit(). */
void belady_look_ahead(struct belady *b, struct belady_names names, uint32_t number);
/* Between submissions, in that order: the item is freed here. Only for belady_carry(). */
void belady_forget_ahead(struct belady *b, uint32_t item);
void belady_rewind(struct belady *b, uint64_t budget);
void belady_submit(struct belady *b, struct belady_names names, uint32_t number);
/*
 * In place of belady_submit(): an item may be resident in part, and a submission may use what is not. `in` is then the
 * least that is fetched, or used elsewhere, under any rule: of what stays from one use to the next, what is used last
 * gives way, to the byte. The caller may change `budget` at any time.
 */
void belady_carry(struct belady *b, struct belady_names names);
/* Frees the item: it leaves the device without a copy, and has no contents when it is named again. */
void belady_forget(struct belady *b, uint32_t item);

#endif
