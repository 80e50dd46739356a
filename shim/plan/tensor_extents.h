/*
 * tensor_extents.h: tensor extents: guesses where tensors end. Only the offsets in a block at which pointers start are
 * ever seen, so the end of what a pointer means is guessed to be the next start seen in that block recently. A guess
 * determines what is fetched to the device, never what is mapped.
 *
 * Starts must be forgotten: a block that was cut into small tensors while a job started holds one large tensor later,
 * and an old start in the middle of it would leave the rest on the host. So the caller lets them age. On the recorded
 * GPT job, starts kept for ever name 12.1 GiB a step, starts of the last period 14.3 GiB, which is everything.
 *
 * Of the starts in each 2 MiB unit the first and the last are remembered, which is as precise as it matters: 24 bytes
 * for each unit of address space in use, 2 MiB for 160 GiB of it. Blocks are named by their first unit, a number below
 * PLAN_PIECES. Locking: none; only the mover's thread may use it. If there is no memory, starts are lost, and ends are
 * guessed too far.
 */
#ifndef SPILLWAY_TENSOR_EXTENTS_H
#define SPILLWAY_TENSOR_EXTENTS_H

#include <stdint.h>

struct tensor_extents;

struct tensor_extents *tensor_extents_new(void); /* NULL if there is no memory */
void tensor_extents_free(struct tensor_extents *extents);

/*
 * Records that a pointer to this offset of a block was seen. block_bytes: length of the block. Offsets beyond it are
 * ignored.
 */
void tensor_extents_note(struct tensor_extents *extents, uint32_t block, uint64_t block_bytes, uint64_t offset);
/*
 * Returns where the tensor that starts at `offset` ends: exact to the unit (2 MiB), always > offset, the block's end if
 * nothing is known. A start less than TENSOR_EXTENTS_VIEW after the offset does not end it: it is a view of the same
 * tensor, like the three parts of a packed projection (large segments of PyTorch hold nothing smaller than that). The
 * caller must record all pointers of a submission before it asks.
 */
#define TENSOR_EXTENTS_VIEW ((uint64_t)1 << 20)
uint64_t tensor_extents_end(struct tensor_extents *extents, uint32_t block, uint64_t offset);
/*
 * To be called for each submission that names something. period: number of such submissions after which the program
 * repeats itself (plan_span()); 0: not known. After each period, but at least TENSOR_EXTENTS_AGE submissions, a new age
 * begins. Starts that were seen neither in the age that ends nor since are forgotten; starts in use stay. If no period
 * is known, an age is TENSOR_EXTENTS_AGE_BLIND submissions, longer than most periods: if a start is forgotten too
 * early, what lies before it reaches too far.
 */
#define TENSOR_EXTENTS_AGE       2048
#define TENSOR_EXTENTS_AGE_BLIND 8192
void tensor_extents_submitted(struct tensor_extents *extents, uint64_t period);
/*
 * Returns the size up to which blocks are wanted whole, whatever part a pointer seems to mean. A guess that is too
 * short leaves memory on the host, and kernels read it over the link many times. One that is too long moves memory
 * without need, but no more than one allocation of that size would have moved, and, unless the budget is small, no more
 * than a share of it.
 *
 * Measured: GPT, 1.25: 350 ms a step with guesses in blocks up to 128 MiB, 170 without. ResNet, 1.5, whose blocks of
 * 294 MiB hold one tensor in the forward and several in the backward pass: 240 ms, and 130 with these whole and old
 * starts forgotten.
 */
#define TENSOR_EXTENTS_WHOLE_LEAST ((uint64_t)128 << 20)
#define TENSOR_EXTENTS_WHOLE_MOST  ((uint64_t)512 << 20)
#define TENSOR_EXTENTS_WHOLE_SHARE 16
uint64_t tensor_extents_whole(uint64_t budget);
/* Forgets a block that was freed; what takes its place later is another block. */
void tensor_extents_forget(struct tensor_extents *extents, uint32_t block);

#endif
