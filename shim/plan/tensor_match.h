/*
 * tensor_match.h: how the tensors of a remembered position correspond to those of now: by their order. If n events
 * have happened since that position, the event that came n before another one corresponds to it.
 *
 * Sizes may differ, as with sequences of another length: those that depend on it by one ratio, which shows in the
 * latest births; others are the same.
 *
 * Pure. Locking: none; it belongs to the plan.
 */
#ifndef SPILLWAY_TENSOR_MATCH_H
#define SPILLWAY_TENSOR_MATCH_H

#include "shim/plan/tensor_log.h"

#define TENSOR_MATCH_NONE  UINT64_MAX
#define TENSOR_MATCH_STEPS 6000 /* about as many events are looked at by tensor_match_make() */

/* Must be zeroed at first. tensor_match_fini() frees what it holds. */
struct tensor_match {
	uint64_t next;      /* number of the event of then that corresponds to the next one */
	uint64_t shift;     /* from an event of then to the one of now */
	uint64_t now, then; /* sizes that vary are now / then times as large; equal: none has varied */
	/* By size then, as `begin`: what has become of it lately, as `value`; 0: nothing likely. */
	struct tensor_table sizes;
};

void tensor_match_fini(struct tensor_match *match);
/*
 * Finds the correspondence for the present and a remembered position. Returns false if too little is remembered, or
 * there is no memory.
 */
bool tensor_match_make(struct tensor_match *match, const struct tensor_log *log, uint64_t position);
/* Returns how much the allocator will be asked for now when what corresponds to this birth comes. */
uint64_t tensor_match_bytes(const struct tensor_match *match, const struct tensor_event *then);
/* Returns enum tensor_size of a birth of now that corresponds to this one. */
uint8_t tensor_match_size(const struct tensor_match *match, const struct tensor_event *then, uint64_t bytes);
/* Returns where a tensor of log->alive, or the one that corresponds to it, began then; TENSOR_MATCH_NONE: unknown. */
uint64_t tensor_match_begin(const struct tensor_match *match, const struct tensor_log *log,
			    const struct tensor *tensor);

#endif
