/* gpu_account_page.h: the file of an account (gpu_account.h), for the library and for the tool, which reads it. */
#ifndef SPILLWAY_GPU_ACCOUNT_PAGE_H
#define SPILLWAY_GPU_ACCOUNT_PAGE_H

#include "shim/accounting/gpu_account.h"

#include <stddef.h>
#include <stdint.h>

#define GPU_ACCOUNT_VERSION 5
#define GPU_ACCOUNT_MAGIC   0x5753474143430a31u

/*
 * The lock of what anybody may have, and of the turn: byte GPU_ACCOUNT_LOCK + lock % GPU_ACCOUNT_LOCKS of the file,
 * behind those of the slots. `lock` grows if the process that holds it is stopped (gpu_account.c).
 */
#define GPU_ACCOUNT_LOCK  128
#define GPU_ACCOUNT_LOCKS 128
/* The byte of the process that is the first of those that wait to enter (gpu_account_queue). */
#define GPU_ACCOUNT_QUEUE 300

struct account_head {
	uint64_t bytes, version, magic;
	uint64_t total, lock;
	/* Written under the lock, all of it at once. */
	struct account_turn {
		uint64_t number; /* grows with each change */
		uint64_t on;
		uint64_t holder; /* number of the slot, and 1; 0: no process has the turn */
		uint64_t since;  /* CLOCK_MONOTONIC, ns */
	} turn;
	uint64_t settles; /* CLOCK_MONOTONIC, ns: nobody raises anything before this time, because a file was lost */
} __attribute__((aligned(128)));

struct account_slot {
	struct gpu_account_member member;
} __attribute__((aligned(64)));

/* Slots are read so many at a time: a page of all of them would take too much of a stack. */
#define ACCOUNT_SLOTS_READ 8
_Static_assert(GPU_ACCOUNT_MOST % ACCOUNT_SLOTS_READ == 0, "the last read has as many slots as the others");

struct account_page {
	struct account_head head;
	struct account_slot slot[GPU_ACCOUNT_MOST];
};

static inline size_t account_slot_at(unsigned index)
{
	return offsetof(struct account_page, slot) + index * sizeof(struct account_slot);
}

/* A total of 0 cannot be the policy's: the file is damaged. */
static inline bool account_head_is_ours(const struct account_head *head)
{
	return head->bytes == sizeof(struct account_page) && head->version == GPU_ACCOUNT_VERSION &&
	       head->magic == GPU_ACCOUNT_MAGIC && head->total;
}

/*
 * Returns what is left of a process that has ended: memory that nobody moves, for as long as a child of it keeps it. How
 * much that is nobody knows: all that it may have. It may have taken that since it published what it holds.
 */
static inline struct gpu_account_member account_left_by(const struct gpu_account_member *member)
{
	return (struct gpu_account_member){.pid = member->pid,
					   .may_have = member->may_have,
					   .holds = member->may_have,
					   .needs = member->may_have,
					   .stuck = member->may_have,
					   .worked = member->worked};
}

#endif
