/*
 * Tensor extents: one slot for each unit, in leaves that are made when a block there is first named. A slot has the
 * least and the greatest start in the unit, of this age and of the one before. A bit for each unit says whether it may
 * have a start, and a second level of bits says whether a word of those has any, so that the next start after an offset
 * is found within a few words even in a block of 100 GiB. A search clears what it finds to be too old.
 */
#include "shim/plan/tensor_extents.h"
#include "shim/plan/plan.h"

#include <stdbool.h>
#include <stdlib.h>

#define UNIT_SHIFT 21
#define UNIT       ((uint64_t)1 << UNIT_SHIFT)
#define LEAF       4096u /* 64 words of bits, so one word of the second level */
#define LEAVES     (PLAN_PIECES / LEAF)
#define EMPTY      UINT32_MAX

/*
 * Offsets in the unit. first and last are valid if the bit is set and `age` is the present age or the one before;
 * was_first and was_last if `age` is the present one.
 */
struct start {
	uint32_t age;
	uint32_t first, last;
	uint32_t was_first, was_last; /* was_first EMPTY: none */
};

struct leaf {
	uint64_t any, bits[LEAF / 64];
	uint32_t length[LEAF]; /* at the first unit of a block: the block's length in units; otherwise 0 */
	struct start starts[LEAF];
};

struct tensor_extents {
	uint32_t age;
	uint64_t submitted; /* submissions in this age */
	struct leaf *leaf[LEAVES];
};

struct tensor_extents *tensor_extents_new(void)
{
	struct tensor_extents *extents = calloc(1, sizeof(*extents));

	if (extents)
		extents->age = 1;
	return extents;
}

void tensor_extents_free(struct tensor_extents *extents)
{
	for (unsigned i = 0; extents && i < LEAVES; i++)
		free(extents->leaf[i]);
	free(extents);
}

static struct leaf *leaf_of(const struct tensor_extents *extents, uint64_t unit)
{
	return extents->leaf[unit / LEAF % LEAVES];
}

static struct leaf *leaf_make(struct tensor_extents *extents, uint64_t unit)
{
	struct leaf **leaf = &extents->leaf[unit / LEAF % LEAVES];

	if (!*leaf)
		*leaf = calloc(1, sizeof(**leaf));
	return *leaf;
}

static uint32_t length_of(const struct tensor_extents *extents, uint32_t block)
{
	const struct leaf *leaf = leaf_of(extents, block);

	return leaf ? leaf->length[block % LEAF] : 0;
}

void tensor_extents_note(struct tensor_extents *extents, uint32_t block, uint64_t block_bytes, uint64_t offset)
{
	uint64_t unit = block + (offset >> UNIT_SHIFT);
	uint32_t within = (uint32_t)(offset & (UNIT - 1));

	if (offset >= block_bytes)
		return;
	struct leaf *home = leaf_make(extents, block), *leaf = leaf_make(extents, unit);
	if (!home || !leaf)
		return;
	home->length[block % LEAF] = (uint32_t)((block_bytes + UNIT - 1) >> UNIT_SHIFT);
	unsigned index = unit % LEAF;
	uint64_t bit = UINT64_C(1) << index % 64;
	struct start *start = &leaf->starts[index];
	bool known = leaf->bits[index / 64] & bit;
	leaf->bits[index / 64] |= bit;
	leaf->any |= UINT64_C(1) << index / 64;
	if (known && start->age == extents->age) {
		if (within < start->first)
			start->first = within;
		if (within > start->last)
			start->last = within;
		return;
	}
	bool before = known && start->age + 1 == extents->age;
	*start = (struct start){
	    .age = extents->age,
	    .first = within,
	    .last = within,
	    .was_first = before ? start->first : EMPTY,
	    .was_last = before ? start->last : 0,
	};
}

