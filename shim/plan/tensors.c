// SPDX-License-Identifier: Apache-2.0
/* What is known of tensors. */
#include "shim/plan/tensors.h"
#include "shim/base/array.h"
#include "shim/plan/plan.h"
#include "shim/plan/predict.h"

#include <stdlib.h>
#include <string.h>

uint32_t ranges_after(const void *ranges, uint32_t n, size_t size, uint64_t address)
{
	uint32_t low = 0, high = n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		uint64_t begin;

		memcpy(&begin, (const char *)ranges + middle * size, sizeof(begin));
		if (begin > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* ---- tensors by address ---- */

#define FIRST_SLOTS 1024u
#define MOST_SLOTS  (1u << 20)

void tensor_table_fini(struct tensor_table *table)
{
	free(table->slot);
	*table = (struct tensor_table){0};
}

void tensor_table_clear(struct tensor_table *table)
{
	if (table->n)
		memset(table->slot, 0, table->n_slots * sizeof(*table->slot));
	table->n = 0;
}

static uint32_t home_of(const struct tensor_table *table, uint64_t begin)
{
	return (uint32_t)(begin / TENSOR_GRAIN * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (table->n_slots - 1);
}

/* Returns the tensor, or the free slot where it would be. */
static struct tensor *slot_for(const struct tensor_table *table, uint64_t begin)
{
	uint32_t at = home_of(table, begin);

	while (table->slot[at].bytes && table->slot[at].begin != begin)
		at = (at + 1) & (table->n_slots - 1);
	return &table->slot[at];
}

static bool table_grow(struct tensor_table *table)
{
	struct tensor_table more = {.n = table->n, .n_slots = table->n_slots ? 2 * table->n_slots : FIRST_SLOTS};

	more.slot = more.n_slots <= MOST_SLOTS ? calloc(more.n_slots, sizeof(*more.slot)) : NULL;
	if (!more.slot)
		return false;
	for (uint32_t i = 0; i < table->n_slots; i++)
		if (table->slot[i].bytes)
			*slot_for(&more, table->slot[i].begin) = table->slot[i];
	free(table->slot);
	*table = more;
	return true;
}

bool tensor_table_put(struct tensor_table *table, struct tensor tensor)
{
	if (2 * (table->n + 1) > table->n_slots && !table_grow(table))
		return false;
	struct tensor *slot = slot_for(table, tensor.begin);

	table->n += !slot->bytes;
	*slot = tensor;
	return true;
}

struct tensor *tensor_table_find(const struct tensor_table *table, uint64_t begin)
{
	struct tensor *slot = table->n ? slot_for(table, begin) : NULL;

	return slot && slot->bytes ? slot : NULL;
}

void tensor_table_remove(struct tensor_table *table, struct tensor *tensor)
{
	uint32_t last = table->n_slots - 1, free = (uint32_t)(tensor - table->slot);

	table->n--;
	for (uint32_t at = (free + 1) & last; table->slot[at].bytes; at = (at + 1) & last) {
		uint32_t home = home_of(table, table->slot[at].begin);

		if (((at - home) & last) < ((at - free) & last))
			continue;
		table->slot[free] = table->slot[at];
		free = at;
	}
	table->slot[free].bytes = 0;
}

/* ---- tensors of the past ---- */

void tensor_log_fini(struct tensor_log *log)
{
	free(log->events);
	free(log->names);
	free(log->first);
	free(log->alive);
	*log = (struct tensor_log){0};
}

static bool log_ready(struct tensor_log *log)
{
	if (log->failed || log->first)
		return !log->failed;
	log->events = calloc(TENSOR_LOG_EVENTS, sizeof(*log->events));
	log->names = calloc(TENSOR_LOG_NAMES, sizeof(*log->names));
	log->first = calloc(PREDICT_MOST, sizeof(*log->first));
	log->from = 1;
	log->failed = !log->events || !log->names || !log->first;
	return !log->failed;
}

/* ---- what is alive ---- */

/* Returns the index of the first tensor that ends after this byte. */
static uint32_t alive_from(const struct tensor_log *log, uint64_t address)
{
	uint32_t past = ranges_after(log->alive, log->n_alive, sizeof(*log->alive), address);

	return past && log->alive[past - 1].begin + log->alive[past - 1].bytes > address ? past - 1 : past;
}

const struct tensor *tensor_log_at(const struct tensor_log *log, uint64_t address)
{
	uint32_t index = alive_from(log, address);

	return index < log->n_alive && log->alive[index].begin <= address ? &log->alive[index] : NULL;
}

void tensor_log_forget(struct tensor_log *log, uint64_t begin, uint64_t end)
{
	uint32_t first = alive_from(log, begin), past = first;

	while (past < log->n_alive && log->alive[past].begin < end)
		past++;
	if (past == first)
		return;
	memmove(&log->alive[first], &log->alive[past], (log->n_alive - past) * sizeof(*log->alive));
	log->n_alive -= past - first;
}

static bool alive_add(struct tensor_log *log, struct tensor tensor)
{
	if (!ARRAY_ROOM(log->alive, log->n_alive, log->room_alive, TENSOR_LOG_ALIVE))
		return false;
	uint32_t index = alive_from(log, tensor.begin);
	memmove(&log->alive[index + 1], &log->alive[index], (log->n_alive - index) * sizeof(*log->alive));
	log->alive[index] = tensor;
	log->n_alive++;
	return true;
}

/* ---- recording ---- */

static void add_event(struct tensor_log *log, struct tensor_event event)
{
	log->events[log->n_events++ % TENSOR_LOG_EVENTS] = event;
}

void tensor_log_birth(struct tensor_log *log, const struct tensor_event *birth, uint64_t end)
{
	const struct tensor tensor = {birth->begin, end - birth->begin, log->n_events};

	if (tensor.bytes <= TENSOR_LOG_LEAST || !log_ready(log))
		return;
	tensor_log_forget(log, tensor.begin, end);
	if (end / TENSOR_GRAIN > UINT32_MAX || !alive_add(log, tensor))
		log->failed = true;
	else
		add_event(log, *birth);
}

void tensor_log_death(struct tensor_log *log, uint64_t position, uint64_t begin, uint64_t end)
{
	const struct tensor *tensor = tensor_log_at(log, begin);

	if (!tensor || tensor->begin != begin || tensor->bytes != end - begin || log->failed)
		return;
	uint64_t asked = tensor_log_has(log, tensor->value) ? tensor_log_event(log, tensor->value)->bytes : end - begin;
	tensor_log_forget(log, begin, end);
	add_event(log, (struct tensor_event){.position = position, .begin = begin, .bytes = asked});
}

/* ---- names ---- */

void tensor_log_name(struct tensor_log *log, uint64_t position, const uint64_t *addresses, unsigned n)
{
	uint64_t last = UINT64_MAX;

	if (!log->first || log->failed)
		return;
	if (position != log->now + 1)
		log->from = position;
	log->now = position;
	log->first[position % PREDICT_MOST] = log->n_names;
	for (unsigned i = 0; i < n; i++) {
		const struct tensor *tensor = tensor_log_at(log, addresses[i]);

		/* Most often a tensor that is named more than once is so in a row. */
		if (!tensor || tensor->begin == last)
			continue;
		last = tensor->begin;
		log->names[log->n_names++ % TENSOR_LOG_NAMES] = (uint32_t)(last / TENSOR_GRAIN);
	}
}

/* ---- reading ---- */

uint64_t tensor_log_from(const struct tensor_log *log, uint64_t position)
{
	uint64_t low = log->n_events > TENSOR_LOG_EVENTS ? log->n_events - TENSOR_LOG_EVENTS : 0, high = log->n_events;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (tensor_log_event(log, middle)->position >= position)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

bool tensor_log_names(const struct tensor_log *log, uint64_t position, uint64_t *ret_from, uint64_t *ret_to)
{
	if (!log->first || position < log->from || position > log->now || log->now - position >= PREDICT_MOST)
		return false;
	*ret_from = log->first[position % PREDICT_MOST];
	*ret_to = position == log->now ? log->n_names : log->first[(position + 1) % PREDICT_MOST];
	return log->n_names - *ret_from <= TENSOR_LOG_NAMES;
}

/* ---- free memory ---- */

void best_fit_fini(struct best_fit *fit)
{
	free(fit->range);
	*fit = (struct best_fit){0};
}

static void best_fit_remove(struct best_fit *fit, uint32_t index)
{
	fit->n--;
	memmove(&fit->range[index], &fit->range[index + 1], (fit->n - index) * sizeof(*fit->range));
}

bool best_fit_give(struct best_fit *fit, uint64_t begin, uint64_t end, uint32_t block)
{
	uint32_t index = ranges_after(fit->range, fit->n, sizeof(*fit->range), begin);
	struct best_fit_range *before = index ? &fit->range[index - 1] : NULL;
	struct best_fit_range *after = index < fit->n ? &fit->range[index] : NULL;
	bool joins_after = after && after->block == block && after->begin == end;

	if (before && before->block == block && before->end == begin) {
		before->end = joins_after ? after->end : end;
		if (joins_after)
			best_fit_remove(fit, index);
		return true;
	}
	if (joins_after) {
		after->begin = begin;
		return true;
	}
	if (!ARRAY_ROOM(fit->range, fit->n, fit->room, BEST_FIT_MOST))
		return false;
	memmove(&fit->range[index + 1], &fit->range[index], (fit->n - index) * sizeof(*fit->range));
	fit->range[index] = (struct best_fit_range){begin, end, block};
	fit->n++;
	return true;
}

bool best_fit_take(struct best_fit *fit, uint64_t bytes, struct best_fit_range *ret)
{
	uint64_t least = UINT64_MAX;
	uint32_t best = 0;

	for (uint32_t i = 0; i < fit->n; i++) {
		uint64_t size = fit->range[i].end - fit->range[i].begin;

		if (size >= bytes && size < least) {
			least = size;
			best = i;
		}
	}
	if (least == UINT64_MAX)
		return false;
	struct best_fit_range *range = &fit->range[best];
	*ret = *range;
	if (least - bytes > BEST_FIT_SPLIT) {
		ret->end = range->begin + bytes;
		range->begin += bytes;
	} else {
		best_fit_remove(fit, best);
	}
	return true;
}

/* ---- where tensors end ---- */

/*
 * One slot for each unit has the least and the greatest start in it, of this age and of the one before. A bit for each
 * unit says whether it may have a start, and a second level of bits says whether a word of those has any, so that the
 * next start after an offset is found within a few words even in a block of 100 GiB. A search clears what it finds to
 * be too old.
 */
#define UNIT_SHIFT 21
#define UNIT       ((uint64_t)1 << UNIT_SHIFT)
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

/* Arrays by unit. Only what is used becomes memory (array.h). */
struct tensor_extents {
	uint32_t age;
	uint64_t submitted; /* submissions in this age */
	uint64_t any[PLAN_PIECES / 64 / 64], bits[PLAN_PIECES / 64];
	uint32_t length[PLAN_PIECES]; /* at the first unit of a block: the block's length in units; otherwise 0 */
	struct start starts[PLAN_PIECES];
};

struct tensor_extents *tensor_extents_new(void)
{
	struct tensor_extents *extents = lazy_memory_new(sizeof(*extents));

	if (extents)
		extents->age = 1;
	return extents;
}

void tensor_extents_free(struct tensor_extents *extents)
{
	lazy_memory_free(extents, sizeof(*extents));
}

void tensor_extents_note(struct tensor_extents *extents, uint32_t block, uint64_t block_bytes, uint64_t offset)
{
	uint64_t unit = block + (offset >> UNIT_SHIFT), length = (block_bytes + UNIT - 1) >> UNIT_SHIFT;
	uint32_t within = (uint32_t)(offset & (UNIT - 1));

	if (offset >= block_bytes || block + length > PLAN_PIECES)
		return;
	extents->length[block] = (uint32_t)length;
	struct start *start = &extents->starts[unit];
	uint64_t bit = UINT64_C(1) << unit % 64;
	bool known = extents->bits[unit / 64] & bit;
	extents->bits[unit / 64] |= bit;
	extents->any[unit / 64 / 64] |= UINT64_C(1) << unit / 64 % 64;
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

/* Returns the first unit that is not below this one and may have a start; `end` or more: none before that. */
static uint64_t unit_from(const struct tensor_extents *extents, uint64_t unit, uint64_t end)
{
	uint64_t word = extents->bits[unit / 64] >> unit % 64, at = unit / 64 + 1;

	if (word)
		return unit + (unsigned)__builtin_ctzll(word);
	for (; at * 64 < end; at = (at / 64 + 1) * 64) {
		uint64_t words = extents->any[at / 64] >> at % 64;

		if (words) {
			at += (unsigned)__builtin_ctzll(words);
			return at * 64 + (unsigned)__builtin_ctzll(extents->bits[at]);
		}
	}
	return end;
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

static void clear_unit(struct tensor_extents *extents, uint64_t unit)
{
	extents->bits[unit / 64] &= ~(UINT64_C(1) << unit % 64);
	if (!extents->bits[unit / 64])
		extents->any[unit / 64 / 64] &= ~(UINT64_C(1) << unit / 64 % 64);
}

uint64_t tensor_extents_end(struct tensor_extents *extents, uint32_t block, uint64_t offset)
{
	if (block >= PLAN_PIECES)
		return offset + 1;
	uint64_t length = extents->length[block], end = block + length, least = offset + TENSOR_EXTENTS_VIEW;
	uint64_t first = block + (least >> UNIT_SHIFT);

	for (uint64_t unit = first; unit < end; unit++) {
		unit = unit_from(extents, unit, end);
		if (unit >= end)
			break;
		uint32_t start =
		    start_from(extents, &extents->starts[unit], unit == first ? (uint32_t)(least & (UNIT - 1)) : 0);
		if (start != EMPTY)
			return ((unit - block) << UNIT_SHIFT) + start;
		if (extents->starts[unit].age + 1 < extents->age)
			clear_unit(extents, unit);
	}
	return length << UNIT_SHIFT > offset ? length << UNIT_SHIFT : offset + 1;
}

void tensor_extents_forget(struct tensor_extents *extents, uint32_t block)
{
	if (block >= PLAN_PIECES)
		return;
	uint64_t end = block + (uint64_t)extents->length[block];

	for (uint64_t unit = block; unit < end; unit++) {
		extents->length[unit] = 0;
		clear_unit(extents, unit);
	}
}
