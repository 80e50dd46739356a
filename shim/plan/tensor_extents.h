/*
 * tensor_extents.h: where do tensors end? Only where pointers start inside a block is ever seen, so the end of what a pointer
 * means is guessed: the next start seen in that block lately. A guess decides what is brought to the device, never what
 * is mapped.
 *
 * Starts must be forgotten: a block that was cut into small tensors while a job started holds one large tensor later,
 * and an old start in its midst would leave the rest of it on the host. On the recorded GPT job starts kept for ever
 * name 12.1 GiB a step, starts of the last period 14.3 GiB, which is all there is. So the caller lets them age.
 *
 * Starts are remembered as precisely as it matters, the first and the last of each 2 MiB unit: 24 bytes a unit of the
 * address space in use, 2 MiB for 160 GiB of it. Blocks are named by their first unit, a number below PLAN_PIECES.
 * Owner and lock: the engine's mover thread. Out of memory loses starts; ends are then guessed too far.
 */
#ifndef SPILLWAY_TENSOR_EXTENTS_H
#define SPILLWAY_TENSOR_EXTENTS_H

#include <stdint.h>

struct tensor_extents;

struct tensor_extents *tensor_extents_new(void); /* NULL without memory */
void tensor_extents_free(struct tensor_extents *extents);

/* A pointer to this offset of a block was seen; the block is that long. Offsets beyond it are ignored. */
void tensor_extents_note(struct tensor_extents *extents, uint32_t block, uint64_t block_bytes, uint64_t offset);
/*
 * Where what starts at offset ends: exact to the unit (2 MiB), > offset, the block's end when nothing is known.
 * A start less than TENSOR_EXTENTS_VIEW after the offset does not end it: it is a view of the same tensor, as the three parts
 * of a packed projection are (large segments of PyTorch hold nothing smaller than that). Note all pointers of a
 * submission before asking.
 */
#define TENSOR_EXTENTS_VIEW ((uint64_t)1 << 20)
uint64_t tensor_extents_end(struct tensor_extents *extents, uint32_t block, uint64_t offset);
/*
 * A submission has named something, and the program repeats itself after so many of those (plan_span(); 0: not known).
 * After each period, TENSOR_EXTENTS_AGE submissions at least, a new age begins: starts that were not seen in the one that ends,
 * nor since, are forgotten. Starts in use live on. Where no period is known an age is longer than most periods are: too
 * early forgotten, a start makes what lies before it reach too far.
 */
#define TENSOR_EXTENTS_AGE       2048
#define TENSOR_EXTENTS_AGE_BLIND 8192
void tensor_extents_submitted(struct tensor_extents *extents, uint64_t period);
/*
 * Blocks up to so many bytes are wanted whole, whatever part a pointer seems to mean. A guess that is too short leaves
 * memory on the host, and kernels read it over the link many times (GPT, 1.25: 350 ms a step with guesses in blocks up to
 * 128 MiB, 170 without; ResNet, 1.5, whose blocks of 294 MiB hold one tensor in the forward and several in the backward
 * pass: 240, and 130 with these whole and old starts forgotten). One that is too long moves memory for nothing, but no
 * more than one allocation of that size would have moved, and where the budget is not a small one, no more than a share
 * of it.
 */
#define TENSOR_EXTENTS_WHOLE_LEAST ((uint64_t)128 << 20)
#define TENSOR_EXTENTS_WHOLE_MOST  ((uint64_t)512 << 20)
#define TENSOR_EXTENTS_WHOLE_SHARE 16
uint64_t tensor_extents_whole(uint64_t budget);
/* The block is gone: what is at its place later is another one. */
void tensor_extents_forget(struct tensor_extents *extents, uint32_t block);

#endif