void tensor_extents_submitted(struct tensor_extents *extents, uint64_t period)
{
	uint64_t age = !period ? TENSOR_EXTENTS_AGE_BLIND : period > TENSOR_EXTENTS_AGE ? period : TENSOR_EXTENTS_AGE;

	if (++extents->submitted < age)
		return;
	extents->submitted = 0;
	extents->age++;
}

uint64_t tensor_extents_whole(uint64_t budget)
{
	uint64_t share = budget / TENSOR_EXTENTS_WHOLE_SHARE;

	return share < TENSOR_EXTENTS_WHOLE_LEAST  ? TENSOR_EXTENTS_WHOLE_LEAST
	       : share > TENSOR_EXTENTS_WHOLE_MOST ? TENSOR_EXTENTS_WHOLE_MOST
						   : share;
}

/* Returns the first unit of this leaf that is not below `index` and may have a start; EMPTY: none. */
static uint32_t next_in_leaf(const struct leaf *leaf, unsigned index)
{
	uint64_t word = leaf->bits[index / 64] >> index % 64;
	unsigned at = index / 64;

	if (word)
		return index + (unsigned)__builtin_ctzll(word);
	uint64_t words = at == 63 ? 0 : leaf->any >> (at + 1) << (at + 1);
	if (!words)
		return EMPTY;
	at = (unsigned)__builtin_ctzll(words);
	return at * 64 + (unsigned)__builtin_ctzll(leaf->bits[at]);
}

/* Returns the least start in this unit that is not below `least` (an offset in the unit); EMPTY: none, or too old. */
static uint32_t start_from(const struct tensor_extents *extents, const struct start *start, uint32_t least)
{
	uint32_t found = EMPTY;

	if (start->age + 1 < extents->age)
		return EMPTY;
	if (start->was_first != EMPTY && start->age == extents->age && start->was_last >= least)
		found = start->was_first >= least ? start->was_first : start->was_last;
	if (start->last >= least) {
		uint32_t now = start->first >= least ? start->first : start->last;

		found = now < found ? now : found;
	}
	return found;
}

static void tensor_extents_clear(struct leaf *leaf, unsigned index)
{
	leaf->bits[index / 64] &= ~(UINT64_C(1) << index % 64);
	if (!leaf->bits[index / 64])
		leaf->any &= ~(UINT64_C(1) << index / 64);
}

uint64_t tensor_extents_end(struct tensor_extents *extents, uint32_t block, uint64_t offset)
{
	uint64_t length = length_of(extents, block), least = offset + TENSOR_EXTENTS_VIEW;
	uint64_t unit = block + (least >> UNIT_SHIFT), end = block + length;
	uint32_t within = (uint32_t)(least & (UNIT - 1));

	while (unit < end) {
		struct leaf *leaf = leaf_of(extents, unit);
		uint32_t found = leaf ? next_in_leaf(leaf, unit % LEAF) : EMPTY;

		if (found == EMPTY) {
			unit = (unit / LEAF + 1) * LEAF;
			within = 0;
			continue;
		}
		within = found == unit % LEAF ? within : 0;
		unit = unit / LEAF * LEAF + found;
		if (unit >= end)
			break;
		uint32_t start = start_from(extents, &leaf->starts[found], within);
		if (start != EMPTY)
			return ((unit - block) << UNIT_SHIFT) + start;
		if (leaf->starts[found].age + 1 < extents->age)
			tensor_extents_clear(leaf, found);
		unit++;
		within = 0;
	}
	return length << UNIT_SHIFT > offset ? length << UNIT_SHIFT : offset + 1;
}

void tensor_extents_forget(struct tensor_extents *extents, uint32_t block)
{
	uint64_t end = block + (uint64_t)length_of(extents, block);

	for (uint64_t unit = block; unit < end; unit++) {
		struct leaf *leaf = leaf_of(extents, unit);
		unsigned index = unit % LEAF;

		if (!leaf)
			continue;
		leaf->length[index] = 0;
		tensor_extents_clear(leaf, index);
	}
}
